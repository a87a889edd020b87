"""The engine that judges all checks at once, against a plain state machine that judges one sample after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.alerts.engine import FIRING, NO_COLUMN, PENDING, AlertEngine, CheckState, CheckTransition
from telemetry.alerts.rules import TRANSITIONS, AlertSubject, Check, Condition, Terms

SUBJECT = AlertSubject(object="device", chassis=1, device=1)
# Few values, so that limits are hit exactly.
VALUES = st.sampled_from([math.nan, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
LIMITS = st.sampled_from([-1.0, 0.0, 1.0, 2.0])
MARGINS = st.sampled_from([None, 0.0, 0.5, 1.0])


def check(terms: Terms, key: str = "device/1/x") -> Check:
    return Check(cause="rule-1", key=key, terms=terms, severity="Warning", subject=SUBJECT)


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    """Any terms that a rule may have."""
    condition, value = draw(st.sampled_from(list(Condition))), draw(LIMITS)
    margin = draw(MARGINS)
    clear = None
    if margin is not None and condition in {Condition.ABOVE, Condition.BELOW}:
        clear = value - margin if condition is Condition.ABOVE else value + margin
    return Terms(condition=condition, value=value, clear=clear, hold=draw(st.sampled_from([0.0, 1.0, 2.0, 5.0])))


class Plain:
    """One check, one sample at a time, as one would tell it to a child."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.state = "quiet"
        self.since = 0.0
        self.last = math.nan

    def met(self, value: float) -> bool:
        limit = self.terms.value
        match self.terms.condition:
            case Condition.CHANGES:
                return abs(value - self.last) > limit
            case Condition.RISES:
                return value - self.last > limit
            case Condition.FALLS:
                return self.last - value > limit
            case Condition.ABOVE:
                return value > limit
            case Condition.BELOW:
                return value < limit
            case Condition.EQUALS:
                return value == limit
            case Condition.DIFFERS:
                return not math.isnan(value) and value != limit
        return math.isnan(value)

    def says_nothing(self, value: float) -> bool:
        return math.isnan(value) and self.terms.condition is not Condition.MISSING

    def cleared(self, value: float) -> bool:
        if self.says_nothing(value):
            return False
        match self.terms.condition:
            case Condition.ABOVE:
                return value <= self.terms.ends_at
            case Condition.BELOW:
                return value >= self.terms.ends_at
        return not self.met(value)

    def step(self, at: float, value: float) -> str:
        """Return what it turns to, '' for nothing."""
        self.since = min(self.since, at)
        if self.terms.condition in TRANSITIONS:
            moved = self.met(value)
            self.last = self.last if math.isnan(value) else value
            if moved:
                self.since, before, self.state = at, self.state, "firing"
                return "" if before == "firing" else "firing"
            if self.state == "quiet" or math.isnan(value) or at - self.since < self.terms.hold:
                return ""
            self.state = "quiet"
            return "resolved"
        if self.state == "quiet":
            if not self.met(value):
                return ""
            self.since = at
            self.state = "firing" if self.terms.hold == 0 else "pending"
            return self.state
        if self.state == "pending":
            if self.met(value):
                if at - self.since >= self.terms.hold:
                    self.state = "firing"
                    return "firing"
                return ""
            if self.says_nothing(value):
                return ""
            self.state = "quiet"
            return "gone"
        if self.cleared(value):
            self.state = "quiet"
            return "resolved"
        return ""


@given(
    st.lists(terms(), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0]), st.lists(VALUES, min_size=8, max_size=8)), max_size=40
    ),
)
def test_all_at_once_is_each_by_itself(rules: list[Terms], samples: list[tuple[float, list[float]]]) -> None:
    engine = AlertEngine([check(one, f"key-{n}") for n, one in enumerate(rules)], list(range(len(rules))))
    plain = [Plain(one) for one in rules]
    at = 1000.0
    for elapsed, values in samples:  # our clock may stand still, and be set back
        at += elapsed
        changes = {change.check.key: change for change in engine.step(at, np.array(values))}
        for place, one in enumerate(plain):
            turn = one.step(at, values[place])
            change = changes.pop(f"key-{place}", None)
            assert (change.kind if change else "") == turn
            if change is not None:
                assert (change.at, change.since) == (at, one.since)
                assert change.since <= change.at
        assert not changes


@given(
    terms(), st.lists(VALUES, max_size=30), st.integers(min_value=0, max_value=30)
)  # fmt: skip
def test_an_engine_that_goes_on_from_states_turns_as_one_that_never_stopped(
    rule: Terms, values: list[float], break_at: int
) -> None:
    whole, before = (AlertEngine([check(rule)], [0]) for _ in range(2))
    told: list[tuple[str, float]] = []
    kept: list[tuple[str, float]] = []
    for second, value in enumerate(values):
        told += [(one.kind, one.since) for one in whole.step(float(second), np.array([value]))]
        if second == break_at:
            after = AlertEngine([check(rule)], [0])
            after.restore(before.states())
            after.follow(before)
            before = after
        kept += [(one.kind, one.since) for one in before.step(float(second), np.array([value]))]
    assert told == kept


def play(rule: Terms, values: list[float], place: int = 0) -> Iterator[CheckTransition]:
    engine = AlertEngine([check(rule)], [place])
    for second, value in enumerate(values):
        yield from engine.step(float(second), np.array([value]))


HOT = Terms(condition=Condition.ABOVE, value=80.0, clear=75.0, hold=2.0)


