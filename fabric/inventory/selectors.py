"""Visibility and permissions of the hardware: checked on request and again before a change.

Code that displays such a row reads relations through their objects (`device.host_port`), never their ids
(`device.host_port_id`): the ids are in the row even where the user may not see the object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.apps import apps
from django.db.models import Prefetch, Q, QuerySet

from accounts.models import User
from accounts.visibility import RestrictedQuerySet
from core.database import natural
from core.language import _, joined
from fabric.bmc.types import Inventory
from fabric.bmc.values import is_uuid_set
from fabric.inventory.device_filter import filter_query
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, ManagedPart, Port, Slot, Switch
from fabric.inventory.rules import LINK_SPEED_TOLERANCE, CounterBaseline


def may_change_mode(person: User, drawer: Drawer) -> bool:
    """Return whether the user may change the drawer's mode: administrators, and its only owner."""
    return drawer.pk in drawers_changeable(person, [drawer.pk])


def drawers_changeable(person: User, drawers: Collection[int]) -> set[int]:
    """Return those drawers (ids) whose mode the user may change, in three queries."""
    if person.is_administrator:
        return set(drawers)
    if not person.may_compose or not drawers:
        return set()
    # Missing parts count too: the chassis may report them again in a minute.
    there = Q(missing_since=None) | Q(tenant__isnull=False)
    devices = Device.objects.filter(there, slot__drawer__in=drawers)
    ports = HostPort.objects.filter(there, drawer__in=drawers)
    own = Q(tenant=person.tenant_id)
    shared = {*devices.exclude(own).values_list("slot__drawer", flat=True)}
    shared |= {*ports.exclude(own).values_list("drawer", flat=True)}
    return {pk for pk in ports.values_list("drawer", flat=True) if pk is not None} - shared


def may_configure(person: User, port: Port) -> bool:
    """Return whether the user may configure a port: administrators, and the owner of the part on it."""
    return port.pk in ports_configurable(person, [port.pk])


def ports_configurable(person: User, ports: Collection[int]) -> set[int]:
    """Return those ports (ids) that the user may configure, in one query."""
    if person.is_administrator:
        return set(ports)
    if not person.may_compose or not ports:
        return set()
    return set(Port.objects.visible_to(person).filter(pk__in=ports).values_list("pk", flat=True))


def may_move_cable(person: User) -> bool:
    """Return whether the user may change a cable: it needs work in the lab, and connects another host."""
    return person.is_administrator


@dataclass(frozen=True, kw_only=True)
class ReadingScope:
    """The readings of a chassis that a user may see: everything, or those of these devices and ports (row ids).

    `counted`: error counters before the grant, as (port, name of the counter, count).
    """

    everything: bool
    devices: frozenset[int] = frozenset()
    ports: frozenset[int] = frozenset()
    counted: frozenset[tuple[int, str, int]] = frozenset()


def reading_scope(person: User, chassis_id: int) -> ReadingScope | None:
    """Return the user's visibility of a chassis' readings, None where they may not see the chassis at all."""
    # No database holds a larger number, and a comparison with several fails on it.
    return reading_scopes(person, [chassis_id]).get(chassis_id) if chassis_id < 2**63 else None


def reading_scopes(person: User, chassis: Collection[int]) -> dict[int, ReadingScope]:
    """Return the user's visibility of the readings of those chassis (ids) that they may see, in a few queries.

    It is the same for all administrators, and for all members of a tenant.
    """
    visible = set(Chassis.objects.visible_to(person).filter(pk__in=chassis).values_list("pk", flat=True))
    if person.is_administrator or not visible:
        return dict.fromkeys(visible, ReadingScope(everything=True))
    devices, ports = (
        rows.objects.visible_to(person).filter(chassis__in=visible).values_list("pk", "chassis")
        for rows in (Device, Port)
    )
    found: dict[int, dict[str, set[Any]]] = {pk: {"devices": set(), "ports": set(), "counted": set()} for pk in visible}
    for device, pk in devices:
        found[pk]["devices"].add(device)
    chassis_of = dict(ports)
    for port, pk in chassis_of.items():
        found[pk]["ports"].add(port)
    for port, before in counter_baselines(person, visible).items():
        if port in chassis_of:
            found[chassis_of[port]]["counted"] |= {(port, name, count) for name, count in before.now.items() if count}
    return {
        pk: ReadingScope(everything=False, **{name: frozenset(parts) for name, parts in own.items()})
        for pk, own in found.items()
    }


