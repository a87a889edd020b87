"""Collects the facts of links from the database and saves verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.urls import reverse

from core.language import _, english, gettext_noop
from fabric.history.models import Attachment
from fabric.inventory.models import Device, HostPort, Port, Slot
from fabric.operations.models import Operation
from telemetry.events.services import event_record
from telemetry.links.counters import DOWN_STATES, FLAPPING
from telemetry.links.models import LinkCount, LinkMinute, LinkSpan, LinkVerdict
from telemetry.links.rules import (
    HOST_OFF,
    HOUR,
    LINK_UP,
    MINUTE,
    MISSING,
    RANKS,
    RATE_SECONDS,
    HealthVerdict,
    LinkFacts,
    LinkLevel,
)

# Operations that ended within this time may have caused a link's latest change.
OPERATION_GRACE = timedelta(seconds=15)
OFF_STATES = {"Off", "PoweringOff"}
# A longer time down is no flap: a host was switched off, or a device removed.
MAX_FLAP_DURATION = timedelta(seconds=60)


@dataclass(frozen=True)
class RecentActivity:
    minutes: tuple[LinkMinute, ...] = ()
    spans: tuple[LinkSpan, ...] = ()


def recent_activity(ports: Iterable[int], *, now: datetime) -> Mapping[int, RecentActivity]:
    """Return the activity of the last hour and two minutes, by port; two queries."""
    since = now - timedelta(seconds=HOUR + 2 * MINUTE)
    minutes, spans = defaultdict(list), defaultdict(list)
    for minute in LinkMinute.objects.filter(port__in=ports, minute__gte=since):
        minutes[minute.port_id].append(minute)
    lately = Q(until=None) | Q(until__gte=since)
    for span in LinkSpan.objects.filter(lately, port__in=ports).order_by("since", "pk"):
        spans[span.port_id].append(span)
    return {port: RecentActivity(tuple(minutes[port]), tuple(spans[port])) for port in {*minutes, *spans}}


def ports_under_operation(chassis: Iterable[int], *, since: datetime) -> set[int]:
    """Return the ports (ids) of chassis (ids) that an operation is changing, or has changed since `since`."""
    rows = Operation.objects.at_work_since(since).filter(chassis__in=list(chassis))
    found: set[int] = set()
    drawers: set[int] = set()
    for row in rows.values("device__slot__port", "port", "source__port", "drawer", "device"):
        found |= {pk for pk in (row["device__slot__port"], row["port"]) if pk is not None}
        if row["device"] is None:
            # A change of mode, cable or port may affect all links of the drawer.
            drawers |= {row["drawer"]} - {None}
            found |= {row["source__port"]} - {None}
    if drawers:
        affected = Q(slot__drawer__in=drawers) | Q(host_port__drawer__in=drawers)
        found |= set(Port.objects.filter(affected).values_list("pk", flat=True))
    return found


def link_facts(
    port: Port, count: LinkCount, windows: RecentActivity, *, now: datetime, busy: bool = False,
    since: datetime | None = None, base: Mapping[str, int] | None = None,
) -> LinkFacts:  # fmt: skip
    """Return the facts of a link at `now`; with `since`, only those from then on.

    `port` has its slot, the device in it, its host port and host loaded; `base` are the totals at `since`.
    """
    device, host_port = _attached_parts(port)
    begin = max(count.watched_since, since) if since is not None else count.watched_since

    def first(seconds: float) -> datetime:
        # A minute counts where any part of it is within the window.
        return max(now - timedelta(seconds=seconds), begin).replace(second=0, microsecond=0)

    def lately(seconds: float) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        for one in windows.minutes:
            if one.minute >= first(seconds):
                found.update(one.counts)
        return found

    since_reset = error_counts(count)
    if base is not None:
        gained = gained_since(count, base)
        since_reset = {name: min(value, gained.get(name, 0)) for name, value in since_reset.items()}
    hour = timedelta(seconds=HOUR)
    return LinkFacts(
        status=count.status,
        state_since=count.state_since.timestamp(),
        width=count.width,
        speed_gbps=count.speed_gbps,
        max_width=port.width,
        max_speed_gbps=port.max_speed_gbps,
        configured_width=port.configured_width,
        approved_width=port.approved_width,
        device_lanes=device.max_lanes if device is not None else None,
        device_pcie_type=device.max_pcie_type if device is not None else "",
        judges_speed=host_port is not None or bool(device is not None and device.max_pcie_type),
        idle=_idle_reason(port, device, host_port),
        missing=_missing_reason(device),
        busy=busy,
        unknown=gettext_noop("The chassis no longer reports this port.") if port.missing_since is not None else "",
        flaps=count_flaps(windows.spans, since=max(now - hour, begin)),
        minute=lately(MINUTE),
        minute_seconds=(now - first(MINUTE)).total_seconds(),
        ten_minutes=lately(RATE_SECONDS),
        ten_minutes_seconds=(now - first(RATE_SECONDS)).total_seconds(),
        hour=lately(HOUR),
        since_reset=since_reset,
    )


def count_flaps(states: Iterable[LinkSpan], *, since: datetime) -> int:
    """Return how often a link went down after `since` and was up again within a minute, without an operation.

    `states` are in order of time.
    """
    flaps, left_at, asked, was_up, was_down = 0, None, False, False, False
    for state in states:
        if state.status == FLAPPING:
            flaps += state.drops
            left_at, was_up = None, False
        elif state.status == LINK_UP:
            if left_at is not None and was_down and not asked and state.since - left_at <= MAX_FLAP_DURATION:
                flaps += left_at >= since
            left_at, was_up = None, True
        else:
            if was_up:
                left_at, asked, was_up, was_down = state.since, False, False, False
            asked |= state.asked
            # Retraining alone is not down; the port counts it separately.
            was_down |= state.status in DOWN_STATES
    return flaps


def port_tenancy(port: Port) -> tuple[int, datetime | None] | None:
    """Return the tenant (id) of the device or host port of a port, and since when (None: always); None: unassigned.

    `port` is from `ports_to_judge`: times of other devices in the slot are not visible to the tenant.
    """
    device, host_port = _attached_parts(port)
    if device is not None and device.tenant_id is not None:
        left: datetime | None = getattr(port, "others_left", None)
        return device.tenant_id, max((at for at in (device.tenant_since, left) if at is not None), default=None)
    if host_port is not None and host_port.tenant_id is not None:
        return host_port.tenant_id, host_port.tenant_since
    return None


def port_parts(port: Port) -> tuple[Slot | None, Device | None, HostPort | None]:
    """Return the slot of a port, the device in it, and the host port, where present; they are loaded."""
    slot: Slot | None = getattr(port, "slot", None)
    return slot, getattr(slot, "device", None), getattr(port, "host_port", None)


def _attached_parts(port: Port) -> tuple[Device | None, HostPort | None]:
    _slot, device, host_port = port_parts(port)
    return device, host_port if host_port is None or host_port.missing_since is None else None


def _idle_reason(port: Port, device: Device | None, host_port: HostPort | None) -> str:
    """Return why the link is not expected to be up, '' where it is."""
    if port.link_state == "Disabled":
        return gettext_noop("The port is switched off.")
    if port.port_type == "UnconfiguredPort":
        return gettext_noop("The port is not configured for anything.")
    if host_port is not None:
        if host_port.host is None:
            return gettext_noop("No host is cabled to it.")
        return HOST_OFF.format(host=host_port.host.name) if host_port.host.power_state in OFF_STATES else ""
    if device is None:
        return (
            gettext_noop("Its slot is empty.")
            if getattr(port, "slot", None) is not None
            else gettext_noop("Nothing is known to be attached.")
        )
    if device.missing_since is not None:
        return gettext_noop("Its slot is empty now.")
    return "" if device.host_port_id is not None else gettext_noop("Its device is attached to no host.")


def _missing_reason(device: Device | None) -> str:
    """Return the missing device of a slot in a sentence: one that is leased, or approved to be attached; else ''."""
    if device is None or device.missing_since is None:
        return ""
    if device.tenant_id is None and device.approved_host_port_id is None:
        return ""
    return MISSING.format(device=device.name, time=f"{device.missing_since:%Y-%m-%d %H:%M:%S}")


LINK_WORSE, LINK_BETTER = "FalconWeb.1.0.LinkWorse", "FalconWeb.1.0.LinkBetter"
GRAVE_LEVELS = {LinkLevel.DOWN, LinkLevel.FAILING}
MAX_REASONS = 3  # in the text of an event
MAX_INTEGER = 2**31 - 1  # of an integer column
MAX_BIG_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class JudgedLink:
    """A link with its new verdict, for administrators (no tenant) or for its tenant, and the stored verdict."""

    port: Port
    count: LinkCount
    verdict: HealthVerdict
    row: LinkVerdict | None
    tenant: int | None = None
    since: datetime | None = None  # start of the tenant's lease
    base: Mapping[str, int] = field(default_factory=dict)

    @property
    def before(self) -> dict[str, int]:
        """Counts from before the lease: the counters less the gain since."""
        return {} if self.since is None else counted_earlier(self.count, gained_since(self.count, self.base))


def verdicts_save(judged: Sequence[JudgedLink], *, now: datetime) -> set[int]:
    """Store changed verdicts; returns the chassis where a level changed, which for one on all facts is an event."""
    if new := [one for one in judged if one.row is None]:
        rows = [
            LinkVerdict(
                port=one.port, tenant_id=one.tenant, held_since=one.since, base=dict(one.base), before=one.before,
                since=now, judged_at=now, **_columns(one),
            )
            for one in new
        ]  # fmt: skip
        with transaction.atomic():
            # Concurrent judgements (a worker, and a grant that records baselines) insert one row.
            LinkVerdict.objects.bulk_create(rows, ignore_conflicts=True)
            for one in new:
                _record_change(one, LinkLevel.HEALTHY, now)
    changed = [one for one in judged if one.row is not None and _update(one, one.row, now)]
    changed += [one for one in new if one.verdict.level is not LinkLevel.HEALTHY]
    return {one.port.chassis_id for one in changed}


def _update(judged: JudgedLink, row: LinkVerdict, now: datetime) -> bool:
    """Store a changed verdict; returns whether its level changed."""
    values, before = _columns(judged), LinkLevel(row.level)
    if all(getattr(row, name) == value for name, value in values.items()):
        return False
    values["judged_at"] = now
    if before is not judged.verdict.level:
        values["since"] = now
    with transaction.atomic():
        # The one that updates the row first records the event.
        if not LinkVerdict.objects.filter(pk=row.pk, level=before.value).update(**values):
            return False
        _record_change(judged, before, now)
    return before is not judged.verdict.level


def _columns(judged: JudgedLink) -> dict[str, Any]:
    verdict = judged.verdict
    return {
        "level": verdict.level.value,
        "rank": RANKS[verdict.level],
        "reasons": [{"code": one.code, "level": one.level.value, "sentence": one.sentence} for one in verdict.reasons],
        "sent_rate": round(verdict.sent_rate, 6),
        "received_rate": round(verdict.received_rate, 6),
        "correctable_rate": round(verdict.correctable_rate, 6),
        "flaps": min(verdict.flaps, MAX_INTEGER),
        "recoveries": min(verdict.recoveries, MAX_INTEGER),
        "errors": min(sum(gained_since(judged.count, judged.base).values()), MAX_BIG_INTEGER),
    }


def _record_change(judged: JudgedLink, before: LinkLevel, now: datetime) -> None:
    if judged.tenant is None and before is not judged.verdict.level:
        _record_event(judged.port, judged.verdict, now, before=before)


def gained_since(count: LinkCount, base: Mapping[str, int]) -> dict[str, int]:
    """Return the gains of a port's error counters since the totals `base`."""
    return {name: max(0, total - base.get(name, 0)) for name, total in count.totals.items()}


