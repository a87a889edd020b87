"""Subjects of charts (device, slot, drawer, host, tenant), their devices and ports over time, and their search.

A subject is named as its page is: 'device/3', 'slot/3', 'port/5', 'drawer/1', 'chassis/1', 'host/2', 'tenant/4'; a
single series is 'series/<chassis>/<key of the catalogue>'. The history of attachments determines which devices belonged
to a slot, drawer, host or tenant at a time; so a host's throughput of last week is that of the devices it had then.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import islice
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.urls import reverse

from accounts.models import Tenant, User
from core.database import CompiledQuery, natural
from core.errors import NotFound
from core.language import _, gettext_noop
from core.text import parse_id
from fabric.history.models import Attachment
from fabric.history.selectors import owned_since
from fabric.inventory import selectors as inventory
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot
from fabric.inventory.rules import CounterBaseline
from telemetry.history.rules import DAY, MAX_SUBJECTS, SERIES_KIND, TimeRange
from telemetry.store.selectors import known_series

Spans = tuple[tuple[float, float], ...]
ALWAYS: Final[Spans] = ((-math.inf, math.inf),)


@dataclass(frozen=True)
class SubjectMember:
    """A device or port (row id) of a subject, and the spans (Unix s) in which it belongs to it.

    The person may not see its readings before `since`, nor the counts of errors in its `baseline`.
    """

    chassis: int
    object: str
    id: int
    spans: Spans = ALWAYS
    since: float = -math.inf
    baseline: CounterBaseline | None = None


@dataclass(frozen=True)
class HistorySubject:
    """A subject: its name, place and members; `key` is that of a single series."""

    ref: str
    kind: str
    name: str
    place: str
    members: tuple[SubjectMember, ...] = ()
    chassis: int | None = None
    key: str = ""

    @property
    def url(self) -> str:
        """The address of its page; of a single series that of its chassis."""
        if self.chassis is not None and self.kind == SERIES_KIND:
            return reverse("fabric:chassis", args=[self.chassis])
        return reverse(f"fabric:{self.kind}", args=[self.ref.partition("/")[2]])

    @property
    def full_name(self) -> str:
        """Its name with its place, for charts with several subjects."""
        return f"{self.name}, {self.place}" if self.place else self.name


def visible_subjects(person: User, refs: Sequence[str], span: TimeRange) -> list[HistorySubject]:
    """Return subjects in order, with the members over a span that the person may see.

    Raises NotFound for one that does not exist, or is not visible: the two are not distinguished.
    """
    found, missing = find_subjects(person, refs, span)
    if missing:
        raise NotFound(_("There is no '{name}', or you may not see it.", name=missing[0][:60]))
    return found


def find_subjects(person: User, refs: Sequence[str], span: TimeRange) -> tuple[list[HistorySubject], list[str]]:
    """Return those subjects that the person may see, and the names of the others: see `visible_subjects`."""
    ids: dict[str, list[int]] = defaultdict(list)
    found: dict[str, HistorySubject] = {}
    scopes = _ScopeCache(person)
    for ref in refs:
        kind, _, rest = ref.partition("/")
        if kind == SERIES_KIND:
            chassis, _, key = rest.partition("/")
            if one := _series(scopes, ref, int(chassis), key):
                found[ref] = one
        else:
            ids[kind].append(int(rest))
    for kind, pks in ids.items():
        found |= {subject.ref: subject for subject in _FINDERS[kind](person, pks, span)}
    return [scopes.restrict(found[ref]) for ref in refs if ref in found], [ref for ref in refs if ref not in found]


class _ScopeCache:
    """A person's reading scope of each chassis, and since when; loaded once a chassis, never for administrators."""

    def __init__(self, person: User) -> None:
        self._person = person
        self.of = cache(partial(inventory.reading_scope, person))
        self._owned_since = cache(owned_since)
        self._baselines = cache(lambda chassis: inventory.counter_baselines(person, [chassis]))

    def restrict(self, subject: HistorySubject) -> HistorySubject:
        """Return a subject reduced to the members that the person may see."""
        if self._person.is_administrator:
            return subject
        return replace(subject, members=tuple(filter(None, map(self._restrict_member, subject.members))))

    def _restrict_member(self, member: SubjectMember) -> SubjectMember | None:
        scope = self.of(member.chassis)
        seen = frozenset() if scope is None else scope.devices if member.object == "device" else scope.ports
        if member.id not in seen:
            return None
        at = self._owned_since(member.chassis).get((member.object, member.id))
        since = at.timestamp() if at is not None else -math.inf
        if all(end <= since for _, end in member.spans):
            return None
        baseline = self._baselines(member.chassis).get(member.id) if member.object == "port" else None
        return replace(member, since=since, baseline=baseline)


