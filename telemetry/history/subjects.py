"""What one can look at, and of which devices and ports it consists at which time: on somebody's behalf.

A subject is named as its page is: 'device/3', 'slot/3', 'port/5', 'drawer/1', 'chassis/1', 'host/2', 'tenant/4'; one
series by itself is 'series/<chassis>/<key of the catalogue>'. Who held which slot, when, tells which devices belonged
to a slot, drawer, host or tenant at a time; so a host's throughput of last week is that of the devices it had then.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.urls import reverse

from accounts.models import Tenant, User
from fabric.counted import Before, counted_before
from fabric.models import Attachment, Chassis, Device, Drawer, Host, HostPort, Port, Slot
from fabric.numbers import whole_number
from fabric.sights import Sight, held_since, sight_of
from falconweb.errors import Invalid, NotFound
from telemetry.history.ranges import Span

MOST_SUBJECTS: Final = 64
LONGEST_KEY: Final = 400
KINDS: Final = ("device", "slot", "port", "drawer", "chassis", "host", "tenant")
SERIES: Final = "series"
HOW: Final = "Name it as in device/3, slot/3, port/5, drawer/1, chassis/1, host/2 or tenant/4."

Spans = tuple[tuple[float, float], ...]
ALWAYS: Final[Spans] = ((-math.inf, math.inf),)


@dataclass(frozen=True)
class Member:
    """A device or port (row id) that belongs to a subject, and from when until when (Unix s).

    What it did before `since` is not the person's to see, nor what its error counters had counted `before`.
    """

    chassis: int
    object: str
    id: int
    spans: Spans = ALWAYS
    since: float = -math.inf
    before: Before | None = None


@dataclass(frozen=True)
class Subject:
    """What is looked at: its name, where it is, and what it consists of; `key` of one series by itself."""

    ref: str
    kind: str
    name: str
    place: str
    members: tuple[Member, ...] = ()
    chassis: int | None = None
    key: str = ""

    @property
    def url(self) -> str:
        """Its page; of one series that of its chassis."""
        if self.chassis is not None and self.kind == SERIES:
            return reverse("fabric:chassis", args=[self.chassis])
        return reverse(f"fabric:{self.kind}", args=[self.ref.partition("/")[2]])

    @property
    def full_name(self) -> str:
        """Its name with its place, as it stands where things of several places are side by side."""
        return f"{self.name}, {self.place}" if self.place else self.name


def subjects_named(texts: Iterable[str]) -> list[str]:
    """Return the texts that name subjects, each once; raises Invalid for one that names none, and for too many."""
    refs = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if len(refs) > MOST_SUBJECTS:
        raise Invalid(
            "These are too many at a time.", errors={"subjects": f"Ask for at most {MOST_SUBJECTS} at a time."}
        )
    for ref in refs:
        kind, _, rest = ref.partition("/")
        chassis, _, key = rest.partition("/")
        fine = whole_number(rest) > 0 if kind in KINDS else kind == SERIES and whole_number(chassis) > 0 and key
        if not fine or len(ref) > LONGEST_KEY or "\0" in ref:
            raise Invalid(f"'{ref[:60]}' names nothing that is measured.", errors={"subjects": HOW})
    return refs


def subjects_seen(person: User, refs: Sequence[str], span: Span) -> list[Subject]:
    """Return what the person may see of subjects, in their order, with their members over a span.

    Raises NotFound where the person may not see one, or it is not there: nobody learns which.
    """
    found, missing = subjects_found(person, refs, span)
    if missing:
        raise NotFound(f"There is no '{missing[0][:60]}', or you may not see it.")
    return found


def subjects_found(person: User, refs: Sequence[str], span: Span) -> tuple[list[Subject], list[str]]:
    """Return what the person may see of subjects, and the names of those of which they may not: see `subjects_seen`."""
    ids: dict[str, list[int]] = defaultdict(list)
    found: dict[str, Subject] = {}
    sights = Sights(person)
    for ref in refs:
        kind, _, rest = ref.partition("/")
        if kind == SERIES:
            chassis, _, key = rest.partition("/")
            if one := _series(sights, ref, int(chassis), key):
                found[ref] = one
        else:
            ids[kind].append(int(rest))
    for kind, pks in ids.items():
        for subject in _OF_KIND[kind](person, pks, span):
            found[subject.ref] = subject
    return [sights.limited(found[ref]) for ref in refs if ref in found], [ref for ref in refs if ref not in found]


class Sights:
    """What a person sees of each chassis, and since when; asked once a chassis, and never for an administrator."""

    def __init__(self, person: User) -> None:
        self._person = person
        self._sights: dict[int, Sight | None] = {}
        self._since: dict[int, Mapping[tuple[str, int], datetime]] = {}
        self._before: dict[int, Mapping[int, Before]] = {}

    def of(self, chassis: int) -> Sight | None:
        """Return the sight of a chassis, None where they may not see it at all."""
        if chassis not in self._sights:
            self._sights[chassis] = sight_of(self._person, chassis)
        return self._sights[chassis]

    def since(self, chassis: int, kind: str, pk: int) -> float:
        """Return since when the person may see what a device or port did, Unix s."""
        if chassis not in self._since:
            self._since[chassis] = held_since(chassis)
        at = self._since[chassis].get((kind, pk))
        return at.timestamp() if at is not None else -math.inf

    def before(self, chassis: int, port: int) -> Before | None:
        """Return what the error counters of a port had before it was the person's."""
        if chassis not in self._before:
            self._before[chassis] = counted_before(self._person, [chassis])
        return self._before[chassis].get(port)

    def limited(self, subject: Subject) -> Subject:
        """Return a subject without what the person may not see of it."""
        if self._person.is_administrator:
            return subject
        return replace(subject, members=tuple(filter(None, map(self._limited, subject.members))))

    def _limited(self, member: Member) -> Member | None:
        sight = self.of(member.chassis)
        seen = frozenset() if sight is None else sight.devices if member.object == "device" else sight.ports
        if member.id not in seen:
            return None
        since = self.since(member.chassis, member.object, member.id)
        if all(end <= since for _, end in member.spans):
            return None
        before = self.before(member.chassis, member.id) if member.object == "port" else None
        return replace(member, since=since, before=before)


