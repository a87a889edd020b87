"""Heartbeats of the loops of this process: to the launcher that restarts what hangs, and by `silence` to others.

The launcher reads a pipe whose number is in the environment variable PIPE; without it, only `silence` tells.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Final

PIPE: Final = "FALCONWEB_HEARTBEAT"
BEAT_SECONDS: Final = 1.0  # between two beats of a loop

_lock = threading.Lock()
_beats: dict[str, float] = {}  # by loop; monotonic s
_turned: set[str] = set()  # since the last one to the launcher


def beat(loop: str) -> None:
    """Record that a loop turned; called by the loop itself, at least each few seconds.

    A process of several loops has a heartbeat only while each of them turns.
    """
    with _lock:
        _beats[loop] = time.monotonic()
        _turned.add(loop)
        if _turned >= _beats.keys():
            _turned.clear()
            _tell_launcher()


def pause(loop: str) -> None:
    """Record that a loop waits until its next beat: others of this process are not expected to wait for it."""
    with _lock:
        _beats.pop(loop, None)
        _turned.discard(loop)


def silence() -> float | None:
    """Return the seconds since the last beat of the loop that has been silent longest; None without loops."""
    with _lock:
        return time.monotonic() - min(_beats.values()) if _beats else None


def _tell_launcher() -> None:
    pipe = os.environ.get(PIPE)
    if pipe is not None:
        # It is full while the launcher hangs, and broken after its end.
        with suppress(OSError, ValueError):
            os.write(int(pipe), b"+")
