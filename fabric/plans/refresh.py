"""Refresh of the stored allocation of a chassis from its BMC, ahead of the next walk.

Each function raises BmcError where the BMC cannot be read; the database is unchanged then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from core.database import fit_columns, lock_row, lock_rows
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient, retry_while_unreachable
from fabric.bmc.composition import read_cabled_host, read_drawer_mode, read_link, read_zones
from fabric.bmc.port_links import PortLink
from fabric.bmc.types import Dialect, DrawerMode
from fabric.history.services import NO_OPERATIONS, attachments_record
from fabric.inventory.access import chassis_client
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port
from fabric.inventory.rules import host_identity
from fabric.operations.models import Operation
from fabric.plans.rules import DesiredState


async def refresh_allocation(chassis: Chassis, desired: DesiredState) -> None:
    """Store the zone of each device and the mode of each drawer as the BMC reports them; few of a walk's requests.

    Of ports and cables it reads those in the desired state; of devices all but those that an operation reads back
    itself meanwhile. Retries an unreachable BMC as long as an operation does, then raises BmcError.
    """
    begun = timezone.now()
    address = await run_in_thread(chassis.address)
    dialect = Dialect(chassis.dialect)
    zones = await run_in_thread(lambda: list(HostPort.objects.filter(chassis=chassis, missing_since=None)))
    drawers = await run_in_thread(lambda: list(Drawer.objects.filter(chassis=chassis, missing_since=None)))
    ports = await run_in_thread(lambda: list(Port.objects.filter(chassis=chassis, pk__in=desired.settings)))
    async with chassis_client(chassis, address) as bmc:
        held = await retry_while_unreachable(partial(read_zones, bmc, [row.uri for row in zones], dialect))
        found = [(member, uri) for uri, zone in held.items() for member in zone.members]
        for drawer in drawers:
            await retry_while_unreachable(partial(refresh_mode, bmc, drawer))
        for port in ports:
            await retry_while_unreachable(partial(refresh_port, bmc, port))
        for row in zones:
            if row.pk in desired.cables:
                await retry_while_unreachable(partial(refresh_cable, bmc, row))
    newer = Operation.objects.at_work_since(begun).filter(chassis=chassis, device__isnull=False)
    devices = Device.objects.filter(chassis=chassis, missing_since=None).exclude(endpoint_uri="")
    devices = devices.exclude(pk__in=newer.values("device"))
    await run_in_thread(mirror_attachments, devices, zones={row.uri: row.pk for row in zones}, members=found)


async def refresh_mode(bmc: BmcClient, drawer: Drawer) -> DrawerMode:
    """Store the present mode of a drawer, and return it."""
    mode = await read_drawer_mode(bmc, drawer.uri)
    await run_in_thread(Drawer.objects.filter(pk=drawer.pk).update, mode=mode.value)
    return mode


async def refresh_port(bmc: BmcClient, port: Port) -> PortLink:
    """Store how a port is configured and its link trained, and return both."""
    link = await read_link(bmc, port.uri)
    values = {
        **_link_values(link), "port_type": link.port_type, "configured_width": link.configured_width,
        "link_state": link.link_state,
    }  # fmt: skip
    await run_in_thread(Port.objects.filter(pk=port.pk).update, **fit_columns(Port, values))
    return link


async def read_cabled_host_identity(bmc: BmcClient, host_port: HostPort) -> str:
    """Return the identity of the host that a host port's cable leads to, '' for none; stores nothing."""
    system = await read_cabled_host(bmc, host_port.endpoint_uri)
    return "" if system is None else host_identity(host_port.chassis_id, system)


async def refresh_cable(bmc: BmcClient, host_port: HostPort) -> str:
    """Store the host behind a host port, and return its identity; an unknown host is added by the next walk."""
    identity = await read_cabled_host_identity(bmc, host_port)
    host = await run_in_thread(Host.objects.filter(identity=identity).first) if identity else None
    await run_in_thread(HostPort.objects.filter(pk=host_port.pk).update, host=host)
    return identity


def mirror_attachment(
    device: Device, zone_uri: str, link: PortLink | None, operation: Operation, zones: Mapping[str, int]
) -> None:
    """Store that a device is in a zone ('': in none), and how the link of its slot has trained, after an operation.

    To be called in a transaction. `zones` has the host ports (ids) by the URIs of their zones.
    """
    row = lock_row(Device, device.pk)
    operations = {device.pk: operation} if operation.state in Operation.AT_WORK else {}
    _store_zones([] if row is None else [row], zones, [(device.endpoint_uri, zone_uri)], operations)
    if link is not None and device.slot is not None:
        values = _link_values(link) | (
            {} if link.configured_width is None else {"configured_width": link.configured_width}
        )
        Port.objects.filter(pk=device.slot.port_id or 0).update(**fit_columns(Port, values))


def mirror_attachments(
    devices: QuerySet[Any],
    *,
    zones: Mapping[str, int],
    members: Iterable[tuple[str, str]],
) -> None:
    """Store the zones of these devices of a chassis: `members` has the URIs of endpoints and of zones that they are in.

    `zones` has the host ports (ids) by the URIs of their zones. Of a device in several zones the stored one stays.
    """
    with transaction.atomic():
        rows = list(lock_rows(devices.only("endpoint_uri", "host_port")))
        _store_zones(rows, zones, members, NO_OPERATIONS)


def _store_zones(
    rows: Collection[Device],
    zones: Mapping[str, int],
    members: Iterable[tuple[str, str]],
    operations: Mapping[int, Operation],
) -> None:
    """Store the zones of locked devices; `operations` are known to be the cause, by device."""
    found: dict[str, list[int | None]] = {}
    for endpoint, zone in members:
        if zone in zones:
            found.setdefault(endpoint, []).append(zones[zone])
    for row in rows:
        at = found.get(row.endpoint_uri, [None])
        if row.host_port_id not in at:
            Device.objects.filter(pk=row.pk).update(host_port=at[0])
    attachments_record([row.pk for row in rows], operations=operations)


def _link_values(link: PortLink) -> dict[str, Any]:
    return {
        "link_status": link.status, "width": link.width, "active_width": link.active_width,
        "speed_gbps": link.speed_gbps, "max_speed_gbps": link.max_speed_gbps,
    }  # fmt: skip
