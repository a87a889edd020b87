"""Chassis for measurements: simulated, recorded and replayed, or filled with synthetic readings.

Readings are stored as by the worker, with the store's recorder and writer. Rollups are made immediately.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from django.db import connections

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.readings import plan_readings
from fabric.bmc.series import ChassisReading, ReadingSeries
from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot
from falconweb.testing import SimulatorProcess, mirror
from perf.environment import CannotMeasureError
from telemetry.live.catalogue import ReadingContext, Sample, SeriesCatalogue, SeriesEntry, Values
from telemetry.store.models import Chunk
from telemetry.store.recorder import ReadingRecorder
from telemetry.store.rules import ROLLUPS, Tier
from telemetry.store.services import chassis_roll_up
from telemetry.store.writer import StoreWriter


def new_chassis(simulator: SimulatorProcess, name: str, address: str) -> Chassis:
    """Return the unsaved row of a simulated chassis, not to be polled yet: a walk must not count as polls."""
    chassis = Chassis(
        name=name, url=address, username="administrator", fingerprint=simulator.fingerprint, enabled=False
    )
    chassis.set_password(simulator.password)
    return chassis


def create_mirrored_chassis(simulator: SimulatorProcess, name: str, address: str) -> Chassis:
    """Add a simulated chassis and walk it once."""
    chassis = new_chassis(simulator, name, address)
    chassis.save()
    return mirror(chassis)


def bmc_address(simulator: SimulatorProcess, address: str) -> BmcAddress:
    """Return how the BMC of a simulated chassis is reached."""
    trust = CertificateTrust(fingerprint=simulator.fingerprint)
    return BmcAddress(url=address, username="administrator", password=simulator.password, trust=trust)


RECORDING_SPEED = 500  # simulated seconds per second
MAX_SECONDS = 60.0


@dataclass(frozen=True)
class Recording:
    """The series of a chassis, and their values at successive simulated seconds."""

    series: tuple[ReadingSeries, ...]
    rows: Sequence[Values]

    def reading(self, number: int, at: float) -> ChassisReading:
        """Return a reading as of a given time; the rows repeat cyclically."""
        return ChassisReading(at=at, measured_at=at, values=self.rows[number % len(self.rows)])


def record(rows: int) -> Recording:
    """Record this many simulated seconds of a simulated chassis; raises CannotMeasureError."""
    with SimulatorProcess("--speed", str(RECORDING_SPEED), own=True) as simulator:
        try:
            recording = _record(bmc_address(simulator, simulator.address), rows)
            return asyncio.run(asyncio.wait_for(recording, MAX_SECONDS))
        except TimeoutError:
            raise CannotMeasureError("the simulated chassis was too slow to be recorded.") from None


async def _record(address: BmcAddress, rows: int) -> Recording:
    async with BmcClient(address) as bmc:
        plan = await plan_readings(bmc, await discover(bmc))
        seen: list[Values] = []
        last = 0.0
        while len(seen) < rows:
            reading = await plan.read(bmc)
            if reading.measured_at > last:
                last = reading.measured_at
                seen.append(np.asarray(reading.values))
        return Recording(plan.series, seen)


SLOTS = 16
COUNTERS = 14  # of errors, a port
PORT_QUANTITIES = (
    ("rx_bytes_per_second", "Receive", "B/s"), ("tx_bytes_per_second", "Transmit", "B/s"),
    ("link_status", "Link", "state"), ("link_width_lanes", "Link width", "lanes"),
    ("link_speed_gbps", "Link speed", "Gb/s"),
)  # fmt: skip
DEVICE_QUANTITIES = (
    ("temperature_celsius", "Temperature", "°C"), ("power_watts", "Power", "W"),
    ("utilisation_percent", "Utilisation", "%"),
)  # fmt: skip
# By unit: the mean and the amplitude of the values.
READING_RANGES = {"°C": (55.0, 15.0), "W": (180.0, 60.0), "%": (50.0, 40.0), "lanes": (16.0, 0.0), "Gb/s": (256.0, 0.0),
        "state": (4.0, 0.0), "rpm": (7000.0, 900.0)}  # fmt: skip


def create_chassis(name: str) -> Chassis:
    """Make the rows of a chassis with two drawers of eight slots, a device in each."""
    chassis = Chassis.objects.create(name=name, url=f"https://127.0.0.1/{name}", enabled=False)
    for number in range(1, SLOTS + 1):
        place = (number - 1) // 8
        drawer, _ = Drawer.objects.get_or_create(chassis=chassis, uri=f"/d{place}", name=f"Drawer {place + 1}")
        create_device(chassis, drawer, number, f"/s{number}")
    return chassis


def create_device(chassis: Chassis, drawer: Drawer, number: int, uri: str, host_port: HostPort | None = None) -> Device:
    """Make the rows of a slot of a drawer, of its port, and of a device in it, which is at the host port."""
    port = Port.objects.create(chassis=chassis, uri=f"{uri}/port", name=f"Slot {number}", width=16)
    slot = Slot.objects.create(chassis=chassis, drawer=drawer, uri=uri, name=f"Slot {number}", number=number, port=port)
    return Device.objects.create(
        chassis=chassis,
        uri=f"{uri}/device",
        name=f"GPU {number}",
        endpoint_uri=f"{uri}/endpoint",
        slot=slot,
        kind="gpu",
        host_port=host_port,
    )


def catalogue_entries(chassis: Chassis) -> list[SeriesEntry]:
    """Return the series of the chassis, some 400."""
    found = []
    for port in Port.objects.filter(chassis=chassis).order_by("pk").values_list("pk", flat=True):
        found += [_entry("port", port, one) for one in PORT_QUANTITIES]
        found += [
            _entry("port", port, ("errors", f"Counter {number}", ""), f"/Counter{number}") for number in range(COUNTERS)
        ]
    for device in Device.objects.filter(chassis=chassis).order_by("pk").values_list("pk", flat=True):
        found += [_entry("device", device, one) for one in DEVICE_QUANTITIES]
    found += [_entry("chassis", 0, ("fan_rpm", f"Fan {number}", "rpm"), f"/{number}") for number in range(48)]
    return found


def _entry(kind: str, pk: int, measured: tuple[str, str, str], source: str = "") -> SeriesEntry:
    quantity, label, unit = measured
    key = f"{kind}/{pk}/{quantity}{source}"
    return SeriesEntry(key=key, object=kind, id=pk, quantity=quantity, label=label, unit=unit)


class SyntheticReadings:
    """The values of such a chassis per second: oscillation and noise, byte counters that grow with the load."""

    def __init__(self, entries: Sequence[SeriesEntry], seed: int = 4016) -> None:
        self._random = np.random.default_rng(seed)
        count = len(entries)
        middle = [READING_RANGES.get(one["unit"], (0.0, 0.0)) for one in entries]
        self._middle, self._sway = (np.array(those) for those in zip(*middle, strict=True))
        self._phase = self._random.uniform(0, 2 * math.pi, count)
        self._rate = np.array([1e10 if one["unit"] == "B/s" else 0.0 for one in entries])
        self._errors = np.array([0.01 if one["quantity"] == "errors" else 0.0 for one in entries])
        self._counted = np.zeros(count)
        self._counters = (self._rate > 0) | (self._errors > 0)

    def next(self, at: float) -> tuple[Values, Values]:
        """Return the values of the next second, and the same with rates in place of byte counters."""
        wave = np.sin(at / 600 + self._phase)
        noise = self._random.normal(0, 1, len(wave))
        rate = np.maximum(self._rate * (0.5 + 0.4 * wave + 0.02 * noise), 0)
        self._counted += np.rint(rate) + (self._random.random(len(wave)) < self._errors)
        shown = np.round(self._middle + self._sway * (wave + 0.03 * noise), 1)
        counted = np.where(self._counters, self._counted, shown)
        return counted, np.where(self._rate > 0, rate, counted)


def store_readings(chassis: int, entries: Sequence[SeriesEntry], *, since: float, until: float) -> None:
    """Store each second of a range, and make all rollups."""
    catalogue = SeriesCatalogue((), {})
    catalogue.entries = list(entries)
    writer = StoreWriter(gather=0.2)
    recorder = ReadingRecorder(chassis, writer)
    recorder.begin(ReadingContext(chassis, catalogue, cast("Inventory", None), {}))
    measured = SyntheticReadings(entries)
    at = since
    while at < until:
        counted, values = measured.next(at)
        recorder.take(Sample(at=at, measured_at=at, counted=counted, values=values))
        at += 1.0
    asyncio.run(recorder.close())
    writer.stop(60.0)
    for tier in ROLLUPS:
        chassis_roll_up(chassis, tier, now=math.inf)
    stored = sum(Chunk.objects.filter(chassis=chassis, tier=Tier.RAW).values_list("rows", flat=True))
    if stored < 0.99 * (until - since):
        raise CannotMeasureError(f"only {stored} of {until - since:.0f} readings were stored.")


def copy_readings(chassis: int, others: Sequence[int]) -> None:
    """Store the same readings for other chassis: complete rollups, raw chunks without their data.

    So an index has its full number of rows, at a hundredth of the disk space of a day of raw readings.
    """
    table = Chunk._meta.db_table  # noqa: SLF001 - documented by Django
    with connections[Chunk.objects.db].cursor() as cursor:
        for other in others:
            cursor.execute(
                f"INSERT INTO {table} (chassis, tier, catalogue_id, since, until, before, version, rows, size, data) "  # noqa: S608 - names of the site's own table
                "SELECT %s, tier, catalogue_id, since, until, before, version, rows, size, "
                f"CASE WHEN tier < %s THEN %s ELSE data END FROM {table} WHERE chassis = %s",
                [other, Tier.MINUTE, b"", chassis],
            )
