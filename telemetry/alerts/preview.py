"""Preview of a rule: evaluates it on stored readings before it is saved."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from core.database import natural
from core.errors import Invalid
from core.language import _, _n, gettext_noop
from fabric.inventory.models import Chassis
from telemetry.alerts.checks import RATE, ActiveRule, RuleSet, plan_checks
from telemetry.alerts.engine import NO_COLUMN, AlertEngine, CheckTransition
from telemetry.alerts.facts import chassis_facts
from telemetry.alerts.rules import TRANSITIONS, Check, Condition, duration_label, value_label
from telemetry.store.selectors import Extract, known_series, read_series

DAY: Final = 86400.0
MAX_RANGE_SECONDS: Final = 92 * DAY
POINTS: Final = 8640  # buckets of 10 s for one day
MAX_SERIES: Final = 400
MAX_PREVIEW_SECONDS: Final = 8.0  # a person waits for the form
MAX_EPISODES: Final = 200
CHART_POINTS: Final = 300
MAX_LINES: Final = 12
NEVER_SENT: Final = gettext_noop(
    "No stored series of this range matches the rule, so that there is no preview. If the rule names a single value of "
    "an existing part that the chassis never sends, it fires all the time."
)


@dataclass(frozen=True)
class PreviewEpisode:
    """A span in which the rule would have fired, Unix s; `until` is None where it would still fire."""

    check: Check
    chassis_name: str
    since: float
    fired_at: float
    until: float | None
    worst: float | None

    @property
    def seconds(self) -> float:
        """How long it would have fired within the range."""
        return (self.until if self.until is not None else time.time()) - self.fired_at

    @property
    def duration_words(self) -> str:
        return duration_label(max(0.0, self.seconds))

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.fired_at, UTC)

    @property
    def worst_words(self) -> str:
        return "" if self.worst is None else value_label(self.worst, self.check.unit)


@dataclass(frozen=True)
class PreviewLine:
    """One series over the range for a chart, in at most CHART_POINTS points; NaN where there is no value."""

    check: Check
    chassis_name: str
    at: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    episodes: list[PreviewEpisode]


@dataclass
class RulePreview:
    """How often, when, how long and on which series a rule would have fired; `step` is the width of a bucket, s.

    `value` is the limit, None for a rule on missing values or on changes.
    """

    since: float
    until: float
    value: float | None
    step: float = 0.0
    series: int = 0
    fired: int = 0
    seconds: float = 0.0
    episodes: list[PreviewEpisode] = field(default_factory=list)
    lines: list[PreviewLine] = field(default_factory=list)
    gaps: int = 0
    left_out: int = 0  # series that were not evaluated
    is_of_missing: bool = False

    @property
    def sentence(self) -> str:
        if not self.series:
            return _(NEVER_SENT) if self.is_of_missing else _("No stored series of this range matches the rule.")
        if not self.fired:
            if not self.is_of_missing:
                return _n(
                    "It would not have fired on any of one series.",
                    "It would not have fired on any of {count} series.",
                    self.series,
                )
            return _n(
                "It would not have fired. The one matching series was not without a value for that long.",
                "It would not have fired. None of {count} series was without a value for that long.",
                self.series,
            )
        times = _n("once", "{count} times", self.fired)
        series = _n("one series", "{count} series", self.series)
        lasted = duration_label(self.seconds)
        if self.is_of_missing:
            return _(
                "It would have fired {times}, as there was no value, on {series}, for {duration} altogether.",
                times=times, series=series, duration=lasted,
            )  # fmt: skip
        return _(
            "It would have fired {times} on {series}, for {duration} altogether.",
            times=times, series=series, duration=lasted,
        )  # fmt: skip


def rule_preview(*, person: User, rule: ActiveRule, since: float, until: float) -> RulePreview:
    """Evaluate a rule on stored readings from `since` until `until` (Unix s), on the chassis the person may see.

    Raises Invalid for a range that is empty or longer than MAX_RANGE_SECONDS.
    """
    if not 0 < until - since <= MAX_RANGE_SECONDS:
        wrong = _("Give a range of at most 92 days that ends after it begins.")
        raise Invalid(_("The range is not valid."), errors={"since": wrong})
    is_of_missing = rule.terms.condition is Condition.MISSING
    value = None if is_of_missing or rule.terms.condition in TRANSITIONS else rule.terms.value
    preview = RulePreview(since=since, until=until, value=value, is_of_missing=is_of_missing)
    deadline = time.monotonic() + MAX_PREVIEW_SECONDS
    rows = Chassis.objects.visible_to(person).order_by(natural("name"))
    if rule.scope.kind == "chassis":
        rows = rows.filter(pk=rule.scope.id)
    for pk, name in rows.values_list("pk", "name"):
        checks = _preview_checks(pk, rule, since, until)
        room = max(0, MAX_SERIES - preview.series) if time.monotonic() < deadline else 0
        preview.left_out += len(checks[room:])
        if checks[:room]:
            _replay(preview, pk, name, checks[:room], rule)
    preview.episodes.sort(key=lambda one: -one.fired_at)
    del preview.episodes[MAX_EPISODES:]
    preview.lines.sort(key=lambda one: -sum(episode.seconds for episode in one.episodes))
    del preview.lines[MAX_LINES:]
    return preview


def _preview_checks(chassis: int, rule: ActiveRule, since: float, until: float) -> list[Check]:
    entries = known_series(chassis, since=since, until=until)
    # The store may list rates beside the counters; here they are derived from the counters, as for live readings.
    entries = [entry for entry in entries if not entry["key"].endswith(RATE)]
    plan = plan_checks(rule_set=RuleSet(rules=(rule,)), facts=chassis_facts(chassis), entries=entries)
    return [check for check, place in zip(plan.checks, plan.places, strict=True) if place != NO_COLUMN]


def _replay(preview: RulePreview, chassis: int, name: str, checks: Sequence[Check], rule: ActiveRule) -> None:
    keys = [check.key for check in checks]
    extract = read_series(chassis, keys, since=preview.since, until=preview.until, points=POINTS)
    places = {entry["key"]: place for place, entry in enumerate(extract.series)}
    checks = [check for check in checks if check.key in places]
    if not checks or not len(extract.at):
        return
    preview.step = max(preview.step, extract.step)
    preview.series += len(checks)
    preview.gaps += len(extract.gaps)
    engine = AlertEngine(checks, [places[check.key] for check in checks])
    met, clearing = _bucket_values(extract, rule)
    if rule.terms.condition is Condition.MISSING:
        met[_before_first_value(extract, chassis, preview.since)] = 0.0
    unread = _unread_buckets(extract)
    found: defaultdict[str, list[PreviewEpisode]] = defaultdict(list)
    firing: dict[str, CheckTransition] = {}
    for row, at in enumerate(extract.at):
        if unread[row]:
            continue  # not evaluated live either
        for change in engine.step(float(at), met[:, row], clearing=clearing[:, row]):
            if change.kind == "firing":
                firing[change.check.key] = change
            elif change.kind == "resolved":
                fired = firing.pop(change.check.key)
                found[change.check.key].append(_episode(name, fired, float(at), change.worst))
    last = {identity[1]: state.worst for identity, state in engine.states().items()}
    for key, fired in firing.items():
        found[key].append(_episode(name, fired, None, last.get(key, fired.worst)))
    for check in checks:
        episodes = found[check.key]
        preview.fired += len(episodes)
        preview.seconds += sum(min(one.until or preview.until, preview.until) - one.fired_at for one in episodes)
        preview.episodes += episodes
        if episodes or len(checks) <= MAX_LINES:
            preview.lines.append(_line(extract, places[check.key], check, name, episodes))


def _bucket_values(extract: Extract, rule: ActiveRule) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values of each bucket that decide whether the rule is met, and whether it clears: [series, rows].

    A rule with a hold has to be met in all of a bucket; one without a hold, at any moment of it. Of changes, those
    from the minimum of a bucket to that of the next count; of a rise, from maximum to maximum.
    """
    least, most = extract.low.astype(np.float64), extract.high.astype(np.float64)
    mean = extract.mean.astype(np.float64)
    if rule.terms.condition in TRANSITIONS:
        values = most if rule.terms.condition is Condition.RISES else least
        return values, values
    if rule.terms.condition is Condition.ABOVE:
        return (least if rule.terms.hold > 0 else most), least
    if rule.terms.condition is Condition.BELOW:
        return (most if rule.terms.hold > 0 else least), most
    if rule.terms.condition is Condition.EQUALS:
        # Equal in all of the bucket or, without a hold, at its minimum or maximum.
        steady = np.where(least == most, least, np.nan)
        mixed = np.where((least == rule.terms.value) | (most == rule.terms.value), rule.terms.value, mean)
        return (np.where(np.isnan(steady), mean, steady) if rule.terms.hold > 0 else mixed), mean
    if rule.terms.condition is Condition.DIFFERS:
        inside = (least <= rule.terms.value) & (rule.terms.value <= most)
        differs = np.where(inside, rule.terms.value, least)
        touched = np.where(least != rule.terms.value, least, most)
        return (differs if rule.terms.hold > 0 else touched), differs
    return least, least


