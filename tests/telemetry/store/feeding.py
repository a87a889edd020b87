"""Readings as tests make them up, handed to a recorder as the poller does; kept in a plain list beside."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np

from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries
from fabric.bmc.types import Inventory
from fabric.inventory.selectors import ReadingOwner
from telemetry.live.catalogue import ReadingContext, SeriesCatalogue
from telemetry.store import services
from telemetry.store.recorder import ReadingRecorder
from telemetry.store.rules import ROLLUPS
from telemetry.store.selectors import read_raw
from telemetry.store.writer import StoreWriter

SERIES = (
    ReadingSeries(property="/t#/Reading", owner_uri="/t", quantity=Quantity.TEMPERATURE, unit="Cel"),
    ReadingSeries(property="/p#/RXBytes", owner_uri="/p", quantity=Quantity.RX_BYTES, unit="B"),
    ReadingSeries(
        property="/p#/PCIeErrors/ReplayCount", owner_uri="/p", quantity=Quantity.ERRORS, detail="ReplayCount"
    ),
    ReadingSeries(property="/w#/Reading", owner_uri="/w", quantity=Quantity.POWER, unit="W"),
    ReadingSeries(property="/o#/Load", owner_uri="/p", quantity=Quantity.OTHER, unit="Pa", detail="Load"),
)
OWNERS = {"/t": ReadingOwner("device", 7), "/w": ReadingOwner("chassis", 0), "/p": ReadingOwner("port", 5)}
TEMPERATURE, RECEIVED, ERRORS, POWER, LOAD = (
    "device/7/temperature_celsius", "port/5/rx_bytes_per_second", "port/5/errors/ReplayCount",
    "chassis/0/power_watts", "port/5/other/Load",
)  # fmt: skip
ERROR_RATE = ERRORS + "/rate"
KEYS = (TEMPERATURE, RECEIVED, ERRORS, ERROR_RATE, POWER, LOAD)
GAUGES = {TEMPERATURE: 0, ERRORS: 2, POWER: 3, LOAD: 4}  # key: place in SERIES
COUNTERS = {RECEIVED: 1, ERROR_RATE: 2}
HOUR = 3600.0


def hours_ago(hours: float) -> float:
    """Return a whole hour, about so many hours ago."""
    return time.time() // HOUR * HOUR - hours * HOUR


def reading(number: int, at: float, **more: float) -> ChassisReading:
    """Return the reading with a number: each differs from the one before."""
    values = (round(40 + number % 37 / 10, 2), number * 1e6 + number % 7, float(number // 50), 250.25, 0.1 * number)
    return ChassisReading(at=at, values=values, **more)


class Feed:
    """One chassis: `take` a reading, `run` many, `end` well or `die`."""

    def __init__(self, chassis: int, writer: StoreWriter, *, since: float = 0.0) -> None:
        self.chassis, self.writer = chassis, writer
        self.since = since or hours_ago(2)
        self.series: Sequence[ReadingSeries] = SERIES
        self.recorder = self.begin()

    def begin(self, series: Sequence[ReadingSeries] | None = None) -> ReadingRecorder:
        """Let another recorder begin, with other series where they are given."""
        self.series = series or self.series
        self.recorder = ReadingRecorder(self.chassis, self.writer)
        self.tell()
        return self.recorder

    def tell(self, series: Sequence[ReadingSeries] | None = None) -> None:
        """Tell the recorder what its readings are of."""
        self.series = series or self.series
        self.catalogue = SeriesCatalogue(self.series, OWNERS)
        self.recorder.begin(ReadingContext(self.chassis, self.catalogue, Inventory(), OWNERS))

    def take(self, one: ChassisReading) -> None:
        """Hand one reading over."""
        self.recorder.take(self.catalogue.sample(one))

    def run(self, seconds: Iterable[int], **more: float) -> None:
        """Take the readings of some seconds after `since`."""
        for number in seconds:
            self.take(reading(number, self.since + number, **more))

    def stored(self) -> None:
        """Wait until what was handed over is stored."""
        self.writer.stop(20.0)

    def flush(self) -> None:
        """Hand over what the recorder still holds, as the end of a minute does."""
        self.recorder._submit_rows()
        self.stored()

    def end(self) -> None:
        """End the recorder as a worker does that is asked to end."""
        asyncio.run(self.recorder.close())
        self.stored()

    def die(self) -> None:
        """End it as a killed worker does."""
        self.stored()
        self.begin()

    def roll(self) -> None:
        """Make all rollups that are due."""
        for tier in ROLLUPS:
            services.chassis_roll_up(self.chassis, tier, now=math.inf)


def same(found: object, wanted: object, *, relative: float = 1e-6) -> bool:
    """Tell whether arrays are equal as far as an f32 goes, NaN being NaN."""
    return bool(np.allclose(np.asarray(found), np.asarray(wanted), rtol=relative, atol=1e-6, equal_nan=True))


def moments(chassis: int) -> list[float]:
    """Return when each stored reading of a chassis was taken."""
    now = time.time()
    parts = read_raw(chassis, [TEMPERATURE], since=now - 24 * HOUR, until=now + 60)
    return [at for part in parts for at in part.at.tolist()]
