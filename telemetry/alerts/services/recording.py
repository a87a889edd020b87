"""What engines find out becomes rows: each turn once, whoever tells of it, and however often."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils import timezone

from fabric.models import Chassis
from telemetry.alerts.engine import Change
from telemetry.alerts.facts import notes_of
from telemetry.alerts.models import Alert, Severity
from telemetry.alerts.signals import alerts_changed
from telemetry.alerts.terms import Check, value_words
from telemetry.events.services import event_record

logger = logging.getLogger(__name__)

Identity = tuple[str, str]
RANKS = {Severity.WARNING.value: 1, Severity.CRITICAL.value: 2}
NOT_MEASURED = "It is not measured any more."
NOT_ATTACHED = "Nothing is attached by this link any more: the device was detached, moved or removed."
NOT_ABOUT_IT = "Its rule is not about it any more: the rule was changed, or what it is about changed hands or place."
RULE_ENDED = "Its rule was switched off, changed or deleted."
NOT_POLLED = "The chassis is polled no longer: an administrator set it so."


def changes_record(*, chassis_id: int, changes: Sequence[Change]) -> None:
    """Keep what turned of one chassis, in order; what is known already changes nothing.

    Raises DatabaseError where nothing could be kept.
    """
    try:
        with transaction.atomic():
            _record(chassis_id, changes)
    except IntegrityError:
        if len(changes) == 1:
            # Another worker wrote the same meanwhile, or what it is about has gone.
            logger.info("a turn of %s of chassis %s is not kept", changes[0].check.identity, chassis_id, exc_info=True)
            return
        for change in changes:
            changes_record(chassis_id=chassis_id, changes=[change])


def alerts_end(*, chassis_id: int, identities: Collection[Identity] | None, because: str) -> int:
    """End open alerts of a chassis (all, for None) for another reason than their values; returns how many rang."""
    with transaction.atomic():
        rows = Alert.objects.select_for_update().filter(chassis=chassis_id, state__in=Alert.OPEN)
        found = [row for row in rows if identities is None or (row.cause, row.series_key) in identities]
        rang = _ended(found, timezone.now(), because)
        if found:
            _announce(chassis_id)
    return rang


def rule_alerts_end(*, cause: str, because: str = RULE_ENDED) -> int:
    """End all open alerts of a rule, or of a built-in one; returns how many rang. Part of the caller's transaction."""
    rows = list(Alert.objects.select_for_update().filter(state__in=Alert.OPEN, cause__startswith=cause))
    found = [row for row in rows if row.cause == cause or row.cause.startswith(f"{cause}:")]
    rang = _ended(found, timezone.now(), because)
    for chassis in {row.chassis_id for row in found}:
        _announce(chassis)
    return rang


def _record(chassis_id: int, changes: Sequence[Change]) -> None:
    if not Chassis.objects.filter(pk=chassis_id).exists():
        return
    # Locked: what a person acknowledges in this moment waits, and is not overwritten.
    rows = Alert.objects.select_for_update().filter(chassis=chassis_id, state__in=Alert.OPEN)
    causes = {change.check.cause for change in changes}
    known: dict[Identity, Alert] = {(row.cause, row.series_key): row for row in rows.filter(cause__in=causes)}
    notes = notes_of(change.check.rule for change in changes if change.check.rule is not None)
    turned = 0
    for change in changes:
        check = change.check
        row = known.get(check.identity)
        if change.turn in {"pending", "firing"} and check.rule is not None and check.rule not in notes:
            continue  # its rule was switched off or deleted meanwhile
        said = notes.get(check.rule, "") if check.rule is not None else change.note
        match change.turn:
            case "pending" if row is None:
                known[check.identity] = _made(change, said)
            case "firing" if row is None or row.state == Alert.State.PENDING:
                known[check.identity] = _fired(row or _made(change, said), change)
                turned += 1
            case "gone" if row is not None and row.state == Alert.State.PENDING:
                known.pop(check.identity).delete()
            case "resolved" if row is not None and row.is_ringing:
                row.worst_value = _number(change.worst)
                _ended([known.pop(check.identity)], _moment(change.at), "")
                turned += 1
    if turned:
        _announce(chassis_id)


def _made(change: Change, note: str) -> Alert:
    check = change.check
    subject = check.subject
    return Alert.objects.create(
        chassis_id=subject.chassis,
        rule_id=check.rule,
        cause=check.cause,
        series_key=check.key[:300],
        title=check.title[:200],
        quantity=check.quantity[:200],
        unit=check.unit[:40],
        severity=check.severity,
        rank=RANKS[check.severity],
        object=subject.object,
        subject_name=subject.name[:300],
        drawer_id=subject.drawer,
        device_id=subject.device,
        port_id=subject.port,
        host_port_id=subject.host_port,
        threshold=threshold_words(check)[:200],
        value=_number(change.value),
        worst_value=_number(change.worst),
        note=note,
        since=_moment(change.since),
    )


def threshold_words(check: Check) -> str:
    """Return what a check compares with, as people read it."""
    if check.key == "":
        return f"no answer for {check.terms.hold:g} s"
    if check.unit == "health":
        return "not well"
    return check.terms.words(check.unit)


def _fired(row: Alert, change: Change) -> Alert:
    row.state = Alert.State.FIRING
    row.fired_at = _moment(change.at)
    row.value, row.worst_value = _number(change.value), _number(change.worst)
    row.save(update_fields=["state", "fired_at", "value", "worst_value"])
    measured = "" if row.series_key == "" or row.unit == "health" else f" {value_words(row.value, row.unit)},"
    text = f"{row.title}: {row.subject_name},{measured} {row.threshold}."
    _tell(row, "AlertFiring", row.severity, text, row.fired_at)
    return row


def _ended(rows: Iterable[Alert], at: datetime, because: str) -> int:
    rang = 0
    for row in rows:
        if row.state == Alert.State.PENDING:
            row.delete()
            continue
        rang += 1
        row.state = Alert.State.RESOLVED
        row.resolved_at = max(at, row.fired_at or at)
        row.resolved_because = because
        row.save(update_fields=["state", "resolved_at", "resolved_because", "worst_value"])
        text = f"{row.title}: {row.subject_name}. {because or 'It is over.'}"
        _tell(row, "AlertResolved", "OK", text, row.resolved_at)
    return rang


def acknowledged_tell(row: Alert, at: datetime) -> None:
    """Let an event say that somebody took notice; part of the caller's transaction."""
    text = f"{row.acknowledged_by_name} acknowledged '{row.title}: {row.subject_name}'."
    _tell(row, "AlertAcknowledged", "OK", text, at)
    _announce(row.chassis_id)


def _tell(row: Alert, message: str, severity: str, text: str, at: datetime) -> None:
    event_record(
        source="alert",
        message_id=f"FalconWeb.1.0.{message}",
        severity=severity,
        text=text,
        at=at,
        chassis_id=row.chassis_id,
        key=f"alert-{row.pk}-{message}",
        device_id=row.device_id,
        port_id=row.port_id,
        drawer_id=row.drawer_id,
        subject_name=row.subject_name,
        link=reverse("alerts:alert", args=[row.pk]),
        person_name=row.acknowledged_by_name if message == "AlertAcknowledged" else "",
    )


def _announce(chassis_id: int) -> None:
    transaction.on_commit(partial(alerts_changed.send, Alert, chassis_id=chassis_id), robust=True)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
