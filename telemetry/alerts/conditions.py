"""Built-in rules about conditions that are not measured: rooms say which are met now, and alerts follow.

Nothing is kept in between: a condition knows since when it is met, so that a hold time survives a worker's death.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import redis
from django.db.models import Q
from django.utils import timezone

from core.errors import Unavailable
from core.language import gettext_noop
from fabric.bmc.series import LINK_STATUSES
from fabric.drift.models import Drift
from fabric.inventory.models import Device
from telemetry.alerts.checks import ChassisFacts
from telemetry.alerts.engine import CheckTransition
from telemetry.alerts.facts import chassis_facts, enabled_built_ins
from telemetry.alerts.models import Alert
from telemetry.alerts.rules import (
    BUILT_IN_RULES,
    DEVICE_MISSING,
    DRIFT,
    AlertSubject,
    Check,
    Condition,
    Terms,
    duration_label,
)
from telemetry.alerts.selectors import THIS_SITE
from telemetry.alerts.services import alerts_end, transitions_record
from telemetry.links.models import LinkVerdict
from telemetry.links.rules import RANKS, LinkLevel

logger = logging.getLogger(__name__)
# A link whose verdict improved is watched for as long before its alert resolves: it may go down again.
LINK_CLEAR: Final = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class PresentCondition:
    """A condition that is met now; `chassis` is None for one of the site.

    `part` is its subject, as object and id. One that is not `is_met` was met a moment ago, or is not known now: an
    alert goes on, but none begins. `note` is for administrators alone.
    """

    key: str  # unique for its rule and chassis; of a series, where a chart shows it
    chassis: int | None = None
    part: tuple[str, int] = ("chassis", 0)
    since: datetime | None = None  # None: its rule has no hold
    is_met: bool = True
    threshold: str = ""
    value: float | None = None
    unit: str = ""
    quantity: str = ""
    note: str = ""


# Raises Unavailable where nothing is known now: alerts stay as they are.
ConditionSource = Callable[[], Iterable[PresentCondition]]


def conditions_check() -> None:
    """Raise the alerts of the conditions that are met now, and end those of the others."""
    on, now = enabled_built_ins(), timezone.now()
    for name, source in _sources.items():
        if name not in on:
            continue  # its alerts ended when it was switched off
        try:
            present = {(one.chassis, one.key): one for one in source()}
        except (Unavailable, redis.RedisError, OSError) as error:
            logger.warning("the conditions of %s are not known: %s", name, error)
            continue
        rows = Alert.objects.filter(cause=name, state__in=Alert.OPEN)
        known = set(rows.values_list("chassis", "series_key"))
        begun: defaultdict[int | None, list[PresentCondition]] = defaultdict(list)
        for identity, one in present.items():
            if one.is_met and identity not in known and _has_lasted(one, BUILT_IN_RULES[name].hold, now):
                begun[one.chassis].append(one)
        for chassis, some in begun.items():
            transitions_record(chassis_id=chassis, changes=_fired(name, chassis, some, now))
        over: defaultdict[int | None, set[tuple[str, str]]] = defaultdict(set)
        for chassis, key in known - present.keys():
            over[chassis].add((name, key))
        for chassis, identities in over.items():
            alerts_end(chassis_id=chassis, identities=identities, because="")


def _has_lasted(one: PresentCondition, hold: float, now: datetime) -> bool:
    """Return whether a condition is met for its hold time; after the clock was set back, it is."""
    return one.since is None or not timedelta() <= now - one.since < timedelta(seconds=hold)


def _fired(
    name: str, chassis: int | None, conditions: Iterable[PresentCondition], now: datetime
) -> list[CheckTransition]:
    known, facts = BUILT_IN_RULES[name], chassis_facts(chassis) if chassis is not None else None
    return [
        CheckTransition(
            check=Check(
                cause=name, key=one.key, severity=known.severity, subject=_subject(one, facts), title=known.words,
                terms=Terms(condition=Condition.ABOVE, hold=known.hold), unit=one.unit, quantity=one.quantity,
                threshold=f"{one.threshold} for {duration_label(known.hold)}" if known.hold else one.threshold,
            ),
            kind="firing", at=now.timestamp(), since=min(one.since or now, now).timestamp(), note=one.note,
            value=float("nan") if one.value is None else one.value,
            worst=float("nan") if one.value is None else one.value,
        )
        for one in conditions
    ]  # fmt: skip


def _subject(one: PresentCondition, facts: ChassisFacts | None) -> AlertSubject:
    return AlertSubject(object="site", chassis=None, name=THIS_SITE) if facts is None else facts.subject(*one.part)


def _missing_devices() -> Iterator[PresentCondition]:
    rows = Device.objects.filter(missing_since__isnull=False, chassis__enabled=True)
    for pk, chassis, since in rows.values_list("pk", "chassis", "missing_since"):
        yield PresentCondition(
            key=f"device/{pk}", chassis=chassis, part=("device", pk), since=since, threshold=gettext_noop("missing")
        )


def _drifted_parts() -> Iterator[PresentCondition]:
    for row in Drift.objects.open().filter(chassis__enabled=True).select_related("host_port"):
        port = row.host_port.port_id if row.host_port is not None else row.port_id
        parts = {Drift.Kind.MODE.value: ("drawer", row.drawer_id), Drift.Kind.PORT.value: ("port", row.port_id),
                 Drift.Kind.CABLE.value: ("port", port)}  # fmt: skip
        kind, pk = parts.get(row.kind, ("device", row.device_id))
        yield PresentCondition(
            key=f"{row.kind}/{pk or row.pk}", chassis=row.chassis_id, since=row.noticed_at, note=str(row),
            part=(kind, pk) if pk is not None else ("chassis", 0), threshold=gettext_noop("not as approved"),
        )  # fmt: skip


def _bad_links(*, least: LinkLevel) -> Iterator[PresentCondition]:
    """Yield the links whose verdict is at least so bad, and those whose verdict improved a moment ago."""
    is_down = least is not LinkLevel.DEGRADED
    lately = Q(rank__gte=RANKS[least]) | Q(since__gt=timezone.now() - LINK_CLEAR) | Q(level=LinkLevel.UNKNOWN)
    rows = LinkVerdict.objects.filter(lately, tenant=None, port__chassis__enabled=True, port__missing_since=None)
    # That its device is missing is an alert of its own.
    rows = rows.exclude(port__slot__device__missing_since__isnull=False).select_related("port__link_count")
    for row in rows:
        count = getattr(row.port, "link_count", None)
        width, state = (count.width, LINK_STATUSES.get(count.status)) if count is not None else (None, None)
        is_narrow = any(one["code"] == "width" for one in row.reasons)
        value: float | None = state if is_down else width if is_narrow else None
        yield PresentCondition(
            key=f"port/{row.port_id}/{'link_status' if is_down else 'link_width_lanes'}",
            chassis=row.port.chassis_id, part=("port", row.port_id), since=row.since,
            is_met=row.rank >= RANKS[least], value=value, unit="" if value is None else "state" if is_down else "lanes",
            threshold=gettext_noop("down or failing") if is_down else gettext_noop("degraded"),
            quantity=gettext_noop("Link") if is_down else gettext_noop("Link width"),
            note=" ".join(one["sentence"] for one in row.reasons[:3]),
        )  # fmt: skip


_sources: Final[dict[str, ConditionSource]] = {
    DEVICE_MISSING: _missing_devices,
    DRIFT: _drifted_parts,
    "link_down": partial(_bad_links, least=LinkLevel.FAILING),
    "link_degraded": partial(_bad_links, least=LinkLevel.DEGRADED),
}


def register_condition_source(name: str, source: ConditionSource) -> None:
    """Register who says where the condition of a built-in rule is met, of a room above."""
    _sources[name] = source
