"""What a message of the catalogue consists of."""

from __future__ import annotations

from typing import Final, Literal

Severity = Literal["OK", "Warning", "Critical"]
# Severity, what it says, what to do.
Words = tuple[Severity, str, str]

OK: Final[Severity] = "OK"
WARNING: Final[Severity] = "Warning"
CRITICAL: Final[Severity] = "Critical"
