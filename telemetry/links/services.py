"""Stores the changes of links that watches observe, and judges links.

Rows of a chassis are written by the worker that polls it; should two do so for a moment, the lock on a port's row
serializes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from core.database import lock_rows
from fabric.bmc.series import LINK_STATUSES
from fabric.inventory.models import Chassis, Port
from telemetry.instrumentation import metrics
from telemetry.links.counters import DOWN_STATES, FLAPPING, NO_STATE, KnownLinks, PortChange
from telemetry.links.models import CounterReset, LinkCount, LinkMinute, LinkSpan, LinkVerdict, Watched
from telemetry.links.rules import LINK_UP, RETRAININGS, judge_link
from telemetry.links.verdicts import (
    OPERATION_GRACE,
    JudgedLink,
    RecentActivity,
    error_counts,
    link_facts,
    port_tenancy,
    ports_to_judge,
    ports_under_operation,
    recent_activity,
    verdicts_save,
)
from telemetry.live.receivers import publish_chassis_changed

GAP = timedelta(seconds=60)  # see telemetry.links.watch
MAX_SPANS_PER_HOUR = 60  # of one port; further changes are counted in one row
SETTLING = timedelta(minutes=2)  # after a change, the state of a link that is not up may change soon
STEADY = timedelta(minutes=5)  # after this time without a change, a flapping link has single states again
RESET_SEEN_WITHIN = timedelta(seconds=120)
KEEP_HISTORY = timedelta(days=730)  # as the coarsest tier of readings
KEEP_MINUTES = timedelta(days=1)
MAX_SPANS = 20_000  # of one port
BATCH_ROWS = 1000
NEVER_LEASED = datetime.max.replace(tzinfo=UTC)  # differs from the start of every lease


def links_load(*, chassis_id: int) -> KnownLinks:
    """Return the stored state of a chassis' links, from which the next reading continues."""
    watched = Watched.objects.filter(pk=chassis_id).first()
    values: dict[tuple[int, str], float] = {}
    for count in LinkCount.objects.filter(port__chassis=chassis_id):
        values |= {(count.port_id, name): float(value) for name, value in count.raw.items()}
        if count.status in LINK_STATUSES:
            values[count.port_id, "status"] = LINK_STATUSES[count.status]
        if count.width is not None:
            values[count.port_id, "width"] = float(count.width)
        if count.speed_gbps is not None:
            values[count.port_id, "speed"] = count.speed_gbps
    return KnownLinks(seen_at=watched.seen_at.timestamp() if watched else 0.0, values=values)


def links_record_read_times(seen: Mapping[int, float], judged: Mapping[int, float] = MappingProxyType({})) -> None:
    """Store when chassis were read last, and the reading up to which their links are judged (Unix s, by id)."""
    existing = set(Chassis.objects.filter(pk__in=seen).values_list("pk", flat=True))
    rows = [
        Watched(chassis_id=pk, seen_at=_to_datetime(at), judged_at=_to_datetime(judged[pk]) if pk in judged else None)
        for pk, at in seen.items()
        if pk in existing
    ]
    # Without a judgement of this worker yet, keep the time of the previous one.
    for fields, some in (
        (["seen_at"], [row for row in rows if row.judged_at is None]),
        (["seen_at", "judged_at"], [row for row in rows if row.judged_at is not None]),
    ):
        Watched.objects.bulk_create(
            some, update_conflicts=True, unique_fields=["chassis"], update_fields=fields, batch_size=500
        )


COUNT_FIELDS = [field.name for field in LinkCount._meta.concrete_fields if not field.primary_key]  # noqa: SLF001 - documented by Django


