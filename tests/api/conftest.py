"""The rows of two tenants that the access matrix uses."""

from __future__ import annotations

from tests.access.lab import made_lab
from tests.access.lab import shared_lab as lab

__all__ = ["lab", "made_lab"]
