"""When something rings: conditions over one value, and the built-in rules. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from telemetry.alerts.scopes import Subject


class Condition(StrEnum):
    """How a value is compared."""

    ABOVE = "above"
    BELOW = "below"
    EQUALS = "equals"
    DIFFERS = "differs"
    MISSING = "missing"


# As many decimals as a reading is good for, the same as on the other pages.
DECIMALS: Final = {"°C": 1, "%": 0, "W": 0, "rpm": 0, "V": 2, "A": 1, "kWh": 2, "lanes": 0, "Gb/s": 0}
VERBS: Final = {Condition.EQUALS: "equal to", Condition.DIFFERS: "other than"}
SEVERITIES: Final = ("Warning", "Critical")  # in order


@dataclass(frozen=True, kw_only=True)
class Terms:
    """A condition on a value in the unit of its series; `clear` is the value at which it ends, `hold` is in s.

    Above: begins over `value`, ends at or under `clear`. Below: the other way round. No value (NaN) decides nothing,
    except whether something is missing.
    """

    condition: Condition
    value: float = 0.0
    clear: float | None = None
    hold: float = 0.0

    @property
    def ends_at(self) -> float:
        """The value at which it ends."""
        return self.value if self.clear is None else self.clear

    def words(self, unit: str = "") -> str:
        """Return it as people read it: 'above 85 °C for 30 s'."""
        text = "no value"
        if self.condition is not Condition.MISSING:
            text = f"{VERBS.get(self.condition, self.condition.value)} {limit_words(self.value, unit)}"
        return f"{text} for {seconds_words(self.hold)}" if self.hold else text


@dataclass(frozen=True, kw_only=True)
class Check:
    """Terms on one series of one chassis: what may have one open alert at a time, told by `cause` and `key`."""

    cause: str  # 'rule-7', or the name of a built-in rule
    key: str  # of the series in the catalogue; '' for the chassis as a whole
    terms: Terms
    severity: str
    subject: Subject
    title: str = ""
    unit: str = ""
    quantity: str = ""
    rule: int | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """What tells it from the others of its chassis."""
        return self.cause, self.key


@dataclass(frozen=True)
class BuiltIn:
    """A rule that comes with the site: switched on and off, never edited."""

    name: str
    words: str
    explanation: str
    severity: str
    hold: float
    is_on: bool = True


NOT_ANSWERING: Final = "not_answering"
# A limit's alert ends this share of it before the limit: a reading that trembles at it rings once.
MARGIN: Final = 0.02
BUILT_INS: Final = {
    one.name: one
    for one in (
        BuiltIn(
            NOT_ANSWERING,
            "Chassis does not answer",
            "Nothing could be read of a chassis. While it lasts, its other alerts notify nobody.",
            "Critical",
            10.0,
        ),
        BuiltIn("sensor_critical", "Sensor beyond its critical limit",
                "A sensor is beyond the critical or fatal threshold that the chassis itself gives for it.",
                "Critical", 3.0),
        BuiltIn("sensor_caution", "Sensor beyond its caution limit",
                "A sensor is beyond the caution threshold that the chassis itself gives for it. It notifies nobody"
                " while the same sensor is beyond its critical limit.", "Warning", 10.0),
        BuiltIn("fan_failed", "Fan failed", "The chassis says that a fan is not well.", "Critical", 0.0),
        BuiltIn("link_down", "Link down",
                "The link of an attached device, or of the host port that it is attached to, is not up.",
                "Critical", 30.0, is_on=False),
        BuiltIn("link_degraded", "Link narrower than it should be",
                "The link of an attached device, or of its host port, has fewer lanes than both ends can do.",
                "Warning", 30.0, is_on=False),
    )
}  # fmt: skip
# Those that are about the links of what is attached.
OF_LINKS: Final = frozenset({"link_down", "link_degraded"})


def cause_of_rule(pk: int) -> str:
    """Return the cause that alerts of an administrators' rule have."""
    return f"rule-{pk}"


def value_words(value: float | None, unit: str) -> str:
    """Return a value with its unit as people read it."""
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


def limit_words(value: float, unit: str) -> str:
    """Return a limit as people read it: as it was typed."""
    return f"{value:.12g} {unit}".strip() if unit not in {"state", "B/s"} else value_words(value, unit)


def seconds_words(seconds: float) -> str:
    """Return a time as people read it: '30 s', '5 min', '1 h 30 min'."""
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
