"""The state machine of alerts over all checks of a chassis at once: quiet, pending, firing, and back. Pure.

    quiet    -> pending  the condition is met (firing at once where nothing has to be held)
    pending  -> firing   it was met all the time for as long as it has to hold
    pending  -> quiet    it is met no more ('gone')
    firing   -> quiet    the value came back to where it clears ('resolved')

A value that is none leaves each as it is. What somebody acknowledged is firing here: that is between people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from telemetry.alerts.terms import Check, Condition

Values = NDArray[np.float64]
QUIET, PENDING, FIRING = 0, 1, 2
Turn = Literal["pending", "gone", "firing", "resolved"]
NO_PLACE: Final = -1  # of a check whose series is not there: it has no value


@dataclass(frozen=True)
class State:
    """How it stands with one check: since when (Unix s), and the value that was furthest off."""

    state: int = QUIET
    since: float = 0.0
    worst: float = float("nan")


@dataclass(frozen=True)
class Change:
    """A check that turned at `at` (Unix s); `since` is when its condition was first met."""

    check: Check
    turn: Turn
    at: float
    since: float
    value: float
    worst: float
    note: str = ""  # what was said of it besides


class Engine:
    """All checks of one chassis; `places[i]` is where the value of `checks[i]` stands in what `step` is given."""

    def __init__(self, checks: Sequence[Check], places: Sequence[int]) -> None:
        self.checks = tuple(checks)
        count = len(self.checks)
        self._places = np.array(places, dtype=np.intp).reshape(count)
        self._absent = self._places == NO_PLACE
        terms = [check.terms for check in self.checks]
        self._value = np.array([one.value for one in terms], dtype=np.float64)
        self._clear = np.array([one.ends_at for one in terms], dtype=np.float64)
        self._hold = np.array([one.hold for one in terms], dtype=np.float64)
        condition = np.array([one.condition for one in terms], dtype=object)
        # Above and below are one comparison, with the sign turned.
        self._sign = np.where(condition == Condition.BELOW, -1.0, 1.0)
        self._equals = condition == Condition.EQUALS
        self._differs = condition == Condition.DIFFERS
        self._missing = condition == Condition.MISSING
        self._odd = bool((self._equals | self._differs | self._missing).any())
        self._state = np.zeros(count, dtype=np.int8)
        self._since = np.zeros(count, dtype=np.float64)
        self._worst = np.full(count, np.nan)
        self._is_active = False  # whether any of them is not quiet

    def restore(self, states: dict[tuple[str, str], State]) -> None:
        """Go on from states by the identity of their checks; those of others are left out."""
        for index, check in enumerate(self.checks):
            kept = states.get(check.identity)
            if kept is not None:
                self._state[index], self._since[index], self._worst[index] = kept.state, kept.since, kept.worst
        self._is_active = bool(self._state.any())

    def states(self) -> dict[tuple[str, str], State]:
        """Return the states of the checks that are not quiet."""
        return {
            self.checks[index].identity: State(
                int(self._state[index]), float(self._since[index]), float(self._worst[index])
            )
            for index in np.flatnonzero(self._state)
        }

    def step(self, at: float, values: Values, *, clearing: Values | None = None) -> list[Change]:
        """Take the values of one moment (Unix s), return what turned.

        `clearing` are the values by which it is told whether a condition has ended, where they are others: of a bucket
        of readings its least and largest.
        """
        if not self.checks:
            return []
        met, over = self._judge(values, clearing)
        if not self._is_active and not met.any():
            return []  # nearly always
        # A clock that was set back must not keep a hold from ever ending.
        np.minimum(self._since, at, out=self._since)
        state = self._state
        begins = met & (state == QUIET)
        self._since[begins] = at
        held = met & (at - self._since >= self._hold)
        fires = (state == PENDING) & held | begins & (self._hold <= 0)
        pends = begins & ~fires
        gone = (state == PENDING) & self._ended_early(values, clearing) & ~fires
        resolves = (state == FIRING) & over
        seen = self._taken(values)
        # Of a condition without a direction, the value at which it fired is as bad as any.
        first = begins | ((state != QUIET) & np.isnan(self._worst))
        worse = first | ((state != QUIET) & (seen * self._sign > self._worst * self._sign) & ~self._undirected())
        self._worst = np.where(worse, seen, self._worst)
        turned = fires | pends | gone | resolves
        if not turned.any():
            return []
        state[pends], state[fires] = PENDING, FIRING
        state[gone | resolves] = QUIET
        turns = np.select([fires, pends, gone], ["firing", "pending", "gone"], "resolved")
        changes = [
            Change(
                check=self.checks[index],
                turn=cast("Turn", str(turns[index])),
                at=at,
                since=float(self._since[index]),
                value=float(seen[index]),
                worst=float(self._worst[index]),
            )
            for index in np.flatnonzero(turned)
        ]
        self._worst[gone | resolves] = np.nan
        self._is_active = bool(state.any())
        return changes

    def _taken(self, values: Values) -> Values:
        if len(values) == 0:
            return np.full(len(self.checks), np.nan)
        seen: Values = values[self._places]
        return np.where(self._absent, np.nan, seen) if self._absent.any() else seen

    def _undirected(self) -> NDArray[np.bool_]:
        odd: NDArray[np.bool_] = self._equals | self._differs | self._missing
        return odd

    def _judge(self, values: Values, clearing: Values | None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which conditions are met, and which have come back to where they clear; neither for no value."""
        seen = self._taken(values)
        back = seen if clearing is None else self._taken(clearing)
        met = self._sign * seen > self._sign * self._value
        over = self._sign * back <= self._sign * self._clear
        if self._odd:
            there, back_there = ~np.isnan(seen), ~np.isnan(back)
            met = np.where(self._equals, seen == self._value, met)
            over = np.where(self._equals, back_there & (back != self._value), over)
            met = np.where(self._differs, there & (seen != self._value), met)
            over = np.where(self._differs, back == self._value, over)
            met = np.where(self._missing, ~there, met)
            over = np.where(self._missing, back_there, over)
        return met, over

    def _ended_early(self, values: Values, clearing: Values | None) -> NDArray[np.bool_]:
        """Return which conditions are not met: what has not fired yet ends at its value, not where it clears."""
        seen = self._taken(values if clearing is None else clearing)
        back: NDArray[np.bool_] = self._sign * seen <= self._sign * self._value
        if self._odd:
            there = ~np.isnan(seen)
            back = np.where(self._equals, there & (seen != self._value), back)
            back = np.where(self._differs, seen == self._value, back)
            back = np.where(self._missing, there, back)
        return back