def links_record_changes(pending: Mapping[int, PendingPortChanges]) -> None:
    """Store the pending changes of ports (by id) in one transaction; removed ports are left out.

    Raises IntegrityError where another worker has just stored the first ones of a port: the next attempt adds to them.
    """
    with transaction.atomic():
        chassis_of = dict(Port.objects.filter(pk__in=pending).order_by("pk").values_list("pk", "chassis"))
        known = {row.port_id: row for row in lock_rows(LinkCount.objects.filter(port__in=chassis_of))}
        begins = {pk: _to_datetime(pending[pk].at) for pk in chassis_of.keys() - known.keys()}
        new = {pk: LinkCount(port_id=pk, watched_since=at, state_since=at) for pk, at in begins.items()}
        rows = {pk: known.get(pk) or new[pk] for pk in chassis_of}
        spans = LinkSpan.objects.filter(port__in=known, until=None).order_by() if known else ()
        open_spans = {span.port_id: span for span in spans}
        new_spans: list[LinkSpan] = []
        at_work: set[int] | None = None
        for pk, count in rows.items():
            changes = pending[pk]
            if at_work is None and (changes.states or changes.retrained_after is not None):
                first = min(at for one in pending.values() for at in one.times_to_excuse())
                at_work = ports_under_operation(set(chassis_of.values()), since=_to_datetime(first) - OPERATION_GRACE)
            asked = pk in (at_work or ())
            _add_counts(count, changes)
            if asked:
                changes.forget_retraining()
            for place, change in enumerate(changes.states, 1):
                span = open_spans[pk] = _enter_state(count, open_spans.get(pk), change, asked=asked)
                is_new = span._state.adding  # noqa: SLF001 - documented by Django
                if is_new and place < len(changes.states):
                    span.save()  # the next state ends it
                elif is_new:
                    new_spans.append(span)
            for change in changes.resets:
                _record_reset(count, change)
        LinkSpan.objects.bulk_create(new_spans)
        LinkCount.objects.bulk_create(new.values())
        LinkCount.objects.bulk_create(
            known.values(), update_conflicts=True, unique_fields=["port"], update_fields=COUNT_FIELDS
        )
        _record_minutes({pk: pending[pk].minutes for pk in rows})
        for chassis in sorted({chassis_of[pk] for pk in rows if pending[pk].resets}):
            # Visible counter values depend on it.
            transaction.on_commit(partial(publish_chassis_changed, chassis))


def links_judge(*, now: datetime | None = None, **ports_filter: Any) -> dict[int, frozenset[int]]:
    """Judge the links of the ports that match a filter, in a fixed number of queries.

    Returns those whose verdict may change with time alone, by chassis, where there are some. Every change of the
    verdict on all facts is an event, and open pages are notified. Unchanged verdicts are not written.
    """
    now = now or timezone.now()
    found = LinkCount.objects.filter(**{f"port__{name}": value for name, value in ports_filter.items()})
    counts = {one.port_id: one for one in found.order_by()}
    if not counts:
        return {}  # it has not been walked or read yet
    ports = {port.pk: port for port in ports_to_judge(Port.objects.filter(pk__in=counts))}
    counts = {pk: count for pk, count in counts.items() if pk in ports}  # the chassis may just have been removed
    windows = recent_activity(counts, now=now)
    busy = ports_under_operation({port.chassis_id for port in ports.values()}, since=now - OPERATION_GRACE)
    verdicts = {(one.port_id, one.tenant_id): one for one in LinkVerdict.objects.filter(port__in=counts)}
    time_dependent: dict[int, set[int]] = defaultdict(set)
    judged: list[JudgedLink] = []
    for pk, count in counts.items():
        port, seen = ports[pk], windows.get(pk, RecentActivity())
        _end_flapping(count, seen, now)
        verdict = judge_link(link_facts(port, count, seen, now=now, busy=pk in busy), now=now.timestamp())
        is_settling = count.status != LINK_UP and now - count.state_since < SETTLING
        if verdict.is_time_dependent or pk in busy or is_settling:
            time_dependent[port.chassis_id].add(pk)
        judged.append(JudgedLink(port, count, verdict, verdicts.pop((pk, None), None)))
        tenancy = port_tenancy(port)
        if tenancy is None:
            continue
        tenant, since = tenancy
        row = verdicts.get((pk, tenant))
        if row is not None and row.held_since == since:
            del verdicts[pk, tenant]
        else:
            row = None
        base = row.base if row is not None else _tenant_baseline(count, since)
        facts = link_facts(port, count, seen, now=now, busy=pk in busy, since=since, base=base)
        judged.append(JudgedLink(port, count, judge_link(facts, now=now.timestamp()), row, tenant, since, base))
    # Verdicts of former tenants, and of former leases of the same tenant.
    outdated = [one.pk for one in verdicts.values() if one.tenant_id is not None]
    if outdated:
        LinkVerdict.objects.filter(pk__in=outdated).delete()
    for chassis in sorted(verdicts_save(judged, now=now)):
        transaction.on_commit(partial(publish_chassis_changed, chassis))
    return {chassis: frozenset(ports) for chassis, ports in time_dependent.items()}


