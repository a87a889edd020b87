"""The rows of two tenants that the access matrix uses."""

from __future__ import annotations

from tests.access.test_matrix import lab

__all__ = ["lab"]
