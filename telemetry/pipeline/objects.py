"""Chassis, drawers, devices and ports as labels: of what a person may see, some chassis at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from fabric.counted import counted_before
from fabric.models import Chassis, Device, Drawer, HostPort, Port
from telemetry.pipeline.families import labels

Labels = dict[tuple[str, int], str]
LOOKS = 10  # periods of looks at what a chassis holds, after which the newest is old; they may be up to four apart


@dataclass
class Told:
    """What is told of one chassis: labels of what is measured there, and of what is known of devices and ports."""

    id: int
    name: str
    is_answering: bool  # as far as looks at what it holds tell
    about: str = ""  # labels of the chassis' own info
    objects: Labels = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)  # labels of each device's info
    lanes: list[tuple[str, int]] = field(default_factory=list)  # labels of a port, and how many lanes it should use
    counted: dict[str, int] = field(default_factory=dict)  # by key: what a counter had before it was the person's


def chassis_told(person: User, ids: Sequence[int]) -> dict[int, Told]:
    """Return what is told of these chassis; whoever is no administrator sees their devices and ports, as live."""
    rows = Chassis.objects.visible_to(person).filter(pk__in=ids, enabled=True)
    told: dict[int, Told] = {}
    now, inventory_period = timezone.now(), timedelta(seconds=settings.CONFIG.inventory_period)
    for row in rows.only("pk", "name", "model", "serial_number", "firmware_version", "last_error", "inventory_at"):
        looked = row.inventory_at is not None and now - row.inventory_at < LOOKS * inventory_period
        one = told[row.pk] = Told(row.pk, row.name, looked and not row.last_error)
        name = labels(chassis=row.name)
        one.about = labels(
            chassis=row.name, model=row.model, serial=row.serial_number, firmware=row.firmware_version
        )  # fmt: skip
        if person.is_administrator:
            one.objects["chassis", 0] = name
    if person.is_administrator:
        for pk, chassis, number in Drawer.objects.filter(chassis__in=told).values_list("pk", "chassis", "number"):
            told[chassis].objects["drawer", pk] = labels(chassis=told[chassis].name, drawer=number)
    _ports(person, told)
    _devices(person, told)
    before = counted_before(person, list(told))
    for pk, chassis in Port.objects.filter(pk__in=before).values_list("pk", "chassis"):
        told[chassis].counted |= {f"port/{pk}/errors/{name}": count for name, count in before[pk].now.items()}
    return told


def _ports(person: User, told: Mapping[int, Told]) -> None:
    rows = Port.objects.visible_to(person).filter(chassis__in=told, missing_since=None)
    fields = ("pk", "chassis", "name", "switch__drawer__number", "slot__drawer__number", "slot__number",
              "host_port__label", "host_port__drawer__number", "width", "configured_width",
              "slot__device__max_lanes")  # fmt: skip
    for pk, chassis, name, by_switch, by_slot, slot, host_port, by_host, width, configured, most in rows.values_list(
        *fields
    ):
        drawer = next((one for one in (by_slot, by_host, by_switch) if one is not None), None)
        one = told[chassis]
        text = labels(chassis=one.name, drawer=drawer, slot=slot, port=name, host_port=host_port)
        one.objects["port", pk] = text
        # A port of a slot without a device, or of no slot and no host, has nothing to be as wide as.
        if most or host_port:
            wide = min((known for known in (width, configured, most) if known), default=0)
            if wide:
                one.lanes.append((text, wide))


def _devices(person: User, told: Mapping[int, Told]) -> None:
    seen = dict(HostPort.objects.visible_to(person).filter(chassis__in=told).values_list("pk", "label"))
    rows = Device.objects.visible_to(person).filter(chassis__in=told, missing_since=None)
    fields = ("pk", "chassis", "name", "kind", "model", "slot__drawer__number", "slot__number", "serial_number",
              "firmware_version", "pcie_type", "max_pcie_type", "host_port", "host_port__host__name",
              "tenant__name")  # fmt: skip
    for (pk, chassis, name, kind, model, drawer, slot, serial, firmware, pcie, most_pcie, host_port, host,
         tenant) in rows.values_list(*fields):  # fmt: skip
        one = told[chassis]
        text = labels(chassis=one.name, drawer=drawer, slot=slot, device=name, kind=kind, model=model)
        one.objects["device", pk] = text
        more = labels(
            serial=serial, firmware=firmware, pcie=pcie, max_pcie=most_pcie, host_port=seen.get(host_port),
            host=host if host_port in seen else None, tenant=tenant,
        )  # fmt: skip
        one.devices.append(f"{text},{more}" if more else text)


def told_apart(texts: Sequence[tuple[int, str, str]]) -> list[str]:
    """Return label texts in which no two of a family are the same: `texts` has family, labels and key of each."""
    met: dict[tuple[int, str], list[int]] = defaultdict(list)
    for place, (family, text, _) in enumerate(texts):
        met[family, text].append(place)
    apart = [text for _, text, _ in texts]
    for places in met.values():
        if len(places) > 1:
            for place in places:
                apart[place] += "," + labels(series=texts[place][2])
    return apart