def tenant_baselines_record() -> None:
    """Record the baselines of links that were just leased or released: a tenant sees only later counts."""
    leased = Q(slot__device__tenant__isnull=False) | Q(host_port__tenant__isnull=False)
    recorded: dict[tuple[int, int | None], datetime | None] = {
        (one.port_id, one.tenant_id): one.held_since for one in LinkVerdict.objects.exclude(tenant=None)
    }
    changed = set()
    for port in ports_to_judge(Port.objects.filter(leased, link_count__isnull=False)):
        tenancy = port_tenancy(port)
        if tenancy is not None and recorded.pop((port.pk, tenancy[0]), NEVER_LEASED) != tenancy[1]:
            changed.add(port.pk)
    ports = sorted(changed | {port for port, _ in recorded})
    for start in range(0, len(ports), BATCH_ROWS):
        links_judge(pk__in=ports[start : start + BATCH_ROWS])


def counter_reset_record(*, port: Port, at: datetime, person_name: str, counted: Mapping[str, int]) -> CounterReset:
    """Record a reset of a port's counters that was requested here; the readings that show it are matched to it."""
    row = CounterReset.objects.create(
        port=port, at=at, how=CounterReset.How.ASKED, person_name=person_name[:150], counted=dict(counted)
    )
    LinkCount.objects.filter(port=port).update(reset_at=at)
    return row


def links_delete_old(*, now: datetime | None = None) -> int:
    """Delete rows past their retention, in batches so that writers are not blocked; returns their number."""
    now = now or timezone.now()
    deleted = _delete_in_batches(LinkMinute.objects.filter(minute__lt=now - KEEP_MINUTES))
    deleted += _delete_in_batches(LinkSpan.objects.filter(until__lt=now - KEEP_HISTORY))
    deleted += _delete_in_batches(CounterReset.objects.filter(at__lt=now - KEEP_HISTORY))
    for port in LinkSpan.objects.order_by().values_list("port", flat=True).distinct():
        newest = LinkSpan.objects.filter(port=port).order_by("-since", "-pk")
        last = newest.values_list("since", flat=True)[MAX_SPANS : MAX_SPANS + 1].first()
        if last is not None:
            deleted += _delete_in_batches(LinkSpan.objects.filter(port=port, until__isnull=False, since__lte=last))
    return deleted


def _add_counts(count: LinkCount, changes: PendingPortChanges) -> None:
    for name, gained in changes.gained.items():
        count.totals[name] = count.totals.get(name, 0) + gained
    if changes.raw is not None:
        count.raw, count.counted_at = changes.raw, _to_datetime(changes.at)
        count.totals = dict.fromkeys(error_counts(count), 0) | count.totals


def _enter_state(count: LinkCount, span: LinkSpan | None, change: PortChange, *, asked: bool) -> LinkSpan:
    """Set the new state of a link; returns the open span, which is not saved where it is a new one."""
    state, at = change.state or NO_STATE, _to_datetime(change.at)
    dropped = count.status == LINK_UP and state.status in DOWN_STATES
    count.status, count.width, count.speed_gbps, count.state_since = state.status, state.width, state.speed_gbps, at
    if span is not None:
        seen = _to_datetime(change.seen_until) if change.seen_until else at
        unseen = at - seen > GAP
        if not unseen and _is_flapping(count, span, at):
            span.status, span.width, span.speed_gbps = FLAPPING, None, None
            span.drops += dropped and not asked
            span.save(update_fields=["status", "width", "speed_gbps", "drops"])
            return span
        # Times without readings are a gap of the history.
        span.until = max(seen if unseen else at, span.since)
        span.save(update_fields=["until"])
    return _new_span(count, asked=asked)


def _new_span(count: LinkCount, *, asked: bool = False) -> LinkSpan:
    return LinkSpan(
        port_id=count.port_id, since=count.state_since, status=count.status, width=count.width,
        speed_gbps=count.speed_gbps, asked=asked,
    )  # fmt: skip


def _is_flapping(count: LinkCount, span: LinkSpan, at: datetime) -> bool:
    if span.status == FLAPPING:
        return True
    lately = LinkSpan.objects.filter(port=count.port_id, since__gt=at - timedelta(hours=1))
    return lately.count() >= MAX_SPANS_PER_HOUR


def _end_flapping(count: LinkCount, windows: RecentActivity, now: datetime) -> None:
    """End the flapping span of a link that has been steady, so that its states are recorded singly again."""
    span = windows.spans[-1] if windows.spans else None
    if span is None or span.status != FLAPPING or span.until is not None or now - count.state_since < STEADY:
        return
    with transaction.atomic():
        if LinkSpan.objects.filter(pk=span.pk, until=None).update(until=count.state_since):
            _new_span(count).save()


