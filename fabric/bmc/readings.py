"""Readings: a plan of the requests, made once, and its execution each second.

A MetricReport gives all in one request and is used if it covers most of the properties of the inventory; else the
collections of sensors and ports are read with $expand, or resource by resource, as often as the service bears it.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import numpy as np

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError, Malformed, RequestRefused, ServerFault
from fabric.bmc.events import parse_timestamp
from fabric.bmc.metric_report import MAX_REPORT_VALUES, MetricValue, metric_number, parse_report
from fabric.bmc.report_layout import LayoutReader
from fabric.bmc.series import LINK_STATUSES, ChassisReading, Floats, ReadingSeries, SeriesFactory
from fabric.bmc.types import Inventory

NAN = math.nan
# A report is used if it covers this share of the properties that single resources would give.
MIN_REPORT_COVERAGE = 0.5
MAX_REPORTS = 16
MAX_METRICS = 64  # resources that are read where no report has their values
MAX_SERIES = 20_000  # of a chassis: its other readings are left out
REPORT_BYTES_PER_SECOND = 2**20  # a larger report is read less often
MAX_INCOMPLETE_REPORTS = 30  # reports in a row without some property, after which it is no longer expected
MAX_SAMPLES = 4  # resources of a collection that are read to learn what all of them lack
# Until it is known how long a service takes, and at most, however fast it answers.
FIRST_REQUESTS_PER_SECOND = 10.0
MAX_REQUESTS_PER_SECOND = 40.0
BUSY_SHARE = 0.5  # of the time of a service: the rest is for walks, events and operations, and for others
MAX_PERIOD = 60.0
ROUNDS_REMEMBERED = 5
LEGACY_PROPERTIES = {"Temperature": "ReadingCelsius", "Voltage": "ReadingVolts", "Power": "PowerConsumedWatts"}
PORT_PROPERTIES = ("LinkStatus", "ActiveWidth", "CurrentSpeedGbps")


class NumericValue(msgspec.Struct, rename="pascal", gc=False):
    """A value that is expected to be a number."""

    metric_property: str
    metric_value: float


class ReadingPlan:
    """The sources of a chassis' readings; `series` names them, `period` is the suggested interval (s), it may change.

    `is_outdated` once the service reports other properties: reading continues, and the next plan will have them.
    `limit` says which readings are left out, '' for none.
    """

    series: tuple[ReadingSeries, ...] = ()
    period: float = 1.0
    is_outdated: bool = False
    limit: str = ""

    async def read(self, bmc: BmcClient) -> ChassisReading:
        """Return one reading, aligned with `series`; raises BmcError."""
        raise NotImplementedError


class ReportPlan(ReadingPlan):
    """All readings in one request."""

    def __init__(self, uri: str, properties: list[str], namer: SeriesFactory, *, size: int = 0) -> None:
        self._uri = uri
        names = list(map(sys.intern, properties[:MAX_SERIES]))  # chassis of one model share them
        # Of a property that occurs several times the last value counts.
        self._position = {name: index for index, name in enumerate(dict.fromkeys(names))}
        self._expect(names)
        self._lacked = 0  # reports in a row that lack something
        self.period = max(1.0, math.ceil(size / REPORT_BYTES_PER_SECOND))
        self.limit = limit_sentence(len(properties))
        self.series = tuple(namer.series(name) for name in self._position)

    def _expect(self, order: list[str]) -> None:
        """Expect reports with these properties."""
        nowhere = len(self._position)
        targets = [self._position.get(name, nowhere) for name in order]
        self._order = [sys.intern(name) for name in order]  # chassis of one model share them
        # The position of each value; None where they are all in order.
        self._targets = None if targets == list(range(nowhere)) else np.array(targets, dtype=np.intp)
        self._words: list[int] = []  # entries whose values are not always numbers
        self._decoder: msgspec.json.Decoder[Any] | None = None  # of a report with these
        self._reader = LayoutReader()
        self._lacks = False

    async def read(self, bmc: BmcClient) -> ChassisReading:
        """Return one reading; a missing property is NaN, a new one waits for the next plan."""
        return self.decode(await bmc.get_bytes(self._uri, is_repeated=True), time.time(), bmc.host)

    def decode(self, raw: bytes, at: float, host: str = "The BMC") -> ChassisReading:
        """Return the reading in a report's bytes; raises Malformed."""
        known = self._reader.read(raw)
        timestamp, numbers = known or self._learned(raw) or self._parsed(raw, host)
        if known is None:
            self._reader.learn(raw, numbers)
        self._lacked = self._lacked + 1 if self._lacks else 0
        self.is_outdated = self.is_outdated or self._lacked >= MAX_INCOMPLETE_REPORTS
        if self._targets is not None:
            values = np.full(len(self.series) + 1, NAN)
            values[self._targets] = numbers
            numbers = values[:-1]  # the last one has no known property
        measured_at = parse_timestamp(timestamp or "")
        return ChassisReading(
            at=at, values=numbers, measured_at=0.0 if measured_at is None else measured_at.timestamp()
        )

    def _learned(self, raw: bytes) -> tuple[str | None, Floats] | None:
        """Return time and values of a report that is as the ones before; None for any other."""
        if self._decoder is None or len(raw) > MAX_REPORT_VALUES:
            return None
        try:
            report = self._decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if [entry.metric_property for entry in report.metric_values] != self._order:
            return None
        values = [entry.metric_value for entry in report.metric_values]
        for place in self._words:
            number = LINK_STATUSES.get(values[place])
            values[place] = metric_number(values[place]) if number is None else number
        # A third of the time of an array made of a list.
        numbers: Floats = np.frombuffer(struct.pack(f"{len(values)}d", *values))
        if np.count_nonzero(np.isfinite(numbers)) < len(numbers):
            numbers = np.where(np.isfinite(numbers), numbers, NAN)
        return report.timestamp, numbers

    def _parsed(self, raw: bytes, host: str) -> tuple[str | None, Floats]:
        """Return time and values of any report, and learn what it is like; raises Malformed."""
        report = parse_report(raw, host)
        entries = report.metric_values[:MAX_SERIES]
        is_known = [entry.metric_property for entry in entries] == self._order
        if not is_known:
            entries = [entry for entry in entries if entry.metric_property]
            self._realign([entry.metric_property for entry in entries])
        values = [entry.metric_value for entry in entries]
        numbers = list(map(metric_number, values))
        if is_known:
            self._learn(values, numbers)
        return report.timestamp, np.array(numbers)

    def _learn(self, values: list[str | float | bool | None], numbers: list[float]) -> None:
        """Expect numbers, as text or not, at all places but those that once had something else: states of links."""
        pairs = enumerate(zip(values, numbers, strict=True))
        words = {place for place, (value, number) in pairs if math.isnan(number) or value in LINK_STATUSES}
        if self._decoder is not None and words.issubset(self._words):
            return
        self._words = sorted(words.union(self._words))
        kinds: list[Any] = [NumericValue] * len(values)
        for place in self._words:
            kinds[place] = MetricValue
        entries = ("metric_values", tuple.__class_getitem__(tuple(kinds)))
        learned = msgspec.defstruct("LearnedReport", [entries, ("timestamp", str | None, None)], rename="pascal")
        self._decoder = msgspec.json.Decoder(learned, strict=False)  # so that texts of numbers are numbers

    def _realign(self, order: list[str]) -> None:
        """Find the positions of values in a new order, and expect that order from now on."""
        there = set(order)
        self._expect(order)
        self._lacks = not there >= self._position.keys()
        self.is_outdated = self.is_outdated or not self._position.keys() >= there


