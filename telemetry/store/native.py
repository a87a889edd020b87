"""Columns to blocks and back by columns.c, which `make` compiles where there is a compiler.

Without it telemetry.store.encoder and decoder do the same with numpy, in several times the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.store.format import MAX_COLUMN_BYTES, Columns, Integers, SmallIntegers, Values


class PackLimits(NamedTuple):
    """What decides how numbers are stored: decimal places that are tried, and which column is told from another."""

    scales: int
    least_range: float  # of the differences of a column that is told from another
    most_unexplained: float  # of their variance


class UnpackedBlocks(NamedTuple):
    """The columns of blocks of chunks: `kinds` are of all, those of times too; `moves` and `first` of the others."""

    kinds: SmallIntegers
    moves: NDArray[np.bool_]
    first: Values
    times: Integers  # [kinds, rows of all chunks]
    values: Values  # of the columns that move, one after the other


class NativeColumns:
    """The functions of the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pack, self._columns, self._unpack = library.fw_pack, library.fw_columns, library.fw_unpack
        for function in (self._pack, self._columns, self._unpack):
            function.restype = ctypes.c_int64

    def columns(self, table: Values, order: NDArray[np.intp], counters: NDArray[np.bool_]) -> tuple[Columns, int, int]:
        """Return rows, [rows, columns], as columns in another order, and how many values are replaced by NaN.

        These are those that are no number, and counters below zero.
        """
        rows, count = table.shape
        changes, moving, bad = np.empty(count, np.uint64), np.empty(count, np.intp), np.zeros(2, np.int64)
        fixed, values = np.empty(count), np.empty((count, rows))
        moves = _call(self._columns, rows, count, table, order, counters, changes, fixed, moving, values, bad)
        return Columns(rows, fixed, moving[:moves], values[:moves]), int(bad[0]), int(bad[1])

    def pack(
        self, times: Integers, columns: Columns, width: int, pairs: NDArray[np.intp], limits: PackLimits
    ) -> tuple[list[memoryview], int]:
        """Return the blocks of a chunk with `width` columns a block, and how many columns are told from others.

        `pairs`, [2, pairs], are those that may be, ascending, and the others, the times counted among them. Raises
        MemoryError.
        """
        kinds, rows = times.shape
        count, moves = len(columns.fixed), len(columns.moving)
        ends = np.empty(1 + -(-count // width), np.int64)
        blocks = np.empty((kinds + count) * (MAX_COLUMN_BYTES + rows // 8) + (kinds + moves) * rows * 8, np.uint8)
        shape = np.array((rows, kinds, count, moves, width, limits.scales, pairs.shape[1]), np.int64)
        values = columns.values.copy()  # its holes are filled
        some, fixed, moving = (np.ascontiguousarray(one) for one in (times, columns.fixed, columns.moving))
        told = _call(self._pack, shape, np.array(limits[1:]), some, fixed, moving, values, pairs, blocks, ends)
        if told < 0:
            raise MemoryError
        found, view, begin = [], blocks.data, 0
        for end in ends.tolist():
            found.append(view[begin:end])
            begin = end
        return found, told

    def unpack(
        self, raw: Sequence[SmallIntegers], counts: Sequence[int], rows: Sequence[int], are_times: Sequence[bool]
    ) -> UnpackedBlocks:
        """Return the columns of uncompressed blocks of so many columns and rows; raises ValueError for damaged ones."""
        all_counts, all_rows, flags = (np.array(one, np.int64) for one in (counts, rows, are_times))
        begins = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(one) for one in raw], out=begins[1:])
        total, of_times = int(all_counts.sum()), int(all_counts[0])
        sizes = all_counts * all_rows
        length = int(all_rows[flags > 0].sum())
        kinds, moves = np.empty(total, np.uint8), np.empty(total, np.bool_)
        first, times = np.empty(total), np.empty((of_times, length), np.int64)
        values, room = np.empty(int(sizes.sum())), np.empty(int(sizes.max()), np.uint64)
        written = _call(
            self._unpack, len(raw), length, np.concatenate(raw), begins, all_counts, all_rows, flags.astype(np.uint8),
            kinds, moves, first, times, values, room,
        )  # fmt: skip
        if written < 0:
            raise ValueError("its size does not fit")
        return UnpackedBlocks(kinds, moves, first, times, values[:written])


def _call(function: Any, *arguments: int | NDArray[Any]) -> int:
    """Call a function with numbers and arrays, which are contiguous and remain until it returns."""
    result: int = function(
        *(
            ctypes.c_int64(one) if isinstance(one, int) else ctypes.c_void_p(one.__array_interface__["data"][0])
            for one in arguments
        )
    )
    return result


def load_columns(file: Path) -> NativeColumns | None:
    """Return the functions of a library, None where it is not compiled for this machine."""
    try:
        return NativeColumns(ctypes.CDLL(str(file)))
    except (OSError, AttributeError):
        return None


library = load_columns(Path(__file__).with_name("columns.so"))
