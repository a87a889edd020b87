"""Leases as people see them: lists, what wants a decision or a look, and what could be proposed for a request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Prefetch, Q, QuerySet
from django.dispatch import receiver
from django.utils import timezone

from accounts.models import User
from accounts.signals import tenant_holdings
from fabric.booking import Span, Wish
from fabric.idle import Idle, idle_items
from fabric.models import Device, HostPort, Lease, LeaseItem
from fabric.models.leases import HOST_PORT, KINDS, kind_of
from fabric.services.booking import booked_items, instant, until
from fabric.services.hands import Thing, called
from fabric.services.leases import wished
from fabric.services.quotas import counted

SOON = timedelta(days=7)
NOTE_SHOWN = 60
KIND_ORDER = {kind: place for place, (kind, _) in enumerate(KINDS)}


@dataclass(frozen=True)
class Notice:
    """Something about a lease that somebody should look at; `bad` where it is wrong now."""

    sentence: str
    lease_id: int
    bad: bool = False


@dataclass(frozen=True)
class Candidate:
    """A device or host port that a lease could hold; `why_not` says who has it then, '' where it is free."""

    thing: Thing
    kind: str
    kind_label: str
    name: str
    attached: str
    why_not: str
    proposed: bool

    @property
    def field(self) -> str:
        """The name of its box in a form."""
        return "host_ports" if self.kind == HOST_PORT else "devices"


def lease_rows(person: User, *, state: str = "", tenant: int | None = None) -> QuerySet[Any]:
    """Return the leases that a person may see, newest first, with what they hold."""
    rows = Lease.objects.visible_to(person).select_related("tenant", "plan")
    if state:
        rows = rows.filter(state=state)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    items = LeaseItem.objects.select_related("device", "host_port").order_by("pk")
    return rows.prefetch_related(Prefetch("items", items)).order_by("-pk")


def leases_waiting(person: User) -> QuerySet[Any]:
    """Return what waits for an administrator's word: requests and wishes for another end, oldest first."""
    waits = Q(state=Lease.State.REQUESTED) | Q(extension_to__isnull=False, state__in=Lease.BOOKED)
    return lease_rows(person).filter(waits).order_by("asked_at", "pk")


def leases_going_on(person: User) -> QuerySet[Any]:
    """Return what returns, is held and is to come: the next end first."""
    rows = lease_rows(person).filter(state__in=(*Lease.BOOKED, Lease.State.ENDING))
    return rows.order_by(F("ends_at").asc(nulls_last=True), "pk")


def leases_over(person: User) -> QuerySet[Any]:
    """Return those that have come to their end, the newest first."""
    final = (Lease.State.DECLINED, Lease.State.WITHDRAWN, Lease.State.ENDED)
    return lease_rows(person).filter(state__in=final).order_by(F("ended_at").desc(nulls_last=True), "-pk")


def idle_of(person: User) -> list[Idle]:
    """Return what is held and not used, of the leases that a person may see."""
    return idle_items(Lease.objects.visible_to(person).filter(state=Lease.State.ACTIVE))


def lease_notices(person: User) -> list[Notice]:
    """Return what of leases a person should look at, worst first."""
    now = timezone.now()
    rows = list(Lease.objects.visible_to(person).open())
    idle: dict[int, int] = Counter(one.item.lease_id for one in idle_items(rows))
    bad, rest = [], []
    for lease in sorted(rows, key=lambda one: (one.ends_at is None, one.ends_at or now, one.pk)):
        whose = f"Lease {lease.pk} of {lease.tenant_name}" if person.is_administrator else f"Lease {lease.pk}"
        if lease.state == Lease.State.ENDING and lease.trouble:
            bad.append(Notice(f"{whose} is over and cannot be returned yet: {lease.trouble}", lease.pk, bad=True))
        elif lease.state == Lease.State.ENDING:
            rest.append(Notice(f"{whose} is over: what it held is returning.", lease.pk))
        elif lease.state == Lease.State.ACTIVE and lease.ends_at is not None and lease.ends_at - now < SOON:
            rest.append(Notice(f"{whose} ends at {instant(lease.ends_at)}.", lease.pk))
        if person.is_administrator and lease.state == Lease.State.REQUESTED:
            who = f"{lease.asked_by_name} of {lease.tenant_name}"
            rest.insert(
                0, Notice(f"Lease {lease.pk}: {who} asks for {wished(lease)}{_shortened(lease.note)}.", lease.pk)
            )
        elif person.is_administrator and lease.extension_to is not None:
            rest.insert(0, Notice(f"{whose}: asked to be {until(lease.extension_to)}.", lease.pk))
        if number := idle.get(lease.pk, 0):
            it = "device that nobody uses" if number == 1 else "devices that nobody uses"
            rest.append(Notice(f"{whose} holds {number} {it}.", lease.pk))
    return bad + rest


def _shortened(note: str) -> str:
    """Return what something is for, as it ends a sentence; '' for nothing."""
    line = " ".join(note.split())
    return f": ‘{line if len(line) <= NOTE_SHOWN else line[: NOTE_SHOWN - 1] + '…'}’" if line else ""


def holds_in_words(items: Iterable[LeaseItem]) -> str:
    """Return '2 GPUs, 1 host port' of what is not released."""
    counts = Counter(item.kind for item in items if item.released_at is None)
    return ", ".join(counted(kind, counts[kind]) for kind in sorted(counts, key=KIND_ORDER.__getitem__))


def free_now() -> dict[str, int]:
    """Return how many of each kind nobody holds just now, by kind; kinds of which none is free are left out."""
    free = Device.objects.filter(tenant=None, missing_since=None).order_by().values_list("kind").annotate(Count("pk"))
    found = dict(free)
    if ports := HostPort.objects.filter(tenant=None, missing_since=None).count():
        found[HOST_PORT] = ports
    return {kind: found[kind] for kind, _ in KINDS if kind in found}