class ReadingRequest(msgspec.Struct, frozen=True):
    """One request of a plan without report, and its values: (resource, JSON pointer steps, position)."""

    uri: str
    picks: tuple[tuple[str, tuple[str, ...], int], ...]


class ResourcePlan(ReadingPlan):
    """Readings from single resources or expanded collections."""

    def __init__(
        self, series: tuple[ReadingSeries, ...], sources: tuple[ReadingRequest, ...], *, limit: str = ""
    ) -> None:
        self.series = series
        self.sources = sources
        self.limit = limit
        self.period = max(1.0, math.ceil(len(sources) / FIRST_REQUESTS_PER_SECOND))
        self._rounds: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)  # their durations, s

    async def read(self, bmc: BmcClient) -> ChassisReading:
        """Return one reading; values of a refused resource are NaN, raises only where all are refused."""
        begun = time.monotonic()
        values = np.full(len(self.series), NAN)
        failures = await asyncio.gather(*(_pick_values(bmc, source, values) for source in self.sources))
        self.learn(time.monotonic() - begun)
        if failures and all(failures):
            raise next(failure for failure in failures if failure is not None)
        return ChassisReading(at=time.time(), values=values)

    def take_over(self, before: ResourcePlan) -> None:
        """Take over what another plan of the same service has learned."""
        borne = math.ceil(before.period * len(self.sources) / max(1, len(before.sources)))
        self.period = min(max(1.0, float(borne)), MAX_PERIOD)

    def learn(self, seconds: float) -> None:
        """Learn from the duration of a round (s) how often the service bears one: `period`, whole seconds.

        The median of the last rounds counts: a single slow one changes nothing.
        """
        self._rounds.append(seconds)
        if len(self._rounds) < ROUNDS_REMEMBERED:
            return
        borne = max(statistics.median(self._rounds) / BUSY_SHARE, len(self.sources) / MAX_REQUESTS_PER_SECOND, 1.0)
        period = min(float(math.ceil(borne)), MAX_PERIOD)
        # A service at the limit between two periods does not change between them.
        if period > self.period or borne < 0.8 * (self.period - 1.0):
            self.period = period
            self._rounds.clear()


