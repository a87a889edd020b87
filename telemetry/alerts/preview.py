"""What a rule would have done: its engine played on what the store has, before somebody saves it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from fabric.models import Chassis
from falconweb.errors import Invalid
from telemetry.alerts.checks import RATE, Book, RuleInForce, plan_checks
from telemetry.alerts.engine import NO_PLACE, Change, Engine
from telemetry.alerts.facts import facts_of
from telemetry.alerts.terms import Check, Condition, seconds_words, value_words
from telemetry.store.reading import Extract, known_series, read

DAY: Final = 86400.0
LONGEST: Final = 92 * DAY
POINTS: Final = 8640  # of a day: 10 s each
MOST_SERIES: Final = 400
MOST_SECONDS: Final = 8.0  # nobody waits longer for a form
MOST_EPISODES: Final = 200
CHART_POINTS: Final = 300
LANES: Final = 12
NOTHING_FITS: Final = "Nothing that is stored of this time fits: the rule would have watched nothing."
NEVER_SENT: Final = (
    "Nothing that is stored of this time fits, so that it cannot be tried. Where the rule names one value of a part "
    "that is there, and the chassis never sends it, it rings all the time."
)


@dataclass(frozen=True)
class Episode:
    """A time during which the rule would have fired; `until` None: it would fire still. Unix s."""

    chassis_id: int
    chassis_name: str
    series_key: str
    subject_name: str
    quantity: str
    unit: str
    since: float
    fired_at: float
    until: float | None
    worst: float | None

    @property
    def seconds(self) -> float:
        """How long it would have fired, of what was looked at."""
        return (self.until if self.until is not None else time.time()) - self.fired_at

    @property
    def long(self) -> str:
        """The same in words."""
        return seconds_words(max(0.0, self.seconds))

    @property
    def at(self) -> datetime:
        """When it would have fired."""
        return datetime.fromtimestamp(self.fired_at, UTC)

    @property
    def worst_words(self) -> str:
        """The value furthest off, in words."""
        return "" if self.worst is None else value_words(self.worst, self.unit)


@dataclass(frozen=True)
class Line:
    """One series over the range: for a chart, in at most CHART_POINTS points; None where there is no value."""

    series_key: str
    subject_name: str
    chassis_name: str
    unit: str
    at: list[float]
    low: list[float | None]
    high: list[float | None]
    episodes: list[Episode]


@dataclass
class Preview:
    """How often, when, for how long and on what; `step` is the s of a bucket that was judged at a time.

    `value` is what was compared with, None where a value that is missing was looked for.
    """

    since: float
    until: float
    value: float | None
    step: float = 0.0
    series: int = 0
    fired: int = 0
    seconds: float = 0.0
    episodes: list[Episode] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    gaps: int = 0
    left_out: int = 0  # series that were not looked at

    @property
    def is_of_missing(self) -> bool:
        """Whether values that are missing were looked for."""
        return self.value is None

    @property
    def long(self) -> str:
        """How long all of them together, in words."""
        return seconds_words(self.seconds)

    @property
    def sentence(self) -> str:
        """What came out of it."""
        if not self.series:
            return NEVER_SENT if self.is_of_missing else NOTHING_FITS
        of = f"{self.series} series" if self.series > 1 else "one series"
        if not self.fired:
            if not self.is_of_missing:
                return f"It would not have fired on any of {of}."
            whose = f"Of {of} none was ever" if self.series > 1 else "The one series that fits was never"
            return f"It would not have fired. {whose} without a value for so long."
        times = "once" if self.fired == 1 else f"{self.fired} times"
        why = ", as there was no value," if self.is_of_missing else ""
        return f"It would have fired {times}{why} on {of}, for {self.long} altogether."


def rule_preview(*, person: User, rule: RuleInForce, since: float, until: float) -> Preview:
    """Play a rule on the store from `since` until `until` (Unix s), on what the person may see.

    Raises Invalid for a range that is none or longer than LONGEST.
    """
    if not 0 < until - since <= LONGEST:
        wrong = "Give a range of at most 92 days that ends after it begins."
        raise Invalid("The range cannot be looked at.", errors={"since": wrong})
    compares = rule.terms.condition is not Condition.MISSING
    preview = Preview(since=since, until=until, value=rule.terms.value if compares else None)
    deadline = time.monotonic() + MOST_SECONDS
    rows = Chassis.objects.visible_to(person).order_by("name")
    if rule.scope.kind == "chassis":
        rows = rows.filter(pk=rule.scope.id)
    for pk, name in rows.values_list("pk", "name"):
        checks = _checks(pk, rule, since, until)
        room = max(0, MOST_SERIES - preview.series) if time.monotonic() < deadline else 0
        preview.left_out += len(checks[room:])
        if checks[:room]:
            _play(preview, pk, name, checks[:room], rule)
    preview.episodes.sort(key=lambda one: -one.fired_at)
    del preview.episodes[MOST_EPISODES:]
    preview.lines.sort(key=lambda one: -sum(episode.seconds for episode in one.episodes))
    del preview.lines[LANES:]
    return preview


def _checks(chassis: int, rule: RuleInForce, since: float, until: float) -> list[Check]:
    entries = known_series(chassis, since=since, until=until)
    # The store may name the rates beside the counters; they are made of the counters here, as they are live.
    entries = [entry for entry in entries if not entry["key"].endswith(RATE)]
    plan = plan_checks(book=Book(rules=(rule,)), facts=facts_of(chassis), entries=entries)
    return [check for check, place in zip(plan.checks, plan.places, strict=True) if place != NO_PLACE]


def _play(preview: Preview, chassis: int, name: str, checks: Sequence[Check], rule: RuleInForce) -> None:
    keys = [check.key for check in checks]
    extract = read(chassis, keys, since=preview.since, until=preview.until, points=POINTS)
    places = {entry["key"]: place for place, entry in enumerate(extract.series)}
    checks = [check for check in checks if check.key in places]
    if not checks or not len(extract.at):
        return
    preview.step = max(preview.step, extract.step)
    preview.series += len(checks)
    preview.gaps += len(extract.gaps)
    engine = Engine(checks, [places[check.key] for check in checks])
    met, clearing = _judged(extract, rule)
    if rule.terms.condition is Condition.MISSING:
        met[_not_yet(extract, chassis, preview.since)] = 0.0
    unread = _unread(extract)
    found: dict[str, list[Episode]] = {}
    begun: dict[str, Change] = {}
    for row, at in enumerate(extract.at):
        if unread[row]:
            continue  # who reads nothing judges nothing
        for change in engine.step(float(at), met[:, row], clearing=clearing[:, row]):
            if change.turn == "firing":
                begun[change.check.key] = change
            elif change.turn == "resolved":
                fired = begun.pop(change.check.key)
                found.setdefault(change.check.key, []).append(_episode(chassis, name, fired, float(at), change.worst))
    last = {identity[1]: state.worst for identity, state in engine.states().items()}
    for key, fired in begun.items():
        found.setdefault(key, []).append(_episode(chassis, name, fired, None, last.get(key, fired.worst)))
    for check in checks:
        episodes = found.get(check.key, [])
        preview.fired += len(episodes)
        preview.seconds += sum(min(one.until or preview.until, preview.until) - one.fired_at for one in episodes)
        preview.episodes += episodes
        if episodes or len(checks) <= LANES:
            preview.lines.append(_line(extract, places[check.key], check, name, episodes))


def _judged(extract: Extract, rule: RuleInForce) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return by which values of each bucket the rule is met, and by which it clears: [series, rows].

    What has to hold for a while has to hold in all of a bucket; what fires at once, at any moment of it.
    """
    least, most = extract.low.astype(np.float64), extract.high.astype(np.float64)
    mean = extract.mean.astype(np.float64)
    if rule.terms.condition is Condition.ABOVE:
        return (least if rule.terms.hold > 0 else most), least
    if rule.terms.condition is Condition.BELOW:
        return (most if rule.terms.hold > 0 else least), most
    if rule.terms.condition is Condition.EQUALS:
        # Equal all the time, or, where it fires at once, at any time that the bucket still tells of.
        steady = np.where(least == most, least, np.nan)
        mixed = np.where((least == rule.terms.value) | (most == rule.terms.value), rule.terms.value, mean)
        return (np.where(np.isnan(steady), mean, steady) if rule.terms.hold > 0 else mixed), mean
    if rule.terms.condition is Condition.DIFFERS:
        inside = (least <= rule.terms.value) & (rule.terms.value <= most)
        differs = np.where(inside, rule.terms.value, least)
        touched = np.where(least != rule.terms.value, least, most)
        return (differs if rule.terms.hold > 0 else touched), differs
    return least, least


