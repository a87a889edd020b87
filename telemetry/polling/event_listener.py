"""Receives the events of one chassis from its stream and log: none missed, none twice.

The stream is opened first, then the log is read from its last position, then both continue: events of the meantime are
in both, and matched by content (telemetry.events.rules). The log is also read every CHECK_SECONDS while the stream is
open, since a BMC may drop events for a slow reader, and polled where there is no stream. Positions are stored in the
database together with the events, so that the next listener continues from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from core.threads import run_in_thread, running
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError, Malformed
from fabric.bmc.events import (
    MAX_LOG_ENTRIES,
    LogServiceInfo,
    RedfishEvent,
    find_event_stream,
    read_log,
    read_log_service_info,
    stream_events,
)
from fabric.bmc.types import Inventory
from fabric.inventory.progress import event_limit_record
from fabric.inventory.selectors import ReadingOwner, reading_owners
from telemetry.events import ingestion
from telemetry.instrumentation import metrics

logger = logging.getLogger(__name__)

STREAM_PAUSE = 15.0
RECONNECT_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, STREAM_PAUSE)  # s between attempts to open a lost stream
DATABASE_RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0)
CHECK_SECONDS = 300.0  # interval of reading the log while the stream is open
HURRY_SECONDS = 5.0  # the same where the stream may have missed events
MAX_DOUBLINGS = 6  # of the pause after what cannot be read
LOG_PAUSE_SHARE = 4  # the pause after a log was read, by the time that it took
FRESH_SECONDS = 30.0  # for this time after it was opened, a stream may repeat older events
EVENTS_PER_TRANSACTION = 500
BURST_EVENTS = 100  # events in the queue: BMCs may drop the end of a burst, which no gap of numbers reveals
MAX_WAITING_EVENTS = 5000  # events in memory while the database is unreachable: the log has the others


@dataclass
class _EventQueue:
    """Events of the stream that are not stored yet, and whether some were dropped."""

    events: deque[RedfishEvent] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    has_gap: bool = False
    has_burst: bool = False
    last: int | None = None  # number of the newest
    reported: set[str] = field(default_factory=set)  # keys of the events that were stored

    @property
    def pause(self) -> float:
        """The interval of reading the log, s."""
        return HURRY_SECONDS if self.has_gap or self.has_burst else CHECK_SECONDS

    async def put(self, event: RedfishEvent, *, can_wait: bool) -> None:
        """Queue an event. A full queue drops it, if a log has it; else the stream has to wait."""
        number = int(event.event_id) if event.event_id.isdecimal() and len(event.event_id) < 19 else None
        if number is not None and self.last is not None and number > self.last + 1:
            self.has_gap = True
        self.last = number if number is not None else self.last
        if len(self.events) >= MAX_WAITING_EVENTS:
            if not can_wait:
                self.has_gap = True
                self.news.set()
                return
            self.room.clear()
            await self.room.wait()
        self.events.append(event)
        self.has_burst = self.has_burst or len(self.events) >= BURST_EVENTS
        self.news.set()


@dataclass
class EventListener:
    """Stores the events of a chassis; each triggers a refresh of the inventory.

    `on_event` is called for each event on arrival, before the refresh: those of the stream, and new ones of a log.
    """

    chassis_id: int
    bmc: BmcClient
    inventory: Inventory
    refresh_requested: asyncio.Event
    on_event: Callable[[RedfishEvent], None] = lambda _event: None

    def __post_init__(self) -> None:
        self._stream = self.inventory.service.event_stream_uri
        self._logs = [one.uri for one in self.inventory.log_services if one.entries_uri]
        self._owners: dict[str, ReadingOwner] | None = None
        self._ahead: timedelta | None = None
        self._log_limit = ""
        self._uninterrupted = False  # the stream was open without interruption since the logs were read

    async def run(self) -> None:
        """Read the stream, or poll the logs, until cancelled."""
        tries = failures = 0
        searched_at = time.monotonic()
        while True:
            begun, limit = time.monotonic(), ""
            try:
                if not self._stream and begun - searched_at > CHECK_SECONDS:
                    # A BMC that is starting, or was reconfigured, may provide a stream now.
                    searched_at = begun
                    self._stream = await find_event_stream(self.bmc)
                if self._stream:
                    await self._follow_stream()
                else:
                    await self._catch_up()
            except BmcError as error:
                limit = error.sentence if isinstance(error, Malformed) else ""
                logger.debug("events of chassis %s: %s", self.chassis_id, error.sentence)
            except Exception:
                logger.exception("events of chassis %s", self.chassis_id)
            self._uninterrupted, limit = False, limit or self._log_limit
            if limit or failures:
                await self._record_limit(limit)
            failures = failures + 1 if limit else 0
            took = time.monotonic() - begun
            if limit or not self._stream:
                # A log without end, or a stream of nonsense, is read ever more rarely: its reading is work.
                longer = settings.CONFIG.inventory_period * 2 ** min(failures, MAX_DOUBLINGS)
                await asyncio.sleep(max(longer, 0.0 if self._stream else took * LOG_PAUSE_SHARE))
                continue
            tries = 0 if took > STREAM_PAUSE else tries + 1
            await asyncio.sleep(RECONNECT_DELAYS[min(tries, len(RECONNECT_DELAYS) - 1)])

    async def _follow_stream(self) -> None:
        """Store the events of the stream until it is lost; raises BmcError then."""
        waiting, opened = _EventQueue(), asyncio.Event()
        last_id = await self._write_with_retry(ingestion.stream_position, self.chassis_id, self._stream)
        try:
            async with running(self._read_stream(waiting, opened, last_id)) as reading:
                await _wait_first(opened, reading)
                opened_at = time.monotonic()
                checked_at = await self._check_logs(waiting)
                while not reading.done() or waiting.events:
                    waiting.news.clear()
                    if not waiting.events:
                        until_check = max(0.0, checked_at + waiting.pause - time.monotonic())
                        await _wait_first(waiting.news, reading, until_check)
                    await self._store_events(waiting, live=time.monotonic() > opened_at + FRESH_SECONDS)
                    if time.monotonic() >= checked_at + waiting.pause:
                        checked_at = await self._check_logs(waiting)
                await reading  # raises the reason of its end
        except BmcError:
            if not opened.is_set():
                # A BMC that opens no stream still has a log.
                await self._catch_up()
            raise

    async def _read_stream(self, waiting: _EventQueue, opened: asyncio.Event, last_id: str) -> None:
        stream = stream_events(self.bmc, self._stream, last_event_id=last_id, opened=opened.set)
        async for event in stream:
            self.on_event(event)
            self.refresh_requested.set()
            await waiting.put(event, can_wait=not self._logs)

    async def _check_logs(self, waiting: _EventQueue) -> float:
        """Read the logs; returns the time (monotonic s) after that."""
        self._uninterrupted = self._uninterrupted and not waiting.has_gap
        waiting.has_gap = waiting.has_burst = False
        await self._catch_up()
        self._uninterrupted = not waiting.has_gap
        return time.monotonic()

    async def _store_events(self, waiting: _EventQueue, *, live: bool) -> None:
        """Store the queued events, which stay in memory until they are in the database."""
        while waiting.events:
            batch = list(islice(waiting.events, EVENTS_PER_TRANSACTION))
            await self._write_with_retry(
                ingestion.stream_records_ingest,
                chassis_id=self.chassis_id,
                stream_uri=self._stream,
                records=batch,
                owners=await self._reading_owners(),
                ahead=self._ahead,
                live=live,
                reported=waiting.reported,
            )
            for _ in batch:
                waiting.events.popleft()
            waiting.room.set()

    async def _catch_up(self) -> None:
        """Read the logs from their positions. An unreadable log does not prevent reading the others."""
        failure: BmcError | None = None
        for uri in self._logs:
            try:
                facts = await read_log_service_info(self.bmc, uri)
                if facts.ahead is not None:
                    self._ahead = facts.ahead
                if facts.has_events and facts.entries_uri:
                    await self._read_log_entries(facts)
            except BmcError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _read_log_entries(self, facts: LogServiceInfo) -> None:
        mark = await self._write_with_retry(ingestion.log_position, self.chassis_id, facts.entries_uri)
        reading = await read_log(self.bmc, facts.entries_uri, after=mark)
        self._log_limit = f"A log has more than {MAX_LOG_ENTRIES} entries; the last are read." if reading.cut else ""
        if self._log_limit:
            await self._record_limit(self._log_limit)
        if mark is not None and not reading.events and reading.newest == mark:
            return
        new = known = 0
        # A whole log has each event as often as it happened, whatever its numbers.
        reported: set[str] | None = None if mark is not None and reading.continuous else set()
        for start in range(0, len(reading.events), EVENTS_PER_TRANSACTION):
            batch = reading.events[start : start + EVENTS_PER_TRANSACTION]
            # A listener that ends right after its first reading leaves a position too: without it, what is overwritten
            # before the next reading would be no gap.
            is_first = mark is None and start + EVENTS_PER_TRANSACTION >= len(reading.events)
            result: ingestion.IngestResult = await self._write_with_retry(
                ingestion.log_records_ingest,
                chassis_id=self.chassis_id,
                records=batch,
                owners=await self._reading_owners(),
                ahead=self._ahead if facts.ahead is None else facts.ahead,
                position=(facts.entries_uri, reading.newest) if is_first else None,
                reported=reported,
            )
            new, known = new + result.new, known + result.known
            if mark is not None and result.new:
                for event in batch:
                    self.on_event(event)
        gap = None
        if mark is not None:
            metrics.increment("events_backfilled", new, chassis=self.chassis_id)
            gap = ingestion.find_log_gap(mark, reading, known=known, stream_was_open=self._uninterrupted)
        if gap is not None:
            logger.warning("chassis %s: %s", self.chassis_id, gap.sentence)
            metrics.increment("event_gaps", chassis=self.chassis_id)
        if new:
            self.refresh_requested.set()
        # Last: after a crash before it, the log is read again, and stored events are detected.
        await self._write_with_retry(
            ingestion.log_position_move,
            chassis_id=self.chassis_id,
            entries_uri=facts.entries_uri,
            newest=reading.newest,
            gap=gap,
        )

    async def _record_limit(self, sentence: str) -> None:
        await self._write_with_retry(event_limit_record, chassis_id=self.chassis_id, sentence=sentence)

    async def _reading_owners(self) -> dict[str, ReadingOwner]:
        if self._owners is None:
            self._owners = await self._write_with_retry(reading_owners, self.chassis_id, self.inventory)
        return self._owners

    async def _write_with_retry(self, work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Call `work`, with retries while the database is unreachable: events stay in memory meanwhile."""
        tries = 0
        while True:
            try:
                return await run_in_thread(work, *arguments, **more)
            except DatabaseError as error:
                if tries == 0:
                    logger.warning("events of chassis %s wait for the database: %s", self.chassis_id, error)
                await asyncio.sleep(DATABASE_RETRY_DELAYS[min(tries, len(DATABASE_RETRY_DELAYS) - 1)])
                tries += 1


async def _wait_first(event: asyncio.Event, task: asyncio.Task[None], seconds: float | None = None) -> None:
    """Wait at most `seconds` for an event, or the end of a task; raises the task's error where it ended first."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done() and not event.is_set():
        task.result()
