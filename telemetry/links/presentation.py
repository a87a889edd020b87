"""Views of a link and its state timeline for pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.conf import settings
from django.utils import timezone

from fabric.inventory.models import Device
from telemetry.links.counters import FLAPPING
from telemetry.links.models import LinkCount
from telemetry.links.rules import LINK_UP, LinkLevel
from telemetry.links.verdicts import far_end_name, link_name, link_place

LEVEL_LABELS = {
    LinkLevel.DOWN: ("▲", "Down"), LinkLevel.FAILING: ("▲", "Failing"), LinkLevel.DEGRADED: ("▼", "Degraded"),
    LinkLevel.WATCH: ("◆", "Watch"), LinkLevel.UNKNOWN: ("?", "Unknown"), LinkLevel.HEALTHY: ("✓", "Healthy"),
}  # fmt: skip
HOST_KIND = "host"
KIND_LABELS = {**dict(Device.Kind.choices), HOST_KIND: "Host link"}
NOT_ANSWERING = "The chassis does not answer: the state of its links is not known."
NOT_POLLED = "The chassis is not polled: the state of its links is not known."
NOT_JUDGED = "It is not judged yet: that takes a few seconds after the first reading."
# A verdict is stale this long after the newest reading: that time is stored every half minute, and chassis whose values
# have to be requested one by one are read once a minute.
STALE = timedelta(seconds=90)


@dataclass(frozen=True, kw_only=True)
class LinkView:
    """One link as a person may see it. Rates are 1/s; flaps and retrainings of the last hour; speeds Gb/s one way.

    `judged_at` is the newest reading up to which the verdict is valid; where it `is_stale`, there was no reading since,
    or it could not be judged.
    """

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
    judged_at: datetime | None
    is_stale: bool
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
        """The most severe reason; '' for a link that is up and healthy."""
        fine = self.level == LinkLevel.HEALTHY and self.status == LINK_UP
        return self.reasons[0]["sentence"] if self.reasons and not fine else ""

    @property
    def of_then(self) -> str:
        """When it was judged, in words, if it is stale; else ''."""
        return f"last judged at {self.judged_at:%Y-%m-%d %H:%M:%S} UTC, stale" if self.is_stale else ""


def link_views(rows: Any) -> list[LinkView]:
    """Return the views of rows of `link_rows`."""
    now = timezone.now()
    return [link_view(row, now=now) for row in rows]


def link_view(row: Any, *, now: datetime | None = None) -> LinkView:
    """Return the view of a row of `link_rows` at `now`."""
    slot, host_port = getattr(row, "slot", None), getattr(row, "host_port", None)
    device = getattr(slot, "device", None)
    if device is not None and device.missing_since is not None and device.tenant_id is None:
        device = None
    count: LinkCount | None = getattr(row, "link_count", None)
    host = host_port.host if host_port is not None else None
    kind = HOST_KIND if host_port is not None else device.kind if device is not None else ""
    tenant = host_port.tenant if host_port is not None else device.tenant if device is not None else None
    level = LinkLevel(row.shown_level)
    mark, words = LEVEL_LABELS[level]
    judged_at = _judged_at(row)
    is_silent = bool(row.chassis.last_error) or not row.chassis.enabled
    limit = STALE + timedelta(seconds=3 * settings.CONFIG.reading_period)
    is_stale = judged_at is not None and (is_silent or (now or timezone.now()) - judged_at > limit)
    drawer = slot.drawer if slot is not None else host_port.drawer if host_port is not None else None
    return LinkView(
        id=row.pk,
        name=link_name(row),
        title=far_end_name(row) or row.name,
        place=link_place(row),
        port_name=row.name,
        chassis_id=row.chassis_id,
        chassis_name=row.chassis.name,
        drawer_name=drawer.name if drawer is not None else "",
        kind=kind,
        kind_label=KIND_LABELS.get(kind, "Empty slot" if slot is not None else "Other"),
        far_end=host.name if host is not None else device.name if device is not None else "",
        device_id=device.pk if device is not None else None,
        host_id=host.pk if host is not None else None,
        tenant_name=tenant.name if tenant is not None else "",
        level=level.value,
        mark=mark,
        level_words=words,
        since=row.since if row.reasons is not None and level.value == row.reasons[0]["level"] else None,
        judged_at=judged_at,
        is_stale=is_stale,
        reasons=_reasons(row, level, judged_at),
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


def _judged_at(row: Any) -> datetime | None:
    """Return the newest reading up to which a verdict is valid, None without a verdict; not before a tenant's lease.

    It is stored for the whole chassis: unchanged verdicts are not written again.
    """
    if row.reasons is None:
        return None
    at: datetime = row.holds_at or row.judged_at
    return at if row.held_since is None else max(at, row.held_since)


def _reasons(row: Any, level: LinkLevel, judged_at: datetime | None) -> tuple[dict[str, str], ...]:
    if not row.chassis.enabled:
        sentence = NOT_POLLED
    elif row.chassis.last_error:
        sentence = NOT_ANSWERING
    elif row.reasons is None:
        sentence = NOT_JUDGED
    else:
        return tuple(row.reasons)
    if judged_at is not None:
        sentence += f" When it was last judged, at {judged_at:%Y-%m-%d %H:%M:%S} UTC, it was {row.verdict_level}."
    return ({"code": "unknown", "level": level.value, "sentence": sentence},)


WIDTH, HEIGHT = 960, 28
MIN_PIECE_WIDTH = 1.5  # so that the shortest state is visible
TICKS = 6


class TimelineSpan(Protocol):
    """A span in one state."""

    since: datetime
    until: datetime | None
    status: str
    width: int | None
    speed_gbps: float | None


@dataclass(frozen=True)
class TimelinePiece:
    """A state on the timeline; `look` is up, below (up, but below its best), flapping, coming or down."""

    x: float
    width: float
    look: str
    title: str


@dataclass(frozen=True)
class TimelineTick:
    """A tick of the time axis with its label and text anchor."""

    x: float
    words: str
    anchor: str


@dataclass(frozen=True)
class Timeline:
    """A timeline with its states and ticks; times without a state had no readings."""

    pieces: tuple[TimelinePiece, ...]
    ticks: tuple[TimelineTick, ...]
    width: int = WIDTH
    height: int = HEIGHT


def draw_timeline(spans: Iterable[TimelineSpan], *, since: datetime, until: datetime) -> Timeline:
    """Return the timeline of the states between two times."""
    spans = list(spans)
    whole = (until - since).total_seconds()
    best = max((one.speed_gbps or 0.0 for one in spans if one.status == LINK_UP), default=0.0)
    pieces = []
    for one in sorted(spans, key=lambda span: span.since):
        begin, end = max(one.since, since), min(one.until or until, until)
        if end <= begin:
            continue
        x = WIDTH * (begin - since).total_seconds() / whole
        wide = max(MIN_PIECE_WIDTH, WIDTH * (end - begin).total_seconds() / whole)
        pieces.append(
            TimelinePiece(round(min(x, WIDTH - wide), 2), round(wide, 2), _piece_look(one, best), span_title(one))
        )
    return Timeline(tuple(pieces), _ticks(since, until))


def span_title(span: TimelineSpan) -> str:
    """Return a state in words: 'up, x16, 256 Gb/s: … until … UTC'."""
    words = ", ".join(state_labels(span))
    end = f"until {span.until:%Y-%m-%d %H:%M:%S}" if span.until is not None else "until now"
    return f"{words}: {span.since:%Y-%m-%d %H:%M:%S} {end} UTC"


def state_labels(span: TimelineSpan) -> Sequence[str]:
    """Return the known ones of status, width and speed of a state in words."""
    names = {"LinkDown": "down", "NoLink": "no link", LINK_UP: "up", FLAPPING: "going down and up", "": "not reported"}
    words = [names.get(span.status, span.status.lower())]
    if span.status == LINK_UP:
        words += [f"x{span.width}"] if span.width else []
        words += [f"{span.speed_gbps:g} Gb/s"] if span.speed_gbps else []
    return words


def _piece_look(span: TimelineSpan, best: float) -> str:
    if span.status == LINK_UP:
        return "below" if span.speed_gbps and span.speed_gbps < best else "up"
    if span.status == FLAPPING:
        return "flapping"
    return "coming" if span.status in {"Training", "Starting"} else "down"


def _ticks(since: datetime, until: datetime) -> tuple[TimelineTick, ...]:
    whole = until - since
    form = "%H:%M" if whole <= timedelta(days=1) else "%m-%d %H:%M" if whole <= timedelta(days=3) else "%m-%d"
    ticks = []
    for place in range(TICKS + 1):
        anchor = "start" if place == 0 else "end" if place == TICKS else "middle"
        at = since + whole * place / TICKS
        ticks.append(TimelineTick(round(WIDTH * place / TICKS, 2), f"{at:{form}}", anchor))
    return tuple(ticks)


def bar_path(counts: Sequence[float], *, width: int = 192, height: int = 24) -> str:
    """Return counts as an SVG path with a bar for each, the largest at full height; '' where all are 0."""
    most = max(counts, default=0.0)
    if most <= 0:
        return ""
    wide = width / len(counts)
    parts = []
    for place, count in enumerate(counts):
        if count > 0:
            high = max(2.0, height * count / most)
            parts.append(f"M{place * wide:.1f} {height}v{-high:.1f}h{wide * 0.8:.1f}v{high:.1f}z")
    return "".join(parts)
