"""Makes chunks (see telemetry.store.format), many at once: one has too few values for the calls that it takes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import zstandard
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from telemetry.store import native
from telemetry.store.followers import (
    MAX_UNEXPLAINED,
    MIN_RANGE,
    MIN_STEPS,
    NO_PAIRS,
    ChangingColumns,
    KnownPairs,
    find_followers,
)
from telemetry.store.format import (
    BITS,
    BLOCK,
    DIFFERENCES,
    FACTORS,
    HEADER,
    HOLES,
    MAGIC,
    REFERENCE,
    SHAPE,
    VERSION,
    Columns,
    Integers,
    SmallIntegers,
    Values,
    predicted,
)
from telemetry.store.native import NativeColumns, PackLimits

LEVEL = 1  # higher ones make chunks no smaller
SCALES = 7  # decimal places that are tried: 0 to 6
LIMITS = np.array([0, *((1 << 8 * width) - 1 for width in range(1, 8))], dtype=np.uint64)


Buffer = bytes | memoryview
PACK_LIMITS = PackLimits(SCALES, MIN_RANGE, MAX_UNEXPLAINED)


class ChunkContent(NamedTuple):
    """What a chunk is made of: `times` are i8[kinds, rows], ms; `known` is of its catalogue, and is updated."""

    times: Integers
    columns: Columns
    known: KnownPairs | None = None


class _Compressor(threading.local):
    """One a thread, since it is not thread-safe."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress


_compressor = _Compressor()


def encode(times: Integers, fields: Sequence[Values | Columns], *, block: int = BLOCK) -> bytes:
    """Return a chunk of `times` (i8[kinds, rows], ms) and `fields` (each [columns, rows]) as bytes; rows >= 1."""
    tables = [one if isinstance(one, Columns) else Columns.of(one) for one in fields]
    return _encode_alike([ChunkContent(times, Columns.interleaved(tables))], block, len(tables))[0]


def encode_all(contents: Sequence[ChunkContent]) -> list[bytes]:
    """Return chunks of one field; those with equally many rows are made together."""
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, one in enumerate(contents):
        alike[one.times.shape].append(number)
    found = [b""] * len(contents)
    for numbers in alike.values():
        for number, data in zip(numbers, _encode_alike([contents[one] for one in numbers], BLOCK, 1), strict=True):
            found[number] = data
    return found


