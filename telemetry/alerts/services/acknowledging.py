"""Somebody takes notice of alerts: the first one's word counts, and the others are told whose it was."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.services import Target, audited
from accounts.models import User
from falconweb.errors import Conflict, Forbidden, Invalid, NotFound
from telemetry.alerts.models import LONGEST_TEXT, Alert
from telemetry.alerts.selectors import acknowledgement_is_seen
from telemetry.alerts.services.recording import acknowledged_tell

MOST_AT_ONCE = 500


@dataclass(frozen=True)
class Result:
    """What became of one alert: `sentence` is '' where the person's word was the first."""

    alert: int
    name: str
    sentence: str = ""


def alerts_acknowledge(*, person: User, alerts: Collection[int], note: str = "") -> list[Result]:
    """Acknowledge alerts (ids) with a note; returns what became of each, in the order of ids.

    Raises NotFound for what the person may not see, Forbidden for viewers, Invalid for none or too many, and Conflict
    with `differences` where nothing was left to acknowledge.
    """
    note = note.replace("\0", "").strip()
    with audited(Action.ALERT_ACKNOWLEDGE, actor=person, target=Target(kind="alert")) as act:
        if not person.may_compose:
            raise Forbidden("Viewers look on: ask a user of your tenant, or an administrator.")
        if not alerts:
            raise Invalid("Choose at least one alert.", errors={"alert_ids": "Give at least one id."})
        if len(set(alerts)) > MOST_AT_ONCE:
            raise Invalid(f"At most {MOST_AT_ONCE} at once.", errors={"alert_ids": f"At most {MOST_AT_ONCE} ids."})
        if len(note) > LONGEST_TEXT:
            raise Invalid("The note is too long.", errors={"note": f"At most {LONGEST_TEXT} characters."})
        visible = set(Alert.objects.visible_to(person).filter(pk__in=alerts).values_list("pk", flat=True))
        if len(visible) != len(set(alerts)):
            raise NotFound("There is no such alert.")
        rows = list(Alert.objects.select_for_update().filter(pk__in=visible).order_by("pk"))
        results = [_acknowledged(row, person, note) for row in rows]
        act.target = Target(kind="alert", id=",".join(str(one.alert) for one in results)[:64], name=_named(results))
        act.after = {"acknowledged": [one.alert for one in results if not one.sentence], "note": note}
        if all(one.sentence for one in results):
            sentences = [f"{one.name}: {one.sentence}" for one in results]
            raise Conflict(" ".join(sentences[:5]), differences=sentences)
    return results


def _acknowledged(row: Alert, person: User, note: str) -> Result:
    name = str(row)
    match row.state:
        case Alert.State.RESOLVED:
            when = f"{row.resolved_at:%H:%M:%S} UTC" if row.resolved_at else "meanwhile"
            return Result(row.pk, name, f"It was over at {when}.")
        case Alert.State.ACKNOWLEDGED:
            if not acknowledgement_is_seen(person, row):
                return Result(row.pk, name, "It was acknowledged before you held what it is about.")
            when = f"{row.acknowledged_at:%H:%M:%S} UTC" if row.acknowledged_at else "a moment ago"
            return Result(row.pk, name, f"{row.acknowledged_by_name} acknowledged it at {when}.")
        case Alert.State.PENDING:
            return Result(row.pk, name, "It does not fire yet.")
    now = timezone.now()
    row.state, row.acknowledged_at, row.acknowledged_note = Alert.State.ACKNOWLEDGED, now, note
    row.acknowledged_by, row.acknowledged_by_name = person, person.get_username()
    row.save(update_fields=["state", "acknowledged_at", "acknowledged_note", "acknowledged_by", "acknowledged_by_name"])
    with transaction.atomic():
        acknowledged_tell(row, now)
    return Result(row.pk, name)


def _named(results: Collection[Result]) -> str:
    return next(iter(results)).name if len(results) == 1 else f"{len(results)} alerts"
