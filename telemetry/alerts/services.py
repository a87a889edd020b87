"""Opens, resolves and acknowledges alerts."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import redis
from django.conf import settings
from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.services import Target, audited
from accounts.models import User
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.language import _, english, gettext_noop, joined
from core.zones import CLOCK, local_words
from fabric.inventory.models import Chassis
from telemetry.alerts.checks import ChassisFacts, unreachable_check
from telemetry.alerts.engine import CheckTransition, Transition
from telemetry.alerts.facts import enabled_built_ins
from telemetry.alerts.models import MAX_TEXT_LENGTH, Alert, AlertSeverity, Rule
from telemetry.alerts.rules import NOT_ANSWERING, Check, value_label
from telemetry.alerts.selectors import may_see_acknowledgement
from telemetry.events.services import event_record
from telemetry.live.frames import HEADER
from telemetry.live.receivers import publish_chassis_changed

logger = logging.getLogger(__name__)

CheckIdentity = tuple[str, str]
RANKS = {AlertSeverity.WARNING.value: 1, AlertSeverity.CRITICAL.value: 2}
NO_ANSWER = gettext_noop("no answer")
NOT_MEASURED = gettext_noop("It is no longer measured.")
NOT_ABOUT_IT = gettext_noop(
    "Its rule no longer applies: the rule was changed, or its subject changed its tenant or place."
)
RULE_ENDED = gettext_noop("Its rule was switched off, changed or deleted.")
NOT_POLLED = gettext_noop("An administrator switched off polling of the chassis.")


def transitions_record(*, chassis_id: int | None, changes: Sequence[CheckTransition]) -> None:
    """Store the transitions of one chassis (None: of the site), in order; ones that are stored already change nothing.

    Raises DatabaseError where none could be stored.
    """
    try:
        with transaction.atomic():
            _record(chassis_id, changes)
    except IntegrityError:
        if len(changes) == 1:
            # Another worker stored the same meanwhile, or the subject was removed.
            identity = changes[0].check.identity
            logger.info("a transition of %s of chassis %s is not stored", identity, chassis_id, exc_info=True)
            return
        for change in changes:
            transitions_record(chassis_id=chassis_id, changes=[change])


def alerts_end(*, chassis_id: int | None, identities: Collection[CheckIdentity] | None, because: str) -> int:
    """End open alerts of a chassis (all, for None), or of the site; returns how many had fired.

    `because` is a reason other than that the condition ended, '' for none.
    """
    with transaction.atomic():
        rows = Alert.objects.select_for_update().filter(chassis=chassis_id, state__in=Alert.OPEN)
        found = [row for row in rows if identities is None or (row.cause, row.series_key) in identities]
        rang = _resolve(found, timezone.now(), because)
        if found:
            _send_changed(chassis_id)
    return rang


def rule_alerts_end(*, cause: str) -> None:
    """End all open alerts of a rule, within the caller's transaction."""
    rows = list(Alert.objects.select_for_update().filter(state__in=Alert.OPEN, cause__startswith=cause))
    found = [row for row in rows if row.cause == cause or row.cause.startswith(f"{cause}:")]
    _resolve(found, timezone.now(), RULE_ENDED)
    for chassis in {row.chassis_id for row in found}:
        _send_changed(chassis)


def _record(chassis_id: int | None, changes: Sequence[CheckTransition]) -> None:
    if chassis_id is not None and not Chassis.objects.filter(pk=chassis_id).exists():
        return
    # Locked, so that a concurrent acknowledgement waits and is not overwritten.
    rows = Alert.objects.select_for_update().filter(chassis=chassis_id, state__in=Alert.OPEN)
    causes = {change.check.cause for change in changes}
    known: dict[CheckIdentity, Alert] = {(row.cause, row.series_key): row for row in rows.filter(cause__in=causes)}
    # Notes of the rules that are still enabled.
    rules = Rule.objects.filter(pk__in={change.check.rule for change in changes}, enabled=True)
    notes = dict(rules.values_list("pk", "note"))
    changed = 0
    for change in changes:
        check = change.check
        row = known.get(check.identity)
        if change.kind in {"pending", "firing"} and check.rule is not None and check.rule not in notes:
            continue  # its rule was switched off or deleted meanwhile
        note = notes.get(check.rule, "") if check.rule is not None else change.note
        match change.kind:
            case "pending" if row is None:
                known[check.identity] = _create_alert(change, note)
            case "firing" if row is None or row.state == Alert.State.PENDING:
                known[check.identity] = _fire(row or _create_alert(change, note), change)
                changed += 1
            case "gone" if row is not None and row.state == Alert.State.PENDING:
                known.pop(check.identity).delete()
            case "resolved" if row is not None and row.is_active:
                row.worst_value = _finite(change.worst)
                _resolve([known.pop(check.identity)], _to_datetime(change.at), "")
                changed += 1
    if changed:
        _send_changed(chassis_id)


def _create_alert(change: CheckTransition, note: str) -> Alert:
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
        threshold=english(threshold_label(check))[:200],
        value=_finite(change.value),
        worst_value=_finite(change.worst),
        note=note,
        since=_to_datetime(change.since),
    )


