"""Collects the facts of links from the database and saves verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.urls import reverse

from fabric.history.models import Attachment
from fabric.inventory.models import Device, HostPort, Port
from fabric.operations.models import Operation
from telemetry.events.services import event_record
from telemetry.links.counters import count_flaps
from telemetry.links.models import LinkCount, LinkMinute, LinkSpan, LinkVerdict
from telemetry.links.rules import HOUR, MINUTE, RANKS, RATE_SECONDS, HealthVerdict, LinkFacts, LinkLevel

# Operations that ended so long ago at most may be what a link has just done.
OPERATION_GRACE = timedelta(seconds=15)
OFF_STATES = {"Off", "PoweringOff"}


@dataclass(frozen=True)
class RecentActivity:
    """What happened of late on one link."""

    minutes: tuple[LinkMinute, ...] = ()
    spans: tuple[LinkSpan, ...] = ()


def recent_activity(ports: Iterable[int], *, now: datetime) -> Mapping[int, RecentActivity]:
    """Return what happened within the last hour and a bit, by port; two queries."""
    since = now - timedelta(seconds=HOUR + 2 * MINUTE)
    minutes, spans = defaultdict(list), defaultdict(list)
    for minute in LinkMinute.objects.filter(port__in=ports, minute__gte=since):
        minutes[minute.port_id].append(minute)
    lately = Q(until=None) | Q(until__gte=since)
    for span in LinkSpan.objects.filter(lately, port__in=ports).order_by("since", "pk"):
        spans[span.port_id].append(span)
    return {port: RecentActivity(tuple(minutes[port]), tuple(spans[port])) for port in {*minutes, *spans}}


def ports_under_operation(chassis: Iterable[int], *, since: datetime) -> set[int]:
    """Return the ports (ids) of chassis (ids) on which an operation is at work, or was since then."""
    rows = Operation.objects.at_work_since(since).filter(chassis__in=list(chassis))
    found: set[int] = set()
    drawers: set[int] = set()
    for row in rows.values("device__slot__port", "port", "source__port", "drawer", "device"):
        found |= {pk for pk in (row["device__slot__port"], row["port"]) if pk is not None}
        if row["device"] is None:
            # A mode, a cable or a port may shake all of its drawer.
            drawers |= {row["drawer"]} - {None}
            found |= {row["source__port"]} - {None}
    if drawers:
        shaken = Q(slot__drawer__in=drawers) | Q(host_port__drawer__in=drawers)
        found |= set(Port.objects.filter(shaken).values_list("pk", flat=True))
    return found


def link_facts(
    port: Port, count: LinkCount, windows: RecentActivity, *, now: datetime, busy: bool = False,
    since: datetime | None = None, base: Mapping[str, int] | None = None,
) -> LinkFacts:  # fmt: skip
    """Return what is known of a link at an instant; with `since`, of what happened from then on alone.

    `port` has its slot, the device in it, its host port and host loaded; `base` are the totals at `since`.
    """
    device, host_port = _attached_parts(port)
    begin = max(count.watched_since, since) if since is not None else count.watched_since

    def first(seconds: float) -> datetime:
        # A minute counts where any of it is within.
        return max(now - timedelta(seconds=seconds), begin).replace(second=0, microsecond=0)

    def lately(seconds: float) -> dict[str, int]:
        return _sum_counts(one.counts for one in windows.minutes if one.minute >= first(seconds))

    since_reset = {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}
    if base is not None:
        gained = {name: value - base.get(name, 0) for name, value in count.totals.items()}
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
        gone=_missing_reason(device),
        busy=busy,
        unknown="The chassis no longer reports this port." if port.missing_since is not None else "",
        flaps=count_flaps(windows.spans, since=max(now - hour, begin)),
        minute=lately(MINUTE),
        minute_seconds=(now - first(MINUTE)).total_seconds(),
        ten_minutes=lately(RATE_SECONDS),
        ten_minutes_seconds=(now - first(RATE_SECONDS)).total_seconds(),
        hour=lately(HOUR),
        since_reset=since_reset,
    )


def port_tenancy(port: Port) -> tuple[int, datetime | None] | None:
    """Return the tenant (id) that holds what is on a port, and since when (None: always); None: nobody.

    `port` is one of `ports_to_judge`: what another device did in the slot is not this one's holder's to see.
    """
    device, host_port = _attached_parts(port)
    if device is not None and device.tenant_id is not None:
        left: datetime | None = getattr(port, "others_left", None)
        return device.tenant_id, max((at for at in (device.tenant_since, left) if at is not None), default=None)
    if host_port is not None and host_port.tenant_id is not None:
        return host_port.tenant_id, host_port.tenant_since
    return None


def _attached_parts(port: Port) -> tuple[Device | None, HostPort | None]:
    """Return the device and the host port on a port, as far as they are there."""
    slot = getattr(port, "slot", None)
    device: Device | None = getattr(slot, "device", None) if slot is not None else None
    host_port: HostPort | None = getattr(port, "host_port", None)
    return device, host_port if host_port is None or host_port.missing_since is None else None


def _idle_reason(port: Port, device: Device | None, host_port: HostPort | None) -> str:
    """Return why nobody expects the link to be up, '' where it should be."""
    if port.link_state == "Disabled":
        return "The port is switched off."
    if port.port_type == "UnconfiguredPort":
        return "The port is not configured for anything."
    if host_port is not None:
        if host_port.host is None:
            return "No host is cabled to it."
        return f"{host_port.host.name} is switched off." if host_port.host.power_state in OFF_STATES else ""
    if device is None:
        return "Nothing is in its slot." if getattr(port, "slot", None) is not None else "Nothing is known to be on it."
    if device.missing_since is not None:
        return "Nothing is in its slot any more."
    return "" if device.host_port_id is not None else "Its device is attached to no host."


def _missing_reason(device: Device | None) -> str:
    """Return what should be in the slot and is not there: a device that is held, or approved to be attached."""
    if device is None or device.missing_since is None:
        return ""
    if device.tenant_id is None and device.approved_host_port_id is None:
        return ""
    return f"{device.name} is gone from its slot since {device.missing_since:%Y-%m-%d %H:%M:%S} UTC."


def _sum_counts(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for counts in several:
        found.update(counts)
    return dict(found)


SEVERITIES = {
    LinkLevel.DOWN: "Critical",
    LinkLevel.FAILING: "Critical",
    LinkLevel.DEGRADED: "Warning",
    LinkLevel.WATCH: "Warning",
}
LINK_WORSE, LINK_BETTER = "FalconWeb.1.0.LinkWorse", "FalconWeb.1.0.LinkBetter"
MAX_REASONS = 3  # in the text of an event
MAX_INTEGER = 2**31 - 1  # what every database keeps
MAX_BIG_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class JudgedLink:
    """A link with its verdict, for everybody (no tenant) or for its holder, and the row that says so until now."""

    port: Port
    count: LinkCount
    verdict: HealthVerdict
    row: LinkVerdict | None
    tenant: int | None = None
    since: datetime | None = None  # when the tenant began to hold it
    base: Mapping[str, int] = field(default_factory=dict)

    @property
    def before(self) -> dict[str, int]:
        """What the counters have that came before the tenant: all but what its totals have."""
        return {} if self.since is None else counted_earlier(self.count, gained_since(self.count, self.base))


def verdict_save(judged: JudgedLink, *, now: datetime) -> bool:
    """Write a verdict where it says something new; returns whether the level is another than before.

    One that changed by all that is known is an event too.
    """
    verdict, row = judged.verdict, judged.row
    values: dict[str, Any] = {
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
    before = LinkLevel(row.level) if row is not None else LinkLevel.HEALTHY
    if row is not None:
        changed = [name for name, value in values.items() if getattr(row, name) != value]
        if not changed:
            return False
    with transaction.atomic():
        if row is None:
            new = LinkVerdict(
                port=judged.port, tenant_id=judged.tenant, held_since=judged.since, base=dict(judged.base),
                before=judged.before, since=now, judged_at=now, **values,
            )  # fmt: skip
            # Two who judge at once (a worker, and a grant that notes where the counts stand) make one row.
            LinkVerdict.objects.bulk_create([new], ignore_conflicts=True)
        else:
            values["judged_at"] = now
            if before is not verdict.level:
                values["since"] = now
            # Whoever was faster has told of it.
            written = LinkVerdict.objects.filter(pk=row.pk, level=before.value).update(**values)
            if not written:
                return False
        if judged.tenant is None and before is not verdict.level:
            _record_event(judged.port, verdict, now, before=before)
    return before is not verdict.level


def gained_since(count: LinkCount, base: Mapping[str, int]) -> dict[str, int]:
    """Return what the error counters of a port gained since their totals were `base`."""
    return {name: max(0, total - base.get(name, 0)) for name, total in count.totals.items()}


def counted_earlier(count: LinkCount, gained: Mapping[str, int]) -> dict[str, int]:
    """Return what the error counters of a port have that is not of what they gained."""
    return {name: max(0, value - gained.get(name, 0)) for name, value in error_counts(count).items()}


def error_counts(count: LinkCount) -> dict[str, int]:
    """Return where the error counters of a port stand: all but those of bytes."""
    return {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}


def link_name(port: Port) -> str:
    """Return what people call a link: what is at its far end, and where; slot, device and host port are loaded."""
    what, place = far_end_name(port), link_place(port)
    return f"{what} in {port.chassis.name}, {place}" if what else f"{port.chassis.name}, {place}"


def far_end_name(port: Port) -> str:
    """Return what is at the far end of a link, '' for nothing: a device's name, or that of a host port."""
    host_port, slot = getattr(port, "host_port", None), getattr(port, "slot", None)
    if host_port is not None:
        return f"Host port {host_port.label}"
    device = getattr(slot, "device", None)
    return str(device.name) if device is not None and device.missing_since is None else ""


