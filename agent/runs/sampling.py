"""Readings during a run: the host's CPU, memory and disks from Linux, its GPUs from NVML.

A thread of the supervisor reads them, so that a hanging GPU delays neither time limit nor cancellation.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agent import nvml
from agent.sysfs import read_text
from hostwire.training import RunReading

SECTOR = 512
# The seconds over which NVML measures PCIe traffic.
PCIE_SECONDS = 0.02
# A run of days is sampled less often, so that its record stays as small as one of hours.
MAX_SAMPLES = 1800
_DISK = re.compile(r"sd[a-z]+|hd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+")
_MEMORY = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class HostCounters:
    """Linux's counters, at a time in seconds since the boot."""

    uptime: float
    busy: int
    ticks: int
    read: int
    written: int


class Sampler(threading.Thread):
    """Puts the readings of the host and its GPUs into a queue every `interval` seconds until it is stopped."""

    def __init__(self, root: Path, *, simulated: bool, gpus: tuple[str, ...], interval: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.readings: queue.SimpleQueue[RunReading] = queue.SimpleQueue()
        self.ended = threading.Event()
        self._root = root
        self._simulated = simulated
        self._gpus = gpus
        self._interval = interval

    def run(self) -> None:
        began = time.monotonic()
        before = host_counters(self._root)
        while not self.ended.wait(max(self._interval, (time.monotonic() - began) / MAX_SAMPLES)):
            now = host_counters(self._root)
            values = host_values(before, now, memory_in_use(self._root))
            if values and before is not None and now is not None:
                source = "simulated" if self._simulated else "procfs"
                self.readings.put(RunReading(time.time(), round(now.uptime - before.uptime, 3), source, values))
            before = now
            self._read_gpus()

    def _read_gpus(self) -> None:
        if not self._gpus:
            return
        if values := _gpu_values(self._root, self._gpus):
            source = "simulated" if self._simulated else "nvml"
            self.readings.put(RunReading(time.time(), 0.0, source, values))
        values = {}
        for one in nvml.traffic(self._root, self._gpus):
            readings = {"pcie_to": one.to_device, "pcie_from": one.from_device}
            values |= {f"gpu/{one.address}/{name}": value for name, value in readings.items() if value is not None}
        if values:
            # The simulated chassis counts whole seconds.
            interval, source = (1.0, "simulated") if self._simulated else (PCIE_SECONDS, "nvml")
            self.readings.put(RunReading(time.time(), interval, source, values))


def _gpu_values(root: Path, addresses: tuple[str, ...]) -> dict[str, float]:
    values: dict[str, float] = {}
    for gpu in nvml.readings(root).gpus:
        if gpu.address not in addresses:
            continue
        used = None if gpu.memory_used is None else gpu.memory_used * nvml.MIB
        readings = {
            "utilisation": gpu.gpu_share,
            "memory_share": gpu.memory_share,
            "memory_used": used,
            "power": gpu.watts,
            "temperature": gpu.celsius,
        }
        values |= {f"gpu/{gpu.address}/{name}": value for name, value in readings.items() if value is not None}
    return values


def host_counters(root: Path) -> HostCounters | None:
    """Return Linux's present counters, None where they are missing."""
    try:
        uptime = float(read_text(root / "proc/uptime").split()[0])
        first = read_text(root / "proc/stat").splitlines()[0].split()
        # user nice system idle iowait irq softirq steal; the guests' are in user already
        ticks = [int(one) for one in first[1:9]]
    except (IndexError, ValueError):
        return None
    read = written = 0
    for line in _read_lines(root / "proc/diskstats"):
        fields = line.split()
        if len(fields) > 9 and _DISK.fullmatch(fields[2]):
            read, written = read + int(fields[5]), written + int(fields[9])
    return HostCounters(uptime, sum(ticks) - sum(ticks[3:5]), sum(ticks), SECTOR * read, SECTOR * written)


def memory_in_use(root: Path) -> int | None:
    """Return the bytes of memory in use, None where Linux does not report them."""
    found = {name: int(size) * 1024 for name, size in _MEMORY.findall(read_text(root / "proc/meminfo"))}
    return found["MemTotal"] - found["MemAvailable"] if len(found) == 2 else None


def host_values(before: HostCounters | None, now: HostCounters | None, memory: int | None) -> dict[str, float]:
    """Return the readings over the time between two counts, without those that the host does not report."""
    if before is None or now is None or now.uptime <= before.uptime:
        return {}
    seconds = now.uptime - before.uptime
    values: dict[str, float] = {
        "disk_read": max(0, now.read - before.read) / seconds,
        "disk_write": max(0, now.written - before.written) / seconds,
    }
    if now.ticks > before.ticks:
        values["cpu"] = min(1.0, max(0.0, (now.busy - before.busy) / (now.ticks - before.ticks)))
    if memory is not None:
        values["memory"] = float(memory)
    return values


def _read_lines(file: Path) -> list[str]:
    # With many disks it is longer than the limit for small files.
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