def threshold_label(check: Check) -> str:
    if check.threshold:
        return check.threshold
    if check.key == "":
        return f"{NO_ANSWER} for {check.terms.hold:g} s"
    if check.unit == "health":
        return gettext_noop("not healthy")
    return check.terms.words(check.unit)


def _fire(row: Alert, change: CheckTransition) -> Alert:
    row.state = Alert.State.FIRING
    row.fired_at = _to_datetime(change.at)
    row.value, row.worst_value = _finite(change.value), _finite(change.worst)
    row.save(update_fields=["state", "fired_at", "value", "worst_value"])
    is_measured = row.series_key != "" and row.unit != "health" and row.value is not None
    measured = f" {english(value_label(row.value, row.unit))}," if is_measured else ""
    text = f"{row.title}: {row.subject_name},{measured} {row.threshold}."
    _record_event(row, "AlertFiring", row.severity, text, row.fired_at)
    return row


def _resolve(rows: Iterable[Alert], at: datetime, because: str) -> int:
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
        _record_event(row, "AlertResolved", "OK", text, row.resolved_at)
    return rang


def _record_event(row: Alert, message: str, severity: str, text: str, at: datetime) -> None:
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


def _send_changed(chassis_id: int | None) -> None:
    if chassis_id is not None:
        transaction.on_commit(partial(publish_chassis_changed, chassis_id), robust=True)


def _to_datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


NEW_SECONDS = 90.0  # within this time, a chassis that was just added is read
# A chassis has to be unread for this time of regular checks: after a start of the whole site all of them are unread.
HOLD_SECONDS = 40.0
CHECK_SECONDS = 10.0  # between two checks
# Frames and walks are not from further ahead, by the clocks of workers: those that are were read before our clock was
# set back.
MAX_AHEAD_SECONDS = 60.0
FORGET_SECONDS = 45  # after a pause of the checks this long, they start again
STALE_SECONDS = 60.0  # duration of a walk, added to its period
NO_WORKER = gettext_noop("No worker reads this chassis: check that the site's workers run.")


def unread_chassis_check() -> None:
    """Raise the alerts of chassis that no worker reads; end those of chassis that are read again, or disabled.

    While Redis is unreachable nothing is known, and no alert is raised or ended.
    """
    rows = list(
        Chassis.objects.order_by("pk").values("pk", "name", "enabled", "last_error", "inventory_at", "created_at")
    )
    try:
        fresh, lasting = _frame_times([row["pk"] for row in rows])
    except (redis.RedisError, OSError) as error:
        logger.warning("cannot check whether chassis are read: %s", error)
        return
    silent = Alert.objects.active().filter(cause=NOT_ANSWERING)
    active: dict[int, datetime] = dict(silent.values_list("chassis", "fired_at"))
    is_on = NOT_ANSWERING in enabled_built_ins()
    begun = timezone.now() - timedelta(seconds=NEW_SECONDS)
    for row in rows:
        pk = row["pk"]
        if not row["enabled"]:
            if Alert.objects.filter(chassis=pk, state__in=Alert.OPEN).exists():
                alerts_end(chassis_id=pk, identities=None, because=NOT_POLLED)
        elif pk in active:
            # An old frame stays until it expires: only a newer one shows that the chassis answers again.
            since = active[pk] if active[pk] <= timezone.now() else begun
            if fresh.get(pk, 0.0) > since.timestamp() or _answered_lately(row, since=since):
                _record_transition(row, "resolved", "")
        elif is_on and pk in lasting and not _answered_lately(row) and not begun <= row["created_at"] <= timezone.now():
            _record_transition(row, "firing", row["last_error"] or NO_WORKER)


def _frame_times(pks: list[int]) -> tuple[dict[int, float], set[int]]:
    """Return the chassis that have a frame with its Unix time, and those that have had none for HOLD_SECONDS.

    Frames expire in Redis, which also has the numbers of checks in which they were missing.
    """
    if not pks:
        return {}, set()
    now = time.time()
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=3.0, socket_connect_timeout=3.0)
    try:
        pipe = client.pipeline(transaction=False)
        for pk in pks:
            pipe.getrange(f"live:frame:{pk}", 0, HEADER.size - 1)
        heads = pipe.execute(raise_on_error=False)
        fresh = {}
        for pk, head in zip(pks, heads, strict=True):
            if isinstance(head, bytes) and len(head) == HEADER.size:
                at = HEADER.unpack(head)[5]
                if 0 < at <= now + MAX_AHEAD_SECONDS:
                    fresh[pk] = at
        missed = [pk for pk in pks if pk not in fresh]
        for pk in fresh:
            pipe.delete(f"alerts:unread:{pk}")
        for pk in missed:
            pipe.incr(f"alerts:unread:{pk}")
            pipe.expire(f"alerts:unread:{pk}", FORGET_SECONDS)
        counts = dict(zip(missed, pipe.execute(raise_on_error=False)[len(fresh) :: 2], strict=True))
        if refused := [pk for pk, count in counts.items() if not isinstance(count, int)]:
            client.delete(*(f"alerts:unread:{pk}" for pk in refused))  # it is no number
    finally:
        client.close()
    return fresh, {pk for pk in counts.keys() - refused if counts[pk] * CHECK_SECONDS > HOLD_SECONDS}


