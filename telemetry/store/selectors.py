"""Reads any series of a chassis over any range, at the requested resolution.

Each bucket comes from the widest tier whose step divides its width. Spans that are not rolled up yet come from the
tiers below, down to raw readings; readings that are not stored yet come from Redis, so that the newest end has no hole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter

import numpy as np
import redis
from django.conf import settings
from django.db.models import Q
from numpy.typing import NDArray

from core.errors import Invalid
from core.language import _, gettext_noop
from telemetry.instrumentation import metrics
from telemetry.live import frames
from telemetry.live.catalogue import SeriesEntry
from telemetry.store import chunks
from telemetry.store.chunks import OpenRollup, StoredChunk, gaps_between, last_stored_at, pending_rollups
from telemetry.store.format import DamagedError
from telemetry.store.live_tail import live_tail_rows
from telemetry.store.models import Catalogue, Chunk, Due
from telemetry.store.rules import (
    RATE_QUANTITIES,
    RAW_SPAN,
    ROLLUPS,
    TIER_SHAPES,
    BucketGrid,
    Buckets,
    SeriesIdentity,
    SpanMs,
    Tier,
    bucket_grid,
    concatenate_buckets,
    derived_series,
    series_identity,
    subtract_spans,
    widen_span,
    window_start,
)

LATEST_CATALOGUES = 20  # catalogues searched for a key that no catalogue of the range has
MAX_VALUES = 5_000_000
MAX_HELD_VALUES = 1_000_000  # values of one extract kept at stored resolution; each takes 32 bytes, and copies
WINDOWS_PER_READ = 64  # rollup chunks in memory at a time
VALUES_TOGETHER = 100_000  # of each field that are decoded at once: of more, calls take little of the time
RAW_PORTION_MS = 600_000  # of raw readings read at a time
UNSTORED_SECONDS = 120.0  # a newer series may not be stored yet
MAX_FINER_WINDOW_SECONDS = max(RAW_SPAN, *(TIER_SHAPES[tier].window for tier in ROLLUPS[:-1])) / 1000
DAMAGED = gettext_noop("Stored readings are damaged and left out.")


@dataclass(frozen=True)
class ReadingGap:
    """A span of time of which readings are missing, Unix s, and why."""

    since: float
    until: float
    reason: str


@dataclass(frozen=True)
class Extract:
    """Series of one chassis over a range, in buckets of `step` seconds."""

    step: float
    at: NDArray[np.float64]  # [rows] start of each bucket, Unix s
    series: list[SeriesEntry]
    mean: NDArray[np.float64]  # [series, rows], NaN without readings; likewise `low` and `high`
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.uint32]  # [series, rows] readings per bucket
    gaps: list[ReadingGap]


@dataclass(frozen=True)
class RawReadings:
    """Readings at full resolution: `at` f8[rows], ascending, Unix s; `values` f8[series, rows], NaN for none."""

    series: list[SeriesEntry]
    at: NDArray[np.float64]
    values: NDArray[np.float64]


def read_series(
    chassis: int, keys: Sequence[str], *, since: float, until: float, points: int, band: bool = True
) -> Extract:
    """Return the series `keys` from `since` to `until` (Unix s) in at most `points` buckets of whole seconds.

    Keys are those of the live catalogue: byte counters are rates, error counters totals, and rates under key + '/rate'.
    A key that was never measured is left out. A key whose unit has changed is read in its newest unit; spans in an
    earlier unit are reported as gaps. Without `band`, least and greatest are not read: they are the mean. Raises
    Invalid for an empty range, and for too many values.
    """
    _check(since, until, points, len(keys))
    grid = bucket_grid(since, until, points, now=time.time(), keep=settings.KEEP_SECONDS)
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return _SeriesQuery(chassis, places, grid, band).extract()


def read_raw(chassis: int, keys: Sequence[str], *, since: float, until: float) -> Iterator[RawReadings]:
    """Yield every stored reading of the series `keys`, in portions of RAW_PORTION_MS, in order of time.

    Keys are as in `read_series`. Raises Invalid for an empty range.
    """
    _check(since, until, 1, len(keys))
    known = {entry["key"]: entry for entry in known_series(chassis, since=since, until=until)}
    series = [known[key] for key in dict.fromkeys(keys) if key in known]
    end = math.ceil(until * 1000)
    oldest = Chunk.objects.filter(chassis=chassis, tier=Tier.RAW, since__gte=since - RAW_SPAN / 1000)
    first = oldest.order_by("since").values_list("since", flat=True).first()
    begin = max(math.ceil(since * 1000), math.floor(first * 1000)) if first is not None else end
    while begin < end:
        portion = min(end, begin + RAW_PORTION_MS)
        rows = chunks.stored_chunks(chassis, Tier.RAW, begin, portion)
        if rows:
            rows += chunks.preceding_chunks(chassis, rows)
            # A series that was added later, or is only in the live catalogue so far, has no column in these chunks.
            stored = {one for row in rows for one in chunks.raw_columns(row.catalogue)}
            present = [entry for entry in series if series_identity(entry) in stored]
            found, damaged = chunks.read_raw_chunks(rows, [series_identity(entry) for entry in present], begin, portion)
            metrics.increment("chunks_damaged", len(damaged), chassis=chassis)
            yield RawReadings(present, found.at / 1000, found.values)
        begin = portion


def known_series(chassis: int, *, since: float, until: float) -> list[SeriesEntry]:
    """Return the series measured in a range, rates of error counters included; each key once, its newest entry."""
    within = Chunk.objects.filter(chassis=chassis, since__lt=until, until__gt=since)
    # The shortest windows are the most precise; spans not rolled up into them are searched in the tiers below.
    now = time.time()
    tier = next((tier for tier in ROLLUPS if since >= now - settings.KEEP_SECONDS[tier]), ROLLUPS[-1])
    in_tiers = Q(tier=tier)
    not_rolled_up = Due.objects.filter(chassis=chassis, tier__lte=tier).order_by("since")
    first = not_rolled_up.values_list("since", flat=True).first()
    if first is not None:
        in_tiers |= Q(tier__lt=tier, since__gte=max(first, since) - MAX_FINER_WINDOW_SECONDS)
    newest: dict[int, float] = {}
    for catalogue, end, of in within.filter(in_tiers).values_list("catalogue_id", "until", "tier"):
        # The last bucket of a rollup ends after its last reading.
        newest[catalogue] = max(newest.get(catalogue, 0.0), end if of == Tier.RAW else end - 1.0)
    found: dict[str, SeriesEntry] = {}
    for catalogue in sorted(newest, key=newest.__getitem__):
        for entry in chunks.catalogue_entries(catalogue):
            for one in derived_series([entry]):
                found[one.entry["key"]] = one.entry
    if until > now - UNSTORED_SECONDS:
        found |= {one.entry["key"]: one.entry for one in derived_series(_live_catalogue(chassis))}
    return list(found.values())


def _check(since: float, until: float, points: int, keys: int) -> None:
    if not (math.isfinite(since) and math.isfinite(until) and -1e11 < since < until < 1e11):
        raise Invalid(_("The range must begin before it ends."))
    if points < 1 or points * keys > MAX_VALUES:
        raise Invalid(_("Request at least one point, and at most {most:,} values at a time.", most=MAX_VALUES))


def _live_catalogue(chassis: int) -> list[SeriesEntry]:
    try:
        return frames.current_catalogue(chassis)
    except (redis.RedisError, OSError):
        return []


@dataclass
class _SeriesQuery:
    chassis: int
    keys: dict[str, int]  # with their places
    grid: BucketGrid
    band: bool
    parts: list[tuple[list[SeriesIdentity], Buckets]] = field(default_factory=list)
    entries: dict[SeriesIdentity, tuple[float, SeriesEntry]] = field(default_factory=dict)  # with its newest time
    gaps: list[ReadingGap] = field(default_factory=list)
    kept_values: int = 0

    def extract(self) -> Extract:
        due = self._due()
        left = [self.grid.span]
        for tier in reversed([tier for tier in ROLLUPS if tier <= self.grid.tier]):
            # No wider than the tier's own buckets: the tiers below may no longer have the readings beside them.
            not_rolled_up = [widen_span(span, TIER_SHAPES[tier].step) for of, span in due if of <= tier]
            available = subtract_spans(left, not_rolled_up)
            left = subtract_spans(left, available)
            for span in available:
                self._read_rollups(tier, span)
        for span in left:
            self._read_raw(span)
        self._read_live_tail()
        return self._build_extract()

    def _due(self) -> list[tuple[int, SpanMs]]:
        """Return tier and span of each part of the range that is not rolled up yet."""
        begin, end = self.grid.span
        return [
            (tier, (math.floor(since * 1000), math.ceil(until * 1000)))
            for tier, since, until in pending_rollups(self.chassis, self.grid.tier, begin / 1000, end / 1000)
        ]

    def _requested(self, entries: Sequence[SeriesEntry], seen: float) -> list[SeriesIdentity]:
        """Return those of some series that are requested, in that order, and remember their newest entries."""
        found = {series_identity(entry): entry for entry in entries if entry["key"] in self.keys}
        for one, entry in found.items():
            before = self.entries.get(one)
            if before is None or before[0] <= seen:
                self.entries[one] = (seen, entry)
        return sorted(found, key=lambda one: self.keys[one[0]])

    def _requested_by_catalogue(
        self, rows: Sequence[StoredChunk | OpenRollup], entries: Callable[[int], Sequence[SeriesEntry]]
    ) -> dict[int, list[SeriesIdentity]]:
        """Return the requested series of each catalogue of some chunks."""
        seen: dict[int, float] = {}
        for row in rows:
            seen[row.catalogue] = max(seen.get(row.catalogue, 0.0), row.until)
        return {catalogue: self._requested(entries(catalogue), until) for catalogue, until in seen.items()}

    def _read_rollups(self, tier: Tier, span: SpanMs) -> None:
        """Read a span from a tier's chunks; a damaged chunk is read from the tier below, where that is still kept."""
        first, long = window_start(tier, span[0]), WINDOWS_PER_READ * TIER_SHAPES[tier].window
        for begin in range(first, span[1], long):
            self._read_windows(tier, (max(begin, span[0]), min(begin + long, span[1])))

    def _read_windows(self, tier: Tier, span: SpanMs) -> None:
        rows = chunks.open_rollups(self.chassis, tier, *span)
        requested_by_catalogue = self._requested_by_catalogue(rows, chunks.catalogue_entries)
        for catalogue, run in groupby(sorted(rows, key=attrgetter("since")), key=attrgetter("catalogue")):
            if requested := requested_by_catalogue[catalogue]:
                most = max(1, VALUES_TOGETHER * TIER_SHAPES[tier].step // TIER_SHAPES[tier].window // len(requested))
                while some := list(islice(run, most)):
                    self._read_run(tier, some, requested, span)

    def _read_run(self, tier: Tier, run: Sequence[OpenRollup], requested: list[SeriesIdentity], span: SpanMs) -> None:
        """Read chunks of one catalogue at once; where one of them is damaged, each by itself."""
        try:
            buckets = chunks.rollup_buckets(run, requested, band=self.band).between(*span)
        except DamagedError:
            if len(run) == 1:
                self._fall_back(tier, run[0], span)
            else:
                for row in run:
                    self._read_run(tier, [row], requested, span)
            return
        self.kept_values += buckets.count.size
        if self.kept_values > MAX_HELD_VALUES:
            # Years of hundreds of series would take gigabytes, of which a few points are shown.
            buckets = buckets.group_by_step(self.grid.step, self.grid.begin, band=self.band)
        self.parts.append((requested, buckets))

    def _fall_back(self, tier: Tier, row: OpenRollup, span: SpanMs) -> None:
        metrics.increment("chunks_damaged", chassis=self.chassis)
        begin, end = max(round(row.since * 1000), span[0]), min(round(row.until * 1000), span[1])
        below = Tier(tier - 1)
        if begin / 1000 < time.time() - settings.KEEP_SECONDS[below]:
            self.gaps.append(ReadingGap(begin / 1000, end / 1000, DAMAGED))
        elif below is Tier.RAW:
            self._read_raw((begin, end))
        else:
            self._read_rollups(below, (begin, end))

    def _read_raw(self, span: SpanMs) -> None:
        rows = chunks.stored_chunks(self.chassis, Tier.RAW, *span)
        found_in = self._requested_by_catalogue(
            rows, lambda catalogue: [one.entry for one in chunks.raw_columns(catalogue).values()]
        )
        requested = list(dict.fromkeys(one for some in found_in.values() for one in some))
        if not requested:
            return
        if any(self.entries[one][1]["quantity"] in RATE_QUANTITIES for one in requested):
            rows += chunks.preceding_chunks(self.chassis, rows)
        found, damaged = chunks.read_raw_chunks(rows, requested, *span)
        metrics.increment("chunks_damaged", len(damaged), chassis=self.chassis)
        self.gaps += [ReadingGap(begin / 1000, end / 1000, DAMAGED) for begin, end in damaged]
        self.parts.append((requested, Buckets.single(found.at, found.values)))

    def _read_live_tail(self) -> None:
        """Read the readings after the last stored row from Redis."""
        now = time.time()
        last = last_stored_at(self.chassis, now) or now - frames.RECENT_SECONDS
        begin, end = max(self.grid.begin, round(last * 1000) + 1), self.grid.span[1]
        if begin >= end or now - begin / 1000 > frames.RECENT_SECONDS + UNSTORED_SECONDS:
            return
        found = live_tail_rows(self.chassis, list(self.keys), begin, end, seconds=now - begin / 1000)
        if found is not None:
            entries, rows = found
            requested = self._requested(entries, math.inf)
            self.parts.append((requested, Buckets.single(rows.at, rows.values)))

    def _build_extract(self) -> Extract:
        chosen = self._chosen_units()
        missing = [key for key in self.keys if key not in chosen]
        known = self._known_entries(missing) if missing else {}
        series = [
            self.entries[chosen[key]][1] if key in chosen else known[key]
            for key in self.keys
            if key in chosen or key in known
        ]
        place = {series_identity(entry): number for number, entry in enumerate(series)}
        low, high, total, count = self._merge_parts(place)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
        if not self.band:
            low = high = mean
        self._note_other_units(place)
        self.gaps += self._recorded_gaps()
        begin, step = self.grid.begin, self.grid.step
        return Extract(
            step=step / 1000, at=(begin + np.arange(self.grid.rows) * step) / 1000, series=series,
            mean=mean, low=low, high=high,
            count=count.astype(np.uint32), gaps=sorted(self.gaps, key=lambda gap: (gap.since, gap.until)),
        )  # fmt: skip

    def _chosen_units(self) -> dict[str, SeriesIdentity]:
        """Return each key in the unit that is shown: the unit of its newest reading in the range."""
        units: dict[str, list[SeriesIdentity]] = {}
        for one in self.entries:
            units.setdefault(one[0], []).append(one)
        return {key: some[0] if len(some) == 1 else max(some, key=self._last_seen) for key, some in units.items()}

    def _last_seen(self, one: SeriesIdentity) -> tuple[float, float]:
        """Return the time of a series' newest reading, and of the newest chunk whose catalogue has it."""
        last = 0.0
        for requested, buckets in self.parts:
            if one in requested and len(measured := buckets.at[buckets.count[requested.index(one)] > 0]):
                last = max(last, float(measured[-1]))
        return last, self.entries[one][0]

    def _merge_parts(self, place: dict[SeriesIdentity, int]) -> tuple[NDArray[np.float64], ...]:
        """Return minimum, maximum, sum and count of each series and bucket, from all parts."""
        shape = (len(place), self.grid.rows)
        parts = []
        for requested, buckets in self.parts:
            shown = [number for number, one in enumerate(requested) if one in place]
            if shown and len(buckets.at):
                parts.append(buckets.picked(shown).spread([place[requested[number]] for number in shown], len(place)))
        if not parts:
            return (*(np.full(shape, np.nan) for _ in range(3)), np.zeros(shape))
        found = concatenate_buckets(parts).group_by_step(self.grid.step, self.grid.begin, band=self.band)
        at = (found.at - self.grid.begin) // self.grid.step
        if len(at) == self.grid.rows:  # each bucket has readings of some series
            return found.low, found.high, found.total, found.count
        fields = tuple(np.full(shape, missing) for missing in (np.nan, np.nan, np.nan, 0.0))
        for field_, own in zip(fields, (found.low, found.high, found.total, found.count), strict=True):
            field_[:, at] = own
        return fields

    def _known_entries(self, keys: Sequence[str]) -> dict[str, SeriesEntry]:
        """Return the entries of keys that have no readings in the range."""
        latest = Catalogue.objects.filter(chassis=self.chassis).order_by("-pk")[:LATEST_CATALOGUES]
        found: dict[str, SeriesEntry] = {}
        for entries in (*(one.entries for one in latest), _live_catalogue(self.chassis)):
            for one in derived_series(entries):
                if one.entry["key"] in keys:
                    found.setdefault(one.entry["key"], one.entry)
        return found

    def _note_other_units(self, place: dict[SeriesIdentity, int]) -> None:
        """Add a gap where a series was measured in another unit than the shown one."""
        for requested, buckets in self.parts:
            for number, (key, unit) in enumerate(requested):
                moments = buckets.at[buckets.count[number] > 0] if (key, unit) not in place else buckets.at[:0]
                if len(moments):
                    reason = f"{key} was measured in {unit or 'another unit'} then."
                    self.gaps.append(ReadingGap(float(moments[0]) / 1000, float(moments[-1]) / 1000, reason))

    def _recorded_gaps(self) -> list[ReadingGap]:
        begin, end = (moment / 1000 for moment in self.grid.span)
        now = min(time.time(), end)
        return [
            ReadingGap(max(since, begin), min(now if until is None else until, end), reason)
            for since, until, reason in gaps_between(self.chassis, begin, end)
            if until is not None or since < now
        ]
