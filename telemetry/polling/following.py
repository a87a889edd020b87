"""One chassis followed: its mirror kept true, and its readings handed on each second.

Readings come first: a beat is one request and one frame, and inventory, events and the database go on beside it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError

from accounts.audit.context import note_about
from fabric.bmc.client import BmcClient
from fabric.bmc.readings import ReadingPlan, plan_readings
from fabric.bmc.types import Inventory
from fabric.models import Chassis
from fabric.services.sync import inventory_failed
from falconweb.errors import FalconWebError
from falconweb.threads import in_thread
from telemetry.catalogue import Catalogue
from telemetry.frames import Frame
from telemetry.live import News, keep_catalogue
from telemetry.pipeline import tally
from telemetry.polling.beats import EARLY, Beats
from telemetry.polling.heard import Hearers
from telemetry.polling.listening import listen
from telemetry.polling.mirroring import Mirror
from telemetry.polling.outbox import Outbox
from telemetry.polling.units import Units
from telemetry.taps import Told

logger = logging.getLogger(__name__)

FAILED_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
# Of the BMC's four places: a reading, one request of the inventory beside it, and the event stream, which is open but
# idle. Operations take one each, one operation a drawer (fabric.services.execution).
PLACES = 3


@dataclass(frozen=True)
class Surroundings:
    """What the chassis of one worker share.

    `holds` tells whether the lease of a chassis is the worker's now, `phase` how many s after the rounded second a
    chassis is read; `gate` bounds walks.
    """

    bus: redis.asyncio.Redis
    outbox: Outbox
    holds: Callable[[int], bool]
    phase: Callable[[int], float]
    gate: asyncio.Semaphore


class Following:
    """One chassis: walked, then read each second; a failure is logged once, and so is the recovery."""

    def __init__(self, pk: int, around: Surroundings) -> None:
        self._pk = pk
        self._around = around
        self._failures = 0
        self._second = 0  # of the newest frame
        self._beat = 0  # the number of the beat that was read last
        self.is_reading = False
        self._hearers: Hearers  # from `run` on: of a task that is cancelled before its first step, nobody closes them
        self._units = Units(pk)
        self._catalogue: Catalogue | None = None  # of the newest reading over this connection
        self._beats = Beats(pk)
        self._changed: dict[str, float] = {}  # sensors, see Mirror
        self.disturbed = asyncio.Event()  # set when the inventory may have changed

    async def run(self) -> None:
        """Follow until cancelled, or until the chassis is removed."""
        note_about(chassis_id=self._pk)
        self._hearers = Hearers(self._pk)
        try:
            await self._run()
        finally:
            self._beats.close()
            await self._hearers.close()

    async def _run(self) -> None:
        while True:
            try:
                chassis = await in_thread(Chassis.objects.get, pk=self._pk)
                async with BmcClient(await in_thread(chassis.address), at_a_time=PLACES) as bmc:
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
            await asyncio.sleep(FAILED_PAUSES[min(self._failures, len(FAILED_PAUSES) - 1)])
            self._failures += 1

    async def _note(self, sentence: str) -> None:
        self._beats.failed(time.time())
        self._hearers.lost(sentence)
        try:
            await in_thread(inventory_failed, chassis_id=self._pk, sentence=sentence)
        except Exception:
            # A database that is locked or away must not end the following: the next failure is noted again.
            logger.exception("chassis %s: the failure could not be noted", self._pk)

    async def _follow(self, chassis: Chassis, bmc: BmcClient) -> None:
        """Read, and mirror beside it, planned anew whenever what is there has changed."""
        mirror = Mirror(chassis, bmc, self._around.gate, self.disturbed, self._changed)
        self._catalogue = None
        # After a death of another worker a second without readings counts more than a look that is a minute old.
        inventory = await mirror.recent() or await mirror.walk()
        listening = asyncio.create_task(listen(chassis.pk, bmc, inventory, self.disturbed, mirror.hear))
        try:
            while True:
                plan = await plan_readings(bmc, inventory)
                mirroring = asyncio.create_task(mirror.follow(inventory))
                try:
                    await self._read(bmc, plan, inventory, mirror, mirroring)
                    inventory = mirroring.result()
                finally:
                    # Two walks over one discovery would disturb each other.
                    await ended(mirroring)
        finally:
            listening.cancel()

    async def _read(
        self,
        bmc: BmcClient,
        plan: ReadingPlan,
        inventory: Inventory,
        mirror: Mirror,
        mirroring: asyncio.Task[Inventory],
    ) -> None:
        """Publish a frame on each beat until the mirroring beside it ends.

        A worker that was stopped, or cut off from Redis, may have lost the chassis to another: it asks before each
        request and again with the answer in hand.
        """
        catalogue = Catalogue(plan.series, mirror.owners)
        known = self._catalogue
        if known is not None and known.series == plan.series and known.entries == catalogue.entries:
            catalogue = known  # a walk that found nothing new costs no rate
        self._catalogue = catalogue
        revision = await keep_catalogue(self._around.bus, self._pk, catalogue.entries)
        self._hearers.begin(Told(self._pk, catalogue, inventory, mirror.owners))
        self._units.begin(plan.series)
        period = max(plan.period, settings.CONFIG.reading_period)
        self._beats.plan(period)
        while not mirroring.done():
            phase, begun = self._around.phase(self._pk), time.time()
            # A timer may end a moment before its beat, and a beat comes again as the phase grows with more chassis.
            number = math.floor((begun - phase) / period + EARLY)
            if plan.series and number != self._beat and self._around.holds(self._pk):
                self._beat = number
                self._beats.begin(begun, phase)
                sample = catalogue.sample(self._units.sure(await plan.read(bmc), mirror.doubted))
                if plan.is_outdated and not mirroring.done():
                    mirror.plan_is_outdated()
                if not self._around.holds(self._pk):
                    continue
                self._second = max(self._second + 1, int(number * period))
                frame = Frame(revision, self._pk, self._second, sample.at, sample.values)
                if await self._around.outbox.publish(News(frame, catalogue.counters(sample), period)):
                    revision = await keep_catalogue(self._around.bus, self._pk, catalogue.entries, lost=revision)
                self._beats.end(time.time(), len(sample.values))
                if sample.is_late:
                    tally.add("readings_late", len(sample.values), chassis=self._pk)
                else:
                    self._hearers.take(sample)
                self.is_reading = True
            if self._failures:
                logger.info("chassis %s answers again", self._pk)
                self._failures = 0
            # The next beat: one that was missed is skipped, not made up for. A clock that was set back stops nothing.
            now = time.time()
            beat = max(number, math.floor((now - phase) / period)) + 1
            await asyncio.wait({mirroring}, timeout=min(beat * period + phase - now, (1 + EARLY) * period))


async def ended(task: asyncio.Task[Any], *, again: float = 1.0) -> None:
    """Cancel a task and wait for its end, however it comes; it is asked again each `again` s.

    For where a request ends by its own time-out just then, the cancellation is taken for that, and the task goes on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=again)