def test_a_value_that_trembles_at_its_limit_rings_once() -> None:
    changes = list(play(HOT, [81, 81, 81, 79, 81, 78, 82, 75, 70]))
    assert [(one.kind, one.at) for one in changes] == [("pending", 0), ("firing", 2), ("resolved", 7)]
    assert changes[-1].worst == 82


def test_what_does_not_hold_is_gone_and_begins_anew() -> None:
    turns = [(one.kind, one.at, one.since) for one in play(HOT, [81, 79, 81, 81, 81])]
    assert turns == [("pending", 0, 0), ("gone", 1, 0), ("pending", 2, 2), ("firing", 4, 2)]


def test_no_value_leaves_everything_as_it_is() -> None:
    nan = math.nan
    turns = [(one.kind, one.at) for one in play(HOT, [81, nan, nan, nan, 81, nan, 70, nan])]
    assert turns == [("pending", 0), ("firing", 4), ("resolved", 6)]
    assert list(play(HOT, [nan] * 10)) == []


def test_what_is_missing_rings_also_where_the_series_is_not_there_at_all() -> None:
    rule = Terms(condition=Condition.MISSING, hold=1.0)
    assert [one.kind for one in play(rule, [1.0, math.nan, math.nan, 1.0])] == ["pending", "firing", "resolved"]
    assert [one.kind for one in play(rule, [1.0, 1.0, 1.0], NO_COLUMN)] == ["pending", "firing"]


@pytest.mark.parametrize(
    ("condition", "values", "worst"),
    [
        (Condition.ABOVE, [90.0, 95.0, 91.0], 95.0),
        (Condition.BELOW, [70.0, 60.0, 65.0], 60.0),
        (Condition.DIFFERS, [3.0, 1.0, 2.0], 3.0),
    ],
)
def test_the_value_furthest_off_is_kept(condition: Condition, values: list[float], worst: float) -> None:
    engine = AlertEngine([check(Terms(condition=condition, value=80.0))], [0])
    for second, value in enumerate(values):
        engine.step(float(second), np.array([value]))
    assert engine.states()[check(HOT).identity].worst == worst


def test_a_hold_goes_on_from_when_it_began_elsewhere() -> None:
    engine = AlertEngine([check(HOT)], [0])
    engine.restore({check(HOT).identity: CheckState(PENDING, since=-100.0)})
    assert [one.kind for one in engine.step(0.0, np.array([81.0]))] == ["firing"]
    engine.restore({check(HOT).identity: CheckState(FIRING, since=-100.0)})
    assert engine.step(1.0, np.array([81.0])) == []
    assert [one.kind for one in engine.step(2.0, np.array([70.0]))] == ["resolved"]


def test_a_clock_that_is_set_back_does_not_keep_a_hold_from_ending() -> None:
    engine = AlertEngine([check(HOT)], [0])
    assert [one.kind for one in engine.step(5000.0, np.array([81.0]))] == ["pending"]
    assert engine.step(100.0, np.array([81.0])) == []
    assert [one.kind for one in engine.step(102.0, np.array([81.0]))] == ["firing"]


def test_an_engine_without_checks_takes_anything() -> None:
    assert AlertEngine([], []).step(0.0, np.array([1.0])) == []
    assert AlertEngine([], []).step(0.0, np.array([])) == []


def moving(condition: Condition, *, by: float = 0.0, steady: float = 0.0) -> AlertEngine:
    return AlertEngine([check(Terms(condition=condition, value=by, hold=steady))], [0])


def turned(engine: AlertEngine, *values: float, at: float = 0.0) -> list[str]:
    """Return what each value, a second apart, turns the only check to."""
    found: list[str] = []
    for second, value in enumerate(values):
        changes = engine.step(at + second, np.array([value]))
        found.append(changes[0].kind if changes else "")
    return found


@pytest.mark.parametrize(
    ("condition", "by", "found"),
    [
        (Condition.CHANGES, 0.0, ["", "", "firing", "resolved", "firing"]),
        (Condition.FALLS, 0.0, ["", "", "firing", "resolved", ""]),
        (Condition.RISES, 0.0, ["", "", "", "", "firing"]),
        (Condition.FALLS, 8.0, ["", "", "", "", ""]),
    ],
)
def test_a_step_from_one_reading_to_the_next_fires_at_once(condition: Condition, by: float, found: list[str]) -> None:
    assert turned(moving(condition, by=by), 16.0, 16.0, 8.0, math.nan if by else 8.0, 16.0) == found


def test_an_alert_of_changes_goes_on_until_there_is_none_for_as_long_as_it_says() -> None:
    engine = moving(Condition.CHANGES, steady=3.0)
    assert turned(engine, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0) == ["", "firing", "", "", "", ""]
    # No value says nothing; a clock that was set back prolongs it by no more than it has.
    assert turned(engine, math.nan, 3.0, at=6.0) == ["", "resolved"]


def test_a_change_while_checks_are_planned_anew_is_none_the_less_one() -> None:
    before, after = moving(Condition.CHANGES), moving(Condition.CHANGES)
    turned(before, 16.0)
    after.follow(before)
    assert turned(after, 8.0, at=1.0) == ["firing"]
    assert turned(moving(Condition.CHANGES), 8.0, at=1.0) == [""]  # of a worker that has just begun


def test_the_words_of_a_change_say_by_how_much_and_until_when() -> None:
    assert Terms(condition=Condition.FALLS, value=8, hold=30).words("lanes") == (
        "falls by more than 8 lanes, until steady for 30 s"
    )
    assert Terms(condition=Condition.CHANGES).words("state") == "changes"