def _series(scopes: _ScopeCache, ref: str, chassis: int, key: str) -> HistorySubject | None:
    """Return a single series; those of the chassis or a drawer itself are for administrators only, as live."""
    kind, _, rest = key.partition("/")
    owner = parse_id(rest.partition("/")[0])
    scope = scopes.of(chassis)
    seen = scope is not None and (
        scope.everything or owner in {"device": scope.devices, "port": scope.ports}.get(kind, frozenset())
    )
    if not seen:
        return None
    member = SubjectMember(chassis, kind, owner)
    name = Chassis.objects.values_list("name", flat=True).get(pk=chassis)
    return HistorySubject(ref, SERIES_KIND, key, name, (member,), chassis=chassis, key=key)


Rows = Iterable[Sequence[Any]]


class _MemberTimes:
    """Collects the devices and ports of subjects, with their spans."""

    def __init__(self) -> None:
        self._spans: dict[int, dict[tuple[int, str, int], list[tuple[float, float]]]] = defaultdict(dict)

    def add(self, subject: int, chassis: int, kind: str, pk: int | None, span: tuple[float, float]) -> None:
        if pk is not None:
            self._spans[subject].setdefault((chassis, kind, pk), []).append(span)

    def add_attachments(self, rows: Rows, *, ports: bool) -> None:
        """Add rows of (subject, chassis, device, port of the slot, since, until)."""
        for subject, chassis, device, port, since, until in rows:
            span = (since.timestamp(), until.timestamp() if until else math.inf) if since else ALWAYS[0]
            self.add(subject, chassis, "device", device, span)
            if ports:
                self.add(subject, chassis, "port", port, span)

    def members(self, subject: int) -> tuple[SubjectMember, ...]:
        return tuple(
            SubjectMember(chassis, kind, pk, ALWAYS if ALWAYS[0] in spans else tuple(sorted(spans)))
            for (chassis, kind, pk), spans in self._spans[subject].items()
        )


def _attachments_during(person: User, by: str, span: TimeRange, **filters: Any) -> list[tuple[Any, ...]]:
    """Return (subject, chassis, device, port of the slot, since, until) of the attachments in a span."""
    rows = Attachment.objects.visible_to(person).filter(**filters, since__lt=datetime.fromtimestamp(span.until, UTC))
    rows = rows.filter(Q(until=None) | Q(until__gt=datetime.fromtimestamp(span.since, UTC)))
    return list(rows.values_list(by, "chassis", "device", "slot__port", "since", "until"))


def _current_devices(person: User, by: str, **filters: Any) -> list[tuple[Any, ...]]:
    rows = Device.objects.visible_to(person).filter(**filters, attachments=None)
    return [(*row, None, None) for row in rows.values_list(by, "chassis", "pk", "slot__port")]


def _members_during(person: User, by: str, span: TimeRange, *, ports: bool, **filters: Any) -> _MemberTimes:
    """Return the devices of subjects over a span and, with `ports`, the ports of their slots."""
    times = _MemberTimes()
    times.add_attachments(_attachments_during(person, by, span, **filters), ports=ports)
    times.add_attachments(_current_devices(person, by, **filters), ports=ports)
    return times


def _devices(person: User, pks: list[int], span: TimeRange) -> Iterable[HistorySubject]:
    times = _MemberTimes()
    # A device keeps its own readings wherever it is; only the port behind it changes.
    for subject, chassis, device, port, since, until in _attachments_during(person, "device", span, device__in=pks):
        times.add_attachments([(subject, chassis, None, port, since, until)], ports=True)
        times.add(subject, chassis, "device", device, ALWAYS[0])
    times.add_attachments(_current_devices(person, "pk", pk__in=pks), ports=True)
    rows = Device.objects.visible_to(person).filter(pk__in=pks)
    for pk, name, chassis, lab, slot, drawer in rows.values_list(
        "pk", "name", "chassis", "chassis__name", "slot__name", "slot__drawer__name"
    ):
        times.add(pk, chassis, "device", pk, ALWAYS[0])
        place = ", ".join(part for part in (lab, slot_place(slot, drawer)) if part)
        yield HistorySubject(f"device/{pk}", "device", name, place, times.members(pk), chassis)


