"""One link as a person reads it: its verdict, whether that is of now or of then, and the figures behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from fabric.models import Device
from telemetry.links.judging import far_end_of, name_of, place_of
from telemetry.links.models import LinkCount
from telemetry.links.verdict import UP, Level

LEVELS = {
    Level.DOWN: ("▲", "Down"), Level.FAILING: ("▲", "Failing"), Level.DEGRADED: ("▼", "Degraded"),
    Level.WATCH: ("◆", "Watch"), Level.UNKNOWN: ("?", "Unknown"), Level.HEALTHY: ("✓", "Healthy"),
}  # fmt: skip
HOST = "host"
KINDS = {**dict(Device.Kind.choices), HOST: "Host link"}
NOT_ANSWERING = "The chassis does not answer, so that nothing is known of its links now."
NOT_POLLED = "The chassis is not polled, so that nothing is known of its links now."
NOT_JUDGED = "It was not judged yet: that takes a few seconds from the first reading on."
# So long after the newest reading a verdict is of then: when that was is noted each half minute, and chassis whose
# values have to be asked for one by one are read once a minute.
STALE = timedelta(seconds=90)


@dataclass(frozen=True, kw_only=True)
class LinkView:
    """One link as a person may see it. Rates are 1/s; flaps and retrainings of the last hour; speeds Gb/s one way.

    `judged_at` is the newest reading up to which the verdict holds; where it `is_stale`, nothing was read since, or
    what was could not be judged.
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
        """The gravest reason; '' for a link that is up and fine."""
        fine = self.level == Level.HEALTHY and self.status == UP
        return self.reasons[0]["sentence"] if self.reasons and not fine else ""

    @property
    def of_then(self) -> str:
        """When it was judged, in words, where that is not now; '' where it is."""
        return f"last judged at {self.judged_at:%Y-%m-%d %H:%M:%S} UTC, stale" if self.is_stale else ""


def link_views(rows: Any) -> list[LinkView]:
    """Return rows of `link_rows` as a person reads them."""
    now = timezone.now()
    return [link_view(row, now=now) for row in rows]


def link_view(row: Any, *, now: datetime | None = None) -> LinkView:
    """Return a row of `link_rows` as a person reads it at an instant."""
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
    judged_at = _judged_at(row)
    is_silent = bool(row.chassis.last_error) or not row.chassis.enabled
    limit = STALE + timedelta(seconds=3 * settings.CONFIG.reading_period)
    is_stale = judged_at is not None and (is_silent or (now or timezone.now()) - judged_at > limit)
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
    """Return the newest reading up to which a verdict holds, None where there is none; for a holder, never before it.

    That is noted of the chassis as a whole: a verdict that says the same as before is not written again.
    """
    if row.reasons is None:
        return None
    at: datetime = row.holds_at or row.judged_at
    return at if row.held_since is None else max(at, row.held_since)


def _reasons(row: Any, level: Level, judged_at: datetime | None) -> tuple[dict[str, str], ...]:
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
