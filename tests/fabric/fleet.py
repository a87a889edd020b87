"""Many chassis, as rows."""

from __future__ import annotations

from fabric.inventory.models import Chassis, Device, Slot


def many_devices(chassis: int) -> list[Device]:
    """Add chassis of 16 unassigned GPUs each: 'big-1', 'big-2', ..."""
    rows = Chassis.objects.bulk_create(
        Chassis(name=f"big-{number}", url=f"https://127.0.0.1:{number + 1}", enabled=False)
        for number in range(1, chassis + 1)
    )
    places = [(one, place) for one in rows for place in range(1, 17)]
    slots = Slot.objects.bulk_create(
        Slot(chassis=one, uri=f"/s{place}", name=f"Slot {place}", number=place) for one, place in places
    )
    return Device.objects.bulk_create(
        Device(chassis=slot.chassis, uri=slot.uri, slot=slot, name=f"GPU {slot.number}", kind="gpu", model="V100")
        for slot in slots
    )
