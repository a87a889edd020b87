"""What the links of a run's devices carried while it ran, as their chassis counted it."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from benchmarks.runs.models import Run, Series
from benchmarks.runs.series import series_append
from fabric.models import Device, HostPort
from falconweb.errors import FalconWebError
from telemetry.store.reading import read

logger = logging.getLogger(__name__)

LINK: Final = "link/"
MOST_POINTS: Final = 2000
SOURCE: Final = "chassis"
# As the port sees it.
RX, TX = "rx_bytes_per_second", "tx_bytes_per_second"


@dataclass(frozen=True)
class Way:
    """One direction of a link: the series of the store that counts it, and the run's series that it becomes."""

    chassis: int
    counted: str
    key: str


def traffic_record(run: Run) -> None:
    """Record what the links of a run's devices carried, and the uplinks that lead to them, bytes a second.

    'link/device-17/pcie_to' and '.../pcie_from' are what its chassis sent to device 17 and got from it,
    'link/uplink-4/...' the same of host port 4, in the same direction: away from the host. Nothing is recorded where
    the chassis was not read meanwhile, and nothing twice.
    """
    if run.started_at is None or Series.objects.filter(run=run, key__startswith=LINK).exists():
        return
    since = run.started_at.timestamp()
    until = run.ended_at.timestamp() if run.ended_at is not None else time.time()
    ways: dict[int, list[Way]] = defaultdict(list)
    for way in _ways(run):
        ways[way.chassis].append(way)
    for chassis, those in ways.items():
        try:
            _record(run, chassis, those, since, max(until, since + 1.0))
        except (FalconWebError, OSError) as error:
            logger.info("run %s: the traffic of chassis %s could not be read: %s", run.pk, chassis, error)


def _record(run: Run, chassis: int, ways: list[Way], since: float, until: float) -> None:
    points = min(MOST_POINTS, max(1, math.ceil(until - since)))
    found = read(chassis, [way.counted for way in ways], since=since, until=until, points=points)
    rows = {entry["key"]: row for row, entry in enumerate(found.series)}
    for way in ways:
        row = rows.get(way.counted)
        if row is None:
            continue
        there = found.count[row] > 0
        if there.any():
            series_append(
                run,
                way.key,
                at=found.at[there],
                values=found.mean[row][there],
                unit="B/s",
                source=SOURCE,
                interval=found.step,
            )


def _ways(run: Run) -> list[Way]:
    """Return both directions of each link: a port towards a device transmits to it, a host port receives for it."""
    found = []
    devices = Device.objects.filter(runs=run).exclude(slot__port=None)
    for pk, chassis, port in devices.values_list("pk", "chassis", "slot__port"):
        found += _both(chassis, port, f"device-{pk}", to=TX, back=RX)
    uplinks = set(run.composition.get("devices", {}).values())
    ports = HostPort.objects.filter(pk__in=uplinks).exclude(port=None)
    for pk, chassis, port in ports.values_list("pk", "chassis", "port"):
        found += _both(chassis, port, f"uplink-{pk}", to=RX, back=TX)
    return found


def _both(chassis: int, port: int, name: str, *, to: str, back: str) -> list[Way]:
    return [
        Way(chassis, f"port/{port}/{to}", f"{LINK}{name}/pcie_to"),
        Way(chassis, f"port/{port}/{back}", f"{LINK}{name}/pcie_from"),
    ]
