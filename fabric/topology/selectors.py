"""The fabric as a user sees it: the one source of topology, list and API.

Slots of others are masked here, before any page or endpoint reads them: a masked slot has a number and 'in use' or 'in
the pool', nothing else, as in the calendar of leases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import F
from django.utils import timezone

from accounts.models import User
from core.errors import NotFound
from core.language import _
from core.text import natural_key
from fabric.drift.selectors import DriftNotes, drift_notes
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, ManagedPart, Slot, Switch, Walk
from fabric.inventory.progress import walk_progress_label
from fabric.inventory.rules import CounterBaseline, counts_since
from fabric.inventory.selectors import (
    counter_baselines,
    device_rows,
    downgraded,
    host_link_degradation,
    may_change_mode,
)
from fabric.leases.models import Lease, LeaseItem
from fabric.operations.models import Operation
from fabric.operations.projected_state import projected_drawer
from fabric.operations.rules import MODE_DESCRIPTIONS, MODE_VALUE_LABELS, mode_violation
from fabric.plans.rules import DesiredState, projected_after
from fabric.plans.selectors import attachments_broken_by_mode, open_draft
from fabric.topology.layout import DraftMarks
from fabric.topology.presentation import (
    ChassisView,
    DeviceView,
    DrawerView,
    HostPortView,
    ModeChoice,
    SlotState,
    SlotView,
)

SLOTS_A_PAGE = 100
# Columns of a device that whoever sees it may read as they are.
DEVICE_COLUMNS = (
    "id", "name", "kind", "model", "manufacturer", "serial_number", "vendor_id", "device_id", "firmware_version",
    "pcie_type", "max_pcie_type", "lanes_in_use", "max_lanes", "missing_since",
)  # fmt: skip


def found_in_fabric(person: User, search: str) -> dict[int, ChassisView]:
    """Return the chassis, by id, with a device that fits a search: with those devices alone."""
    return {one.id: one for one in fabric_view(person, search=search) if any(drawer.slots for drawer in one.drawers)}


def slot_page(views: Iterable[ChassisView], number: str | None) -> Page[Any]:
    """Return a page of the slots of chassis, as chassis with these slots alone."""
    slots = [(one, drawer, slot) for one in views for drawer in one.drawers for slot in drawer.slots]
    page: Page[Any] = Paginator(slots, SLOTS_A_PAGE).get_page(number)
    page.object_list = [
        replace(
            one,
            drawers=tuple(
                replace(drawer, slots=tuple(slot for *_, slot in here))
                for drawer, here in groupby(of_chassis, itemgetter(1))
            ),
        )
        for one, of_chassis in groupby(page.object_list, itemgetter(0))
    ]
    return page


def chassis_view(person: User, pk: int) -> ChassisView:
    """Return one chassis as the user sees it; raises NotFound where they do not."""
    found = fabric_view(person, chassis_id=pk)
    if not found:
        raise NotFound(_("There is no such chassis."))
    return found[0]


def walked_front(person: User, pk: int) -> tuple[list[dict[str, Any]], bool | None]:
    """Return what only administrators see of a front, as of the newest walk: fans, and whether the location LED is lit.

    None: there is no LED.
    """
    walks = Walk.objects.filter(chassis=pk) if person.is_administrator else Walk.objects.none()
    fans = walks.values_list("found__fans", flat=True).first()
    led = ManagedPart.objects.filter(chassis__walk__in=walks, uri=F("chassis__uri")).first()
    return fans or [], led.is_lit if led is not None else None


def fabric_view(
    person: User,
    *,
    chassis_id: int | None = None,
    search: str = "",
) -> tuple[ChassisView, ...]:
    """Return the chassis that the user may see, with a constant number of queries; 'falcon-2' before 'falcon-10'.

    `search` keeps the devices that match its words (slots stay in place): see `fabric.inventory.device_filter`.
    """
    visible = Chassis.objects.visible_to(person)
    if chassis_id is not None:
        visible = visible.filter(pk=chassis_id)
    rows = sorted(visible, key=lambda row: natural_key(row.name.casefold()))
    ids = [row.pk for row in rows]
    notes = drift_notes(person, ids)
    devices = _devices(person, ids, notes)
    host_ports = _host_ports(person, ids, devices, notes)
    drawers = defaultdict(list)
    for drawer in Drawer.objects.visible_to(person).filter(chassis__in=ids):
        drawers[drawer.chassis_id].append(drawer)
    switches = defaultdict(list)
    for switch in Switch.objects.visible_to(person).filter(chassis__in=ids):
        switches[switch.chassis_id, switch.drawer_id].append(switch.model or switch.name)
    found = None
    if search.strip():
        found = set(device_rows(person, search=search).filter(chassis__in=ids).values_list("pk", flat=True))
    slots = _slots(person, ids, devices, found)
    return tuple(
        ChassisView(
            id=row.pk,
            name=row.name,
            model=row.model or row.product,
            serial_number=row.serial_number,
            firmware_version=row.firmware_version,
            health=row.health,
            dialect=row.dialect,
            monitored_only=not row.is_composable,
            enabled=row.enabled,
            # The sentence names the BMC's address, which tenants may not see.
            last_error=row.last_error
            if person.is_administrator or not row.last_error
            else _("This chassis is not answering."),
            refused_at=row.refused_at if person.is_administrator else None,
            next_sign_in_at=row.next_sign_in_at if person.is_administrator else None,
            inventory_at=row.inventory_at,
            drawers=_drawers(row, drawers[row.pk], switches, slots, notes),
            host_ports=tuple(host_ports[row.pk]),
            may_compose=person.may_compose and row.is_composable,
            progress=walk_progress_label(row),
            limits=tuple(one for one in (row.walk_limit, row.reading_limit) if one and person.is_administrator),
        )
        for row in rows
    )


def _drawers(
    row: Chassis,
    drawers: list[Drawer],
    switches: dict[tuple[int, int | None], list[str]],
    slots: dict[tuple[int, int | None], list[SlotView]],
    notes: DriftNotes,
) -> tuple[DrawerView, ...]:
    views = [
        DrawerView(
            id=drawer.pk,
            name=drawer.name,
            number=drawer.number,
            mode=drawer.mode,
            switches=tuple(switches[row.pk, drawer.pk]),
            slots=tuple(slots[row.pk, drawer.pk]),
            drift=notes.get(("drawer", drawer.pk), ""),
        )
        for drawer in drawers
    ]
    loose = slots.get((row.pk, None), [])
    chips = tuple(switches[row.pk, None])
    numbered = tuple(slot for slot in loose if slot.number is not None)
    outside = tuple(slot for slot in loose if slot.number is None)
    if numbered or chips:
        name = _("Slots") if numbered else _("Switch chips")
        views.append(DrawerView(id=None, name=name, number=0, mode="Unknown", switches=chips, slots=numbered))
    if outside:
        views.append(DrawerView(id=None, name=_("Outside slots"), number=0, mode="Unknown", switches=(), slots=outside))
    return tuple(views)


def _slots(
    person: User, ids: list[int], devices: dict[int, DeviceView], found: Collection[int] | None
) -> dict[tuple[int, int | None], list[SlotView]]:
    slots: dict[tuple[int, int | None], list[SlotView]] = defaultdict(list)
    rows = Slot.objects.filter(chassis__in=ids, missing_since=None).select_related("device")
    pool = set() if person.is_administrator else _pool_devices(ids)
    for row in rows.order_by("chassis", "drawer__number", "number", "uri"):
        device = getattr(row, "device", None)
        if device is None:
            view = SlotView(
                id=row.pk if person.is_administrator else None,
                number=row.number,
                state="empty",
                port_id=row.port_id if person.is_administrator else None,
                name=row.name if person.is_administrator else "",
            )
        elif device.pk not in devices and device.tenant_id is None and device.missing_since:
            view = SlotView(id=None, number=row.number, state="empty")  # it has no owner, and cannot be requested
        elif device.pk not in devices:
            view = SlotView(id=None, number=row.number, state="in_pool" if device.pk in pool else "in_use")
        else:
            shown = devices[device.pk]
            if found is not None and device.pk not in found:
                continue
            state: SlotState = "missing" if shown.missing_since else "occupied"
            view = SlotView(id=row.pk, number=row.number, state=state, device=shown, port_id=row.port_id, name=row.name)
        if found is None or view.device is not None:
            slots[row.chassis_id, row.drawer_id].append(view)
    outside = Device.objects.filter(pk__in=devices, slot=None).order_by("chassis", "name", "uri")
    for pk, chassis in outside.values_list("pk", "chassis"):
        shown = devices[pk]
        if found is None or pk in found:
            state = "missing" if shown.missing_since else "occupied"
            slots[chassis, None].append(SlotView(id=None, number=None, state=state, device=shown))
    return slots


def _pool_devices(ids: list[int]) -> set[int]:
    """Return the unassigned devices of these chassis (ids): those that a tenant may request."""
    free = Device.objects.filter(chassis__in=ids, tenant=None, missing_since=None)
    begun = LeaseItem.objects.filter(
        released_at=None, lease__state__in=(*Lease.BOOKED, Lease.State.ENDING), lease__starts_at__lte=timezone.now()
    )
    return set(free.exclude(lease_items__in=begun).values_list("pk", flat=True))


def _devices(person: User, ids: list[int], notes: DriftNotes) -> dict[int, DeviceView]:
    rows = (
        Device.objects.visible_to(person)
        .filter(chassis__in=ids)
        .select_related("host_port__host", "slot__port", "tenant")
    )
    open_operations = Operation.objects.visible_to(person).open().filter(chassis__in=ids)
    operations = dict(open_operations.values_list("device", "summary"))
    seen_ports = set(HostPort.objects.visible_to(person).filter(chassis__in=ids).values_list("pk", flat=True))
    counted = counter_baselines(person, ids)
    return {
        row.pk: _device(row, operations.get(row.pk, ""), seen_ports, notes.get(("device", row.pk), ""), counted)
        for row in rows
    }


def _device(
    row: Device,
    operation_summary: str,
    seen_ports: set[int],
    drift: str,
    counted: Mapping[int, CounterBaseline],
) -> DeviceView:
    port = row.slot.port if row.slot is not None else None
    host_port = row.host_port if row.host_port_id in seen_ports else None
    return DeviceView(
        **{name: getattr(row, name) for name in DEVICE_COLUMNS},
        kind_label=row.get_kind_display(),
        link_status=port.link_status if port is not None else "",
        downgraded=downgraded(row),
        host_port_id=host_port.pk if host_port is not None else None,
        host_name=host_port.host.name if host_port is not None and host_port.host is not None else "",
        host_port_label=host_port.label if host_port is not None else "",
        held_elsewhere=row.host_port_id is not None and host_port is None,
        tenant_name=row.tenant.name if row.tenant is not None else "",
        drift=drift,
        operation_summary=operation_summary,
        port_uri=port.uri if port is not None else "",
        errors_total=sum(counts_since(port.errors, counted.get(port.pk)).values()) if port is not None else 0,
    )


def _host_ports(
    person: User, ids: list[int], devices: dict[int, DeviceView], notes: DriftNotes
) -> dict[int, list[HostPortView]]:
    attached = defaultdict(list)
    for device in devices.values():
        attached[device.host_port_id].append(device.id)
    views = defaultdict(list)
    rows = HostPort.objects.visible_to(person).filter(chassis__in=ids, missing_since=None)
    for row in rows.select_related("host", "port", "tenant"):
        port = row.port
        views[row.chassis_id].append(
            HostPortView(
                id=row.pk,
                label=row.label,
                number=row.number,
                drawer_id=row.drawer_id,
                host_id=row.host_id,
                host_name=row.host.name if row.host is not None else "",
                port_id=row.port_id,
                width=port.width if port else None,
                active_width=port.active_width if port else None,
                speed_gbps=port.speed_gbps if port else None,
                max_speed_gbps=port.max_speed_gbps if port else None,
                link_status=port.link_status if port else "",
                downgraded=host_link_degradation(port),
                tenant_name=row.tenant.name if row.tenant is not None else "",
                device_ids=tuple(attached[row.pk]),
                drift=notes.get(("host-port", row.pk), ""),
            )
        )
    return views


def mode_choices(person: User, drawer: Drawer) -> list[ModeChoice]:
    """Return the modes that the user may request for a drawer; none where the chassis does not report its mode."""
    if drawer.mode not in MODE_DESCRIPTIONS or not may_change_mode(person, drawer):
        return []
    projected = projected_drawer(drawer)
    draft = open_draft(person)
    drafted = projected_after(projected, DesiredState.from_json(draft.wanted) if draft is not None else DesiredState())
    return [
        ModeChoice(
            mode=mode.value,
            name=_(MODE_VALUE_LABELS[mode]),
            about=_(about),
            reason=mode_violation(projected.state(), mode),
            broken=attachments_broken_by_mode(drafted, mode),
        )
        for mode, about in MODE_DESCRIPTIONS.items()
        if mode != drawer.mode
    ]


def draft_marks(person: User) -> DraftMarks:
    """Return the changes of the user's draft, as the topology draws them."""
    row = open_draft(person) if person.may_compose else None
    if row is None:
        return DraftMarks()
    wanted = DesiredState.from_json(row.wanted)
    hosts = {host for host in wanted.cables.values() if host is not None}
    named = dict(Host.objects.visible_to(person).filter(pk__in=hosts).values_list("pk", "name")) if hosts else {}
    return DraftMarks(
        targets=wanted.attachments,
        modes={pk: mode.value for pk, mode in wanted.modes.items()},
        cables={
            pk: named.get(host) or _("another host") if host else _("no host") for pk, host in wanted.cables.items()
        },
    )