def _encode_alike(contents: Sequence[ChunkContent], width: int, fields: int) -> list[bytes]:
    kinds, rows = contents[0].times.shape
    blocks: list[Sequence[Buffer]] = [()] * len(contents)
    plain = []
    for number, one in enumerate(contents):
        if native.library is None or (fields == 1 and (one.known is None or not one.known.left)):
            plain.append(number)  # what moves together is searched there
        else:
            blocks[number] = _native_blocks(native.library, one, width * fields)
    for number, some in zip(plain, _plain_blocks([contents[number] for number in plain], width, fields), strict=True):
        blocks[number] = some
    found = []
    for one, own in zip(contents, blocks, strict=True):
        packed = [_compressor.compress(block) for block in own]
        sizes = np.array([len(block) for block in packed], dtype="<u4").tobytes()
        shape = SHAPE.pack(rows, len(one.columns.fixed) // fields, width, kinds, 0)
        body = b"".join((shape, sizes, *packed))
        found.append(HEADER.pack(MAGIC, VERSION, fields, crc32(body)) + body)
    return found


def _native_blocks(passes: NativeColumns, content: ChunkContent, width: int) -> list[memoryview]:
    times, columns, known = content
    pairs = NO_PAIRS if known is None or times.shape[1] <= MIN_STEPS else known.use()
    blocks, told = passes.pack(times, columns, width, pairs, PACK_LIMITS)
    if known is not None:
        known.judge(told)
    return blocks


def _plain_blocks(contents: Sequence[ChunkContent], width: int, fields: int) -> list[list[bytes]]:
    """Return the blocks of chunks, that of the times of each first."""
    if not contents:
        return []
    # All columns of all chunks stand one after the other, the times of each chunk first.
    ends: list[int] = [0]
    blocks_of = [0]
    for one in contents:
        begin, end = ends[-1] + len(one.times), ends[-1] + len(one.times) + len(one.columns.fixed)
        ends += [*range(begin, end, width * fields), end]
        blocks_of.append(len(ends) - 1)
    known = {ends[block]: one.known for one, block in zip(contents, blocks_of, strict=False)} if fields == 1 else {}
    made = list(_PackedColumns.of(_IntegerColumns.of(contents), ends, known).blocks(ends))
    return [made[first:last] for first, last in pairwise(blocks_of)]


@dataclass(frozen=True)
class _IntegerColumns:
    """Columns as integers: `fixed` has the constant ones, `whole` the others, whose indices are in `moving`."""

    kinds: SmallIntegers
    fixed: Integers
    moving: NDArray[np.intp]
    whole: Integers
    holed: NDArray[np.intp]  # indices of the columns that lack values
    holes: NDArray[np.bool_]  # [len(holed), rows]
    is_time: NDArray[np.bool_]  # [columns]

    @classmethod
    def of(cls, contents: Sequence[ChunkContent]) -> _IntegerColumns:
        """Return times as they are and floats as integers: scaled decimals where a column has them, else their bits."""
        times = np.concatenate([one.times for one in contents])
        kinds_of_time = len(contents[0].times)
        counts = np.array([len(one.columns.fixed) for one in contents])
        begins = np.cumsum(counts) - counts
        fixed = np.concatenate([one.columns.fixed for one in contents])
        values = np.concatenate([one.columns.values for one in contents])
        moving = np.concatenate([one.columns.moving + begin for one, begin in zip(contents, begins, strict=True)])
        holed, holes, fixed, values = _without_holes(fixed, moving, values)
        least = _least_places(fixed)
        kinds, first = _to_integers(fixed[:, None], least)
        kinds[moving], whole = _to_integers(values, least[moving])
        # Where each column is among all: the times of a chunk stand before its values.
        place = np.arange(len(fixed)) + np.repeat(np.arange(1, len(contents) + 1) * kinds_of_time, counts)
        total = len(fixed) + len(times)
        is_time = np.ones(total, bool)
        is_time[place] = False
        place_of_time = np.flatnonzero(is_time)
        all_kinds, all_fixed = np.zeros(total, np.uint8), np.zeros(total, np.int64)
        all_kinds[place], all_fixed[place] = kinds, first[:, 0]
        moves = (times[:, 1:] != times[:, :1]).any(axis=1)
        all_fixed[place_of_time] = times[:, 0]
        all_moving = np.concatenate((place_of_time[moves], place[moving]))
        order = np.argsort(all_moving, kind="stable")
        all_fixed[all_moving] = 0
        return cls(
            all_kinds,
            all_fixed,
            all_moving[order],
            np.concatenate((times[moves], whole))[order],
            place[holed],
            holes,
            is_time,
        )


@dataclass(frozen=True)
class _PackedColumns:
    """Columns as a block has them: its head, and small numbers of those that change."""

    head: SmallIntegers  # [columns, 18]: kind, packing, first, least
    moving: NDArray[np.intp]
    widths: SmallIntegers  # of the moving ones
    small: NDArray[np.uint8]  # [moving, rows, 8], lowest byte first
    holed: NDArray[np.intp]
    holes: NDArray[np.uint8]
    following: NDArray[np.intp]  # indices of the columns that are told from another, ascending
    others: NDArray[np.intp]
    factors: Values

    @classmethod
    def of(
        cls, columns: _IntegerColumns, ends: Sequence[int], known: Mapping[int, KnownPairs | None]
    ) -> _PackedColumns:
        """Return columns packed; `ends` are those of the blocks.

        `known` are of the chunks, by the column where each begins; without any no column is told from another.
        """
        count, moving, whole = len(columns.kinds), columns.moving, columns.whole
        numbers = np.zeros((count, 2), "<i8")
        numbers[:, 1] = columns.fixed
        packing = np.zeros(count, np.uint8)
        packing[columns.holed] = HOLES
        followed = np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0)
        widths, small = np.empty(0, np.uint8), np.empty((0, 0, 8), np.uint8)
        if len(moving):
            steps = np.diff(whole, axis=1)
            least, most = steps.min(axis=1), steps.max(axis=1)
            if known:
                fit = ~columns.is_time[moving] & (columns.kinds[moving] < BITS) & ~np.isin(moving, columns.holed)
                followed = find_followers(ChangingColumns(moving, steps, least, most, fit), ends, known)
            following, others, factors = followed
            if len(following):
                left = steps[following] - predicted(steps[others], factors)
                steps[following], least[following], most[following] = left, left.min(axis=1), left.max(axis=1)
            floors = np.stack([whole.min(axis=1), least])
            ranges = (np.stack([whole.max(axis=1), most]) - floors).view(np.uint64)
            # Store whichever has the smaller range: it needs fewer bytes.
            differ = ranges[1] < ranges[0]
            differ[following] = True
            widths = np.searchsorted(LIMITS, np.where(differ, ranges[1], ranges[0])).astype(np.uint8)
            packing[moving] |= widths | np.where(differ, DIFFERENCES, 0).astype(np.uint8)
            packing[moving[following]] |= REFERENCE
            floor = np.where(differ, floors[1], floors[0])
            numbers[moving] = np.stack([np.where(differ, whole[:, 0], 0), floor], axis=1)
            over = np.zeros_like(whole)
            np.subtract(steps, floor[:, None], out=over[:, 1:])
            over[~differ] = whole[~differ] - floor[~differ, None]
            small = over.view(np.uint8).reshape(*over.shape, 8)
        head = np.concatenate((columns.kinds[:, None], packing[:, None], numbers.view(np.uint8)), axis=1)
        holes = np.packbits(columns.holes, axis=1, bitorder="little")
        following, others = (moving[one] for one in followed[:2])
        return cls(head, moving, widths, small, columns.holed, holes, following, others, followed[2])

    def blocks(self, ends: Sequence[int]) -> Iterator[bytes]:
        """Yield the blocks, the first of which begins at `ends[0]`."""
        # In each block the columns of a width stand together.
        block = np.searchsorted(ends, self.moving, side="right")
        key = block * 16 + self.widths
        order = np.argsort(key, kind="stable")
        small, key = self.small[order], key[order]
        cuts = [*np.flatnonzero(np.diff(key, prepend=-1)).tolist(), len(key)]
        groups: dict[int, list[SmallIntegers]] = defaultdict(list)
        for begin, end in pairwise(cuts):
            number, width = divmod(int(key[begin]), 16)
            groups[number].append(small[begin:end, :, :width].transpose(2, 0, 1))
        cuts_of_holes = np.searchsorted(self.holed, ends).tolist()
        cuts_of_following = np.searchsorted(self.following, ends).tolist()
        for number, (begin, end) in enumerate(pairwise(ends), 1):
            holes = self.holes[cuts_of_holes[number - 1] : cuts_of_holes[number]]
            parts = [self.head[begin:end].T, holes]
            own = slice(cuts_of_following[number - 1], cuts_of_following[number])
            if own.start < own.stop:
                parts += [(self.others[own] - begin).astype("<u2"), self.factors[own].astype("<f8")]
            yield b"".join(part.tobytes() for part in (*parts, *groups[number]))


