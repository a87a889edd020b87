"""One chassis followed: its mirror kept true, and its readings handed on each second.

Readings come first: a beat is one request and one frame, and inventory, events and the database go on beside it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import Discovery
from fabric.bmc.errors import PlanOutdated
from fabric.bmc.readings import ReadingPlan, plan_readings
from fabric.bmc.types import Inventory
from fabric.models import Chassis
from fabric.selectors import Owner, owners_of_readings
from fabric.services.drift import drifts_explain
from fabric.services.sync import inventory_apply, inventory_failed
from falconweb.errors import FalconWebError
from falconweb.threads import in_thread
from telemetry.catalogue import Catalogue
from telemetry.frames import Frame
from telemetry.live import keep_catalogue, publish
from telemetry.polling.heard import Hearers
from telemetry.polling.listening import listen
from telemetry.taps import Told

logger = logging.getLogger(__name__)

REFRESHES_A_WALK = 20  # a whole walk finds what a refresh does not look for
SETTLE_SECONDS = 0.5  # events come in bursts: one refresh answers them all
REST_SECONDS = 2.0  # where they come without end, each refresh would only be outdated by the next
FAILED_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
WALK_PAUSE = 3.0
# Of the BMC's four places: a reading, one request of the inventory beside it, and the event stream, which is open but
# idle. Operations take one each, one operation a drawer (fabric.services.execution).
PLACES = 3


class Following:
    """One chassis: walked, then read on each rounded second; a failure is logged once, and so is the recovery."""

    def __init__(self, pk: int, bus: redis.asyncio.Redis) -> None:
        self._pk = pk
        self._bus = bus
        self._failures = 0
        self._unpublished = False
        self._hearers = Hearers(pk)
        self.disturbed = asyncio.Event()  # set when the inventory may have changed

    async def run(self) -> None:
        """Follow until cancelled, or until the chassis is removed."""
        try:
            await self._run()
        finally:
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
        self._hearers.lost(sentence)
        try:
            await in_thread(inventory_failed, chassis_id=self._pk, sentence=sentence)
        except Exception:
            # A database that is locked or away must not end the following: the next failure is noted again.
            logger.exception("chassis %s: the failure could not be noted", self._pk)

    async def _follow(self, chassis: Chassis, bmc: BmcClient) -> None:
        """Walk, then read and refresh side by side, planned anew whenever what is there has changed."""
        discovery = Discovery(bmc, at_a_time=1)
        begun = timezone.now()
        inventory = await discovery.walk()
        listening = asyncio.create_task(listen(chassis.pk, bmc, inventory, self.disturbed))
        try:
            while True:
                await in_thread(inventory_apply, chassis=chassis, inventory=inventory, begun_at=begun)
                owners = await in_thread(owners_of_readings, chassis.pk, inventory)
                plan = await plan_readings(bmc, inventory)
                refreshing = asyncio.create_task(self._refresh(chassis, bmc, discovery, owners, _healths(inventory)))
                try:
                    await self._read(bmc, plan, inventory, owners, refreshing)
                except PlanOutdated:
                    # A report that changes its shape each second must not become a walk each second.
                    await asyncio.sleep(WALK_PAUSE)
                    begun = timezone.now()
                    inventory = await discovery.walk()
                else:
                    begun, inventory = refreshing.result()
                finally:
                    refreshing.cancel()
                    # Two walks over one discovery would disturb each other.
                    await asyncio.gather(refreshing, return_exceptions=True)
        finally:
            listening.cancel()

    async def _read(
        self,
        bmc: BmcClient,
        plan: ReadingPlan,
        inventory: Inventory,
        owners: dict[str, Owner],
        refreshing: asyncio.Task[tuple[datetime, Inventory]],
    ) -> None:
        """Publish a frame on each rounded second until the refresh beside it ends."""
        catalogue = Catalogue(plan.series, owners)
        revision = await keep_catalogue(self._bus, self._pk, catalogue.entries)
        self._hearers.begin(Told(self._pk, revision, catalogue, inventory, owners))
        period = max(plan.period, settings.CONFIG.reading_period)
        while not refreshing.done():
            if plan.series:
                sample = catalogue.sample(await plan.read(bmc))
                await self._publish(Frame(revision, self._pk, int(sample.at), sample.at, sample.values))
                self._hearers.take(sample)
            if self._failures:
                logger.info("chassis %s answers again", self._pk)
                self._failures = 0
            # The next rounded beat: one that was missed is skipped, not made up for.
            await asyncio.wait({refreshing}, timeout=period - time.time() % period)

    async def _publish(self, frame: Frame) -> None:
        try:
            await publish(self._bus, frame)
        except (redis.RedisError, OSError) as error:
            if not self._unpublished:
                logger.warning("readings of chassis %s are not published: %s", self._pk, error)
            self._unpublished = True
        else:
            self._unpublished = False

    async def _refresh(
        self,
        chassis: Chassis,
        bmc: BmcClient,
        discovery: Discovery,
        owners: dict[str, Owner],
        healths: dict[str, str],
    ) -> tuple[datetime, Inventory]:
        """Keep the mirror true; returns once readings must be planned anew, with the inventory to plan them by.

        With it goes when that walk began, since an operation may have ended meanwhile.
        """
        rested_at = 0.0
        for _ in range(REFRESHES_A_WALK):
            await until(self.disturbed, settings.CONFIG.inventory_period)
            if self.disturbed.is_set():
                await asyncio.sleep(SETTLE_SECONDS if time.monotonic() > rested_at else REST_SECONDS)
                self.disturbed.clear()
            begun = timezone.now()
            inventory = await discovery.refresh()
            rested_at = time.monotonic() + REST_SECONDS
            try:
                await in_thread(inventory_apply, chassis=chassis, inventory=inventory, begun_at=begun)
                found = await in_thread(owners_of_readings, chassis.pk, inventory)
                await drifts_explain(chassis_id=chassis.pk, bmc=bmc)
            except DatabaseError as error:
                # Readings go on meanwhile; the next refresh writes what this one could not.
                logger.warning("chassis %s is not mirrored: %s", self._pk, error)
                continue
            if _healths(inventory) != healths:
                break  # the walk finds out what below it has fallen ill, or is well again
            if found != owners:
                # A device came, went or was swapped: its readings must not go out under another's id.
                return begun, inventory
        begun = timezone.now()
        return begun, await discovery.walk()


def _healths(inventory: Inventory) -> dict[str, str]:
    return {one.uri: one.health for one in (*inventory.chassis, *inventory.drawers)}


async def until(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so long at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
