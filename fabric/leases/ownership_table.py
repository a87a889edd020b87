"""The table of who owns or leases what: every device and host port, by chassis and drawer, for administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.paginator import Page, Paginator

from accounts.models import Tenant
from core.language import _
from core.text import natural_key
from fabric.inventory.models import Device, HostPort, LeasablePart
from fabric.operations.models import Operation

PARTS_A_PAGE = 40


@dataclass(frozen=True)
class OwnedPartRow:
    """A device or host port as a row of the table of ownership."""

    part: LeasablePart
    place: str
    attached: str
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a search covers, folded."""
        part = self.part
        words = [str(getattr(part, name, "")) for name in ("name", "label", "kind", "model", "serial_number")]
        return " ".join([*words, self.place, self.attached, part.tenant.name if part.tenant else ""]).casefold()


@dataclass
class OwnedPartGroup:
    """The parts in one drawer of one chassis (drawer '': outside named drawers)."""

    chassis: str
    drawer: str
    devices: list[OwnedPartRow] = field(default_factory=list)
    host_ports: list[OwnedPartRow] = field(default_factory=list)


def ownership_table() -> list[OwnedPartGroup]:
    """Return all devices and host ports by chassis and drawer."""
    busy = dict(Operation.objects.open().filter(device__isnull=False).values_list("device_id", "summary"))
    groups: dict[tuple[str, int, str], OwnedPartGroup] = {}
    for port in HostPort.objects.select_related("chassis", "drawer", "host", "tenant"):
        place = f"{port.chassis.name} {port.drawer.name if port.drawer else ''}".strip()
        host = port.host.name if port.host else _("no host")
        row = OwnedPartRow(port, place, host, (_("missing"),) if port.missing_since else ())
        _group(groups, port.chassis.name, port.drawer).host_ports.append(row)
    devices = Device.objects.select_related("chassis", "slot__drawer", "tenant", "host_port__host", "host_port__tenant")
    for device in devices:
        drawer = device.slot.drawer if device.slot else None
        at = device.host_port
        place = f"{device.chassis.name} {device.slot.name if device.slot else _('outside slots')}"
        host = f"{at.host.name if at.host else _('no host')} ({at.label})" if at else _("no host")
        row = OwnedPartRow(device, place, host, _row_notes(device, busy))
        _group(groups, device.chassis.name, drawer).devices.append(row)
    return [groups[key] for key in sorted(groups, key=lambda key: (natural_key(key[0].casefold()), key))]


@dataclass(frozen=True)
class OwnershipPage:
    """Some of the table of ownership, those of a tenant first; `kept` are the rest of the tenant's, as '1,2,3'."""

    groups: Sequence[OwnedPartGroup]
    page: Page[Any]
    kept: Mapping[str, str]


def ownership_page(tenant: Tenant, *, search: str = "", number: str | None = None) -> OwnershipPage:
    """Return a page of the devices and host ports whose texts have each word of a search."""
    words = search.casefold().split()
    found: list[tuple[OwnedPartGroup, str, OwnedPartRow]] = []
    own: dict[str, set[int]] = {"devices": set(), "host_ports": set()}
    for group in ownership_table():
        for field_name, rows in (("host_ports", group.host_ports), ("devices", group.devices)):
            own[field_name] |= {row.part.pk for row in rows if row.part.tenant_id == tenant.pk}
            found += [(group, field_name, row) for row in rows if all(word in row.text for word in words)]
    found.sort(key=lambda one: one[2].part.tenant_id != tenant.pk)
    page: Page[Any] = Paginator(found, PARTS_A_PAGE).get_page(number)
    groups: dict[tuple[str, str], OwnedPartGroup] = {}
    for group, field_name, row in page.object_list:
        shown = groups.setdefault((group.chassis, group.drawer), OwnedPartGroup(group.chassis, group.drawer))
        getattr(shown, field_name).append(row)
        own[field_name].discard(row.part.pk)
    kept = {field_name: ",".join(map(str, sorted(pks))) for field_name, pks in own.items()}
    return OwnershipPage(groups=list(groups.values()), page=page, kept=kept)


def _group(groups: dict[tuple[str, int, str], OwnedPartGroup], chassis: str, drawer: Any) -> OwnedPartGroup:
    # Parts outside drawers come last.
    key = (chassis, drawer.number, drawer.name) if drawer else (chassis, 1_000_000, "")
    return groups.setdefault(key, OwnedPartGroup(chassis=chassis, drawer=drawer.name if drawer else ""))


def _row_notes(device: Device, busy: dict[int, str]) -> tuple[str, ...]:
    notes = []
    if device.missing_since:
        notes.append(_("missing"))
    if device.pk in busy:
        notes.append(_("an operation is open: {operation}", operation=busy[device.pk]))
    port = device.host_port
    if port is not None and device.tenant_id is not None and port.tenant_id != device.tenant_id:
        if port.tenant:
            notes.append(_("its host port {label} is held by {tenant}", label=port.label, tenant=port.tenant.name))
        else:
            notes.append(_("its host port {label} is unassigned", label=port.label))
    return tuple(notes)
