"""The thread of a process that writes batches of many chassis in one transaction.

While the database refuses writes, encoded batches are kept in memory up to a limit; beyond it the oldest is dropped,
counted and recorded as a gap. No caller waits for the database, and the thread resumes by itself.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from django.conf import settings
from django.db import DatabaseError, DataError, IntegrityError, connections, transaction

from telemetry.instrumentation import metrics
from telemetry.store import batches
from telemetry.store.batches import ColumnLayout, EncodedBatch, ReadingBatch, encode_batches, round_to_ms
from telemetry.store.chunks import (
    INSERT_CHUNK,
    INSERT_DUE,
    StoredValue,
    catalogue_get_or_create,
    clear_caches,
    rows_change,
)
from telemetry.store.rules import ROLLUPS, TIER_SHAPES, Tier, window_start

logger = logging.getLogger(__name__)

GATHER_SECONDS = 1.0  # batches of this time are written in one transaction
MAX_BATCHES_PER_ENCODING = 8  # more take no less time each: they leave the cache of the processor
MAX_BATCHES_PER_COMMIT = 256
INBOX_BYTES = 256 * 2**20
BACKLOG_BYTES = 64 * 2**20
MAX_SPANS = 50  # of a chassis; beyond it the last one is extended
RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0)
STOP_SECONDS = 4.0
# Errors of a database that will recover are DatabaseError without these; all others are of the data, and a retry does
# not mend them.
DATA_ERRORS = (DataError, IntegrityError)


class DroppedSpans:
    """Spans of dropped readings by chassis; consecutive batches are one span."""

    def __init__(self) -> None:
        self._spans: dict[int, list[tuple[float, float]]] = {}

    def add(self, batch: ReadingBatch) -> None:
        since, until = round_to_ms(batch.rows[0].at), round_to_ms(batch.rows[-1].at)
        spans = self._spans.setdefault(batch.chassis, [])
        if spans and (spans[-1][1] == batch.before or len(spans) >= MAX_SPANS):
            since, until = min(spans[-1][0], since), max(spans.pop()[1], until)
        spans.append((since, until))

    def __iter__(self) -> Iterator[tuple[int, float, float]]:
        """Yield chassis, since and until."""
        return iter([(chassis, *span) for chassis, spans in self._spans.items() for span in spans])

    def prepend(self, earlier: DroppedSpans) -> None:
        for chassis, spans in earlier._spans.items():
            self._spans[chassis] = [*spans, *self._spans.get(chassis, [])]


class StoreWriter:
    """Writes batches in a thread that starts with the first and ends with `stop`; limits are in bytes."""

    def __init__(
        self, *, gather: float = GATHER_SECONDS, inbox: int = INBOX_BYTES, backlog: int = BACKLOG_BYTES
    ) -> None:
        self._gather, self._most_inbox, self._most_backlog = gather, inbox, backlog
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop_by: float | None = None  # monotonic s
        self._inbox: deque[ReadingBatch] = deque()
        self._inbox_size = 0
        self._dropped = DroppedSpans()
        # The attributes below are used by the thread alone.
        self._backlog: deque[EncodedBatch] = deque()
        self._backlog_size = 0
        self._takeovers: set[int] = set()
        self._failures = 0
        self._retry_at = 0.0
        self._last_error = ""

    def put(self, batch: ReadingBatch) -> None:
        """Queue a batch without waiting; thread-safe."""
        with self._changed:
            self._inbox.append(batch)
            self._inbox_size += batch.size
            while self._inbox_size > self._most_inbox and len(self._inbox) > 1:
                oldest = self._inbox.popleft()
                self._inbox_size -= oldest.size
                self._drop(oldest)
            if self._thread is None:
                self._stop_by = None
                self._thread = threading.Thread(target=self._run, name="store", daemon=True)
                self._thread.start()
            self._changed.notify()

    @property
    def queue(self) -> int:
        """Number of chunks that wait to be stored."""
        return len(self._inbox) + len(self._backlog)

    @property
    def lag(self) -> float:
        """How long the oldest readings have waited to be stored, s; 0 where none wait."""
        try:
            oldest = self._backlog[0].batch if self._backlog else self._inbox[0]
            return max(0.0, time.time() - oldest.rows[-1].at)
        except IndexError:  # nothing waits, or no more
            return 0.0

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Write the queued batches within `seconds`, and end the thread."""
        with self._changed:
            thread, self._stop_by = self._thread, time.monotonic() + seconds
            self._changed.notify()
        if thread is not None:
            thread.join(seconds + 1.0)

    def _run(self) -> None:
        try:
            while not self._is_over():
                arrived = self._wait_for_batches()
                for begin in range(0, len(arrived), MAX_BATCHES_PER_ENCODING):
                    self._encode(arrived[begin : begin + MAX_BATCHES_PER_ENCODING])
                if self._backlog and time.monotonic() >= self._retry_at:
                    self._write()
        except Exception:
            logger.exception("the thread that stores readings ended; the next readings start a new one")
        finally:
            connections.close_all()
            with self._changed:
                self._thread = None

    def _is_over(self) -> bool:
        with self._changed:
            is_empty = not (self._inbox or self._backlog)
            return self._stop_by is not None and (is_empty or time.monotonic() >= self._stop_by)

    def _wait_for_batches(self) -> list[ReadingBatch]:
        """Return the queued batches, gathered for `gather` seconds; returns early when a retry is due."""
        with self._changed:
            wait = max(0.0, self._retry_at - time.monotonic()) if self._backlog else None
            self._changed.wait_for(lambda: self._inbox or self._stop_by is not None, wait)
            if self._inbox:
                self._changed.wait_for(lambda: self._stop_by is not None, self._gather)
            if self._stop_by is not None and not self._inbox and self._backlog:
                # Only retries are left: wait for the next one.
                self._changed.wait(max(0.0, min(self._retry_at, self._stop_by) - time.monotonic()))
            arrived = list(self._inbox)
            self._inbox.clear()
            self._inbox_size = 0
        return arrived

    def _encode(self, some: Sequence[ReadingBatch]) -> None:
        try:
            encoded = encode_batches(some)
        except Exception:
            if len(some) > 1:
                # One of them may be invalid: it must not cost the others theirs.
                for batch in some:
                    self._encode([batch])
                return
            logger.exception("readings of chassis %s could not be packed", some[0].chassis)
            self._drop(some[0])
            return
        for one in encoded:
            self._backlog.append(one)
            self._backlog_size += one.size
            if one.batch.is_first:
                self._takeovers.add(one.batch.chassis)
            while self._backlog_size > self._most_backlog and len(self._backlog) > 1:
                self._drop(self._take().batch)

    def _take(self) -> EncodedBatch:
        one = self._backlog.popleft()
        self._backlog_size -= one.size
        return one

    def _drop(self, batch: ReadingBatch) -> None:
        readings = sum(len(row.counted) for row in batch.rows)
        metrics.increment("readings_dropped_store_full", readings, chassis=batch.chassis)
        if batch.rows:
            with self._changed:
                self._dropped.add(batch)
        batch.done()

    def _write(self) -> None:
        """Write the oldest batches of the backlog, and remove them once they are committed."""
        encoded = list(islice(self._backlog, MAX_BATCHES_PER_COMMIT))
        try:
            try:
                self._commit(encoded)
            except Exception as error:
                if _is_outage(error):
                    raise
                # One of them may be invalid: it must not block the others.
                clear_caches()
                self._commit_singly(encoded)
        except DatabaseError as error:
            self._record_failure(error)
            return
        for _ in encoded:
            self._take().batch.done()
        if self._failures:
            logger.warning("readings are stored again")
        self._failures, self._last_error = 0, ""

    def _commit_singly(self, encoded: Sequence[EncodedBatch]) -> None:
        for one in encoded:
            try:
                self._commit([one])
            except Exception as error:
                if _is_outage(error):
                    raise
                logger.exception("readings of chassis %s cannot be stored", one.batch.chassis)
                self._drop(one.batch)

    def _record_failure(self, error: Exception) -> None:
        connections[settings.READINGS_DATABASE].close()
        clear_caches()
        metrics.increment("store_write_failures")
        if not self._failures:
            logger.warning("readings are kept in memory, since they cannot be stored: %s", error)
        self._last_error = " ".join(str(error).split())
        self._retry_at = time.monotonic() + RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)]
        self._failures += 1

    def _commit(self, encoded: Sequence[EncodedBatch]) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, DroppedSpans()
        try:
            oldest = time.time() - settings.KEEP_SECONDS[Tier.RAW]
            stored = [one for one in encoded if one.rows and one.since >= oldest]
            rows = [_chunk_values(one, one.batch.layout) for one in stored if one.batch.layout is not None]
            taken_over = {one.batch.chassis for one in stored} & self._takeovers
            with transaction.atomic(using=settings.READINGS_DATABASE):
                for one in encoded:
                    if one.rows and one.batch.chassis in taken_over:
                        taken_over.discard(one.batch.chassis)
                        batches.gap_from_takeover(one)
                    batches.gaps_record(one.batch)
                reason = f"The store could not write: {self._last_error or 'it was too slow'}."
                for chassis, since, until in dropped:
                    batches.gap_add(chassis, since, until, reason)
                rows_change(INSERT_CHUNK, rows)
                rows_change(INSERT_DUE, [due for one in stored for due in _rollups_due(one)])
        except BaseException:
            with self._changed:
                self._dropped.prepend(dropped)
            raise
        for one in stored:
            self._takeovers.discard(one.batch.chassis)
            _count_stored(one)
        for one in encoded:
            if one not in stored:
                metrics.increment("readings_too_late", one.readings, chassis=one.batch.chassis)


