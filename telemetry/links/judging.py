"""Keeping verdicts: a row a link and audience, written where it says something new, and an event where that changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.urls import reverse

from fabric.models import Port
from telemetry.events.services import event_record
from telemetry.links.models import LinkCount, LinkVerdict
from telemetry.links.verdict import RANKS, Level, Verdict

SEVERITIES = {Level.DOWN: "Critical", Level.FAILING: "Critical", Level.DEGRADED: "Warning", Level.WATCH: "Warning"}
WORSE, BETTER = "FalconWeb.1.0.LinkWorse", "FalconWeb.1.0.LinkBetter"
MOST_REASONS = 3  # in the text of an event
MOST_TIMES = 2**31 - 1  # what every database keeps
MOST_ERRORS = 2**63 - 1


@dataclass(frozen=True)
class Judged:
    """A link with its verdict, for everybody (no tenant) or for its holder, and the row that says so until now."""

    port: Port
    count: LinkCount
    verdict: Verdict
    row: LinkVerdict | None
    tenant: int | None = None
    since: datetime | None = None  # when the tenant began to hold it
    base: Mapping[str, int] = field(default_factory=dict)

    @property
    def before(self) -> dict[str, int]:
        """What the counters have that came before the tenant: all but what its totals have."""
        return {} if self.since is None else counted_earlier(self.count, gained_since(self.count, self.base))


def verdict_keep(judged: Judged, *, now: datetime) -> bool:
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
        "flaps": min(verdict.flaps, MOST_TIMES),
        "recoveries": min(verdict.recoveries, MOST_TIMES),
        "errors": min(sum(gained_since(judged.count, judged.base).values()), MOST_ERRORS),
    }
    before = Level(row.level) if row is not None else Level.HEALTHY
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
            _tell(judged.port, verdict, now, before=before)
    return before is not verdict.level


def gained_since(count: LinkCount, base: Mapping[str, int]) -> dict[str, int]:
    """Return what the error counters of a port gained since their totals were `base`."""
    return {name: max(0, total - base.get(name, 0)) for name, total in count.totals.items()}


def counted_earlier(count: LinkCount, gained: Mapping[str, int]) -> dict[str, int]:
    """Return what the error counters of a port have that is not of what they gained."""
    return {name: max(0, value - gained.get(name, 0)) for name, value in errors_of(count).items()}


def errors_of(count: LinkCount) -> dict[str, int]:
    """Return where the error counters of a port stand: all but those of bytes."""
    return {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}


def name_of(port: Port) -> str:
    """Return what people call a link: what is at its far end, and where; slot, device and host port are loaded."""
    what, place = far_end_of(port), place_of(port)
    return f"{what} in {port.chassis.name}, {place}" if what else f"{port.chassis.name}, {place}"


def far_end_of(port: Port) -> str:
    """Return what is at the far end of a link, '' for nothing: a device's name, or that of a host port."""
    host_port, slot = getattr(port, "host_port", None), getattr(port, "slot", None)
    if host_port is not None:
        return f"Host port {host_port.label}"
    device = getattr(slot, "device", None)
    return str(device.name) if device is not None and device.missing_since is None else ""


def place_of(port: Port) -> str:
    """Return where in its chassis a link is; a slot's name may say its drawer already."""
    slot = getattr(port, "slot", None)
    part = slot if slot is not None else getattr(port, "host_port", None)
    drawer = part.drawer.name if part is not None and part.drawer is not None else ""
    if slot is None:
        return drawer or port.name
    return slot.name if not drawer or slot.name.startswith(drawer) else f"{drawer}, {slot.name}"


def _tell(port: Port, verdict: Verdict, now: datetime, *, before: Level) -> None:
    """Make an event of a link that is worse or better than before; that it is not known is told of the chassis."""
    if Level.UNKNOWN in {before, verdict.level}:
        return
    worse = RANKS[verdict.level] > RANKS[before]
    slot, host_port = getattr(port, "slot", None), getattr(port, "host_port", None)
    device = getattr(slot, "device", None)
    why = " ".join(one.sentence for one in verdict.reasons[:MOST_REASONS])
    event_record(
        source="site",
        message_id=WORSE if worse else BETTER,
        severity=SEVERITIES.get(verdict.level, "OK") if worse else "OK",
        text=f"The link of {name_of(port)} is {verdict.level.value} and was {before.value}. {why}",
        at=now,
        chassis_id=port.chassis_id,
        port_id=port.pk,
        device_id=device.pk if device is not None else None,
        drawer_id=getattr(slot or host_port, "drawer_id", None),
        subject_name=name_of(port),
        link=reverse("links:link", args=[port.pk]),
    )
