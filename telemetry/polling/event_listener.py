"""Receives the events of one chassis from its stream and log: none missed, none twice.

The stream is opened first, then the log is read from where it was read last, then both go on together: what happens
meanwhile is in both, and known by what it says (telemetry.events.rules). The log is also asked now and then while
the stream is open, since a BMC may drop what a slow reader does not take, and all the time where there is no stream.
Positions stand in the database and move with what was written, so that whoever comes next begins where this one ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError
from fabric.bmc.events import LogServiceInfo, find_event_stream, read_log, read_log_service_info, stream_events
from fabric.bmc.types import Inventory, RedfishEvent
from fabric.inventory.selectors import ReadingOwner, reading_owners
from telemetry.events import ingestion
from telemetry.events.ingestion import (
    IngestResult,
    log_position,
    log_position_move,
    log_records_ingest,
    stream_position,
    stream_records_ingest,
)
from telemetry.instrumentation import metrics

logger = logging.getLogger(__name__)

STREAM_PAUSE = 15.0
RECONNECT_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, STREAM_PAUSE)  # s between tries to open a stream that was lost
DATABASE_RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0)
CHECK_SECONDS = 300.0  # between looks into the log while the stream is open
HURRY_SECONDS = 5.0  # the same where the stream seems to have left something out, or may have
FRESH_SECONDS = 30.0  # for so long after it was opened a stream may tell of what was before
EVENTS_PER_TRANSACTION = 500  # events of one transaction
BURST_EVENTS = 100  # events that wait at once: BMCs drop the end of many, and no later number tells of that
MAX_WAITING_EVENTS = 5000  # events in memory while the database is away: the log has the others


async def listen_to_events(
    chassis_id: int,
    bmc: BmcClient,
    inventory: Inventory,
    disturbed: asyncio.Event,
    hear: Callable[[RedfishEvent], None] = lambda _event: None,
) -> None:
    """Keep the events of a chassis until cancelled, and let them bring the next refresh forward.

    `hear` is told each event as it comes, before the refresh: those of the stream, and those that a log had beside it.
    """
    await _EventListener(chassis_id, bmc, inventory, disturbed, hear).run()


@dataclass
class _EventQueue:
    """What the stream told and the database does not have yet, and whether something of it had to be dropped."""

    events: deque[RedfishEvent] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    has_gap: bool = False
    has_burst: bool = False
    last: int | None = None  # number of the newest

    @property
    def pause(self) -> float:
        """The seconds from one look into the log to the next."""
        return HURRY_SECONDS if self.has_gap or self.has_burst else CHECK_SECONDS

    async def put(self, event: RedfishEvent, *, can_wait: bool) -> None:
        """Take an event. Without room it is dropped, if a log has it; else the BMC has to wait."""
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


class _EventListener:
    def __init__(
        self,
        chassis_id: int,
        bmc: BmcClient,
        inventory: Inventory,
        disturbed: asyncio.Event,
        hear: Callable[[RedfishEvent], None],
    ) -> None:
        self._chassis = chassis_id
        self._hears = hear
        self._bmc = bmc
        self._inventory = inventory
        self._disturbed = disturbed
        self._stream = inventory.service.event_stream_uri
        self._logs = [one.uri for one in inventory.log_services if one.entries_uri]
        self._owners: dict[str, ReadingOwner] | None = None
        self._ahead: timedelta | None = None
        self._heard = False  # the stream was open without a break since the logs were read

    async def run(self) -> None:
        """Listen, or look, until cancelled."""
        tries = 0
        asked_at = time.monotonic()
        while True:
            begun = time.monotonic()
            try:
                if not self._stream and begun - asked_at > CHECK_SECONDS:
                    # One that is starting, or was told to, may offer a stream by now.
                    asked_at = begun
                    self._stream = await find_event_stream(self._bmc)
                if self._stream:
                    await self._hear()
                else:
                    await self._catch_up()
            except BmcError as error:
                logger.debug("events of chassis %s: %s", self._chassis, error.sentence)
            except Exception:
                logger.exception("events of chassis %s", self._chassis)
            self._heard = False
            if not self._stream:
                await asyncio.sleep(settings.CONFIG.inventory_period)
                continue
            tries = 0 if time.monotonic() - begun > STREAM_PAUSE else tries + 1
            await asyncio.sleep(RECONNECT_DELAYS[min(tries, len(RECONNECT_DELAYS) - 1)])

    async def _hear(self) -> None:
        """Keep what the stream tells until it is lost; raises BmcError then."""
        waiting, opened = _EventQueue(), asyncio.Event()
        last_id = await self._write_with_retry(stream_position, self._chassis, self._stream)
        reading = asyncio.create_task(self._take(waiting, opened, last_id))
        try:
            await _wait_first(opened, reading)
            opened_at = time.monotonic()
            checked_at = await self._check_logs(waiting)
            while not reading.done() or waiting.events:
                waiting.news.clear()
                if not waiting.events:
                    await _wait_first(waiting.news, reading, max(0.0, checked_at + waiting.pause - time.monotonic()))
                await self._keep(waiting, live=time.monotonic() > opened_at + FRESH_SECONDS)
                if time.monotonic() >= checked_at + waiting.pause:
                    checked_at = await self._check_logs(waiting)
            await reading  # says why it ended
        except BmcError:
            if not opened.is_set():
                # A BMC that opens no stream, for now or for us, has a log all the same.
                await self._catch_up()
            raise
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _take(self, waiting: _EventQueue, opened: asyncio.Event, last_id: str) -> None:
        stream = stream_events(self._bmc, self._stream, last_event_id=last_id, opened=opened.set)
        async for event in stream:
            self._hears(event)
            self._disturbed.set()
            await waiting.put(event, can_wait=not self._logs)

    async def _check_logs(self, waiting: _EventQueue) -> float:
        """Look into the logs; return when that was."""
        self._heard = self._heard and not waiting.has_gap
        waiting.has_gap = waiting.has_burst = False
        await self._catch_up()
        self._heard = not waiting.has_gap
        return time.monotonic()

    async def _keep(self, waiting: _EventQueue, *, live: bool) -> None:
        """Write what waits. It stays in memory until it is in the database."""
        while waiting.events:
            batch = [waiting.events[index] for index in range(min(EVENTS_PER_TRANSACTION, len(waiting.events)))]
            await self._write_with_retry(
                stream_records_ingest,
                chassis_id=self._chassis,
                stream_uri=self._stream,
                records=batch,
                owners=await self._reading_owners(),
                ahead=self._ahead,
                live=live,
            )
            for _ in batch:
                waiting.events.popleft()
            waiting.room.set()

    async def _catch_up(self) -> None:
        """Read what the logs have behind their positions. One that cannot be read does not keep the others from it."""
        failure: BmcError | None = None
        for uri in self._logs:
            try:
                facts = await read_log_service_info(self._bmc, uri)
                if facts.ahead is not None:
                    self._ahead = facts.ahead
                if facts.has_events and facts.entries_uri:
                    await self._read(facts)
            except BmcError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _read(self, facts: LogServiceInfo) -> None:
        mark = await self._write_with_retry(log_position, self._chassis, facts.entries_uri)
        reading = await read_log(self._bmc, facts.entries_uri, after=mark)
        if mark is not None and not reading.events and reading.newest == mark:
            return
        new = known = 0
        for start in range(0, len(reading.events), EVENTS_PER_TRANSACTION):
            kept: IngestResult = await self._write_with_retry(
                log_records_ingest,
                chassis_id=self._chassis,
                records=reading.events[start : start + EVENTS_PER_TRANSACTION],
                owners=await self._reading_owners(),
                ahead=self._ahead if facts.ahead is None else facts.ahead,
            )
            new, known = new + kept.new, known + kept.known
            if mark is not None and kept.new:
                for event in reading.events[start : start + EVENTS_PER_TRANSACTION]:
                    self._hears(event)
        gap = None
        if mark is not None:
            metrics.increment("events_backfilled", new, chassis=self._chassis)
            gap = ingestion.find_log_gap(mark, reading, known=known, heard=self._heard)
        if gap is not None:
            logger.warning("chassis %s: %s", self._chassis, gap.sentence)
            metrics.increment("event_gaps", chassis=self._chassis)
        if new:
            self._disturbed.set()
        # Last: a death before it begins anew, and knows what it wrote.
        await self._write_with_retry(
            log_position_move, chassis_id=self._chassis, entries_uri=facts.entries_uri, newest=reading.newest, gap=gap
        )

    async def _reading_owners(self) -> dict[str, ReadingOwner]:
        """Return which thing each sensor belongs to."""
        if self._owners is None:
            self._owners = await self._write_with_retry(reading_owners, self._chassis, self._inventory)
        return self._owners

    async def _write_with_retry(self, work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Ask the database, again and again while it is away: what is not written is not forgotten."""
        tries = 0
        while True:
            try:
                return await run_in_thread(work, *arguments, **more)
            except DatabaseError as error:
                if tries == 0:
                    logger.warning("events of chassis %s wait for the database: %s", self._chassis, error)
                await asyncio.sleep(DATABASE_RETRY_DELAYS[min(tries, len(DATABASE_RETRY_DELAYS) - 1)])
                tries += 1


async def _wait_first(event: asyncio.Event, task: asyncio.Task[None], seconds: float | None = None) -> None:
    """Wait for an event, or until a task ends, so long at most; raises what ended the task where that came first."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done() and not event.is_set():
        task.result()
