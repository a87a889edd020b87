"""Derives the checks of a chassis from the rules and its catalogue. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from fabric.bmc.series import ReadingSeries
from fabric.bmc.types import RedfishFan, RedfishSensor, Thresholds
from fabric.inventory.selectors import ReadingOwner
from telemetry.alerts.engine import NO_COLUMN, Values
from telemetry.alerts.rules import (
    BUILT_IN_RULES,
    CLEAR_MARGIN,
    NOT_ANSWERING,
    AlertScope,
    AlertSubject,
    Check,
    Condition,
    Terms,
    rule_cause,
)
from telemetry.live.catalogue import Sample, SeriesEntry, elapsed_between, is_repeat

RATE = "/rate"  # suffix of the key of a counter's rate, as in the store
ERROR_RATE = "error_rate"  # the quantity of such a rate
UNHEALTHY = frozenset({"Warning", "Critical"})


@dataclass(frozen=True, kw_only=True)
class ActiveRule:
    """An administrators' rule, independent of the database."""

    pk: int
    name: str
    metric: str
    scope: AlertScope
    terms: Terms
    severity: str
    version: str = ""  # differs after each change


@dataclass(frozen=True)
class RuleSet:
    """The active rules: administrators' rules, and the names of the enabled built-in ones."""

    rules: tuple[ActiveRule, ...] = ()
    built_ins: frozenset[str] = frozenset()
    version: str = ""  # of the switches of the built-in rules

    @property
    def has_moving_subjects(self) -> bool:
        """Whether the subjects of its rules change without a walk: by tenant."""
        return any(rule.scope.kind == "tenant" for rule in self.rules)

    def includes(self, cause: str) -> bool:
        name = cause.partition(":")[0]
        return name in self.built_ins or any(rule_cause(rule.pk) == cause for rule in self.rules)


@dataclass(frozen=True)
class ChassisFacts:
    """Facts of a chassis from the database: its parts by object and id."""

    chassis: int
    name: str
    subjects: Mapping[tuple[str, int], AlertSubject] = field(default_factory=dict)

    def subject(self, kind: str, pk: int) -> AlertSubject:
        """Return a part; the chassis where there is no such part."""
        return self.subjects.get((kind, pk)) or AlertSubject(object="chassis", chassis=self.chassis, name=self.name)


@dataclass(frozen=True)
class PlannedChecks:
    """The checks of a chassis, and the index of each check's value in the array that `values` returns."""

    checks: tuple[Check, ...]
    places: tuple[int, ...]
    counters: NDArray[np.intp]  # indices of the counters whose rates are checked
    constants: Values

    def values(self, sample: Sample, before: Sample | None) -> Values:
        """Return the values of a sample, then the rates (1/s) since the previous one, then the results of walks."""
        return np.concatenate((sample.values, self._rates(sample, before), self.constants))

    def _rates(self, sample: Sample, before: Sample | None) -> Values:
        if before is None or not len(self.counters):
            return np.full(len(self.counters), math.nan)
        # Not from `counted`: it may have negative counters, which are invalid and give no rate.
        moved = sample.values[self.counters] - before.values[self.counters]
        elapsed = 0.0 if is_repeat(sample, before) else elapsed_between(before, sample)
        # A decrease is a reset; no time in between is the same report again.
        return np.where(moved >= 0, moved / elapsed, math.nan) if elapsed > 0 else np.full(len(moved), math.nan)


def is_key_pattern(metric: str) -> bool:
    """Return whether a metric is a pattern of keys, not a quantity."""
    return "/" in metric


def is_rate_metric(metric: str) -> bool:
    return metric == ERROR_RATE or metric.endswith(RATE)


def metric_matches(metric: str, entry: SeriesEntry) -> bool:
    """Return whether a metric names a series: by its quantity, or by a pattern of its key."""
    if not is_key_pattern(metric):
        return entry["quantity"] == metric
    # '*' matches slashes too: rates of counters match only where they are named.
    return is_rate_metric(metric) == (entry["quantity"] == ERROR_RATE) and fnmatchcase(entry["key"], metric)


