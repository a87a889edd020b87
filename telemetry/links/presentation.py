"""Views of a link and its state timeline for pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from core.language import _, gettext_noop, joined, values_in
from core.zones import local_words
from fabric.inventory.models import Device
from telemetry.links.counters import FLAPPING
from telemetry.links.models import LinkCount, LinkSpan
from telemetry.links.rules import LINK_UP, REASON_WORDS, LinkLevel
from telemetry.links.verdicts import far_end_name, link_name, link_place, port_parts

LEVEL_LABELS = {
    LinkLevel.DOWN: ("▲", gettext_noop("Down")),
    LinkLevel.FAILING: ("▲", gettext_noop("Failing")),
    LinkLevel.DEGRADED: ("△", gettext_noop("Degraded")),
    LinkLevel.WATCH: ("◆", gettext_noop("Watch")),
    LinkLevel.UNKNOWN: ("?", gettext_noop("Unknown")),
    LinkLevel.HEALTHY: ("✓", gettext_noop("Healthy")),
}
HOST_KIND = "host"
KIND_LABELS = {**dict(Device.Kind.choices), HOST_KIND: gettext_noop("Host link")}
NOT_ANSWERING = gettext_noop("The chassis does not answer: the state of its links is not known.")
NOT_POLLED = gettext_noop("The chassis is not polled: the state of its links is not known.")
NOT_JUDGED = gettext_noop("It is not judged yet: that takes a few seconds after the first reading.")
# A verdict is stale this long after the newest reading: that time is stored every half minute, and chassis whose values
# have to be requested one by one are read once a minute.
STALE = timedelta(seconds=90)


class LinkView:
    """One link as a person may see it. Rates are 1/s; flaps and retrainings of the last hour; speeds Gb/s one way.

    `row` is of `link_rows`; `title` is the name without its place. `judged_at` is the newest reading up to which the
    verdict is valid; where it `is_stale`, there was no reading since, or it could not be judged.
    """

    def __init__(self, row: Any, now: datetime | None = None) -> None:
        slot, device, host_port = port_parts(row)
        if device is not None and device.missing_since is not None and device.tenant_id is None:
            device = None
        host = host_port.host if host_port is not None else None
        part = host_port if host_port is not None else device  # at the far end
        drawer = slot.drawer if slot is not None else host_port.drawer if host_port is not None else None
        count: LinkCount | None = getattr(row, "link_count", None)
        level = LinkLevel(row.shown_level)
        self.id: int = row.pk
        self.name = link_name(row)
        self.title = far_end_name(row) or str(row.name)
        self.place = link_place(row)
        self.port_name: str = row.name
        self.chassis_id: int = row.chassis_id
        self.chassis_name: str = row.chassis.name
        self.drawer_name: str = drawer.name if drawer is not None else ""
        self.kind: str = HOST_KIND if host_port is not None else device.kind if device is not None else ""
        self.kind_label = KIND_LABELS.get(
            self.kind, gettext_noop("Empty slot") if slot is not None else gettext_noop("Other")
        )
        self.far_end: str = host.name if host is not None else device.name if device is not None else ""
        self.device_id: int | None = device.pk if device is not None else None
        self.host_id: int | None = host.pk if host is not None else None
        self.tenant_name: str = part.tenant.name if part is not None and part.tenant is not None else ""
        self.level = level.value
        self.mark, words = LEVEL_LABELS[level]
        self.level_words = _(words)
        self.since = row.since if row.reasons is not None and level.value == row.reasons[0]["level"] else None
        self.judged_at = _judged_at(row)
        self.is_stale = self.judged_at is not None and (
            bool(row.chassis.last_error)
            or not row.chassis.enabled
            or (now or timezone.now()) - self.judged_at > STALE + timedelta(seconds=3 * settings.CONFIG.reading_period)
        )
        self.reasons = _reasons(row, level, self.judged_at)
        self.status: str = count.status if count is not None else row.link_status
        self.width: int | None = count.width if count is not None else row.active_width
        self.max_width: int | None = row.width
        self.speed_gbps: float | None = count.speed_gbps if count is not None else row.speed_gbps
        self.max_speed_gbps: float | None = row.max_speed_gbps
        self.sent_rate: float = row.sent_rate or 0.0
        self.received_rate: float = row.received_rate or 0.0
        self.correctable_rate: float = row.correctable_rate or 0.0
        self.flaps: int = row.flaps or 0
        self.recoveries: int = row.recoveries or 0
        self.errors: int = row.errors_counted or 0

    @property
    def why(self) -> str:
        """The most severe reason; '' for a link that is up and healthy."""
        fine = self.level == LinkLevel.HEALTHY and self.status == LINK_UP
        return self.reasons[0]["sentence"] if self.reasons and not fine else ""

    @property
    def stale_label(self) -> str:
        """When it was judged, if it is stale; else ''."""
        if not self.judged_at or not self.is_stale:
            return ""
        return _("last judged at {time}, stale", time=local_words(self.judged_at))


def link_views(rows: Any) -> list[LinkView]:
    """Return the views of rows of `link_rows`."""
    now = timezone.now()
    return [LinkView(row, now) for row in rows]


def _judged_at(row: Any) -> datetime | None:
    """Return the newest reading up to which a verdict is valid, None without a verdict; not before a tenant's lease.

    It is stored for the whole chassis: unchanged verdicts are not written again.
    """
    if row.reasons is None:
        return None
    at: datetime = row.holds_at or row.judged_at
    return at if row.held_since is None else max(at, row.held_since)


def reason_words(stored: str) -> str:
    """Return the sentence of a stored reason in the reader's language."""
    for words in REASON_WORDS:
        if (values := values_in(stored, words)) is not None:
            return _(words, **values)
    return _(stored)


