"""What the form of a run offers a person: hosts, where their devices stand now, and why some cannot be had."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from accounts.models import User
from benchmarks.runs.placing import HostChoice, hosts_for
from fabric.models import Chassis, Device, HostPort
from fabric.permissions import why_returning
from fabric.services.wording import monitored_only, place_of


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a device is, in words: `at` is the host and host port that have it, 'node-b (H2)', or '' where it is free.

    `drawer` tells drawers apart: ids of chassis and drawer, 0 for what is in none. `why_not` says why the person cannot
    have the device now, '' where they can.
    """

    drawer: tuple[int, int]
    drawer_name: str
    slot: str
    at: str
    why_not: str


@dataclass(frozen=True, kw_only=True)
class Offered:
    """Hosts, and standings by the devices' ids."""

    hosts: tuple[HostChoice, ...] = ()
    standings: Mapping[int, Standing] = field(default_factory=dict)


def offered_to(person: User) -> Offered:
    """Return what a person may choose among; three queries besides those of `hosts_for`, more while leases end."""
    hosts = hosts_for(person)
    ids = {device.id for host in hosts for device in host.devices}
    rows = Device.objects.filter(pk__in=ids).select_related("chassis", "slot__drawer", "host_port__host")
    devices = list(rows)
    seen = set(HostPort.objects.visible_to(person).values_list("pk", flat=True))
    returning = _returning(person, hosts)
    return Offered(
        hosts=hosts,
        standings={row.pk: _standing(row, seen, returning) for row in devices},
    )


def _standing(device: Device, seen: Collection[int], returning: Mapping[int, str]) -> Standing:
    slot, port = device.slot, device.host_port
    drawer = slot.drawer if slot is not None else None
    may_be_taken = port is None or port.pk in seen
    return Standing(
        drawer=(device.chassis_id, drawer.pk if drawer is not None else 0),
        drawer_name=f"{device.chassis.name} · {drawer.name}" if drawer is not None else device.chassis.name,
        slot=f"slot {slot.number}" if slot is not None and slot.number else slot.name if slot is not None else "",
        at="" if port is None else place_of(port) if may_be_taken else "another host",
        why_not=why_out_of_reach(device.chassis)
        or ("" if may_be_taken else "it is at a host port that is not granted to your tenant")
        or returning.get(device.pk, ""),
    )


def why_out_of_reach(chassis: Chassis) -> str:
    """Return why nothing of a chassis can be attached now, '' where it can."""
    if not chassis.is_composable:
        return monitored_only(chassis)
    if not chassis.enabled:
        return f"{chassis.name} is not polled: an administrator has it left out."
    return f"{chassis.name} does not answer now." if chassis.last_error else ""


def _returning(person: User, hosts: Collection[HostChoice]) -> dict[int, str]:
    """Return which devices are on their way back to the pool, with the sentence; one query while none is."""
    devices = {device.id for host in hosts for device in host.devices}
    if not why_returning(person, devices):
        return {}
    return {pk: why_returning(person, [pk]) for pk in devices}