def link_place(port: Port) -> str:
    """Return where in its chassis a link is; a slot's name may say its drawer already."""
    slot = getattr(port, "slot", None)
    part = slot if slot is not None else getattr(port, "host_port", None)
    drawer = part.drawer.name if part is not None and part.drawer is not None else ""
    if slot is None:
        return drawer or port.name
    return slot.name if not drawer or slot.name.startswith(drawer) else f"{drawer}, {slot.name}"


def _record_event(port: Port, verdict: HealthVerdict, now: datetime, *, before: LinkLevel) -> None:
    """Make an event of a link that is worse or better than before; that it is not known is told of the chassis."""
    if LinkLevel.UNKNOWN in {before, verdict.level}:
        return
    worse = RANKS[verdict.level] > RANKS[before]
    slot, host_port = getattr(port, "slot", None), getattr(port, "host_port", None)
    device = getattr(slot, "device", None)
    why = " ".join(one.sentence for one in verdict.reasons[:MAX_REASONS])
    event_record(
        source="site",
        message_id=LINK_WORSE if worse else LINK_BETTER,
        severity=SEVERITIES.get(verdict.level, "OK") if worse else "OK",
        text=f"The link of {link_name(port)} is {verdict.level.value} and was {before.value}. {why}",
        at=now,
        chassis_id=port.chassis_id,
        port_id=port.pk,
        device_id=device.pk if device is not None else None,
        drawer_id=getattr(slot or host_port, "drawer_id", None),
        subject_name=link_name(port),
        link=reverse("links:link", args=[port.pk]),
    )


def ports_to_judge(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return ports with all that a verdict looks at; `others_left`: when the last other device left the slot."""
    others = Attachment.objects.filter(slot=OuterRef("slot"), until__isnull=False)
    others = others.exclude(device=OuterRef("slot__device")).order_by("-until")
    rows = rows.annotate(others_left=Subquery(others.values("until")[:1]))
    return rows.select_related("chassis", "slot__device", "slot__drawer", "host_port__host", "host_port__drawer")