def _record_reset(count: LinkCount, change: PortChange) -> None:
    count.reset_at = at = _to_datetime(change.at)
    not_before = _to_datetime(change.seen_until) if change.seen_until else None
    begin = (not_before or at) - RESET_SEEN_WITHIN
    asked = CounterReset.objects.filter(port=count.port_id, how=CounterReset.How.ASKED, seen=False, at__gte=begin)
    if asked.update(seen=True):
        return
    CounterReset.objects.create(
        port_id=count.port_id, at=at, not_before=not_before, how=change.how or CounterReset.How.BMC,
        counted=change.reset or {},
    )  # fmt: skip


def _record_minutes(gained: Mapping[int, Mapping[int, Mapping[str, int]]]) -> None:
    pending = {
        (pk, _to_datetime(60.0 * minute)): counts
        for pk, minutes in gained.items()
        for minute, counts in minutes.items()
        if counts
    }
    if not pending:
        return
    ports, minutes = {pk for pk, _ in pending}, {minute for _, minute in pending}
    known = LinkMinute.objects.filter(port__in=ports, minute__in=minutes)
    rows = {key: one for one in known if (key := (one.port_id, one.minute)) in pending}
    for key, row in rows.items():
        row.counts = dict(Counter(row.counts) + Counter(pending[key]))
    new = [
        LinkMinute(port_id=pk, minute=minute, counts=dict(counts))
        for (pk, minute), counts in pending.items()
        if (pk, minute) not in rows
    ]
    LinkMinute.objects.bulk_create(new, batch_size=500)
    LinkMinute.objects.bulk_update(rows.values(), ["counts"], batch_size=200)


def _tenant_baseline(count: LinkCount, since: datetime | None) -> dict[str, int]:
    """Return the totals at the start of a lease without a recorded baseline: none where the watch is younger."""
    return {} if since is None or since <= count.watched_since else dict(count.totals)


def _delete_in_batches(rows: QuerySet[Any]) -> int:
    deleted = 0
    while pks := list(rows.order_by().values_list("pk", flat=True)[:BATCH_ROWS]):
        deleted += len(pks)
        rows.model._default_manager.filter(pk__in=pks).delete()  # noqa: SLF001 - Django's documented name
    return deleted


def _to_datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


MAX_PENDING_MINUTES = 90  # of a port: the time that a verdict covers, and a margin
MAX_PENDING_STATES = 200
MAX_PENDING_RESETS = 50


@dataclass
class PendingPortChanges:
    """The pending changes of one port, merged."""

    gained: Counter[str] = field(default_factory=Counter)
    minutes: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # by Unix minute
    states: list[PortChange] = field(default_factory=list)
    resets: list[PortChange] = field(default_factory=list)
    raw: dict[str, int] | None = None
    at: float = 0.0
    retrained_after: float | None = None  # the reading before the first one with a gain of RETRAININGS

    def add(self, change: PortChange) -> None:
        if change.gained:
            self.gained.update(change.gained)
            # A gain across a pause in the readings belongs to no certain minute.
            if change.at - change.seen_until < 120.0:
                self.minutes[int(change.at // 60)].update(change.gained)
                self._drop_old_minutes()
                if RETRAININGS in change.gained and self.retrained_after is None:
                    self.retrained_after = change.seen_until
        if change.state is not None:
            self.states.append(change)
            if len(self.states) > MAX_PENDING_STATES:
                del self.states[0]
                metrics.increment("link_states_dropped")
        if change.reset is not None and len(self.resets) < MAX_PENDING_RESETS:
            self.resets.append(change)
        if change.raw is not None:
            self.raw = change.raw
        self.at = max(self.at, change.at)

    def merge(self, newer: PendingPortChanges) -> None:
        """Add later changes."""
        self.gained.update(newer.gained)
        for minute, counts in newer.minutes.items():
            self.minutes[minute].update(counts)
        self._drop_old_minutes()
        if self.retrained_after is None:
            self.retrained_after = newer.retrained_after
        self.states = [*self.states, *newer.states][-MAX_PENDING_STATES:]
        self.resets = [*self.resets, *newer.resets][:MAX_PENDING_RESETS]
        self.raw, self.at = newer.raw or self.raw, max(self.at, newer.at)

    def times_to_excuse(self) -> list[float]:
        """Return when the link changed or retrained (Unix s), for the operations that explain it."""
        retrained = [] if self.retrained_after is None else [self.retrained_after]
        return [*(change.at for change in self.states), *retrained]

    def forget_retraining(self) -> None:
        """Leave retrainings out of the minutes that a verdict is made of; the totals keep them."""
        for counts in self.minutes.values():
            counts.pop(RETRAININGS, None)

    def _drop_old_minutes(self) -> None:
        while len(self.minutes) > MAX_PENDING_MINUTES:
            del self.minutes[min(self.minutes)]
