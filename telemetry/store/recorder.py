"""Collects the readings of one chassis for a minute and passes them to the writer.

A crash loses less than that minute. The next recorder of the chassis detects the loss by the last stored row. An outage
is reported while it continues, so that a crash does not lose its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from concurrent.futures import Future
from datetime import UTC, datetime

from django.conf import settings

from core.language import gettext_noop
from telemetry.instrumentation import metrics
from telemetry.live.catalogue import ReadingContext, Sample
from telemetry.store.batches import (
    ColumnLayout,
    ReadingBatch,
    ReadingRow,
    RecordedGap,
    SampleSequence,
    SampleVerdict,
    round_to_ms,
)
from telemetry.store.writer import StoreWriter, process_writer

MAX_CHUNK_VALUES = 500_000  # chunks of reports with very many readings are shorter
GAP_REPORT_SECONDS = 10.0
STALE_SECONDS = 60.0
CLOSE_SECONDS = 5.0
NOT_READ = gettext_noop("The site did not read this chassis.")


class ReadingRecorder:
    """Records the readings of one chassis (see telemetry.live.catalogue.ReadingSubscriber)."""

    def __init__(self, chassis_id: int, writer: StoreWriter | None = None) -> None:
        self._chassis = chassis_id
        self._writer = writer
        self._layout: ColumnLayout | None = None
        self._sequence = SampleSequence(settings.CONFIG.reading_period)
        # Spreads the writes of all chassis over the minute.
        self._offset = chassis_id * 37 % 60
        self._is_first = True
        self._rows: list[ReadingRow] = []
        self._ends, self._most_rows = 0.0, 0  # of the rows: when the next batch begins, Unix s, and how many fit
        self._run = 0
        self._before: float | None = None
        self._open_gap: RecordedGap | None = None
        self._gap_reported = False
        self._gaps: list[RecordedGap] = []

    def begin(self, context: ReadingContext) -> None:
        self._submit_rows()
        self._layout = ColumnLayout(context.catalogue.entries)

    def take(self, sample: Sample) -> None:
        last = self._sequence.last
        slack = self._sequence.slack
        verdict = self._sequence.judge(sample)
        if self._sequence.bmc_jumped:
            metrics.increment("bmc_clock_jumps", chassis=self._chassis)
        if verdict is SampleVerdict.REPEATED:
            metrics.increment("readings_repeated", len(sample.counted), chassis=self._chassis)
            if last is not None and sample.at - last.at > STALE_SECONDS:
                at = datetime.fromtimestamp(sample.measured_at, UTC) if 0 < sample.measured_at < 1e11 else None
                self._begin_gap(f"The BMC repeats one report{f', of {at:%H:%M:%S} UTC' if at else ''}.", sample.at)
            return
        if self._open_gap is not None:
            self._end_gap(sample.at)
        elif last is not None and sample.at - last.at > slack:
            reason = gettext_noop("There were no readings.")
            self._gaps.append(RecordedGap(round_to_ms(last.at), round_to_ms(sample.at), reason))
        if verdict is SampleVerdict.SET_BACK:
            metrics.increment("clock_set_back", chassis=self._chassis)
        if verdict is not SampleVerdict.GOES_ON:
            self._submit_rows()
            self._run, self._before = secrets.randbits(31), None
        elif sample.at >= self._ends or len(self._rows) >= self._most_rows:
            self._submit_rows()
        if not self._rows:
            self._set_limits(sample)
        self._rows.append(ReadingRow(sample.at, sample.measured_at, sample.counted))

    def lost(self, sentence: str) -> None:
        self._submit_rows()
        self._begin_gap(sentence, time.time())

    async def close(self) -> None:
        """Pass the remaining rows to the writer, and wait CLOSE_SECONDS at most until they are written."""
        last = self._sequence.last
        if self._open_gap is not None:
            self._report_gap()
        elif last is not None:
            self._gaps.append(RecordedGap(round_to_ms(last.at), None, NOT_READ))
        written = self._submit_rows(with_gaps=True)
        if written is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(written)), CLOSE_SECONDS)

    def _set_limits(self, first: Sample) -> None:
        """Set where the batch that begins with a reading ends."""
        span = settings.CONFIG.store_seconds
        self._ends = (first.at + self._offset) // span * span + span - self._offset
        self._most_rows = max(1, MAX_CHUNK_VALUES // max(1, len(first.counted)))

    def _begin_gap(self, reason: str, now: float) -> None:
        if self._open_gap is None:
            last = self._sequence.last
            self._open_gap = RecordedGap(
                round_to_ms(last.at if last is not None and last.at <= now else now), None, reason
            )
        if not self._gap_reported and now - self._open_gap.since > GAP_REPORT_SECONDS:
            self._report_gap()

    def _report_gap(self) -> None:
        if self._open_gap is not None and not self._gap_reported:
            self._gap_reported = True
            self._gaps.append(self._open_gap)
            self._submit_rows(with_gaps=True)

    def _end_gap(self, at: float) -> None:
        self._submit_rows()
        if self._open_gap is not None:
            self._gaps.append(RecordedGap(self._open_gap.since, round_to_ms(at), self._open_gap.reason))
            self._open_gap, self._gap_reported = None, False
            self._submit_rows(with_gaps=True)

    def _submit_rows(self, *, with_gaps: bool = False) -> Future[None] | None:
        """Pass the collected rows to the writer, with the gaps before them."""
        if not self._rows and not with_gaps:
            return None
        batch = ReadingBatch(
            self._chassis, self._sequence.slack, self._layout, tuple(self._rows), self._run, self._before,
            is_first=self._is_first and bool(self._rows), gaps=tuple(self._gaps),
        )  # fmt: skip
        self._is_first = self._is_first and not self._rows
        if self._rows:
            self._before = round_to_ms(self._rows[-1].at)
        self._rows, self._gaps = [], []
        (self._writer or process_writer()).put(batch)
        return batch.written
