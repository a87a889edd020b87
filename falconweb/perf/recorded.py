"""Readings of a simulated chassis, recorded second by second at many times its speed, and played again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.readings import plan_readings
from fabric.bmc.types import Address, Reading, Series, Trust
from falconweb.perf.place import PASSWORD, CannotMeasureError, simulator

SPEED = 500  # simulated seconds a second
LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class Recording:
    """The series of a chassis, and their values at successive simulated seconds."""

    series: tuple[Series, ...]
    rows: Sequence[tuple[float, ...]]

    def reading(self, number: int, at: float) -> Reading:
        """Return a reading as if it came at a time; after the last row the first one comes again."""
        return Reading(at=at, measured_at=at, values=self.rows[number % len(self.rows)])


def record(rows: int) -> Recording:
    """Read a simulated chassis until so many of its seconds were seen; raises CannotMeasureError."""
    with simulator("--speed", str(SPEED), environment=os.environ) as said:
        trust = Trust(fingerprint=said["fingerprint"][0])
        address = Address(url=said["address"][0], username="administrator", password=PASSWORD, trust=trust)
        try:
            return asyncio.run(asyncio.wait_for(_record(address, rows), LONGEST_SECONDS))
        except TimeoutError:
            raise CannotMeasureError("the simulated chassis was too slow to be recorded.") from None


async def _record(address: Address, rows: int) -> Recording:
    async with BmcClient(address) as bmc:
        plan = await plan_readings(bmc, await discover(bmc))
        seen: list[tuple[float, ...]] = []
        last = 0.0
        while len(seen) < rows:
            reading = await plan.read(bmc)
            if reading.measured_at > last:
                last = reading.measured_at
                seen.append(reading.values)
        return Recording(plan.series, seen)
