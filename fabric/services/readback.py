"""Single parts of a chassis, read from its BMC into the mirror ahead of the next walk: what an operation has changed.

Each raises BmcError where it cannot be read; then the mirror stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from fabric.bmc.cabling import read_cabled_host
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import PortSetting, read_drawer_mode, read_link, read_port_setting
from fabric.bmc.types import DrawerMode, Link
from fabric.models import Device, Drawer, Host, HostPort, Port
from fabric.services.history import attachments_follow
from fabric.services.locks import locked_rows
from fabric.services.sync import fitting, host_identity
from falconweb.threads import in_thread


async def mode_read(bmc: BmcClient, drawer: Drawer) -> DrawerMode:
    """Mirror the mode that a drawer is in, and return it."""
    mode = await read_drawer_mode(bmc, drawer.uri)
    await in_thread(Drawer.objects.filter(pk=drawer.pk).update, mode=mode.value)
    return mode


async def port_read(bmc: BmcClient, port: Port) -> PortSetting:
    """Mirror how a port is set up and how its link has trained, and return how it is set up."""
    setting = await read_port_setting(bmc, port.uri)
    link = await read_link(bmc, port.uri)
    values = {
        **_of_link(link), "port_type": setting.port_type, "configured_width": setting.configured_width,
        "link_state": setting.link_state,
    }  # fmt: skip
    await in_thread(Port.objects.filter(pk=port.pk).update, **fitting(Port, values))
    return setting


async def cabled_host(bmc: BmcClient, host_port: HostPort) -> str:
    """Return the identity of the host that a host port's cable leads to, '' for none; nothing is mirrored."""
    system = await read_cabled_host(bmc, host_port.endpoint_uri)
    return "" if system is None else host_identity(host_port.chassis_id, system)


async def cable_read(bmc: BmcClient, host_port: HostPort) -> str:
    """Mirror the host behind a host port, and return its identity; one that is unknown yet comes by a walk."""
    identity = await cabled_host(bmc, host_port)
    host = await in_thread(Host.objects.filter(identity=identity).first) if identity else None
    await in_thread(HostPort.objects.filter(pk=host_port.pk).update, host=host)
    return identity


async def attachment_read(bmc: BmcClient, device: Device, zone_uri: str) -> None:
    """Mirror that a device is in a zone ('': in none), and how the link of its slot has trained."""
    behind = device.slot.port if device.slot is not None else None
    link = None if behind is None else await read_link(bmc, behind.uri)
    own = Device.objects.filter(pk=device.pk)
    await in_thread(attachments_mirror, own, chassis=device.chassis_id, zones={device.endpoint_uri: zone_uri})
    if behind is not None and link is not None:
        values = _of_link(link) | ({} if link.configured_width is None else {"configured_width": link.configured_width})
        await in_thread(Port.objects.filter(pk=behind.pk).update, **fitting(Port, values))


def attachments_mirror(devices: QuerySet[Any], *, chassis: int, zones: Mapping[str, str]) -> None:
    """Mirror where these devices of a chassis are: `zones` has the zone's URI of each endpoint that is in one."""
    ports = dict(HostPort.objects.filter(chassis=chassis).values_list("uri", "pk"))
    with transaction.atomic():
        rows = list(locked_rows(devices))
        for row in rows:
            found = ports.get(zones.get(row.endpoint_uri, ""))
            if row.host_port_id != found:
                Device.objects.filter(pk=row.pk).update(host_port=found)
        attachments_follow([row.pk for row in rows])


def _of_link(link: Link) -> dict[str, Any]:
    return {
        "link_status": link.status, "width": link.width, "active_width": link.active_width,
        "speed_gbps": link.speed_gbps, "max_speed_gbps": link.max_speed_gbps,
    }  # fmt: skip
