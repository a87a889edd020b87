"""Adds, changes and removes rules, and validates their metrics."""

from __future__ import annotations

import difflib
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import redis
from django.db import IntegrityError, transaction
from django.db.models import Max

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import Tenant, User
from accounts.visibility import row_or_404
from core.errors import Conflict, Invalid, NotFound, Unavailable
from core.language import _, gettext_noop, joined
from fabric.bmc.series import Quantity
from fabric.inventory.models import Chassis, Device, Drawer, Port
from telemetry.alerts.checks import ERROR_RATE, RATE, is_key_pattern, is_rate_metric, metric_matches, rate_entry
from telemetry.alerts.models import MAX_TEXT_LENGTH, AlertSeverity, BuiltInSwitch, Route, Rule, Scoped
from telemetry.alerts.rules import BUILT_IN_RULES, SCOPES, TRANSITIONS, BuiltInRule, Condition, rule_cause
from telemetry.alerts.services import rule_alerts_end
from telemetry.links.counters import COUNTERS_BY_NAME
from telemetry.live.catalogue import BYTE_RATES, EXPECTED_UNITS, LABELS, SeriesEntry
from telemetry.live.frames import CATALOGUES_PER_BATCH, current_catalogues
from telemetry.store.models import Catalogue

SCOPE_MODELS: Final[dict[str, Any]] = {
    "chassis": Chassis, "drawer": Drawer, "device": Device, "port": Port, "tenant": Tenant,
}  # fmt: skip
SCOPE_FIELDS: Final = ("scope", "scope_id", "device_kind")  # as somebody gives them
SCOPE_COLUMNS: Final = ("scope", "chassis", "drawer", "device", "port", "tenant", "device_kind")


def scope_set(row: Scoped, *, scope: str, scope_id: int | None, device_kind: str) -> None:
    """Set the scope of a row; raises Invalid with the field that is wrong."""
    if scope not in dict(SCOPES):
        refuse_field("scope", _("One of {choices}.", choices=", ".join(name for name, _words in SCOPES)))
    row.scope, row.device_kind = scope, ""
    for name in SCOPE_MODELS:
        setattr(row, f"{name}_id", None)
    if scope == "device_kind":
        if device_kind not in Device.Kind.values:
            refuse_field("device_kind", _("One of {choices}.", choices=", ".join(Device.Kind.values)))
        row.device_kind = device_kind
    elif scope != "all":
        found = SCOPE_MODELS[scope].objects.filter(pk=scope_id).first() if scope_id is not None else None
        if found is None:
            refuse_field("scope_id", _("There is no such {kind}: choose one.", kind=_(scope)))
        setattr(row, scope, found)


def clean_text(text: str, field: str, *, longest: int, required: bool = False) -> str:
    """Return a text as stored; raises Invalid where it is too long, or required and empty."""
    kept = text.replace("\0", "").strip()
    if len(kept) > longest:
        refuse_field(field, _("At most {most} characters.", most=longest))
    if required and not kept:
        refuse_field(field, _("Give one."))
    return kept


def refuse_field(field: str, sentence: str) -> None:
    raise Invalid(sentence, errors={field: sentence})


def save_named(row: Rule | Route, kind: str, columns: Sequence[str] | None = None) -> None:
    """Save a row; raises Conflict where another one has its name."""
    try:
        with transaction.atomic():
            row.save(update_fields=columns)
    except IntegrityError as error:
        sentence = _("There is a {kind} of that name already.", kind=_(kind))
        raise Conflict(sentence, errors={"name": sentence}) from error


MAX_HOLD_SECONDS: Final = 7 * 86400.0
MAX_RULES: Final = 500
METRIC_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*?\[\]!-]+(/[A-Za-z0-9_.*?\[\]! %()-]+)*")


@dataclass(frozen=True, kw_only=True)
class RuleValues:
    """The requested values of a rule; `scope_id` is the id of the row that `scope` names."""

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


RULE_FIELDS: Final = tuple(one.name for one in fields(RuleValues) if one.name not in SCOPE_FIELDS)  # columns of a row


def rule_add(*, person: User, values: RuleValues) -> Rule:
    """Add a rule; raises Forbidden, Invalid with the fields that are wrong, Conflict for a name that is taken."""
    with attempt(Action.ALERT_RULE_ADD, actor=person, target=Target(kind="alert rule", name=values.name[:100])) as act:
        require_administrator(person)
        # Before anything is locked: looking up the metric may take seconds.
        rule_fill(Rule(), values)
        with act.change():
            if Rule.objects.count() >= MAX_RULES:
                raise Conflict(_("There are {most} rules already. Delete an unused one.", most=MAX_RULES))
            row = Rule()
            _fill(row, values)
            row.changed_by_name = person.get_username()
            save_named(row, gettext_noop("rule"))
            act.target, act.after = target_of(row), audit_values(row)
    return row