def _answered_lately(row: dict[str, Any], since: datetime | None = None) -> bool:
    """Return whether a chassis, perhaps without any readings, was walked recently, and after `since`."""
    now = timezone.now()
    within = now - timedelta(seconds=STALE_SECONDS + 3 * settings.CONFIG.inventory_period)
    walked = row["inventory_at"]
    if row["last_error"] or walked is None or walked > now + timedelta(seconds=MAX_AHEAD_SECONDS):
        return False
    return bool(walked > max(within, since or within))


def _record_transition(row: dict[str, Any], kind: Transition, note: str) -> None:
    check = unreachable_check(ChassisFacts(chassis=row["pk"], name=row["name"]))
    now = time.time()
    change = CheckTransition(
        check=check, kind=kind, at=now, since=now, value=float("nan"), worst=float("nan"), note=note
    )
    transitions_record(chassis_id=row["pk"], changes=[change])


MAX_ACKNOWLEDGED = 500


@dataclass(frozen=True)
class AcknowledgeResult:
    """Result for one alert: `sentence` is '' where this call acknowledged it, else the reason why not."""

    alert: int
    name: str
    sentence: str = ""


def alerts_acknowledge(*, person: User, alerts: Collection[int], note: str = "") -> list[AcknowledgeResult]:
    """Acknowledge alerts (ids) with a note; returns the result of each, in the order of ids.

    Raises NotFound for what the person may not see, Forbidden for viewers, Invalid for none or too many, and Conflict
    with `differences` where nothing was left to acknowledge.
    """
    note = note.replace("\0", "").strip()
    with audited(Action.ALERT_ACKNOWLEDGE, actor=person, target=Target(kind="alert")) as act:
        if not person.may_compose:
            raise Forbidden(_("Viewers cannot acknowledge alerts: ask a user of your tenant, or an administrator."))
        if not alerts:
            raise Invalid(_("Choose at least one alert."), errors={"alert_ids": _("Give at least one id.")})
        if len(set(alerts)) > MAX_ACKNOWLEDGED:
            raise Invalid(
                _("At most {most} at once.", most=MAX_ACKNOWLEDGED),
                errors={"alert_ids": _("At most {most} ids.", most=MAX_ACKNOWLEDGED)},
            )
        if len(note) > MAX_TEXT_LENGTH:
            raise Invalid(
                _("The note is too long."), errors={"note": _("At most {most} characters.", most=MAX_TEXT_LENGTH)}
            )
        visible = set(Alert.objects.visible_to(person).filter(pk__in=alerts).values_list("pk", flat=True))
        if len(visible) != len(set(alerts)):
            raise NotFound(_("There is no such alert."))
        rows = list(Alert.objects.select_for_update().filter(pk__in=visible).order_by("pk"))
        results = [_acknowledge(row, person, note) for row in rows]
        name = english(results[0].name) if len(results) == 1 else f"{len(results)} alerts"
        act.target = Target(kind="alert", id=",".join(str(one.alert) for one in results)[:64], name=name)
        act.after = {"acknowledged": [one.alert for one in results if not one.sentence], "note": note}
        if all(one.sentence for one in results):
            sentences = [joined((one.name, one.sentence), ": ") for one in results]
            raise Conflict(joined(sentences[:5]), differences=sentences)
    return results


def _acknowledge(row: Alert, person: User, note: str) -> AcknowledgeResult:
    name = joined((row.title_words, row.subject_name), ": ")
    match row.state:
        case Alert.State.RESOLVED:
            when = local_words(row.resolved_at, CLOCK) if row.resolved_at else "–"
            return AcknowledgeResult(row.pk, name, _("It was over at {time}.", time=when))
        case Alert.State.ACKNOWLEDGED:
            if not may_see_acknowledgement(person, row):
                sentence = _("It was acknowledged before your tenant leased its subject.")
                return AcknowledgeResult(row.pk, name, sentence)
            when = local_words(row.acknowledged_at, CLOCK) if row.acknowledged_at else "–"
            sentence = _("{person} acknowledged it at {time}.", person=row.acknowledged_by_name, time=when)
            return AcknowledgeResult(row.pk, name, sentence)
        case Alert.State.PENDING:
            return AcknowledgeResult(row.pk, name, _("It does not fire yet."))
    now = timezone.now()
    row.state, row.acknowledged_at, row.acknowledged_note = Alert.State.ACKNOWLEDGED, now, note
    row.acknowledged_by, row.acknowledged_by_name = person, person.get_username()
    row.save(update_fields=["state", "acknowledged_at", "acknowledged_note", "acknowledged_by", "acknowledged_by_name"])
    text = f"{row.acknowledged_by_name} acknowledged '{english(name)}'."
    _record_event(row, "AlertAcknowledged", "OK", text, now)
    _send_changed(row.chassis_id)
    return AcknowledgeResult(row.pk, name)