def slot_place(slot: str | None, drawer: str | None) -> str:
    """Return the place of a slot; some services include the drawer in its name."""
    if not slot or not drawer or drawer in slot:
        return slot or ""
    return f"{drawer}, {slot}"


def _slots(person: User, pks: list[int], span: TimeRange) -> Iterable[HistorySubject]:
    times = _members_during(person, "slot", span, ports=False, slot__in=pks)
    rows = Slot.objects.visible_to(person).filter(pk__in=pks)
    for pk, name, chassis, lab, drawer, port in rows.values_list(
        "pk", "name", "chassis", "chassis__name", "drawer__name", "port"
    ):
        times.add(pk, chassis, "port", port, ALWAYS[0])
        yield HistorySubject(f"slot/{pk}", "slot", slot_place(name, drawer), lab, times.members(pk), chassis)


PORT_COLUMNS: Final = (
    "pk", "name", "chassis", "chassis__name", "slot__drawer__name", "host_port__drawer__name",
)  # fmt: skip
# Of any MAX_SUBJECTS ports, for administrators, who see all.
ALL_PORTS: Final = CompiledQuery(
    lambda: Port.objects.filter(pk__in=range(MAX_SUBJECTS)).order_by().values_list(*PORT_COLUMNS)
)


def _ports(person: User, pks: list[int], _: TimeRange) -> Iterable[HistorySubject]:
    rows: Rows
    if person.is_administrator and len(pks) <= MAX_SUBJECTS:
        rows = ALL_PORTS.rows(*pks, *pks[:1] * (MAX_SUBJECTS - len(pks)))
    else:
        rows = Port.objects.visible_to(person).filter(pk__in=pks).order_by().values_list(*PORT_COLUMNS)
    for pk, name, chassis, lab, behind, facing in rows:
        place = port_place(name, lab, behind or facing)
        yield HistorySubject(f"port/{pk}", "port", name, place, (SubjectMember(chassis, "port", pk),), chassis)


def port_place(port: str, chassis: str, drawer: str | None) -> str:
    """Return the place of a port, with the drawer unless the service includes it in the name."""
    return chassis if not drawer or drawer in port else f"{chassis}, {drawer}"


def _drawers(person: User, pks: list[int], span: TimeRange) -> Iterable[HistorySubject]:
    times = _contents_of(person, "slot__drawer", pks, span)
    for row in Drawer.objects.visible_to(person).filter(pk__in=pks).select_related("chassis"):
        members = times.members(row.pk)
        yield HistorySubject(f"drawer/{row.pk}", "drawer", row.name, row.chassis.name, members, row.chassis_id)


def _chassis(person: User, pks: list[int], span: TimeRange) -> Iterable[HistorySubject]:
    times = _contents_of(person, "chassis", pks, span)
    for row in Chassis.objects.visible_to(person).filter(pk__in=pks):
        yield HistorySubject(f"chassis/{row.pk}", "chassis", row.name, "", times.members(row.pk), row.pk)


def _contents_of(person: User, by: str, pks: list[int], span: TimeRange) -> _MemberTimes:
    """Return the members of a drawer or chassis: the ports of its slots always, devices while they were there."""
    times = _members_during(person, by, span, ports=False, **{f"{by}__in": pks})
    ports = Port.objects.visible_to(person).filter(slot__isnull=False, **{f"{by}__in": pks})
    for subject, chassis, port in ports.values_list(by, "chassis", "pk"):
        times.add(subject, chassis, "port", port, ALWAYS[0])
    return times


def _hosts(person: User, pks: list[int], span: TimeRange) -> Iterable[HistorySubject]:
    seen = HostPort.objects.visible_to(person).values("pk")
    for row in Host.objects.visible_to(person).filter(pk__in=pks):
        times = _MemberTimes()
        # By the host's name at the time: the cable may have been moved since. Names are not unique, so where two hosts
        # share one, only ports that are cabled to this one today count.
        visible: dict[str, Any] = {} if person.is_administrator else {"host_port__in": seen}
        filters = visible | {"host_name": row.name}
        if Host.objects.filter(name=row.name).exclude(pk=row.pk).exists():
            filters["host_port__host"] = row
        past = _attachments_during(person, "pk", span, **filters)
        now = _current_devices(person, "pk", host_port__host=row, **visible)
        times.add_attachments([(row.pk, *one[1:]) for one in (*past, *now)], ports=True)
        yield HistorySubject(f"host/{row.pk}", "host", row.name, "", times.members(row.pk))


