"""Drawers as they will be after all that was asked for already: what a new wish is judged by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fabric.bmc.types import DrawerMode
from fabric.models import Chassis, Device, Drawer, HostPort, Operation, Port
from fabric.planning import DeviceSeen, DrawerSeen, PortSeen, Setting
from fabric.rules import DrawerState

Place = tuple[int, int | None]  # a chassis and a drawer of it; None: what is in no drawer


@dataclass(kw_only=True)
class _Place:
    """A drawer while it is put together."""

    name: str
    mode: DrawerMode = DrawerMode.UNKNOWN
    ports: list[HostPort] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    hosts: dict[int, int | None] = field(default_factory=dict)
    attached: dict[int, int | None] = field(default_factory=dict)
    settings: dict[int, Setting] = field(default_factory=dict)


def drawers_seen(chassis: Collection[int]) -> dict[Place, DrawerSeen]:
    """Return all drawers of these chassis as they will be once every open operation is done.

    What is in no drawer is a place of its own. Parts that are missing are left out. Six queries, however many chassis.
    """
    places = {
        (row.chassis_id, row.pk): _Place(name=row.name, mode=_mode(row.mode))
        for row in Drawer.objects.filter(chassis__in=chassis, missing_since=None).order_by("chassis", "number", "pk")
    }
    places |= {
        (pk, None): _Place(name=name) for pk, name in Chassis.objects.filter(pk__in=chassis).values_list("pk", "name")
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
    _set_up(chassis, places)
    open_operations = Operation.objects.open().filter(chassis__in=chassis)
    _look_ahead(open_operations.in_turn(), places)
    return {
        (chassis_id, drawer_id): _seen(chassis_id, drawer_id, place)
        for (chassis_id, drawer_id), place in places.items()
    }


def drawer_seen(drawer: Drawer) -> DrawerSeen:
    """Return one drawer as it will be once every open operation is done; one that is missing has nothing in it."""
    found = drawers_seen([drawer.chassis_id]).get((drawer.chassis_id, drawer.pk))
    return found or _seen(drawer.chassis_id, drawer.pk, _Place(name=drawer.name, mode=_mode(drawer.mode)))


def drawer_state(drawer: Drawer) -> DrawerState:
    """Return a drawer as the rules see it, once every open operation is done."""
    return drawer_seen(drawer).state()


def _mode(text: str) -> DrawerMode:
    try:
        return DrawerMode(text)
    except ValueError:
        return DrawerMode.UNKNOWN


def _set_up(chassis: Collection[int], places: dict[Place, _Place]) -> None:
    """Note how the ports are configured that slots and host ports are on."""
    settings = {
        port.pk: Setting(port_type=port.port_type, configured_width=port.configured_width)
        for port in Port.objects.filter(chassis__in=chassis).only("pk", "port_type", "configured_width")
    }
    for place in places.values():
        behind = [port.port_id for port in place.ports]
        behind += [device.slot.port_id for device in place.devices if device.slot is not None]
        place.settings = {pk: settings[pk] for pk in behind if pk is not None and pk in settings}


def _look_ahead(operations: Iterable[Operation], places: dict[Place, _Place]) -> None:
    of_device = {device: place for place in places.values() for device in place.attached}
    of_port = {port: place for place in places.values() for port in place.hosts}
    of_setting: dict[int, list[_Place]] = defaultdict(list)
    for place in places.values():
        for port in place.settings:
            of_setting[port].append(place)
    for operation in operations:
        if operation.kind == Operation.Kind.MODE:
            if (drawer := places.get((operation.chassis_id, operation.drawer_id))) is not None:
                drawer.mode = _mode(operation.mode)
        elif operation.kind == Operation.Kind.CABLE:
            if operation.source_id in of_port:
                of_port[operation.source_id].hosts[operation.source_id] = operation.host_id
        elif operation.kind == Operation.Kind.PORT:
            for place in of_setting.get(operation.port_id or 0, []):
                place.settings[operation.port_id or 0] = Setting(**operation.setting)
        elif operation.device_id in of_device:
            of_device[operation.device_id].attached[operation.device_id] = operation.target_id


def _seen(chassis: int, drawer: int | None, place: _Place) -> DrawerSeen:
    return DrawerSeen(
        chassis=chassis,
        id=drawer,
        name=place.name,
        mode=place.mode,
        ports=tuple(
            PortSeen(id=row.pk, label=row.label, number=row.number, host=place.hosts[row.pk], port=row.port_id)
            for row in place.ports
        ),
        devices=tuple(
            DeviceSeen(
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
