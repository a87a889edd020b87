"""Readers of the chunks that charts have read last: the charts of a page read the same ones, a request each.

Of such a chunk the bytes are checked, and what was drawn of it is uncompressed.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from telemetry.store.format import ChunkReader

ChunkRow = tuple[int, int, float, float, int, int]  # id, catalogue, since, until, version, size: tells what is in it


class KeptReaders:
    """Readers by the rows of their chunks; those that were used last, of `most` bytes in all, as stored.

    A chunk that is made anew has another version. Uncompressed, they take up to three times as much.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._guard = Lock()
        self._readers: OrderedDict[ChunkRow, ChunkReader] = OrderedDict()
        self._bytes = 0

    def find(self, row: ChunkRow) -> ChunkReader | None:
        with self._guard:
            if row in self._readers:
                self._readers.move_to_end(row)
            return self._readers.get(row)

    def add(self, row: ChunkRow, reader: ChunkReader) -> None:
        with self._guard:
            if row not in self._readers:
                self._bytes += row[-1]
            self._readers[row] = reader
            while self._bytes > self._most:
                (*_, size), _ = self._readers.popitem(last=False)
                self._bytes -= size

    def clear(self) -> None:
        with self._guard:
            self._readers.clear()
            self._bytes = 0
