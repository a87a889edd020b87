"""Polls one chassis each second, publishes its frames and feeds the subscribers.

Readings have priority: a beat is one request and one frame; inventory, events and the database run concurrently.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis
import redis.asyncio
from django.db import DatabaseError

from accounts.audit.context import add_log_context
from core.errors import FalconWebError
from core.language import english, gettext_noop
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import TimedOut, Unreachable
from fabric.bmc.readings import ReadingPlan, ResourcePlan, plan_readings
from fabric.bmc.types import Inventory
from fabric.bmc.walk_turns import WalkPace, WalkTurns
from fabric.inventory.access import poller_client
from fabric.inventory.models import Chassis
from fabric.inventory.sync import inventory_mark_unreachable
from telemetry.alerts.watch import AlertWatch
from telemetry.instrumentation import metrics
from telemetry.instrumentation.metrics import LAG_BOUNDS
from telemetry.links.watch import LinkWatch
from telemetry.live.catalogue import ReadingContext, ReadingSubscriber, Sample, SeriesCatalogue
from telemetry.live.frames import Frame, FrameOutbox, FrameUpdate, set_catalogue
from telemetry.polling.event_listener import EventListener
from telemetry.polling.mirror import InventoryMirror, UnitTracker, wait_for_event
from telemetry.polling.pace import ReadingPace
from telemetry.polling.progress import WalkProgress
from telemetry.store.recorder import ReadingRecorder

logger = logging.getLogger(__name__)

RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True)
class PollerContext:
    """Context shared by the pollers of one worker.

    `is_claimed` returns whether the worker's claim on a chassis is valid now, `phase` the offset (s) of a chassis'
    beats from the full second; `turns` those of its walks, `progress` what is told of them, `pace` that of its
    readings.
    """

    bus: redis.asyncio.Redis
    outbox: FrameOutbox
    is_claimed: Callable[[int], bool]
    phase: Callable[[int], float]
    turns: WalkTurns
    pace: ReadingPace
    progress: WalkProgress = field(default_factory=WalkProgress)


class ChassisPoller:
    """Walks one chassis, then reads it each second; a failure is logged once, and so is the recovery."""

    def __init__(self, pk: int, context: PollerContext) -> None:
        self._pk = pk
        self._context = context
        self._failures = 0
        self._second = 0  # of the newest frame
        self._beat = 0  # the number of the last polled beat
        self.is_reading = False
        # Created by `run`: those of a task that is cancelled before its first step would not be closed.
        self._subscribers: ReadingSubscribers
        self._units = UnitTracker(pk)
        self._catalogue: SeriesCatalogue | None = None  # of the newest reading over this connection
        self._beats = PollStatistics(pk)
        self._changed: dict[str, float] = {}  # sensors, see InventoryMirror
        self._walk_pace = WalkPace()  # as it was over all connections
        self.refresh_requested = asyncio.Event()  # set when the inventory may have changed
        self._retry_requested = asyncio.Event()

    def request_refresh(self) -> None:
        """Have the inventory refreshed, or a BMC that does not answer tried again, at once."""
        self.refresh_requested.set()
        self._retry_requested.set()

    async def run(self) -> None:
        """Poll until cancelled, or until the chassis is removed."""
        add_log_context(chassis_id=self._pk)
        self._subscribers = ReadingSubscribers(self._pk)
        try:
            await self._run()
        finally:
            self._beats.close()
            await self._subscribers.close()

    async def _run(self) -> None:
        while True:
            try:
                chassis = await run_in_thread(Chassis.objects.get, pk=self._pk)
                async with poller_client(chassis, await run_in_thread(chassis.address)) as bmc:
                    await self._follow(chassis, bmc)
            except Chassis.DoesNotExist:
                return
            except (redis.RedisError, DatabaseError) as error:
                # A problem of the site, not of the chassis.
                logger.warning("chassis %s is not polled while Redis or the database is down: %s", self._pk, error)
            except FalconWebError as error:
                if self._failures == 0:
                    logger.warning("chassis %s: %s", self._pk, error.sentence)
                self._walk_pace.is_lost = isinstance(error, Unreachable | TimedOut)
                await self._record_failure(english(error.sentence))
            except Exception:
                logger.exception("chassis %s", self._pk)
                sentence = gettext_noop("Its responses are invalid; the log of the worker has the reason.")
                await self._record_failure(sentence)
            self._retry_requested.clear()
            await wait_for_event(self._retry_requested, RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)])
            self._failures += 1

    async def _record_failure(self, sentence: str) -> None:
        self._beats.failed(time.time())
        self._subscribers.lost(sentence)
        try:
            await run_in_thread(inventory_mark_unreachable, chassis_id=self._pk, sentence=sentence)
        except Exception:
            # A locked or unreachable database must not end the polling: the next failure is stored again.
            logger.exception("chassis %s: the failure could not be stored", self._pk)

    async def _follow(self, chassis: Chassis, bmc: BmcClient) -> None:
        """Read and mirror concurrently; readings are planned again whenever the inventory has changed."""
        mirror = InventoryMirror(
            chassis,
            bmc,
            self._context.turns,
            self.refresh_requested,
            self._changed,
            self._walk_pace,
            self._context.progress,
        )
        self._catalogue = None
        # After the death of another worker, quick readings matter more than an inventory newer than a minute.
        inventory = await mirror.recent() or await mirror.walk()
        listener = EventListener(chassis.pk, bmc, inventory, self.refresh_requested, mirror.handle_event)
        listening = asyncio.create_task(listener.run())
        before: ReadingPlan | None = None
        try:
            while True:
                plan = await plan_readings(bmc, inventory)
                if isinstance(plan, ResourcePlan) and isinstance(before, ResourcePlan):
                    plan.take_over(before)
                before = plan
                mirror.reading_limit = plan.limit
                mirroring = asyncio.create_task(mirror.keep_current(inventory))
                try:
                    await self._read(bmc, plan, inventory, mirror, mirroring)
                    inventory = mirroring.result()
                finally:
                    # Two walks must not use one discovery concurrently.
                    await cancel_and_wait(mirroring)
        finally:
            listening.cancel()

    async def _read(
        self,
        bmc: BmcClient,
        plan: ReadingPlan,
        inventory: Inventory,
        mirror: InventoryMirror,
        mirroring: asyncio.Task[Inventory],
    ) -> None:
        """Publish a frame on each beat until the concurrent mirroring ends.

        A worker that was suspended, or disconnected from Redis, may have lost its claim: it checks the claim before
        each request and again after the response.
        """
        catalogue = SeriesCatalogue(plan.series, mirror.owners)
        known = self._catalogue
        if known is not None and known.series == plan.series and known.entries == catalogue.entries:
            catalogue = known  # keeps the rates after a walk without changes
        self._catalogue = catalogue
        revision = await set_catalogue(self._context.bus, self._pk, catalogue.entries)
        self._subscribers.begin(ReadingContext(self._pk, catalogue, inventory, mirror.owners))
        self._units.begin(plan.series)
        period = max(plan.period, self._context.pace.period)
        self._beats.plan(period)
        while not mirroring.done():
            phase, begun = self._context.phase(self._pk), time.time()
            # A timer may end slightly before its beat, and a beat may repeat as the phase grows with more chassis.
            number = math.floor((begun - phase) / period + EARLY_SHARE)
            if plan.series and number != self._beat and self._context.is_claimed(self._pk):
                self._beat = number
                self._beats.begin(begun, phase)
                sample = catalogue.sample(self._units.mask_doubtful(await plan.read(bmc), mirror.doubted))
                if plan.is_outdated and not mirroring.done():
                    mirror.request_walk()
                if not self._context.is_claimed(self._pk):
                    continue
                self._second = max(self._second + 1, int(number * period))
                frame = Frame(revision, self._pk, self._second, sample.at, sample.values)
                if await self._context.outbox.publish(FrameUpdate(frame, sample.byte_counters, period)):
                    revision = await set_catalogue(self._context.bus, self._pk, catalogue.entries, lost=revision)
                self._beats.end(time.time(), len(sample.values))
                if sample.is_late:
                    metrics.increment("readings_late", len(sample.values), chassis=self._pk)
                else:
                    self._subscribers.take(sample)
                self.is_reading = True
                if (learned := max(plan.period, self._context.pace.period)) != period:
                    if learned == plan.period:
                        logger.info("chassis %s is read every %g s from now on", self._pk, learned)
                    period = learned
                    self._beats.plan(period)
                    number = math.floor((begun - phase) / period + EARLY_SHARE)
            # After a failure, the inventory of a moment ago is no answer.
            if self._failures and bmc.received:
                logger.info("chassis %s answers again", self._pk)
                self._failures = 0
            # The next beat: missed ones are skipped. A clock that was set back must not stop the loop.
            now = time.time()
            beat = max(number, math.floor((now - phase) / period)) + 1
            await asyncio.wait({mirroring}, timeout=min(beat * period + phase - now, (1 + EARLY_SHARE) * period))


async def cancel_and_wait(task: asyncio.Task[Any], *, again: float = 1.0) -> None:
    """Cancel a task and wait for its end; it is cancelled again every `again` s.

    If a request times out at the same moment, the cancellation is taken for that, and the task continues.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=again)
    if not task.cancelled():
        task.exception()  # its reader may have failed first, of the same cause