def rule_edit(*, person: User, rule: Rule, values: RuleValues) -> Rule:
    """Change a rule; its alerts that the new terms do not meet end at the next reading. Raises as `rule_add`."""
    with attempt(Action.ALERT_RULE_EDIT, actor=person, target=target_of(rule)) as act:
        require_administrator(person)
        draft = row_or_404(Rule.objects.all(), rule.pk, gettext_noop("rule"))
        act.before = audit_values(draft)
        rule_fill(draft, values)
        with act.change():
            row: Rule = row_or_404(Rule.objects.select_for_update(), rule.pk, gettext_noop("rule"))
            act.before = audit_values(row)
            _fill(row, values)
            row.changed_by_name = person.get_username()
            save_named(row, gettext_noop("rule"), (*RULE_FIELDS, *SCOPE_COLUMNS, "changed_by_name", "changed_at"))
            if not row.enabled:
                rule_alerts_end(cause=rule_cause(row.pk))
            act.after = audit_values(row)
    return row


def rule_switch(*, person: User, rule: Rule, enabled: bool) -> Rule:
    """Switch a rule on or off; switching it off ends its alerts."""
    with audited(Action.ALERT_RULE_EDIT, actor=person, target=target_of(rule)) as act:
        require_administrator(person)
        row: Rule = row_or_404(Rule.objects.select_for_update(), rule.pk, gettext_noop("rule"))
        act.before, act.after = {"enabled": row.enabled}, {"enabled": enabled}
        row.enabled, row.changed_by_name = enabled, person.get_username()
        row.save(update_fields=["enabled", "changed_by_name", "changed_at"])
        if not enabled:
            rule_alerts_end(cause=rule_cause(row.pk))
    return row


def rule_remove(*, person: User, rule: Rule) -> None:
    """Delete a rule; its firing alerts end, and all its alerts keep its name."""
    with audited(Action.ALERT_RULE_REMOVE, actor=person, target=target_of(rule)) as act:
        require_administrator(person)
        row = row_or_404(Rule.objects.select_for_update(), rule.pk, gettext_noop("rule"))
        act.before = audit_values(row)
        rule_alerts_end(cause=rule_cause(row.pk))
        row.delete()


def built_in_switch(*, person: User, name: str, enabled: bool) -> BuiltInRule:
    """Switch a built-in rule on or off; switching it off ends its alerts. Raises Forbidden and NotFound."""
    with audited(Action.ALERT_BUILT_IN, actor=person, target=Target(kind="built-in rule", id=name[:64])) as act:
        require_administrator(person)
        known = BUILT_IN_RULES.get(name)
        if known is None:
            raise NotFound(_("There is no such built-in rule."))
        act.target = Target(kind="built-in rule", id=name, name=known.words)
        row = BuiltInSwitch.objects.select_for_update().filter(pk=name).first()
        act.before = {"enabled": row.enabled if row is not None else known.is_on}
        act.after = {"enabled": enabled}
        BuiltInSwitch.objects.update_or_create(
            pk=name, defaults={"enabled": enabled, "changed_by_name": person.get_username()}
        )
        if not enabled:
            rule_alerts_end(cause=name)
    return known


def rule_fill(row: Rule, values: RuleValues) -> None:
    """Set the requested values on an unsaved row; raises Invalid with the fields that are wrong.

    An unchanged metric is not looked up again, as its series may have disappeared. Raises Unavailable where the metric
    cannot be looked up. Call it outside of transactions, see require_known_metric.
    """
    known_metric = row.metric
    _fill(row, values)
    if row.metric != known_metric:
        require_known_metric(row.metric)