@dataclass(frozen=True)
class ReadingOwner:
    """The owner of a reading: 'device', 'port' or 'drawer' with its row id, or 'chassis' with 0; `name` of the sensor.

    `related` are the URIs of the resources that the sensor measures, as it declares them.
    """

    kind: str
    id: int
    name: str = ""
    related: tuple[str, ...] = ()
    is_component: bool = False


def reading_owners(chassis_id: int, inventory: Inventory) -> dict[str, ReadingOwner]:
    """Return the owners of the readings of each resource URI of a chassis."""
    owners: dict[str, ReadingOwner] = {}
    # In no order: the default ones join other tables.
    drawers = dict(Drawer.objects.filter(chassis=chassis_id).order_by().values_list("uri", "pk"))
    named = [(one.uri, one.chassis_uri, one.name, one.related_uris) for one in inventory.sensors]
    named += [(one.uri, one.chassis_uri, one.name, ()) for one in inventory.fans]
    for uri, chassis_uri, name, related in named:
        drawer = drawers.get(chassis_uri)
        owners[uri] = (
            ReadingOwner("drawer", drawer, name, related) if drawer else ReadingOwner("chassis", 0, name, related)
        )
    for one in inventory.components:
        drawer = drawers.get(one.holder_uri)
        kind = "drawer" if drawer else "chassis"
        owners[one.uri] = ReadingOwner(kind, drawer or 0, one.name, is_component=True)
    owners |= {uri: ReadingOwner("drawer", pk) for uri, pk in drawers.items()}
    for pk, uri in Port.objects.filter(chassis=chassis_id).order_by().values_list("pk", "uri"):
        owners[uri] = ReadingOwner("port", pk)
    rows = Device.objects.filter(chassis=chassis_id, missing_since=None).order_by()
    for pk, uri, processor in rows.values_list("pk", "uri", "processor_uri"):
        owners[uri] = ReadingOwner("device", pk)
        if processor:
            owners[processor] = ReadingOwner("device", pk)
    return owners


Rows = QuerySet[Any]


def drawer_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return drawers with their chassis, and with the host ports and switches that the user may see."""
    rows = (
        Drawer.objects.visible_to(person)
        .select_related("chassis")
        .prefetch_related(
            visible_prefetch("host_ports", HostPort, person),
            visible_prefetch("switches", Switch, person),
            _open_operations(person),
        )
    )
    return _narrowed(rows, chassis, search, "name", "mode", "model", "serial_number", "chassis__name")


def slot_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return slots with their chassis, drawer, port and device; slots of others are left out."""
    rows = Slot.objects.visible_to(person).select_related("chassis", "drawer", "port")
    rows = rows.prefetch_related(visible_prefetch("device", Device, person))
    fields = ("name", "chassis__name", "drawer__name", "device__name", "device__serial_number")
    return _narrowed(rows, chassis, search, *fields)


def device_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return devices with their chassis, location, port, tenant, host port and open operation.

    `search` has the words of `fabric.inventory.device_filter`; raises Invalid for unknown ones.
    """
    rows = Device.objects.visible_to(person).select_related("chassis", "slot__drawer", "slot__port", "tenant")
    rows = rows.prefetch_related(
        visible_prefetch("host_port", HostPort, person, "host"),
        visible_prefetch("other_host_ports", HostPort, person),
        _open_operations(person),
    )
    if chassis is not None:
        rows = rows.filter(chassis=chassis)
    seen = Chassis.objects.visible_to(person).order_by()
    return rows.filter(filter_query(person, search, lambda: list(seen.values_list("pk", flat=True))))


def port_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return ports with their chassis and switch, and with the slot, device or host port that is on them."""
    rows = (
        Port.objects.visible_to(person)
        .select_related("chassis", "switch")
        .prefetch_related(
            visible_prefetch("slot", Slot, person, "drawer", "device"),
            visible_prefetch("host_port", HostPort, person, "drawer", "host"),
        )
    )
    return _narrowed(rows, chassis, search, "name", "port_id", "port_type", "link_status", "chassis__name")


