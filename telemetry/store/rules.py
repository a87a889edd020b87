"""Tiers, grids of buckets, time spans and derived series: the arithmetic of the store. Pure.

Each tier is made from the one before it. Spans that are not rolled up yet are read from there, so that no extract has a
hole.

Columns are series and rows are times: arrays are [columns, rows], times are whole ms. Where a bucket has no reading,
its count is 0 and its other fields are NaN.

The BMC's byte and error counters only increase. Raw chunks have the counters; pages and rollups have
    bytes: their rate under the key of the live catalogue ('port/5/rx_bytes_per_second', B/s)
    errors: the total under that key ('port/5/errors/ReplayCount') and its rate under key + '/rate' (1/s)
    all else: the reading itself
Key and unit identify a series: readings in another unit are another series.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np
from django.db import models
from numpy.typing import NDArray

from core.language import gettext_noop
from fabric.bmc.series import Quantity
from telemetry.live.catalogue import BYTE_RATES, SeriesEntry
from telemetry.store.format import EXACT_LIMIT, Integers, Values


@dataclass(frozen=True)
class BucketGrid:
    """`rows` buckets of `step` ms, the first of which starts at `begin` (ms)."""

    begin: int
    step: int
    rows: int

    @property
    def span(self) -> SpanMs:
        return self.begin, self.begin + self.rows * self.step

    @property
    def tier(self) -> Tier:
        """The widest tier that its buckets can be made of."""
        return next((tier for tier in reversed(ROLLUPS) if self.step % TIER_SHAPES[tier].step == 0), Tier.RAW)


def bucket_grid(since: float, until: float, points: int, *, now: float, keep: Sequence[int]) -> BucketGrid:
    """Return the buckets of a range in Unix s; `keep` is how long each tier is kept, s."""
    finest = next((tier for tier in Tier if since >= now - keep[tier]), ROLLUPS[-1])
    least = TIER_SHAPES[finest].step if finest in TIER_SHAPES else 1000
    begin, end = math.floor(since * 1000), math.ceil(until * 1000)
    for seconds in CHART_STEPS:
        step = seconds * 1000
        if step >= least:
            grid = BucketGrid(begin // step * step, step, -(-(end - begin // step * step) // step))
            if grid.rows <= points:
                return grid
    # No rounded step fits (few points across a bucket boundary, or many years): use the smallest step that does.
    least = max(
        (TIER_SHAPES[tier].step for tier in ROLLUPS if TIER_SHAPES[tier].step * points <= end - begin), default=least
    )
    begin = begin // least * least
    step = -(-(end - begin) // points // least) * least
    return BucketGrid(begin, step, -(-(end - begin) // step))


SpanMs = tuple[int, int]


def union_spans(spans: Iterable[SpanMs]) -> list[SpanMs]:
    """Return the union of spans as disjoint spans in order of time."""
    found: list[SpanMs] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def subtract_spans(spans: Iterable[SpanMs], others: Iterable[SpanMs]) -> list[SpanMs]:
    """Return the parts of `spans` that `others` do not cover."""
    left = union_spans(spans)
    for begin, end in union_spans(others):
        left = [
            part
            for span in left
            for part in ((span[0], min(span[1], begin)), (max(span[0], end), span[1]))
            if part[0] < part[1]
        ]
    return left


def widen_span(span: SpanMs, step: int) -> SpanMs:
    """Return the span with its ends moved to whole steps."""
    return span[0] // step * step, -(-span[1] // step) * step


DecimalPlaces = NDArray[np.int8]  # decimal places of each column; -1 where it has none
MAX_STRIDES = 64  # readings a bucket, beyond which `reduceat` is as quick
FLOAT_BITS = 29  # of the 52 mantissa bits of an f64, those that an f32 lacks


@dataclass(frozen=True)
class Buckets:
    """Buckets of several columns; `at` is the start of each (ms), ascending.

    Where least and greatest are not read, the sums are in their place, as the same array.
    """

    at: Integers
    low: Values
    high: Values
    total: Values
    count: Values

    @classmethod
    def none(cls, columns: int) -> Self:
        """Return an empty set of buckets with `columns` columns."""
        return cls(np.empty(0, np.int64), *(np.empty((columns, 0)) for _ in range(4)))

    @classmethod
    def single(cls, at: Integers, values: Values) -> Self:
        """Return readings at ascending moments as buckets of one reading each."""
        missing = np.isnan(values)
        # Mostly none is: then one number stands for all.
        count = (~missing).astype(np.float64) if missing.any() else np.broadcast_to(1.0, values.shape)
        return cls(at, values, values, values, count)

    def group_by_step(self, step: int, origin: int = 0, *, band: bool = True) -> Self:
        """Return them merged into buckets of `step` ms, aligned to `origin`; without `band` only sums and counts."""
        if not len(self.at):
            return self
        place = (self.at - origin) // step
        begins = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
        at = place[begins] * step + origin
        total_of = _Groups.of(self.total, begins)
        total = total_of.reduced(np.add)
        # Series without holes, which most are, take half the time.
        holed = np.flatnonzero(np.isnan(total).any(axis=1))
        if len(holed):
            # Mostly all, at the begin or end of a range: these are not copied.
            own = self.total if len(holed) == len(total) else self.total[holed]
            present = ~np.isnan(own)
            sums = _Groups.of(np.where(present, own, 0.0), begins).reduced(np.add)
            sums[~_Groups.of(present, begins).reduced(np.logical_or)] = np.nan
            total[holed] = sums
        if len(holed) or not self.count.size or (any(self.count.strides) and (self.count != self.count[0, 0]).any()):
            count = _Groups.of(self.count, begins).reduced(np.add)
        else:
            each = self.count[0, 0] * np.diff(begins, append=len(self.at))
            count = np.repeat(each[None], len(total), axis=0)
        if not band:
            return type(self)(at, total, total, total, count)
        fields = []
        for values, operation, among_holes in ((self.low, np.minimum, np.fmin), (self.high, np.maximum, np.fmax)):
            groups = total_of if values is self.total else _Groups.of(values, begins)
            fields.append(groups.reduced(operation))
            if len(holed):
                fields[-1][holed] = _Groups.of(values[holed], begins).reduced(among_holes)
        low, high = fields
        return type(self)(at, low, high, total, count)

    def between(self, since: int, until: int) -> Self:
        """Return those that start in [`since`, `until`)."""
        return self.at_rows(slice(*np.searchsorted(self.at, (since, until))))

    def without(self, since: int, until: int) -> Self:
        """Return those that do not start in [`since`, `until`)."""
        begin, end = np.searchsorted(self.at, (since, until))
        return self.at_rows(np.r_[0:begin, end : len(self.at)])

    def picked(self, columns: Sequence[int]) -> Self:
        if list(columns) == list(range(len(self.low))):
            return self
        return self._changed(self.at, lambda values, _: values[columns])

    def spread(self, places: Sequence[int] | NDArray[np.intp], columns: int) -> Self:
        """Return them as `columns` columns, the i-th own column at `places[i]`."""
        if list(places) == list(range(columns)):
            return self

        def wide(values: Values, missing: float) -> Values:
            made = np.full((columns, len(self.at)), missing)
            made[places] = values
            return made

        return self._changed(self.at, wide)

    def _changed(self, at: Integers, change: Callable[[Values, float], Values]) -> Self:
        """Return them with each array changed once, which gets what stands for no reading, too."""
        total = change(self.total, math.nan)
        low, high = (total if one is self.total else change(one, math.nan) for one in (self.low, self.high))
        return type(self)(at, low, high, total, change(self.count, 0.0))

    def rounded(self, places: DecimalPlaces) -> Self:
        """Return them as stored: sums rounded to the decimal places of their readings, floats to f32 precision."""
        decimal, other = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        factor = 10.0 ** places[decimal, None]
        sums = self.total[decimal]
        scaled = sums * factor
        exact = np.abs(scaled) < EXACT_LIMIT
        low, high, total = self.low, self.high, np.empty(self.total.shape)
        total[decimal] = np.rint(scaled) / factor
        if not exact.all():
            total[decimal] = np.where(exact, total[decimal], _round_to_float32(sums))
        total[other] = _round_to_float32(self.total[other])
        if len(other):
            low, high = low.copy(), high.copy()
            low[other], high[other] = _round_to_float32(low[other]), _round_to_float32(high[other])
        return type(self)(self.at, low, high, total, self.count)

    def at_rows(self, rows: slice | NDArray[np.intp]) -> Self:
        return self._changed(self.at[rows], lambda values, _: values[:, rows])


@dataclass(frozen=True)
class _Groups:
    """Rows of buckets: `values` are [columns, rows], or [rows a bucket, columns, buckets] where all have as many."""

    values: NDArray[Any]
    begins: NDArray[np.intp] | None

    @classmethod
    def of(cls, values: NDArray[Any], begins: NDArray[np.intp]) -> Self:
        each, rest = divmod(values.shape[1], len(begins))
        if rest or each > MAX_STRIDES or (np.diff(begins) != each).any():
            return cls(values, begins)
        # The n-th rows of all buckets side by side: the processor takes several of them at a time.
        side_by_side = values.reshape(len(values), len(begins), each).transpose(2, 0, 1)
        return cls(np.ascontiguousarray(side_by_side), None)

    def reduced(self, operation: np.ufunc) -> NDArray[Any]:
        """Return what `operation.reduceat` does along the rows."""
        found: NDArray[Any] = (
            operation.reduce(self.values, axis=0)
            if self.begins is None
            else operation.reduceat(self.values, self.begins, axis=1)
        )
        return found


def concatenate_buckets(parts: Sequence[Buckets]) -> Buckets:
    """Return several parts with the same columns as one, in order of time."""
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([part.at for part in parts])

    def joined(name: str) -> Values:
        return np.concatenate([getattr(part, name) for part in parts], axis=1)

    total = joined("total")
    has_band = any(part.low is not part.total or part.high is not part.total for part in parts)
    low, high = (joined("low"), joined("high")) if has_band else (total, total)
    combined = Buckets(at, low, high, total, joined("count"))
    if (np.diff(at) >= 0).all():
        return combined
    return combined.at_rows(np.argsort(at, kind="stable"))


def combine_places(places: Sequence[DecimalPlaces]) -> DecimalPlaces:
    """Return the decimal places of columns that are in several parts; -1 where any part has none."""
    stacked = np.stack(places)
    return np.where((stacked < 0).any(axis=0), -1, stacked.max(axis=0)).astype(np.int8)


def _round_to_float32(values: Values) -> Values:
    """Return values rounded to the 23 mantissa bits of an f32, with the range of an f64."""
    bits = np.ascontiguousarray(values).view(np.int64)
    rounded = ((bits + (1 << FLOAT_BITS - 1)) >> FLOAT_BITS << FLOAT_BITS).view(np.float64)
    return np.where(np.isfinite(values), rounded, values)


BYTE_QUANTITIES = frozenset(BYTE_RATES.values())
ERROR_QUANTITY = Quantity.ERRORS.value
ERROR_RATE = "errors_per_second"
RATE_SUFFIX = "/rate"
RATE_QUANTITIES = BYTE_QUANTITIES | {ERROR_RATE}  # quantities that are read as rates

SeriesIdentity = tuple[str, str]  # key and unit


class DerivedSeries(msgspec.Struct, frozen=True, gc=False):
    """A series derived from a raw column: the value itself, or the rate of a counter."""

    entry: SeriesEntry
    source: SeriesEntry  # of the raw column
    column: int
    is_rate: bool


def series_identity(entry: SeriesEntry) -> SeriesIdentity:
    """Return key and unit, which identify a series."""
    return entry["key"], entry["unit"]


def storage_order(entries: Sequence[SeriesEntry]) -> list[int]:
    """Return the indices of entries in storage order: grouped by quantity.

    Columns of one quantity are alike and compress better together, and they are mostly read together.
    """
    return sorted(range(len(entries)), key=lambda place: entries[place]["quantity"])


class OrderedEntries(tuple[SeriesEntry, ...]):  # noqa: SLOT001 - the digest is kept in its __dict__
    """Entries in storage order, whose digest is made once."""

    @cached_property
    def digest(self) -> str:
        return catalogue_digest(self)


def is_counter(entry: SeriesEntry) -> bool:
    """Return whether an entry of the live catalogue is derived from a counter of the BMC."""
    return entry["quantity"] in BYTE_QUANTITIES or entry["quantity"] == ERROR_QUANTITY


def derived_series(entries: Iterable[SeriesEntry]) -> list[DerivedSeries]:
    """Return the series derived from raw columns."""
    found = []
    for column, entry in enumerate(entries):
        found.append(DerivedSeries(entry, entry, column, is_rate=entry["quantity"] in BYTE_QUANTITIES))
        if entry["quantity"] == ERROR_QUANTITY:
            found.append(DerivedSeries(rate_entry(entry), entry, column, is_rate=True))
    return found


def rate_entry(entry: SeriesEntry) -> SeriesEntry:
    """Return the rate of an error counter."""
    return {
        **entry, "key": entry["key"] + RATE_SUFFIX, "quantity": ERROR_RATE, "label": f"{entry['label']}, a second",
        "unit": "1/s",
    }  # fmt: skip


def catalogue_digest(entries: Sequence[SeriesEntry]) -> str:
    """Return the SHA-256 of a catalogue in hex."""
    lines = (
        "\0".join((one["key"], one["object"], str(one["id"]), one["quantity"], one["label"], one["unit"]))
        for one in entries
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class Tier(models.IntegerChoices):
    RAW = 0, gettext_noop("raw")
    TEN_SECONDS = 1, "10 s"
    MINUTE = 2, "1 min"
    QUARTER = 3, "15 min"


RAW_SPAN = 60_000  # ms; maximum span of a raw chunk
ROLLUPS = (Tier.TEN_SECONDS, Tier.MINUTE, Tier.QUARTER)


@dataclass(frozen=True)
class TierShape:
    """Sizes of a tier in ms: a bucket, the window of a chunk, and the portion that is rolled up at a time."""

    step: int
    window: int
    portion: int


# Each window lies in one window of the next tier.
TIER_SHAPES = {
    Tier.TEN_SECONDS: TierShape(step=10_000, window=900_000, portion=900_000),
    Tier.MINUTE: TierShape(step=60_000, window=6 * 3_600_000, portion=3_600_000),
    Tier.QUARTER: TierShape(step=900_000, window=96 * 3_600_000, portion=6 * 3_600_000),
}
# s; bucket widths of charts: each is a multiple of the step of the widest tier that divides it.
CHART_STEPS = (
    1, 2, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600,
    86400, 2 * 86400, 4 * 86400, 7 * 86400, 14 * 86400, 28 * 86400,
)  # fmt: skip


def window_start(tier: Tier, at: int) -> int:
    """Return the start (ms) of the window that contains a moment."""
    return at // TIER_SHAPES[tier].window * TIER_SHAPES[tier].window
