"""The series of a chassis, samples of them, and the interface of subscribers to samples.

A subscriber exists while this worker polls its chassis, and is called in the event loop that polls all chassis of the
worker: calls must not block; waiting work (a database) belongs in a task or a thread of the subscriber.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypedDict, TypeVar
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.language import gettext_noop
from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries, counter_label
from fabric.bmc.types import Inventory
from fabric.inventory.selectors import ReadingOwner

Values = NDArray[np.float64]
BYTE_RATES = {Quantity.RX_BYTES: "rx_bytes_per_second", Quantity.TX_BYTES: "tx_bytes_per_second"}
LABELS = {
    Quantity.TEMPERATURE: (gettext_noop("Temperature"), "°C"),
    Quantity.FAN_RPM: (gettext_noop("Fan speed"), "rpm"),
    Quantity.FAN_PERCENT: (gettext_noop("Fan speed"), "%"),
    Quantity.POWER: (gettext_noop("Power"), "W"),
    Quantity.ENERGY: (gettext_noop("Energy"), "kWh"),
    Quantity.VOLTAGE: (gettext_noop("Voltage"), "V"),
    Quantity.CURRENT: (gettext_noop("Current"), "A"),
    Quantity.LINK_STATUS: (gettext_noop("Link"), "state"),
    Quantity.LINK_WIDTH: (gettext_noop("Link width"), "lanes"),
    Quantity.LINK_SPEED: (gettext_noop("Link speed"), "Gb/s"),
    Quantity.UTILISATION: (gettext_noop("Utilisation"), "%"),
    Quantity.RX_BYTES: (gettext_noop("Receive"), "B/s"),
    Quantity.TX_BYTES: (gettext_noop("Transmit"), "B/s"),
    Quantity.ERRORS: (gettext_noop("Errors"), ""),
}

# Of properties whose names are no words.
DETAIL_LABELS = {
    "OperatingSpeedMHz": gettext_noop("Clock rate"),
    "HumidityPercent": gettext_noop("Humidity"),
    "CapacityUtilizationPercent": gettext_noop("Memory in use"),
    "CorrectableECCErrorCount": gettext_noop("Corrected memory errors"),
    "UncorrectableECCErrorCount": gettext_noop("Uncorrected memory errors"),
}

NO_VALUES = np.empty(0)
Number = TypeVar("Number", bound=np.generic)
NO_STEP = np.zeros(())  # compared with twice as quickly as a number
CLOCK_STEP_SECONDS = 5.0  # a BMC clock that differs more from ours over an interval was set meanwhile
# Reports older than the newest are dropped for this time; a BMC that sends only these has restarted its clock.
LATE_SECONDS = 30.0

# Units of sensors in Redfish (UCUM), lower case, that are shown as the units above. A sensor with another unit is shown
# in that unit.
EXPECTED_UNITS = {
    Quantity.TEMPERATURE: {"cel"}, Quantity.FAN_RPM: {"{rev}/min", "rpm"}, Quantity.FAN_PERCENT: {"%", "percent"},
    Quantity.POWER: {"w"}, Quantity.ENERGY: {"kw.h"}, Quantity.VOLTAGE: {"v"}, Quantity.CURRENT: {"a"},
}  # fmt: skip


class SeriesEntry(TypedDict):
    """One series as sent to browsers; `id` is 0 for series of the chassis as a whole.

    With the unit 'state', values are indices of fabric.bmc.series.LINK_STATUSES.
    """

    key: str
    object: str
    id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    quantity: str
    label: str
    unit: str


class StoredCatalogue(msgspec.Struct):
    """A catalogue as Redis has it."""

    revision: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
    series: list[SeriesEntry]


STORED_CATALOGUE = msgspec.json.Decoder(StoredCatalogue)


class Sample(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One reading, aligned with the catalogue; NaN where there is no value.

    `counted` has the raw counters of the BMC; `values` has byte counters as rates (1/s), as browsers get them, and no
    negative counters. `byte_counters` are those alone, in the order of their entries, NaN for negative ones.
    """

    at: float  # Unix time by our clock, s
    measured_at: float  # by the BMC's clock, s; 0 where it does not report it
    counted: Values
    values: Values
    byte_counters: Values = NO_VALUES
    # The BMC sent a report older than the previous one: these are the values of the previous one again.
    is_late: bool = False


