"""Devices of a model for a host, as the site proposes them: healthy ones that nobody uses, with the fewest moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from django.db.models import QuerySet
from django.utils.text import capfirst

from accounts.models import User
from core.database import natural
from core.language import _
from fabric.agents.selectors import devices_on_hosts
from fabric.bmc.types import Dialect
from fabric.compose.selectors import AttachmentChange, use_label
from fabric.compose.services import changes_check
from fabric.inventory.labels import host_port_name, slot_label
from fabric.inventory.models import Device, Host, HostPort
from fabric.operations.projected_state import DrawerKey
from fabric.topology.problems import status_board


@dataclass(frozen=True, kw_only=True)
class GivableDevice:
    """A device that could be attached to the host, and what speaks for or against it.

    `cost` orders them: 0 detached, 1 would have to move, 2 has a problem, 3 is not possible.
    """

    change: AttachmentChange
    where: str
    now: str
    reason: str
    cost: int
    is_proposed: bool = False


@dataclass(frozen=True, kw_only=True)
class GiveProposal:
    """The devices for a host, best first, and how many of the model it has already."""

    devices: tuple[GivableDevice, ...]
    already: int
    wanted: int

    @property
    def proposed(self) -> int:
        """How many are proposed."""
        return len([one for one in self.devices if one.is_proposed])

    @property
    def movable(self) -> int:
        """How many more there are that would have to move from another host."""
        return len([one for one in self.devices if one.cost == 1])

    @property
    def unwell(self) -> int:
        """How many more there are that have a problem."""
        return len([one for one in self.devices if one.cost == 2])


def givable_hosts(person: User) -> list[Host]:
    """Return the hosts that devices can be attached to."""
    ports = _host_ports(person)
    return list(Host.objects.visible_to(person).filter(host_ports__in=ports).distinct())


def givable_models(person: User) -> list[str]:
    """Return the models of the devices that the person may see."""
    rows = Device.objects.visible_to(person).filter(missing_since=None).exclude(endpoint_uri="").order_by("name")
    return list(rows.values_list("name", flat=True).distinct())


def give_proposal(person: User, host: Host, name: str, count: int) -> GiveProposal:
    """Return the devices of a model for a host: `count` are proposed, or as many as are detached and well."""
    ports: dict[DrawerKey, HostPort] = {}
    for port in _host_ports(person).filter(host=host).order_by("-number"):
        ports[port.chassis_id, port.drawer_id] = port  # the first port of each drawer
    rows = (
        Device.objects.visible_to(person)
        .filter(name=name, chassis__in={chassis for chassis, _drawer in ports}, missing_since=None)
        .exclude(endpoint_uri="")
        .select_related("chassis", "slot__drawer", "slot__port", "tenant", "host_port__host")
        .order_by(natural("chassis__name"), "slot__drawer__number", "slot__number", "pk")
    )
    found = [one for one in rows if (one.chassis_id, one.slot.drawer_id if one.slot else None) in ports]
    here = [one for one in found if one.host_port is not None and one.host_port.host_id == host.pk]
    changes = [
        AttachmentChange(
            device=one,
            target=ports[one.chassis_id, one.slot.drawer_id if one.slot else None],
            expected=one.host_port,
        )
        for one in found
        if one not in here
    ]
    devices = sorted(_judged(person, changes), key=lambda one: one.cost)
    return GiveProposal(devices=tuple(_proposed(person, devices, count)), already=len(here), wanted=count)


def _host_ports(person: User) -> QuerySet[HostPort]:
    rows: QuerySet[HostPort] = HostPort.objects.visible_to(person).filter(missing_since=None, host__isnull=False)
    return rows.exclude(chassis__dialect=Dialect.NONE).select_related("host", "chassis", "tenant")


def _judged(person: User, changes: Collection[AttachmentChange]) -> Iterable[GivableDevice]:
    board = status_board(person, {one.device.chassis_id for one in changes})
    held = {one.expected.pk for one in changes if one.expected is not None}
    seen = set(HostPort.objects.visible_to(person).filter(pk__in=held).values_list("pk", flat=True))
    sides = devices_on_hosts([one.device for one in changes if one.device.host_port_id in seen])
    for one in changes:
        status = board.of("device", one.device.pk)
        port, tenant = one.target, one.device.tenant
        reason: str
        if one.expected is not None and one.expected.pk not in seen:
            cost, reason = 3, _("Attached to a host port that is not granted to you")
        elif tenant is not None and port is not None and tenant.pk != port.tenant_id:
            cost, reason = 3, _("Assigned to {tenant}", tenant=tenant.name)
        elif status is not None:
            cost, reason = 2, capfirst(status.words)
        elif one.expected is not None:
            cost, reason = 1, use_label(sides.get(one.device.pk))
        else:
            cost, reason = 0, _("Detached, unassigned")
            if tenant is not None:
                reason = _("Detached, assigned to {tenant}", tenant=tenant.name)
        yield GivableDevice(
            change=one,
            where=f"{one.device.chassis.name} · {slot_label(one.device)}".removesuffix(" · "),
            now=_(host_port_name(one.expected))
            if one.expected is None or one.expected.pk in seen
            else _("another host"),
            reason=reason,
            cost=cost,
        )


def _proposed(person: User, devices: list[GivableDevice], count: int) -> list[GivableDevice]:
    """Return the devices with `count` of them proposed: those that are free and that the rules permit together."""
    refused: dict[int, str] = {}
    while True:
        free = [one.change for one in devices if one.cost == 0 and one.change.device.pk not in refused][:count]
        obstacles = changes_check(person, free).obstacles if free else {}
        refused |= obstacles
        if not obstacles:
            break
    chosen = {one.device.pk for one in free}
    judged = [
        replace(one, cost=3, reason=refused[one.change.device.pk])
        if one.change.device.pk in refused
        else replace(one, is_proposed=one.change.device.pk in chosen)
        for one in devices
    ]
    return sorted(judged, key=lambda one: one.cost)
