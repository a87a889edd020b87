"""The rows of two tenants that the access matrix uses."""

from __future__ import annotations

from tests.access.lab import lab, made_lab

__all__ = ["lab", "made_lab"]
