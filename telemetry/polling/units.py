"""Units that change while a chassis is read: what may be told in another one by now is left out until it is known."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec

from fabric.bmc.types import Reading, Series
from telemetry.pipeline import tally

Unit = tuple[str, float, float]


class Units:
    """What the readings of one chassis are measured in."""

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._series: Sequence[Series] = ()
        self._known: dict[str, Unit] = {}

    def begin(self, series: Sequence[Series]) -> None:
        """Take note of what is read from now on, and count what is in another unit than before."""
        units = {one.property: (one.unit, one.factor, one.zero) for one in series}
        changed = sum(self._known.get(name, unit) != unit for name, unit in units.items())
        tally.add("units_changed", changed, chassis=self._chassis)
        self._series = series
        self._known |= units

    def sure(self, reading: Reading, doubted: Collection[str]) -> Reading:
        """Return a reading without those of sensors (URIs) whose unit is in doubt: they are NaN, and counted."""
        if not doubted:
            return reading
        places = [place for place, one in enumerate(self._series) if one.property.partition("#")[0] in doubted]
        values = list(reading.values)
        for place in places:
            values[place] = math.nan
        tally.add("readings_in_doubt", len(places), chassis=self._chassis)
        return msgspec.structs.replace(reading, values=tuple(values))
