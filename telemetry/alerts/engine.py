"""The state machine that evaluates checks. Pure.

    quiet    -> pending  the condition is met (directly to firing where the hold is 0)
    pending  -> firing   it was met continuously for the hold
    pending  -> quiet    it is no longer met ('gone')
    firing   -> quiet    the value returned to where the rule clears ('resolved')

A transition (the value changes, rises or falls from one reading to the next) fires at once, and resolves once there was
none for the hold.

A missing value (NaN) changes no state. Acknowledged alerts are firing here: the engine knows no
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from telemetry.alerts.rules import TRANSITIONS, Check, Condition

Values = NDArray[np.float64]
QUIET, PENDING, FIRING = 0, 1, 2
Transition = Literal["pending", "gone", "firing", "resolved"]
NO_COLUMN: Final = -1  # index of a check whose series is missing: it has no value


@dataclass(frozen=True)
class CheckState:
    state: int = QUIET
    since: float = 0.0
    worst: float = float("nan")


@dataclass(frozen=True)
class CheckTransition:
    """A transition of a check at `at` (Unix s); `since` is when its condition was first met."""

    check: Check
    kind: Transition
    at: float
    since: float
    value: float
    worst: float
    note: str = ""  # an additional explanation


class AlertEngine:
    """Evaluates all checks of one chassis; `places[i]` is the index of the value of `checks[i]` in a step's input."""

    def __init__(self, checks: Sequence[Check], places: Sequence[int]) -> None:
        self.checks = tuple(checks)
        count = len(self.checks)
        self._places = np.array(places, dtype=np.intp).reshape(count)
        self._absent = self._places == NO_COLUMN
        terms = [check.terms for check in self.checks]
        self._value = np.array([one.value for one in terms], dtype=np.float64)
        self._clear = np.array([one.ends_at for one in terms], dtype=np.float64)
        condition = np.array([one.condition for one in terms], dtype=object)
        self._moves = np.array([one.condition in TRANSITIONS for one in terms], dtype=np.bool_)
        self._has_moves = bool(self._moves.any())
        self._rises, self._falls = condition == Condition.RISES, condition == Condition.FALLS
        self._last = np.full(count, np.nan)  # the previous value, of transitions
        holds = np.array([one.hold for one in terms], dtype=np.float64)
        self._hold, self._steady = np.where(self._moves, 0.0, holds), np.where(self._moves, holds, 0.0)
        # Below is the comparison above with the sign reversed.
        self._sign = np.where(condition == Condition.BELOW, -1.0, 1.0)
        self._equals = condition == Condition.EQUALS
        self._differs = condition == Condition.DIFFERS
        self._missing = condition == Condition.MISSING
        self._undirected = self._equals | self._differs | self._missing | self._moves
        self._has_undirected = bool(self._undirected.any())
        self._state = np.zeros(count, dtype=np.int8)
        self._since = np.zeros(count, dtype=np.float64)
        self._worst = np.full(count, np.nan)
        self._is_active = False  # whether any of them is not quiet

    def restore(self, states: dict[tuple[str, str], CheckState]) -> None:
        """Continue from states by the identity of their checks; states of other checks are ignored."""
        for index, check in enumerate(self.checks):
            kept = states.get(check.identity)
            if kept is not None:
                self._state[index], self._since[index], self._worst[index] = kept.state, kept.since, kept.worst
        self._is_active = bool(self._state.any())

    def follow(self, earlier: AlertEngine) -> None:
        """Compare the next values with the last ones of an earlier engine, so that no transition in between is lost."""
        if self._has_moves and earlier._has_moves:
            known = dict(zip((check.identity for check in earlier.checks), earlier._last, strict=True))
            self._last = np.array([known.get(check.identity, np.nan) for check in self.checks], dtype=np.float64)

    def states(self) -> dict[tuple[str, str], CheckState]:
        """Return the states of the checks that are not quiet."""
        return {
            self.checks[index].identity: CheckState(
                int(self._state[index]), float(self._since[index]), float(self._worst[index])
            )
            for index in np.flatnonzero(self._state)
        }

    def step(self, at: float, values: Values, *, clearing: Values | None = None) -> list[CheckTransition]:
        """Evaluate the values of one moment (Unix s); returns the transitions.

        `clearing` are the values that decide whether a condition has ended, where they differ: of a bucket of readings
        its minimum and maximum.
        """
        if not self.checks:
            return []
        seen = self._check_values(values)
        met = self._met(seen)
        if self._has_moves:
            self._last = np.where(self._moves & ~np.isnan(seen), seen, self._last)
        if not self._is_active and not met.any():
            return []  # the usual case
        back = seen if clearing is None else self._check_values(clearing)
        # After the clock was set back, a hold must still end.
        np.minimum(self._since, at, out=self._since)
        state = self._state
        begins = met & (state == QUIET)
        self._since[begins] = at
        held = met & (at - self._since >= self._hold)
        fires = (state == PENDING) & held | begins & (self._hold <= 0)
        pends = begins & ~fires
        # A pending check ends at its limit, not where it clears.
        gone = (state == PENDING) & self._ended(back, self._value) & ~fires
        resolves = (state == FIRING) & self._ended(back, self._clear)
        if self._has_moves:
            self._since[self._moves & met] = at
            resolves &= ~self._moves | (~met & (at - self._since >= self._steady))
        # Without a direction, the value at which a condition fired is its worst.
        first = begins | ((state != QUIET) & np.isnan(self._worst))
        worse = first | ((state != QUIET) & (seen * self._sign > self._worst * self._sign) & ~self._undirected)
        self._worst = np.where(worse, seen, self._worst)
        turned = fires | pends | gone | resolves
        if not turned.any():
            return []
        state[pends], state[fires] = PENDING, FIRING
        state[gone | resolves] = QUIET
        turns = np.select([fires, pends, gone], ["firing", "pending", "gone"], "resolved")
        changes = [
            CheckTransition(
                check=self.checks[index],
                kind=cast("Transition", str(turns[index])),
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

    def _check_values(self, values: Values) -> Values:
        if len(values) == 0:
            return np.full(len(self.checks), np.nan)
        seen: Values = values[self._places]
        return np.where(self._absent, np.nan, seen) if self._absent.any() else seen

    def _met(self, seen: Values) -> NDArray[np.bool_]:
        """Return which conditions are met: by a missing value, only those on missing values."""
        met: NDArray[np.bool_] = self._sign * seen > self._sign * self._value
        if self._has_undirected:
            present = ~np.isnan(seen)
            met = np.where(self._equals, seen == self._value, met)
            met = np.where(self._differs, present & (seen != self._value), met)
            met = np.where(self._missing, ~present, met)
        if self._has_moves:
            moved = seen - self._last
            moved = np.where(self._rises, moved, np.where(self._falls, -moved, np.abs(moved)))
            met = np.where(self._moves, moved > self._value, met)
        return met

    def _ended(self, seen: Values, limits: Values) -> NDArray[np.bool_]:
        """Return which conditions have ended, those with a direction at these limits; none by a missing value."""
        ended: NDArray[np.bool_] = self._sign * seen <= self._sign * limits
        if self._has_undirected:
            present = ~np.isnan(seen)
            ended = np.where(self._equals, present & (seen != self._value), ended)
            ended = np.where(self._differs, seen == self._value, ended)
            ended = np.where(self._missing | self._moves, present, ended)
        return ended
