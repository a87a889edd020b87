"""What a person sees of links: how they are, worst first, and one of them with its counters, states and resets.

Administrators read the verdict by all that is known. A tenant reads the one by what was since it holds the link, and
nothing of what was before: what another tenant's work did to a link is not its to see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db.models import Case, F, FilteredRelation, IntegerField, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.models import Chassis, Device, Drawer, Port
from fabric.overview import Trouble
from falconweb.errors import NotFound
from telemetry.links.counters import Counter, in_order
from telemetry.links.facts import holder_of
from telemetry.links.judging import far_end_of, name_of, place_of
from telemetry.links.models import CounterReset, LinkCount, LinkMinute, LinkSpan
from telemetry.links.services import judged_ports
from telemetry.links.verdict import RANKS, UP, Level
from telemetry.store.reading import read

LEVELS = {
    Level.DOWN: ("▲", "Down"), Level.FAILING: ("▲", "Failing"), Level.DEGRADED: ("▼", "Degraded"),
    Level.WATCH: ("◆", "Watch"), Level.UNKNOWN: ("?", "Unknown"), Level.HEALTHY: ("✓", "Healthy"),
}  # fmt: skip
HOST = "host"
KINDS = {**dict(Device.Kind.choices), HOST: "Host link"}
# What each order is by; the worse, the larger or newer comes first.
SORTS: Mapping[str, tuple[str, str]] = {
    "verdict": ("Verdict", "shown_rank"), "name": ("Link", "name"), "chassis": ("Chassis", "chassis__name"),
    "since": ("Since", "since"), "sent": ("Sent again, 1/min", "sent_rate"),
    "received": ("Came damaged, 1/min", "received_rate"),
    "flaps": ("Flaps", "flaps"), "recoveries": ("Retrained", "recoveries"), "errors": ("Errors", "errors"),
}  # fmt: skip
BY_WORDS = {"name", "chassis"}
ABOUT_STATE = {"width", "speed", "down", "training", "configured", "unknown", "fine"}
NOT_ANSWERING = "The chassis does not answer, so that nothing is known of its links now."
NOT_POLLED = "The chassis is not polled, so that nothing is known of its links now."
NOT_JUDGED = "It was not judged yet: that takes a few seconds from the first reading on."
MOST_TROUBLES = 25
PARTS = 96  # of a day: quarters of an hour


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to keep of a list of links; None and '' keep all. `sort` is a name of SORTS; '-' before it reverses."""

    chassis: int | None = None
    drawer: int | None = None
    tenant: int | None = None
    verdict: str = ""
    kind: str = ""
    search: str = ""
    sort: str = "verdict"


ALL = Wanted()


@dataclass(frozen=True, kw_only=True)
class LinkView:
    """One link as a person may see it. Rates are 1/s; flaps and retrainings of the last hour; speeds Gb/s one way."""

    id: int
    name: str
    title: str  # the name without its place
    place: str
    port_name: str
    chassis_id: int
    chassis_name: str
    drawer_name: str
    kind: str
    kind_label: str
    far_end: str
    device_id: int | None
    host_id: int | None
    tenant_name: str
    level: str
    mark: str
    level_words: str
    since: datetime | None
    reasons: tuple[dict[str, str], ...]
    status: str
    width: int | None
    max_width: int | None
    speed_gbps: float | None
    max_speed_gbps: float | None
    sent_rate: float
    received_rate: float
    correctable_rate: float
    flaps: int
    recoveries: int
    errors: int

    @property
    def why(self) -> str:
        """The gravest reason; '' for a link that is up and fine."""
        fine = self.level == Level.HEALTHY and self.status == UP
        return self.reasons[0]["sentence"] if self.reasons and not fine else ""


