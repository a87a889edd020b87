"""Buckets of all series of a chassis as rollups are made of them.

Most series of a chassis never change: of those, one row stands for all buckets, and nothing is computed a bucket.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from telemetry.live.catalogue import SeriesEntry
from telemetry.store import chunks
from telemetry.store.chunks import StoredChunk, order_by_run, rates_of, read_raw_chunks
from telemetry.store.decoder import decode_all, decode_fields
from telemetry.store.encoder import encode
from telemetry.store.format import ChunkReader, Columns, DamagedError, Values
from telemetry.store.rules import (
    Buckets,
    DecimalPlaces,
    SpanMs,
    combine_places,
    concatenate_buckets,
    series_identity,
    storage_order,
)

ROLLUP_BLOCK = 64  # columns, of four fields each
FIELDS = ("low", "high", "total", "count")


@dataclass(frozen=True)
class SeriesBuckets:
    """Buckets of series: `buckets` has those of busy ones, `still` the one row of the others, which never changes."""

    entries: tuple[SeriesEntry, ...]
    places: DecimalPlaces
    busy: NDArray[np.intp]  # indices of entries, ascending
    buckets: Buckets  # [len(busy), rows]; `at` is that of all
    still: Buckets  # [len(entries), 1], of no meaning for busy ones

    @classmethod
    def none(cls) -> SeriesBuckets:
        return cls((), np.zeros(0, np.int8), np.zeros(0, np.intp), Buckets.none(0), one_row(np.empty(0), 0.0))

    @property
    def rows(self) -> int:
        return len(self.buckets.at)

    def of(self, series: NDArray[np.intp]) -> Buckets:
        """Return all buckets of some series."""
        place = np.full(len(self.entries), -1)
        place[self.busy] = np.arange(len(self.busy))
        own = place[series]
        fields = []
        for name in FIELDS:
            found = np.repeat(getattr(self.still, name)[series], self.rows, axis=1)
            found[own >= 0] = getattr(self.buckets, name)[own[own >= 0]]
            fields.append(found)
        return Buckets(self.buckets.at, *fields)

    def all_busy(self) -> SeriesBuckets:
        """Return the same with all buckets of every series."""
        every = np.arange(len(self.entries))
        return replace(self, busy=every, buckets=self.of(every))

    def between(self, since: int, until: int) -> SeriesBuckets:
        return replace(self, buckets=self.buckets.between(since, until))

    def without(self, since: int, until: int) -> SeriesBuckets:
        return replace(self, buckets=self.buckets.without(since, until))

    def group_by_step(self, step: int) -> SeriesBuckets:
        """Return them merged into buckets of `step` ms."""
        if not self.rows:
            return self
        sizes = np.unique(self.buckets.at // step, return_counts=True)[1]
        if (sizes != sizes[0]).any():
            every = self.all_busy()
            return replace(every, buckets=every.buckets.group_by_step(step))
        still = replace(self.still, total=self.still.total * sizes[0], count=self.still.count * sizes[0])
        return replace(self, buckets=self.buckets.group_by_step(step), still=still)

    def tidy(self) -> SeriesBuckets:
        """Return them in storage order, without series that have no readings."""
        has_readings = self.still.count[:, 0] > 0
        has_readings[self.busy] = self.buckets.count.any(axis=1)
        quantities = [entry["quantity"] for entry in self.entries]
        if has_readings.all() and quantities == sorted(quantities):
            return self
        order = np.array([place for place in storage_order(self.entries) if has_readings[place]], dtype=np.intp)
        if np.array_equal(order, np.arange(len(self.entries))):
            return self
        new = np.full(len(self.entries), -1)
        new[order] = np.arange(len(order))
        kept = np.flatnonzero(new[self.busy] >= 0)
        kept = kept[np.argsort(new[self.busy[kept]])]
        return SeriesBuckets(
            tuple(self.entries[place] for place in order.tolist()), self.places[order], new[self.busy[kept]],
            self.buckets.picked(kept.tolist()), self.still.picked(order.tolist()),
        )  # fmt: skip

    def encoded(self) -> bytes:
        """Return them as a chunk."""
        rounded = self.buckets.rounded(self.places[self.busy])
        still = self.still.rounded(self.places)
        fields = []
        for name in FIELDS:
            own = Columns.of(getattr(rounded, name))
            fixed = getattr(still, name)[:, 0].copy()
            fixed[self.busy] = own.fixed
            fields.append(Columns(self.rows, fixed, self.busy[own.moving], own.values))
        return encode(rounded.at[None], fields, block=ROLLUP_BLOCK)


def one_row(values: Values, count: float) -> Buckets:
    """Return one bucket of each series, with `count` readings of the same value; none where it is NaN."""
    column = values[:, None]
    has_value = ~np.isnan(column)
    return Buckets(np.zeros(1, np.int64), column, column, column * count, has_value * count)


def combined(parts: Sequence[SeriesBuckets]) -> SeriesBuckets:
    """Return several parts as one, in order of time; still series remain so where every part has the same of them."""
    parts = [part for part in parts if part.rows]
    if len(parts) < 2:
        return parts[0] if parts else SeriesBuckets.none()
    entries = parts[0].entries
    are_same = all(part.entries == entries for part in parts)
    if not are_same:
        entries = tuple({series_identity(entry): entry for part in parts for entry in part.entries}.values())
    place = {} if are_same else {series_identity(entry): number for number, entry in enumerate(entries)}
    count = len(entries)
    is_busy = np.zeros(count, bool)
    first: list[Values] = []
    wide = []
    for part in parts:
        numbers = range(count) if are_same else [place[series_identity(entry)] for entry in part.entries]
        own = np.array(numbers, dtype=np.intp)
        still = part.still.spread(own, count)
        rows = [getattr(still, name)[:, 0] for name in FIELDS]
        first = first or rows
        is_busy[own[part.busy]] = True
        for one, other in zip(rows, first, strict=True):
            is_busy |= one.view(np.int64) != other.view(np.int64)
        places = np.zeros(count, np.int8)
        places[own] = part.places
        wide.append((own, places))
    busy = np.flatnonzero(is_busy)
    buckets = []
    for part, (own, _) in zip(parts, wide, strict=True):
        here = np.flatnonzero(is_busy[own])
        buckets.append(part.of(here).spread(np.searchsorted(busy, own[here]), len(busy)))
    return SeriesBuckets(
        entries, combine_places([places for _, places in wide]), busy,
        concatenate_buckets(buckets), parts[0].still.spread(wide[0][0], count),
    )  # fmt: skip


def read_window(row: StoredChunk) -> SeriesBuckets:
    """Return all series in a rollup's chunk; raises DamagedError."""
    entries = chunks.catalogue_entries(row.catalogue)
    reader = ChunkReader(row.data)
    (at, *_), fields = decode_fields(reader)
    if len(fields) != len(FIELDS) or reader.columns != len(entries):
        raise DamagedError("A chunk of a rollup has other fields or columns.")
    is_busy = np.zeros(len(entries), bool)
    for columns, _ in fields:
        is_busy[columns.moving] = True
    busy = np.flatnonzero(is_busy)
    still = Buckets(at[:1], *(columns.fixed[:, None] for columns, _ in fields))
    buckets = Buckets(at, *(columns.some(busy) for columns, _ in fields))
    return SeriesBuckets(entries, combine_places([places for _, places in fields[:3]]), busy, buckets, still)


