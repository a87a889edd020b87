"""Reads links for a person: their verdicts, worst first, and the counters, states and resets of one link.

Administrators see the verdict on all facts. A tenant sees the verdict on facts since it has leased the link, and no
earlier ones: the effects of another tenant's work are not visible to it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db.models import (
    Case,
    F,
    FilteredRelation,
    IntegerField,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import Tenant, User
from accounts.visibility import row_or_404
from core.database import natural
from core.language import _, gettext_noop
from fabric.inventory.models import Chassis, Drawer, Port
from fabric.inventory.rules import CounterBaseline
from fabric.topology.problems import Problem, ProblemLevel
from telemetry.links.counters import ErrorCounter, sort_counters
from telemetry.links.models import CounterReset, LinkCount, LinkMinute, LinkSpan, Watched
from telemetry.links.presentation import HOST_KIND, LinkView, link_views
from telemetry.links.rules import RANKS, LinkLevel
from telemetry.links.verdicts import counted_earlier, error_counts, gained_since, port_tenancy, ports_to_judge
from telemetry.store.selectors import read_series

# Label and column of each order; the worst, largest or newest comes first.
SORTS: Mapping[str, tuple[str, str]] = {
    "verdict": (gettext_noop("Verdict"), "shown_rank"),
    "name": (gettext_noop("Link"), "name"),
    "chassis": (gettext_noop("Chassis"), "chassis__name"),
    "since": (gettext_noop("Since"), "since"),
    "sent": (gettext_noop("Replays/min"), "sent_rate"),
    "received": (gettext_noop("Receive errors/min"), "received_rate"),
    "flaps": (gettext_noop("Flaps"), "flaps"),
    "recoveries": (gettext_noop("Retrained"), "recoveries"),
    "errors": (gettext_noop("Errors"), "errors_counted"),
}
TEXT_SORTS = {"name", "chassis"}
STATE_REASONS = {"width", "speed", "down", "training", "configured", "unknown", "fine"}
DAY_PARTS = 96  # quarters of an hour in a day


@dataclass(frozen=True, kw_only=True)
class LinkFilter:
    """Filter and order of links; None and '' match all. `sort` is a name of SORTS; '-' before it reverses."""

    chassis: int | None = None
    drawer: int | None = None
    tenant: int | None = None
    verdict: str = ""
    kind: str = ""
    search: str = ""
    sort: str = "verdict"


def link_rows(person: User, link_filter: LinkFilter | None = None) -> QuerySet[Any]:
    """Return the ports whose links the person may see, filtered and sorted, with the columns of `link_views`."""
    own_verdict = Q(link_verdicts__tenant__isnull=True)
    if not person.is_administrator:
        own_verdict = Q(link_verdicts__tenant=person.tenant_id)
    rows = ports_to_judge(Port.objects.visible_to(person)).select_related(
        "slot__device__tenant", "host_port__tenant", "link_count"
    )
    silent = ~Q(chassis__last_error="") | Q(chassis__enabled=False)
    rows = rows.annotate(
        verdict=FilteredRelation("link_verdicts", condition=own_verdict),
        shown_level=Case(
            When(silent, then=Value(LinkLevel.UNKNOWN.value)),
            default=Coalesce(F("verdict__level"), Value(LinkLevel.UNKNOWN.value), output_field=TextField()),
            output_field=TextField(),
        ),
        shown_rank=Case(
            When(silent, then=Value(RANKS[LinkLevel.UNKNOWN])),
            default=Coalesce(F("verdict__rank"), Value(RANKS[LinkLevel.UNKNOWN]), output_field=IntegerField()),
            output_field=IntegerField(),
        ),
        since=F("verdict__since"), reasons=F("verdict__reasons"), sent_rate=F("verdict__sent_rate"),
        judged_at=F("verdict__judged_at"), held_since=F("verdict__held_since"), verdict_level=F("verdict__level"),
        holds_at=Subquery(Watched.objects.filter(chassis=OuterRef("chassis")).values("judged_at")[:1]),
        received_rate=F("verdict__received_rate"), correctable_rate=F("verdict__correctable_rate"),
        flaps=F("verdict__flaps"), recoveries=F("verdict__recoveries"), errors_counted=F("verdict__errors"),
    )  # fmt: skip
    link_filter = link_filter or LinkFilter()
    return _apply_sort(_apply_filter(rows, link_filter), link_filter.sort)


def link_get(person: User, pk: int) -> tuple[Port, LinkView]:
    """Return one link; raises NotFound where the person may not see it."""
    row: Port = row_or_404(link_rows(person), pk, gettext_noop("link"))
    return row, LinkView(row)


@dataclass(frozen=True)
class CounterView:
    """One counter of a port: `now` is the value of the BMC's counter, `total` the count since FalconWeb watches it.

    For a tenant, both count since it has leased the link: earlier values are not visible to it.
    """

    counter: ErrorCounter
    now: int | None
    total: int
    hour: int
    day: tuple[int, ...]  # of the last 24 hours, in quarters of an hour, oldest first


@dataclass(frozen=True)
class CountersView:
    """The counters of a port, the start of `total`, and the last reset."""

    counters: tuple[CounterView, ...]
    since: datetime | None
    reset_at: datetime | None


def port_counters(person: User, port: Port, *, now: datetime | None = None) -> CountersView:
    """Return the counters of a port, most severe first; a tenant's totals start with its lease."""
    now = now or timezone.now()
    count: LinkCount | None = getattr(port, "link_count", None)
    if count is None:
        return CountersView((), None, None)
    visible_from = visible_since(person, port)
    base: dict[str, int] = {}
    since = count.watched_since
    if not person.is_administrator:
        verdict = port.link_verdicts.filter(tenant=person.tenant_id).first()
        if verdict is None or verdict.held_since != visible_from:
            return CountersView((), None, None)  # leased just now, the baseline is not recorded yet
        base, since = verdict.base, max(since, visible_from) if visible_from is not None else since
    begin = max(now - timedelta(days=1), since)
    minutes = list(LinkMinute.objects.filter(port=port, minute__gte=begin.replace(second=0, microsecond=0)))
    raw, totals = error_counts(count), gained_since(count, base)
    hour = now - timedelta(hours=1)
    if visible_from is not None:
        # After a reset, the counter is lower than the total.
        raw = {name: min(value, totals.get(name, 0)) for name, value in raw.items()}
    views = tuple(
        CounterView(
            counter=one,
            now=raw.get(one.name),
            total=totals.get(one.name, 0),
            hour=sum(row.counts.get(one.name, 0) for row in minutes if row.minute >= hour),
            day=_quarters(one.name, minutes, now),
        )
        for one in sort_counters({*raw, *count.totals})
    )
    reset = (
        count.reset_at
        if count.reset_at is not None and (visible_from is None or count.reset_at > visible_from)
        else None
    )
    return CountersView(views, since, reset)


