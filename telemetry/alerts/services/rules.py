"""Administrators' rules, and the switches of the built-in ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from falconweb.errors import Conflict, Invalid, NotFound
from telemetry.alerts.metrics import metric_required
from telemetry.alerts.models import LONGEST_TEXT, BuiltInSwitch, Rule, Severity
from telemetry.alerts.services.recording import RULE_ENDED, rule_alerts_end
from telemetry.alerts.services.scoping import COLUMNS, scope_set, text_of
from telemetry.alerts.terms import BUILT_INS, BuiltIn, Condition, cause_of_rule

LONGEST_HOLD: Final = 7 * 86400.0
MOST_RULES: Final = 500
METRIC: Final = re.compile(r"[A-Za-z0-9_.*?\[\]!-]+(/[A-Za-z0-9_.*?\[\]! %()-]+)*")
FIELDS: Final = (
    "name", "metric", "condition", "value", "clear_value", "hold_seconds", "severity", "enabled", "note",
    "changed_by_name", "changed_at", *COLUMNS,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RuleValues:
    """What somebody wants a rule to be; `scope_id` is of the row that `scope` names."""

    name: str
    metric: str
    condition: str
    value: float | None = None
    clear_value: float | None = None
    hold_seconds: float = 0.0
    severity: str = "Warning"
    scope: str = "all"
    scope_id: int | None = None
    device_kind: str = ""
    enabled: bool = True
    note: str = ""


def rule_add(*, person: User, values: RuleValues) -> Rule:
    """Add a rule; raises Forbidden, Invalid with the fields that are wrong, Conflict for a name that is taken."""
    with attempt(Action.ALERT_RULE_ADD, actor=person, target=Target(kind="alert rule", name=values.name[:100])) as act:
        administrator_required(person)
        # Before anything is locked: whether anything is called so may take a while.
        rule_fill(Rule(), values)
        with act.change():
            if Rule.objects.count() >= MOST_RULES:
                raise Conflict(f"There are {MOST_RULES} rules already. Delete one that nobody needs.")
            row = Rule()
            _fill(row, values)
            row.changed_by_name = person.get_username()
            _save(row, None)
            act.target, act.after = target_of(row), told_of(row)
    return row


def rule_edit(*, person: User, rule: Rule, values: RuleValues) -> Rule:
    """Change a rule; what fires by it and would not by the new terms ends at the next reading. Raises as `rule_add`."""
    with attempt(Action.ALERT_RULE_EDIT, actor=person, target=target_of(rule)) as act:
        administrator_required(person)
        draft = _found(Rule.objects.filter(pk=rule.pk))
        act.before = told_of(draft)
        rule_fill(draft, values)
        with act.change():
            row = _locked(rule)
            act.before = told_of(row)
            _fill(row, values)
            row.changed_by_name = person.get_username()
            _save(row, FIELDS)
            if not row.enabled:
                rule_alerts_end(cause=cause_of_rule(row.pk))
            act.after = told_of(row)
    return row


def rule_switch(*, person: User, rule: Rule, enabled: bool) -> Rule:
    """Switch a rule on or off; what fires by it ends."""
    with audited(Action.ALERT_RULE_EDIT, actor=person, target=target_of(rule)) as act:
        administrator_required(person)
        row = _locked(rule)
        act.before, act.after = {"enabled": row.enabled}, {"enabled": enabled}
        row.enabled, row.changed_by_name = enabled, person.get_username()
        row.save(update_fields=["enabled", "changed_by_name", "changed_at"])
        if not enabled:
            rule_alerts_end(cause=cause_of_rule(row.pk))
    return row


def rule_remove(*, person: User, rule: Rule) -> None:
    """Delete a rule; what fires by it ends, and what it was stays in the alerts of before."""
    with audited(Action.ALERT_RULE_REMOVE, actor=person, target=target_of(rule)) as act:
        administrator_required(person)
        row = _locked(rule)
        act.before = told_of(row)
        rule_alerts_end(cause=cause_of_rule(row.pk))
        row.delete()


def built_in_switch(*, person: User, name: str, enabled: bool) -> BuiltIn:
    """Switch a built-in rule on or off; what fires by it ends. Raises Forbidden and NotFound."""
    with audited(Action.ALERT_BUILT_IN, actor=person, target=Target(kind="built-in rule", id=name[:64])) as act:
        administrator_required(person)
        known = BUILT_INS.get(name)
        if known is None:
            raise NotFound("There is no such built-in rule.")
        act.target = Target(kind="built-in rule", id=name, name=known.words)
        row = BuiltInSwitch.objects.select_for_update().filter(pk=name).first()
        act.before = {"enabled": row.enabled if row is not None else known.is_on}
        act.after = {"enabled": enabled}
        BuiltInSwitch.objects.update_or_create(
            pk=name, defaults={"enabled": enabled, "changed_by_name": person.get_username()}
        )
        if not enabled:
            rule_alerts_end(cause=name, because=RULE_ENDED)
    return known


def rule_fill(row: Rule, values: RuleValues) -> None:
    """Put what is wanted into a row, unsaved; raises Invalid with the fields that are wrong.

    A metric that a rule has already is left in peace, also where what measured it has gone. Raises Unavailable where it
    cannot be told whether there is such a metric. Call it outside of transactions, see metric_required.
    """
    known_metric = row.metric
    _fill(row, values)
    if row.metric != known_metric:
        metric_required(row.metric)


def _fill(row: Rule, values: RuleValues) -> None:
    row.name = " ".join(text_of(values.name, "name", longest=100, required=True).split())
    row.metric = text_of(values.metric, "metric", longest=200, required=True)
    row.note = text_of(values.note, "note", longest=LONGEST_TEXT)
    errors: dict[str, str] = {}
    if METRIC.fullmatch(row.metric) is None:
        errors["metric"] = "Give a quantity such as power_watts, or a pattern of keys such as port/*/link_status."
    if values.condition not in {one.value for one in Condition}:
        errors["condition"] = f"One of {', '.join(Condition)}."
    if values.severity not in Severity.values:
        errors["severity"] = f"One of {', '.join(Severity.values)}."
    if not math.isfinite(values.hold_seconds) or not 0 <= values.hold_seconds <= LONGEST_HOLD:
        errors["hold_seconds"] = "From 0 s to 7 days."
    row.value, row.clear_value = _limits(values, errors)
    if errors:
        raise Invalid(" ".join(errors.values()), errors=errors)
    row.condition, row.severity = values.condition, values.severity
    row.hold_seconds, row.enabled = values.hold_seconds, values.enabled
    scope_set(row, scope=values.scope, scope_id=values.scope_id, device_kind=values.device_kind)


def _limits(values: RuleValues, errors: dict[str, str]) -> tuple[float, float | None]:
    """Return the value that is compared with, and the one at which it clears."""
    value, clear = values.value, values.clear_value
    if values.condition == Condition.MISSING:
        return 0.0, None
    if value is None or not math.isfinite(value):
        errors["value"] = "Give a number."
        return 0.0, None
    if clear is None or values.condition in {Condition.EQUALS, Condition.DIFFERS}:
        return value, None
    if not math.isfinite(clear):
        errors["clear_value"] = "Give a number, or leave it empty."
    elif values.condition == Condition.ABOVE and clear > value:
        errors["clear_value"] = "What rings above a value clears at that value or below it."
    elif values.condition == Condition.BELOW and clear < value:
        errors["clear_value"] = "What rings below a value clears at that value or above it."
    return value, clear


def values_of(row: Rule) -> RuleValues:
    """Return a rule as somebody may want it changed."""
    return RuleValues(
        name=row.name, metric=row.metric, condition=row.condition, value=row.value, clear_value=row.clear_value,
        hold_seconds=row.hold_seconds, severity=row.severity, scope=row.scope, scope_id=row.as_scope().id,
        device_kind=row.device_kind, enabled=row.enabled, note=row.note,
    )  # fmt: skip


def told_of(row: Rule) -> dict[str, object]:
    """Return a rule for the audit log."""
    return asdict(values_of(row))


def _locked(rule: Rule) -> Rule:
    return _found(Rule.objects.select_for_update().filter(pk=rule.pk))


def _found(rows: QuerySet[Rule]) -> Rule:
    row = rows.first()
    if row is None:
        raise NotFound("There is no such rule.")
    return row


def _save(row: Rule, fields: Sequence[str] | None) -> None:
    try:
        with transaction.atomic():
            row.save(update_fields=fields)
    except IntegrityError as error:
        sentence = "There is a rule of that name already."
        raise Conflict(sentence, errors={"name": sentence}) from error