def counted_earlier(count: LinkCount, gained: Mapping[str, int]) -> dict[str, int]:
    """Return the error counters of a port less what they gained."""
    return {name: max(0, value - gained.get(name, 0)) for name, value in error_counts(count).items()}


def error_counts(count: LinkCount) -> dict[str, int]:
    """Return the error counters of a port: all but those of bytes."""
    return {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}


def link_name(port: Port) -> str:
    """Return the name of a link: its far end, and its place; slot, device and host port are loaded."""
    far_end, place = far_end_name(port), link_place(port)
    if not far_end:
        return f"{port.chassis.name}, {place}"
    return _("{part} in {chassis}, {place}", part=far_end, chassis=port.chassis.name, place=place)


def far_end_name(port: Port) -> str:
    """Return the name of the device or host port at the far end of a link, '' for none."""
    _slot, device, host_port = port_parts(port)
    if host_port is not None:
        return _("Host port {label}", label=host_port.label)
    return device.name if device is not None and device.missing_since is None else ""


def link_place(port: Port) -> str:
    """Return the place of a link in its chassis; a slot's name may include its drawer."""
    slot, _device, host_port = port_parts(port)
    part = slot if slot is not None else host_port
    drawer = part.drawer.name if part is not None and part.drawer is not None else ""
    if slot is None:
        return drawer or port.name
    return slot.name if not drawer or slot.name.startswith(drawer) else f"{drawer}, {slot.name}"