def _fill(row: Rule, values: RuleValues) -> None:
    row.name = " ".join(clean_text(values.name, "name", longest=100, required=True).split())
    row.metric = clean_text(values.metric, "metric", longest=200, required=True)
    row.note = clean_text(values.note, "note", longest=MAX_TEXT_LENGTH)
    errors: dict[str, str] = {}
    if METRIC_PATTERN.fullmatch(row.metric) is None:
        errors["metric"] = _("Give a quantity such as power_watts, or a pattern of keys such as port/*/link_status.")
    if values.condition not in {one.value for one in Condition}:
        errors["condition"] = _("One of {choices}.", choices=", ".join(Condition))
    if values.severity not in AlertSeverity.values:
        errors["severity"] = _("One of {choices}.", choices=", ".join(AlertSeverity.values))
    if not math.isfinite(values.hold_seconds) or not 0 <= values.hold_seconds <= MAX_HOLD_SECONDS:
        errors["hold_seconds"] = _("From 0 s to 7 days.")
    row.value, row.clear_value = _limits(values, errors)
    if errors:
        raise Invalid(joined(errors.values()), errors=errors)
    row.condition, row.severity = values.condition, values.severity
    row.hold_seconds, row.enabled = values.hold_seconds, values.enabled
    scope_set(row, scope=values.scope, scope_id=values.scope_id, device_kind=values.device_kind)


def _limits(values: RuleValues, errors: dict[str, str]) -> tuple[float, float | None]:
    """Return the limit, and the value at which alerts resolve."""
    value, clear = values.value, values.clear_value
    if values.condition == Condition.MISSING:
        return 0.0, None
    if values.condition in TRANSITIONS:
        if value is not None and not 0 <= value < math.inf:
            errors["value"] = _("Give by how much it changes: 0, or more.")
        return value or 0.0, None
    if value is None or not math.isfinite(value):
        errors["value"] = _("Give a number.")
        return 0.0, None
    if clear is None or values.condition in {Condition.EQUALS, Condition.DIFFERS}:
        return value, None
    if not math.isfinite(clear):
        errors["clear_value"] = _("Give a number, or leave it empty.")
    elif values.condition == Condition.ABOVE and clear > value:
        errors["clear_value"] = _("A rule that fires above a value resolves at that value or below it.")
    elif values.condition == Condition.BELOW and clear < value:
        errors["clear_value"] = _("A rule that fires below a value resolves at that value or above it.")
    return value, clear


def rule_values(row: Rule) -> RuleValues:
    """Return the values of a rule, as a basis for a change."""
    return RuleValues(**{name: getattr(row, name) for name in (*RULE_FIELDS, *SCOPE_FIELDS)})


def audit_values(row: Rule) -> dict[str, object]:
    return asdict(rule_values(row))


ANY_ID: Final = "0"  # placeholder for any id
ID_PATTERN: Final = re.compile(r"[\d*?\[\]!-]+")  # an id, or a pattern of ids
MAX_SUGGESTIONS: Final = 3
MAX_LOOKUP_SECONDS: Final = 2.0  # a person waits for the response


def metric_choices(person: User) -> list[tuple[str, str]]:
    """Return the measured quantities for a form: those of the live catalogues that the person may see."""
    found: dict[str, str] = {}
    rows = Chassis.objects.visible_to(person).filter(enabled=True).order_by("pk").values_list("pk", flat=True)
    for entry in current_catalogues(list(rows[:CATALOGUES_PER_BATCH])):
        if entry["quantity"] not in found:
            found[entry["quantity"]] = _entry_label(entry)
    if "errors" in found:
        found[ERROR_RATE] = _("Errors, rate (1/s)")
    return sorted(found.items())


def require_known_metric(metric: str) -> None:
    """Raise Invalid, with suggestions in `near`, for a metric that names no known series.

    The series that the site defines are searched first, then the live catalogues, then the last stored ones: a rule may
    be added before its chassis. Raises Unavailable where the catalogues are needed, but cannot be reached or searched
    in time. Call it outside of transactions: it may take some seconds.
    """
    generic, numbers = _without_ids(metric)
    if any(metric_matches(one, entry) for one in (metric, generic) for entry in KNOWN_ENTRIES):
        return
    # One entry a key without ids: many chassis measure the same series.
    known = {(entry["key"], entry["quantity"]): entry for entry in KNOWN_ENTRIES}
    try:
        for entry in _measured_entries(rates=is_rate_metric(metric)):
            if metric_matches(metric, entry):
                return
            known.setdefault((_without_ids(entry["key"])[0], entry["quantity"]), entry)
    except TimeoutError as error:
        sentence = _(
            "'{metric}' cannot be looked up in time: there are too many series. Choose one of the list, or try again.",
            metric=metric[:100],
        )
        raise Unavailable(sentence) from error
    except (redis.RedisError, OSError) as error:
        sentence = _("'{metric}' cannot be looked up: Redis does not answer.", metric=metric[:100])
        raise Unavailable(sentence) from error
    near = [one.replace(f"/{ANY_ID}/", f"/{numbers or '*'}/", 1) for one in _close_matches(generic, known.values())]
    hint = _("Quantities are {names}.", names=", ".join(sorted(QUANTITIES)))
    if near:
        hint = _("Is {names} meant?", names=joined(near, _(" or ")))
    sentence = joined((_("There is no metric '{metric}'.", metric=metric[:100]), hint))
    raise Invalid(sentence, errors={"metric": sentence}, near=near)


