"""The binary form of a chunk: columns of numbers over the same rows, small, exact, and readable in part.

All is little-endian. A chunk begins with a header, then come the sizes of its blocks, then the blocks:

    2s magic 'FW' · u8 version (2) · u8 fields · u32 CRC-32 of all that follows
    u32 rows, 1 or more · u32 columns · u16 columns a block · u8 kinds of times · u8 reserved (0)
    u32 size of each block: that of the times first, then ceil(columns / columns a block) of values

A chunk has one or several fields, each with a value for every row and column: the readings themselves, or the minimum,
maximum, sum and count of a bucket. A block of values has some adjacent columns with all their fields; the block of the
times has integers (ms), a column a kind. To read few columns, only their blocks are decoded. Below, a column is one
field of one column.

A block is one zstd frame of m integer columns. Of each column, either the numbers or their differences from row to row
are stored, less their minimum, in as few bytes as their maximum needs:

    u8 kind[m]    0..15: the number is value * 10**kind; 16 + s: it is the bits of the f64, shifted right by s
    u8 packing[m] bits 0..3: bytes a number, 0..8; bit 4: differences; bit 5: some rows have no value (NaN);
                  bit 6: told from another column, see below
    i64 first[m]  the first number where differences are stored, else 0; byte-shuffled: all lowest bytes first
    i64 least[m]  the minimum that was subtracted; byte-shuffled
    of each column with bit 5: ceil(rows / 8) bytes, bit i%8 of byte i//8 is set where row i has no value
    of the columns with bit 6: u16 index of the other column in the block, of each; then f64 factor, of each
    for each width w of 1..8 bytes, of the columns with that width: all lowest bytes, then all the next higher, ..

A column with bit 6 moves as another one of its block does, which has no bit 6 itself: its differences are what is
stored and the differences of the other one, in f64, times the factor, rounded half to even. Version 1 is without bit 6.

Sums and differences are modulo 2**64, so that nothing overflows. NaN loses its payload; every other value is restored
bit by bit.

    chunk = ChunkReader(data)                   # raises DamagedError; telemetry.store.encoder makes chunks
    ((some, places),) = chunk.fields([3, 17])   # f8[2, rows], and the decimal places of each column
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import zstandard
from isal.isal_zlib import crc32
from numpy.typing import NDArray

Values = NDArray[np.float64]
Integers = NDArray[np.int64]
SmallIntegers = NDArray[np.uint8]
Places = NDArray[np.int8]  # decimal places of each column; -1 where it has none

MAGIC, VERSION = b"FW", 2
HEADER = struct.Struct("<2sBBI")
SHAPE = struct.Struct("<IIHBB")
BLOCK = 256  # columns; of rollups fewer, since each has four fields
MAX_VALUES = 2**27  # a chunk that claims to have more is damaged: one of a rollup has up to half as many
MAX_COLUMN_BYTES = 29  # of a column besides its numbers and the bits of its holes, of which are fewer than rows
BITS = 16  # higher kinds are bits of floats
WIDTH, DIFFERENCES, HOLES, REFERENCE = 0x0F, 0x10, 0x20, 0x40
EXACT_LIMIT = 2.0**53  # not every larger integer is a float
FACTORS = 10.0 ** np.arange(BITS)
NOTHING = np.empty(0, np.intp)


class _Codec(threading.local):
    """A decompressor a thread, since it is not thread-safe."""

    def __init__(self) -> None:
        self.decompress = zstandard.ZstdDecompressor().decompress


_codec = _Codec()


class DamagedError(ValueError):
    """The data is no chunk of this format, or has changed since it was written."""


@dataclass(frozen=True)
class Columns:
    """Columns of numbers over the same rows: one value of each that never changes, all rows of the others."""

    rows: int
    fixed: Values  # [columns]; of a moving one its first value
    moving: NDArray[np.intp]  # indices of the others, ascending
    values: Values  # [len(moving), rows]

    @classmethod
    def of(cls, values: Values) -> Columns:
        """Return the columns of a table, [columns, rows]."""
        # Compared by bits, since 0.0 is not -0.0.
        moving = np.flatnonzero(_changing_columns(np.ascontiguousarray(values).view(np.int64)))
        return cls(values.shape[1], values[:, 0], moving, values[moving])

    @classmethod
    def of_rows(cls, rows: Values, order: NDArray[np.intp]) -> Columns:
        """Return the columns of rows, [rows, columns], in another order."""
        bits = rows.view(np.int64)
        moving = np.flatnonzero((bits[1:] != bits[0]).any(axis=0)[order])
        return cls(len(rows), rows[0, order], moving, np.ascontiguousarray(rows[:, order[moving]].T))

    @classmethod
    def interleaved(cls, fields: Sequence[Columns]) -> Columns:
        """Return the columns of several fields, those of one column side by side."""
        if len(fields) == 1:
            return fields[0]
        moving = np.concatenate([one.moving * len(fields) + number for number, one in enumerate(fields)])
        order = np.argsort(moving)
        fixed = np.stack([one.fixed for one in fields], axis=1).ravel()
        return cls(fields[0].rows, fixed, moving[order], np.concatenate([one.values for one in fields])[order])

    def some(self, columns: NDArray[np.intp]) -> Values:
        """Return all rows of some columns."""
        place = np.full(len(self.fixed), -1)
        place[self.moving] = np.arange(len(self.moving))
        place = place[columns]
        moves = place >= 0
        if moves.all():
            found: Values = self.values[place]
            return found
        found = np.empty((len(columns), self.rows))
        found[~moves] = self.fixed[columns[~moves], None]
        found[moves] = self.values[place[moves]]
        return found


class ChunkReader:
    """Reader of an encoded chunk: times and values are decoded on request. Raises DamagedError."""

    rows: int
    columns: int  # of each field
    width: int  # columns a block
    field_count: int
    kinds: int  # of times

    def __init__(self, data: bytes | memoryview) -> None:
        self._decompressed: dict[int, SmallIntegers] = {}
        try:
            magic, version, self.field_count, check = HEADER.unpack_from(data)
            body = memoryview(data)[HEADER.size :]
            if magic != MAGIC or not 1 <= version <= VERSION or crc32(body) != check:
                raise DamagedError("it has changed since it was written")
            self.rows, self.columns, self.width, self.kinds, _ = SHAPE.unpack_from(body)
            count = 1 + -(-self.columns // self.width)
            values = self.rows * self.stored
            if not (self.rows and self.kinds and self.field_count) or values > MAX_VALUES:
                raise DamagedError("it claims a shape that none has")
            ends = SHAPE.size + 4 * count + np.cumsum(np.frombuffer(body, "<u4", count, SHAPE.size), dtype=np.int64)
            begins = [SHAPE.size + 4 * count, *ends[:-1].tolist()]
            self._blocks = [body[begin:end] for begin, end in zip(begins, ends.tolist(), strict=True)]
        except (struct.error, ValueError, ZeroDivisionError) as error:
            raise DamagedError(f"A chunk cannot be read: {error}.") from error

    @cached_property
    def times(self) -> Integers:
        """The times, i8[kinds, rows], ms; raises DamagedError."""
        return self._block(0, np.arange(self.kinds)).numbers()

    @property
    def stored(self) -> int:
        """How many columns are stored: those of times and of all fields."""
        return self.kinds + self.columns * self.field_count

    def raw_blocks(self) -> list[tuple[SmallIntegers, int]]:
        """Return all blocks uncompressed, and how many columns each has, that of the times first."""
        return [self.raw_block(number) for number in range(len(self._blocks))]

    def raw_block(self, number: int) -> tuple[SmallIntegers, int]:
        """Return a block uncompressed, 0 for that of the times, and how many columns it has; raises IndexError."""
        return self._raw(number), self._block_columns(number)

    def fields(
        self, columns: Sequence[int] | NDArray[np.intp], numbers: Sequence[int] | None = None
    ) -> list[tuple[Values, Places]]:
        """Return fields, each f8[len(columns), rows], and the columns' decimals, -1 for none; raises DamagedError.

        `numbers` are those of the fields, all of them by default.
        """
        selected = np.asarray(columns, dtype=np.intp)
        wanted = np.arange(self.field_count) if numbers is None else np.asarray(numbers, dtype=np.intp)
        if len(wanted) and wanted.max() >= self.field_count:
            raise IndexError("a chunk has no such field")
        found = np.empty((len(wanted), len(selected), self.rows))
        places = np.empty((len(wanted), len(selected)), dtype=np.int8)
        of_block = selected // self.width
        for number in sorted(set(of_block.tolist())):
            first = number * self.width
            here = np.flatnonzero(of_block == number)
            rows = ((selected[here] - first) * self.field_count + wanted[:, None]).ravel()
            block = self._block(number + 1, rows)
            found[:, here] = block.values().reshape(len(wanted), len(here), self.rows)
            places[:, here] = decimal_places(block.kinds).reshape(len(wanted), len(here))
        return list(zip(found, places, strict=True))

    def _block_columns(self, number: int) -> int:
        """Return how many columns a block has, those of all fields."""
        columns: int = min(self.width, self.columns - (number - 1) * self.width) * self.field_count
        return columns if number else self.kinds

    def _block(self, number: int, selected: NDArray[np.intp]) -> _IntegerColumns:
        raw = self._raw(number)
        try:
            return _IntegerColumns.of_block(raw, self._block_columns(number), self.rows, selected)
        except (ValueError, IndexError) as error:
            raise DamagedError(f"A block cannot be read: {error}.") from error

    def _raw(self, number: int) -> SmallIntegers:
        """Return the bytes of a block."""
        if number not in self._decompressed:
            try:
                block, most = self._blocks[number], self._block_columns(number) * (MAX_COLUMN_BYTES + 9 * self.rows)
                if zstandard.frame_content_size(block) > most:  # it would take that room, whatever it has
                    raise DamagedError("it claims to be larger than one may be")
                self._decompressed[number] = np.frombuffer(_codec.decompress(block), np.uint8)
            except (ValueError, IndexError, zstandard.ZstdError) as error:
                raise DamagedError(f"A block cannot be read: {error}.") from error
        return self._decompressed[number]


@dataclass(frozen=True)
class _IntegerColumns:
    """Columns as integers: `fixed` has the constant ones, `whole` the others, whose indices are in `moving`."""

    rows: int
    kinds: SmallIntegers
    fixed: Integers
    moving: NDArray[np.intp]
    whole: Integers
    holes: NDArray[np.bool_] | None  # [columns, rows]

    @classmethod
    def of_block(cls, raw: SmallIntegers, columns: int, rows: int, selected: NDArray[np.intp]) -> _IntegerColumns:
        """Return some columns of an uncompressed block; raises ValueError and IndexError for invalid data."""
        kinds, packing = raw[:columns], raw[columns : 2 * columns]
        # Of few columns most of the time is that of calls: what no column of the block has is not looked for.
        used = int(np.bitwise_or.reduce(packing))
        at, size, wanted = 18 * columns, -(-rows // 8), len(selected)
        holes, holed = None, packing & HOLES > 0 if used & HOLES else None
        following, among, factors = NOTHING, NOTHING, np.empty(0)
        bits = raw[at:] if holed is None else raw[at : at + size * int(holed.sum())]
        at += 0 if holed is None else len(bits)
        if used & REFERENCE:
            follows = packing & REFERENCE > 0
            following, among = _positions_among(follows, selected)
            told = int(follows.sum())
            others, factors = raw[at:][: 2 * told].view("<u2"), raw[at + 2 * told :][: 8 * told].view("<f8")
            selected = np.concatenate((selected, others[among]))
            at += 10 * told
        first, least = np.ascontiguousarray(
            raw[2 * columns : 18 * columns].reshape(2, 8, columns)[:, :, selected].transpose(0, 2, 1)
        ).view(np.int64)[:, :, 0]
        if holed is not None:
            holes = np.zeros((len(selected), rows), bool)
            which, place = _positions_among(holed, selected)
            holes[which] = np.unpackbits(bits.reshape(-1, size)[place], axis=1, count=rows, bitorder="little")
        packed = packing[selected]
        moving = (packed & (WIDTH | DIFFERENCES)).nonzero()[0]
        widths, packed = packing & WIDTH, packed[moving]
        here = packed & WIDTH
        whole = np.zeros((len(moving), rows), np.int64)
        for width, count in enumerate(np.bincount(widths).tolist()):
            if not width or not count:
                continue
            which = (here == width).nonzero()[0]
            if len(which):
                place = (widths == width).cumsum()[selected[moving[which]]] - 1
                planes = raw[at : at + count * rows * width].reshape(width, count, rows)
                numbers = np.zeros((len(which), rows, 8), np.uint8)
                for number, plane in enumerate(planes):
                    numbers[:, :, number] = plane[place]
                whole[which] = numbers.view("<i8")[:, :, 0]
            at += count * rows * width
        if at != len(raw):
            raise ValueError("its size does not fit")
        whole += least[moving][:, None]
        sum_differences(whole, packed, first[moving])
        if len(following):
            pairs = np.stack((following, np.arange(wanted, len(selected))))
            add_predicted(whole, packed, moving, pairs, factors[among])
            moving = moving[: np.searchsorted(moving, wanted)]
            whole, least, selected = whole[: len(moving)], least[:wanted], selected[:wanted]
            holes = holes if holes is None else holes[:wanted]
        return cls(rows, kinds[selected], least, moving, whole, holes)

    def numbers(self) -> Integers:
        numbers = np.repeat(self.fixed[:, None], self.rows, axis=1)
        numbers[self.moving] = self.whole
        return numbers

    def values(self) -> Values:
        if self.holes is None and len(self.moving) == len(self.kinds):
            return to_floats(self.kinds, self.whole)
        values = np.empty((len(self.kinds), self.rows))
        values[:] = to_floats(self.kinds, self.fixed[:, None])
        values[self.moving] = to_floats(self.kinds[self.moving], self.whole)
        if self.holes is not None:
            values[self.holes] = np.nan
        return values


def predicted(steps: Integers, factors: Values) -> Integers:
    """Return the differences of columns as far as those of others, `steps`, tell them."""
    with np.errstate(invalid="ignore", over="ignore"):  # of damaged ones
        return np.rint(steps.astype(np.float64) * factors[:, None]).astype(np.int64)


def sum_differences(whole: Integers, packed: SmallIntegers, first: Integers) -> None:
    """Replace differences by what they are differences of."""
    turns = (packed & DIFFERENCES).nonzero()[0]
    if len(turns):
        place = span_of(turns)
        steps = whole[place]
        steps[:, 0] = first[turns]
        whole[place] = steps.cumsum(axis=1, out=steps)


def span_of(indices: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return indices as a slice where they ascend by equal steps: by one, arrays are read and written quicker."""
    found = indices.tolist()
    step = max(1, found[1] - found[0]) if len(found) > 1 else 1
    equal = range(found[0], found[-1] + 1, step)
    return slice(found[0], found[-1] + 1, step) if found == list(equal) else indices


