"""State of a simulated host: its files, visible devices, loads and meters.

`loads/PID.json` is written by the process with that PID on this machine. It is valid while that process runs and the
file is at most 5 s old. While a host has loads, its devices follow them and the others idle; without any, all devices
have the load of a training.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TextIO

import msgspec

from simulator.host_tree import BOOT, USERS, FileTail, HostTree, PciCard, replace_file
from simulator.lab import HostLab
from simulator.nvml import GpuReadings
from simulator.state import RequestedLoad, SimulatedSlot


class HostError(ValueError):
    """An impossible request to a host; the text says why."""


class ProcessRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A process that uses a device: it ends after `seconds`, on request, or when the device is removed.

    One that `hangs` does not end with the device, and prevents its removal.
    """

    device: str
    command: str = "python train.py"
    owner: str = "maria"
    seconds: float | None = None
    hangs: bool = False


class MountRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A drive to mount, by its first partition."""

    device: str
    path: str = "/data"


@dataclass
class VisibleDevice:
    """A device of this chassis that a host has an entry for."""

    card: PciCard
    endpoint: str
    answers: bool = True
    link: tuple[int, str] = (0, "")


@dataclass
class DeviceProcess:
    """A simulated process of this chassis on a host."""

    pid: int
    address: str
    request: ProcessRequest
    ends: float | None


FRESH_SECONDS = 5.0
MAX_LOAD_FILE_BYTES = 2**20
LOAD_OWNER = "svc-train"
LoadAmount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
LoadShare = Annotated[float, msgspec.Meta(ge=0, le=1)]


class DeviceLoad(msgspec.Struct, frozen=True):
    """The load of a run on one device: shares of compute and memory, and bytes per simulated second over its link.

    `peer_share` of the bytes are between devices of one drawer, and do not pass the host port. `memory_share` is that
    in use, `memory_busy` the share of time with access to it, as NVML reads it.
    """

    address: str
    share: LoadShare = 0.0
    memory_share: LoadShare = 0.0
    to_device: LoadAmount = 0.0
    from_device: LoadAmount = 0.0
    peer_share: LoadShare = 0.0
    memory_busy: LoadShare | None = None


class HostLoad(msgspec.Struct, frozen=True):
    """The load of a run on its host."""

    command: str = "train"
    devices: tuple[DeviceLoad, ...] = ()
    cpu_share: LoadShare = 0.0
    memory_bytes: LoadAmount = 0.0
    disk_read: LoadAmount = 0.0
    disk_write: LoadAmount = 0.0


class HostLoads:
    """The loads of one host, and their processes in its /proc."""

    def __init__(self, tree: HostTree) -> None:
        self._tree = tree
        self.now: dict[int, HostLoad] = {}

    def advance(self, cards: Iterable[PciCard]) -> None:
        """Read the present loads, and show their processes as users of those cards that have a driver."""
        before, self.now = self.now, dict(_read_loads(self._tree.folder / "loads"))
        for pid in before.keys() - self.now.keys():
            self._tree.remove_process(pid)
        ours = {card.address: card for card in cards}
        for pid, load in self.now.items():
            # Another chassis shows it, too: each chassis the device files of its own cards.
            self._show(pid, load, ours)

    def of(self, address: str) -> RequestedLoad | None:
        """Return the total load of all runs on a device; None without one."""
        loads = [device for load in self.now.values() for device in load.devices if device.address == address]
        if not loads:
            return None
        busy = [device.memory_busy for device in loads]
        both = sum(device.to_device + device.from_device for device in loads)
        between = sum(device.peer_share * (device.to_device + device.from_device) for device in loads)
        return RequestedLoad(
            share=min(1.0, sum(device.share for device in loads)),
            memory_share=min(1.0, sum(device.memory_share for device in loads)),
            to_device=sum(device.to_device for device in loads),
            from_device=sum(device.from_device for device in loads),
            peer_share=between / both if both else 0.0,
            memory_busy=None if None in busy else min(1.0, sum(one or 0.0 for one in busy)),
        )

    def _show(self, pid: int, load: HostLoad, ours: dict[str, PciCard]) -> None:
        place = self._tree.folder / "proc" / str(pid)
        if not place.exists():
            self._tree.add_process(pid, load.command, USERS[LOAD_OWNER], {})
        used = {device.address for device in load.devices}
        for address, card in ours.items():
            file = place / "fd" / str(100 + int(address[:4] + address[5:7], 16))
            opened = address in used and self._tree.bound(card)
            with suppress(OSError):
                if opened and not file.is_symlink():
                    file.symlink_to(card.node)
                elif not opened and file.is_symlink() and str(file.readlink()) == card.node:
                    file.unlink()


def _read_loads(folder: Path) -> Iterator[tuple[int, HostLoad]]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - four times a second for each host
    except FileNotFoundError:
        return
    for file in (folder / name for name in names if name.endswith(".json")):
        if not file.stem.isdigit():
            continue
        with suppress(OSError, OverflowError, msgspec.MsgspecError):
            found = file.stat()
            if found.st_size > MAX_LOAD_FILE_BYTES:
                continue
            if time.time() - found.st_mtime >= FRESH_SECONDS:
                file.unlink(missing_ok=True)
            elif _is_alive(int(file.stem)):
                yield int(file.stem), msgspec.json.decode(file.read_bytes(), type=HostLoad)


def _is_alive(pid: int) -> bool:
    try:
        # A zombie has ended.
        return (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


IDLE_CPU, IDLE_BYTES = 0.015, 6 * 2**30
TICKS_A_SECOND, SECTOR = 100, 512
DRIVER_MIB = 400
ROOM_CELSIUS = 33.0


@dataclass
class HostMeters:
    """The meters of one host; the chassis that simulates its own devices writes those of CPU, memory and disks."""

    tree: HostTree
    host: HostLab
    seconds: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    sectors: float = 0.0
    written: float = 0.0

    def measure_host(self, now: float, loads: list[HostLoad]) -> None:
        """Advance the meters to the simulated second `now`, with these loads."""
        passed = max(0.0, now - self.seconds)
        self.seconds = now
        cores = self.host.cpus * self.host.cores_per_cpu
        share = min(1.0, IDLE_CPU + sum(load.cpu_share for load in loads))
        self.busy += passed * TICKS_A_SECOND * cores * share
        self.idle += passed * TICKS_A_SECOND * cores * (1 - share)
        self.sectors += passed * sum(load.disk_read for load in loads) / SECTOR
        self.written += passed * sum(load.disk_write for load in loads) / SECTOR
        total = round(self.host.memory_gib * 2**30)
        free = max(0, total - IDLE_BYTES - round(sum(load.memory_bytes for load in loads)))
        proc = f"{self.tree.folder}/proc"
        read, written = round(self.sectors), round(self.written)
        replace_file(f"{proc}/diskstats", f" 259       1 nvme0n1 0 0 {read} 0 0 0 {written} 0 0 0 0\n")
        replace_file(f"{proc}/meminfo", f"MemTotal: {total // 1024:>15} kB\nMemAvailable: {free // 1024:>11} kB\n")
        replace_file(f"{proc}/stat", f"cpu  {round(self.busy)} 0 0 {round(self.idle)} 0 0 0 0 0 0\nbtime {BOOT}\n")
        replace_file(f"{proc}/uptime", f"{now:.2f} {now * cores:.2f}\n")

    def measure_gpu(self, card: PciCard, slot: SimulatedSlot | None, requested: RequestedLoad | None) -> None:
        """Write the NVML readings of a GPU in a slot, or of the host's own."""
        total = card.model.memory_mib
        if slot is not None:
            load = slot.present.load if slot.present is not None else 0.0
            watts, celsius = slot.watts, slot.temperature
            to_device, from_device = slot.present.carried if slot.present is not None else (0.0, 0.0)
        else:
            load = 0.0 if requested is None else requested.share
            watts = card.model.idle_watts + (card.model.max_watts - card.model.idle_watts) * load
            celsius = ROOM_CELSIUS + 0.16 * watts
            to_device, from_device = (requested.to_device, requested.from_device) if requested else (0.0, 0.0)
        used = 0.8 * load if requested is None else requested.memory_share
        busy = 0.6 * load if requested is None or requested.memory_busy is None else requested.memory_busy
        readings = GpuReadings(
            name=card.model.model,
            serial=card.serial,
            gpu=round(100 * load),
            memory=round(100 * busy),
            used_mib=min(total, DRIVER_MIB + round(used * total)),
            total_mib=total,
            watts=watts,
            celsius=round(celsius),
            to_device=to_device,
            from_device=from_device,
        )
        replace_file(f"{self.tree.folder}/gpus/{card.address}.json", msgspec.json.encode(readings))


class HostState:
    """One host: its files, and the devices and processes of this chassis."""

    def __init__(self, folder: Path, name: str, host: HostLab) -> None:
        self.tree = HostTree(folder, name, host)
        self.rescan = FileTail(self.tree.pci / "rescan")
        self.probe = FileTail(self.tree.pci / "drivers_probe")
        self.unbind = [FileTail(driver / "unbind") for driver in (self.tree.pci / "drivers").iterdir()]
        self.loads = HostLoads(self.tree)
        self.meters = HostMeters(self.tree, host)
        self.shown: dict[str, VisibleDevice] = {}
        self.processes: dict[int, DeviceProcess] = {}
        self.unbinding: set[str] = set()
        # Held by the chassis that simulates the host's own devices.
        self.lock: TextIO | None = None
        self.local: list[PciCard] = []