def host_port_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return host ports with their chassis, drawer, port, host and tenant, and with the devices attached to them."""
    rows = HostPort.objects.visible_to(person).select_related("chassis", "drawer", "port", "host", "tenant")
    rows = rows.prefetch_related(
        visible_prefetch("devices", Device, person), visible_prefetch("other_devices", Device, person)
    )
    return _narrowed(rows, chassis, search, "label", "name", "host__name", "tenant__name", "chassis__name")


def host_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return hosts with those of their host ports that the user may see, and the devices attached to these."""
    ports = HostPort.objects.visible_to(person).filter(missing_since=None)
    rows = Host.objects.visible_to(person)
    if chassis is not None:
        rows = rows.filter(pk__in=ports.filter(chassis=chassis).values("host"))
    shown = ports.select_related("chassis", "drawer").prefetch_related(visible_prefetch("devices", Device, person))
    rows = rows.prefetch_related(Prefetch("host_ports", shown, to_attr="seen_ports"))
    return _narrowed(rows, None, search, "name", "manufacturer", "model", "serial_number")


def switch_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return switch chips with their chassis and drawer."""
    rows = Switch.objects.visible_to(person).select_related("chassis")
    rows = rows.prefetch_related(visible_prefetch("drawer", Drawer, person))
    return _narrowed(rows, chassis, search, "name", "model", "serial_number", "firmware_version", "chassis__name")


def _narrowed(rows: Rows, chassis: int | None, search: str, *fields: str) -> Rows:
    """Return those rows of a chassis (id) that have a text in one of these fields."""
    if chassis is not None:
        rows = rows.filter(chassis=chassis)
    if text := search.replace("\0", " ").strip():  # PostgreSQL accepts no NUL
        contains = (Q((f"{field}__icontains", text)) for field in fields)
        rows = rows.filter(reduce(or_, contains))
    return rows


def visible_prefetch(relation: str, model: Any, person: User, *related: str) -> Prefetch[Any]:
    rows: RestrictedQuerySet = model.objects.visible_to(person)
    return Prefetch(relation, rows.select_related(*related) if related else rows)


def _open_operations(person: User) -> Prefetch[Any]:
    # Operations belong to a higher feature; the relation to them is Django's, and their rows are only prefetched.
    operation: Any = apps.get_model("fabric", "Operation")
    rows = operation.objects.visible_to(person).open()
    return Prefetch("operations", rows, to_attr="open_operations")


# Takes the ids of a tenant and of chassis; returns the baselines by the ports' ids.
CounterBaselineSource = Callable[[int, Collection[int]], Mapping[int, CounterBaseline]]
_counter_baseline_sources: list[CounterBaselineSource] = []


def register_counter_baseline(source: CounterBaselineSource) -> None:
    """Register the source of counter baselines in a room above."""
    if source not in _counter_baseline_sources:
        _counter_baseline_sources.append(source)


def counter_baselines(person: User, chassis: Collection[int]) -> Mapping[int, CounterBaseline]:
    """Return the counters of ports of chassis (ids) before the user's grant; nothing for administrators."""
    if person.is_administrator or person.tenant_id is None:
        return {}
    found: dict[int, CounterBaseline] = {}
    for source in _counter_baseline_sources:
        found |= source(person.tenant_id, chassis)
    return found