def _is_outage(error: Exception) -> bool:
    return isinstance(error, DatabaseError) and not isinstance(error, DATA_ERRORS)


def _chunk_values(one: EncodedBatch, layout: ColumnLayout) -> tuple[StoredValue, ...]:
    chassis = one.batch.chassis
    catalogue = catalogue_get_or_create(chassis, layout.entries, layout.digest)
    return (
        chassis, Tier.RAW.value, catalogue, one.since, one.until, one.batch.before,
        one.batch.run, one.rows, len(one.data), one.data,
    )  # fmt: skip


def _rollups_due(one: EncodedBatch) -> Iterator[tuple[StoredValue, ...]]:
    """Yield the rollups that become due: a span in each window."""
    tier = ROLLUPS[0]
    begin, end = round(one.since * 1000), round(one.until * 1000) + 1
    while begin < end:
        window_ends = min(end, window_start(tier, begin) + TIER_SHAPES[tier].window)
        yield one.batch.chassis, tier.value, begin / 1000, window_ends / 1000
        begin = window_ends


def _count_stored(one: EncodedBatch) -> None:
    chassis = one.batch.chassis
    metrics.increment("readings_stored", one.readings - one.no_numbers - one.negative_counts, chassis=chassis)
    metrics.increment("readings_not_a_number", one.no_numbers, chassis=chassis)
    metrics.increment("readings_negative_counter", one.negative_counts, chassis=chassis)


_lock = threading.Lock()
_writer: StoreWriter | None = None


def process_writer() -> StoreWriter:
    global _writer  # noqa: PLW0603 - one a process is the point
    with _lock:
        if _writer is None:
            _writer = writer = StoreWriter(backlog=round(settings.CONFIG.store_memory * 2**20))
            # The exit of the process waits for the queued batches; the thread runs until then.
            atexit.register(writer.stop)
            metrics.register_gauge("store_queue", lambda: writer.queue)
            metrics.register_gauge("store_lag_seconds", lambda: round(writer.lag, 1))
        return _writer