def tenant_baselines(tenant_id: int, chassis: Collection[int]) -> dict[int, CounterBaseline]:
    """Return the values of ports' counters at the start of a tenant's lease, and the time of the first reset since.

    Where no baseline of this lease is recorded yet, the current values are the baseline.
    """
    leased = Q(slot__device__tenant=tenant_id) | Q(host_port__tenant=tenant_id)
    rows = ports_to_judge(Port.objects.filter(leased, chassis__in=chassis))
    rows = rows.select_related("link_count").annotate(
        verdict=FilteredRelation("link_verdicts", condition=Q(link_verdicts__tenant=tenant_id)),
        held_since=F("verdict__held_since"), base=F("verdict__base"), before=F("verdict__before"),
    )  # fmt: skip
    resets = CounterReset.objects.filter(
        port__chassis__in=chassis, port__link_verdicts__tenant=tenant_id, at__gt=F("port__link_verdicts__held_since")
    )
    first = dict(resets.order_by().values_list("port_id").annotate(first=Min("at")))
    found: dict[int, CounterBaseline] = {}
    for port in rows:
        tenancy = port_tenancy(port)
        if tenancy == (tenant_id, None):
            continue  # leased from the start: no baseline
        count: LinkCount | None = getattr(port, "link_count", None)
        if port.base is None or tenancy != (tenant_id, port.held_since):
            found[port.pk] = CounterBaseline(error_counts(count) if count is not None else {})
            continue
        until = first[port.pk].timestamp() if port.pk in first else math.inf
        found[port.pk] = CounterBaseline(port.before, until)
        if count is not None:
            gained = gained_since(count, port.base)
            earlier = counted_earlier(count, gained)
            left = {name: min(had, earlier.get(name, 0)) for name, had in port.before.items()}
            found[port.pk] = CounterBaseline(port.before, until, left, gained)
    return found


def stored_errors(
    person: User, port: Port, names: Sequence[str], *, since: datetime, until: datetime
) -> dict[str, tuple[float, ...]]:
    """Return the errors in each of at most 96 equal parts of a range, by counter, from the store of readings.

    Counters without readings are left out; a tenant sees no errors from before its lease.
    """
    visible_from = visible_since(person, port)
    begin = max(since, visible_from) if visible_from is not None else since
    if begin >= until:
        return {}
    keys = {f"port/{port.pk}/errors/{name}/rate": name for name in names}
    found = read_series(port.chassis_id, list(keys), since=begin.timestamp(), until=until.timestamp(), points=DAY_PARTS)
    missing = [0.0] * round((begin - since).total_seconds() / found.step)
    counts = np.nan_to_num(found.mean) * found.step
    return {
        keys[entry["key"]]: (*missing, *(float(value) for value in row))
        for entry, row in zip(found.series, counts, strict=True)
    }


def state_spans(person: User, port: int) -> QuerySet[LinkSpan]:
    """Return the states of a link that the person may see, newest first; `span_begin` returns their visible start."""
    return LinkSpan.objects.visible_to(person).filter(port=port).order_by("-since", "-pk")


