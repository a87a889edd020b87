"""Scopes, conditions, built-in rules, and the state machine that evaluates them. Pure.

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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

SCOPES: Final = (
    ("all", "Everything"),
    ("chassis", "A chassis"),
    ("drawer", "A drawer"),
    ("device_kind", "A kind of device"),
    ("device", "A device"),
    ("port", "A port"),
    ("tenant", "What a tenant owns or leases"),
)


@dataclass(frozen=True, kw_only=True)
class AlertSubject:
    """The subject of a series and its location: ids of rows, None where there is none.

    A port behind a slot names the device in the slot too: the scope of a device includes its link.
    """

    object: str  # 'chassis', 'drawer', 'device', 'port' or 'site'
    chassis: int | None  # None for the site
    drawer: int | None = None
    device: int | None = None
    device_kind: str = ""
    port: int | None = None
    host_port: int | None = None
    tenant: int | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class AlertScope:
    """A part of the lab; `id` is that of its row, `device_kind` the kind of device."""

    kind: str = "all"
    id: int | None = None
    device_kind: str = ""

    def includes(self, subject: AlertSubject) -> bool:
        if self.kind == "all":
            return True
        if self.kind == "device_kind":
            return self.device_kind != "" and subject.device_kind == self.device_kind
        found: int | None = getattr(subject, self.kind)
        return self.id is not None and found == self.id


class Condition(StrEnum):
    ABOVE = "above"
    BELOW = "below"
    EQUALS = "equals"
    DIFFERS = "differs"
    MISSING = "missing"
    CHANGES = "changes"
    RISES = "rises"
    FALLS = "falls"


# From one reading to the next, by more than `value`.
TRANSITIONS: Final = frozenset({Condition.CHANGES, Condition.RISES, Condition.FALLS})
# Decimals that match the precision of readings, the same as on the other pages.
DECIMALS: Final = {"°C": 1, "%": 0, "W": 0, "rpm": 0, "V": 2, "A": 1, "kWh": 2, "lanes": 0, "Gb/s": 0, "GB": 1, "s": 0}
VERBS: Final = {Condition.EQUALS: "equal to", Condition.DIFFERS: "other than"}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """A condition on a value in the unit of its series; `clear` is the value at which it ends, `hold` is in s.

    Above: begins over `value`, ends at or under `clear`. Below: the reverse. A missing value (NaN) counts only for
    Condition.MISSING. Of TRANSITIONS, `hold` is how long there must be none before the alert resolves.
    """

    condition: Condition
    value: float = 0.0
    clear: float | None = None
    hold: float = 0.0

    @property
    def ends_at(self) -> float:
        return self.value if self.clear is None else self.clear

    def words(self, unit: str = "") -> str:
        """Return the terms for display: 'above 85 °C for 30 s'."""
        text = "no value"
        if self.condition in TRANSITIONS:
            by = f" by more than {limit_label(self.value, '' if unit == 'state' else unit)}" if self.value else ""
            return f"{self.condition.value}{by}" + (f", until steady for {duration_label(self.hold)}" * bool(self.hold))
        if self.condition is not Condition.MISSING:
            text = f"{VERBS.get(self.condition, self.condition.value)} {limit_label(self.value, unit)}"
        return f"{text} for {duration_label(self.hold)}" if self.hold else text


@dataclass(frozen=True, kw_only=True)
class Check:
    """Terms on one series of one chassis; it may have one open alert at a time, identified by `cause` and `key`."""

    cause: str  # 'rule-7', or the name of a built-in rule
    key: str  # of the series in the catalogue; '' for the chassis as a whole
    terms: Terms
    severity: str
    subject: AlertSubject
    title: str = ""
    unit: str = ""
    quantity: str = ""
    rule: int | None = None
    threshold: str = ""  # in words, where the terms do not say it

    @property
    def identity(self) -> tuple[str, str]:
        """Cause and key, unique within its chassis."""
        return self.cause, self.key


@dataclass(frozen=True)
class BuiltInRule:
    """A rule that is part of the site: it can be switched on and off, not edited."""

    name: str
    words: str
    explanation: str
    severity: str
    hold: float
    is_on: bool = True

    @property
    def hold_words(self) -> str:
        """For how long its condition has to be met, in words; '' where it fires at once."""
        return duration_label(self.hold) if self.hold else ""


NOT_ANSWERING: Final = "not_answering"
DEVICE_MISSING: Final = "device_missing"
DRIFT: Final = "drift"
# An alert ends this share of the limit before the limit: a reading that flaps there fires once (hysteresis).
CLEAR_MARGIN: Final = 0.02
BUILT_IN_RULES: Final = {
    one.name: one
    for one in (
        BuiltInRule(
            NOT_ANSWERING,
            "Chassis does not answer",
            "A chassis could not be polled. Until it can, its other alerts notify nobody.",
            "Critical",
            10.0,
        ),
        BuiltInRule("sensor_critical", "Sensor beyond its critical limit",
                "A sensor is beyond the critical or fatal threshold that its chassis reports.",
                "Critical", 3.0),
        BuiltInRule("sensor_caution", "Sensor beyond its caution limit",
                "A sensor is beyond the caution threshold that its chassis reports. It notifies nobody"
                " while the same sensor is beyond its critical limit.", "Warning", 10.0),
        BuiltInRule("fan_failed", "Fan failed", "The chassis reports that a fan is not healthy.", "Critical", 0.0),
        # A verdict of down is given after 15 s. With as much again, a host that restarts its links is not reported.
        BuiltInRule("link_down", "Link down or failing",
                "The verdict on a link is down or failing: it should be up and is not, or requests fail.",
                "Critical", 30.0),
        BuiltInRule("link_degraded", "Link degraded",
                "The verdict on a link is degraded: fewer lanes or a lower speed than both ends support, or too many"
                " errors. It notifies nobody while the link is down or failing.", "Warning", 30.0),
        # Two walks: a device that resets itself is absent from one.
        BuiltInRule(DEVICE_MISSING, "Device missing", "A device that was there is no longer in its chassis.",
                "Critical", 30.0),
        # Whoever changes a lab by hand and accepts it at once needs no message.
        BuiltInRule(DRIFT, "Drifted from the approved state",
                "A device, mode, cable or port is not as approved.", "Warning", 120.0),
        # Readings are written each minute; a database that is busy for another one loses nothing.
        BuiltInRule("store_behind", "Readings are stored late",
                "Readings wait for more than two minutes to be stored; they are kept in memory, which is limited.",
                "Warning", 0.0),
        BuiltInRule("disk_filling", "Disk nearly full",
                "The disk with the site's data has little space left: when it is full, readings are dropped.",
                "Critical", 0.0),
    )
}  # fmt: skip
# Rules about the verdict on a link.
LINK_RULES: Final = frozenset({"link_down", "link_degraded"})
# Rules about conditions that are not measured: see telemetry.alerts.conditions.
CONDITION_RULES: Final = LINK_RULES | {DEVICE_MISSING, DRIFT, "store_behind", "disk_filling"}


def rule_cause(pk: int) -> str:
    """Return the cause of alerts of an administrators' rule."""
    return f"rule-{pk}"


def value_label(value: float | None, unit: str) -> str:
    """Return a value with its unit for display."""
    if value is None or math.isnan(value):
        return "no value"
    if unit == "state":
        names = ("no link", "down", "starting", "training", "up")
        return names[int(value)] if value in range(len(names)) else f"{value:g}"
    if unit == "B/s":
        return f"{value / 1e9:.3g} GB/s"
    if unit in DECIMALS and abs(value) < 1e9:
        return f"{value:,.{DECIMALS[unit]}f} {unit}"
    return f"{value:.5g} {unit}".strip()


def limit_label(value: float, unit: str) -> str:
    """Return a limit for display, as it was entered."""
    return f"{value:.12g} {unit}".strip() if unit not in {"state", "B/s"} else value_label(value, unit)


def duration_label(seconds: float) -> str:
    """Return a duration for display: '30 s', '5 min', '1 h 30 min'."""
    whole = round(seconds)
    if whole < 120:
        return f"{seconds:.3g} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


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
