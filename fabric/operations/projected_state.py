"""Drawers as they will be after all open operations: the state that new requests are checked against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Final

from django.db.models import Q

from core.database import CompiledQuery
from fabric.bmc.chassis_profiles import ChassisProfile, profile_of
from fabric.bmc.hardware import parse_drawer_mode
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.operations.models import Operation
from fabric.operations.rules import DeviceSnapshot, DrawerSnapshot, PortSetting, PortSnapshot

# What is read of each: a request reads the drawers of a chassis.
PORT_FIELDS = ("chassis", "drawer", "port", "host", "label", "number")
DEVICE_FIELDS = (
    "chassis", "name", "host_port", "serial_number", "manufacturer", "model", "vendor_id", "device_id",
    "slot__drawer", "slot__number", "slot__port",
)  # fmt: skip
OPERATION_FIELDS = ("kind", "drawer", "device", "source", "target", "host", "port", "mode", "setting")

DrawerKey = tuple[int, int | None]  # a chassis and a drawer of it; None: parts outside drawers


def _parts(here: Q, drawer: Any = None) -> tuple[Any, Any, Any, Any]:
    """Return the host ports, devices and ports that are `here`, of all drawers or one, and the open operations."""
    of_drawers, of_slots, of_parts = Q(), Q(), Q()
    if drawer is not None:
        of_drawers, of_slots = Q(drawer=drawer), Q(slot__drawer=drawer)
        of_parts = of_slots | Q(host_port__drawer=drawer)
    devices = Device.objects.filter(here & of_slots, missing_since=None).select_related("slot").only(*DEVICE_FIELDS)
    return (
        HostPort.objects.filter(here & of_drawers, missing_since=None).only(*PORT_FIELDS).order_by("number", "pk"),
        devices.order_by("slot__number", "pk"),
        Port.objects.filter(here & of_parts).only("pk", "port_type", "configured_width").order_by(),
        Operation.objects.open().filter(here).only(*OPERATION_FIELDS).in_turn(),
    )


def _of_drawer(place: int) -> CompiledQuery[Any]:
    return CompiledQuery(lambda chassis, drawer: _parts(Q(chassis=chassis), drawer)[place])


PARTS_OF_DRAWER: Final = tuple(map(_of_drawer, range(4)))


def projected_drawers(chassis: Collection[int], *, only: Drawer | None = None) -> dict[DrawerKey, DrawerSnapshot]:
    """Return all drawers of these chassis as they will be once every open operation is done, or `only` this one.

    Parts outside drawers have a snapshot of their own; missing parts are left out. Six queries, however many chassis.
    """
    drawers: Iterable[Drawer]
    rows: Iterable[tuple[int, str, str, str]]
    if only is None:
        here = Q(chassis__in=chassis)
        drawers = Drawer.objects.filter(here, missing_since=None).only("chassis", "name", "mode")
        drawers = drawers.order_by("chassis", "number", "pk")
        rows = Chassis.objects.filter(pk__in=chassis).values_list("pk", "name", "manufacturer", "model")
        ports, devices, links, operations = _parts(here)
    else:
        drawers, its = [only] * (only.missing_since is None), only.chassis
        rows = [(its.pk, its.name, its.manufacturer, its.model)]
        ports, devices, links, operations = (one.objects(its.pk, only.pk) for one in PARTS_OF_DRAWER)
    names: dict[DrawerKey, str] = {(row.chassis_id, row.pk): row.name for row in drawers}
    profiles: dict[int, ChassisProfile] = {}
    for pk, name, *model in rows:
        names[pk, None], profiles[pk] = name, profile_of(*model)
    modes: dict[int | None, DrawerMode] = {row.pk: parse_drawer_mode(row.mode) for row in drawers}
    hosts: dict[int | None, int | None] = {port.pk: port.host_id for port in ports}
    attached: dict[int | None, int | None] = {device.pk: device.host_port_id for device in devices}
    settings: dict[int | None, PortSetting] = {
        port.pk: PortSetting(port_type=port.port_type, configured_width=port.configured_width) for port in links
    }
    for operation in operations:
        match operation.kind:
            case Operation.Kind.MODE:
                modes[operation.drawer_id] = parse_drawer_mode(operation.mode)
            case Operation.Kind.CABLE:
                hosts[operation.source_id] = operation.host_id
            case Operation.Kind.PORT:
                settings[operation.port_id] = PortSetting(**operation.setting)
            case Operation.Kind.TRIAL:
                pass  # its device is back where it was, at the end
            case _:
                attached[operation.device_id] = operation.target_id
    ports_in: dict[DrawerKey, list[PortSnapshot]] = defaultdict(list)
    devices_in: dict[DrawerKey, list[DeviceSnapshot]] = defaultdict(list)
    for port in ports:
        key = (port.chassis_id, port.drawer_id)
        snapshot = PortSnapshot(
            id=port.pk, label=port.label, number=port.number, host=hosts[port.pk], port=port.port_id
        )
        ports_in[key if key in names else (port.chassis_id, None)].append(snapshot)
    for device in devices:
        slot = device.slot
        key = (device.chassis_id, slot.drawer_id if slot is not None else None)
        part = DeviceSnapshot(
            id=device.pk,
            name=device.name,
            slot=slot.number if slot is not None else 0,
            attached=attached[device.pk],
            identity=device.identity,
            port=slot.port_id if slot is not None else None,
        )
        devices_in[key if key in names else (device.chassis_id, None)].append(part)
    return {
        (pk, drawer): DrawerSnapshot(
            chassis=pk,
            id=drawer,
            name=name,
            mode=modes[drawer] if drawer is not None else DrawerMode.UNKNOWN,
            ports=tuple(ports_in[pk, drawer]),
            devices=tuple(devices_in[pk, drawer]),
            profile=profiles[pk],
            settings={
                behind: settings[behind]
                for behind in (
                    *(one.port for one in ports_in[pk, drawer]),
                    *(one.port for one in devices_in[pk, drawer]),
                )
                if behind is not None and behind in settings
            },
        )
        for (pk, drawer), name in names.items()
    }


def projected_drawer(drawer: Drawer) -> DrawerSnapshot:
    """Return a drawer, just read, as it will be once every open operation is done; a missing one is empty."""
    found = projected_drawers([drawer.chassis_id], only=drawer).get((drawer.chassis_id, drawer.pk))
    return found or DrawerSnapshot(
        chassis=drawer.chassis_id,
        id=drawer.pk,
        name=drawer.name,
        mode=parse_drawer_mode(drawer.mode),
        ports=(),
        devices=(),
        profile=profile_of(drawer.chassis.manufacturer, drawer.chassis.model),
    )
