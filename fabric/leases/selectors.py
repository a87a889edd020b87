"""Leases as users see them: lists, notices, and candidates for a request."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Prefetch, Q, QuerySet
from django.dispatch import receiver
from django.utils import timezone

from accounts.models import User
from accounts.selectors import tenant_assets
from core.database import natural
from core.language import Text, _, _n, joined
from fabric.inventory.labels import part_name
from fabric.inventory.models import Chassis, Device, HostPort, LeasablePart
from fabric.leases.models import HOST_PORT, KINDS, Lease, LeaseItem, kind_of
from fabric.leases.ownership import booked_items
from fabric.leases.quotas import count_label
from fabric.leases.rules import RequestedParts, TimeSpan, end_label, format_instant
from fabric.leases.usage import idle_items
from fabric.operations.selectors import ATTACHMENT_CHECKS

ENDING_SOON = timedelta(days=7)
MAX_NOTE_LENGTH = 60
KIND_ORDER = {kind: place for place, (kind, _label) in enumerate(KINDS)}


@dataclass(frozen=True)
class LeaseNotice:
    """A notice about a lease; `bad` where something is wrong now."""

    sentence: str
    lease_id: int
    bad: bool = False


@dataclass(frozen=True)
class LeaseCandidate:
    """A device or host port that a lease could include; `why_not` says who has it then, '' where it is unassigned."""

    thing: LeasablePart
    kind: str
    name: str
    attached: str
    why_not: str
    proposed: bool

    @property
    def field(self) -> str:
        """The name of its checkbox in a form."""
        return "host_ports" if self.kind == HOST_PORT else "devices"

    @property
    def ticked_as(self) -> str:
        """Its checkbox with its value: 'devices/3'."""
        return f"{self.field}/{self.thing.pk}"

    @property
    def kind_label(self) -> str:
        return str(dict(KINDS)[self.kind])


def lease_rows(person: User, *, state: str = "", tenant: int | None = None) -> QuerySet[Any]:
    """Return the leases that a user may see, newest first, with their items."""
    rows = Lease.objects.visible_to(person).select_related("tenant", "plan")
    if state:
        rows = rows.filter(state=state)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    items = LeaseItem.objects.select_related("device", "host_port").order_by("pk")
    return rows.prefetch_related(Prefetch("items", items)).order_by("-pk")


def leases_pending(person: User) -> QuerySet[Any]:
    """Return the requests and extension requests that wait for a decision, oldest first."""
    waits = Q(state=Lease.State.REQUESTED) | Q(extension_to__isnull=False, state__in=Lease.BOOKED)
    return lease_rows(person).filter(waits).order_by("asked_at", "pk")


def leases_current(person: User) -> QuerySet[Any]:
    """Return returning, active and future leases: the next end first."""
    rows = lease_rows(person).filter(state__in=(*Lease.BOOKED, Lease.State.ENDING))
    return rows.order_by(F("ends_at").asc(nulls_last=True), "pk")


def leases_past(person: User) -> QuerySet[Any]:
    """Return ended leases, the newest first."""
    final = (Lease.State.DECLINED, Lease.State.WITHDRAWN, Lease.State.ENDED)
    return lease_rows(person).filter(state__in=final).order_by(F("ended_at").desc(nulls_last=True), "-pk")


def lease_notices(person: User) -> list[LeaseNotice]:
    """Return the notices about leases for a user, worst first."""
    now = timezone.now()
    rows = list(Lease.objects.visible_to(person).open())
    idle: dict[int, int] = Counter(item.lease_id for item in idle_items(rows))
    bad, rest = [], []
    for lease in sorted(rows, key=lambda one: (one.ends_at is None, one.ends_at or now, one.pk)):
        if person.is_administrator:
            whose = _("Lease {lease} of {tenant}", lease=lease.pk, tenant=lease.tenant_name)
        else:
            whose = _("Lease {lease}", lease=lease.pk)
        if lease.state == Lease.State.ENDING and lease.trouble:
            sentence = _("{lease} is over and cannot be returned yet: {reason}", lease=whose, reason=lease.trouble)
            bad.append(LeaseNotice(sentence, lease.pk, bad=True))
        elif lease.state == Lease.State.ENDING:
            rest.append(LeaseNotice(_("{lease} is over: its parts are being returned.", lease=whose), lease.pk))
        elif lease.state == Lease.State.ACTIVE and lease.ends_at is not None and lease.ends_at - now < ENDING_SOON:
            sentence = _("{lease} ends at {time}.", lease=whose, time=format_instant(lease.ends_at))
            rest.append(LeaseNotice(sentence, lease.pk))
        if person.is_administrator and lease.state == Lease.State.REQUESTED:
            sentence = _(
                "Lease {lease}: {name} of {tenant} asks for {parts}{note}.",
                lease=lease.pk,
                name=lease.asked_by_name,
                tenant=lease.tenant_name,
                parts=requested_label(lease),
                note=_shortened(lease.note),
            )
            rest.insert(0, LeaseNotice(sentence, lease.pk))
        elif person.is_administrator and lease.extension_to is not None:
            sentence = _("{lease}: extension requested {end}.", lease=whose, end=end_label(lease.extension_to))
            rest.insert(0, LeaseNotice(sentence, lease.pk))
        if number := idle.get(lease.pk, 0):
            sentence = _n(
                "{lease} has {count} unused device.", "{lease} has {count} unused devices.", number, lease=whose
            )
            rest.append(LeaseNotice(sentence, lease.pk))
    return bad + rest


def _shortened(note: str) -> str:
    """Return a note as the end of a sentence; '' for none."""
    line = " ".join(note.split())
    return f": ‘{line if len(line) <= MAX_NOTE_LENGTH else line[: MAX_NOTE_LENGTH - 1] + '…'}’" if line else ""


def items_label(items: Iterable[LeaseItem]) -> str:
    """Return '2 GPUs, 1 host port' for the unreleased items."""
    counts = Counter(item.kind for item in items if item.released_at is None)
    return ", ".join(count_label(kind, counts[kind]) for kind in sorted(counts, key=KIND_ORDER.__getitem__))


def free_counts() -> dict[str, int]:
    """Return how many parts of each kind are unassigned, by kind; kinds without one are left out."""
    free = Device.objects.filter(tenant=None, missing_since=None).order_by().values_list("kind").annotate(Count("pk"))
    found = dict(free)
    if ports := HostPort.objects.filter(tenant=None, missing_since=None).count():
        found[HOST_PORT] = ports
    return {kind: found[kind] for kind, _label in KINDS if kind in found}


def requested_parts(lease: Lease) -> list[RequestedParts]:
    return [RequestedParts(one["kind"], one["count"], one["chassis"]) for one in lease.wishes]


def lease_candidates(lease: Lease, span: TimeSpan) -> list[LeaseCandidate]:
    """Return the candidates for a request within a span, of the requested kinds; the best ones are proposed.

    Parts near the tenant's host ports come first, then parts of one drawer; a part that another lease needs then names
    it. Without a request everything is returned, and nothing proposed.
    """
    wishes = requested_parts(lease)
    kinds = {wish.kind for wish in wishes} or set(KIND_ORDER)
    things = _leasable_parts(kinds)
    needed: dict[LeasablePart | None, str] = {}
    for item in booked_items(things, span, but=lease if lease.pk else None):
        tenant, end = item.lease.tenant_name, end_label(item.lease.ends_at)
        held = _("held by {tenant} {end}", tenant=tenant, end=end)
        promised = _("promised to {tenant} {end}", tenant=tenant, end=end)
        needed.setdefault(item.thing, held if item.taken_at else promised)
    if span.begin <= timezone.now():
        returning = LeaseItem.objects.filter(released_at=None, taken_at__isnull=False, lease__state=Lease.State.ENDING)
        for item in returning.select_related("lease", "device", "host_port"):
            needed.setdefault(item.thing, _("still returning from {tenant}", tenant=item.lease.tenant_name))
    near = set(HostPort.objects.filter(tenant=lease.tenant_id).values_list("chassis", "drawer"))
    chassis = {pk for pk, _drawer in near}
    free = [one for one in things if one not in needed]
    room = Counter(_drawer_key(one) for one in free)

    def order(one: LeasablePart) -> tuple[int, ...]:
        here = _drawer_key(one)
        attached = isinstance(one, Device) and one.host_port_id is not None
        return here not in near, one.chassis_id not in chassis, -room[here], *here, attached, one.pk

    free.sort(key=order)
    chosen = set(_proposed_parts(wishes, free))
    rows = [
        LeaseCandidate(
            thing=one,
            kind=kind_of(one),
            name=part_name(one),
            attached=_attachment_label(one),
            why_not=needed.get(one, ""),
            proposed=one in chosen,
        )
        for one in things
    ]
    return sorted(rows, key=lambda one: (KIND_ORDER[one.kind], bool(one.why_not), not one.proposed, one.thing.pk))


def shortages(lease: Lease, found: Iterable[LeaseCandidate]) -> list[str]:
    """Return a sentence for each kind of which fewer are free than were requested."""
    proposed = Counter(one.kind for one in found if one.proposed)
    requested: Counter[str] = Counter()
    for wish in requested_parts(lease):
        requested[wish.kind] += wish.count
    return [
        _("{parts} requested, {count} unassigned then.", parts=count_label(kind, number), count=proposed[kind])
        for kind, number in requested.items()
        if proposed[kind] < number
    ]


def _leasable_parts(kinds: set[str]) -> list[LeasablePart]:
    devices = Device.objects.filter(kind__in=kinds, missing_since=None)
    things: list[LeasablePart] = list(
        devices.select_related("chassis", "slot__drawer", "tenant", "host_port__host").order_by(
            natural("chassis__name"), "slot__drawer__number", "slot__number", "pk"
        )
    )
    if HOST_PORT in kinds:
        ports = HostPort.objects.filter(missing_since=None).select_related("chassis", "drawer", "tenant", "host")
        things += ports.order_by(natural("chassis__name"), "number", "pk")
    return things


def _proposed_parts(wishes: list[RequestedParts], free: list[LeasablePart]) -> list[LeasablePart]:
    chosen: list[LeasablePart] = []
    # Requests that name a chassis are served first: the others have more choice. Host ports follow the devices.
    for wish in sorted(wishes, key=lambda one: (one.kind == HOST_PORT, one.chassis is None)):
        fitting = [
            one
            for one in free
            if kind_of(one) == wish.kind and wish.chassis in {None, one.chassis_id} and one not in chosen
        ]
        if wish.kind == HOST_PORT:
            use = Counter(_drawer_key(one) for one in chosen if isinstance(one, Device))
            fitting.sort(key=lambda one: -use[_drawer_key(one)])
        chosen += fitting[: wish.count]
    return chosen


def _drawer_key(one: LeasablePart) -> tuple[int, int]:
    if isinstance(one, HostPort):
        return one.chassis_id, one.drawer_id or 0
    return one.chassis_id, (one.slot.drawer_id if one.slot else None) or 0


def _attachment_label(one: LeasablePart) -> str:
    if isinstance(one, HostPort):
        return one.host.name if one.host else _("no host")
    port = one.host_port
    if port is None:
        return _("no host")
    return f"{port.host.name} ({port.label})" if port.host else port.label


def ownership_revision() -> str:
    """Return a digest of all grants, which changes with every grant."""
    state = [
        sorted(model.objects.filter(tenant__isnull=False).values_list("pk", "tenant_id").order_by())
        for model in (Device, HostPort)
    ]
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]


@receiver(tenant_assets)
def report_owned_counts(tenant_ids: list[int], **kwargs: Any) -> dict[int, list[str]]:
    """Return labels of what tenants own of the fabric, and of how many leases they have to come."""
    found: dict[int, list[str]] = {}
    counts: tuple[tuple[Any, Callable[[int], Text]], ...] = (
        (Device, lambda count: _n("{count} device", "{count} devices", count)),
        (HostPort, lambda count: _n("{count} host port", "{count} host ports", count)),
    )
    for model, label in counts:
        counted = model.objects.filter(tenant__in=tenant_ids).order_by().values_list("tenant").annotate(Count("pk"))
        for tenant_id, number in counted:
            found.setdefault(tenant_id, []).append(label(number))
    rows = Lease.objects.filter(tenant__in=tenant_ids, state__in=(Lease.State.REQUESTED, Lease.State.APPROVED))
    for tenant_id, number in rows.order_by().values_list("tenant").annotate(Count("pk")):
        found.setdefault(tenant_id, []).append(_n("{count} lease to come", "{count} leases to come", number))
    return found


def returning_reason(person: User, devices: Collection[int], host_ports: Collection[int] = ()) -> str:
    """Return why a member may no longer attach any of these devices, or to any of these host ports; '' where they may.

    Parts of an ended lease are being returned to the pool: reattached, they would never get there.
    """
    item = None if person.is_administrator else _returning_items(person, devices, host_ports).first()
    return _returning_label(item) if item else ""


def returning_reasons(person: User, devices: Collection[int]) -> dict[int, str]:
    """Return the same by device, in one query, for those that a member may no longer attach."""
    items = _returning_items(person, devices)
    return {item.device_id: _returning_label(item) for item in items if item.device_id is not None}


def _returning_items(person: User, devices: Collection[int], host_ports: Collection[int] = ()) -> QuerySet[LeaseItem]:
    if person.is_administrator:
        return LeaseItem.objects.none()
    leaving = LeaseItem.objects.filter(released_at=None, lease__state=Lease.State.ENDING)
    return leaving.filter(Q(device__in=devices) | Q(host_port__in=host_ports))


def _returning_label(item: LeaseItem) -> str:
    return _("{part} is returning: lease {lease} is over. Ask for another one.", part=item.name, lease=item.lease_id)


ATTACHMENT_CHECKS.append(returning_reason)


def requested_label(lease: Lease) -> Text:
    names = dict(Chassis.objects.filter(pk__in=[one["chassis"] for one in lease.wishes]).values_list("pk", "name"))
    words = []
    for one in lease.wishes:
        parts, where = count_label(one["kind"], one["count"]), names.get(one["chassis"])
        words.append(_("{parts} on {chassis}", parts=parts, chassis=where) if where is not None else parts)
    return joined(words, ", ") if words else _("what is listed")
