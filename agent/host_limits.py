"""What limits the devices that a host can take: its drivers, and the room below its PCIe root ports.

Runs in a separate process, like all reads of the host.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from agent.sysfs import ADDRESS, WINDOW, pci_root, read_resources, read_text
from hostwire.protocol import HostLimits, RootPort

# Of the kinds of devices that chassis have; nouveau besides, since it takes GPUs from nvidia.
DRIVERS = ("nvidia", "nouveau", "amdgpu", "nvme", "mlx5_core")
PCI_BRIDGE = "0x0604"  # class code: PCI-to-PCI bridge
_MODULE = re.compile(rb"/([A-Za-z0-9_-]+)\.ko")


def host_limits(root: Path) -> HostLimits:
    return HostLimits(drivers=_drivers(root), root_ports=_root_ports(root))


def _drivers(root: Path) -> dict[str, str] | None:
    """Return the drivers that the kernel has or can load, with their versions; None where it does not say."""
    modules = root / "lib/modules" / read_text(root / "proc/sys/kernel/osrelease")
    known: set[str] = set()
    for name in ("modules.dep", "modules.builtin"):
        try:
            known |= _modules(modules / name, (modules / name).stat().st_mtime_ns)
        except OSError:
            return None
    loaded = {name for name in DRIVERS if (pci_root(root) / "drivers" / name).is_dir()}
    return {
        name: read_text(root / "sys/module" / name / "version") for name in DRIVERS if name in loaded or name in known
    }


@lru_cache(maxsize=16)  # two a host
def _modules(listing: Path, _changed: int) -> frozenset[str]:
    """Return the modules in a list of the kernel's: 'kernel/drivers/nvme/host/nvme.ko.xz: …', a line each."""
    lines = listing.read_bytes().splitlines()
    return frozenset(
        found[1].decode().replace("-", "_") for line in lines if (found := _MODULE.search(line.partition(b":")[0]))
    )


def _root_ports(root: Path) -> tuple[RootPort, ...]:
    """Return the bridges that are below no other one, with their bus numbers and their 64-bit memory window."""
    folder = pci_root(root) / "devices"
    names = [entry.name for entry in os.scandir(folder) if ADDRESS.fullmatch(entry.name)]
    ranges: dict[str, tuple[int, int]] = {}
    for name in names:
        if read_text(folder / name / "class").startswith(PCI_BRIDGE):
            numbers = [read_text(folder / name / file) for file in ("secondary_bus_number", "subordinate_bus_number")]
            first, last = (int(one) if one.isdecimal() else 0 for one in numbers)
            if 0 < first <= last <= 255:
                ranges[name] = (first, last)
    used = {(_domain(name), _bus(name)) for name in names} | {(_domain(name), one[0]) for name, one in ranges.items()}
    found = []
    for name, (first, last) in sorted(ranges.items()):
        above = (one for other, one in ranges.items() if other != name and _domain(other) == _domain(name))
        if any(begin <= _bus(name) <= end for begin, end in above):
            continue
        windows = [one for one in read_resources(folder / name) if one.flags & WINDOW and one.is_prefetchable]
        found.append(
            RootPort(
                address=name,
                first_bus=first,
                last_bus=last,
                used_buses=sum(domain == _domain(name) and first <= bus <= last for domain, bus in used),
                window=max((one.size for one in windows), default=0),
            )
        )
    return tuple(found)


def _domain(address: str) -> str:
    return address.partition(":")[0]


def _bus(address: str) -> int:
    return int(address.split(":")[1], 16)