def _tenants(person: User, pks: list[int], span: TimeRange) -> Iterable[HistorySubject]:
    times = _members_during(person, "tenant", span, ports=True, tenant__in=pks)
    for row in _visible_tenants(person).filter(pk__in=pks):
        yield HistorySubject(f"tenant/{row.pk}", "tenant", row.name, "", times.members(row.pk))


def _visible_tenants(person: User) -> QuerySet[Tenant]:
    if person.is_administrator:
        return Tenant.objects.all()
    return Tenant.objects.filter(pk=person.tenant_id) if person.tenant_id else Tenant.objects.none()


_FINDERS: Final[dict[str, Callable[[User, list[int], TimeRange], Iterable[HistorySubject]]]] = {
    "device": _devices, "slot": _slots, "port": _ports, "drawer": _drawers, "chassis": _chassis, "host": _hosts,
    "tenant": _tenants,
}  # fmt: skip

SENSOR_CHASSIS = 8  # chassis whose sensors are searched


def search_subjects(person: User, text: str, *, chassis: int | None = None, most: int = 24) -> list[HistorySubject]:
    """Return at most `most` subjects whose name or place contains a text, the largest kinds first; '' matches all.

    Their members are not read. The kind of a single series is 'sensor'.
    """
    text = " ".join(text.replace("\0", " ").split())[:200]
    return list(islice(_matches(person, text, chassis), most))


def _matches(person: User, text: str, chassis: int | None) -> Iterator[HistorySubject]:
    of_chassis = Q() if chassis is None else Q(pk=chassis)
    all_chassis = Chassis.objects.visible_to(person).filter(of_chassis)
    for pk, name in all_chassis.filter(name__icontains=text).values_list("pk", "name"):
        yield HistorySubject(f"chassis/{pk}", "chassis", name, "")
    filters: dict[str, Any] = {"search": text, "chassis": chassis}
    for row in inventory.drawer_rows(person, **filters).filter(missing_since=None).iterator(100):
        yield HistorySubject(f"drawer/{row.pk}", "drawer", row.name, row.chassis.name)
    if chassis is None:
        for row in inventory.host_rows(person, search=text).iterator(100):
            yield HistorySubject(f"host/{row.pk}", "host", row.name, "")
        for row in _visible_tenants(person).filter(name__icontains=text).order_by(natural("name")):
            yield HistorySubject(f"tenant/{row.pk}", "tenant", row.name, "")
    for row in inventory.device_rows(person, **filters).iterator(100):
        place = ", ".join(part for part in (row.chassis.name, _slot_label(row.slot)) if part)
        yield HistorySubject(f"device/{row.pk}", "device", row.name, place)
    for row in inventory.slot_rows(person, **filters).filter(missing_since=None).iterator(100):
        yield HistorySubject(f"slot/{row.pk}", "slot", _slot_label(row), row.chassis.name)
    for row in inventory.port_rows(person, **filters).filter(missing_since=None).iterator(100):
        part = getattr(row, "slot", None) or getattr(row, "host_port", None)
        drawer = part.drawer.name if part is not None and part.drawer is not None else None
        yield HistorySubject(f"port/{row.pk}", "port", row.name, port_place(row.name, row.chassis.name, drawer))
    if person.is_administrator and (text or chassis is not None):
        for pk, name in all_chassis.values_list("pk", "name")[:SENSOR_CHASSIS]:
            yield from _sensor_matches(pk, name, text)


def _slot_label(slot: Slot | None) -> str:
    return "" if slot is None else slot_place(slot.name, slot.drawer.name if slot.drawer is not None else None)


def _sensor_matches(chassis: int, name: str, text: str) -> Iterator[HistorySubject]:
    """Yield the sensors of a chassis and its drawers with readings of the last day, each as a single series."""
    now = time.time()
    for entry in known_series(chassis, since=now - DAY, until=now):
        if entry["object"] in {"chassis", "drawer"} and text.casefold() in f"{entry['label']} {name}".casefold():
            label = f"{entry['label']} ({entry['unit']})" if entry["unit"] else entry["label"]
            yield HistorySubject(f"series/{chassis}/{entry['key']}", gettext_noop("sensor"), label, name)
