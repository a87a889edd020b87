"""Scopes, conditions, and built-in rules. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.utils.translation import gettext_lazy

from core.language import _, gettext_noop, values_in

SCOPES: Final = (
    ("all", gettext_lazy("Everything")),
    ("chassis", gettext_lazy("A chassis")),
    ("drawer", gettext_lazy("A drawer")),
    ("device_kind", gettext_lazy("A kind of device")),
    ("device", gettext_lazy("A device")),
    ("port", gettext_lazy("A port")),
    ("tenant", gettext_lazy("What a tenant owns or leases")),
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
LIMIT_WORDS: Final = {
    Condition.ABOVE: gettext_noop("above {limit}"),
    Condition.BELOW: gettext_noop("below {limit}"),
    Condition.EQUALS: gettext_noop("equal to {limit}"),
    Condition.DIFFERS: gettext_noop("other than {limit}"),
}
# Of TRANSITIONS: by anything, and by more than a value.
CHANGE_WORDS: Final = {
    Condition.CHANGES: (gettext_noop("changes"), gettext_noop("changes by more than {limit}")),
    Condition.RISES: (gettext_noop("rises"), gettext_noop("rises by more than {limit}")),
    Condition.FALLS: (gettext_noop("falls"), gettext_noop("falls by more than {limit}")),
}
STATE_WORDS: Final = (
    gettext_noop("no link"), gettext_noop("down"), gettext_noop("starting"), gettext_noop("training"),
    gettext_noop("up"),
)  # fmt: skip


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
        lasts = duration_label(self.hold)
        if self.condition in TRANSITIONS:
            plain, by = CHANGE_WORDS[self.condition]
            limit = limit_label(self.value, "" if unit == "state" else unit)
            change = _(by, limit=limit) if self.value else _(plain)
            return _("{change}, until steady for {duration}", change=change, duration=lasts) if self.hold else change
        if self.condition is Condition.MISSING:
            text = _("no value")
        else:
            text = _(LIMIT_WORDS[self.condition], limit=limit_label(self.value, unit))
        return _("{condition} for {duration}", condition=text, duration=lasts) if self.hold else text


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
            gettext_noop("Chassis does not answer"),
            gettext_noop("A chassis could not be polled. Until it can, its other alerts notify nobody."),
            "Critical",
            10.0,
        ),
        BuiltInRule(
            "sensor_critical",
            gettext_noop("Sensor beyond its critical limit"),
            gettext_noop("A sensor is beyond the critical or fatal threshold that its chassis reports."),
            "Critical",
            3.0,
        ),
        BuiltInRule(
            "sensor_caution",
            gettext_noop("Sensor beyond its caution limit"),
            gettext_noop(
                "A sensor is beyond the caution threshold that its chassis reports. It notifies nobody"
                " while the same sensor is beyond its critical limit."
            ),
            "Warning",
            10.0,
        ),
        BuiltInRule(
            "fan_failed",
            gettext_noop("Fan failed"),
            gettext_noop("The chassis reports that a fan is not healthy."),
            "Critical",
            0.0,
        ),
        # A verdict of down is given after 15 s. With as much again, a host that restarts its links is not reported.
        BuiltInRule(
            "link_down",
            gettext_noop("Link down or failing"),
            gettext_noop("The verdict on a link is down or failing: it should be up and is not, or requests fail."),
            "Critical",
            30.0,
        ),
        BuiltInRule(
            "link_degraded",
            gettext_noop("Link degraded"),
            gettext_noop(
                "The verdict on a link is degraded: fewer lanes or a lower speed than both ends support, or too many"
                " errors. It notifies nobody while the link is down or failing."
            ),
            "Warning",
            30.0,
        ),
        # Two walks: a device that resets itself is absent from one.
        BuiltInRule(
            DEVICE_MISSING,
            gettext_noop("Device missing"),
            gettext_noop("A device that was there is no longer in its chassis."),
            "Critical",
            30.0,
        ),
        # Whoever changes a lab by hand and accepts it at once needs no message.
        BuiltInRule(
            DRIFT,
            gettext_noop("Drifted from the approved state"),
            gettext_noop("A device, mode, cable or port is not as approved."),
            "Warning",
            120.0,
        ),
        # Readings are written each minute; a database that is busy for another one loses nothing.
        BuiltInRule(
            "store_behind",
            gettext_noop("Readings are stored late"),
            gettext_noop(
                "Readings wait for more than two minutes to be stored; they are kept in memory, which is limited."
            ),
            "Warning",
            0.0,
        ),
        BuiltInRule(
            "disk_filling",
            gettext_noop("Disk nearly full"),
            gettext_noop("The disk with the site's data has little space left: when it is full, readings are dropped."),
            "Critical",
            0.0,
        ),
    )
}
# Rules about the verdict on a link.
LINK_RULES: Final = frozenset({"link_down", "link_degraded"})
# Rules about conditions that are not measured: see telemetry.alerts.conditions.
CONDITION_RULES: Final = LINK_RULES | {DEVICE_MISSING, DRIFT, "store_behind", "disk_filling"}


def rule_cause(pk: int) -> str:
    """Return the cause of alerts of an administrators' rule."""
    return f"rule-{pk}"


def threshold_words(stored: str) -> str:
    """Return a stored threshold, such as 'above 85 °C for 30 s', in the reader's language, as far as it is of Terms."""
    condition, _for, duration = stored.partition(" for ")
    text = _(condition)
    for words in LIMIT_WORDS.values():
        if values := values_in(condition, words):
            text = _(words, limit=_(values["limit"]))
    if text == condition:
        return stored
    return _("{condition} for {duration}", condition=text, duration=duration) if duration else text


def value_label(value: float | None, unit: str) -> str:
    """Return a value with its unit for display."""
    if value is None or math.isnan(value):
        return _("no value")
    if unit == "state":
        return _(STATE_WORDS[int(value)]) if value in range(len(STATE_WORDS)) else f"{value:g}"
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
