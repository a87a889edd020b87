"""The form of a chunk: what comes out is what went in, and what was damaged is found."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from telemetry.store.decoder import decode_all, decode_columns, decode_fields
from telemetry.store.encoder import ChunkContent, encode, encode_all
from telemetry.store.format import BLOCK, ChunkReader, Columns, DamagedError, Values

shapes = st.tuples(st.integers(1, 9), st.integers(1, 70))
floats = st.one_of(
    st.floats(width=64),
    st.decimals(-10_000, 10_000, places=2).map(float),
    st.integers(0, 2**64).map(float),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, 5e-324, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e308]),
)


def same_bits(one: Values, other: Values) -> bool:
    """Tell whether values are the same bit by bit, all NaN being one."""
    return bool((np.isnan(one) == np.isnan(other)).all()) and bool(
        (np.nan_to_num(one).view(np.int64) == np.nan_to_num(other).view(np.int64)).all()
    )


def times_of(rows: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.stack([1_700_000_000_000 + 1000 * np.arange(rows), np.zeros(rows, np.int64)])


@given(some.arrays(np.float64, shapes, elements=floats))
def test_any_floats_come_back_bit_by_bit(values: Values) -> None:
    chunk = ChunkReader(encode(times_of(values.shape[1]), [values]))
    ((found, _),) = chunk.fields(range(len(values)))
    assert same_bits(found, values)
    assert (chunk.times == times_of(values.shape[1])).all()


@given(st.data())
def test_chunks_read_together_are_those_read_alone(data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 5))
    parts = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.sampled_from([1, 9, 20]))
        drawn = data.draw(some.arrays(np.float64, (columns, rows), elements=floats))
        parts.append(np.concatenate((drawn, moving_together(rows))))
    readers = [ChunkReader(encode(times_of(part.shape[1]), [part])) for part in parts]
    times, joined, places = decode_all(readers)
    assert same_bits(joined.some(np.arange(columns + 3)), np.concatenate(parts, axis=1))
    assert (times == np.concatenate([reader.times for reader in readers], axis=1)).all()
    assert [one.tolist() for one in places] == [one.fields(range(columns + 3))[0][1].tolist() for one in readers]


@given(
    some.arrays(np.int64, st.tuples(st.just(2), st.integers(1, 40)), elements=st.integers(-(2**63), 2**63 - 1)),
)
def test_any_times_come_back(times: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    assert (ChunkReader(encode(times, [np.zeros((1, times.shape[1]))])).times == times).all()


@given(st.data())
def test_some_columns_of_several_fields_are_those_of_all(data: st.DataObject) -> None:
    fields = [data.draw(some.arrays(np.float64, (11, 5), elements=floats)) for _ in range(3)]
    wanted = data.draw(st.lists(st.integers(0, 10), max_size=12))
    chunk = ChunkReader(encode(times_of(5), fields, block=4))
    for (found, _), (table, _), field in zip(chunk.fields(wanted), decode_fields(chunk)[1], fields, strict=True):
        assert same_bits(found, field[wanted])
        assert same_bits(table.some(np.arange(11)), field)


@given(st.data())
def test_some_columns_of_several_chunks_are_those_of_each(data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(0, 10), max_size=12))
    numbers = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
    rows = data.draw(st.lists(st.sampled_from([1, 5, 9]), min_size=1, max_size=3))
    parts = [[data.draw(some.arrays(np.float64, (11, length), elements=floats)) for _ in range(3)] for length in rows]
    readers = [
        ChunkReader(encode(times_of(length), fields, block=4)) for length, fields in zip(rows, parts, strict=True)
    ]
    times, found = decode_columns(readers, wanted, numbers)
    assert (times == np.concatenate([times_of(length) for length in rows], axis=1)).all()
    for number, values in zip(numbers, found, strict=True):
        assert same_bits(values, np.concatenate([fields[number][wanted] for fields in parts], axis=1))


def test_columns_that_chunks_do_not_have_in_common_are_not_read() -> None:
    one, other = (ChunkReader(encode(times_of(3), [np.ones((count, 3))])) for count in (2, 3))
    for readers, columns, numbers in (([one, other], [0], [0]), ([one], [2], [0]), ([one], [0], [1])):
        with pytest.raises(DamagedError):
            decode_columns(readers, columns, numbers)


def test_counters_beyond_what_a_float_counts_singly_come_back() -> None:
    counter = 2.0**53 + 2 * np.arange(60.0)
    huge = 2.0**60 + 4096 * np.arange(60.0)
    wrapping = np.where(np.arange(60) < 30, 2.0**63 - 1024, -(2.0**63))
    ((found, _),) = ChunkReader(encode(times_of(60), [np.stack([counter, huge, wrapping])])).fields([0, 1, 2])
    assert same_bits(found, np.stack([counter, huge, wrapping]))


def test_decimals_are_told_with_their_places() -> None:
    values = np.array([[19.5, 20.25, 20.0], [5500.0, 5501.0, 5400.0], [1 / 3, 2 / 3, 1.0], [math.nan, 0.125, 0.125]])
    ((_, places),) = ChunkReader(encode(times_of(3), [values])).fields(range(4))
    assert places.tolist() == [2, 0, -1, 3]


def test_a_minute_of_four_hundred_still_readings_takes_next_to_nothing() -> None:
    values = np.repeat(np.arange(400.0)[:, None], 60, axis=1)
    assert len(encode(times_of(60), [values])) < 1500


def test_few_columns_are_read_without_the_blocks_of_others() -> None:
    values = np.random.default_rng(1).random((3 * BLOCK, 20))
    raw = bytearray(encode(times_of(20), [values]))
    chunk = ChunkReader(memoryview(raw))
    raw[-10:] = bytes(10)  # of the last block, after the check of the whole
    ((found, _),) = chunk.fields([1, BLOCK + 1])
    assert same_bits(found, values[[1, BLOCK + 1]])
    with pytest.raises(DamagedError):
        chunk.fields([3 * BLOCK - 1])


@given(st.data())
def test_a_changed_byte_or_a_missing_end_is_found(data: st.DataObject) -> None:
    raw = encode(times_of(7), [np.arange(21.0).reshape(3, 7)])
    place = data.draw(st.integers(0, len(raw) - 1))
    changed = bytearray(raw)
    changed[place] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(changed), raw[:place]):
        with pytest.raises(DamagedError):
            ChunkReader(bad).fields([0, 1, 2])


@given(st.binary(max_size=200))
def test_what_was_never_a_chunk_is_told(raw: bytes) -> None:
    with pytest.raises(DamagedError):
        ChunkReader(raw)


@given(st.binary(max_size=80), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
def test_a_chunk_that_claims_anything_is_refused_and_takes_no_room(
    rest: bytes, rows: int, columns: int, block: int
) -> None:
    body = struct.pack("<IIHBB", rows, columns, block, 2, 0) + rest
    raw = struct.pack("<2sBBI", b"FW", 1, 1, zlib.crc32(body)) + body
    with pytest.raises(DamagedError):
        ChunkReader(raw).fields([0])
    with pytest.raises(DamagedError):
        decode_all([ChunkReader(raw)])


def moving_together(rows: int) -> Values:
    """Return two counters, one that grows 0.37 times as much as the first, and one that grows by itself."""
    random = np.random.default_rng(rows)
    steps = random.uniform(1e9, 1e10, (2, rows))
    grown: Values = np.floor(np.cumsum([steps[0], 0.37 * steps[0], steps[1]], axis=1))
    return grown


def test_a_column_that_moves_as_another_does_takes_a_fraction_and_is_read_alone() -> None:
    values = moving_together(60)
    alone, both = (encode(times_of(60), [values[some]]) for some in ([0, 2], [0, 1, 2]))
    assert len(both) - len(alone) < 90  # 60 differences of 5 bytes otherwise
    chunk = ChunkReader(both)
    for wanted in ([0], [1], [2], [1, 1, 0], [2, 0, 1]):
        ((found, _),) = chunk.fields(wanted)
        assert same_bits(found, values[wanted])
    assert same_bits(decode_fields(chunk)[1][0][0].some(np.arange(3)), values)


@given(st.data())
def test_chunks_made_together_are_those_made_alone(data: st.DataObject) -> None:
    contents = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.sampled_from([1, 9, 20]))
        drawn = data.draw(some.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(rows)), elements=floats))
        contents.append(ChunkContent(times_of(rows), Columns.of(np.concatenate((drawn, moving_together(rows))))))
    assert encode_all(contents) == [encode(one.times, [one.columns]) for one in contents]


def test_chunks_of_the_first_version_are_read() -> None:
    raw = bytearray(encode(times_of(7), [np.arange(21.0).reshape(3, 7)]))
    raw[2] = 1  # all else is the same where no column is told from another
    assert same_bits(ChunkReader(bytes(raw)).fields([0, 1, 2])[0][0], np.arange(21.0).reshape(3, 7))


def with_last_block(raw: bytes, change: Callable[[bytes], bytes]) -> ChunkReader:
    """Read a chunk of one block of values that was changed and has the right CRC-32."""
    begin = 28 + int.from_bytes(raw[20:24], "little")  # after the header, the shape, two sizes, and the times
    block = change(raw[begin:])
    body = raw[8:24] + len(block).to_bytes(4, "little") + raw[28:begin] + block
    return ChunkReader(raw[:4] + zlib.crc32(body).to_bytes(4, "little") + body)


@pytest.mark.parametrize("other", [0, 3, 4, 256, 65_535], ids=["itself", "still", "next", "far", "farthest"])
def test_a_column_that_is_told_from_none_that_can_tell_it_is_damage(other: int) -> None:
    raw = encode(times_of(60), [np.concatenate((moving_together(60), np.ones((1, 60))))])

    def changed(block: bytes) -> bytes:
        plain = bytearray(zstandard.decompress(block))
        follows = [place for place in range(4) if plain[4 + place] & 0x40]
        assert len(follows) == 1
        named = follows[0] if other == 0 else other
        plain[72:74] = named.to_bytes(2, "little")
        return zstandard.compress(plain)

    assert decode_all([with_last_block(raw, lambda block: block)])[1].rows == 60
    chunk = with_last_block(raw, changed)
    with pytest.raises(DamagedError):
        chunk.fields([0, 1])
    with pytest.raises(DamagedError):
        decode_all([chunk])


def test_a_block_that_claims_more_than_its_columns_can_have_takes_no_room() -> None:
    chunk = with_last_block(
        encode(times_of(7), [np.arange(21.0).reshape(3, 7)]),
        lambda _: b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\1\0\0",
    )
    with pytest.raises(DamagedError):
        chunk.fields([0])
    with pytest.raises(DamagedError):
        decode_all([chunk])


def test_chunks_with_different_columns_are_not_read_together() -> None:
    readers = [ChunkReader(encode(times_of(7), [np.ones((columns, 7))])) for columns in (3, 5)]
    with pytest.raises(DamagedError):
        decode_all(readers)
