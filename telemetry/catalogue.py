"""From a chassis' series on the wire to what browsers show: names, units, owners, and rates made of counters."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from fabric.bmc.types import Quantity, Reading, Series
from telemetry.frames import Values

RATES = {Quantity.RX_BYTES: "rx_bytes_per_second", Quantity.TX_BYTES: "tx_bytes_per_second"}
UNITS = {
    Quantity.TEMPERATURE: "°C", Quantity.FAN_RPM: "rpm", Quantity.FAN_PERCENT: "%", Quantity.POWER: "W",
    Quantity.ENERGY: "kWh", Quantity.VOLTAGE: "V", Quantity.CURRENT: "A", Quantity.LINK_WIDTH: "lanes",
    Quantity.LINK_SPEED: "Gb/s", Quantity.UTILISATION: "%",
}  # fmt: skip


class Entry(TypedDict):
    """One series as a browser knows it; `id` is 0 for what belongs to the chassis as a whole."""

    key: str
    object: str
    id: int
    label: str
    unit: str


class Catalogue:
    """The series of one chassis in the order of its frames; `revision` tells catalogues apart (16 bits)."""

    def __init__(self, series: Sequence[Series], owners: Mapping[str, tuple[str, int]]) -> None:
        self.entries = [_entry(one, owners) for one in series]
        self.revision = zlib.crc32("\n".join(entry["key"] for entry in self.entries).encode()) & 0xFFFF
        self._counters = [index for index, one in enumerate(series) if one.quantity in RATES]
        self._before: Reading | None = None

    def values(self, reading: Reading) -> Values:
        """Return one frame's values: counters as rates per second; NaN at first and after a counter's reset."""
        values = np.array(reading.values, dtype=np.float64)
        before, self._before = self._before, reading
        elapsed = reading.at - before.at if before is not None else 0.0
        for index in self._counters:
            rate = math.nan
            if before is not None and elapsed > 0:
                moved = reading.values[index] - before.values[index]
                rate = moved / elapsed if moved >= 0 else math.nan
            values[index] = rate
        return values


def _entry(series: Series, owners: Mapping[str, tuple[str, int]]) -> Entry:
    name = RATES.get(series.quantity, series.quantity.value)
    if series.detail:
        name = f"{name}/{series.detail}"
    kind, number = owners.get(series.owner_uri, ("chassis", 0))
    place = str(number) if number else series.property
    unit = "B/s" if series.quantity in RATES else UNITS.get(series.quantity, series.unit)
    words = (series.detail or series.quantity.value if series.quantity not in RATES else name).replace("_", " ")
    return Entry(key=f"{kind}/{place}/{name}", object=kind, id=number, label=words, unit=unit)
