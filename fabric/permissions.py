"""What a person may change: pure questions to rows, asked when something is wanted and again before it is done."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from accounts.models import User
from fabric.models import Device, Drawer, HostPort, Lease, LeaseItem, Operation, Port
from falconweb.errors import Forbidden


def refuse_onlooker(person: User, what: str = "change anything") -> None:
    """Raise Forbidden for those who may only look; `what` says what they may not."""
    if not person.may_compose:
        raise Forbidden(f"You may look, but not {what}. Ask an administrator for the role 'user'.")


def may_change_mode(person: User, drawer: Drawer) -> bool:
    """Tell whether the drawer's mode is the person's to change: an administrator's, or its only owner's."""
    return drawer.pk in drawers_changeable(person, [drawer.pk])


def drawers_changeable(person: User, drawers: Collection[int]) -> set[int]:
    """Return those drawers (ids) whose mode is the person's to change; three queries, however many there are."""
    if person.is_administrator:
        return set(drawers)
    if not person.may_compose or not drawers:
        return set()
    # What somebody holds counts also while the chassis does not report it: it may be back in a minute.
    there = Q(missing_since=None) | Q(tenant__isnull=False)
    devices = Device.objects.filter(there, slot__drawer__in=drawers)
    ports = HostPort.objects.filter(there, drawer__in=drawers)
    own = Q(tenant=person.tenant_id)
    shared = {*devices.exclude(own).values_list("slot__drawer", flat=True)}
    shared |= {*ports.exclude(own).values_list("drawer", flat=True)}
    return {pk for pk in ports.values_list("drawer", flat=True) if pk is not None} - shared


def may_configure(person: User, port: Port) -> bool:
    """Tell whether a port's type and lanes are the person's to set: an administrator's, or who holds what is on it."""
    return port.pk in ports_configurable(person, [port.pk])


def ports_configurable(person: User, ports: Collection[int]) -> set[int]:
    """Return those ports (ids) whose type and lanes are the person's to set; one query, however many there are."""
    if person.is_administrator:
        return set(ports)
    if not person.may_compose or not ports:
        return set()
    return set(Port.objects.visible_to(person).filter(pk__in=ports).values_list("pk", flat=True))


def may_move_cable(person: User) -> bool:
    """Tell whether the person may have a cable moved: hands in the lab are needed, and another host is reached."""
    return person.is_administrator


def why_returning(person: User, devices: Collection[int], host_ports: Collection[int] = ()) -> str:
    """Return why a member may attach none of these devices, at none of these host ports, any more; '' where they may.

    What a lease that is over held is on its way back to the pool: attached anew, it would never arrive.
    """
    if person.is_administrator:
        return ""
    leaving = LeaseItem.objects.filter(released_at=None, lease__state=Lease.State.ENDING)
    item = leaving.filter(Q(device__in=devices) | Q(host_port__in=host_ports)).first()
    return f"{item.name} is returning: lease {item.lease_id} is over. Ask for another one." if item else ""


def may_cancel(person: User, operation: Operation) -> bool:
    """Tell whether an operation is the person's to end: an administrator's, or of somebody of the same tenant."""
    return person.may_compose and (person.is_administrator or operation.tenant_id == person.tenant_id)
