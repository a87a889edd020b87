"""Keeps the inventory of one chassis in the database current, and tracks units of sensors that may have changed.

A thousand chassis are refreshed continuously, nearly always without a change: an unchanged refresh only updates its
timestamp, and while the event stream of the BMC is open, refreshes are less frequent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import msgspec
import numpy as np
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.discovery import Discovery
from fabric.bmc.errors import BmcError, Malformed, RequestRefused, ServerFault
from fabric.bmc.events import RedfishEvent
from fabric.bmc.sensors import read_sensor
from fabric.bmc.series import ChassisReading, ReadingSeries
from fabric.bmc.types import Inventory, RedfishSensor
from fabric.bmc.values import normalize_uri
from fabric.bmc.walk_turns import WalkPace, WalkTurns
from fabric.drift.services import drifts_explain
from fabric.inventory.models import Chassis, Walk
from fabric.inventory.progress import reading_limit_record
from fabric.inventory.selectors import ReadingOwner, reading_owners
from fabric.inventory.sync import inventory_apply, inventory_confirm
from telemetry.instrumentation import metrics
from telemetry.polling.progress import WalkProgress

logger = logging.getLogger(__name__)

PERIODS_A_WALK = 40  # periods between full walks, which find more than a refresh
MAX_QUIET_PERIODS = 4  # between two refreshes of a quiet chassis with an open event stream
SETTLE_SECONDS = 0.5  # events come in bursts: one refresh serves them all
WALK_PAUSE = 3.0  # a report that changes its series each second must not cause a walk each second
SENSORS_PER_CHECK = 16
SENSOR_RETRY_DELAYS = (2.0, 4.0, 8.0, 15.0)  # s, after a failed read of a sensor
CALM_SECONDS = 600.0  # for this time, a sensor that was reported as changed, but was not, is not doubted again
REFRESH_PAUSE_SECONDS = 2.0  # minimum time between refreshes during continuous events
# Workers that start together, or after the death of another, must not refresh at the same time.
JITTER = (0.8, 1.2)
# An inventory newer than this is used immediately by a worker that has claimed the chassis, before its first walk.
RECENT = timedelta(minutes=2)

SensorUnit = tuple[str, float, float]  # unit, factor, zero


@dataclass
class InventoryMirror:
    """Walks and refreshes one chassis; `turns` and `progress` are those of all walks of a worker.

    `pace` and `changed` outlive a connection. `changed`: URIs of sensors that the BMC reported as changed, and the time
    (monotonic s) to read them; `math.inf` marks a sensor with another unit, which a walk will apply.
    """

    chassis: Chassis
    bmc: BmcClient
    turns: WalkTurns
    refresh_requested: asyncio.Event
    changed: dict[str, float]
    pace: WalkPace = field(default_factory=WalkPace)
    progress: WalkProgress = field(default_factory=WalkProgress)

    def __post_init__(self) -> None:
        self._discovery = Discovery(self.bmc, at_a_time=1, turns=self.turns, pace=self.pace)
        self._applied: Inventory | None = None
        self._walked_at = 0.0
        self._ended_at = 0.0  # of the last walk
        self._periods = 1.0
        self._refresh_seconds = 0.0  # of the last one: a slow BMC is left alone for as long as it took
        self._plan_at: float | None = None  # monotonic s: when to walk to plan readings again
        for uri in [uri for uri, read_at in self.changed.items() if read_at == math.inf]:
            self.changed[uri] = 0.0  # that walk did not complete
        self._failed_reads: Counter[str] = Counter()  # consecutive failures of these sensors
        self._calm: dict[str, float] = {}  # sensors reported as changed with an unchanged unit, and when
        self._sensors: set[str] = set()  # URIs of all sensors
        self.owners: dict[str, ReadingOwner] = {}  # of the last inventory
        self.reading_limit = self.chassis.reading_limit  # which readings are left out
        self.doubted = set(self.changed)  # URIs of sensors whose unit may have changed

    async def recent(self) -> Inventory | None:
        """Return the inventory of a recent walk by any worker, None without one."""
        if self.chassis.inventory_at is None:
            return None
        found: Inventory | None = await run_in_thread(_recent_inventory, self.chassis.pk)
        if found is not None:
            self.owners = await run_in_thread(reading_owners, self.chassis.pk, found)
            self._sensors = {sensor.uri for sensor in found.sensors}
            self.pace.is_known = True
        return found

    async def walk(self) -> Inventory:
        """Read the whole service and store its inventory; raises BmcError, DatabaseError."""
        with self.progress.of(self.chassis.pk, self.pace):
            inventory = await self._discovery.walk()
            await self._store(inventory)
        self.pace.is_known = True
        self.owners = await run_in_thread(reading_owners, self.chassis.pk, inventory)
        # The first walks after a start are spread over the whole period, so that later ones are spread, too.
        early = random.random() if self._applied is None else 0.0  # noqa: S311 - no secret
        self._walked_at = time.monotonic() - early * settings.CONFIG.inventory_period * PERIODS_A_WALK
        self._applied, self._periods = inventory, 1.0
        self._plan_at, self._ended_at = None, time.monotonic()
        for uri in [uri for uri, read_at in self.changed.items() if read_at == math.inf]:
            del self.changed[uri]
        self._sensors = {sensor.uri for sensor in inventory.sensors}
        return inventory

    async def _store(self, inventory: Inventory) -> None:
        async with self.turns.storing(self.pace):
            begun_at = self._discovery.begun_at
            await run_in_thread(inventory_apply, chassis=self.chassis, inventory=inventory, begun_at=begun_at)

    async def _store_reading_limit(self) -> None:
        if self.reading_limit != self.chassis.reading_limit:
            await run_in_thread(reading_limit_record, chassis_id=self.chassis.pk, sentence=self.reading_limit)
            self.chassis.reading_limit = self.reading_limit

    def request_walk(self) -> None:
        """Schedule a walk after WALK_PAUSE at the earliest; readings are planned again after it."""
        if self._plan_at is None:
            self._plan_at = max(time.monotonic(), self._ended_at + WALK_PAUSE)
            self.refresh_requested.set()

    def handle_event(self, event: RedfishEvent) -> None:
        """Handle an event on arrival: schedule the check of a changed sensor's unit."""
        if event.message_id.endswith(".ResourceChanged") and "/Sensors/" in event.origin_uri:
            uri = normalize_uri(event.origin_uri)
            if uri not in self._sensors:
                return  # a refresh or a walk finds new sensors
            if self.changed.get(uri, math.inf) == math.inf:
                self.changed[uri] = 0.0
            # Some services send this event for each new reading.
            if time.monotonic() - self._calm.get(uri, -math.inf) > CALM_SECONDS:
                self.doubted.add(uri)

    async def keep_current(self, inventory: Inventory) -> Inventory:
        """Keep the inventory current; returns the inventory when readings have to be planned again.

        Raises BmcError. Without the database readings continue: changes that could not be stored are found again.
        """
        healths, owners = _healths(inventory), self.owners
        units = {sensor.uri: _sensor_unit(sensor) for sensor in inventory.sensors}
        self._prune_sensors()
        # Here, since readings never wait for the database: another chassis may be writing for long.
        with contextlib.suppress(DatabaseError):
            await self._store_reading_limit()
        walk_at = self._walked_at + settings.CONFIG.inventory_period * PERIODS_A_WALK * _jitter()
        settled_at, backoff = 0.0, 1.0
        while True:
            try:
                if time.monotonic() > walk_at and not self._discovery.remains:
                    return await self.walk()
                if self._plan_at is None:
                    await wait_for_event(self.refresh_requested, self._quiet_seconds())
                if self._plan_at is not None:
                    await asyncio.sleep(max(0.0, self._plan_at - time.monotonic()))
                    return await self.walk()
                is_requested = self.refresh_requested.is_set()
                if is_requested:
                    await asyncio.sleep(SETTLE_SECONDS if time.monotonic() > settled_at else REFRESH_PAUSE_SECONDS)
                    self.refresh_requested.clear()
                if await self._has_other_unit(units):
                    return await self.walk()
                fresh = await self._refresh(is_requested=is_requested)
                backoff = 1.0
            except DatabaseError as error:
                logger.warning("chassis %s is not mirrored: %s", self.chassis.pk, error)
                self._applied = None
                # A walk is hundreds of requests: a database outage must not burden the BMC.
                later = time.monotonic() + settings.CONFIG.inventory_period * backoff * _jitter()
                backoff = min(backoff * 2, MAX_QUIET_PERIODS)
                walk_at = max(walk_at, later)
                if self._plan_at is not None:
                    self._plan_at = later
                await asyncio.sleep(REFRESH_PAUSE_SECONDS)
                continue
            finally:
                settled_at = time.monotonic() + REFRESH_PAUSE_SECONDS
            if _healths(fresh) != healths:
                walk_at = 0.0  # the walk finds the part whose health has changed
            elif self.owners != owners:
                # A device was added, removed or swapped: its readings must not have another device's id.
                return fresh

    async def _has_other_unit(self, units: Mapping[str, SensorUnit]) -> bool:
        """Read changed sensors; returns whether one has another unit than before."""
        due = sorted(uri for uri, read_at in self.changed.items() if read_at <= time.monotonic())
        for uri in due[:SENSORS_PER_CHECK]:
            del self.changed[uri]
            try:
                sensor = read_sensor(CrawledResource(uri, "Sensor", (await self.bmc.get(uri)).body, ""))
            except RequestRefused:
                pass  # the next walk finds out whether it still exists
            except BmcError as error:
                pause = SENSOR_RETRY_DELAYS[min(self._failed_reads[uri], len(SENSOR_RETRY_DELAYS) - 1)]
                self.changed[uri] = time.monotonic() + pause
                self._failed_reads[uri] += 1
                if not isinstance(error, ServerFault | Malformed):
                    break  # the refresh detects an unreachable BMC
                continue
            else:
                if _sensor_unit(sensor) != units.get(uri):
                    # Keeps the walk due in case it fails.
                    self._plan_at = time.monotonic()
                    self.changed[uri] = math.inf
                    return True
            self.doubted.discard(uri)
            self._calm[uri] = time.monotonic()
            del self._failed_reads[uri]
        if any(read_at <= time.monotonic() for read_at in self.changed.values()):
            self.refresh_requested.set()
        return False

    def _prune_sensors(self) -> None:
        """Drop the state of removed sensors, and doubts that the last walk has resolved."""
        for uri in self.changed.keys() - self._sensors:
            del self.changed[uri]
        self.doubted &= self.changed.keys()
        self._calm = {uri: at for uri, at in self._calm.items() if uri in self._sensors}
        self._failed_reads = Counter({uri: n for uri, n in self._failed_reads.items() if uri in self._sensors})

    def _quiet_seconds(self) -> float:
        """Return the time until the next refresh or sensor check, s."""
        to_check = min(self.changed.values(), default=math.inf) - time.monotonic()
        if self._discovery.remains:
            return REFRESH_PAUSE_SECONDS
        # While others wait for their walk, a chassis that was just walked gives way.
        periods = MAX_QUIET_PERIODS if self.turns.waiting else self._periods
        pause = max(settings.CONFIG.inventory_period * periods, self._refresh_seconds)
        return max(0.0, min(pause * _jitter(), to_check))

    async def _refresh(self, *, is_requested: bool) -> Inventory:
        begun = time.monotonic()
        inventory = await self._discovery.refresh()
        self._refresh_seconds = time.monotonic() - begun
        if is_requested or inventory != self._applied:
            # The database may have changes of an operation meanwhile, so that an equal inventory is stored, too.
            await self._store(inventory)
            self.owners = await run_in_thread(reading_owners, self.chassis.pk, inventory)
            self._applied, self._periods = inventory, 1.0
        else:
            await run_in_thread(inventory_confirm, chassis_id=self.chassis.pk)
            self._periods = min(self._periods * 2, MAX_QUIET_PERIODS) if self.bmc.streams else 1.0
        await drifts_explain(chassis_id=self.chassis.pk, bmc=self.bmc)
        return inventory