LATE_SHARE = 0.5  # of a period
EARLY_SHARE = 0.05  # of a period: how early a timer may end before its beat
_LAG_COUNTERS = [*(f"poll_lag_le_{bound}" for bound in LAG_BOUNDS), "poll_lag_le_inf"]


class PollStatistics:
    """Counts the polls of a chassis. A beat is a multiple of the period in Unix time; its number is the factor.

    Where many chassis are polled, each has a phase: the offset of its beats from those multiples, s.
    """

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._period = 0.0
        self._number: int | None = None  # of the last polled beat
        self._due = 0.0
        self._is_first = True
        self._is_failing = False

    def plan(self, period: float) -> None:
        """Set the period of polls, s; the first one is immediate, on no beat."""
        if period != self._period:
            self._period, self._number = period, None
        self._is_first = True
        metrics.set_gauge("poll_period_seconds", period, chassis=self._chassis)

    def begin(self, now: float, phase: float = 0.0) -> None:
        """Record the start of a poll (Unix s), and count the beats missed before it."""
        number = int((now - phase) / self._period + EARLY_SHARE)
        if self._number is not None and number > self._number + 1:
            missed = "polls_failed" if self._is_failing else "polls_skipped"
            metrics.increment(missed, number - self._number - 1, chassis=self._chassis)
        self._number, self._is_failing = number, False
        self._due = now if self._is_first else number * self._period + phase
        self._is_first = False

    def end(self, now: float, values: int) -> None:
        """Record the publication of its readings (Unix s), and their number."""
        lag = max(0.0, now - self._due)
        metrics.increment("polls_done", chassis=self._chassis)
        metrics.increment("readings_taken", values)
        metrics.increment(_LAG_COUNTERS[bisect_left(LAG_BOUNDS, lag)])
        metrics.increment("poll_lag_milliseconds", round(lag * 1000))
        if lag > LATE_SHARE * self._period:
            metrics.increment("polls_late", chassis=self._chassis)
        metrics.set_gauge("poll_lag_seconds", lag, chassis=self._chassis)

    def failed(self, now: float) -> None:
        """Record a failed poll (Unix s): beats until the next success count as failed, not skipped."""
        missed = 1
        if self._number is not None:
            number = int(now / self._period)
            missed = max(1, number - self._number)
            self._number += missed
        metrics.increment("polls_failed", missed, chassis=self._chassis)
        self._is_failing = True

    def close(self) -> None:
        """Drop the gauges: this process no longer polls the chassis."""
        metrics.drop_gauges(self._chassis)


