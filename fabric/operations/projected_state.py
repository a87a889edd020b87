"""Drawers as they will be after all open operations: the state that new requests are checked against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fabric.bmc.hardware import parse_drawer_mode
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.operations.models import Operation
from fabric.operations.rules import DeviceSnapshot, DrawerSnapshot, PortSetting, PortSnapshot

DrawerKey = tuple[int, int | None]  # a chassis and a drawer of it; None: parts outside drawers


@dataclass(kw_only=True)
class _DrawerBuilder:
    """A drawer under construction."""

    name: str
    mode: DrawerMode = DrawerMode.UNKNOWN
    ports: list[HostPort] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    hosts: dict[int, int | None] = field(default_factory=dict)
    attached: dict[int, int | None] = field(default_factory=dict)
    settings: dict[int, PortSetting] = field(default_factory=dict)


def projected_drawers(chassis: Collection[int]) -> dict[DrawerKey, DrawerSnapshot]:
    """Return all drawers of these chassis as they will be once every open operation is done.

    Parts outside drawers have a snapshot of their own; missing parts are left out. Six queries, however many chassis.
    """
    places = {
        (row.chassis_id, row.pk): _DrawerBuilder(name=row.name, mode=parse_drawer_mode(row.mode))
        for row in Drawer.objects.filter(chassis__in=chassis, missing_since=None).order_by("chassis", "number", "pk")
    }
    places |= {
        (pk, None): _DrawerBuilder(name=name)
        for pk, name in Chassis.objects.filter(pk__in=chassis).values_list("pk", "name")
    }
    for port in HostPort.objects.filter(chassis__in=chassis, missing_since=None).order_by("number", "pk"):
        place = places.get((port.chassis_id, port.drawer_id)) or places[port.chassis_id, None]
        place.ports.append(port)
        place.hosts[port.pk] = port.host_id
    devices = Device.objects.filter(chassis__in=chassis, missing_since=None).select_related("slot")
    for device in devices.order_by("slot__number", "pk"):
        drawer = device.slot.drawer_id if device.slot is not None else None
        place = places.get((device.chassis_id, drawer)) or places[device.chassis_id, None]
        place.devices.append(device)
        place.attached[device.pk] = device.host_port_id
    _load_port_settings(chassis, places)
    open_operations = Operation.objects.open().filter(chassis__in=chassis)
    _apply_open_operations(open_operations.in_turn(), places)
    return {
        (chassis_id, drawer_id): _snapshot(chassis_id, drawer_id, place)
        for (chassis_id, drawer_id), place in places.items()
    }


def projected_drawer(drawer: Drawer) -> DrawerSnapshot:
    """Return one drawer as it will be once every open operation is done; a missing one is empty."""
    found = projected_drawers([drawer.chassis_id]).get((drawer.chassis_id, drawer.pk))
    return found or _snapshot(
        drawer.chassis_id, drawer.pk, _DrawerBuilder(name=drawer.name, mode=parse_drawer_mode(drawer.mode))
    )


def _load_port_settings(chassis: Collection[int], places: dict[DrawerKey, _DrawerBuilder]) -> None:
    """Add the settings of the ports of slots and host ports."""
    settings = {
        port.pk: PortSetting(port_type=port.port_type, configured_width=port.configured_width)
        for port in Port.objects.filter(chassis__in=chassis).only("pk", "port_type", "configured_width")
    }
    for place in places.values():
        behind = [port.port_id for port in place.ports]
        behind += [device.slot.port_id for device in place.devices if device.slot is not None]
        place.settings = {pk: settings[pk] for pk in behind if pk is not None and pk in settings}


def _apply_open_operations(operations: Iterable[Operation], places: dict[DrawerKey, _DrawerBuilder]) -> None:
    of_device = {device: place for place in places.values() for device in place.attached}
    of_port = {port: place for place in places.values() for port in place.hosts}
    of_setting: dict[int, list[_DrawerBuilder]] = defaultdict(list)
    for place in places.values():
        for port in place.settings:
            of_setting[port].append(place)
    for operation in operations:
        if operation.kind == Operation.Kind.MODE:
            if (drawer := places.get((operation.chassis_id, operation.drawer_id))) is not None:
                drawer.mode = parse_drawer_mode(operation.mode)
        elif operation.kind == Operation.Kind.CABLE:
            if operation.source_id in of_port:
                of_port[operation.source_id].hosts[operation.source_id] = operation.host_id
        elif operation.kind == Operation.Kind.PORT:
            for place in of_setting.get(operation.port_id or 0, []):
                place.settings[operation.port_id or 0] = PortSetting(**operation.setting)
        elif operation.device_id in of_device:
            of_device[operation.device_id].attached[operation.device_id] = operation.target_id


def _snapshot(chassis: int, drawer: int | None, place: _DrawerBuilder) -> DrawerSnapshot:
    return DrawerSnapshot(
        chassis=chassis,
        id=drawer,
        name=place.name,
        mode=place.mode,
        ports=tuple(
            PortSnapshot(id=row.pk, label=row.label, number=row.number, host=place.hosts[row.pk], port=row.port_id)
            for row in place.ports
        ),
        devices=tuple(
            DeviceSnapshot(
                id=row.pk,
                name=row.name,
                slot=row.slot.number if row.slot is not None else 0,
                attached=place.attached[row.pk],
                identity=row.identity,
                port=row.slot.port_id if row.slot is not None else None,
            )
            for row in place.devices
        ),
        settings=place.settings,
    )