def _unread_buckets(extract: Extract) -> NDArray[np.bool_]:
    """Return in which buckets the chassis was not read at all: [rows]."""
    begins, ends = extract.at, extract.at + extract.step
    unread = np.zeros(len(extract.at), dtype=np.bool_)
    for gap in extract.gaps:
        unread |= (begins >= gap.since) & (ends <= gap.until)
    return unread


def _before_first_value(extract: Extract, chassis: int, since: float) -> NDArray[np.bool_]:
    """Return in which buckets a series was not measured yet, and so is not missing: [series, rows]."""
    before = {entry["key"] for entry in known_series(chassis, since=since - MAX_RANGE_SECONDS, until=since)}
    present = ~np.isnan(extract.mean)
    is_new = np.array([entry["key"] not in before for entry in extract.series], dtype=np.bool_)
    started = np.logical_or.accumulate(present, axis=1)
    return np.logical_and((is_new & present.any(axis=1))[:, np.newaxis], np.logical_not(started))


def _episode(name: str, fired: CheckTransition, until: float | None, worst: float) -> PreviewEpisode:
    known = None if np.isnan(worst) else float(worst)
    return PreviewEpisode(fired.check, name, fired.since, fired.at, until, known)


def _line(extract: Extract, place: int, check: Check, name: str, episodes: list[PreviewEpisode]) -> PreviewLine:
    """Return a series in CHART_POINTS points, with minimum and maximum of each."""
    rows = len(extract.at)
    edges = np.unique(np.linspace(0, rows, min(rows, CHART_POINTS) + 1).astype(int))[:-1]
    low, high = extract.low[place].astype(np.float64), extract.high[place].astype(np.float64)
    lows, highs = np.fmin.reduceat(low, edges), np.fmax.reduceat(high, edges)
    return PreviewLine(check, name, extract.at[edges], lows, highs, episodes)