# Each is created with the id of the chassis.
SUBSCRIBERS: tuple[Callable[[int], ReadingSubscriber], ...] = (ReadingRecorder, LinkWatch, AlertWatch)


class ReadingSubscribers:
    """The subscribers of one chassis: an error of one is logged and affects neither the others nor live readings."""

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._members = [make(chassis_id) for make in SUBSCRIBERS]
        self._failing: set[str] = set()

    def begin(self, context: ReadingContext) -> None:
        self._call_each(lambda subscriber: subscriber.begin, context)

    def take(self, sample: Sample) -> None:
        self._call_each(lambda subscriber: subscriber.take, sample)

    def lost(self, sentence: str) -> None:
        self._call_each(lambda subscriber: subscriber.lost, sentence)

    async def close(self) -> None:
        await asyncio.gather(*(subscriber.close() for subscriber in self._members), return_exceptions=True)

    def _call_each(self, method_of: Callable[[ReadingSubscriber], Callable[[Any], None]], argument: Any) -> None:
        for subscriber in self._members:
            method = method_of(subscriber)
            name = getattr(method, "__qualname__", repr(method))
            try:
                method(argument)
            except Exception:
                metrics.increment("tap_failures", chassis=self._chassis)
                # Log once: a subscriber that fails at each reading must not fill the log.
                if name not in self._failing:
                    logger.exception("%s of chassis %s", name, self._chassis)
                self._failing.add(name)
            else:
                self._failing.discard(name)