def interrupted_devices(part: ManagedPart) -> QuerySet[Device]:
    """Return the devices whose links a reset of a part may interrupt: none for a BMC."""
    match part.kind:
        case ManagedPart.Kind.CHASSIS | ManagedPart.Kind.SOFTWARE:  # of software its part is not known
            here = Q(chassis=part.chassis_id)
        case ManagedPart.Kind.DRAWER:
            here = Q(slot__drawer=part.drawer_id, slot__drawer__isnull=False)
        case ManagedPart.Kind.SWITCH:
            switch = Q(slot__port__switch=part.switch_id) | Q(host_port__port__switch=part.switch_id)
            here = switch & Q(chassis=part.chassis_id) if part.switch_id else Q(pk=None)
        case ManagedPart.Kind.HOST:
            here = Q(host_port__host=part.host_id, host_port__host__isnull=False)
        case _:
            here = Q(pk=part.device_id)
    return Device.objects.filter(here).distinct()


def interrupted_ports(part: ManagedPart) -> set[int]:
    """Return the ports (ids) of its chassis whose links a reset or an update of a part may interrupt."""
    slots = Q(slot__device__in=interrupted_devices(part).values("pk"))
    match part.kind:
        case ManagedPart.Kind.CHASSIS | ManagedPart.Kind.SOFTWARE:  # of software its part is not known
            here = Q(chassis=part.chassis_id)
        case ManagedPart.Kind.DRAWER if part.drawer_id:
            here = slots | Q(host_port__drawer=part.drawer_id) | Q(slot__drawer=part.drawer_id)
        case ManagedPart.Kind.SWITCH if part.switch_id:
            here = slots | Q(switch=part.switch_id)
        case ManagedPart.Kind.HOST if part.host_id:
            here = slots | Q(host_port__host=part.host_id)
        case _:
            here = slots
    return set(Port.objects.filter(here, chassis=part.chassis_id).values_list("pk", flat=True))


def same_hardware(row: Chassis) -> list[Chassis]:
    """Return the other chassis with the same hardware, by their UUID or by manufacturer, model and serial number."""
    same = Q(pk=None) if row.shares_uuid else uuid_query(row.uuid) & Q(shares_uuid=False)
    if row.serial_number:
        same |= Q(serial_number=row.serial_number, manufacturer=row.manufacturer, model=row.model)
    return list(Chassis.objects.filter(same).exclude(pk=row.pk).order_by(natural("name")))


def uuid_query(uuid: str) -> Q:
    """Return the query for the chassis of a UUID: none for '' and for the zeros of firmware that has no id."""
    return Q(uuid__iexact=uuid) if is_uuid_set(uuid) else Q(pk=None)


def downgraded(device: Device) -> str:
    """Return how a device's link runs below its capability ('x8 of x16', 'Gen2 of Gen3'), or ''.

    A link at the configured width of its port is not degraded.
    """
    parts: list[str] = []
    port = device.slot.port if device.slot is not None else None
    configured = port.configured_width if port is not None and port.configured_width else None
    lanes = min((known for known in (device.max_lanes, configured) if known), default=None)
    if device.lanes_in_use and lanes and device.lanes_in_use < lanes:
        parts.append(_("x{now} of x{most}", now=device.lanes_in_use, most=lanes))
    if device.pcie_type and device.max_pcie_type and device.pcie_type < device.max_pcie_type:
        parts.append(_("{now} of {most}", now=device.pcie_type, most=device.max_pcie_type))
    return joined(parts, ", ")


def host_link_degradation(port: Port | None) -> str:
    """Return how the link of a host port runs below the port's capability ('x8 of x16', '128 of 256 Gb/s'), or ''.

    Not for ports of slots: there the device may have the lower capability.
    """
    if port is None or port.link_status != "LinkUp":
        return ""
    lanes = min((known for known in (port.width, port.configured_width) if known), default=None)
    if port.active_width and lanes and port.active_width < lanes:
        return _("x{now} of x{most}", now=port.active_width, most=lanes)
    share = lanes / port.width if lanes and port.width else 1.0
    if port.speed_gbps and port.max_speed_gbps and port.speed_gbps < LINK_SPEED_TOLERANCE * share * port.max_speed_gbps:
        return _("{now:g} of {most:g} Gb/s", now=port.speed_gbps, most=port.max_speed_gbps)
    return ""
