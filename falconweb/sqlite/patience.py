"""How long who asks for something waits for writers in all, however often it writes. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_end: ContextVar[float | None] = ContextVar("patience_end", default=None)


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Let what is done inside wait so long for writers in all; then a locked database is told of at once."""
    token = _end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(token)


def patience_left(seconds: float) -> float:
    """Return how long to wait for another writer, s: `seconds`, or what is left of `waiting_at_most`."""
    end = _end.get()
    return seconds if end is None else max(0.0, min(seconds, end - time.monotonic()))
