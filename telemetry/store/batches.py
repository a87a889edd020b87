"""What a recorder hands to the writer: rows of one chassis, cleaned and encoded, and the gaps between them."""

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

from telemetry.live.catalogue import CLOCK_STEP_SECONDS, Sample, SeriesEntry, is_repeat
from telemetry.store.format import Values, encode
from telemetry.store.models import Chunk, Gap
from telemetry.store.rules import Tier, catalogue_digest, is_counter, storage_order

BATCH_OVERHEAD_BYTES = 1000  # what a parcel takes besides its rows, about


class ReadingRow(NamedTuple):
    """One reading of all series, in the order of the live catalogue."""

    at: float  # Unix s by our clock
    measured_at: float  # by the BMC's; 0 where it does not say
    counted: Values


class ColumnLayout:
    """What the columns of a chassis' readings are of, and the order in which they are stored."""

    def __init__(self, entries: Sequence[SeriesEntry]) -> None:
        order = storage_order(entries)
        self.entries = [entries[place] for place in order]
        self.order = np.array(order, dtype=np.intp)
        self.digest = catalogue_digest(self.entries)
        self.counters: NDArray[np.bool_] = np.array([is_counter(entry) for entry in self.entries], dtype=bool)


@dataclass(frozen=True)
class GapNote:
    """A span without readings, Unix s; it still goes on where there is no `until`."""

    since: float
    until: float | None
    reason: str


@dataclass(frozen=True, eq=False)  # each is one of its own: rows are arrays, which == does not tell apart
class ReadingBatch:
    """Rows that follow each other, and what was missing before the first or is missing after the last."""

    chassis: int
    slack: float  # s; what is missing for so long is a gap
    heading: ColumnLayout | None = None
    rows: Sequence[ReadingRow] = ()
    run: int = 0  # of rows that follow each other; a number that no other run has
    before: float | None = None  # when the row before the first was taken, where it belongs to the same run
    is_first: bool = False  # of its recorder: what the one before it left is looked at
    notes: Sequence[GapNote] = ()
    written: Future[None] = field(default_factory=Future)  # done once it is, or is given up

    @property
    def size(self) -> int:
        """How much memory its rows take, bytes."""
        return BATCH_OVERHEAD_BYTES + sum(row.counted.nbytes for row in self.rows)

    def done(self) -> None:
        """Tell whoever waits that no more happens to it."""
        if not self.written.done():
            self.written.set_result(None)


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """A parcel as it is stored."""

    parcel: ReadingBatch
    since: float
    until: float
    rows: int
    data: bytes
    no_numbers: int = 0
    negative_counts: int = 0

    @property
    def size(self) -> int:
        """How much memory it takes, bytes."""
        return BATCH_OVERHEAD_BYTES + len(self.data)

    @property
    def readings(self) -> int:
        """How many readings it has."""
        return self.rows * (len(self.parcel.heading.entries) if self.parcel.heading else 0)


def round_to_ms(at: float) -> float:
    """Return a time as it is stored: in whole ms."""
    return round(at * 1000) / 1000


def encode_batch(parcel: ReadingBatch) -> EncodedBatch:
    """Return a parcel as it is stored."""
    rows, heading = parcel.rows, parcel.heading
    if heading is None or not rows:
        since = min((note.since for note in parcel.notes), default=0.0)
        return EncodedBatch(parcel, since, since, 0, b"")
    readings = np.array([row.counted for row in rows])[:, heading.order].T
    kept = clean_readings(readings, heading.counters)
    times = np.rint(np.array([[one.at for one in rows], [max(one.measured_at, 0.0) for one in rows]]) * 1000)
    return EncodedBatch(
        parcel, round_to_ms(rows[0].at), round_to_ms(rows[-1].at), len(rows),
        encode(times.astype(np.int64), [kept.values]), kept.no_numbers, kept.negative_counts,
    )  # fmt: skip


MAX_RATE_SECONDS = 120.0  # a counter's rise over a longer time is no rate of the moment at its end
GAP_SECONDS = 5.0  # what is missing for so long is told as a gap
INTERVALS_KEPT = 8  # intervals


class SampleVerdict(Enum):
    """What becomes of a reading."""

    GOES_ON = "goes on"  # it follows on the one before
    BEGINS = "begins"  # it is good, and what was before it is too long ago
    SET_BACK = "set back"  # our clock was set back: it comes after the one before, and its time before
    REPEATED = "repeated"  # the one before came once more


@dataclass(frozen=True)
class CleanReadings:
    """Readings as they are kept, [series, rows], and how many were kept out."""

    values: Values
    no_numbers: int
    negative_counts: int


def clean_readings(readings: Values, counters: NDArray[np.bool_]) -> CleanReadings:
    """Return readings, [series, rows], without what is no number and without counters below zero."""
    good = np.isfinite(readings)
    no_numbers = readings.size - int(good.sum())
    below = readings[counters] < 0
    negative = int((below & good[counters]).sum())
    # To add zero makes 0.0 of -0.0.
    values = readings + 0.0
    if no_numbers:
        values[~good] = math.nan
    if negative:
        values[counters] = np.where(below, math.nan, values[counters])
    return CleanReadings(values, no_numbers, negative)


class SampleSequence:
    """How readings of one chassis follow each other, by our clock and by the BMC's."""

    def __init__(self, period: float) -> None:
        self._intervals: deque[float] = deque([period], INTERVALS_KEPT)
        self.last: Sample | None = None
        self.bmc_jumped = False  # at the newest reading
        self._set_limits(period)

    def _set_limits(self, interval: float) -> None:
        self._shortest = interval
        # How long nothing may come without being missed, and how long ago a reading may be for a rate since then, s.
        self.slack = max(GAP_SECONDS, 3 * interval)
        self.reach = max(MAX_RATE_SECONDS, 3 * interval)

    def judge(self, sample: Sample) -> SampleVerdict:
        """Return what becomes of the next reading."""
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


WORKER_DIED = "The worker that read this chassis ended before it had stored these seconds."
REASON_LENGTH = 300


def gap_add(chassis: int, since: float, until: float | None, reason: str) -> None:
    """Write down that something is missing."""
    Gap.objects.create(chassis=chassis, since=since, until=until, reason=reason[:REASON_LENGTH])


def gap_notes_record(parcel: ReadingBatch) -> None:
    """Write down what a recorder knows to be missing; what it told before is brought to its end."""
    for one in parcel.notes:
        going_on = Gap.objects.filter(chassis=parcel.chassis, until=None)
        if one.until is None:
            if not going_on.exists():
                gap_add(parcel.chassis, one.since, None, one.reason)
        elif (begun := going_on.order_by("pk").first()) is not None:
            _close_gap(begun, one.until, parcel.slack)
        elif one.until - one.since > parcel.slack:
            gap_add(parcel.chassis, one.since, one.until, one.reason)


def gap_from_takeover(first: EncodedBatch) -> None:
    """Look at what another recorder left, before the first rows of this one: what it told goes on no longer.

    What is missing without a word of it was lost with the other one.
    """
    chassis, slack = first.parcel.chassis, first.parcel.slack
    stored = Chunk.objects.filter(chassis=chassis, tier=Tier.RAW, since__lte=first.since).order_by("-since")
    last = stored.values_list("until", flat=True).first()
    if last is not None:
        told = Gap.objects.filter(chassis=chassis, since__gte=last - slack, since__lt=first.since).order_by("since")
        until = told.values_list("since", flat=True).first() or first.since
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
