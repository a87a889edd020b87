"""Collects the readings of one chassis for a minute and hands them to the writer.

What a death takes is what was not handed over: less than that. The next recorder of the chassis sees by the last
stored row that it is missing. An outage is told once it lasts, so that a death does not take the word of it along.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from concurrent.futures import Future
from datetime import UTC, datetime

from django.conf import settings

from telemetry.instrumentation import metrics
from telemetry.live.catalogue import ReadingContext, Sample
from telemetry.store.batches import (
    ColumnLayout,
    GapNote,
    ReadingBatch,
    ReadingRow,
    SampleSequence,
    SampleVerdict,
    round_to_ms,
)
from telemetry.store.writer import StoreWriter, process_writer

MAX_CHUNK_VALUES = 500_000  # of a chunk: where a report has very many readings, chunks are shorter
GAP_REPORT_SECONDS = 10.0
STALE_SECONDS = 60.0
CLOSE_SECONDS = 5.0
NOT_READ = "The site did not read this chassis."


class ReadingRecorder:
    """A tap (telemetry.live.catalogue) of one chassis."""

    def __init__(self, chassis_id: int, writer: StoreWriter | None = None) -> None:
        self._chassis = chassis_id
        self._writer = writer
        self._heading: ColumnLayout | None = None
        self._pace = SampleSequence(settings.CONFIG.reading_period)
        # Not all chassis hand over in the same second.
        self._shift = chassis_id * 37 % 60
        self._is_first = True
        self._rows: list[ReadingRow] = []
        self._run = 0
        self._before: float | None = None
        self._missing: GapNote | None = None  # what goes on, without readings
        self._missing_told = False
        self._notes: list[GapNote] = []

    def begin(self, told: ReadingContext) -> None:
        """Take note of what the readings are of."""
        self._hand_over_rows()
        self._heading = ColumnLayout(told.catalogue.entries)

    def take(self, sample: Sample) -> None:
        """Keep one reading."""
        last = self._pace.last
        slack = self._pace.slack
        verdict = self._pace.judge(sample)
        if self._pace.bmc_jumped:
            metrics.increment("bmc_clock_jumps", chassis=self._chassis)
        if verdict is SampleVerdict.REPEATED:
            metrics.increment("readings_repeated", len(sample.counted), chassis=self._chassis)
            if last is not None and sample.at - last.at > STALE_SECONDS:
                said = datetime.fromtimestamp(sample.measured_at, UTC) if 0 < sample.measured_at < 1e11 else None
                self._begin_gap(f"The BMC repeats one report{f', of {said:%H:%M:%S} UTC' if said else ''}.", sample.at)
            return
        if self._missing is not None:
            self._found(sample.at)
        elif last is not None and sample.at - last.at > slack:
            self._notes.append(GapNote(round_to_ms(last.at), round_to_ms(sample.at), "No readings came."))
        if verdict is SampleVerdict.SET_BACK:
            metrics.increment("clock_set_back", chassis=self._chassis)
        if verdict is not SampleVerdict.GOES_ON:
            self._hand_over_rows()
            self._run, self._before = secrets.randbits(31), None
        elif self._is_full(sample):
            self._hand_over_rows()
        self._rows.append(ReadingRow(sample.at, sample.measured_at, sample.counted))

    def lost(self, sentence: str) -> None:
        """Take note that the chassis does not answer."""
        self._hand_over_rows()
        self._begin_gap(sentence, time.time())

    async def close(self) -> None:
        """Hand over what is left, and wait until it is written; not for long, where that cannot be done."""
        last = self._pace.last
        if self._missing is not None:
            self._report_gap()
        elif last is not None:
            self._notes.append(GapNote(round_to_ms(last.at), None, NOT_READ))
        written = self._hand_over_rows(notes_too=True)
        if written is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(written)), CLOSE_SECONDS)

    def _is_full(self, sample: Sample) -> bool:
        if not self._rows:
            return False
        first = self._rows[0].at + self._shift
        span = settings.CONFIG.store_seconds
        ends = first // span * span + span
        return sample.at + self._shift >= ends or (len(self._rows) + 1) * len(sample.counted) > MAX_CHUNK_VALUES

    def _begin_gap(self, reason: str, now: float) -> None:
        if self._missing is None:
            last = self._pace.last
            self._missing = GapNote(round_to_ms(last.at if last is not None and last.at <= now else now), None, reason)
        if not self._missing_told and now - self._missing.since > GAP_REPORT_SECONDS:
            self._report_gap()

    def _report_gap(self) -> None:
        if self._missing is not None and not self._missing_told:
            self._missing_told = True
            self._notes.append(self._missing)
            self._hand_over_rows(notes_too=True)

    def _found(self, at: float) -> None:
        self._hand_over_rows()
        if self._missing is not None:
            self._notes.append(GapNote(self._missing.since, round_to_ms(at), self._missing.reason))
            self._missing, self._missing_told = None, False
            self._hand_over_rows(notes_too=True)

    def _hand_over_rows(self, *, notes_too: bool = False) -> Future[None] | None:
        """Hand the rows so far to the writer, with notes of what was missing before them."""
        if not self._rows and not notes_too:
            return None
        parcel = ReadingBatch(
            self._chassis, self._pace.slack, self._heading, tuple(self._rows), self._run, self._before,
            is_first=self._is_first and bool(self._rows), notes=tuple(self._notes),
        )  # fmt: skip
        self._is_first = self._is_first and not self._rows
        if self._rows:
            self._before = round_to_ms(self._rows[-1].at)
        self._rows, self._notes = [], []
        (self._writer or process_writer()).put(parcel)
        return parcel.written
