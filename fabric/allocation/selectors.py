"""The hardware as a user sees it, read from the database for exports and for the mapping of files.

Parts of other tenants are not included: a file that names them gets the same answer as one that names unknown parts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

from accounts.models import Tenant, User
from fabric.allocation.rules import (
    CHASSIS_FIELDS,
    DEVICE_FIELDS,
    SiteChassis,
    SiteDevice,
    SiteDrawer,
    SiteHardware,
    SiteHost,
    SitePort,
    field_values,
)
from fabric.bmc.types import DrawerMode
from fabric.inventory.labels import monitored_only_reason, no_endpoint_reason
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port
from fabric.inventory.selectors import drawers_changeable, may_move_cable
from fabric.operations.projected_state import DrawerKey, projected_drawers
from fabric.operations.rules import DrawerSnapshot, PortSetting

MODE_VALUES = {mode.value for mode in DrawerMode}


def visible_hardware(person: User, *, chassis_id: int | None = None, tenant: Tenant | None = None) -> SiteHardware:
    """Return the present hardware, of one chassis or one tenant if given: the content of an export."""
    devices = Device.objects.visible_to(person).filter(missing_since=None)
    host_ports = HostPort.objects.visible_to(person).filter(missing_since=None)
    chassis = Chassis.objects.visible_to(person)
    if chassis_id is not None:
        chassis = chassis.filter(pk=chassis_id)
    if tenant is not None:
        devices, host_ports = devices.filter(tenant=tenant), host_ports.filter(tenant=tenant)
    return _HardwareReader(person, chassis, devices, host_ports).site(owned_only=tenant is not None)


def projected_hardware(person: User) -> SiteHardware:
    """Return the hardware as it will be once all open operations are done: what a file is compared with."""
    devices = Device.objects.visible_to(person).filter(missing_since=None)
    host_ports = HostPort.objects.visible_to(person).filter(missing_since=None)
    reader = _HardwareReader(person, Chassis.objects.visible_to(person), devices, host_ports)
    reader.projected = projected_drawers([one.pk for one in reader.chassis])
    return reader.site(owned_only=False)


class _HardwareReader:
    def __init__(self, person: User, chassis: Any, devices: Any, host_ports: Any) -> None:
        self.person = person
        self.chassis = list(chassis.order_by("name"))
        self.projected: Mapping[DrawerKey, DrawerSnapshot] = {}
        pks = [row.pk for row in self.chassis]
        self.devices = list(
            devices.filter(chassis__in=pks).select_related("slot", "tenant").order_by("slot__number", "uri")
        )
        self.host_ports = list(
            host_ports.filter(chassis__in=pks).select_related("host", "tenant").order_by("number", "label", "uri")
        )
        self.drawers: dict[int, list[Drawer]] = defaultdict(list)
        for drawer in Drawer.objects.visible_to(person).filter(chassis__in=pks, missing_since=None):
            self.drawers[drawer.chassis_id].append(drawer)
        known = {one.pk for rows in self.drawers.values() for one in rows}
        self.changeable = drawers_changeable(person, known)
        self.things: dict[tuple[int, int | None], list[Device]] = defaultdict(list)
        for device in self.devices:
            drawer_id = device.slot.drawer_id if device.slot is not None else None
            self.things[device.chassis_id, drawer_id if drawer_id in known else None].append(device)
        self.ports: dict[tuple[int, int | None], list[HostPort]] = defaultdict(list)
        for port in self.host_ports:
            self.ports[port.chassis_id, port.drawer_id if port.drawer_id in known else None].append(port)
        self.seen_ports = {row.pk for row in self.host_ports}
        serials = Counter(_serial_key(row) for row in self.devices if row.serial_number)
        self.shared = {serial for serial, count in serials.items() if count > 1}
        self.labels = distinct_names({row.pk: (row.chassis_id, row.label or "?") for row in self.host_ports})
        behind = {row.port_id for row in self.host_ports} | {row.slot.port_id for row in self.devices if row.slot}
        ports = Port.objects.filter(pk__in=behind - {None}, missing_since=None)
        self.settings = {
            row.pk: PortSetting(port_type=row.port_type, configured_width=row.configured_width) for row in ports
        }
        hosts = Host.objects.visible_to(person) if may_move_cable(person) else Host.objects.none()
        self.hosts = {row.pk: _host(row) for row in hosts}

    def site(self, *, owned_only: bool) -> SiteHardware:
        """Return all of it; `owned_only` leaves out drawers and chassis with none of the devices and host ports."""
        owned = {row.chassis_id for row in (*self.devices, *self.host_ports)}
        return SiteHardware(
            chassis=tuple(
                self._chassis(row, owned_only=owned_only)
                for row in self.chassis
                if row.pk in owned or (self.person.is_administrator and not owned_only)
            ),
            hosts=tuple(self.hosts.values()),
            may_move_cables=may_move_cable(self.person),
            is_administrator=self.person.is_administrator,
        )

    def _chassis(self, row: Chassis, *, owned_only: bool) -> SiteChassis:
        drawers = sorted(self.drawers[row.pk], key=lambda one: (one.number, one.name, one.uri))
        numbers = Counter(one.number for one in drawers)
        names = distinct_names({one.pk: (row.pk, one.name or "Drawer") for one in drawers})
        found = [
            replace(
                self._place(row, one),
                number=one.number if numbers[one.number] == 1 else None,
                name=names[one.pk],
            )
            for one in drawers
        ]
        if self.things[row.pk, None] or self.ports[row.pk, None]:
            found.append(self._place(row, None))
        if owned_only:
            found = [one for one in found if one.devices or one.ports]
        return SiteChassis(
            id=row.pk,
            **field_values(row, CHASSIS_FIELDS),
            composable=row.is_composable,
            drawers=tuple(found),
        )

    def _place(self, chassis: Chassis, row: Drawer | None) -> SiteDrawer:
        """Return a drawer, or the parts outside drawers, without number and name."""
        pk = row.pk if row is not None else None
        devices, ports = self.things[chassis.pk, pk], self.ports[chassis.pk, pk]
        numbers = Counter(one.slot.number for one in devices if one.slot is not None)
        # In a slot, the slot identifies the device.
        loose = [one for one in devices if one.slot is None or numbers[one.slot.number] > 1]
        names = distinct_names({one.pk: (chassis.pk, one.name or "Device") for one in loose})
        mode = row.mode if row is not None and row.mode in MODE_VALUES else DrawerMode.UNKNOWN.value
        behind = {one.port_id for one in ports} | {one.slot.port_id for one in devices if one.slot is not None}
        settings = {port: self.settings[port] for port in behind if port is not None and port in self.settings}
        drawer = SiteDrawer(
            id=pk,
            number=None,
            name="",
            mode=mode,
            may_change_mode=row is not None
            and mode != DrawerMode.UNKNOWN
            and chassis.is_composable
            and row.pk in self.changeable,
            ports=tuple(self._port(one) for one in ports),
            devices=tuple(self._device(chassis, one, numbers, names.get(one.pk, one.name)) for one in devices),
            settings=settings,
        )
        snapshot = self.projected.get((chassis.pk, pk))
        return drawer if snapshot is None else self._projected(drawer, snapshot)

    def _projected(self, drawer: SiteDrawer, snapshot: DrawerSnapshot) -> SiteDrawer:
        attached = {one.id: one.attached for one in drawer.devices}
        attached |= {one.id: one.attached for one in snapshot.devices}
        cables = {port.id: port.host for port in snapshot.ports}
        known = {port.id for port in drawer.ports}

        def host_of(port: SitePort) -> SiteHost | None:
            host = cables.get(port.id, port.host.id if port.host is not None else None)
            return port.host if port.host is not None and port.host.id == host else self.hosts.get(host or 0)

        return replace(
            drawer,
            mode=snapshot.mode.value,
            ports=tuple(replace(port, host=host_of(port)) for port in drawer.ports),
            devices=tuple(
                replace(one, attached=attached[one.id], attached_elsewhere=attached[one.id] not in {None, *known})
                for one in drawer.devices
            ),
            settings={port: snapshot.settings.get(port, setting) for port, setting in drawer.settings.items()},
        )

    def _port(self, row: HostPort) -> SitePort:
        return SitePort(
            id=row.pk,
            label=self.labels[row.pk],
            number=row.number,
            host=_host(row.host) if row.host is not None else None,
            port=row.port_id,
            tenant=self._tenant(row.tenant),
        )

    def _device(self, chassis: Chassis, row: Device, numbers: Counter[int], name: str) -> SiteDevice:
        slot = row.slot
        fixed = ""
        if not chassis.is_composable:
            fixed = monitored_only_reason(chassis)
        elif not row.endpoint_uri:
            fixed = no_endpoint_reason(row)
        return SiteDevice(
            id=row.pk,
            **field_values(row, DEVICE_FIELDS) | {"name": name},
            has_unique_serial=bool(row.serial_number) and _serial_key(row) not in self.shared,
            slot=slot.number if slot is not None and numbers[slot.number] == 1 else None,
            port=slot.port_id if slot is not None else None,
            attached=row.host_port_id,
            attached_elsewhere=row.host_port_id is not None and row.host_port_id not in self.seen_ports,
            fixed=fixed,
            tenant=self._tenant(row.tenant),
        )

    def _tenant(self, tenant: Tenant | None) -> str:
        return tenant.name if tenant is not None and self.person.is_administrator else ""


def distinct_names(names: Mapping[int, tuple[Hashable, str]]) -> dict[int, str]:
    """Return names that are unique within their parent: duplicates get a number, in their order."""
    count = Counter(names.values())
    used: set[tuple[Hashable, str]] = {one for one, times in count.items() if times == 1}
    given: dict[int, str] = {}
    for pk, (holder, name) in names.items():
        chosen = name
        if count[holder, name] > 1:
            number = 1
            while (holder, chosen := f"{name} #{number}") in used:
                number += 1
            used.add((holder, chosen))
        given[pk] = chosen
    return given


def _serial_key(row: Device) -> tuple[str, str, str]:
    return row.manufacturer, row.model, row.serial_number


def _host(row: Host) -> SiteHost:
    return SiteHost(id=row.pk, name=row.name, identity=row.identity)
