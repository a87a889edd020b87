"""Silences: for a while, some alerts notify nobody. Each has an end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.services import Target, audited
from accounts.models import User
from falconweb.errors import Conflict, Invalid, NotFound
from telemetry.alerts.models import Rule, Severity, Silence
from telemetry.alerts.services.scoping import scope_set, text_of
from telemetry.alerts.terms import BUILT_INS

LONGEST: Final = timedelta(days=366)


@dataclass(frozen=True, kw_only=True)
class SilenceValues:
    """What somebody wants to be silent; without `starts_at` from now on."""

    ends_at: datetime | None
    why: str
    starts_at: datetime | None = None
    scope: str = "all"
    scope_id: int | None = None
    device_kind: str = ""
    rule_id: int | None = None
    built_in: str = ""
    severity: str = ""


def silence_add(*, person: User, values: SilenceValues) -> Silence:
    """Silence alerts until an end; raises Forbidden, and Invalid with the fields that are wrong."""
    with audited(Action.SILENCE_ADD, actor=person, target=Target(kind="silence")) as act:
        administrator_required(person)
        now = timezone.now()
        row = Silence(made_by_name=person.get_username())
        row.why = text_of(values.why, "why", longest=500, required=True)
        row.starts_at = values.starts_at or now
        errors = _wrong(values, now, row.starts_at)
        if errors or values.ends_at is None:
            raise Invalid(" ".join(errors.values()), errors=errors)
        row.ends_at = values.ends_at
        row.severity, row.built_in, row.rule_id = values.severity, values.built_in, values.rule_id
        scope_set(row, scope=values.scope, scope_id=values.scope_id, device_kind=values.device_kind)
        row.save(force_insert=True)
        act.target = Target(kind="silence", id=str(row.pk), name=row.scope_words[:200])
        act.after = {
            "scope": row.scope_words, "rule": values.rule_id, "built_in": row.built_in, "severity": row.severity,
            "starts_at": row.starts_at.isoformat(), "ends_at": row.ends_at.isoformat(), "why": row.why,
        }  # fmt: skip
    return row


def silence_end(*, person: User, silence: Silence) -> Silence:
    """End a silence now; what fires still is told then. Raises Forbidden, NotFound, Conflict where it is over."""
    target = Target(kind="silence", id=str(silence.pk), name=silence.scope_words[:200])
    with audited(Action.SILENCE_END, actor=person, target=target) as act:
        administrator_required(person)
        row: Silence | None = Silence.objects.select_for_update(of=("self",)).filter(pk=silence.pk).first()
        if row is None:
            raise NotFound("There is no such silence.")
        now = timezone.now()
        if row.ends_at <= now:
            raise Conflict(f"It was over at {row.ends_at:%Y-%m-%d %H:%M:%S} UTC.")
        act.before, act.after = {"ends_at": row.ends_at.isoformat()}, {"ends_at": now.isoformat()}
        row.ends_at = now
        row.starts_at = min(row.starts_at, now)
        row.save(update_fields=["ends_at", "starts_at"])
    return row


def _wrong(values: SilenceValues, now: datetime, starts_at: datetime) -> dict[str, str]:
    errors: dict[str, str] = {}
    if values.ends_at is None:
        errors["ends_at"] = "A silence has an end: give one."
    elif values.ends_at <= max(now, starts_at):
        errors["ends_at"] = "Give an end that is still to come, and after the start."
    elif values.ends_at - now > LONGEST:
        errors["ends_at"] = "At most a year from now."
    if values.severity and values.severity not in Severity.values:
        errors["severity"] = f"One of {', '.join(Severity.values)}, or none for any."
    if values.built_in and values.built_in not in BUILT_INS:
        errors["built_in"] = f"One of {', '.join(BUILT_INS)}."
    if values.rule_id is not None and not Rule.objects.filter(pk=values.rule_id).exists():
        errors["rule_id"] = "There is no such rule."
    if values.rule_id is not None and values.built_in:
        errors["built_in"] = "Give a rule or a built-in one, not both."
    return errors
