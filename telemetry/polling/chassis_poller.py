"""Polls one chassis each second, publishes its frames and feeds the subscribers.

Readings come first: a beat is one request and one frame, and inventory, events and the database go on beside it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError

from accounts.audit.context import add_log_context
from core.errors import FalconWebError
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.readings import ReadingPlan, plan_readings
from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis
from fabric.inventory.sync import inventory_mark_unreachable
from telemetry.alerts.watch import AlertWatch
from telemetry.instrumentation import metrics
from telemetry.links.watch import LinkWatch
from telemetry.live.catalogue import ReadingContext, ReadingSubscriber, Sample, SeriesCatalogue
from telemetry.live.frames import Frame, FrameOutbox, FrameUpdate, set_catalogue
from telemetry.polling.event_listener import listen_to_events
from telemetry.polling.mirror import InventoryMirror, UnitTracker
from telemetry.store.recorder import ReadingRecorder

logger = logging.getLogger(__name__)

RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0, 15.0)
# Of the BMC's four places: a reading, one request of the inventory beside it, and the event stream, which is open but
# idle. Operations take one each, one operation a drawer (fabric.execution.services).
BMC_REQUESTS = 3


@dataclass(frozen=True)
class PollerContext:
    """What the chassis of one worker share.

    `holds` tells whether the lease of a chassis is the worker's now, `phase` how many s after the rounded second a
    chassis is read; `gate` bounds walks.
    """

    bus: redis.asyncio.Redis
    outbox: FrameOutbox
    holds: Callable[[int], bool]
    phase: Callable[[int], float]
    gate: asyncio.Semaphore


class ChassisPoller:
    """One chassis: walked, then read each second; a failure is logged once, and so is the recovery."""

    def __init__(self, pk: int, around: PollerContext) -> None:
        self._pk = pk
        self._around = around
        self._failures = 0
        self._second = 0  # of the newest frame
        self._beat = 0  # the number of the beat that was read last
        self.is_reading = False
        self._hearers: (
            ReadingSubscribers  # from `run` on: of a task that is cancelled before its first step, nobody closes them
        )
        self._units = UnitTracker(pk)
        self._catalogue: SeriesCatalogue | None = None  # of the newest reading over this connection
        self._beats = PollStatistics(pk)
        self._changed: dict[str, float] = {}  # sensors, see Mirror
        self.disturbed = asyncio.Event()  # set when the inventory may have changed

    async def run(self) -> None:
        """Follow until cancelled, or until the chassis is removed."""
        add_log_context(chassis_id=self._pk)
        self._hearers = ReadingSubscribers(self._pk)
        try:
            await self._run()
        finally:
            self._beats.close()
            await self._hearers.close()

    async def _run(self) -> None:
        while True:
            try:
                chassis = await run_in_thread(Chassis.objects.get, pk=self._pk)
                async with BmcClient(await run_in_thread(chassis.address), at_a_time=BMC_REQUESTS) as bmc:
                    await self._follow(chassis, bmc)
            except Chassis.DoesNotExist:
                return
            except (redis.RedisError, DatabaseError) as error:
                # The site's own trouble, not the chassis'.
                logger.warning("chassis %s is not followed while Redis or the database is away: %s", self._pk, error)
            except FalconWebError as error:
                if self._failures == 0:
                    logger.warning("chassis %s: %s", self._pk, error.sentence)
                await self._note(error.sentence)
            except Exception:
                logger.exception("chassis %s", self._pk)
                await self._note("Its answers could not be understood; the log of the worker says why.")
            await asyncio.sleep(RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)])
            self._failures += 1

    async def _note(self, sentence: str) -> None:
        self._beats.failed(time.time())
        self._hearers.lost(sentence)
        try:
            await run_in_thread(inventory_mark_unreachable, chassis_id=self._pk, sentence=sentence)
        except Exception:
            # A database that is locked or away must not end the following: the next failure is noted again.
            logger.exception("chassis %s: the failure could not be noted", self._pk)

    async def _follow(self, chassis: Chassis, bmc: BmcClient) -> None:
        """Read, and mirror beside it, planned anew whenever what is there has changed."""
        mirror = InventoryMirror(chassis, bmc, self._around.gate, self.disturbed, self._changed)
        self._catalogue = None
        # After a death of another worker a second without readings counts more than a look that is a minute old.
        inventory = await mirror.recent() or await mirror.walk()
        listening = asyncio.create_task(listen_to_events(chassis.pk, bmc, inventory, self.disturbed, mirror.hear))
        try:
            while True:
                plan = await plan_readings(bmc, inventory)
                mirroring = asyncio.create_task(mirror.follow(inventory))
                try:
                    await self._read(bmc, plan, inventory, mirror, mirroring)
                    inventory = mirroring.result()
                finally:
                    # Two walks over one discovery would disturb each other.
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
        """Publish a frame on each beat until the mirroring beside it ends.

        A worker that was stopped, or cut off from Redis, may have lost the chassis to another: it asks before each
        request and again with the answer in hand.
        """
        catalogue = SeriesCatalogue(plan.series, mirror.owners)
        known = self._catalogue
        if known is not None and known.series == plan.series and known.entries == catalogue.entries:
            catalogue = known  # a walk that found nothing new costs no rate
        self._catalogue = catalogue
        revision = await set_catalogue(self._around.bus, self._pk, catalogue.entries)
        self._hearers.begin(ReadingContext(self._pk, catalogue, inventory, mirror.owners))
        self._units.begin(plan.series)
        period = max(plan.period, settings.CONFIG.reading_period)
        self._beats.plan(period)
        while not mirroring.done():
            phase, begun = self._around.phase(self._pk), time.time()
            # A timer may end a moment before its beat, and a beat comes again as the phase grows with more chassis.
            number = math.floor((begun - phase) / period + EARLY_SHARE)
            if plan.series and number != self._beat and self._around.holds(self._pk):
                self._beat = number
                self._beats.begin(begun, phase)
                sample = catalogue.sample(self._units.mask_doubtful(await plan.read(bmc), mirror.doubted))
                if plan.is_outdated and not mirroring.done():
                    mirror.request_walk()
                if not self._around.holds(self._pk):
                    continue
                self._second = max(self._second + 1, int(number * period))
                frame = Frame(revision, self._pk, self._second, sample.at, sample.values)
                if await self._around.outbox.publish(FrameUpdate(frame, catalogue.counters(sample), period)):
                    revision = await set_catalogue(self._around.bus, self._pk, catalogue.entries, lost=revision)
                self._beats.end(time.time(), len(sample.values))
                if sample.is_late:
                    metrics.increment("readings_late", len(sample.values), chassis=self._pk)
                else:
                    self._hearers.take(sample)
                self.is_reading = True
            if self._failures:
                logger.info("chassis %s answers again", self._pk)
                self._failures = 0
            # The next beat: one that was missed is skipped, not made up for. A clock that was set back stops nothing.
            now = time.time()
            beat = max(number, math.floor((now - phase) / period)) + 1
            await asyncio.wait({mirroring}, timeout=min(beat * period + phase - now, (1 + EARLY_SHARE) * period))


async def cancel_and_wait(task: asyncio.Task[Any], *, again: float = 1.0) -> None:
    """Cancel a task and wait for its end, however it comes; it is asked again each `again` s.

    For where a request ends by its own time-out just then, the cancellation is taken for that, and the task goes on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=again)


