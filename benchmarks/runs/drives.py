"""NVMe drives that a run reads its data from: those of chassis, and the host's own, which only its agent tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from benchmarks.model.facts import is_nvme
from benchmarks.model.shapes import LOCAL, Link, Storage
from benchmarks.runs.parts import generation_of, model_name
from fabric.hostside import own_of
from fabric.models import Device
from hostwire.shapes import HostReport, PciDevice

NVME_CLASS: Final = "0x0108"  # PCI class code: non-volatile memory controller


def own_drive(report: HostReport | None, neighbours: Collection[Device]) -> PciDevice | None:
    """Return the first NVMe drive of a host's own; `neighbours` are all devices that are attached to it."""
    if report is None:
        return None
    drives = [one for one in own_of(report, neighbours) if one.class_code.startswith(NVME_CLASS)]
    return next(iter(drives), None)


def drive_name(model: str) -> str:
    """Return how the performance model and figures call an NVMe drive: by its name they tell it from other disks."""
    name = model_name(model)
    return name if is_nvme(name) else f"NVMe {name}"


def storage_of_own(drive: PciDevice) -> Storage:
    """Return a drive of the host's own, as the performance model reads it."""
    usual = Link()
    generation = generation_of(drive.speed) if drive.speed else usual.generation
    return Storage(model=drive_name(drive.model), place=LOCAL, link=Link(lanes=drive.width or 4, generation=generation))
