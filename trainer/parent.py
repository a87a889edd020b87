"""A process that ends with the one that started it."""

from __future__ import annotations

import ctypes
import signal

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends, however it does."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
