"""Waiting for what other processes and threads do in their own time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

LONGEST_PAUSE = 0.3  # s
Value = TypeVar("Value")


class Pauses:
    """Pauses between two looks: a fifth of the time since something last moved, so that who waits long looks rarely.

    `every` is the shortest (s). A look is never later than by LONGEST_PAUSE, or `every` where that is more.
    """

    def __init__(self, every: float = 0.03) -> None:
        self.every = every
        self.moved = time.monotonic()
        self._seen: object = None

    def length(self, seen: object = None) -> float:
        """Return how long until the next look (s); where `seen` is not what it was last time, anew the shortest."""
        if seen != self._seen:
            self.moved, self._seen = time.monotonic(), seen
        return max(self.every, min(LONGEST_PAUSE, (time.monotonic() - self.moved) / 5))

    def take(self, seen: object = None) -> None:
        """Sleep until the next look."""
        time.sleep(self.length(seen))


def wait_for(
    true: Callable[[], Any], what: str | Callable[[], str] = "", seconds: float = 60.0, *, every: float = 0.03
) -> Any:
    """Wait until something is so and return it, looking each `every` s at most; AssertionError with `what` was not."""
    end, pauses = time.monotonic() + seconds, Pauses(every)
    while not (found := true()):
        assert time.monotonic() < end, (what() if callable(what) else what) or f"it did not come to pass: {found!r}"
        pauses.take()
    return found


def eventually(read: Callable[[], Value], wanted: Callable[[Value], bool], seconds: float = 60.0) -> Value:
    """Read until the value is as wanted, and return it; AssertionError with the last value."""
    last: list[Value] = []

    def is_wanted() -> bool:
        last[:] = [read()]
        return wanted(last[0])

    wait_for(is_wanted, lambda: f"never as wanted; the last value was {last[0]!r}", seconds)
    return last[0]


async def eventually_in_loop(
    read: Callable[[], Awaitable[Value]], wanted: Callable[[Value], bool], seconds: float = 60.0
) -> Value:
    """Do what `eventually` does, and let the event loop go on meanwhile."""
    end, pauses = time.monotonic() + seconds, Pauses()
    while not wanted(value := await read()):
        assert time.monotonic() < end, f"never as wanted; the last value was {value!r}"
        await asyncio.sleep(pauses.length())
    return value
