"""Waiting for what other processes and threads do in their own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(
    true: Callable[[], Any], what: str | Callable[[], str] = "", seconds: float = 60.0, *, every: float = 0.05
) -> Any:
    """Wait until something is so and return it, looking each `every` s; AssertionError with `what` was not."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, (what() if callable(what) else what) or f"it did not come to pass: {found!r}"
        time.sleep(every)
    return found
