"""Connections that are open and that nobody uses just now.

Under ASGI a request has a thread of its own, and a connection belongs to a thread: each request would open the file
anew, have Django's functions registered and the schema read, which takes longer than most of its queries.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import defaultdict
from pathlib import Path

MOST = 16  # of a file: as many as requests are at work at a time

File = tuple[int, int, int]  # of which process, and which file it is: device and inode


class Spares:
    """Connections by file. One of another process, or of a file that was replaced meanwhile, is nobody's any more."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._spare: dict[File, list[sqlite3.Connection]] = defaultdict(list)

    def take(self, file: File | None) -> sqlite3.Connection | None:
        """Return a connection to a file, None where there is none."""
        with self._guard:
            spare = self._spare.get(file) if file is not None else None
            return spare.pop() if spare else None

    def give(self, file: File | None, connection: sqlite3.Connection) -> bool:
        """Keep a connection; tell whether it is kept: not where the file is gone, or enough are there."""
        with self._guard:
            if file is None or len(self._spare[file]) >= self._most:
                return False
            self._spare[file].append(connection)
            return True


def file_at(path: str) -> File | None:
    """Return which file is at a path now, as this process sees it; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return os.getpid(), found.st_dev, found.st_ino
