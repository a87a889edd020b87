"""Columns that move as others do are found once, and are remembered as long as they do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from telemetry.store.encoder import ChunkContent, encode_all
from telemetry.store.followers import PAIRS_USED, KnownPairs
from telemetry.store.format import ChunkReader, Columns, Values
from tests.telemetry.store.test_format import same_bits, times_of


def counters(seed: int, factors: tuple[float, ...], rows: int = 60) -> Values:
    """Return one counter, and others that grow by a factor as much; 0 for one that grows by itself."""
    random = np.random.default_rng(seed)
    first = random.uniform(1e9, 1e10, rows)
    steps = [first, *(one * first if one else random.uniform(1e9, 1e10, rows) for one in factors)]
    grown: Values = np.floor(np.cumsum(steps, axis=1))
    return grown


def test_what_moves_together_is_remembered_and_searched_anew_at_times() -> None:
    known = KnownPairs()
    together, alone = counters(1, (0.37, 2.5)), counters(2, (0.0, 0.0))
    (first,) = encode_all([ChunkContent(times_of(60), Columns.of(together), known)])
    assert len(known.own) > 0
    assert known.left == PAIRS_USED
    (again,) = encode_all([ChunkContent(times_of(60), Columns.of(together), known)])
    assert abs(len(again) - len(first)) < 9  # the last bits of a factor depend on the order of a sum
    assert known.left == PAIRS_USED - 1
    # What no longer holds is not used, and is searched in the next chunk.
    (other,) = encode_all([ChunkContent(times_of(60), Columns.of(alone), known)])
    assert other == encode_all([ChunkContent(times_of(60), Columns.of(alone))])[0]
    assert known.left == 0
    encode_all([ChunkContent(times_of(60), Columns.of(together), known)])
    assert known.left == PAIRS_USED


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([(0.37, 2.5), (0.0, 1.0), (0.0, 0.0)])), max_size=9))
def test_chunks_with_remembered_pairs_are_read_as_they_were(chunks: list[tuple[int, tuple[float, ...]]]) -> None:
    known = KnownPairs()
    for seed, factors in chunks:
        values = counters(seed, factors)
        (raw,) = encode_all([ChunkContent(times_of(60), Columns.of(values), known)])
        assert same_bits(ChunkReader(raw).fields([0, 1, 2])[0][0], values)
