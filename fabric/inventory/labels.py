"""Names of hardware in sentences, by visibility: another tenant's host is not named."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from core.language import _, gettext_noop
from fabric.bmc.types import Dialect
from fabric.inventory.models import Chassis, Device, HostPort, LeasablePart

DIALECT_LABELS: Final = {
    Dialect.ZONE_PATCH: gettext_noop("Composed by changing zones"),
    Dialect.ZONE_ACTIONS: gettext_noop("Composed by the actions of zones"),
    Dialect.ZONE_POST: gettext_noop("Composed by creating and deleting zones"),
    Dialect.CONNECTIONS: gettext_noop("Composed by creating and deleting connections"),
    Dialect.CONNECTION_PATCH: gettext_noop("Composed by changing connections"),
    Dialect.RESOURCE_BLOCKS: gettext_noop("Composed by resource blocks"),
    Dialect.BLOCK_PATCH: gettext_noop("Composed by the lists of resource blocks of systems"),
    Dialect.SYSTEM_POST: gettext_noop("Composed by creating systems of resource blocks"),
    Dialect.COMPOSE: gettext_noop("Composed by manifests of the composition service"),
    Dialect.PORT_LINKS: gettext_noop("Composed by binding ports of virtual CXL switches"),
    Dialect.NONE: gettext_noop("Monitored only: what is attached is shown, not changed, as no way to attach is known"),
}


def dialect_label(dialect: str) -> str:
    """Return how the devices of a chassis are attached."""
    return _(DIALECT_LABELS.get(Dialect(dialect), dialect)) if dialect in set(Dialect) else dialect


def may_name_host(device: Device, port: HostPort) -> bool:
    """Return whether everybody who may see the device may also see the name and processes of the host behind a port."""
    return device.tenant_id in {None, port.tenant_id}


def host_port_name(port: HostPort | None) -> str:
    """Return the host behind a host port, with the port's label; 'no host' in English, as it is stored."""
    if port is None:
        return gettext_noop("no host")
    return f"{port.host.name} ({port.label})" if port.host else port.label


def monitored_only_reason(chassis: Chassis) -> str:
    """Return why a chassis without a dialect cannot be composed."""
    return _("{name} offers no way to attach or detach: it is monitored only.", name=chassis.name)


def no_endpoint_reason(device: Device) -> str:
    """Return why a device that is not part of the fabric cannot be composed."""
    return _("{name} has no endpoint in the fabric, so it cannot be attached.", name=device.name)


FOREIGN_HOST_PORT = gettext_noop("a host port that is not granted to you")


def device_label(device: Device) -> str:
    """Return the label of a device."""
    return f"{device.name}, serial number {device.serial_number}" if device.serial_number else device.name


def part_name(row: LeasablePart) -> str:
    """Return a part's name with its location, as it is stored in leases."""
    if isinstance(row, HostPort):
        return f"Host port {row.label} ({row.chassis.name})"[:300]
    slot, drawer = row.slot, row.slot.drawer if row.slot else None
    parts = [row.chassis.name, slot.name if slot else ""]
    # 'Drawer 1 slot 3' includes the drawer.
    if slot is not None and drawer is not None and drawer.name not in slot.name:
        parts.insert(1, drawer.name)
    return f"{row.name} ({' '.join(part for part in parts if part)})"[:300]


def slot_label(device: Device) -> str:
    """Return the location of a device: 'Drawer 1 slot 3', '' outside slots."""
    slot = device.slot
    if slot is None:
        return ""
    if slot.drawer is None or not slot.number:
        return slot.name
    return f"{slot.drawer.name} slot {slot.number}"[:200]


def redact_address(sentence: str, chassis: Chassis) -> str:
    """Return the sentence with the chassis' name in place of its BMC's address, which tenants may not see."""
    origin = urlsplit(chassis.url)
    for address in (chassis.url, origin.netloc, origin.hostname or ""):
        if address:
            sentence = re.sub(rf"(?<![\w.-]){re.escape(address)}(?![\w-])", lambda _match: chassis.name, sentence)
    return sentence