def wishes_of(lease: Lease) -> list[Wish]:
    """Return what a lease was asked for."""
    return [Wish(one["kind"], one["count"], one["chassis"]) for one in lease.wishes]


def candidates(lease: Lease, span: Span) -> list[Candidate]:
    """Return what could be held for a request within a span, of the kinds asked for; the best of it is proposed.

    What the tenant has host ports for comes first, then what lies together in one drawer; what another lease needs then
    is named with it. Without wishes everything is returned, and nothing proposed.
    """
    wishes = wishes_of(lease)
    kinds = {wish.kind for wish in wishes} or set(KIND_ORDER)
    things = _things(kinds)
    needed: dict[tuple[type[Thing], int], str] = {}
    for item in booked_items(things, span, but=lease if lease.pk else None):
        one = item.thing
        if one is not None:
            word = "held by" if item.taken_at else "promised to"
            needed.setdefault((type(one), one.pk), f"{word} {item.lease.tenant_name} {until(item.lease.ends_at)}")
    returning = LeaseItem.objects.filter(released_at=None, taken_at__isnull=False, lease__state=Lease.State.ENDING)
    for item in returning.select_related("lease", "device", "host_port"):
        one = item.thing
        if one is not None and span.begin <= timezone.now():
            needed.setdefault((type(one), one.pk), f"still returning from {item.lease.tenant_name}")
    near = set(HostPort.objects.filter(tenant=lease.tenant_id).values_list("chassis", "drawer"))
    room: Counter[Any] = Counter(_drawer(one) for one in things if (type(one), one.pk) not in needed)
    free = [one for one in things if (type(one), one.pk) not in needed]
    chassis = {pk for pk, _ in near}

    def order(one: Thing) -> tuple[int, ...]:
        here = _drawer(one)
        return here not in near, one.chassis_id not in chassis, -room[here], *here, _is_attached(one), one.pk

    free.sort(key=order)
    chosen = _chosen(wishes, free)
    rows = [
        Candidate(
            thing=one,
            kind=kind_of(one),
            kind_label=dict(KINDS)[kind_of(one)],
            name=called(one),
            attached=_attached(one),
            why_not=needed.get((type(one), one.pk), ""),
            proposed=(type(one), one.pk) in chosen,
        )
        for one in things
    ]
    return sorted(rows, key=lambda one: (KIND_ORDER[one.kind], bool(one.why_not), not one.proposed, one.thing.pk))


def short_of(lease: Lease, found: Iterable[Candidate]) -> list[str]:
    """Return a sentence for each kind of which fewer are free than were asked for."""
    proposed = Counter(one.kind for one in found if one.proposed)
    wanted: Counter[str] = Counter()
    for wish in wishes_of(lease):
        wanted[wish.kind] += wish.count
    return [
        f"{counted(kind, number)} asked for, {proposed[kind]} free then."
        for kind, number in wanted.items()
        if proposed[kind] < number
    ]


@receiver(tenant_holdings)
def tell_leases(tenant_ids: list[int], **kwargs: Any) -> dict[int, list[str]]:
    """Say which tenants have leases to come: what is held is told by those who know it."""
    found: dict[int, list[str]] = defaultdict(list)
    rows = Lease.objects.filter(tenant__in=tenant_ids, state__in=(Lease.State.REQUESTED, Lease.State.APPROVED))
    for tenant_id, number in rows.order_by().values_list("tenant").annotate(Count("pk")):
        found[tenant_id].append(f"{number} lease{'' if number == 1 else 's'} to come")
    return dict(found)


def _things(kinds: set[str]) -> list[Thing]:
    devices = Device.objects.filter(kind__in=kinds, missing_since=None)
    things: list[Thing] = list(
        devices.select_related("chassis", "slot__drawer", "tenant", "host_port__host").order_by(
            "chassis__name", "slot__drawer__number", "slot__number", "pk"
        )
    )
    if HOST_PORT in kinds:
        ports = HostPort.objects.filter(missing_since=None).select_related("chassis", "drawer", "tenant", "host")
        things += ports.order_by("chassis__name", "number", "pk")
    return things


def _chosen(wishes: list[Wish], free: list[Thing]) -> set[tuple[type[Thing], int]]:
    chosen: list[Thing] = []
    # Those that name a chassis choose first: the others have more to choose from. Host ports follow the devices.
    for wish in sorted(wishes, key=lambda one: (one.kind == HOST_PORT, one.chassis is None)):
        fitting = [
            one
            for one in free
            if kind_of(one) == wish.kind and wish.chassis in {None, one.chassis_id} and one not in chosen
        ]
        if wish.kind == HOST_PORT:
            use = Counter(_drawer(one) for one in chosen if isinstance(one, Device))
            fitting.sort(key=lambda one: -use[_drawer(one)])
        chosen += fitting[: wish.count]
    return {(type(one), one.pk) for one in chosen}


def _drawer(one: Thing) -> tuple[int, int]:
    if isinstance(one, HostPort):
        return one.chassis_id, one.drawer_id or 0
    return one.chassis_id, (one.slot.drawer_id if one.slot else None) or 0


def _is_attached(one: Thing) -> bool:
    return isinstance(one, Device) and one.host_port_id is not None


def _attached(one: Thing) -> str:
    if isinstance(one, HostPort):
        return one.host.name if one.host else "no host"
    port = one.host_port
    if port is None:
        return "no host"
    return f"{port.host.name} ({port.label})" if port.host else port.label
