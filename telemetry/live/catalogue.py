"""The series of a chassis as browsers know them, samples of them, and the interface of whoever subscribes to samples.

A tap lives as long as its chassis is followed by this worker, in the event loop that reads all of its chassis: each
call has to be quick, and what waits (a database) goes on in a task or a thread of the tap's own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries, counter_label
from fabric.bmc.types import Inventory
from fabric.inventory.selectors import ReadingOwner

BYTE_RATES = {Quantity.RX_BYTES: "rx_bytes_per_second", Quantity.TX_BYTES: "tx_bytes_per_second"}
LABELS = {
    Quantity.TEMPERATURE: ("Temperature", "°C"), Quantity.FAN_RPM: ("Fan speed", "rpm"),
    Quantity.FAN_PERCENT: ("Fan speed", "%"), Quantity.POWER: ("Power", "W"), Quantity.ENERGY: ("Energy", "kWh"),
    Quantity.VOLTAGE: ("Voltage", "V"), Quantity.CURRENT: ("Current", "A"), Quantity.LINK_STATUS: ("Link", "state"),
    Quantity.LINK_WIDTH: ("Link width", "lanes"), Quantity.LINK_SPEED: ("Link speed", "Gb/s"),
    Quantity.UTILISATION: ("Utilisation", "%"), Quantity.RX_BYTES: ("Receive", "B/s"),
    Quantity.TX_BYTES: ("Transmit", "B/s"), Quantity.ERRORS: ("Errors", ""),
}  # fmt: skip

CLOCK_STEP_SECONDS = 5.0  # s; a BMC's clock that moved otherwise than ours was set
# So long a report that is older than the newest is left out; a BMC that gives no other one has begun anew.
LATE_SECONDS = 30.0

# Units of sensors as Redfish writes them (UCUM), lower case, that the ones above stand for. A sensor that measures the
# same in another unit is shown in its own.
EXPECTED_UNITS = {
    Quantity.TEMPERATURE: {"cel"}, Quantity.FAN_RPM: {"{rev}/min", "rpm"}, Quantity.FAN_PERCENT: {"%", "percent"},
    Quantity.POWER: {"w"}, Quantity.ENERGY: {"kw.h"}, Quantity.VOLTAGE: {"v"}, Quantity.CURRENT: {"a"},
}  # fmt: skip


class SeriesEntry(TypedDict):
    """One series as a browser knows it; `id` is 0 for what belongs to the chassis as a whole.

    The unit 'state' means that values are places in fabric.bmc.series.LINK_STATUSES.
    """

    key: str
    object: str
    id: int
    quantity: str
    label: str
    unit: str


@dataclass(frozen=True)
class Sample:
    """One reading, aligned with the catalogue; NaN where there is no value.

    `counted` has counters as the BMC counts them; `values` has byte counters as rates (1/s), as browsers get them, and
    no counter below zero.
    """

    at: float  # Unix time by our clock, s
    measured_at: float  # by the BMC's clock, s; 0 where it does not say
    counted: Values
    values: Values
    # The BMC gave a report that is older than the one before: these are the values of that one, once more.
    is_late: bool = False


class SeriesCatalogue:
    """The series of one chassis in the order of its frames, and the rates made of their counters."""

    def __init__(self, series: Sequence[ReadingSeries], owners: Mapping[str, ReadingOwner]) -> None:
        self.series = tuple(series)
        self.entries = [_entry(one, owners) for one in series]
        _make_keys_unique(series, self.entries)
        _make_labels_unique(series, self.entries)
        self._counters = np.array(
            [index for index, one in enumerate(series) if one.quantity in BYTE_RATES], dtype=np.intp
        )
        self._errors = np.array(
            [index for index, one in enumerate(series) if one.quantity is Quantity.ERRORS], dtype=np.intp
        )
        self._factors = np.array([one.factor for one in series])
        self._zeros = np.array([one.zero for one in series])
        self._converts = bool((self._factors != 1.0).any() or self._zeros.any())
        self._before: Sample | None = None  # the newest that is no repetition

    def sample(self, reading: ChassisReading) -> Sample:
        """Return a reading with its byte counters as rates per second; these are NaN at first and after a reset.

        Time is the BMC's own where it says when it measured: an answer that arrives late is no slower link, and one
        that repeats the last report repeats its rates.
        """
        counted = np.array(reading.values, dtype=np.float64)
        if self._converts:
            counted = counted * self._factors + self._zeros
        values = counted.copy()
        now = Sample(at=reading.at, measured_at=reading.measured_at, counted=counted, values=values)
        before = self._before
        if before is not None and self._is_late(now, before):
            return replace(before, at=reading.at, is_late=True)
        self._drop_negative(values, counted, self._errors)
        if before is None:
            values[self._counters] = math.nan
        elif is_repeat(now, before):
            # The rate to the next one is since the first time that this came.
            values[self._counters] = before.values[self._counters]
            return now
        else:
            values[self._counters] = self._rates(now, before)
        self._before = now
        return now

    def counters(self, sample: Sample) -> Values:
        """Return the byte counters of a sample as the BMC counts them, in the order of their entries; NaN below 0."""
        counted = sample.counted[self._counters]
        counted[counted < 0] = math.nan
        return counted

    def _rates(self, now: Sample, before: Sample) -> Values:
        moved, elapsed = self.counters(now) - self.counters(before), elapsed_between(before, now)
        return np.where(moved >= 0, moved / elapsed, math.nan) if elapsed > 0 else np.full(len(moved), math.nan)

    def _is_late(self, now: Sample, before: Sample) -> bool:
        """Tell whether a report is from before the newest one; a clock that was set back is another thing.

        Then counters go on. Where they do not, as none does where all is idle, it cannot be told, and is kept.
        """
        if not 0 < now.measured_at < before.measured_at or now.at - before.at > LATE_SECONDS:
            return False
        counters = np.concatenate((self._counters, self._errors))
        moved = now.counted[counters] - before.counted[counters]
        return bool((moved < 0).any() and not (moved > 0).any())

    @staticmethod
    def _drop_negative(values: Values, counted: Values, counters: NDArray[np.intp]) -> None:
        below = counters[counted[counters] < 0]
        if len(below):
            values[below] = math.nan


def elapsed_between(earlier: Sample, later: Sample) -> float:
    """Return the seconds between two samples, 0 or less where it cannot be told.

    By the BMC's own clock where it says when it measured, unless that was set meanwhile or stands still; else by ours.
    """
    ours, theirs = later.at - earlier.at, later.measured_at - earlier.measured_at
    told = earlier.measured_at > 0 and later.measured_at > 0
    return theirs if told and theirs > 0 and abs(theirs - ours) <= CLOCK_STEP_SECONDS else ours


def is_repeat(now: Sample, before: Sample) -> bool:
    """Tell whether a reading is the one before once more: a BMC may renew its report more rarely than it is asked."""
    same = now.measured_at == before.measured_at if now.measured_at > 0 else now.at == before.at
    return same and np.array_equal(now.counted, before.counted, equal_nan=True)


def _make_keys_unique(series: Sequence[ReadingSeries], entries: list[SeriesEntry]) -> None:
    """Give series of one owner and kind keys of their own, made of where they come from.

    Not of their order: what is kept under a key stays the same sensor's when another one comes or goes.
    """
    keys = Counter(entry["key"] for entry in entries)
    taken: Counter[str] = Counter()
    for one, entry in zip(series, entries, strict=True):
        if keys[entry["key"]] > 1:
            place = one.property.removeprefix("/redfish/v1/").removesuffix("#/Reading")
            entry["key"] += "/" + ".".join(re.findall(r"[\w-]+", place))
        taken[entry["key"]] += 1
        if taken[entry["key"]] > 1:
            entry["key"] += f"/{taken[entry['key']]}"


def _make_labels_unique(series: Sequence[ReadingSeries], entries: list[SeriesEntry]) -> None:
    """Name the place of series that would be called the same: a service may have four fans called 'Fan'."""
    names = Counter((one["object"], one["id"], one["quantity"], one["label"]) for one in entries)
    taken: Counter[tuple[str, int, str, str]] = Counter()
    for one, entry in zip(series, entries, strict=True):
        if names[entry["object"], entry["id"], entry["quantity"], entry["label"]] > 1:
            entry["label"] = f"{_resource_name(one.property)} {entry['label']}"
            name = (entry["object"], entry["id"], entry["quantity"], entry["label"])
            taken[name] += 1
            if taken[name] > 1:
                entry["label"] += f" {taken[name]}"


def _resource_name(name: str) -> str:
    """Return the chassis of a property, or what its resource is called."""
    steps = [step for step in name.partition("#")[0].split("/") if step]
    if "Chassis" in steps[:-1]:
        return steps[len(steps) - 1 - steps[::-1].index("Chassis") + 1]
    return steps[-1] if steps else name


def _entry(series: ReadingSeries, owners: Mapping[str, ReadingOwner]) -> SeriesEntry:
    quantity = BYTE_RATES.get(series.quantity, series.quantity.value)
    name = f"{quantity}/{series.detail}" if series.detail else quantity
    owner = owners.get(series.owner_uri, ReadingOwner("chassis", 0))
    sensor = owners.get(series.property.partition("#")[0], owner)
    label, unit = LABELS.get(series.quantity, ("", series.unit))
    if series.unit and series.unit.lower() not in EXPECTED_UNITS.get(series.quantity, {series.unit.lower()}):
        unit = series.unit
    if series.quantity is Quantity.ERRORS:
        label = counter_label(series.detail)
    elif series.quantity is Quantity.OTHER:
        label = counter_label(series.detail) or series.property
    if owner.kind in {"chassis", "drawer"} and (own := owner.name or sensor.name):
        label = own
    return SeriesEntry(
        key=f"{owner.kind}/{owner.id}/{name}", object=owner.kind, id=owner.id, quantity=quantity, label=label, unit=unit
    )


@dataclass(frozen=True)
class ReadingContext:
    """What the readings from now on are of: `catalogue.entries[i]` and `catalogue.series[i]` name the i-th value."""

    chassis_id: int
    catalogue: SeriesCatalogue
    inventory: Inventory
    owners: Mapping[str, ReadingOwner]


class ReadingSubscriber(Protocol):
    """One hearer of one chassis."""

    def begin(self, told: ReadingContext) -> None:
        """Take note of what the readings are of; called again whenever that changes."""

    def take(self, sample: Sample) -> None:
        """Take one reading."""

    def lost(self, sentence: str) -> None:
        """Take note that the chassis does not answer; called at each failed try."""

    async def close(self) -> None:
        """End: what is kept in memory is brought to where it belongs."""


Values = NDArray[np.float64]