# Upper bounds, in s, of what is counted as poll_lag_le_<bound>: from the beat to the frame's being published.
LAG_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LATE_SHARE = 0.5  # of a period
EARLY_SHARE = 0.05  # of a period: a timer may end so much before its beat
_LAG_COUNTERS = [*(f"poll_lag_le_{bound}" for bound in LAG_BOUNDS), "poll_lag_le_inf"]


class PollStatistics:
    """Counts the polls of a chassis. A beat is a multiple of the period in Unix time; its number is how many.

    Where many chassis are read, each has a phase: its beats come so many s after those multiples.
    """

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._period = 0.0
        self._number: int | None = None  # of the last beat that was kept
        self._due = 0.0
        self._is_first = True
        self._is_failing = False

    def plan(self, period: float) -> None:
        """Take note that polls come each `period` s from now on; the first comes at once, on no beat."""
        if period != self._period:
            self._period, self._number = period, None
        self._is_first = True
        metrics.set_gauge("poll_period_seconds", period, chassis=self._chassis)

    def begin(self, now: float, phase: float = 0.0) -> None:
        """Take note that a poll begins (Unix s): what was missed between is told now."""
        number = int((now - phase) / self._period + EARLY_SHARE)
        if self._number is not None and number > self._number + 1:
            missed = "polls_failed" if self._is_failing else "polls_skipped"
            metrics.increment(missed, number - self._number - 1, chassis=self._chassis)
        self._number, self._is_failing = number, False
        self._due = now if self._is_first else number * self._period + phase
        self._is_first = False

    def end(self, now: float, values: int) -> None:
        """Take note that its readings are published (Unix s), and of how many there are."""
        lag = max(0.0, now - self._due)
        metrics.increment("polls_done", chassis=self._chassis)
        metrics.increment("readings_taken", values)
        metrics.increment(_LAG_COUNTERS[bisect_left(LAG_BOUNDS, lag)])
        metrics.increment("poll_lag_milliseconds", round(lag * 1000))
        if lag > LATE_SHARE * self._period:
            metrics.increment("polls_late", chassis=self._chassis)
        metrics.set_gauge("poll_lag_seconds", lag, chassis=self._chassis)

    def failed(self, now: float) -> None:
        """Take note that the chassis could not be read (Unix s): beats until it can be are not skipped but failed."""
        missed = 1
        if self._number is not None:
            number = int(now / self._period)
            missed = max(1, number - self._number)
            self._number += missed
        metrics.increment("polls_failed", missed, chassis=self._chassis)
        self._is_failing = True

    def close(self) -> None:
        """Take note that this process follows the chassis no longer."""
        metrics.drop_gauges(self._chassis)