def rate_entry(entry: SeriesEntry) -> SeriesEntry:
    rate = entry["key"] + RATE
    return {**entry, "key": rate, "quantity": ERROR_RATE, "label": f"{entry['label']}, rate", "unit": "1/s"}


def plan_checks(
    *,
    rule_set: RuleSet,
    facts: ChassisFacts,
    entries: Sequence[SeriesEntry],
    series: Sequence[ReadingSeries] = (),
    sensors: Iterable[RedfishSensor] = (),
    fans: Iterable[RedfishFan] = (),
    owners: Mapping[str, ReadingOwner] | None = None,
) -> PlannedChecks:
    """Return the checks of a chassis, without the built-in one of a chassis that does not answer.

    `series` is aligned with `entries`; sensors and fans are those of the newest walk.
    """
    planned: dict[tuple[str, str], tuple[Check, int]] = {}
    counters = [place for place, entry in enumerate(entries) if entry["quantity"] == "errors"]
    with_rates = any(is_rate_metric(rule.metric) for rule in rule_set.rules)
    rates = (
        [(rate_entry(entries[place]), len(entries) + nth) for nth, place in enumerate(counters)] if with_rates else []
    )
    known = [*((entry, place) for place, entry in enumerate(entries)), *rates]
    found: list[tuple[Check, int]] = []
    for rule in rule_set.rules:
        found += _rule_checks(rule, known, facts)
    found += _sensor_checks(rule_set, facts, entries, series, sensors)
    begin = len(entries) + len(rates)
    constants: list[float] = []
    if "fan_failed" in rule_set.built_ins:
        for check, value in _fan_checks(facts, fans, owners or {}):
            found.append((check, begin + len(constants)))
            constants.append(value)
    for check, place in found:
        planned.setdefault(check.identity, (check, place))
    return PlannedChecks(
        checks=tuple(check for check, _ in planned.values()),
        places=tuple(place for _, place in planned.values()),
        counters=np.array(counters if with_rates else [], dtype=np.intp),
        constants=np.array(constants, dtype=np.float64),
    )


def unreachable_check(facts: ChassisFacts) -> Check:
    known = BUILT_IN_RULES[NOT_ANSWERING]
    return Check(
        cause=known.name,
        key="",
        terms=Terms(condition=Condition.ABOVE, hold=known.hold),
        severity=known.severity,
        subject=AlertSubject(object="chassis", chassis=facts.chassis, name=facts.name),
        title=known.words,
    )


def _rule_checks(
    rule: ActiveRule, known: Iterable[tuple[SeriesEntry, int]], facts: ChassisFacts
) -> list[tuple[Check, int]]:
    found = [
        (_rule_check(rule, entry, subject), place)
        for entry, place in known
        if metric_matches(rule.metric, entry)
        and rule.scope.includes(subject := facts.subject(entry["object"], entry["id"]))
    ]
    if not found and rule.terms.condition is Condition.MISSING and (named := _named_series(rule, facts)) is not None:
        key, subject = named
        entry = SeriesEntry(key=key, object=subject.object, id=0, quantity=rule.metric, label=rule.name, unit="")
        found = [(_rule_check(rule, entry, subject), NO_COLUMN)]
    return found


def _named_series(rule: ActiveRule, facts: ChassisFacts) -> tuple[str, AlertSubject] | None:
    """Return key and subject of the single series that a rule names, although the chassis does not report it."""
    if is_key_pattern(rule.metric):
        match = re.fullmatch(r"(chassis|drawer|device|port)/(\d{1,18})/[^*?\[]+", rule.metric)
        place = (match[1], int(match[2])) if match else None
        key = rule.metric
    else:
        scope = rule.scope
        place = (scope.kind, scope.id) if scope.kind in {"drawer", "device", "port"} and scope.id else None
        key = f"{scope.kind}/{scope.id}/{rule.metric}"
    if place is None or place not in facts.subjects:
        return None
    subject = facts.subjects[place]
    return (key, subject) if rule.scope.includes(subject) else None


