"""Batches that a recorder passes to the writer: rows of one chassis, cleaned and encoded, and the gaps between them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.language import gettext_noop
from telemetry.live.catalogue import CLOCK_STEP_SECONDS, Sample, SeriesEntry, is_repeat
from telemetry.store import native
from telemetry.store.encoder import ChunkContent, encode_all
from telemetry.store.followers import KnownPairs
from telemetry.store.format import Columns, Values
from telemetry.store.models import Chunk, Gap
from telemetry.store.rules import Tier, catalogue_digest, is_counter, storage_order

BATCH_OVERHEAD_BYTES = 1000  # approximate memory of a batch besides its rows


class ReadingRow(NamedTuple):
    """One reading of all series, in the order of the live catalogue."""

    at: float  # Unix s by our clock
    measured_at: float  # Unix s by the BMC's clock; 0 where it does not report it
    counted: Values


class ColumnLayout:
    """The columns of a chassis' readings, and their storage order."""

    def __init__(self, entries: Sequence[SeriesEntry]) -> None:
        order = storage_order(entries)
        self.entries = [entries[place] for place in order]
        self.order = np.array(order, dtype=np.intp)
        self.digest = catalogue_digest(self.entries)
        self.known = KnownPairs()
        self.counters: NDArray[np.bool_] = np.array([is_counter(entry) for entry in self.entries], dtype=bool)


@dataclass(frozen=True)
class RecordedGap:
    """A span without readings, Unix s; `until` is None while it continues."""

    since: float
    until: float | None
    reason: str


@dataclass(frozen=True, eq=False)  # compared by identity: rows are arrays, for which == has no single result
class ReadingBatch:
    """Consecutive rows, and the gaps before the first and after the last of them."""

    chassis: int
    slack: float  # s; a longer pause is a gap
    layout: ColumnLayout | None = None
    rows: Sequence[ReadingRow] = ()
    run: int = 0  # unique number of a run of consecutive rows
    before: float | None = None  # time of the row before the first, where it belongs to the same run
    is_first: bool = False  # of its recorder: gaps that the previous recorder left are closed
    gaps: Sequence[RecordedGap] = ()
    written: Future[None] = field(default_factory=Future)  # done once it is written or dropped

    @property
    def size(self) -> int:
        """Memory of its rows, bytes."""
        return BATCH_OVERHEAD_BYTES + (len(self.rows) * self.rows[0].counted.nbytes if self.rows else 0)

    def done(self) -> None:
        if not self.written.done():
            self.written.set_result(None)


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """A batch in stored form."""

    batch: ReadingBatch
    since: float
    until: float
    rows: int
    data: bytes
    no_numbers: int = 0
    negative_counts: int = 0

    @property
    def size(self) -> int:
        """Memory it takes, bytes."""
        return BATCH_OVERHEAD_BYTES + len(self.data)

    @property
    def readings(self) -> int:
        return self.rows * (len(self.batch.layout.entries) if self.batch.layout else 0)


def round_to_ms(at: float) -> float:
    return round(at * 1000) / 1000


def encode_batches(batches: Sequence[ReadingBatch]) -> list[EncodedBatch]:
    """Return batches in stored form, packed together: that takes half of the time that each of them takes alone."""
    tables = [_table(batch, batch.layout) for batch in batches if batch.layout is not None and batch.rows]
    packed = iter(encode_all([table.content for table in tables]))
    counted = iter(tables)
    found = []
    for batch in batches:
        if batch.layout is None or not batch.rows:
            since = min((gap.since for gap in batch.gaps), default=0.0)
            found.append(EncodedBatch(batch, since, since, 0, b""))
            continue
        _, no_numbers, negative_counts = next(counted)
        since, until = round_to_ms(batch.rows[0].at), round_to_ms(batch.rows[-1].at)
        found.append(EncodedBatch(batch, since, until, len(batch.rows), next(packed), no_numbers, negative_counts))
    return found


class _ReadingTable(NamedTuple):
    """The readings of a batch in storage order, and how many values were no number, and how many negative counters."""

    content: ChunkContent
    no_numbers: int
    negative_counts: int


def _table(batch: ReadingBatch, layout: ColumnLayout) -> _ReadingTable:
    at, measured_at, counted = zip(*batch.rows, strict=True)
    times = np.rint(np.maximum(np.array([at, measured_at]), [[-math.inf], [0.0]]) * 1000).astype(np.int64)
    # One copy of all rows is quicker than an array of arrays.
    values = np.concatenate(counted).reshape(len(counted), len(layout.order))
    if native.library is not None:
        columns, no_numbers, negative = native.library.columns(values, layout.order, layout.counters)
    else:
        columns, no_numbers, negative = cleaned(Columns.of_rows(values, layout.order), layout.counters)
    return _ReadingTable(ChunkContent(times, columns, layout.known), no_numbers, negative)


MAX_RATE_SECONDS = 120.0  # an average over a longer time is no meaningful rate
GAP_SECONDS = 5.0  # a pause longer than this is recorded as a gap
INTERVALS_KEPT = 8


