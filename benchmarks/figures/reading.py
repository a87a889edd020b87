"""Series of many runs: each is read from the database once something asks for it, of all runs at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.rows import Floats
from benchmarks.runs.models import Chunk

STORED: Final = np.dtype("<f8")
Column = tuple[Floats, Floats]
EMPTY: Final = np.zeros(0)


class Recorded:
    """What was recorded of some runs; `keys` are those of their series."""

    def __init__(self, keys: Mapping[Any, Collection[str]]) -> None:
        self._keys = keys
        self._read: dict[str, dict[Any, Column]] = {}

    def reader(self, run: Any) -> Callable[[str], Column]:
        """Return what reads a series of one of the runs: times (Unix s) and values, in the order of writing."""

        def read(key: str) -> Column:
            if key not in self._read:
                self._read[key] = self._all(key)
            return self._read[key].get(run, (EMPTY, EMPTY))

        return read

    def _all(self, key: str) -> dict[Any, Column]:
        having = [run for run, keys in self._keys.items() if key in keys]
        parts: dict[Any, list[tuple[bytes, bytes]]] = {}
        chunks = Chunk.objects.filter(series__run__in=having, series__key=key).order_by("series", "first")
        for run, at, values in chunks.values_list("series__run", "at", "values"):
            parts.setdefault(run, []).append((bytes(at), bytes(values)))
        return {
            run: (_whole([at for at, _ in pieces]), _whole([values for _, values in pieces]))
            for run, pieces in parts.items()
        }


def _whole(pieces: list[bytes]) -> NDArray[np.float64]:
    return np.frombuffer(b"".join(pieces), dtype=STORED).astype(np.float64)