def _unread(extract: Extract) -> NDArray[np.bool_]:
    """Tell in which buckets nothing at all was read of the chassis: [rows]."""
    begins, ends = extract.at, extract.at + extract.step
    unread = np.zeros(len(extract.at), dtype=np.bool_)
    for gap in extract.gaps:
        unread |= (begins >= gap.since) & (ends <= gap.until)
    return unread


def _not_yet(extract: Extract, chassis: int, since: float) -> NDArray[np.bool_]:
    """Tell in which buckets a series was not measured yet: [series, rows]. What never was before is not missing."""
    before = {entry["key"] for entry in known_series(chassis, since=since - LONGEST, until=since)}
    here = ~np.isnan(extract.mean)
    is_new = np.array([entry["key"] not in before for entry in extract.series], dtype=np.bool_)
    begun = np.logical_or.accumulate(here, axis=1)
    return np.logical_and((is_new & here.any(axis=1))[:, np.newaxis], np.logical_not(begun))


def _episode(chassis: int, name: str, fired: Change, until: float | None, worst: float) -> Episode:
    check = fired.check
    return Episode(
        chassis_id=chassis, chassis_name=name, series_key=check.key, subject_name=check.subject.name,
        quantity=check.quantity, unit=check.unit, since=fired.since, fired_at=fired.at, until=until,
        worst=None if np.isnan(worst) else float(worst),
    )  # fmt: skip


def _line(extract: Extract, place: int, check: Check, name: str, episodes: list[Episode]) -> Line:
    """Return a series in few points: of each the least and the most."""
    rows = len(extract.at)
    edges = np.unique(np.linspace(0, rows, min(rows, CHART_POINTS) + 1).astype(int))[:-1]
    low, high = extract.low[place].astype(np.float64), extract.high[place].astype(np.float64)
    return Line(
        series_key=check.key,
        subject_name=check.subject.name,
        chassis_name=name,
        unit=check.unit,
        at=[float(extract.at[edge]) for edge in edges],
        low=_plain(np.fmin.reduceat(low, edges)),
        high=_plain(np.fmax.reduceat(high, edges)),
        episodes=episodes,
    )


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
