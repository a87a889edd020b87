"""Rows of hardware for lists and details: a relation that leads to somebody else's thing ends in None.

Whoever shows such a row reads relations through their objects (`device.host_port`), never their numbers
(`device.host_port_id`): the numbers are in the row whoever may see what they name.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch, Q, QuerySet

from accounts.models import User
from fabric.models import Chassis, Device, Drawer, Host, HostPort, Operation, Port, Restricted, Slot, Switch

Rows = QuerySet[Any]


def drawer_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return drawers with their chassis, and with the host ports and switches that the person may see."""
    rows = _of_chassis(Drawer.objects.visible_to(person).select_related("chassis"), chassis)
    rows = rows.prefetch_related(
        _seen("host_ports", HostPort, person), _seen("switches", Switch, person), _open_operations(person)
    )
    return _found(rows, search, "name", "mode", "model", "serial_number", "chassis__name")


def slot_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return slots with their chassis, drawer, port and device; others' slots are none of them."""
    rows = _of_chassis(Slot.objects.visible_to(person).select_related("chassis", "drawer", "port"), chassis)
    rows = rows.prefetch_related(_seen("device", Device, person))
    return _found(rows, search, "name", "chassis__name", "drawer__name", "device__name", "device__serial_number")


def device_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return devices with their chassis, place, port, tenant, host port and open operation.

    `search` looks at what the fabric page looks at: name, model, serial number, kind, manufacturer, IDs, host, tenant.
    """
    rows: Rows = Device.objects.visible_to(person).select_related("chassis", "slot__drawer", "slot__port", "tenant")
    rows = _of_chassis(rows, chassis).prefetch_related(
        _seen("host_port", HostPort, person, "host"), _open_operations(person)
    )
    text = _words(search)
    if not text:
        return rows
    # By the name of a host only where the person sees it: else a search would tell it letter by letter.
    ports = HostPort.objects.visible_to(person).filter(host__name__icontains=text).values("pk")
    kinds = [kind.value for kind in Device.Kind if text.casefold() in kind.label.casefold()]
    fields = ("name", "model", "serial_number", "manufacturer", "vendor_id", "device_id", "tenant__name")
    return rows.filter(_contains(text, *fields) | Q(host_port__in=ports) | Q(kind__in=kinds))


def port_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return ports with their chassis and switch, and with the slot, device or host port that is on them."""
    rows = _of_chassis(Port.objects.visible_to(person).select_related("chassis", "switch"), chassis)
    rows = rows.prefetch_related(
        _seen("slot", Slot, person, "drawer", "device"), _seen("host_port", HostPort, person, "drawer", "host")
    )
    return _found(rows, search, "name", "port_id", "port_type", "link_status", "chassis__name")


def host_port_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return host ports with their chassis, drawer, port, host and tenant, and with the devices attached to them."""
    rows: Rows = HostPort.objects.visible_to(person).select_related("chassis", "drawer", "port", "host", "tenant")
    rows = _of_chassis(rows, chassis).prefetch_related(_seen("devices", Device, person))
    return _found(rows, search, "label", "name", "host__name", "tenant__name", "chassis__name")


def host_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return hosts with those of their host ports that the person may see, and the devices attached to these."""
    ports = HostPort.objects.visible_to(person).filter(missing_since=None)
    rows = Host.objects.visible_to(person)
    if chassis is not None:
        rows = rows.filter(pk__in=ports.filter(chassis=chassis).values("host"))
    shown = ports.select_related("chassis", "drawer")
    rows = rows.prefetch_related(
        Prefetch("host_ports", shown.prefetch_related(_seen("devices", Device, person)), to_attr="seen_ports")
    )
    return _found(rows, search, "name", "manufacturer", "model", "serial_number")


def switch_rows(person: User, *, search: str = "", chassis: int | None = None) -> Rows:
    """Return switch chips with their chassis and drawer."""
    rows = _of_chassis(Switch.objects.visible_to(person).select_related("chassis"), chassis)
    rows = rows.prefetch_related(_seen("drawer", Drawer, person))
    return _found(rows, search, "name", "model", "serial_number", "firmware_version", "chassis__name")


def operation_rows(
    person: User, *, chassis: int | None = None, device: int | None = None, state: str | None = None
) -> Rows:
    """Return operations, newest first, with what of their chassis, drawer, device and host ports the person may see.

    Whoever asked for an operation goes on seeing it when its device is granted to somebody else.
    """
    rows = Operation.objects.visible_to(person).order_by("-requested_at")
    if chassis is not None:
        rows = rows.filter(chassis__in=Chassis.objects.visible_to(person).filter(pk=chassis).values("pk"))
    if device is not None:
        rows = rows.filter(device__in=Device.objects.visible_to(person).filter(pk=device).values("pk"))
    if state is not None:
        rows = rows.filter(state=state)
    return rows.select_related("proof").prefetch_related(
        _seen("chassis", Chassis, person),
        _seen("drawer", Drawer, person),
        _seen("device", Device, person),
        _seen("source", HostPort, person),
        _seen("target", HostPort, person),
    )


def _of_chassis(rows: Rows, chassis: int | None) -> Rows:
    return rows if chassis is None else rows.filter(chassis=chassis)


def _seen(relation: str, model: Any, person: User, *related: str) -> Prefetch[Any]:
    rows: Restricted = model.objects.visible_to(person)
    return Prefetch(relation, rows.select_related(*related) if related else rows)


def _open_operations(person: User) -> Prefetch[Any]:
    rows = Operation.objects.visible_to(person).open()
    return Prefetch("operations", rows, to_attr="open_operations")


def _found(rows: Rows, search: str, *fields: str) -> Rows:
    text = _words(search)
    return rows.filter(_contains(text, *fields)) if text else rows


def _words(search: str) -> str:
    """Return what is looked for, as every database takes it."""
    return search.replace("\0", " ").strip()


def _contains(text: str, *fields: str) -> Q:
    found = Q()
    for field in fields:
        found |= Q((f"{field}__icontains", text))
    return found