def _reasons(row: Any, level: LinkLevel, judged_at: datetime | None) -> tuple[dict[str, str], ...]:
    if not row.chassis.enabled:
        sentence = NOT_POLLED
    elif row.chassis.last_error:
        sentence = NOT_ANSWERING
    elif row.reasons is None:
        sentence = NOT_JUDGED
    else:
        return tuple({**one, "sentence": reason_words(one["sentence"])} for one in row.reasons)
    words = _(sentence)
    if judged_at is not None:
        earlier = _(
            "When it was last judged, at {time}, it was {level}.",
            time=local_words(judged_at), level=_(row.verdict_level),
        )  # fmt: skip
        words = joined((words, earlier))
    return ({"code": "unknown", "level": level.value, "sentence": words},)


STATE_WORDS = {
    "LinkDown": gettext_noop("down"), "NoLink": gettext_noop("no link"), "Starting": gettext_noop("starting"),
    "Training": gettext_noop("training"), LINK_UP: gettext_noop("up"), FLAPPING: gettext_noop("going down and up"),
    "": gettext_noop("not reported"),
}  # fmt: skip
WIDTH, HEIGHT = 960, 28
MIN_PIECE_WIDTH = 1.5  # so that the shortest state is visible
TICKS = 6


def draw_timeline(spans: Iterable[LinkSpan], *, since: datetime, until: datetime) -> dict[str, Any]:
    """Return the timeline of the states between two times, as the template reads it: its size, pieces and ticks.

    The `look` of a piece is up, below (up, but below its best), flapping, coming or down; times without a piece had no
    readings.
    """
    spans = list(spans)
    whole = (until - since).total_seconds()
    best = max((one.speed_gbps or 0.0 for one in spans if one.status == LINK_UP), default=0.0)
    pieces = []
    for one in sorted(spans, key=lambda span: span.since):
        begin, end = max(one.since, since), min(one.until or until, until)
        if end > begin:
            wide = max(MIN_PIECE_WIDTH, WIDTH * (end - begin).total_seconds() / whole)
            x = min(WIDTH * (begin - since).total_seconds() / whole, WIDTH - wide)
            look, title = _piece_look(one, best), span_title(one)
            pieces.append({"x": round(x, 2), "width": round(wide, 2), "look": look, "title": title})
    return {"width": WIDTH, "height": HEIGHT, "pieces": pieces, "ticks": _ticks(since, until)}


def span_title(span: LinkSpan) -> str:
    """Return a state in words: 'up, x16, 256 Gb/s: … until …'."""
    end = local_words(span.until) if span.until is not None else _("now")
    state = ", ".join(state_labels(span))
    return _("{state}: {since} until {until}", state=state, since=local_words(span.since), until=end)


def state_labels(span: LinkSpan) -> Sequence[str]:
    """Return the known ones of status, width and speed of a state in words."""
    words: list[str] = [_(STATE_WORDS[span.status]) if span.status in STATE_WORDS else span.status.lower()]
    if span.status == LINK_UP:
        words += [f"x{span.width}"] if span.width else []
        words += [f"{span.speed_gbps:g} Gb/s"] if span.speed_gbps else []
    return words


def _piece_look(span: LinkSpan, best: float) -> str:
    if span.status == LINK_UP:
        return "below" if span.speed_gbps and span.speed_gbps < best else "up"
    if span.status == FLAPPING:
        return "flapping"
    return "coming" if span.status in {"Training", "Starting"} else "down"


def _ticks(since: datetime, until: datetime) -> list[dict[str, Any]]:
    whole = until - since
    form = "%H:%M" if whole <= timedelta(days=1) else "%m-%d %H:%M" if whole <= timedelta(days=3) else "%m-%d"
    anchors = ["start", *["middle"] * (TICKS - 1), "end"]
    return [
        {
            "x": round(WIDTH * place / TICKS, 2),
            "words": local_words(since + whole * place / TICKS, form),
            "anchor": anchor,
        }
        for place, anchor in enumerate(anchors)
    ]


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