def link_rows(person: User, wanted: Wanted = ALL) -> QuerySet[Any]:
    """Return the ports whose links the person may see, as they want them, with what `link_views` needs."""
    mine = Q(link_verdicts__tenant__isnull=True)
    if not person.is_administrator:
        mine = Q(link_verdicts__tenant=person.tenant_id)
    rows = judged_ports(Port.objects.visible_to(person)).select_related(
        "slot__device__tenant", "host_port__tenant", "link_count"
    )
    silent = ~Q(chassis__last_error="") | Q(chassis__enabled=False)
    rows = rows.annotate(
        verdict=FilteredRelation("link_verdicts", condition=mine),
        shown_level=Case(
            When(silent, then=Value(Level.UNKNOWN.value)),
            default=Coalesce(F("verdict__level"), Value(Level.UNKNOWN.value), output_field=TextField()),
            output_field=TextField(),
        ),
        shown_rank=Case(
            When(silent, then=Value(RANKS[Level.UNKNOWN])),
            default=Coalesce(F("verdict__rank"), Value(RANKS[Level.UNKNOWN]), output_field=IntegerField()),
            output_field=IntegerField(),
        ),
        since=F("verdict__since"), reasons=F("verdict__reasons"), sent_rate=F("verdict__sent_rate"),
        received_rate=F("verdict__received_rate"), correctable_rate=F("verdict__correctable_rate"),
        flaps=F("verdict__flaps"), recoveries=F("verdict__recoveries"), errors_counted=F("verdict__errors"),
    )  # fmt: skip
    return _sorted(_kept(rows, wanted), wanted.sort)


def link_views(rows: Any) -> list[LinkView]:
    """Return rows of `link_rows` as a person reads them."""
    return [_view(row) for row in rows]