class SampleVerdict(Enum):
    """How a reading relates to the previous one."""

    GOES_ON = "goes on"  # it continues the run
    BEGINS = "begins"  # it starts a run: the previous one is too old
    SET_BACK = "set back"  # our clock was set back: it arrived after the previous one, with an earlier time
    REPEATED = "repeated"  # it is the same report again


def cleaned(readings: Columns, counters: NDArray[np.bool_]) -> tuple[Columns, int, int]:
    """Return readings with NaN for non-finite values and negative counters, and how many of each."""
    fixed, values = readings.fixed + 0.0, readings.values + 0.0  # turns -0.0 into 0.0
    cleaned = Columns(readings.rows, fixed, readings.moving, values)
    below = fixed[counters].min(initial=0.0), values[counters[readings.moving]].min(initial=0.0)
    if np.isfinite(fixed).all() and np.isfinite(values).all() and min(below) >= 0:
        return cleaned, 0, 0
    still = np.ones(len(fixed), bool)
    still[readings.moving] = False
    few = _clean(fixed[:, None], counters, np.where(still, readings.rows, 0))
    more = _clean(values, counters[readings.moving], 1)
    no_numbers, negative = (one + other for one, other in zip(few, more, strict=True))
    return cleaned, no_numbers, negative


def _clean(values: Values, counters: NDArray[np.bool_], times: NDArray[np.intp] | int) -> tuple[int, int]:
    """Replace values by NaN, and return how many of each kind, each counted so many times."""
    good = np.isfinite(values)
    negative = (values < 0) & counters[:, None] & good
    values[~good | negative] = math.nan
    no_numbers, negatives = (int((one.sum(axis=1) * times).sum()) for one in (~good, negative))
    return no_numbers, negatives


class SampleSequence:
    """Tracks the intervals between readings of one chassis, by our clock and by the BMC's."""

    def __init__(self, period: float) -> None:
        self._intervals: deque[float] = deque([period], INTERVALS_KEPT)
        self.last: Sample | None = None
        self.bmc_jumped = False  # at the newest reading
        self._set_limits(period)

    def _set_limits(self, interval: float) -> None:
        self._shortest = interval
        # The longest pause that is no gap, and the longest interval over which rates are computed, s.
        self.slack = max(GAP_SECONDS, 3 * interval)
        self.reach = max(MAX_RATE_SECONDS, 3 * interval)

    def judge(self, sample: Sample) -> SampleVerdict:
        """Return how the next reading relates to the previous one."""
        last, self.bmc_jumped = self.last, False
        if last is None:
            self.last = sample
            return SampleVerdict.BEGINS
        if is_repeat(sample, last):
            return SampleVerdict.REPEATED
        self.last = sample
        elapsed = sample.at - last.at
        if sample.measured_at > 0 and last.measured_at > 0:
            drift = sample.measured_at - last.measured_at - elapsed
            self.bmc_jumped = abs(drift) > CLOCK_STEP_SECONDS
        if elapsed <= 0:
            return SampleVerdict.SET_BACK
        reach = self.reach
        self._intervals.append(elapsed)
        if not self._shortest <= elapsed < 1.5 * self._shortest:
            self._set_limits(min(self._intervals))
        return SampleVerdict.GOES_ON if elapsed <= reach else SampleVerdict.BEGINS


WORKER_DIED = gettext_noop("The worker that read this chassis ended before it had stored these seconds.")
REASON_LENGTH = 300


def gap_add(chassis: int, since: float, until: float | None, reason: str) -> None:
    Gap.objects.create(chassis=chassis, since=since, until=until, reason=reason[:REASON_LENGTH])


def gaps_record(batch: ReadingBatch) -> None:
    """Store the gaps that a recorder reports; gaps that it reported as open are closed."""
    for one in batch.gaps:
        still_open = Gap.objects.filter(chassis=batch.chassis, until=None)
        if one.until is None:
            if not still_open.exists():
                gap_add(batch.chassis, one.since, None, one.reason)
        elif (begun := still_open.order_by("pk").first()) is not None:
            _close_gap(begun, one.until, batch.slack)
        elif one.until - one.since > batch.slack:
            gap_add(batch.chassis, one.since, one.until, one.reason)


def gap_from_takeover(first: EncodedBatch) -> None:
    """Close the open gaps of the previous recorder at the first rows of this one.

    A pause that the previous recorder did not report was lost with its process, and is stored as a gap.
    """
    chassis, slack = first.batch.chassis, first.batch.slack
    stored = Chunk.objects.filter(chassis=chassis, tier=Tier.RAW, since__lte=first.since).order_by("-since")
    last = stored.values_list("until", flat=True).first()
    if last is not None:
        reported = Gap.objects.filter(chassis=chassis, since__gte=last - slack, since__lt=first.since).order_by("since")
        until = reported.values_list("since", flat=True).first() or first.since
        if until - last > slack:
            gap_add(chassis, last, until, WORKER_DIED)
    for begun in Gap.objects.filter(chassis=chassis, until=None):
        _close_gap(begun, first.since, slack)


def _close_gap(gap: Gap, until: float, slack: float) -> None:
    if until - gap.since > slack:
        gap.until = until
        gap.save(update_fields=["until"])
    else:
        gap.delete()