# Each is made with the chassis' number.
SUBSCRIBERS: tuple[Callable[[int], ReadingSubscriber], ...] = (ReadingRecorder, LinkWatch, AlertWatch)


class ReadingSubscribers:
    """The taps of one chassis: what goes wrong in one is logged and stops neither the others nor the live path."""

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._taps = [make(chassis_id) for make in SUBSCRIBERS]
        self._failing: set[str] = set()

    def begin(self, told: ReadingContext) -> None:
        """See `ReadingSubscriber.begin`."""
        for tap in self._taps:
            self._ask(tap.begin, told)

    def take(self, sample: Sample) -> None:
        """See `ReadingSubscriber.take`."""
        for tap in self._taps:
            self._ask(tap.take, sample)

    def lost(self, sentence: str) -> None:
        """See `ReadingSubscriber.lost`."""
        for tap in self._taps:
            self._ask(tap.lost, sentence)

    async def close(self) -> None:
        """See `ReadingSubscriber.close`."""
        await asyncio.gather(*(tap.close() for tap in self._taps), return_exceptions=True)

    def _ask(self, do: Callable[[Any], None], what: Any) -> None:
        name = getattr(do, "__qualname__", repr(do))
        try:
            do(what)
        except Exception:
            metrics.increment("tap_failures", chassis=self._chassis)
            # Once: a tap that fails at each reading must not fill the log.
            if name not in self._failing:
                logger.exception("%s of chassis %s", name, self._chassis)
            self._failing.add(name)
        else:
            self._failing.discard(name)