async def _pick_values(bmc: BmcClient, source: ReadingRequest, values: Floats) -> BmcError | None:
    """Enter the values of one request, of which nothing else is kept; returns the error of a refused one."""
    resources = await _read_resources(bmc, source.uri)
    if isinstance(resources, BmcError):
        return resources
    for uri, steps, position in source.picks:
        values[position] = metric_number(_follow_pointer(resources.get(uri), steps))
    return None


async def _read_resources(bmc: BmcClient, uri: str) -> dict[str, Any] | BmcError:
    """Return every resource in a response by its URI, or the error; an unreachable BMC raises."""
    try:
        body = (await bmc.get(uri)).body
    except (RequestRefused, ServerFault, Malformed) as error:
        return error
    found: dict[str, Any] = {}
    stack: list[Any] = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            own = value.get("@odata.id")
            if isinstance(own, str) and len(value) > 1:
                found[own.rstrip("/")] = value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    # The resource counts as the requested one, whatever its own @odata.id claims.
    found[uri.split("?", 1)[0]] = body
    return found


def _follow_pointer(value: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if isinstance(value, list) and step.isdecimal() and len(step) < 10 and int(step) < len(value):
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


async def plan_readings(bmc: BmcClient, inventory: Inventory) -> ReadingPlan:
    """Return the plan for a chassis: the report that covers most of it, else its resources. Raises transport errors."""
    namer = SeriesFactory(inventory)
    wanted = list(dict.fromkeys(expected_properties(inventory)))
    best: list[str] = []
    best_uri, size = "", 0
    for uri in inventory.service.metric_report_uris[:MAX_REPORTS]:
        properties, bytes_of_it = await _report_properties(bmc, uri)
        if len(set(properties)) > len(set(best)):
            best, best_uri, size = properties, uri, bytes_of_it
    if best and len(set(best) & set(wanted)) >= MIN_REPORT_COVERAGE * min(len(wanted), MAX_SERIES):
        return ReportPlan(best_uri, best, namer, size=size)
    wanted = list(dict.fromkeys((*wanted, *metrics_properties(inventory))))
    return await _plan_resources(bmc, inventory, wanted, namer)


async def _report_properties(bmc: BmcClient, uri: str) -> tuple[list[str], int]:
    """Return the properties of a report and its size in bytes; none where it cannot be read."""
    try:
        raw = await bmc.get_bytes(uri)
        report = parse_report(raw, bmc.host)
    except (RequestRefused, ServerFault, Malformed):
        return [], 0
    return [entry.metric_property for entry in report.metric_values if entry.metric_property], len(raw)


def limit_sentence(count: int) -> str:
    """Return which of `count` readings are left out, in words; '' for none."""
    return f"It reports {count} readings; the first {MAX_SERIES} are read." if count > MAX_SERIES else ""


def expected_properties(inventory: Inventory) -> Iterator[str]:
    """Yield the properties that sensors, fans and ports of an inventory have.

    A chassis with Sensors or Fans is not read again through its older Thermal and Power.
    """
    yield from _sensor_properties(inventory)
    yield from _fan_properties(inventory)
    for port in inventory.ports:
        for name in PORT_PROPERTIES:
            yield f"{port.uri}#/{name}"
    for counters in inventory.port_metrics:
        for name, value in (("RXBytes", counters.rx_bytes), ("TXBytes", counters.tx_bytes)):
            if value is not None:
                yield f"{counters.uri}#/{name}"
        for name in counters.errors:
            yield f"{counters.uri}#/PCIeErrors/{name}"


def metrics_properties(inventory: Inventory) -> Iterator[str]:
    """Yield the properties of metrics resources, those of devices first; of hundreds only some, each is a request."""
    devices = {device.uri for device in inventory.devices}
    devices |= {component.uri for component in inventory.components if component.device_uri}
    read = [metrics for metrics in inventory.metrics if metrics.pointers]
    for metrics in sorted(read, key=lambda one: one.owner_uri not in devices)[:MAX_METRICS]:
        for pointer in metrics.pointers:
            yield f"{metrics.uri}#/{pointer}"


def _sensor_properties(inventory: Inventory) -> Iterator[str]:
    modern = {sensor.chassis_uri for sensor in inventory.sensors if "#" not in sensor.uri}
    for sensor in inventory.sensors:
        if sensor.copy_of:
            continue
        if "#" not in sensor.uri:
            yield f"{sensor.uri}#/Reading"
        elif sensor.chassis_uri not in modern:
            yield f"{sensor.uri}/{LEGACY_PROPERTIES[sensor.reading_type]}"


def _fan_properties(inventory: Inventory) -> Iterator[str]:
    sensors = {sensor.uri for sensor in inventory.sensors}
    modern = {fan.chassis_uri for fan in inventory.fans if "#" not in fan.uri}
    for fan in inventory.fans:
        if "#" in fan.uri:
            if fan.chassis_uri not in modern:
                yield f"{fan.uri}/Reading"
        elif fan.sensor_uri not in sensors:
            yield f"{fan.uri}#/SpeedPercent/Reading"
            if fan.speed_rpm is not None:
                yield f"{fan.uri}#/SpeedPercent/SpeedRPM"


async def _plan_resources(
    bmc: BmcClient, inventory: Inventory, wanted: list[str], namer: SeriesFactory
) -> ResourcePlan:
    """Return a plan of as few requests as the service allows: expanded resources are not requested individually."""
    limit, wanted = limit_sentence(len(wanted)), wanted[:MAX_SERIES]
    series = tuple(namer.series(name) for name in wanted)
    picks: dict[str, list[tuple[str, tuple[str, ...], int]]] = defaultdict(list)
    for position, name in enumerate(wanted):
        uri, _, pointer = name.partition("#/")
        picks[uri].append((uri, tuple(pointer.split("/")), position))
    sources: list[ReadingRequest] = []
    if inventory.service.expand:
        for query in await _expansions(bmc, inventory, picks):
            sources.append(query)
            for uri, _, _ in query.picks:
                picks.pop(uri, None)
    sources += [ReadingRequest(uri, tuple(wanted_there)) for uri, wanted_there in picks.items()]
    return ResourcePlan(series, tuple(sources), limit=limit)


async def _absent_properties(bmc: BmcClient, lacking: Mapping[str, AbstractSet[str]]) -> set[str]:
    """Return the properties that resources of a collection lack altogether, not only where they are expanded.

    Ports of OpenBMC have no LinkStatus. A few resources are read for it, each with something that those before had.
    """
    absent: set[str] = set()
    for _ in range(MAX_SAMPLES):
        uri = next((uri for uri, names in lacking.items() if names - absent), "")
        resources = await _read_resources(bmc, uri) if uri else {}
        if not uri or isinstance(resources, BmcError) or not (new := lacking[uri] - absent - resources[uri].keys()):
            break
        absent |= new
    return absent


async def _expansions(
    bmc: BmcClient, inventory: Inventory, picks: Mapping[str, list[tuple[str, tuple[str, ...], int]]]
) -> list[ReadingRequest]:
    """Return the expanded collections that contain at least two needed resources; the first failure ends it."""
    collections = dict.fromkeys(
        uri.rpartition("/")[0]
        for uri in (
            *(sensor.uri for sensor in inventory.sensors if "#" not in sensor.uri and not sensor.copy_of),
            *(port.uri for port in inventory.ports),
            *(fan.uri for fan in inventory.fans if "#" not in fan.uri),
            *(metrics.owner_uri for metrics in inventory.metrics if metrics.pointers),
        )
    )
    found: list[ReadingRequest] = []
    for collection in collections:
        for levels in (2, 1):
            query = f"{collection}?$expand=.($levels={levels})"
            resources = await _read_resources(bmc, query)
            if not isinstance(resources, BmcError):
                break
        else:
            return found
        lacking = {
            uri: {steps[0] for _, steps, _ in wanted} - resources[uri].keys()
            for uri, wanted in picks.items()
            if uri in resources
        }
        absent = await _absent_properties(bmc, lacking)
        # A partially expanded resource is read individually instead.
        brought = [uri for uri, names in lacking.items() if names <= absent]
        if len(brought) > 1:
            found.append(ReadingRequest(query, tuple(pick for uri in brought for pick in picks[uri])))
    return found
