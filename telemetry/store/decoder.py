"""Reads columns of several blocks and chunks at once (see telemetry.store.format): one has too few for the calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.store import native
from telemetry.store.format import (
    HOLES,
    MAX_VALUES,
    REFERENCE,
    WIDTH,
    ChunkReader,
    Columns,
    DamagedError,
    Integers,
    Places,
    SmallIntegers,
    Values,
    add_predicted,
    decimal_places,
    span_of,
    sum_differences,
    to_floats,
)


def decode_all(readers: Sequence[ChunkReader]) -> tuple[Integers, Columns, list[Places]]:
    """Return times, [kinds, rows], and columns of chunks with the same columns, in the given order.

    Of each chunk it returns the decimal places, too. The fields of a column are columns side by side. Raises
    DamagedError, also where the chunks are better read one by one.
    """
    shapes = {(reader.kinds, reader.columns, reader.field_count) for reader in readers}
    room = len(readers) * readers[0].stored * max(reader.rows for reader in readers)
    if len(shapes) > 1 or room > MAX_VALUES:
        raise DamagedError("Some chunks have other columns than others, or too many values to read them together.")
    # All columns of all chunks stand one after the other, the times of each chunk first.
    blocks = [(*block, reader.rows) for reader in readers for block in reader.raw_blocks()]
    try:
        return _joined(
            readers,
            _plain_chunks(readers, blocks)
            if native.library is None
            else _native_chunks(native.library, readers, blocks),
        )
    except (ValueError, IndexError) as error:
        raise DamagedError(f"Some chunks cannot be read: {error}.") from error


def decode_fields(reader: ChunkReader) -> tuple[Integers, list[tuple[Columns, Places]]]:
    """Return the times of a chunk, and each field with all of its columns and their places; raises DamagedError."""
    times, joined, (places,) = decode_all([reader])
    found = []
    for field in range(reader.field_count):
        own = slice(field, None, reader.field_count)
        mine = joined.moving % reader.field_count == field
        moving = joined.moving[mine] // reader.field_count
        found.append((Columns(joined.rows, joined.fixed[own], moving, joined.values[mine]), places[own]))
    return times, found


RawBlock = tuple[SmallIntegers, int, int]  # its bytes, how many columns and rows it has


class _DecodedChunks(NamedTuple):
    """The columns of several chunks: the times of all, and of the others, [chunks, columns], what they are."""

    kinds: SmallIntegers
    first: Values  # the first value of each
    moves: NDArray[np.bool_]  # of others, all values are the first one
    times: Integers
    values: list[Values]  # of each chunk, those of the columns that move, [columns, rows]


def _native_chunks(
    library: native.NativeColumns, readers: Sequence[ChunkReader], blocks: Sequence[RawBlock]
) -> _DecodedChunks:
    chunks, of_times = len(readers), readers[0].kinds
    raw, counts, rows = zip(*blocks, strict=True)
    are_times = [number % (len(blocks) // chunks) == 0 for number in range(len(blocks))]
    found = library.unpack(raw, counts, rows, are_times)
    own = slice(of_times, None)
    moves = found.moves.reshape(chunks, -1)[:, own]
    lengths = [reader.rows for reader in readers]
    counted = moves.sum(axis=1)
    parts = np.split(found.values, np.cumsum(counted * lengths)[:-1])
    values = [one.reshape(shape) for one, shape in zip(parts, zip(counted.tolist(), lengths, strict=True), strict=True)]
    kinds, first = found.kinds.reshape(chunks, -1)[:, own], found.first.reshape(chunks, -1)[:, own]
    return _DecodedChunks(kinds, first, moves, found.times, values)


def _plain_chunks(readers: Sequence[ChunkReader], blocks: Sequence[RawBlock]) -> _DecodedChunks:
    heads = np.concatenate([raw[: 18 * count].reshape(18, count) for raw, count, _ in blocks], axis=1)
    kinds, packing = heads[0], heads[1]
    first, least = np.ascontiguousarray(heads[2:].T).view("<i8").T
    moving = packing.nonzero()[0]
    packed = packing[moving]
    ends = np.cumsum([0, *(count for _, count, _ in blocks)])
    block_of = np.searchsorted(ends, moving, side="right") - 1
    holed, followed = (np.bincount(block_of[packed & bit > 0], minlength=len(blocks)) for bit in (HOLES, REFERENCE))
    # In each block the numbers of a width stand together.
    key = block_of * 16 + (packed & WIDTH)
    order = np.argsort(key, kind="stable")
    key = key[order]
    cuts = [*np.flatnonzero(np.diff(key, prepend=-1)).tolist(), len(key)]
    groups: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for begin, end in pairwise(cuts):
        number, width = divmod(int(key[begin]), 16)
        groups[number].append((begin, end, width))
    bytes_of = np.zeros((len(moving), max(reader.rows for reader in readers), 8), np.uint8)
    bits, others, factors = [], [], []
    for number, (raw, count, rows) in enumerate(blocks):
        at = 18 * count
        if holed[number]:
            size = -(-rows // 8)
            bits.append((number, raw[at : at + size * holed[number]].reshape(holed[number], size)))
            at += bits[-1][1].size
        if told := followed[number]:
            others.append(np.arange(ends[number], ends[number + 1])[raw[at : at + 2 * told].view("<u2")])
            factors.append(raw[at + 2 * told : at + 10 * told].view("<f8"))
            at += 10 * int(told)
        for begin, end, width in groups[number]:
            if width:
                planes = raw[at : at + width * (end - begin) * rows].reshape(width, end - begin, rows)
                bytes_of[begin:end, :rows, :width] = planes.transpose(1, 2, 0)
                at += planes.size
        if at != len(raw):
            raise ValueError("its size does not fit")
    # Shorter chunks end with rows that nobody reads.
    numbers = bytes_of.view("<i8")[:, :, 0]
    whole = np.empty_like(numbers)
    whole[order] = numbers
    whole += least[moving][:, None]
    sum_differences(whole, packed, first[moving])
    if others:
        pairs = np.stack((moving[packed & REFERENCE > 0], np.concatenate(others)))
        add_predicted(whole, packed, moving, pairs, np.concatenate(factors))
    values = to_floats(kinds[moving], whole)
    for number, packed_bits in bits:
        rows = blocks[number][2]
        which = ((block_of == number) & (packed & HOLES > 0)).nonzero()[0]
        gone = np.unpackbits(packed_bits, axis=1, count=rows, bitorder="little").view(bool)
        values[which, :rows] = np.where(gone, np.nan, values[which, :rows])
    return _by_chunk(readers, _DecodedColumns(kinds, least, moving, whole, values))


class _DecodedColumns(NamedTuple):
    """Columns of several chunks: `least` has the constant ones, `whole` and `values` the others, `moving`."""

    kinds: SmallIntegers
    least: Integers
    moving: NDArray[np.intp]
    whole: Integers
    values: Values


def _by_chunk(readers: Sequence[ChunkReader], decoded: _DecodedColumns) -> _DecodedChunks:
    kinds, least, moving, whole, values = decoded
    chunks, of_times = len(readers), readers[0].kinds
    count = len(kinds) // chunks
    first = to_floats(kinds, least[:, None])[:, 0]
    first[moving] = values[:, 0]
    moves = np.zeros(len(kinds), bool)
    moves[moving] = True
    lengths = [reader.rows for reader in readers]
    times = np.repeat(least.reshape(chunks, count)[:, :of_times].T, lengths, axis=1)
    begin, cuts = 0, np.searchsorted(moving, np.arange(chunks + 1) * count).tolist()
    parts = []
    for number, length in enumerate(lengths):
        own = slice(cuts[number], cuts[number + 1])
        column = moving[own] - number * count
        clocks = int(np.searchsorted(column, of_times))
        times[column[:clocks], begin : begin + length] = whole[own][:clocks, :length]
        parts.append(values[own][clocks:, :length])
        begin += length
    rest = slice(of_times, None)
    return _DecodedChunks(
        kinds.reshape(chunks, count)[:, rest],
        first.reshape(chunks, count)[:, rest],
        moves.reshape(chunks, count)[:, rest],
        times,
        parts,
    )


def _joined(readers: Sequence[ChunkReader], decoded: _DecodedChunks) -> tuple[Integers, Columns, list[Places]]:
    """Return the rows of chunks one after the other."""
    kinds, first, moves, times, values = decoded
    is_moving = (first.view(np.int64) != first[0].view(np.int64)).any(axis=0) | moves.any(axis=0)
    found = np.flatnonzero(is_moving)
    place = np.cumsum(is_moving) - 1
    rows = [reader.rows for reader in readers]
    table = np.repeat(first[:, found].T, rows, axis=1)
    begin = 0
    for own, part, length in zip(moves, values, rows, strict=True):
        table[place[own], begin : begin + length] = part
        begin += length
    is_missing = np.isnan(table[:, 0])
    is_missing[is_missing] = np.isnan(table[is_missing]).all(axis=1)
    if is_missing.any():
        found, table = found[~is_missing], table[~is_missing]
    return times, Columns(begin, first[0], found, table), list(decimal_places(kinds))


def decode_columns(
    readers: Sequence[ChunkReader], columns: Sequence[int], numbers: Sequence[int]
) -> tuple[Integers, list[Values]]:
    """Return times, [kinds, rows], and some fields, each f8[len(columns), rows], of chunks in the given order.

    `numbers` are those of the fields. The chunks have the same columns, none of which is told from another: rollups.
    Raises DamagedError.
    """
    try:
        selected = _selected_blocks(readers, np.asarray(columns, np.intp), np.asarray(numbers, np.intp))
        return _decode_selected(readers, selected, len(numbers))
    except (ValueError, IndexError) as error:
        raise DamagedError(f"Some chunks cannot be read: {error}.") from error


class _SelectedBlock(NamedTuple):
    """The columns of a block that are read, and the rows of the table that they become: times, then all fields."""

    number: int
    columns: NDArray[np.intp]
    rows: NDArray[np.intp]


def _selected_blocks(
    readers: Sequence[ChunkReader], columns: NDArray[np.intp], numbers: NDArray[np.intp]
) -> list[_SelectedBlock]:
    first = readers[0]
    if len({(one.kinds, one.columns, one.field_count, one.width) for one in readers}) > 1:
        raise ValueError("they have other columns than others")
    if columns.max(initial=0) >= first.columns or numbers.max() >= first.field_count:
        raise IndexError("there are no such columns or fields")
    found = [_SelectedBlock(0, np.arange(first.kinds), np.arange(first.kinds))]
    of_block = columns // first.width
    for number in sorted(set(of_block.tolist())):
        here = np.flatnonzero(of_block == number)
        own = (columns[here] - number * first.width) * first.field_count + numbers[:, None]
        rows = first.kinds + here + len(columns) * np.arange(len(numbers))[:, None]
        found.append(_SelectedBlock(number + 1, own.ravel(), rows.ravel()))
    return found


class _BlockLayout(NamedTuple):
    """Where the numbers of some columns are in their blocks, which are those of several chunks."""

    kinds: SmallIntegers
    packing: SmallIntegers
    first: Integers
    least: Integers
    rank: NDArray[np.intp]  # of a column among those of its block and width, which stand together
    ends: NDArray[np.intp]  # [blocks, 16], of the numbers of each width
    holed: NDArray[np.intp]  # how many columns of each block lack values
    hole: NDArray[np.intp]  # of a column among those

    @classmethod
    def of(cls, blocks: Sequence[tuple[SmallIntegers, int, int]], columns: Sequence[NDArray[np.intp]]) -> _BlockLayout:
        """Return it for the given columns of uncompressed blocks of so many columns and rows; raises ValueError."""
        counts, rows = np.array([(count, rows) for _, count, rows in blocks]).T
        heads = np.concatenate([raw[: 18 * count].reshape(18, count) for raw, count, _ in blocks], axis=1)
        block_of = np.repeat(np.arange(len(blocks)), counts)
        packing = heads[1]
        key = (block_of * 16 + (packing & WIDTH)).astype(np.min_scalar_type(16 * len(blocks)))
        alike = np.bincount(key, minlength=16 * len(blocks))
        rank = np.empty(len(key), np.intp)
        rank[np.argsort(key, kind="stable")] = np.arange(len(key))
        rank -= (alike.cumsum() - alike)[key]
        sizes = alike.reshape(-1, 16) * np.arange(16) * rows[:, None]
        has_hole = packing & HOLES > 0
        holed = np.bincount(block_of[has_hole], minlength=len(blocks))
        ends = (18 * counts + holed * -(-rows // 8))[:, None] + sizes.cumsum(axis=1)
        whole_sizes = [len(raw) for raw, _, _ in blocks]
        if sizes[:, 9:].any() or (packing & REFERENCE).any() or ends[:, -1].tolist() != whole_sizes:
            raise ValueError("its size does not fit")
        begins = (counts.cumsum() - counts).tolist()
        read = np.concatenate([begin + own for begin, own in zip(begins, columns, strict=True)])
        hole = (has_hole.cumsum() - 1)[read] - np.repeat(holed.cumsum() - holed, [len(own) for own in columns])
        first, least = np.ascontiguousarray(heads[2:, read].T).view("<i8").T
        return cls(heads[0, read], packing[read], first, least, rank[read], ends, holed, hole)

    def unpack(
        self, block: tuple[SmallIntegers, int, int], number: int, own: slice, bytes_of: SmallIntegers
    ) -> list[tuple[int, NDArray[np.bool_]]]:
        """Put the bytes of a block's columns, `own` of these, into [columns, rows, 8].

        Returns the columns that lack values, and in which rows.
        """
        raw, count, rows = block
        packing, rank = self.packing[own], self.rank[own]
        widths = packing & WIDTH
        for width in set(widths.tolist()) - {0}:
            which = np.flatnonzero(widths == width)
            planes = raw[self.ends[number, width - 1] : self.ends[number, width]].reshape(width, -1, rows)
            here, there = span_of(which), span_of(rank[which])
            for place, plane in enumerate(planes):
                bytes_of[here, :, place] = plane[there]
        if not self.holed[number]:
            return []
        bits = raw[18 * count : self.ends[number, 0]].reshape(self.holed[number], -1)[self.hole[own]]
        return [
            (row, np.unpackbits(bits[row], count=rows, bitorder="little").view(bool))
            for row in np.flatnonzero(packing & HOLES).tolist()
        ]


def _decode_selected(
    readers: Sequence[ChunkReader], selected: Sequence[_SelectedBlock], fields: int
) -> tuple[Integers, list[Values]]:
    blocks = [(*reader.raw_block(one.number), reader.rows) for reader in readers for one in selected]
    layout = _BlockLayout.of(blocks, [one.columns for _ in readers for one in selected])
    of_times = readers[0].kinds
    order = np.concatenate([one.rows for one in selected])
    begins = np.cumsum([0, *(len(one.rows) for one in selected)]).tolist()
    ends = np.cumsum([0, *(reader.rows for reader in readers)]).tolist()
    times = np.empty((of_times, ends[-1]), np.int64)
    table = np.empty((len(order) - of_times, ends[-1]))
    # A chunk after the other, so that it stays in the cache of the processor, with its columns as they are in the
    # blocks, where most are side by side; they come into order with the last step.
    for chunk, (begin, end) in enumerate(pairwise(ends)):
        bytes_of = np.zeros((len(order), end - begin, 8), np.uint8)
        holes: list[tuple[int, NDArray[np.bool_]]] = []
        at = chunk * len(order)
        for place, (first, last) in enumerate(pairwise(begins)):
            number = chunk * len(selected) + place
            found = layout.unpack(blocks[number], number, slice(at + first, at + last), bytes_of[first:last])
            holes += [(first - of_times + row, gone) for row, gone in found if place]
        own = slice(at, at + len(order))
        whole = bytes_of.view("<i8")[:, :, 0]
        whole += layout.least[own, None]
        sum_differences(whole, layout.packing[own], layout.first[own])
        values = to_floats(layout.kinds[own][of_times:], whole[of_times:])
        for row, gone in holes:
            values[row, gone] = np.nan
        times[:, begin:end] = whole[:of_times]
        table[order[of_times:] - of_times, begin:end] = values
    return times, list(table.reshape(fields, -1, ends[-1]))
