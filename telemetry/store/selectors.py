"""Any series of a chassis over any range, at the resolution that is requested.

Each bucket comes from the widest tier that its width is a whole number of. What is not rolled up yet comes from the
tiers below, down to raw readings, and what is not even stored from Redis: the newest end has no hole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import redis
from django.conf import settings
from django.db.models import Q
from numpy.typing import NDArray

from core.errors import Invalid
from telemetry.instrumentation import metrics
from telemetry.live import frames
from telemetry.live.catalogue import SeriesEntry
from telemetry.store import chunks
from telemetry.store.chunks import StoredChunk, gaps_between, last_stored_at, pending_rollups
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

LATEST_CATALOGUES = 20  # catalogues that are asked what a key is, where none of the range has it
MAX_VALUES = 5_000_000
MAX_HELD_VALUES = 1_000_000  # values of one answer that are held as they are stored; each takes 32 bytes, and copies
WINDOWS_PER_READ = 64  # chunks of rollups whose bytes are held at a time
RAW_PORTION_MS = 600_000  # ms; what is read of raw readings at a time
UNSTORED_SECONDS = 120.0  # s; what is measured for no longer may not be stored yet
MAX_FINER_WINDOW_SECONDS = max(RAW_SPAN, *(TIER_SHAPES[tier].window for tier in ROLLUPS[:-1])) / 1000  # s
DAMAGED = "Stored readings are damaged and left out."


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
    at: NDArray[np.float64]  # [rows] where each bucket begins, Unix s
    series: list[SeriesEntry]
    mean: NDArray[np.float64]  # [series, rows], NaN where there is nothing; so `low` and `high`
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.uint32]  # [series, rows] readings in each
    gaps: list[ReadingGap]


@dataclass(frozen=True)
class RawReadings:
    """Readings as they were taken: `at` f8[rows], ascending, Unix s; `values` f8[series, rows], NaN for none."""

    series: list[SeriesEntry]
    at: NDArray[np.float64]
    values: NDArray[np.float64]


def read_series(chassis: int, keys: Sequence[str], *, since: float, until: float, points: int) -> Extract:
    """Return the series `keys` from `since` to `until` (Unix s) in at most `points` buckets, from whole seconds on.

    Keys are those of the live catalogue: byte counters are rates, error counters totals, and rates under key + '/rate'.
    A key that was never measured is left out. One whose unit has changed is read in its newest unit; when it had
    another one is told as a gap. Raises Invalid for a range that is none, and for too many values.
    """
    _check(since, until, points, len(keys))
    grid = bucket_grid(since, until, points, now=time.time(), keep=settings.KEEP_SECONDS)
    return _SeriesQuery(chassis, dict.fromkeys(keys), grid).extract()


def read_raw(chassis: int, keys: Sequence[str], *, since: float, until: float) -> Iterator[RawReadings]:
    """Yield every stored reading of the series `keys`, in portions of some minutes, in order of time.

    Keys are as in `read_series`. Raises Invalid for a range that is none.
    """
    _check(since, until, 1, len(keys))
    wanted = {entry["key"]: entry for entry in known_series(chassis, since=since, until=until)}
    series = [wanted[key] for key in dict.fromkeys(keys) if key in wanted]
    end = math.ceil(until * 1000)
    oldest = Chunk.objects.filter(chassis=chassis, tier=Tier.RAW, since__gte=since - RAW_SPAN / 1000)
    first = oldest.order_by("since").values_list("since", flat=True).first()
    begin = max(math.ceil(since * 1000), math.floor(first * 1000)) if first is not None else end
    while begin < end:
        portion = min(end, begin + RAW_PORTION_MS)
        rows = chunks.stored_chunks(chassis, Tier.RAW, begin, portion)
        if rows:
            rows += chunks.preceding_chunks(chassis, rows)
            # A series that came later, or is only known live so far, is in none of these.
            known = {one for row in rows for one in chunks.raw_columns(row.catalogue)}
            there = [entry for entry in series if series_identity(entry) in known]
            found, damaged = chunks.read_raw_chunks(rows, [series_identity(entry) for entry in there], begin, portion)
            metrics.increment("chunks_damaged", len(damaged), chassis=chassis)
            yield RawReadings(there, found.at / 1000, found.values)
        begin = portion


def known_series(chassis: int, *, since: float, until: float) -> list[SeriesEntry]:
    """Return what was measured in a range, rates of error counters included; each key once, as it was last."""
    within = Chunk.objects.filter(chassis=chassis, since__lt=until, until__gt=since)
    # The shortest windows tell best, and what is not rolled up into them is looked for below.
    now = time.time()
    tier = next((tier for tier in ROLLUPS if since >= now - settings.KEEP_SECONDS[tier]), ROLLUPS[-1])
    wanted = Q(tier=tier)
    unmade = Due.objects.filter(chassis=chassis, tier__lte=tier).order_by("since")
    first = unmade.values_list("since", flat=True).first()
    if first is not None:
        wanted |= Q(tier__lt=tier, since__gte=max(first, since) - MAX_FINER_WINDOW_SECONDS)
    newest: dict[int, float] = {}
    for catalogue, end, of in within.filter(wanted).values_list("catalogue_id", "until", "tier"):
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
        raise Invalid("The range must begin before it ends.")
    if points < 1 or points * keys > MAX_VALUES:
        raise Invalid(f"Ask for at least one point, and for at most {MAX_VALUES:,} values at a time.")


def _live_catalogue(chassis: int) -> list[SeriesEntry]:
    try:
        return frames.current_catalogue(chassis)
    except (redis.RedisError, OSError):
        return []


@dataclass
class _SeriesQuery:
    """One question on its way to its answer: what was found so far."""

    chassis: int
    keys: dict[str, None]
    grid: BucketGrid
    parts: list[tuple[list[SeriesIdentity], Buckets]] = field(default_factory=list)
    entries: dict[SeriesIdentity, tuple[float, SeriesEntry]] = field(default_factory=dict)  # with when it was seen last
    gaps: list[ReadingGap] = field(default_factory=list)
    held: int = 0

    def extract(self) -> Extract:
        """Return the answer."""
        due = self._due()
        left = [self.grid.span]
        for tier in reversed([tier for tier in ROLLUPS if tier <= self.grid.tier]):
            # No wider than the tier's own buckets: what lies beside may be there in no tier below any more.
            unmade = [widen_span(span, TIER_SHAPES[tier].step) for of, span in due if of <= tier]
            mine = subtract_spans(left, unmade)
            left = subtract_spans(left, mine)
            for span in mine:
                self._rollups(tier, span)
        for span in left:
            self._raw(span)
        self._newest()
        return self._answer()

    def _due(self) -> list[tuple[int, SpanMs]]:
        """Return what is not rolled up of the range: of which tier, and when."""
        begin, end = self.grid.span
        return [
            (tier, (math.floor(since * 1000), math.ceil(until * 1000)))
            for tier, since, until in pending_rollups(self.chassis, self.grid.tier, begin / 1000, end / 1000)
        ]

    def _wanted(self, entries: Sequence[SeriesEntry], seen: float) -> list[SeriesIdentity]:
        """Return which of some series are asked for, and note what they are."""
        found = {series_identity(entry): entry for entry in entries if entry["key"] in self.keys}
        for one, entry in found.items():
            before = self.entries.get(one)
            if before is None or before[0] <= seen:
                self.entries[one] = (seen, entry)
        return list(found)

    def _wanted_of(
        self, rows: Sequence[StoredChunk], entries: Callable[[int], Sequence[SeriesEntry]]
    ) -> dict[int, list[SeriesIdentity]]:
        """Return which series are asked for of each catalogue that some chunks have."""
        seen: dict[int, float] = {}
        for row in rows:
            seen[row.catalogue] = max(seen.get(row.catalogue, 0.0), row.until)
        return {catalogue: self._wanted(entries(catalogue), until) for catalogue, until in seen.items()}

    def _rollups(self, tier: Tier, span: SpanMs) -> None:
        """Take a span from a tier's chunks; what is damaged comes from the tier below, where that is still kept."""
        first, long = window_start(tier, span[0]), WINDOWS_PER_READ * TIER_SHAPES[tier].window
        for begin in range(first, span[1], long):
            self._windows(tier, (max(begin, span[0]), min(begin + long, span[1])))

    def _windows(self, tier: Tier, span: SpanMs) -> None:
        rows = chunks.stored_chunks(self.chassis, tier, *span)
        wanted_of = self._wanted_of(rows, chunks.catalogue_entries)
        for row in rows:
            wanted = wanted_of[row.catalogue]
            if not wanted:
                continue
            try:
                buckets, _ = chunks.rollup_buckets(row, wanted)
            except DamagedError:
                self._fall_back(tier, row, span)
                continue
            buckets = buckets.between(*span)
            self.held += buckets.count.size
            if self.held > MAX_HELD_VALUES:
                # Years of hundreds of series would be gigabytes, of which a few points are shown.
                buckets = buckets.group_by_step(self.grid.step, self.grid.begin)
            self.parts.append((wanted, buckets))

    def _fall_back(self, tier: Tier, row: StoredChunk, span: SpanMs) -> None:
        metrics.increment("chunks_damaged", chassis=self.chassis)
        begin, end = max(round(row.since * 1000), span[0]), min(round(row.until * 1000), span[1])
        below = Tier(tier - 1)
        if begin / 1000 < time.time() - settings.KEEP_SECONDS[below]:
            self.gaps.append(ReadingGap(begin / 1000, end / 1000, DAMAGED))
        elif below is Tier.RAW:
            self._raw((begin, end))
        else:
            self._rollups(below, (begin, end))

    def _raw(self, span: SpanMs) -> None:
        """Take a span from raw chunks."""
        rows = chunks.stored_chunks(self.chassis, Tier.RAW, *span)
        found_in = self._wanted_of(rows, _derived_entries).values()
        wanted = list(dict.fromkeys(one for some in found_in for one in some))
        if not wanted:
            return
        if any(self.entries[one][1]["quantity"] in RATE_QUANTITIES for one in wanted):
            rows += chunks.preceding_chunks(self.chassis, rows)
        found, damaged = chunks.read_raw_chunks(rows, wanted, *span)
        metrics.increment("chunks_damaged", len(damaged), chassis=self.chassis)
        self.gaps += [ReadingGap(one.since / 1000, one.until / 1000, DAMAGED) for one in damaged]
        self.parts.append((wanted, Buckets.single(found.at, found.values)))

    def _newest(self) -> None:
        """Take what comes after the last stored row."""
        now = time.time()
        last = last_stored_at(self.chassis, now) or now - frames.RECENT_SECONDS
        begin, end = max(self.grid.begin, round(last * 1000) + 1), self.grid.span[1]
        if begin >= end or now - begin / 1000 > frames.RECENT_SECONDS + UNSTORED_SECONDS:
            return
        found = live_tail_rows(self.chassis, list(self.keys), begin, end, seconds=now - begin / 1000)
        if found is not None:
            entries, rows = found
            wanted = self._wanted(entries, math.inf)
            self.parts.append((wanted, Buckets.single(rows.at, rows.values)))

    def _answer(self) -> Extract:
        chosen = self._chosen_units()
        missing = [key for key in self.keys if key not in chosen]
        known = self._known(missing) if missing else {}
        series = [
            self.entries[chosen[key]][1] if key in chosen else known[key]
            for key in self.keys
            if key in chosen or key in known
        ]
        place = {series_identity(entry): number for number, entry in enumerate(series)}
        low, high, total, count = self._merge_parts(place)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
        self._note_other_units(place)
        self.gaps += self._recorded_gaps()
        begin, step = self.grid.begin, self.grid.step
        return Extract(
            step=step / 1000, at=(begin + np.arange(self.grid.rows) * step) / 1000, series=series,
            mean=mean, low=low, high=high,
            count=count.astype(np.uint32), gaps=sorted(self.gaps, key=lambda gap: (gap.since, gap.until)),
        )  # fmt: skip

    def _chosen_units(self) -> dict[str, SeriesIdentity]:
        """Return in which unit each key is shown: that of its newest reading in the range."""
        units: dict[str, list[SeriesIdentity]] = {}
        for one in self.entries:
            units.setdefault(one[0], []).append(one)
        return {key: some[0] if len(some) == 1 else max(some, key=self._last) for key, some in units.items()}

    def _last(self, one: SeriesIdentity) -> tuple[float, float]:
        """Return when there was a reading of a series last, and when it was known last."""
        last = 0.0
        for wanted, buckets in self.parts:
            if one in wanted and len(there := buckets.at[buckets.count[wanted.index(one)] > 0]):
                last = max(last, float(there[-1]))
        return last, self.entries[one][0]

    def _merge_parts(self, place: dict[SeriesIdentity, int]) -> tuple[NDArray[np.float64], ...]:
        """Return least, greatest, sum and count of each series and bucket, from all parts."""
        shape = (len(place), self.grid.rows)
        fields = tuple(np.full(shape, fill) for fill in (np.nan, np.nan, np.nan, 0.0))
        parts = []
        for wanted, buckets in self.parts:
            mine = [number for number, one in enumerate(wanted) if one in place]
            if mine and len(buckets.at):
                parts.append(buckets.picked(mine).spread([place[wanted[number]] for number in mine], len(place)))
        if parts:
            found = concatenate_buckets(parts).group_by_step(self.grid.step, self.grid.begin)
            at = (found.at - self.grid.begin) // self.grid.step
            for field_, own in zip(fields, (found.low, found.high, found.total, found.count), strict=True):
                field_[:, at] = own
        return fields

    def _known(self, keys: Sequence[str]) -> dict[str, SeriesEntry]:
        """Return what keys are of which the range has nothing."""
        latest = Catalogue.objects.filter(chassis=self.chassis).order_by("-pk")[:LATEST_CATALOGUES]
        found: dict[str, SeriesEntry] = {}
        for entries in (*(one.entries for one in latest), _live_catalogue(self.chassis)):
            for one in derived_series(entries):
                if one.entry["key"] in keys:
                    found.setdefault(one.entry["key"], one.entry)
        return found

    def _note_other_units(self, place: dict[SeriesIdentity, int]) -> None:
        """Tell when a series was measured in another unit than the one it is shown in."""
        for wanted, buckets in self.parts:
            for number, (key, unit) in enumerate(wanted):
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


def _derived_entries(catalogue: int) -> list[SeriesEntry]:
    return [one.entry for one in chunks.raw_columns(catalogue).values()]
