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

MOST = 16  # at a path: as many as requests are at work at a time

File = tuple[int, int, int]  # as which process sees it, and which file it is: device and inode


class Spares:
    """Connections by path. One of another process, or of a file that was replaced meanwhile, is for nobody."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._spare: dict[str, list[tuple[File, sqlite3.Connection]]] = defaultdict(list)

    def take(self, path: str) -> sqlite3.Connection | None:
        """Return a connection to the file that is at a path now, None where there is none."""
        file = file_at(path)
        with self._guard:
            spare = self._spare[path]
            self._spare[path] = [one for one in spare if one[0] == file]
            found = self._spare[path].pop()[1] if self._spare[path] else None
        for of, connection in spare:
            if of != file:
                connection.close()
        return found

    def give(self, path: str, file: File | None, connection: sqlite3.Connection) -> bool:
        """Keep a connection to a file at a path; tell whether it is kept: not where enough are there."""
        with self._guard:
            if file is None or len(self._spare[path]) >= self._most:
                return False
            self._spare[path].append((file, connection))
            return True


def file_at(path: str) -> File | None:
    """Return which file is at a path now, as this process sees it; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return os.getpid(), found.st_dev, found.st_ino
