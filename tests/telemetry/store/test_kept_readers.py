"""Which readers of chunks are kept."""

from __future__ import annotations

import numpy as np

from telemetry.store.encoder import encode
from telemetry.store.format import ChunkReader
from telemetry.store.kept_readers import ChunkRow, KeptReaders

READER = ChunkReader(encode(np.arange(3)[None], [np.ones((1, 3))]))


def row(number: int, *, version: int = 0, size: int = 40) -> ChunkRow:
    return number, 1, 0.0, 3.0, version, size


def test_the_least_used_ones_go_where_they_are_too_large_together() -> None:
    kept = KeptReaders(100)
    kept.add(row(1), READER)
    kept.add(row(2), READER)
    kept.add(row(2), READER)  # of another thread, at the same time
    assert kept.find(row(1)) is READER
    kept.add(row(3), READER)
    assert [kept.find(row(number)) for number in (1, 2, 3)] == [READER, None, READER]
    kept.add(row(4, size=101), READER)
    assert not any(kept.find(row(number, size=size)) for number in range(5) for size in (40, 101))


def test_a_chunk_that_was_made_anew_is_another_one() -> None:
    kept = KeptReaders(100)
    kept.add(row(1), READER)
    assert kept.find(row(1, version=1)) is None
    kept.clear()
    assert kept.find(row(1)) is None
