"""What happened to readings and events in this process, counted; cheap enough for each reading."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")
Name = tuple[str, int | None]

_lock = Lock()
_counts: Counter[Name] = Counter()
_notes: dict[Name, float] = {}
_gauges: dict[str, Callable[[], float]] = {}
_counters: dict[str, Callable[[], int]] = {}


def add(name: str, n: int = 1, *, chassis: int | None = None) -> None:
    """Count something, `n` times; `name` is in snake_case and tells what of how many: 'polls_late'."""
    if n:
        with _lock:
            _counts[name, chassis] += n


def note(name: str, value: float, *, chassis: int | None = None) -> None:
    """Keep the newest value of something that goes up and down; the name ends with its unit: 'poll_lag_seconds'."""
    _notes[name, chassis] = value


def forget(chassis: int) -> None:
    """Drop what was noted of a chassis that this process follows no longer; what was counted stays counted."""
    for name in [name for name in list(_notes) if name[1] == chassis]:
        _notes.pop(name, None)


def gauge(name: str, ask: Callable[[], float]) -> None:
    """Have a value asked for at each publication: in a thread of its own, so `ask` reads a number and no more."""
    _gauges[name] = ask


def counter(name: str, ask: Callable[[], int]) -> None:
    """Have something counted elsewhere, such as in a hot path without a lock: `ask` gives how many since the start."""
    _counters[name] = ask


def counts() -> dict[Name, int]:
    """Return what was counted since the process began, by name and chassis."""
    with _lock:
        counted = dict(_counts)
    return counted | {
        (name, None): value for name, ask in list(_counters.items()) if (value := _asked(ask)) is not None
    }


def gauges() -> dict[Name, float]:
    """Return what was noted and what is asked for now, by name and chassis."""
    asked = {(name, None): value for name, ask in list(_gauges.items()) if (value := _asked(ask)) is not None}
    return dict(_notes) | asked


def _asked(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except Exception:
        # One that fails must not silence the others.
        logger.exception("a figure of this process cannot be told")
        return None
