"""Who holds what: devices and host ports of all chassis with their tenants, for the pages of administrators."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count
from django.dispatch import receiver

from accounts.models import Tenant
from accounts.signals import tenant_holdings
from fabric.models import Device, HostPort, Operation


@dataclass(frozen=True)
class Thing:
    """A device or host port as a row of the table; `holder` is None in the free pool."""

    pk: int
    name: str
    place: str
    what: str
    serial: str
    attached: str
    holder: Tenant | None
    mine: bool
    notes: tuple[str, ...] = ()

    @property
    def taken(self) -> bool:
        """Whether another tenant holds it."""
        return self.holder is not None and not self.mine


@dataclass
class Group:
    """What sits in one drawer of one chassis (drawer '': in none that the chassis names)."""

    chassis: str
    drawer: str
    devices: list[Thing] = field(default_factory=list)
    host_ports: list[Thing] = field(default_factory=list)


def holdings_table(tenant: Tenant) -> list[Group]:
    """Return all devices and host ports by chassis and drawer, seen from one tenant."""
    busy = dict(Operation.objects.open().filter(device__isnull=False).values_list("device_id", "summary"))
    groups: dict[tuple[str, int, str], Group] = {}
    ports = HostPort.objects.select_related("chassis", "drawer", "host", "tenant")
    for port in ports:
        group = _group(groups, port.chassis.name, port.drawer)
        group.host_ports.append(
            Thing(
                pk=port.pk,
                name=port.label,
                place=f"{port.chassis.name} {port.drawer.name if port.drawer else ''}".strip(),
                what="Host port",
                serial="",
                attached=port.host.name if port.host else "no host",
                holder=port.tenant,
                mine=port.tenant_id == tenant.pk,
                notes=("missing",) if port.missing_since else (),
            )
        )
    devices = Device.objects.select_related("chassis", "slot__drawer", "tenant", "host_port__host", "host_port__tenant")
    for device in devices:
        drawer = device.slot.drawer if device.slot else None
        at = device.host_port
        group = _group(groups, device.chassis.name, drawer)
        group.devices.append(
            Thing(
                pk=device.pk,
                name=device.name,
                place=f"{device.chassis.name} {device.slot.name if device.slot else 'outside slots'}",
                what=device.get_kind_display(),
                serial=device.serial_number,
                attached=f"{at.host.name if at.host else 'no host'} ({at.label})" if at else "no host",
                holder=device.tenant,
                mine=device.tenant_id == tenant.pk,
                notes=_notes(device, busy),
            )
        )
    return [groups[key] for key in sorted(groups)]


def holdings_revision() -> str:
    """Return a digest of all grants, which says whether anybody changed one since a page was shown."""
    state = [
        sorted(model.objects.filter(tenant__isnull=False).values_list("pk", "tenant_id").order_by())
        for model in (Device, HostPort)
    ]
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]


@receiver(tenant_holdings)
def tell_holdings(tenant_ids: list[int], **kwargs: Any) -> dict[int, list[str]]:
    """Say in words what tenants hold of the fabric."""
    found: dict[int, list[str]] = {}
    for model, one, more in ((Device, "device", "devices"), (HostPort, "host port", "host ports")):
        counted = model.objects.filter(tenant__in=tenant_ids).order_by().values_list("tenant").annotate(Count("pk"))
        for tenant_id, number in counted:
            found.setdefault(tenant_id, []).append(f"{number} {one if number == 1 else more}")
    return found


def _group(groups: dict[tuple[str, int, str], Group], chassis: str, drawer: Any) -> Group:
    # Whatever is in no drawer comes last.
    key = (chassis, drawer.number, drawer.name) if drawer else (chassis, 1_000_000, "")
    return groups.setdefault(key, Group(chassis=chassis, drawer=drawer.name if drawer else ""))


def _notes(device: Device, busy: dict[int, str]) -> tuple[str, ...]:
    notes = []
    if device.missing_since:
        notes.append("missing")
    if device.pk in busy:
        notes.append(f"an operation is open: {busy[device.pk]}")
    port = device.host_port
    if port is not None and device.tenant_id is not None and port.tenant_id != device.tenant_id:
        whose = f"held by {port.tenant.name}" if port.tenant else "free"
        notes.append(f"its host port {port.label} is {whose}")
    return tuple(notes)
