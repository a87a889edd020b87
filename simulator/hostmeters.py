"""What a simulated host measures of itself: its GPUs, as NVML tells, and CPU, memory and disks, as Linux counts."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from simulator.hosttree import Card, HostTree, put
from simulator.lab import Host
from simulator.loads import Load
from simulator.state import Asked, Slot

IDLE_CPU, IDLE_BYTES = 0.015, 6 * 2**30
TICKS_A_SECOND, SECTOR = 100, 512
DRIVER_MIB = 400
ROOM_CELSIUS = 33.0


@dataclass
class Meters:
    """The meters of one host; those of CPU, memory and disks are kept by the chassis that minds its own devices."""

    tree: HostTree
    host: Host
    seconds: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    sectors: float = 0.0

    def measure_host(self, now: float, loads: list[Load]) -> None:
        """Count what the host did until the simulated second `now`, with these loads."""
        passed = max(0.0, now - self.seconds)
        self.seconds = now
        cores = self.host.cpus * self.host.cores_per_cpu
        share = min(1.0, IDLE_CPU + sum(load.cpu_share for load in loads))
        self.busy += passed * TICKS_A_SECOND * cores * share
        self.idle += passed * TICKS_A_SECOND * cores * (1 - share)
        self.sectors += passed * sum(load.disk_read for load in loads) / SECTOR
        total = round(self.host.memory_gib * 2**30)
        free = max(0, total - IDLE_BYTES - round(sum(load.memory_bytes for load in loads)))
        proc = self.tree.folder / "proc"
        put(proc / "diskstats", f" 259       1 nvme0n1 0 0 {round(self.sectors)} 0 0 0 0 0 0 0 0\n")
        put(proc / "meminfo", f"MemTotal: {total // 1024:>15} kB\nMemAvailable: {free // 1024:>11} kB\n")
        put(proc / "stat", f"cpu  {round(self.busy)} 0 0 {round(self.idle)} 0 0 0 0 0 0\n")
        put(proc / "uptime", f"{now:.2f} {now * cores:.2f}\n")

    def measure_gpu(self, card: Card, slot: Slot | None, asked: Asked | None) -> None:
        """Write what NVML tells of a GPU: of a slot, or of the host's own."""
        total = card.model.memory_mib
        if slot is not None:
            device = slot.present
            load = device.load if device is not None else 0.0
            watts, celsius = slot.watts, slot.temperature
            to_device, from_device = (0.0, 0.0) if device is None else device.carried
        else:
            load = 0.0 if asked is None else asked.share
            watts = card.model.idle_watts + (card.model.max_watts - card.model.idle_watts) * load
            celsius = ROOM_CELSIUS + 0.16 * watts
            to_device, from_device = (0.0, 0.0) if asked is None else (asked.to_device, asked.from_device)
        used = 0.8 * load if asked is None else asked.memory_share
        readings = {
            "name": card.model.model,
            "serial": card.serial,
            "gpu": round(100 * load),
            "memory": round(60 * load),
            "used_mib": min(total, DRIVER_MIB + round(used * total)),
            "total_mib": total,
            "watts": watts,
            "celsius": round(celsius),
            "to_device": to_device,
            "from_device": from_device,
        }
        put(self.tree.folder / "gpus" / f"{card.address}.json", msgspec.json.encode(readings))