def link_of(person: User, pk: int) -> tuple[Port, LinkView]:
    """Return one link; raises NotFound where the person sees none."""
    row = link_rows(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such link.")
    return row, _view(row)


@dataclass(frozen=True)
class CounterView:
    """One counter of a port: `now` is where the BMC's counter stands, `total` what came since FalconWeb watches it."""

    counter: Counter
    now: int | None
    total: int
    hour: int
    day: tuple[int, ...]  # of the last 24 hours, in quarters of an hour, oldest first

    @property
    def direction(self) -> str:
        """Which way, in a word."""
        return self.counter.direction.value


@dataclass(frozen=True)
class CountersView:
    """The counters of a port, and since when `total` and `now` count."""

    counters: tuple[CounterView, ...]
    since: datetime | None
    reset_at: datetime | None


def counters_of(person: User, port: Port, *, now: datetime | None = None) -> CountersView:
    """Return the counters of a port that the person sees, gravest first; a tenant's totals begin with its time."""
    now = now or timezone.now()
    count: LinkCount | None = getattr(port, "link_count", None)
    if count is None:
        return CountersView((), None, None)
    held = held_from(person, port)
    base: dict[str, int] = {}
    since = count.watched_since
    if not person.is_administrator:
        verdict = port.link_verdicts.filter(tenant=person.tenant_id).first()
        if verdict is None or verdict.held_since != held:
            return CountersView((), None, None)  # it has just become theirs
        base, since = verdict.base, max(since, held) if held is not None else since
    begin = max(now - timedelta(days=1), since)
    minutes = list(LinkMinute.objects.filter(port=port, minute__gte=begin.replace(second=0, microsecond=0)))
    raw = {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}
    hour = now - timedelta(hours=1)
    views = tuple(
        CounterView(
            counter=one,
            now=raw.get(one.name),
            total=max(0, count.totals.get(one.name, 0) - base.get(one.name, 0)),
            hour=sum(row.counts.get(one.name, 0) for row in minutes if row.minute >= hour),
            day=_quarters(one.name, minutes, now),
        )
        for one in in_order({*raw, *count.totals})
    )
    reset = count.reset_at if count.reset_at is not None and (held is None or count.reset_at > held) else None
    return CountersView(views, since, reset)


def errors_kept(
    person: User, port: Port, names: Sequence[str], *, since: datetime, until: datetime
) -> dict[str, tuple[float, ...]]:
    """Return how many errors came in each of at most 96 equal parts of a range, by counter, as the readings' store has.

    A counter that was never measured is left out; of a tenant, what was before its time is.
    """
    held = held_from(person, port)
    begin = max(since, held) if held is not None else since
    if begin >= until:
        return {}
    keys = {f"port/{port.pk}/errors/{name}/rate": name for name in names}
    found = read(port.chassis_id, list(keys), since=begin.timestamp(), until=until.timestamp(), points=PARTS)
    missing = [0.0] * round((begin - since).total_seconds() / found.step)
    counts = np.nan_to_num(found.mean) * found.step
    return {
        keys[entry["key"]]: (*missing, *(float(value) for value in row))
        for entry, row in zip(found.series, counts, strict=True)
    }


def spans_of(person: User, port: int) -> QuerySet[LinkSpan]:
    """Return the states of a link that the person may see, newest first; see `span_begin` for where they begin."""
    return LinkSpan.objects.visible_to(person).filter(port=port).order_by("-since", "-pk")


def resets_of(person: User, port: int) -> QuerySet[CounterReset]:
    """Return the resets of a port's counters that the person may see, newest first."""
    rows: QuerySet[CounterReset] = CounterReset.objects.visible_to(person).filter(port=port)
    return rows


def held_from(person: User, port: Port) -> datetime | None:
    """Return when what the person may see of a port's history begins; None: with the port."""
    holder = None if person.is_administrator else holder_of(port)
    return holder[1] if holder is not None else None


def span_begin(span: LinkSpan, held: datetime | None) -> datetime:
    """Return when a state begins for somebody who may look back until `held`."""
    return max(span.since, held) if held is not None else span.since


def levels_of(person: User, ports: list[int]) -> dict[int, LinkView]:
    """Return how the links of these ports (ids) are, as far as the person sees them; one query."""
    return {view.id: view for view in link_views(link_rows(person).filter(pk__in=ports))}


def link_troubles(person: User) -> Iterator[Trouble]:
    """Tell of links with too many errors, flaps or retrainings; what is down or below its capability is told anyway."""
    ill = link_rows(person).filter(shown_rank__gte=RANKS[Level.DEGRADED])
    told = 0
    for view in link_views(ill[: 4 * MOST_TROUBLES]):
        grave = [one for one in view.reasons if one["code"] not in ABOUT_STATE]
        if grave and RANKS[Level(grave[0]["level"])] >= RANKS[Level.DEGRADED] and told < MOST_TROUBLES:
            told += 1
            yield Trouble(
                sentence=f"The link of {view.name} is {grave[0]['level']}: {grave[0]['sentence']}",
                page="links:link",
                pk=view.id,
            )


@dataclass(frozen=True)
class Choices:
    """What a person can narrow the list by."""

    chassis: list[tuple[int, str]]
    drawers: list[tuple[int, str]]
    tenants: list[tuple[int, str]]


def choices_of(person: User) -> Choices:
    """Return the chassis, drawers and tenants that a person may choose among."""
    drawers = Drawer.objects.visible_to(person).order_by("chassis__name", "number")
    return Choices(
        chassis=list(Chassis.objects.visible_to(person).order_by("name").values_list("pk", "name")),
        drawers=[
            (pk, f"{chassis}, {name}") for pk, chassis, name in drawers.values_list("pk", "chassis__name", "name")
        ],
        tenants=list(Tenant.objects.order_by("name").values_list("pk", "name")) if person.is_administrator else [],
    )


def _kept(rows: QuerySet[Any], wanted: Wanted) -> QuerySet[Any]:
    if wanted.chassis is not None:
        rows = rows.filter(chassis=wanted.chassis)
    if wanted.drawer is not None:
        rows = rows.filter(
            Q(slot__drawer=wanted.drawer) | Q(host_port__drawer=wanted.drawer) | Q(switch__drawer=wanted.drawer)
        )
    if wanted.tenant is not None:
        rows = rows.filter(Q(slot__device__tenant=wanted.tenant) | Q(host_port__tenant=wanted.tenant))
    if wanted.verdict:
        rows = rows.filter(shown_level=wanted.verdict)
    if wanted.kind == HOST:
        rows = rows.filter(host_port__isnull=False)
    elif wanted.kind:
        rows = rows.filter(slot__device__kind=wanted.kind, slot__device__missing_since=None)
    # Every database takes it so.
    text = wanted.search.replace("\0", " ").strip()
    if text:
        fields = (
            "name", "port_id", "chassis__name", "slot__name", "slot__device__name", "slot__device__model",
            "slot__device__serial_number", "host_port__label", "host_port__host__name",
        )  # fmt: skip
        found = Q()
        for field in fields:
            found |= Q((f"{field}__icontains", text))
        rows = rows.filter(found)
    return rows


def _sorted(rows: QuerySet[Any], sort: str) -> QuerySet[Any]:
    name = sort.removeprefix("-")
    field = "errors_counted" if name == "errors" else SORTS.get(name, SORTS["verdict"])[1]
    # Words begin with A, everything else with the worst.
    falls = (name in BY_WORDS) == sort.startswith("-")
    order = F(field).desc(nulls_last=True) if falls else F(field).asc(nulls_first=True)
    return rows.order_by(order, "-shown_rank", "chassis__name", "uri", "pk")


def _view(row: Any) -> LinkView:
    slot, host_port = getattr(row, "slot", None), getattr(row, "host_port", None)
    device = getattr(slot, "device", None)
    if device is not None and device.missing_since is not None and device.tenant_id is None:
        device = None
    count: LinkCount | None = getattr(row, "link_count", None)
    host = host_port.host if host_port is not None else None
    kind = HOST if host_port is not None else device.kind if device is not None else ""
    tenant = host_port.tenant if host_port is not None else device.tenant if device is not None else None
    level = Level(row.shown_level)
    mark, words = LEVELS[level]
    drawer = slot.drawer if slot is not None else host_port.drawer if host_port is not None else None
    return LinkView(
        id=row.pk,
        name=name_of(row),
        title=far_end_of(row) or row.name,
        place=place_of(row),
        port_name=row.name,
        chassis_id=row.chassis_id,
        chassis_name=row.chassis.name,
        drawer_name=drawer.name if drawer is not None else "",
        kind=kind,
        kind_label=KINDS.get(kind, "Empty slot" if slot is not None else "Other"),
        far_end=host.name if host is not None else device.name if device is not None else "",
        device_id=device.pk if device is not None else None,
        host_id=host.pk if host is not None else None,
        tenant_name=tenant.name if tenant is not None else "",
        level=level.value,
        mark=mark,
        level_words=words,
        since=row.since if row.reasons is not None and level.value == row.reasons[0]["level"] else None,
        reasons=_reasons(row, level),
        status=count.status if count is not None else row.link_status,
        width=count.width if count is not None else row.active_width,
        max_width=row.width,
        speed_gbps=count.speed_gbps if count is not None else row.speed_gbps,
        max_speed_gbps=row.max_speed_gbps,
        sent_rate=row.sent_rate or 0.0,
        received_rate=row.received_rate or 0.0,
        correctable_rate=row.correctable_rate or 0.0,
        flaps=row.flaps or 0,
        recoveries=row.recoveries or 0,
        errors=row.errors_counted or 0,
    )


def _reasons(row: Any, level: Level) -> tuple[dict[str, str], ...]:
    if not row.chassis.enabled:
        sentence = NOT_POLLED
    elif row.chassis.last_error:
        sentence = NOT_ANSWERING
    elif row.reasons is None:
        sentence = NOT_JUDGED
    else:
        return tuple(row.reasons)
    return ({"code": "unknown", "level": level.value, "sentence": sentence},)


def _quarters(name: str, minutes: list[LinkMinute], now: datetime) -> tuple[int, ...]:
    found = [0] * PARTS
    for row in minutes:
        place = PARTS - 1 - int((now - row.minute).total_seconds() // 900)
        if 0 <= place < PARTS:
            found[place] += row.counts.get(name, 0)
    return tuple(found)