def counter_resets(person: User, port: Port, *, most: int) -> list[CounterReset]:
    """Return the newest `most` resets of a port's counters that the person may see, newest first."""
    rows: QuerySet[CounterReset] = CounterReset.objects.visible_to(person).filter(port=port)
    visible_from = visible_since(person, port)
    found = list(rows[:most])
    for one in found:
        if visible_from is not None and one.not_before is not None:
            # The previous reading may be from before the lease.
            one.not_before = max(one.not_before, visible_from)
    return found


def visible_since(person: User, port: Port) -> datetime | None:
    """Return the start of the history of a port that the person may see; None for all of it."""
    tenancy = None if person.is_administrator else port_tenancy(port)
    return tenancy[1] if tenancy is not None else None


def span_begin(span: LinkSpan, visible_from: datetime | None) -> datetime:
    """Return the start of a state as far as it is visible: not before the start of the lease, `visible_from`."""
    return max(span.since, visible_from) if visible_from is not None else span.since


def links_by_port(person: User, **filters: Any) -> dict[int, LinkView]:
    """Return the links that the person may see, of ports that match the filters, by the ports' ids; one query."""
    return {view.id: view for view in link_views(link_rows(person).filter(**filters))}


def link_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    """Yield links with too many errors, flaps or retrainings; a bad state is reported elsewhere."""
    degraded = link_rows(person).filter(shown_rank__gte=RANKS[LinkLevel.DEGRADED])
    if chassis_ids is not None:
        degraded = degraded.filter(chassis__in=chassis_ids)
    for view in link_views(degraded):
        grave = [one for one in view.reasons if one["code"] not in STATE_REASONS]
        if grave and RANKS[LinkLevel(grave[0]["level"])] >= RANKS[LinkLevel.DEGRADED]:
            name, words, why = view.name, _(grave[0]["level"]), grave[0]["sentence"]
            sentence = _("The link of {name} is {level}: {why}", name=name, level=words, why=why)
            if view.is_stale:
                sentence = _(
                    "The link of {name} was {level} ({stale}): {why}",
                    name=name, level=words, stale=view.stale_label, why=why,
                )  # fmt: skip
            is_degraded = grave[0]["level"] == LinkLevel.DEGRADED
            yield Problem(
                level=ProblemLevel.WARNING if is_degraded else ProblemLevel.CRITICAL,
                word=_("link {level}", level=words),
                sentence=sentence,
                page="links:link",
                pk=view.id,
                about=("port", view.id),
                chassis_id=view.chassis_id,
            )


def filter_choices(person: User) -> dict[str, list[tuple[int, str]]]:
    drawers = Drawer.objects.visible_to(person).order_by(natural("chassis__name"), "number")
    named = drawers.values_list("pk", "chassis__name", "name")
    tenants = Tenant.objects.all() if person.is_administrator else Tenant.objects.none()
    return {
        "chassis": list(Chassis.objects.visible_to(person).order_by(natural("name")).values_list("pk", "name")),
        "drawers": [(pk, f"{chassis}, {name}") for pk, chassis, name in named],
        "tenants": list(tenants.order_by(natural("name")).values_list("pk", "name")),
    }


def _apply_filter(rows: QuerySet[Any], link_filter: LinkFilter) -> QuerySet[Any]:
    if link_filter.chassis is not None:
        rows = rows.filter(chassis=link_filter.chassis)
    if link_filter.drawer is not None:
        rows = rows.filter(
            Q(slot__drawer=link_filter.drawer)
            | Q(host_port__drawer=link_filter.drawer)
            | Q(switch__drawer=link_filter.drawer)
        )
    if link_filter.tenant is not None:
        rows = rows.filter(Q(slot__device__tenant=link_filter.tenant) | Q(host_port__tenant=link_filter.tenant))
    if link_filter.verdict:
        rows = rows.filter(shown_level=link_filter.verdict)
    if link_filter.kind == HOST_KIND:
        rows = rows.filter(host_port__isnull=False)
    elif link_filter.kind:
        rows = rows.filter(slot__device__kind=link_filter.kind, slot__device__missing_since=None)
    # PostgreSQL accepts no NUL.
    text = link_filter.search.replace("\0", " ").strip()
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


def _apply_sort(rows: QuerySet[Any], sort: str) -> QuerySet[Any]:
    name = sort.removeprefix("-")
    _, field = SORTS.get(name, SORTS["verdict"])
    # Texts ascend by default, everything else descends.
    is_descending = (name in TEXT_SORTS) == sort.startswith("-")
    by = natural(field) if name in TEXT_SORTS else F(field)
    order = by.desc(nulls_last=True) if is_descending else by.asc(nulls_first=True)
    return rows.order_by(order, "-shown_rank", natural("chassis__name"), natural("uri"), "pk")


def _quarters(name: str, minutes: list[LinkMinute], now: datetime) -> tuple[int, ...]:
    found = [0] * DAY_PARTS
    for row in minutes:
        place = DAY_PARTS - 1 - int((now - row.minute).total_seconds() // 900)
        if 0 <= place < DAY_PARTS:
            found[place] += row.counts.get(name, 0)
    return tuple(found)