def _record_event(port: Port, verdict: HealthVerdict, now: datetime, *, before: LinkLevel) -> None:
    """Record the event of a link that is worse or better; an unknown state is reported for the chassis instead."""
    if LinkLevel.UNKNOWN in {before, verdict.level}:
        return
    worse = RANKS[verdict.level] > RANKS[before]
    slot, device, host_port = port_parts(port)
    why = " ".join(one.sentence for one in verdict.reasons[:MAX_REASONS])
    event_record(
        source="site",
        message_id=LINK_WORSE if worse else LINK_BETTER,
        severity="OK" if not worse else "Critical" if verdict.level in GRAVE_LEVELS else "Warning",
        text=f"The link of {english(link_name(port))} is {verdict.level.value} and was {before.value}. {why}",
        at=now,
        chassis_id=port.chassis_id,
        port_id=port.pk,
        device_id=device.pk if device is not None else None,
        drawer_id=getattr(slot or host_port, "drawer_id", None),
        subject_name=english(link_name(port)),
        link=reverse("links:link", args=[port.pk]),
    )


def ports_to_judge(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return ports with all that a verdict reads; `others_left` is when the last other device left the slot."""
    others = Attachment.objects.filter(slot=OuterRef("slot"), until__isnull=False)
    others = others.exclude(device=OuterRef("slot__device")).order_by("-until")
    rows = rows.annotate(others_left=Subquery(others.values("until")[:1]))
    return rows.select_related("chassis", "slot__device", "slot__drawer", "host_port__host", "host_port__drawer")