def _recent_inventory(chassis: int) -> Inventory | None:
    row = Walk.objects.filter(chassis=chassis, chassis__inventory_at__gt=timezone.now() - RECENT).first()
    try:
        return None if row is None else msgspec.convert(row.found, Inventory)
    except msgspec.ValidationError:
        return None  # stored by another version of the site


def _jitter() -> float:
    return random.uniform(*JITTER)  # noqa: S311 - no secret


def _sensor_unit(sensor: RedfishSensor) -> SensorUnit:
    return sensor.units, sensor.factor, sensor.zero


def _healths(inventory: Inventory) -> dict[str, str]:
    return {one.uri: one.health for one in (*inventory.chassis, *inventory.drawers)}


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class UnitTracker:
    """Tracks the units of one chassis' readings."""

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._series: Sequence[ReadingSeries] = ()
        self._known: dict[str, SensorUnit] = {}

    def begin(self, series: Sequence[ReadingSeries]) -> None:
        """Set the series of the following readings, and count those with a changed unit."""
        units = {one.property: (one.unit, one.factor, one.zero) for one in series}
        changed = sum(self._known.get(name, unit) != unit for name, unit in units.items())
        metrics.increment("units_changed", changed, chassis=self._chassis)
        self._series = series
        self._known |= units

    def mask_doubtful(self, reading: ChassisReading, doubted: Collection[str]) -> ChassisReading:
        """Return a reading in which values of sensors (URIs) with a doubted unit are NaN, and count them."""
        if not doubted:
            return reading
        places = [place for place, one in enumerate(self._series) if one.property.partition("#")[0] in doubted]
        values = np.array(reading.values, dtype=np.float64)
        values[places] = math.nan
        metrics.increment("readings_in_doubt", len(places), chassis=self._chassis)
        return replace(reading, values=values)
