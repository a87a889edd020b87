"""Readings gathered into buckets of time: least, greatest, sum and count of each series. Pure.

Columns are series and rows are moments: arrays are [columns, rows], times are whole ms. Where a bucket has no reading,
its count is 0 and the rest NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from telemetry.store.format import EXACT, Values, Whole

Places = NDArray[np.int8]  # decimal places of each column; -1 where it has none
FLOAT_BITS = 29  # of 52: what an f32 lacks


@dataclass(frozen=True)
class Buckets:
    """`at` is where each bucket begins, ascending."""

    at: Whole
    low: Values
    high: Values
    total: Values
    count: Values

    @classmethod
    def none(cls, columns: int) -> Self:
        """Return no buckets of so many columns."""
        return cls(np.empty(0, np.int64), *(np.empty((columns, 0)) for _ in range(4)))

    @classmethod
    def single(cls, at: Whole, values: Values) -> Self:
        """Return readings as buckets of their own, at ascending moments."""
        return cls(at, values, values, values, (~np.isnan(values)).astype(np.float64))

    def in_steps(self, step: int, origin: int = 0) -> Self:
        """Return them in buckets of `step` ms from `origin` on; those that lie in the same become one."""
        if not len(self.at):
            return self
        place = (self.at - origin) // step
        begins = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
        # What is everywhere, as most series are, takes half the time.
        there = ~np.isnan(self.total)
        full: NDArray[np.bool_] = np.logical_and.reduce(there, axis=1)
        shape = (len(self.low), len(begins))
        low, high, total = (np.empty(shape) for _ in range(3))
        low[full] = np.minimum.reduceat(_of(self.low, full), begins, axis=1)
        high[full] = np.maximum.reduceat(_of(self.high, full), begins, axis=1)
        total[full] = np.add.reduceat(_of(self.total, full), begins, axis=1)
        holed = ~full
        if holed.any():
            low[holed] = np.fmin.reduceat(self.low[holed], begins, axis=1)
            high[holed] = np.fmax.reduceat(self.high[holed], begins, axis=1)
            total[holed] = np.add.reduceat(np.where(there[holed], self.total[holed], 0.0), begins, axis=1)
            total[holed] = np.where(np.isnan(low[holed]), np.nan, total[holed])
        count = np.add.reduceat(self.count, begins, axis=1)
        return type(self)(place[begins] * step + origin, low, high, total, count)

    def between(self, since: int, until: int) -> Self:
        """Return those that begin from `since` on and before `until`."""
        return self.at_rows(slice(*np.searchsorted(self.at, (since, until))))

    def without(self, since: int, until: int) -> Self:
        """Return those that do not begin from `since` on and before `until`."""
        begin, end = np.searchsorted(self.at, (since, until))
        return self.at_rows(np.r_[0:begin, end : len(self.at)])

    def picked(self, columns: Sequence[int]) -> Self:
        """Return some columns."""
        if list(columns) == list(range(len(self.low))):
            return self
        return type(self)(
            self.at, self.low[columns], self.high[columns], self.total[columns], self.count[columns]
        )  # fmt: skip

    def spread(self, places: Sequence[int] | NDArray[np.intp], columns: int) -> Self:
        """Return them as `columns` columns, where the i-th of these stands at `places[i]`."""
        if list(places) == list(range(columns)):
            return self
        wide = [np.full((columns, len(self.at)), fill) for fill in (np.nan, np.nan, np.nan, 0.0)]
        for field, own in zip(wide, (self.low, self.high, self.total, self.count), strict=True):
            field[places] = own
        return type(self)(self.at, *wide)

    def rounded(self, places: Places) -> Self:
        """Return them as they are kept: sums to the decimal places of their readings, floats as precise as an f32."""
        decimal = places >= 0
        factor = np.where(decimal, 10.0 ** np.maximum(places, 0), 1.0)[:, None]
        scaled = self.total * factor
        total = np.where(decimal[:, None] & (np.abs(scaled) < EXACT), np.rint(scaled) / factor, _short(self.total))
        low, high = self.low, self.high
        if not decimal.all():
            low, high = low.copy(), high.copy()
            low[~decimal], high[~decimal] = _short(low[~decimal]), _short(high[~decimal])
        return type(self)(self.at, low, high, total, self.count)

    def at_rows(self, rows: slice | NDArray[np.intp]) -> Self:
        """Return some rows."""
        return type(self)(
            self.at[rows], self.low[:, rows], self.high[:, rows], self.total[:, rows], self.count[:, rows]
        )


def appended(parts: Sequence[Buckets]) -> Buckets:
    """Return buckets of the same columns from several places, in order of time."""
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([part.at for part in parts])
    low, high, total, count = (
        np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("low", "high", "total", "count")
    )
    all_of_them = Buckets(at, low, high, total, count)
    if (np.diff(at) >= 0).all():
        return all_of_them
    return all_of_them.at_rows(np.argsort(at, kind="stable"))


def together(places: Sequence[Places]) -> Places:
    """Return the decimal places of columns that are in several parts; -1 where any part has none."""
    stacked = np.stack(places)
    return np.where((stacked < 0).any(axis=0), -1, stacked.max(axis=0)).astype(np.int8)


def _of(values: Values, rows: NDArray[np.bool_]) -> Values:
    return values if rows.all() else values[rows]


def _short(values: Values) -> Values:
    """Return values rounded to the 23 binary places that an f32 has, with the range that an f64 has."""
    bits = np.ascontiguousarray(values).view(np.int64)
    rounded = ((bits + (1 << FLOAT_BITS - 1)) >> FLOAT_BITS << FLOAT_BITS).view(np.float64)
    return np.where(np.isfinite(values), rounded, values)
