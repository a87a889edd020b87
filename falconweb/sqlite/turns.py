"""Turns: the threads of a process, one at a time, in the order in which they came. Pure."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """A lock that is handed on to who has waited longest; `threading.Lock` lets anybody in who comes by."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def take(self, seconds: float) -> bool:
        """Wait for one's turn, so long at most; tell whether it came. Who was told True gives it back."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=seconds):
            return True
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
            return True  # it came at that very moment

    def give(self) -> None:
        """Let the next one have it."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
