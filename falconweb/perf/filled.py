"""A chassis of sixteen slots as measurements of history use it: its rows, and its readings in the store.

Readings go the way of the worker's: the store's own recorder and writer take them. Rollups are made at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from django.db import connections

from fabric.bmc.types import Inventory
from fabric.models import Chassis, Device, Drawer, Port, Slot
from falconweb.perf.place import CannotMeasureError
from telemetry.catalogue import Catalogue, Entry, Sample
from telemetry.frames import Values
from telemetry.store.models import Chunk, Tier
from telemetry.store.recorder import Recorder
from telemetry.store.rolling import chassis_roll
from telemetry.store.tiers import ROLLUPS
from telemetry.store.writer import Writer
from telemetry.taps import Told

SLOTS = 16
COUNTERS = 14  # of errors, a port
OF_PORTS = (
    ("rx_bytes_per_second", "Receive", "B/s"), ("tx_bytes_per_second", "Transmit", "B/s"),
    ("link_status", "Link", "state"), ("link_width_lanes", "Link width", "lanes"),
    ("link_speed_gbps", "Link speed", "Gb/s"),
)  # fmt: skip
OF_DEVICES = (
    ("temperature_celsius", "Temperature", "°C"), ("power_watts", "Power", "W"),
    ("utilisation_percent", "Utilisation", "%"),
)  # fmt: skip
# By unit: the middle and the sway of what is measured.
SWAY = {"°C": (55.0, 15.0), "W": (180.0, 60.0), "%": (50.0, 40.0), "lanes": (16.0, 0.0), "Gb/s": (256.0, 0.0),
        "state": (4.0, 0.0), "rpm": (7000.0, 900.0)}  # fmt: skip


def chassis_made(name: str) -> Chassis:
    """Make the rows of a chassis with two drawers of eight slots, a device in each."""
    chassis = Chassis.objects.create(name=name, url=f"https://127.0.0.1/{name}", enabled=False)
    for number in range(1, SLOTS + 1):
        drawer, _ = Drawer.objects.get_or_create(
            chassis=chassis, uri=f"/d{(number - 1) // 8}", name=f"Drawer {(number - 1) // 8 + 1}"
        )
        port = Port.objects.create(chassis=chassis, uri=f"/p{number}", name=f"Slot {number}")
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/s{number}", name=f"Slot {number}", drawer=drawer, port=port, number=number
        )
        Device.objects.create(chassis=chassis, uri=f"/v{number}", name=f"GPU {number}", slot=slot, kind="gpu")
    return chassis


def entries_of(chassis: Chassis) -> list[Entry]:
    """Return what is measured of it, some 400 series."""
    found = []
    for port in Port.objects.filter(chassis=chassis).order_by("pk").values_list("pk", flat=True):
        found += [_entry("port", port, *one) for one in OF_PORTS]
        found += [
            Entry(
                key=f"port/{port}/errors/Counter{number}", object="port", id=port, quantity="errors",
                label=f"Counter {number}", unit="",
            )
            for number in range(COUNTERS)
        ]  # fmt: skip
    for device in Device.objects.filter(chassis=chassis).order_by("pk").values_list("pk", flat=True):
        found += [_entry("device", device, *one) for one in OF_DEVICES]
    found += [
        Entry(key=f"chassis/0/fan_rpm/{n}", object="chassis", id=0, quantity="fan_rpm", label=f"Fan {n}", unit="rpm")
        for n in range(48)
    ]
    return found


def _entry(kind: str, pk: int, quantity: str, label: str, unit: str) -> Entry:
    return Entry(key=f"{kind}/{pk}/{quantity}", object=kind, id=pk, quantity=quantity, label=label, unit=unit)


class Measured:
    """What such a chassis counts from second to second: sways and noise, byte counters that grow with the load."""

    def __init__(self, entries: Sequence[Entry], seed: int = 4016) -> None:
        self._random = np.random.default_rng(seed)
        count = len(entries)
        middle = [SWAY.get(one["unit"], (0.0, 0.0)) for one in entries]
        self._middle, self._sway = (np.array(those) for those in zip(*middle, strict=True))
        self._phase = self._random.uniform(0, 2 * math.pi, count)
        self._rate = np.array([1e10 if one["unit"] == "B/s" else 0.0 for one in entries])
        self._errors = np.array([0.01 if one["quantity"] == "errors" else 0.0 for one in entries])
        self._counted = np.zeros(count)
        self._counters = (self._rate > 0) | (self._errors > 0)

    def next(self, at: float) -> tuple[Values, Values]:
        """Return what is counted a second later, at a time, and the same with rates in the place of byte counters."""
        wave = np.sin(at / 600 + self._phase)
        noise = self._random.normal(0, 1, len(wave))
        rate = np.maximum(self._rate * (0.5 + 0.4 * wave + 0.02 * noise), 0)
        self._counted += np.rint(rate) + (self._random.random(len(wave)) < self._errors)
        shown = np.round(self._middle + self._sway * (wave + 0.03 * noise), 1)
        counted = np.where(self._counters, self._counted, shown)
        return counted, np.where(self._rate > 0, rate, counted)


def fill(chassis: int, entries: Sequence[Entry], *, since: float, until: float) -> None:
    """Have each second of a range stored, and all rollups made."""
    catalogue = Catalogue((), {})
    catalogue.entries = list(entries)
    writer = Writer(gather=0.2)
    recorder = Recorder(chassis, writer)
    recorder.begin(Told(chassis, catalogue, cast("Inventory", None), {}))
    measured = Measured(entries)
    at = since
    while at < until:
        counted, values = measured.next(at)
        recorder.take(Sample(at=at, measured_at=at, counted=counted, values=values))
        at += 1.0
    asyncio.run(recorder.close())
    writer.stop(60.0)
    for tier in ROLLUPS:
        chassis_roll(chassis, tier, now=math.inf)
    stored = sum(Chunk.objects.filter(chassis=chassis, tier=Tier.RAW).values_list("rows", flat=True))
    if stored < 0.99 * (until - since):
        raise CannotMeasureError(f"only {stored} of {until - since:.0f} readings were stored.")


def copied(chassis: int, others: Sequence[int]) -> None:
    """Have the same readings stored of other chassis: rollups whole, raw chunks without what is in them.

    So an index has as many rows as it would, and the disk a hundredth of what a day of raw readings takes.
    """
    table = Chunk._meta.db_table  # noqa: SLF001 - Django documents it
    with connections[Chunk.objects.db].cursor() as cursor:
        for other in others:
            cursor.execute(
                f"INSERT INTO {table} (chassis, tier, catalogue_id, since, until, before, version, rows, size, data) "  # noqa: S608 - names of our own table
                "SELECT %s, tier, catalogue_id, since, until, before, version, rows, size, "
                f"CASE WHEN tier < %s THEN %s ELSE data END FROM {table} WHERE chassis = %s",
                [other, Tier.MINUTE, b"", chassis],
            )
