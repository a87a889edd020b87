"""What happened to readings and events in this process, counted; cheap enough for each reading."""

from __future__ import annotations

from collections import Counter
from threading import Lock

Name = tuple[str, int | None]

_lock = Lock()
_counts: Counter[Name] = Counter()


def add(name: str, n: int = 1, *, chassis: int | None = None) -> None:
    """Count something, `n` times; `name` is in snake_case and tells what of how many: 'polls_late'."""
    if n:
        with _lock:
            _counts[name, chassis] += n


def counts() -> dict[Name, int]:
    """Return what was counted since the process began, by name and chassis."""
    with _lock:
        return dict(_counts)