def _series(sights: Sights, ref: str, chassis: int, key: str) -> Subject | None:
    """Return one series by itself; what is the chassis' or a drawer's own is for administrators, as it is live."""
    kind, _, rest = key.partition("/")
    owner = whole_number(rest.partition("/")[0])
    sight = sights.of(chassis)
    seen = sight is not None and (
        sight.everything or owner in {"device": sight.devices, "port": sight.ports}.get(kind, frozenset())
    )
    if not seen:
        return None
    member = Member(chassis, kind, owner)
    name = Chassis.objects.values_list("name", flat=True).get(pk=chassis)
    return Subject(ref, SERIES, key, name, (member,), chassis=chassis, key=key)


Rows = Iterable[tuple[Any, ...]]


class _Times:
    """Devices and ports of subjects while the one was in the slot of the other, gathered by subject."""

    def __init__(self) -> None:
        self._spans: dict[int, dict[tuple[int, str, int], list[tuple[float, float]]]] = defaultdict(dict)

    def add(self, subject: int, chassis: int, kind: str, pk: int | None, span: tuple[float, float]) -> None:
        if pk is not None:
            self._spans[subject].setdefault((chassis, kind, pk), []).append(span)

    def add_held(self, rows: Rows, *, ports: bool) -> None:
        """Take rows of (subject, chassis, device, port of the slot, since, until)."""
        for subject, chassis, device, port, since, until in rows:
            span = (since.timestamp(), until.timestamp() if until else math.inf) if since else ALWAYS[0]
            self.add(subject, chassis, "device", device, span)
            if ports:
                self.add(subject, chassis, "port", port, span)

    def members(self, subject: int) -> tuple[Member, ...]:
        return tuple(
            Member(chassis, kind, pk, ALWAYS if ALWAYS[0] in spans else tuple(sorted(spans)))
            for (chassis, kind, pk), spans in self._spans[subject].items()
        )


def _held(person: User, by: str, span: Span, **those: Any) -> list[tuple[Any, ...]]:
    """Return who held which slot in a span, and, of devices of which no such time is kept, how it is now."""
    rows = Attachment.objects.visible_to(person).filter(**those, since__lt=datetime.fromtimestamp(span.until, UTC))
    rows = rows.filter(Q(until=None) | Q(until__gt=datetime.fromtimestamp(span.since, UTC)))
    return list(rows.values_list(by, "chassis", "device", "slot__port", "since", "until"))


def _now(person: User, by: str, **those: Any) -> list[tuple[Any, ...]]:
    rows = Device.objects.visible_to(person).filter(**those, attachments=None)
    return [(*row, None, None) for row in rows.values_list(by, "chassis", "pk", "slot__port")]


def _devices(person: User, pks: list[int], span: Span) -> Iterable[Subject]:
    times = _Times()
    # A device's own readings are its own wherever it is; only the port behind it changes.
    for subject, chassis, device, port, since, until in _held(person, "device", span, device__in=pks):
        times.add_held([(subject, chassis, None, port, since, until)], ports=True)
        times.add(subject, chassis, "device", device, ALWAYS[0])
    times.add_held(_now(person, "pk", pk__in=pks), ports=True)
    rows = Device.objects.visible_to(person).filter(pk__in=pks)
    for pk, name, chassis, lab, slot, drawer in rows.values_list(
        "pk", "name", "chassis", "chassis__name", "slot__name", "slot__drawer__name"
    ):
        times.add(pk, chassis, "device", pk, ALWAYS[0])
        place = ", ".join(part for part in (lab, slot_place(slot, drawer)) if part)
        yield Subject(f"device/{pk}", "device", name, place, times.members(pk), chassis)


