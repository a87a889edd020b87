"""From the hardware as a person sees it to a document: in one order, so that the same state is the same bytes."""

from __future__ import annotations

from fabric.allocation.document import (
    NOTHING,
    ChassisEntry,
    DeviceEntry,
    Document,
    DrawerEntry,
    HostEntry,
    HostPortEntry,
    SlotEntry,
)
from fabric.allocation.schema import MOST_LANES
from fabric.allocation.site import Site, SiteChassis, SiteDevice, SiteDrawer, SitePort
from fabric.planning import Setting


def document_of(site: Site, *, scope: str = "everything", scope_name: str = "") -> Document:
    """Return what a file says of the site: chassis by name, drawers, host ports and slots by number."""
    return Document(scope=scope, scope_name=scope_name, chassis=tuple(_chassis(one) for one in site.chassis))


def _chassis(row: SiteChassis) -> ChassisEntry:
    return ChassisEntry(
        name=row.name,
        uuid=row.uuid,
        manufacturer=row.manufacturer,
        model=row.model,
        serial_number=row.serial_number,
        drawers=tuple(_drawer(one) for one in row.drawers),
    )


def _drawer(row: SiteDrawer) -> DrawerEntry:
    labels = {port.id: port.label for port in row.ports}
    return DrawerEntry(
        number=row.number,
        name=row.name,
        mode=row.mode if row.id is not None else "",
        host_ports=tuple(_host_port(port, row) for port in row.ports),
        slots=tuple(_slot(device, row, labels) for device in row.devices),
    )


def _host_port(row: SitePort, drawer: SiteDrawer) -> HostPortEntry:
    host = HostEntry(name=row.host.name, identity=row.host.identity) if row.host else None
    setting = _setting(row.port, drawer)
    return HostPortEntry(
        label=row.label, host=host, port_type=setting.port_type, lanes=setting.configured_width, tenant=row.tenant
    )


def _slot(row: SiteDevice, drawer: SiteDrawer, labels: dict[int, str]) -> SlotEntry:
    setting = _setting(row.port, drawer)
    elsewhere = row.held_elsewhere or (row.attached is not None and row.attached not in labels)
    return SlotEntry(
        slot=row.slot,
        device=DeviceEntry(
            name=row.name,
            kind=row.kind,
            manufacturer=row.manufacturer,
            model=row.model,
            serial_number=row.serial_number if row.is_told_by_serial else "",
        ),
        attached_to=NOTHING if elsewhere else None if row.attached is None else labels[row.attached],
        port_type=setting.port_type,
        lanes=setting.configured_width,
        tenant=row.tenant,
    )


def _setting(port: int | None, drawer: SiteDrawer) -> Setting:
    known = drawer.settings.get(port, Setting()) if port is not None else Setting()
    lanes = known.configured_width
    return Setting(port_type=known.port_type, configured_width=lanes if lanes and 1 <= lanes <= MOST_LANES else None)