class SeriesCatalogue:
    """The series of one chassis in the order of its frames, and the rates made of their counters."""

    def __init__(self, series: Sequence[ReadingSeries], owners: Mapping[str, ReadingOwner]) -> None:
        self.series = tuple(series)
        self.entries = [_entry(one, owners) for one in series]
        _make_keys_unique(series, self.entries)
        _make_labels_unique(series, self.entries)
        byte_counters = np.flatnonzero([one.quantity in BYTE_RATES for one in series])
        errors = np.flatnonzero([one.quantity is Quantity.ERRORS for one in series])
        self._byte_counters = shared(byte_counters)
        self._counters = shared(np.concatenate((byte_counters, errors)))
        self._factors = shared(np.array([one.factor for one in series]))
        self._zeros = shared(np.array([one.zero for one in series]))
        self._converts = bool((self._factors != 1.0).any() or self._zeros.any())
        self._before: Sample | None = None  # the newest sample that is no repeat
        self._counted_before = NO_VALUES  # its counters, NaN for negative ones

    def sample(self, reading: ChassisReading) -> Sample:
        """Return a reading with its byte counters as rates per second; these are NaN at first and after a reset.

        The BMC's timestamps are used where it reports them: a late response does not change the rates, and a repeated
        report repeats them.
        """
        counted = np.asarray(reading.values, dtype=np.float64)
        if self._converts:
            counted = counted * self._factors + self._zeros
        values, counters = counted.copy(), counted.take(self._counters)
        before, goes_on, moved, count = self._before, False, NO_VALUES, len(self._byte_counters)
        if before is not None:
            moved = counters - self._counted_before
            # One look at all of them: none is missing, negative, or was reset.
            goes_on = np.count_nonzero(moved >= NO_STEP) == len(moved)
        if not goes_on and np.count_nonzero(negative := counters < 0):
            counters[negative] = math.nan
            values[self._counters[negative]] = math.nan
        now = Sample(
            at=reading.at, measured_at=reading.measured_at, counted=counted, values=values,
            byte_counters=counters[:count],
        )  # fmt: skip
        if before is None:
            values[self._byte_counters] = math.nan
        elif goes_on and now.measured_at > before.measured_at and (elapsed := elapsed_between(before, now)) > 0:
            values[self._byte_counters] = moved[:count] / elapsed  # as nearly all are
        elif self._is_late(now, before):
            return msgspec.structs.replace(before, at=reading.at, is_late=True)
        elif is_repeat(now, before):
            # Keep `before`: the next rate is computed since the first arrival of this report.
            values[self._byte_counters] = before.values[self._byte_counters]
            return now
        else:
            values[self._byte_counters] = _rates(now, before)
        self._before, self._counted_before = now, counters
        return now

    def _is_late(self, now: Sample, before: Sample) -> bool:
        """Return whether a report is older than the newest one, as opposed to a clock that was set back.

        After a clock change counters still increase. Where none changes, as on an idle chassis, the report is accepted.
        """
        if not 0 < now.measured_at < before.measured_at or now.at - before.at > LATE_SECONDS:
            return False
        moved = now.counted[self._counters] - before.counted[self._counters]
        return bool((moved < 0).any() and not (moved > 0).any())


_shared: WeakValueDictionary[tuple[str, bytes], NDArray[Any]] = WeakValueDictionary()


def shared(array: NDArray[Number]) -> NDArray[Number]:
    """Return an array as these, the same for all who ask: chassis of one model share what stays in the cache."""
    return _shared.setdefault((array.dtype.str, array.tobytes()), array)


def _rates(now: Sample, before: Sample) -> Values | float:
    """Return the rates of the byte counters (1/s) between two samples; NaN where they are not known."""
    elapsed = elapsed_between(before, now)
    if elapsed <= 0:
        return math.nan
    moved = now.byte_counters - before.byte_counters
    rates: Values = moved / elapsed
    reset = moved < 0
    if np.count_nonzero(reset):
        rates[reset] = math.nan
    return rates


def elapsed_between(earlier: Sample, later: Sample) -> float:
    """Return the seconds between two samples, 0 or less where they are not known.

    By the BMC's clock where it reports timestamps, unless it was set meanwhile or has stopped; else by ours.
    """
    ours, theirs = later.at - earlier.at, later.measured_at - earlier.measured_at
    by_bmc = earlier.measured_at > 0 and later.measured_at > 0
    return theirs if by_bmc and theirs > 0 and abs(theirs - ours) <= CLOCK_STEP_SECONDS else ours


def is_repeat(now: Sample, before: Sample) -> bool:
    """Return whether a reading repeats the previous one: a BMC may update its report less often than it is polled."""
    same = now.measured_at == before.measured_at if now.measured_at > 0 else now.at == before.at
    # Their bytes, so that NaN equals NaN.
    return same and now.counted.tobytes() == before.counted.tobytes()


def _make_keys_unique(series: Sequence[ReadingSeries], entries: list[SeriesEntry]) -> None:
    """Make the keys of series of one owner and kind unique, by the path of their properties.

    Not by their order: a key must stay that of the same sensor when others are added or removed.
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
    """Add the resource to equal labels: a service may have four fans called 'Fan'."""
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
    """Return the chassis of a property, or the name of its resource."""
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
        label = DETAIL_LABELS.get(series.detail) or counter_label(series.detail) or series.property
    if owner.kind in {"chassis", "drawer"} and (own := owner.name or sensor.name):
        # A component has metrics of several kinds; sensors and fans are named by what they measure.
        label = f"{own}: {label}" if owner.is_component else own
    return SeriesEntry(
        key=f"{owner.kind}/{owner.id}/{name}", object=owner.kind, id=owner.id, quantity=quantity, label=label, unit=unit
    )


@dataclass(frozen=True)
class ReadingContext:
    """Context of readings: `catalogue.entries[i]` and `catalogue.series[i]` describe the i-th value."""

    chassis_id: int
    catalogue: SeriesCatalogue
    inventory: Inventory
    owners: Mapping[str, ReadingOwner]


class ReadingSubscriber(Protocol):
    """A subscriber to the samples of one chassis."""

    def begin(self, context: ReadingContext) -> None:
        """Set the context of the following readings; called again whenever it changes."""

    def take(self, sample: Sample) -> None:
        """Process one reading."""

    def lost(self, sentence: str) -> None:
        """Note that the chassis does not answer; called at each failed attempt."""

    async def close(self) -> None:
        """Stop, and store what is in memory."""
