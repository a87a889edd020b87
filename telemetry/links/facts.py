"""What is known of links, put together for the verdict: rows in, facts out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from fabric.models import Device, HostPort, Operation, Port
from telemetry.links.flaps import flaps_of
from telemetry.links.models import LinkCount, LinkMinute, LinkSpan
from telemetry.links.verdict import HOUR, MINUTE, RATE_SECONDS, Facts

# Operations that ended so long ago at most may be what a link has just done.
ASKED_WITHIN = timedelta(seconds=15)
OFF = {"Off", "PoweringOff"}


@dataclass(frozen=True)
class Windows:
    """What happened of late on one link."""

    minutes: tuple[LinkMinute, ...] = ()
    spans: tuple[LinkSpan, ...] = ()


def windows_of(ports: Iterable[int], *, now: datetime) -> Mapping[int, Windows]:
    """Return what happened within the last hour and a bit, by port; two queries."""
    since = now - timedelta(seconds=HOUR + 2 * MINUTE)
    minutes, spans = defaultdict(list), defaultdict(list)
    for minute in LinkMinute.objects.filter(port__in=ports, minute__gte=since):
        minutes[minute.port_id].append(minute)
    lately = Q(until=None) | Q(until__gte=since)
    for span in LinkSpan.objects.filter(lately, port__in=ports).order_by("since", "pk"):
        spans[span.port_id].append(span)
    return {port: Windows(tuple(minutes[port]), tuple(spans[port])) for port in {*minutes, *spans}}


def ports_at_work(chassis: Iterable[int], *, since: datetime) -> set[int]:
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


def facts_of(
    port: Port, count: LinkCount, windows: Windows, *, now: datetime, busy: bool = False,
    since: datetime | None = None, base: Mapping[str, int] | None = None,
) -> Facts:  # fmt: skip
    """Return what is known of a link at an instant; with `since`, of what happened from then on alone.

    `port` has its slot, the device in it, its host port and host loaded; `base` are the totals at `since`.
    """
    device, host_port = _on(port)
    begin = max(count.watched_since, since) if since is not None else count.watched_since

    def first(seconds: float) -> datetime:
        # A minute counts where any of it is within.
        return max(now - timedelta(seconds=seconds), begin).replace(second=0, microsecond=0)

    def lately(seconds: float) -> dict[str, int]:
        return _sum(one.counts for one in windows.minutes if one.minute >= first(seconds))

    since_reset = {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}
    if base is not None:
        gained = {name: value - base.get(name, 0) for name, value in count.totals.items()}
        since_reset = {name: min(value, gained.get(name, 0)) for name, value in since_reset.items()}
    hour = timedelta(seconds=HOUR)
    return Facts(
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
        idle=_idle(port, device, host_port),
        gone=_gone(device),
        busy=busy,
        unknown="The chassis no longer reports this port." if port.missing_since is not None else "",
        flaps=flaps_of(windows.spans, since=max(now - hour, begin)),
        minute=lately(MINUTE),
        minute_seconds=(now - first(MINUTE)).total_seconds(),
        ten_minutes=lately(RATE_SECONDS),
        ten_minutes_seconds=(now - first(RATE_SECONDS)).total_seconds(),
        hour=lately(HOUR),
        since_reset=since_reset,
    )


def holder_of(port: Port) -> tuple[int, datetime | None] | None:
    """Return the tenant (id) that holds what is on a port, and since when (None: always); None: nobody.

    `port` is one of `judged_ports`: what another device did in the slot is not this one's holder's to see.
    """
    device, host_port = _on(port)
    if device is not None and device.tenant_id is not None:
        left: datetime | None = getattr(port, "others_left", None)
        return device.tenant_id, max((at for at in (device.tenant_since, left) if at is not None), default=None)
    if host_port is not None and host_port.tenant_id is not None:
        return host_port.tenant_id, host_port.tenant_since
    return None


def _on(port: Port) -> tuple[Device | None, HostPort | None]:
    """Return the device and the host port on a port, as far as they are there."""
    slot = getattr(port, "slot", None)
    device: Device | None = getattr(slot, "device", None) if slot is not None else None
    host_port: HostPort | None = getattr(port, "host_port", None)
    return device, host_port if host_port is None or host_port.missing_since is None else None


def _idle(port: Port, device: Device | None, host_port: HostPort | None) -> str:
    """Return why nobody expects the link to be up, '' where it should be."""
    if port.link_state == "Disabled":
        return "The port is switched off."
    if port.port_type == "UnconfiguredPort":
        return "The port is not configured for anything."
    if host_port is not None:
        if host_port.host is None:
            return "No host is cabled to it."
        return f"{host_port.host.name} is switched off." if host_port.host.power_state in OFF else ""
    if device is None:
        return "Nothing is in its slot." if getattr(port, "slot", None) is not None else "Nothing is known to be on it."
    if device.missing_since is not None:
        return "Nothing is in its slot any more."
    return "" if device.host_port_id is not None else "Its device is attached to no host."


def _gone(device: Device | None) -> str:
    """Return what should be in the slot and is not there: a device that is held, or approved to be attached."""
    if device is None or device.missing_since is None:
        return ""
    if device.tenant_id is None and device.approved_host_port_id is None:
        return ""
    return f"{device.name} is gone from its slot since {device.missing_since:%Y-%m-%d %H:%M:%S} UTC."


def _sum(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for counts in several:
        found.update(counts)
    return dict(found)
