"""What is packed and unpacked in C is what numpy packs and unpacks, and what numpy refuses is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from telemetry.store import batches, native
from telemetry.store.decoder import decode_all
from telemetry.store.encoder import ChunkContent, encode, encode_all
from telemetry.store.followers import KnownPairs
from telemetry.store.format import ChunkReader, Columns, DamagedError, Values
from telemetry.store.native import NativeColumns
from tests.telemetry.store.test_format import floats, moving_together, same_bits, times_of, with_last_block

Found = TypeVar("Found")

limits = st.builds(
    lambda power, units, places: (2.0**power + units) / 10.0**places,
    st.integers(45, 63), st.integers(-9, 9).map(lambda number: number / 2), st.integers(0, 7),
)  # fmt: skip
numbers = st.one_of(floats, limits, st.just(np.nan))


@pytest.fixture(scope="module")
def in_c() -> NativeColumns:
    if native.library is None:
        pytest.skip("there was no C compiler when the environment was made")
    return native.library


def by(library: NativeColumns | None, function: Callable[[], Found]) -> Found:
    """Return what a function returns with the library, or without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", library)
        return function()


def drawn(data: st.DataObject, columns: int, rows: int) -> Values:
    found: Values = data.draw(some.arrays(np.float64, (columns, rows), elements=numbers, fill=st.just(1.25)))
    return found


rows_of_a_chunk = st.sampled_from([1, 2, 9, 64, 65])


@given(st.data())
def test_rollups_are_the_same_bytes(in_c: NativeColumns, data: st.DataObject) -> None:
    rows, columns = data.draw(rows_of_a_chunk), data.draw(st.integers(1, 4))
    fields = [drawn(data, columns, rows) for _ in range(4)]
    packed = partial(encode, times_of(rows), fields, block=2)
    assert by(in_c, packed) == by(None, packed)


@given(st.data())
def test_chunks_with_remembered_pairs_have_the_same_values(in_c: NativeColumns, data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([2, 9, 10, 64]))
    values = np.concatenate((drawn(data, data.draw(st.integers(1, 3)), rows), moving_together(rows)))
    content = ChunkContent(times_of(rows), Columns.of(values), known := KnownPairs())
    for library in (None, in_c):  # the first one searches
        if library and not known.left:
            known.left = 1
        (raw,) = by(library, partial(encode_all, [content]))
        ((found, _),) = ChunkReader(raw).fields(range(len(values)))
        assert same_bits(found, values)


@given(st.data())
def test_chunks_are_read_alike(in_c: NativeColumns, data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 4))
    raw = []
    for _ in range(data.draw(st.integers(1, 3))):
        rows = data.draw(rows_of_a_chunk)
        raw.append(encode(times_of(rows), [np.concatenate((drawn(data, columns, rows), moving_together(rows)))]))
    (times, one, places), (other_times, other, other_places) = (
        by(library, lambda: decode_all([ChunkReader(chunk) for chunk in raw])) for library in (in_c, None)
    )
    assert (one.moving == other.moving).all()
    assert same_bits(one.values, other.values)
    assert same_bits(one.fixed, other.fixed)
    assert (times == other_times).all()
    assert (np.stack(places) == np.stack(other_places)).all()


@given(st.data())
def test_a_changed_block_is_refused_or_read_alike(in_c: NativeColumns, data: st.DataObject) -> None:
    raw = encode(times_of(70), [np.concatenate((moving_together(70), [[1.5] * 69 + [np.nan]]))])

    def changed(block: bytes) -> bytes:
        plain = bytearray(zstandard.decompress(block))
        place = data.draw(st.integers(0, min(len(plain) - 1, 200)))
        plain[place] = data.draw(st.integers(0, 255))
        return zstandard.compress(bytes(plain[: data.draw(st.sampled_from([len(plain), len(plain) - 1, 5]))]))

    chunk = with_last_block(raw, changed)

    def read() -> Values | None:
        try:
            return decode_all([chunk])[1].some(np.arange(4))
        except DamagedError:
            return None

    one, other = by(in_c, read), by(None, read)
    assert (one is None) == (other is None)
    assert one is None or other is None or same_bits(one, other)


@given(st.data())
def test_rows_become_the_same_columns(in_c: NativeColumns, data: st.DataObject) -> None:
    count, rows = data.draw(st.integers(1, 6)), data.draw(rows_of_a_chunk)
    table = np.ascontiguousarray(drawn(data, count, rows).T)
    order = np.array(data.draw(st.permutations(range(count))), dtype=np.intp)
    counters = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    one, *counted = in_c.columns(table, order, counters)
    other, *also_counted = batches.cleaned(Columns.of_rows(table, order), counters)
    assert counted == also_counted
    assert same_bits(one.fixed, other.fixed)
    assert (one.moving == other.moving).all()
    assert same_bits(one.values, other.values)


def test_without_a_library_for_this_machine_numpy_does_it(tmp_path: Path) -> None:
    assert native.load_columns(tmp_path / "none.so") is None
    (tmp_path / "other.so").write_text("of another machine")
    assert native.load_columns(tmp_path / "other.so") is None