WIDTH, HEIGHT, TOP = 1000.0, 120.0, 8.0


@dataclass(frozen=True)
class PreviewBar:
    """A span in which the rule would have fired, in the drawing's units."""

    x: float
    width: float


@dataclass(frozen=True)
class PreviewDrawing:
    """A drawing of WIDTH times HEIGHT: the band from minimum to maximum, the limit, and the spans of firing."""

    line: PreviewLine
    bands: list[str]  # points of polygons
    limit: float | None
    bars: list[PreviewBar]
    range: str  # from minimum to maximum, in words

    @property
    def label(self) -> str:
        count = len(self.line.episodes)
        times = _n("once", "{count} times", count) if count else _("not at all")
        return _(
            "{part} of {chassis}: {range}, fired {times}",
            part=self.line.check.subject.name, chassis=self.line.chassis_name, range=self.range, times=times,
        )  # fmt: skip


def draw_preview_line(line: PreviewLine, preview: RulePreview) -> PreviewDrawing:
    present = ~np.isnan(line.low)
    least, most = (float(np.nanmin(line.low)), float(np.nanmax(line.high))) if present.any() else (0.0, 1.0)
    bottom, top = least, most
    if preview.value is not None:
        bottom, top = min(bottom, preview.value), max(top, preview.value)
    height = (top - bottom) or 1.0
    length = preview.until - preview.since

    def x(at: float) -> float:
        return round(min(max(float(at - preview.since) / length, 0.0), 1.0) * WIDTH, 1)

    def y(value: float) -> float:
        return round(TOP + (1 - float(value - bottom) / height) * (HEIGHT - 2 * TOP), 1)

    bands = []
    for has_values, run in groupby(range(len(line.at)), key=lambda place: bool(present[place])):
        if has_values:
            points = [(x(line.at[place]), y(line.low[place]), y(line.high[place])) for place in run]
            upper = [f"{at},{high}" for at, _, high in points]
            # At least a pixel high, so that a constant value is a line.
            lower = [f"{at},{max(low, high + 1.5)}" for at, low, high in reversed(points)]
            bands.append(" ".join(upper + lower))
    bars = []
    for episode in line.episodes:
        begin, end = x(episode.fired_at), x(episode.until if episode.until is not None else preview.until)
        bars.append(PreviewBar(begin, max(2.0, round(end - begin, 1))))
    limit = y(preview.value) if preview.value is not None else None
    unit = line.check.unit
    words = _("no value at all")
    if bands:
        words = _("from {least} to {most}", least=value_label(least, unit), most=value_label(most, unit))
    return PreviewDrawing(line, bands, limit, bars, words)