def slot_place(slot: str | None, drawer: str | None) -> str:
    """Return where a slot is: some services name the drawer in the name of the slot, others do not."""
    if not slot or not drawer or drawer in slot:
        return slot or ""
    return f"{drawer}, {slot}"


def _slots(person: User, pks: list[int], span: Span) -> Iterable[Subject]:
    times = _Times()
    times.add_held(_held(person, "slot", span, slot__in=pks), ports=False)
    times.add_held(_now(person, "slot", slot__in=pks), ports=False)
    rows = Slot.objects.visible_to(person).filter(pk__in=pks)
    for pk, name, chassis, lab, drawer, port in rows.values_list(
        "pk", "name", "chassis", "chassis__name", "drawer__name", "port"
    ):
        times.add(pk, chassis, "port", port, ALWAYS[0])
        yield Subject(f"slot/{pk}", "slot", slot_place(name, drawer), lab, times.members(pk), chassis)


def _ports(person: User, pks: list[int], _: Span) -> Iterable[Subject]:
    rows = Port.objects.visible_to(person).filter(pk__in=pks)
    for pk, name, chassis, lab, behind, facing in rows.values_list(
        "pk", "name", "chassis", "chassis__name", "slot__drawer__name", "host_port__drawer__name"
    ):
        place = port_place(name, lab, behind or facing)
        yield Subject(f"port/{pk}", "port", name, place, (Member(chassis, "port", pk),), chassis)


def port_place(port: str, chassis: str, drawer: str | None) -> str:
    """Return where a port is: 'Slot 3' is in each drawer, unless the service names the drawer in it."""
    return chassis if not drawer or drawer in port else f"{chassis}, {drawer}"


def _drawers(person: User, pks: list[int], span: Span) -> Iterable[Subject]:
    times = _placed(person, "slot__drawer", pks, span)
    for row in Drawer.objects.visible_to(person).filter(pk__in=pks).select_related("chassis"):
        members = times.members(row.pk)
        yield Subject(f"drawer/{row.pk}", "drawer", row.name, row.chassis.name, members, row.chassis_id)


def _chassis(person: User, pks: list[int], span: Span) -> Iterable[Subject]:
    times = _placed(person, "chassis", pks, span)
    for row in Chassis.objects.visible_to(person).filter(pk__in=pks):
        yield Subject(f"chassis/{row.pk}", "chassis", row.name, "", times.members(row.pk), row.pk)


def _placed(person: User, by: str, pks: list[int], span: Span) -> _Times:
    """Return what is in a drawer or chassis: the ports of its slots always, the devices while they were there."""
    times = _Times()
    times.add_held(_held(person, by, span, **{f"{by}__in": pks}), ports=False)
    times.add_held(_now(person, by, **{f"{by}__in": pks}), ports=False)
    ports = Port.objects.visible_to(person).filter(slot__isnull=False, **{f"{by}__in": pks})
    for subject, chassis, port in ports.values_list(by, "chassis", "pk"):
        times.add(subject, chassis, "port", port, ALWAYS[0])
    return times


def _hosts(person: User, pks: list[int], span: Span) -> Iterable[Subject]:
    seen = HostPort.objects.visible_to(person).values("pk")
    for row in Host.objects.visible_to(person).filter(pk__in=pks):
        times = _Times()
        # By the name of the time: a cable may lead elsewhere by now. Names are not unique, so where two hosts share
        # one, only what is cabled to this one today is certain to be its own.
        those: dict[str, Any] = {"host_name": row.name}
        if Host.objects.filter(name=row.name).exclude(pk=row.pk).exists():
            those["host_port__host"] = row
        if not person.is_administrator:
            those["host_port__in"] = seen
        held = _held(person, "pk", span, **those)
        now = _now(person, "pk", host_port__host=row, **({} if person.is_administrator else {"host_port__in": seen}))
        times.add_held([(row.pk, *one[1:]) for one in (*held, *now)], ports=True)
        yield Subject(f"host/{row.pk}", "host", row.name, "", times.members(row.pk))


def _tenants(person: User, pks: list[int], span: Span) -> Iterable[Subject]:
    rows: QuerySet[Tenant] = Tenant.objects.filter(pk__in=pks)
    if not person.is_administrator:
        rows = rows.filter(pk=person.tenant_id) if person.tenant_id else rows.none()
    times = _Times()
    times.add_held(_held(person, "tenant", span, tenant__in=pks), ports=True)
    times.add_held(_now(person, "tenant", tenant__in=pks), ports=True)
    for row in rows:
        yield Subject(f"tenant/{row.pk}", "tenant", row.name, "", times.members(row.pk))


_OF_KIND: Final[dict[str, Callable[[User, list[int], Span], Iterable[Subject]]]] = {
    "device": _devices, "slot": _slots, "port": _ports, "drawer": _drawers, "chassis": _chassis, "host": _hosts,
    "tenant": _tenants,
}  # fmt: skip
