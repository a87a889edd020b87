"""The fabric as a user sees it: the one source of topology, list and API.

Slots of others are masked here, before any page or endpoint reads them: a masked slot has a number and 'in use' or 'in
the pool', nothing else, as in the calendar of leases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import F, Q
from django.utils import timezone

from accounts.models import User
from core.errors import NotFound
from core.language import _
from core.text import natural_key
from fabric.bmc.chassis_profiles import ALL_MODES
from fabric.drift.selectors import DriftNotes, drift_notes
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, ManagedPart, Slot, Switch, Walk
from fabric.inventory.progress import limits_of, walk_progress_label
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
from fabric.operations.rules import MODE_VALUE_LABELS, mode_description, mode_violation
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
from fabric.topology.slot_pages import ShownSlots

MAX_HOST_PORTS_SHOWN = 100  # beside a part of the slots
# Columns of a device that whoever sees it may read as they are.
DEVICE_COLUMNS = (
    "id", "name", "kind", "model", "manufacturer", "serial_number", "vendor_id", "device_id", "firmware_version",
    "pcie_type", "max_pcie_type", "lanes_in_use", "max_lanes", "missing_since",
)  # fmt: skip


def found_devices(person: User, search: str) -> set[int]:
    """Return the devices (ids) that match a search; raises Invalid, or Unavailable without the values of now."""
    return set(device_rows(person, search=search).values_list("pk", flat=True))


def chassis_view(person: User, pk: int, shown: ShownSlots | None = None) -> ChassisView:
    """Return one chassis as the user sees it, or a part of its slots; raises NotFound where they do not."""
    # Not `in`: a database refuses numbers there that are too large.
    visible = Chassis.objects.visible_to(person).filter(pk=pk).values_list("pk", flat=True)
    found = fabric_view(person, chassis_ids=list(visible), shown=shown)
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
    chassis_ids: Collection[int] | None = None,
    search: str = "",
    shown: ShownSlots | None = None,
) -> tuple[ChassisView, ...]:
    """Return the chassis that the user may see, with a constant number of queries; 'falcon-2' before 'falcon-10'.

    `search` keeps the devices that match its words (slots stay in place): see `fabric.inventory.device_filter`.
    `shown` keeps these slots, the drawers that they are in, and some host ports, first those of their devices.
    """
    visible = Chassis.objects.visible_to(person)
    if chassis_ids is not None:
        visible = visible.filter(pk__in=chassis_ids)
    rows = sorted(visible, key=lambda row: natural_key(row.name.casefold()))
    ids = [row.pk for row in rows]
    notes = drift_notes(person, ids)
    devices = _devices(person, ids, notes, shown)
    host_ports = _host_ports(person, ids, notes, None if shown is None else devices)
    drawers = defaultdict(list)
    boxes = Drawer.objects.visible_to(person).filter(chassis__in=ids)
    for drawer in boxes if shown is None else boxes.filter(slots__in=shown.slots).distinct():
        drawers[drawer.chassis_id].append(drawer)
    switches = defaultdict(list)
    for switch in Switch.objects.visible_to(person).filter(chassis__in=ids):
        switches[switch.chassis_id, switch.drawer_id].append(switch.model or switch.name)
    found = None
    if search.strip():
        found = found_devices(person, search)
    slots = _slots(person, ids, devices, found, shown)
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
            limits=limits_of(row) if person.is_administrator else (),
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
    person: User,
    ids: list[int],
    devices: dict[int, DeviceView],
    found: Collection[int] | None,
    shown: ShownSlots | None,
) -> dict[tuple[int, int | None], list[SlotView]]:
    slots: dict[tuple[int, int | None], list[SlotView]] = defaultdict(list)
    rows = Slot.objects.filter(chassis__in=ids, missing_since=None).select_related("device")
    if shown is not None:
        rows = rows.filter(pk__in=shown.slots)
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
            inside = devices[device.pk]
            if found is not None and device.pk not in found:
                continue
            state: SlotState = "missing" if inside.missing_since else "occupied"
            view = SlotView(
                id=row.pk, number=row.number, state=state, device=inside, port_id=row.port_id, name=row.name
            )
        if found is None or view.device is not None:
            slots[row.chassis_id, row.drawer_id].append(view)
    outside = Device.objects.filter(chassis__in=ids, slot=None).order_by("chassis", "name", "uri")
    for pk, chassis in outside.values_list("pk", "chassis"):
        if (outer := devices.get(pk)) is not None and (found is None or pk in found):
            state = "missing" if outer.missing_since else "occupied"
            slots[chassis, None].append(SlotView(id=None, number=None, state=state, device=outer))
    return slots


def _pool_devices(ids: list[int]) -> set[int]:
    """Return the unassigned devices of these chassis (ids): those that a tenant may request."""
    free = Device.objects.filter(chassis__in=ids, tenant=None, missing_since=None)
    begun = LeaseItem.objects.filter(
        released_at=None, lease__state__in=(*Lease.BOOKED, Lease.State.ENDING), lease__starts_at__lte=timezone.now()
    )
    return set(free.exclude(lease_items__in=begun).values_list("pk", flat=True))


def _devices(person: User, ids: list[int], notes: DriftNotes, shown: ShownSlots | None) -> dict[int, DeviceView]:
    rows = (
        Device.objects.visible_to(person)
        .filter(chassis__in=ids)
        .select_related("host_port__host", "slot__port", "tenant")
    )
    if shown is not None:
        rows = rows.filter(Q(slot__in=shown.slots) | Q(pk__in=shown.devices))
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
    person: User, ids: list[int], notes: DriftNotes, devices: dict[int, DeviceView] | None
) -> dict[int, list[HostPortView]]:
    """Return the host ports of each chassis; with `devices` some, first those that these are attached to."""
    attached = defaultdict(list)
    there = Device.objects.visible_to(person).filter(chassis__in=ids, host_port__isnull=False)
    for pk, host_port in there.order_by("pk").values_list("pk", "host_port"):
        attached[host_port].append(pk)
    views = defaultdict(list)
    rows = HostPort.objects.visible_to(person).filter(chassis__in=ids, missing_since=None)
    if devices is not None:
        used = {device.host_port_id for device in devices.values()}
        order = sorted(rows.values_list("pk", flat=True), key=lambda pk: pk not in used)
        rows = rows.filter(pk__in=order[:MAX_HOST_PORTS_SHOWN])
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
    if drawer.mode not in ALL_MODES or not may_change_mode(person, drawer):
        return []
    projected = projected_drawer(drawer)
    draft = open_draft(person)
    drafted = projected_after(projected, DesiredState.from_json(draft.wanted) if draft is not None else DesiredState())
    return [
        ModeChoice(
            mode=mode.value,
            name=_(MODE_VALUE_LABELS[mode]),
            about=mode_description(projected.profile, mode),
            reason=mode_violation(projected.state(), mode),
            broken=attachments_broken_by_mode(drafted, mode),
        )
        for mode in projected.profile.mode_names
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