def _rule_check(rule: ActiveRule, entry: SeriesEntry, subject: AlertSubject) -> Check:
    return Check(
        cause=rule_cause(rule.pk), key=entry["key"], terms=rule.terms, severity=rule.severity, subject=subject,
        title=rule.name, unit=entry["unit"], quantity=entry["label"], rule=rule.pk,
    )  # fmt: skip


def _built_in_check(name: str, side: str, entry: SeriesEntry, subject: AlertSubject, terms: Terms) -> Check:
    known = BUILT_IN_RULES[name]
    return Check(
        cause=f"{name}:{side}" if side else name, key=entry["key"], terms=terms, severity=known.severity,
        subject=subject, title=known.words, unit=entry["unit"], quantity=entry["label"],
    )  # fmt: skip


def _sensor_checks(
    rule_set: RuleSet,
    facts: ChassisFacts,
    entries: Sequence[SeriesEntry],
    series: Sequence[ReadingSeries],
    sensors: Iterable[RedfishSensor],
) -> Iterator[tuple[Check, int]]:
    names = [name for name in ("sensor_critical", "sensor_caution") if name in rule_set.built_ins]
    by_uri = {sensor.uri: sensor for sensor in sensors} if names else {}
    for place, (entry, one) in enumerate(zip(entries, series, strict=False)):
        # In the older Thermal and Power resources a sensor is a part of its resource.
        sensor = by_uri.get(one.property.partition("#")[0]) or by_uri.get(one.property.rpartition("/")[0])
        if sensor is None:
            continue
        subject = facts.subject(entry["object"], entry["id"])
        for name in names:
            for side, limit in sensor_limits(sensor.thresholds, name):
                upper = side == "upper"
                terms = Terms(
                    condition=Condition.ABOVE if upper else Condition.BELOW,
                    value=limit,
                    clear=limit - math.copysign(abs(limit) * CLEAR_MARGIN, 1 if upper else -1),
                    hold=BUILT_IN_RULES[name].hold,
                )
                yield _built_in_check(name, side, entry, subject, terms), place


def sensor_limits(known: Thresholds, name: str) -> Iterator[tuple[str, float]]:
    """Yield side and limit of a sensor's thresholds of one kind; fatal thresholds count as critical."""
    if name == "sensor_caution":
        pairs = (("upper", known.upper_caution), ("lower", known.lower_caution))
    else:
        upper = [one for one in (known.upper_critical, known.upper_fatal) if one is not None]
        lower = [one for one in (known.lower_critical, known.lower_fatal) if one is not None]
        pairs = (("upper", min(upper, default=None)), ("lower", max(lower, default=None)))
    for side, limit in pairs:
        if limit is not None and math.isfinite(limit):
            yield side, limit


def _fan_checks(
    facts: ChassisFacts, fans: Iterable[RedfishFan], owners: Mapping[str, ReadingOwner]
) -> Iterator[tuple[Check, float]]:
    for fan in fans:
        owner = owners.get(fan.uri, ReadingOwner("chassis", 0))
        name = fan.name or str(fan.id or "fan")
        entry = SeriesEntry(
            key=f"{owner.kind}/{owner.id}/fan/{name}"[:300], object=owner.kind, id=owner.id, quantity="fan",
            label=name, unit="health",
        )  # fmt: skip
        terms = Terms(condition=Condition.ABOVE, value=0.0, hold=BUILT_IN_RULES["fan_failed"].hold)
        check = _built_in_check("fan_failed", "", entry, facts.subject(owner.kind, owner.id), terms)
        yield check, 1.0 if fan.health in UNHEALTHY else 0.0
