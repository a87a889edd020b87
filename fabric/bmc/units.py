"""Units that sensors measure in: those that are not the usual ones of what they measure, and how they become these.

Units are written as Redfish does, by the Unified Code for Units of Measure (UCUM 2.1, tables 2 to 4 and prefixes).
"""

from __future__ import annotations

from typing import NamedTuple


class Conversion(NamedTuple):
    """What a reading becomes: `factor` times what the BMC tells, and `zero`, in `unit`."""

    unit: str
    factor: float = 1.0
    zero: float = 0.0

    def of(self, told: float | None) -> float | None:
        """Return a reading, or a threshold, in the usual unit; None of None."""
        return told if told is None or (self.factor, self.zero) == (1.0, 0.0) else told * self.factor + self.zero


USUAL = {
    "[degF]": Conversion("Cel", 5 / 9, -160 / 9),
    "K": Conversion("Cel", 1.0, -273.15),
    "mW": Conversion("W", 1e-3),
    "kW": Conversion("W", 1e3),
    "J": Conversion("kW.h", 1 / 3.6e6),
    "kJ": Conversion("kW.h", 1 / 3.6e3),
    "W.h": Conversion("kW.h", 1e-3),
    "mV": Conversion("V", 1e-3),
    "mA": Conversion("A", 1e-3),
}


def conversion_of(unit: str) -> Conversion:
    """Return how readings in a unit become the usual ones; as they are where it is usual, or not known."""
    return USUAL.get(unit) or Conversion(unit)
