"""Ids as addresses and forms have them: text that anybody may have written."""

from __future__ import annotations

LONGEST = 18  # digits: a database refuses larger ids


def whole_number(text: str) -> int:
    """Return the id that a text is; 0, which no row has, for everything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST else 0
