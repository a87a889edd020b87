"""What runs ask of the devices of a host: files below `loads` in its tree, which whoever plays a run keeps fresh.

`loads/PID.json` is of the process with that number on this machine. It counts while that process lives and the file is
at most 5 s old. While a host has loads, its devices do what they say and the others rest; without any, all of them go
on as if somebody trained on them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from simulator.hosttree import PEOPLE, Card, HostTree
from simulator.state import Asked

FRESH_SECONDS = 5.0
LARGEST = 2**20
OWNER = "svc-train"
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class DeviceLoad(msgspec.Struct, frozen=True):
    """What a run asks of one device: shares of its work and memory, and bytes a (simulated) second over its link.

    `peer_share` of the bytes go between devices of one drawer, and do not pass the host port.
    """

    address: str
    share: Share = 0.0
    memory_share: Share = 0.0
    to_device: Amount = 0.0
    from_device: Amount = 0.0
    peer_share: Share = 0.0


class Load(msgspec.Struct, frozen=True):
    """What a run asks of its host."""

    command: str = "train"
    devices: tuple[DeviceLoad, ...] = ()
    cpu_share: Share = 0.0
    memory_bytes: Amount = 0.0
    disk_read: Amount = 0.0


class Loads:
    """The loads of one host, and the processes that show them in its /proc."""

    def __init__(self, tree: HostTree) -> None:
        self._tree = tree
        self._folder = tree.folder / "loads"
        self._shown: set[int] = set()
        self.now: dict[int, Load] = {}

    def advance(self, cards: Iterable[Card]) -> None:
        """Read what is asked now, and show whose processes hold those of these cards that have a driver."""
        self.now = dict(_read(self._folder))
        for pid in self._shown - set(self.now):
            shutil.rmtree(self._tree.folder / "proc" / str(pid), ignore_errors=True)
        self._shown &= set(self.now)
        if not self.now:
            return
        ours = {card.address: card for card in cards}
        for pid, load in self.now.items():
            # Another chassis shows it, too: each the device files of its own cards.
            self._show(pid, load, ours)
            self._shown.add(pid)

    def of(self, address: str) -> Asked | None:
        """Return what is asked of a device by all runs together; None where no run has it."""
        asked = [device for load in self.now.values() for device in load.devices if device.address == address]
        if not asked:
            return None
        both = sum(device.to_device + device.from_device for device in asked)
        between = sum(device.peer_share * (device.to_device + device.from_device) for device in asked)
        return Asked(
            share=min(1.0, sum(device.share for device in asked)),
            memory_share=min(1.0, sum(device.memory_share for device in asked)),
            to_device=sum(device.to_device for device in asked),
            from_device=sum(device.from_device for device in asked),
            peer_share=between / both if both else 0.0,
        )

    def _show(self, pid: int, load: Load, ours: dict[str, Card]) -> None:
        place = self._tree.folder / "proc" / str(pid)
        if not place.exists():
            new = self._tree.folder / "proc" / f".new-{pid}-{os.getpid()}"
            shutil.rmtree(new, ignore_errors=True)
            (new / "fd").mkdir(parents=True)
            uid = PEOPLE[OWNER]
            (new / "comm").write_text(load.command.partition(" ")[0][:15] + "\n")
            (new / "cmdline").write_bytes(load.command.replace(" ", "\0").encode() + b"\0")
            (new / "status").write_text(f"Name:\t{load.command[:15]}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
            with suppress(OSError):  # of two chassis one is first
                new.rename(place)
            shutil.rmtree(new, ignore_errors=True)
        wanted = {device.address for device in load.devices}
        for address, card in ours.items():
            file = place / "fd" / str(100 + int(address[:4] + address[5:7], 16))
            holds = address in wanted and self._tree.bound(card)
            with suppress(OSError):
                if holds and not file.is_symlink():
                    file.symlink_to(card.node)
                elif not holds and file.is_symlink() and str(file.readlink()) == card.node:
                    file.unlink()


def _read(folder: Path) -> Iterator[tuple[int, Load]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        name, dot, rest = entry.name.partition(".")
        if not name.isdigit() or dot + rest != ".json":
            continue
        try:
            found = entry.stat()
            if found.st_size > LARGEST:
                continue
            fresh = time.time() - found.st_mtime < FRESH_SECONDS
            if not (fresh and _lives(int(name))):
                if not fresh:
                    Path(entry.path).unlink(missing_ok=True)
                continue
            yield int(name), msgspec.json.decode(Path(entry.path).read_bytes(), type=Load)
        except (OSError, OverflowError, msgspec.MsgspecError):
            continue


def _lives(pid: int) -> bool:
    try:
        # One that has ended and was not waited for does not work any more.
        return (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