def _close_matches(wanted: str, known: Iterable[SeriesEntry]) -> list[str]:
    """Return similar names: keys for a pattern of keys, else quantities, and keys of error counters."""
    names: dict[str, str] = {}
    for entry in known:
        key, _ = _without_ids(entry["key"])
        if is_key_pattern(wanted):
            names[key.casefold()] = key
            continue
        names[entry["quantity"].casefold()] = entry["quantity"]
        if entry["quantity"] == Quantity.ERRORS:
            names.setdefault(key.rpartition("/")[2].casefold(), f"port/{key.split('/', 1)[1]}")
    # All keys of a kind begin alike, hence the higher cutoff.
    cutoff = 0.8 if is_key_pattern(wanted) else 0.55
    return [
        names[one]
        for one in difflib.get_close_matches(wanted.casefold(), list(names), n=MAX_SUGGESTIONS, cutoff=cutoff)
    ]


# Quantities of which an object may have several sensors: their keys end with a name that the site cannot know.
SENSOR_QUANTITIES: Final = frozenset({*EXPECTED_UNITS, Quantity.OTHER})


def _known_entries() -> Iterator[SeriesEntry]:
    for quantity in Quantity:
        name = BYTE_RATES.get(quantity, quantity.value)
        details: tuple[str, ...] = ("", "*") if quantity in SENSOR_QUANTITIES else ("",)
        if quantity is Quantity.ERRORS:
            details = tuple(COUNTERS_BY_NAME)
        for kind in ("device", "port", "drawer", "chassis"):
            for detail in details:
                key = f"{kind}/{ANY_ID}/{name}" + (f"/{detail}" if detail else "")
                entry = SeriesEntry(key=key, object=kind, id=0, quantity=name, label="", unit="")
                yield entry
                if quantity is Quantity.ERRORS:
                    yield rate_entry(entry)


KNOWN_ENTRIES: Final = tuple(_known_entries())
QUANTITIES: Final = frozenset(entry["quantity"] for entry in KNOWN_ENTRIES)


def _measured_entries(*, rates: bool) -> Iterator[SeriesEntry]:
    """Yield the live series of all chassis, then the last stored ones; TimeoutError where either takes too long.

    Of error counters, yields the rates where `rates` is set, else the counters.
    """
    chassis = list(Chassis.objects.order_by("pk").values_list("pk", flat=True))
    for part in (current_catalogues(chassis), _stored_entries(chassis)):
        end = time.monotonic() + MAX_LOOKUP_SECONDS
        for entry in part:
            if not entry["key"].endswith(RATE):  # as the store's rollups call them
                yield rate_entry(entry) if rates and entry["quantity"] == Quantity.ERRORS else entry
            if time.monotonic() >= end:
                raise TimeoutError


def _stored_entries(chassis: Sequence[int]) -> Iterator[SeriesEntry]:
    """Yield the entries of the newest stored catalogue of each chassis."""
    newest = Catalogue.objects.filter(chassis__in=chassis).order_by().values("chassis").annotate(newest=Max("pk"))
    for row in Catalogue.objects.filter(pk__in=newest.values("newest")).iterator(chunk_size=CATALOGUES_PER_BATCH):
        yield from row.entries


def _without_ids(metric: str) -> tuple[str, str]:
    """Return a key, or a pattern of keys, with its id replaced by ANY_ID, and the id."""
    steps = metric.split("/")
    if len(steps) < 3 or ID_PATTERN.fullmatch(steps[1]) is None:
        return metric, ""
    numbers, steps[1] = steps[1], ANY_ID
    return "/".join(steps), numbers


def _entry_label(entry: SeriesEntry) -> str:
    known = {quantity.value: label for quantity, label in LABELS.items()}
    label = known.get(entry["quantity"], (entry["label"], entry["unit"]))[0] or entry["label"]
    unit = f" ({entry['unit']})" if entry["unit"] and entry["unit"] != "state" else ""
    return f"{_(label)}{unit}"