def add_predicted(
    whole: Integers, packed: SmallIntegers, moving: NDArray[np.intp], pairs: NDArray[np.intp], factors: Values
) -> None:
    """Complete moving columns, `pairs[0]`, that are told from others, `pairs[1]`; raises ValueError and IndexError."""
    own, other = place = np.searchsorted(moving, pairs)
    if (moving[place] != pairs).any() or (packed[other] & REFERENCE).any():
        raise ValueError("a column is told from one that none is told from")
    # Sums are modulo 2**64: what is predicted may be added to them.
    whole[own, 1:] += predicted(np.diff(whole[other], axis=1), factors).cumsum(axis=1)


def decimal_places(kinds: SmallIntegers) -> Places:
    return np.where(kinds < BITS, kinds.astype(np.int16), -1).astype(np.int8)


def _positions_among(these: NDArray[np.bool_], selected: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of the selected columns that are in `these`, and their positions among `these`."""
    which = np.flatnonzero(these[selected])
    return which, (np.cumsum(these) - 1)[selected[which]]


def _changing_columns(numbers: Integers) -> NDArray[np.bool_]:
    moves: NDArray[np.bool_] = (numbers[:, 1:] != numbers[:, :1]).any(axis=1)
    return moves


def to_floats(kinds: SmallIntegers, whole: Integers) -> Values:
    """Return the floats that the encoder made integers."""
    if not kinds.any():
        return whole.astype(np.float64)
    decimal = kinds < BITS
    if decimal.all():
        found: Values = whole / FACTORS[kinds][:, None]
        return found
    if not decimal.any():
        return (whole << (kinds - BITS)[:, None]).view(np.float64)
    values = np.empty(whole.shape)
    values[decimal] = whole[decimal] / FACTORS[kinds[decimal]][:, None]
    values[~decimal] = (whole[~decimal] << (kinds[~decimal] - BITS)[:, None]).view(np.float64)
    return values
