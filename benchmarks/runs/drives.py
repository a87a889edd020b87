"""NVMe drives that a run reads its data from: those of chassis, and the host's own, which only its agent tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from benchmarks.model.facts import is_nvme
from benchmarks.model.shapes import LOCAL, Link, Storage
from benchmarks.runs.parts import generation_of, model_name
from fabric.hostside import neighbours_on, own_of, serials_of_chassis
from fabric.models import Device
from hostwire.shapes import HostReport, PciDevice

SYSTEMS: Final = ("/", "/boot", "/boot/efi", "/efi")
NVME_CLASS: Final = "0x0108"  # PCI class code: non-volatile memory controller


def own_drive(
    report: HostReport | None, neighbours: Collection[Device], of_chassis: Collection[str] | None = None
) -> PciDevice | None:
    """Return the NVMe drive of a host's own that data is read from: the first that its system does not start from.

    `neighbours` are all devices that are attached to it, `of_chassis` fabric.hostside.serials_of_chassis, for who asks
    about several hosts. Where its system has all of them it is the first.
    """
    if report is None:
        return None
    own = own_of(report, neighbours, serials_of_chassis() if of_chassis is None else of_chassis)
    drives = [one for one in own if one.class_code.startswith(NVME_CLASS)]
    return min(drives, key=lambda one: _has_system(report, one), default=None)


def own_drive_now(host: int, report: HostReport | None) -> PciDevice | None:
    """Return `own_drive` of one host, by its id; two queries."""
    return own_drive(report, neighbours_on([host]).get(host, []))


def _has_system(report: HostReport, drive: PciDevice) -> bool:
    holders = report.holders.get(drive.address, ())
    return any(one.kind == "mount" and one.what in SYSTEMS for one in holders)


def drive_name(model: str) -> str:
    """Return how the performance model and figures call an NVMe drive: by its name they tell it from other disks."""
    name = model_name(model)
    return name if is_nvme(name) else f"NVMe {name}"


def storage_of_own(drive: PciDevice) -> Storage:
    """Return a drive of the host's own, as the performance model reads it."""
    usual = Link()
    generation = generation_of(drive.speed) if drive.speed else usual.generation
    return Storage(model=drive_name(drive.model), place=LOCAL, link=Link(lanes=drive.width or 4, generation=generation))
