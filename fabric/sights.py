"""Whose the readings of a chassis are, which of them a person sees, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Max, QuerySet

from accounts.models import User
from fabric.bmc.types import Inventory
from fabric.counted import counted_before
from fabric.models import Attachment, Chassis, Device, Drawer, HostPort, Port


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What of a chassis' readings a person may see: everything, or those of these devices and ports (row ids).

    `counted`: what error counters had before they were the person's, as (port, name of the counter, count).
    """

    everything: bool
    devices: frozenset[int] = frozenset()
    ports: frozenset[int] = frozenset()
    counted: frozenset[tuple[int, str, int]] = frozenset()


def sight_of(person: User, chassis_id: int) -> Sight | None:
    """Return the person's sight of a chassis' readings, None where they may not see the chassis at all."""
    if not Chassis.objects.visible_to(person).filter(pk=chassis_id).exists():
        return None
    if person.is_administrator:
        return Sight(everything=True)
    return Sight(
        everything=False,
        devices=frozenset(Device.objects.visible_to(person).filter(chassis=chassis_id).values_list("pk", flat=True)),
        ports=frozenset(Port.objects.visible_to(person).filter(chassis=chassis_id).values_list("pk", flat=True)),
        counted=frozenset(
            (port, name, count)
            for port, before in counted_before(person, [chassis_id]).items()
            for name, count in before.now.items()
            if count
        ),
    )


@dataclass(frozen=True)
class Owner:
    """Whose reading it is: 'device', 'port' or 'drawer' with its row id, or 'chassis' with 0; `name` of the sensor.

    `related` are the URIs of what the sensor says that it measures.
    """

    kind: str
    id: int
    name: str = ""
    related: tuple[str, ...] = ()


def owners_of_readings(chassis_id: int, inventory: Inventory) -> dict[str, Owner]:
    """Return whom the readings of each resource URI of a chassis belong to."""
    owners: dict[str, Owner] = {}
    drawers = dict(Drawer.objects.filter(chassis=chassis_id).values_list("uri", "pk"))
    named = [(one.uri, one.chassis_uri, one.name, one.related_uris) for one in inventory.sensors]
    named += [(one.uri, one.chassis_uri, one.name, ()) for one in inventory.fans]
    for uri, chassis_uri, name, related in named:
        drawer = drawers.get(chassis_uri)
        owners[uri] = Owner("drawer", drawer, name, related) if drawer else Owner("chassis", 0, name, related)
    for pk, uri in Port.objects.filter(chassis=chassis_id).values_list("pk", "uri"):
        owners[uri] = Owner("port", pk)
    rows = Device.objects.filter(chassis=chassis_id, missing_since=None)
    for pk, uri, processor in rows.values_list("pk", "uri", "processor_uri"):
        owners[uri] = Owner("device", pk)
        if processor:
            owners[processor] = Owner("device", pk)
    return owners


def held_since(chassis_id: int) -> dict[tuple[str, int], datetime]:
    """Return since when devices and ports of a chassis are whose they are; those never granted are left out.

    A port is a tenant's no longer than its device is behind it: what was there before may have been another's.
    """
    since: dict[tuple[str, int], datetime] = {}
    left = others_left(Attachment.objects.filter(chassis=chassis_id))
    devices = Device.objects.filter(chassis=chassis_id, tenant_since__isnull=False)
    for pk, port, at in devices.values_list("pk", "slot__port", "tenant_since"):
        since["device", pk] = at
        if port is not None:
            since["port", port] = max(at, left.get(port, at))
    host_ports = HostPort.objects.filter(chassis=chassis_id, tenant_since__isnull=False, port__isnull=False)
    for port, at in host_ports.values_list("port", "tenant_since"):
        since["port", port] = at
    return since


def others_left(attachments: QuerySet[Attachment]) -> dict[int, datetime]:
    """Return when the last other device left a slot, by the slot's port: of slots in which another one is now."""
    rows = attachments.filter(slot__port__isnull=False, slot__device__isnull=False, until__isnull=False)
    rows = rows.exclude(device=F("slot__device"))
    last: QuerySet[Any, Any] = rows.order_by().values("slot__port").annotate(left=Max("until"))
    return {row["slot__port"]: row["left"] for row in last}