def read_readings(rows: Sequence[StoredChunk], since: int, until: int) -> tuple[SeriesBuckets, list[SpanMs]]:
    """Return all series in raw chunks in [`since`, `until`) (ms), each reading a bucket; and the damaged spans.

    `rows` include the chunks before them.
    """
    ordered = list(order_by_run(rows))
    if len({row.catalogue for row in ordered}) == 1:
        with contextlib.suppress(DamagedError, IndexError, ValueError):
            if (found := _read_whole(ordered, since, until)) is not None:
                return found, []
    # Some are damaged, of other series, or overlap each other.
    by_identity = {one: found.entry for row in rows for one, found in chunks.raw_columns(row.catalogue).items()}
    table, damaged = read_raw_chunks(rows, list(by_identity), since, until)
    none_still = one_row(np.full(len(by_identity), np.nan), 1.0)
    busy, buckets = np.arange(len(by_identity)), Buckets.single(table.at, table.values)
    return SeriesBuckets(tuple(by_identity.values()), table.places, busy, buckets, none_still), damaged


def _read_whole(rows: Sequence[StoredChunk], since: int, until: int) -> SeriesBuckets | None:
    """Return all series in raw chunks of the same columns, in order; None where their times overlap."""
    readers = [ChunkReader(row.data) for row in rows]
    times, joined, decimals = decode_all(readers)
    if (np.diff(times[0]) <= 0).any():
        return None
    begins_run = [True, *((row.version, row.before) != (last.version, last.until) for last, row in pairwise(rows))]
    runs = np.repeat(np.cumsum(begins_run), [reader.rows for reader in readers])
    derived = chunks.derived_columns(rows[0].catalogue)
    counted = joined.fixed[derived.columns]
    is_moving = np.zeros(len(joined.fixed), bool)
    is_moving[joined.moving] = True
    # There is no rate without a reading before, as in the first row of a run.
    has_rates = runs[-1] == 1 and times[0, 0] < since
    busy = np.flatnonzero(is_moving[derived.columns] | (derived.rates & (np.isnan(counted) | (not has_rates))))
    values = joined.some(derived.columns[busy])
    rates = derived.rates[busy]
    values[rates] = rates_of(values[rates], times, runs)
    inside = slice(*np.searchsorted(times[0], (since, until)))
    places = np.where(derived.rates, -1, combine_places(decimals)[derived.columns]).astype(np.int8)
    still = one_row(np.where(derived.rates, 0.0, counted), 1.0)
    return SeriesBuckets(derived.entries, places, busy, Buckets.single(times[0, inside], values[:, inside]), still)