def _without_holes(
    fixed: Values, moving: NDArray[np.intp], values: Values
) -> tuple[NDArray[np.intp], NDArray[np.bool_], Values, Values]:
    """Return which columns lack values, where, and both kinds of columns with the holes filled."""
    missing, gone = np.isnan(fixed), np.isnan(values)
    missing[moving] = False
    holed = gone.any(axis=1)
    if not (holed.any() or missing.any()):
        return np.empty(0, np.intp), np.empty((0, values.shape[1]), bool), fixed, values
    values = values.copy()
    values[holed] = _fill_holes(values[holed], gone[holed])
    has_holes = missing.copy()
    has_holes[moving[holed]] = True
    found = np.flatnonzero(has_holes)
    holes = np.ones((len(found), values.shape[1]), bool)
    holes[np.searchsorted(found, moving[holed])] = gone[holed]
    return found, holes, np.where(np.isnan(fixed), 0.0, fixed), values


def _to_integers(values: Values, least: SmallIntegers) -> tuple[SmallIntegers, Integers]:
    """Return kind and integers of each column; `least` are the decimal places that it has at least.

    Those of its first value, mostly: then the whole column is converted once.
    """
    kinds = least.copy()
    whole = np.empty(values.shape, np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        left = np.flatnonzero(kinds < SCALES)
        while len(left):
            rest = values if len(left) == len(values) else values[left]
            factors = FACTORS[kinds[left]][:, None]
            scaled = rest * factors
            found = np.rint(scaled, out=scaled).astype(np.int64)
            # What is restored from them must be the same bit by bit: -0.0 is not, nor what an integer has no room for.
            restored = np.divide(found, factors, out=scaled)
            fits = (restored.view(np.int64) == rest.view(np.int64)).all(axis=1)
            whole[left[fits]] = found[fits]
            left = left[~fits]
            kinds[left] += 1
            left = left[kinds[left] < SCALES]
    left = np.flatnonzero(kinds == SCALES)
    if len(left):
        bits = values[left].view(np.int64)
        shifts = _trailing_zeros(np.bitwise_or.reduce(bits, axis=1))
        kinds[left] = BITS + shifts
        whole[left] = bits >> shifts[:, None]
    return kinds, whole


def _least_places(values: Values) -> SmallIntegers:
    """Return the decimal places of each number, SCALES where it has more than are tried."""
    factors = FACTORS[:SCALES, None]
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.rint(values * factors).astype(np.int64)
        fits = (rounded / factors).view(np.int64) == np.ascontiguousarray(values).view(np.int64)
    return np.where(fits.any(axis=0), fits.argmax(axis=0), SCALES).astype(np.uint8)


def _fill_holes(values: Values, holes: NDArray[np.bool_]) -> Values:
    """Return values with each hole filled by the previous value, or the first later one: repeats take no space."""
    rows = np.arange(values.shape[1])
    before = np.maximum.accumulate(np.where(holes, -1, rows), axis=1)
    source = np.where(before < 0, np.argmin(holes, axis=1)[:, None], before)
    filled = np.take_along_axis(values, source, axis=1)
    filled[holes.all(axis=1)] = 0.0
    return filled


def _trailing_zeros(bits: Integers) -> SmallIntegers:
    lowest = (bits & -bits).view(np.uint64).astype(np.float64)
    return np.where(bits == 0, 0, np.log2(np.maximum(lowest, 1.0))).astype(np.uint8)
