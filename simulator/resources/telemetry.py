"""The telemetry service: a metric report with all readings, and its faults."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import msgspec

from simulator.lab import DeviceModelKind
from simulator.odata import V1, Body, identity, link
from simulator.resources.chassis import FALCON
from simulator.resources.thermal import SensorPoint, current_sensor, sensor_points
from simulator.service import Falcon
from simulator.state import ERROR_COUNTERS, SimulatedLink, SimulatedSlot, SwitchPort
from simulator.tree import RawReply, ResourceNode

SERVICE = f"{V1}/TelemetryService"
REPORTS = f"{SERVICE}/MetricReports"
DEFINITIONS = f"{SERVICE}/MetricReportDefinitions"
REPORT_URI = f"{REPORTS}/All"
REPORT_NAME = "Every reading of the chassis"
RECORDED_REPORTS, LATE_REPORTS = 10, 120  # kept (100 KB each), and while reports are sent late
JSON_NAN = msgspec.Raw(b"NaN")  # not valid in JSON, but some services write it


class ReportedMetric(msgspec.Struct, rename="pascal"):
    """One value of the report; absent devices have none."""

    metric_id: str
    metric_value: str | msgspec.Raw | None
    timestamp: str
    metric_property: str


@dataclass(frozen=True)
class ReportPoint:
    """One reading of the report: its name, its property, and the function that reads it."""

    metric: str
    property: str
    read: Callable[[], str | None]


def register(falcon: Falcon) -> None:
    """Add the telemetry service, unless the service offers no reports."""
    if not falcon.options.report:
        return
    tree = falcon.tree
    report = MetricReportBuilder(falcon)

    def service() -> Body:
        return {
            **identity(SERVICE, "TelemetryService", "Telemetry Service"),
            "ServiceEnabled": True,
            "MaxReports": 1,
            "MinCollectionInterval": "PT1S",
            "MetricReports": link(REPORTS),
            "MetricReportDefinitions": link(DEFINITIONS),
            "Status": {"State": "Enabled", "Health": "OK"},
        }

    def definition() -> Body:
        return {
            **identity(f"{DEFINITIONS}/All", "MetricReportDefinition", REPORT_NAME),
            "MetricReportDefinitionType": "Periodic",
            "MetricReportDefinitionEnabled": True,
            "ReportActions": ["LogToMetricReportsCollection"],
            "ReportUpdates": "Overwrite",
            "Schedule": {"RecurrenceInterval": "PT1S"},
            "MetricReport": link(REPORT_URI),
            "Metrics": [],
            "MetricProperties": [point.property for point in report.points],
            "Status": {"State": "Enabled", "Health": "OK"},
        }

    tree.resource(SERVICE, service)
    tree.collection(REPORTS, "MetricReport", "Metric Reports", lambda: [REPORT_URI])
    tree.collection(DEFINITIONS, "MetricReportDefinition", "Definitions", lambda: [f"{DEFINITIONS}/All"])
    tree.resource(f"{DEFINITIONS}/All", definition)
    tree.add(ResourceNode(REPORT_URI, report.body, raw=report.raw))


class MetricReportBuilder:
    """Builds the report once per simulated second, and caches it in between."""

    def __init__(self, falcon: Falcon) -> None:
        self._falcon = falcon
        self._built: tuple[int, ...] = ()
        self._raw = RawReply(b"")
        # The latest reports, with the simulated seconds at which they were made.
        self._recorded: deque[tuple[float, RawReply]] = deque()
        self.points = _points(falcon)
        sensors = {f"{point.uri}#/Reading": point.uri for point in sensor_points(falcon)}
        falcon.faults.metrics = {point.metric: sensors.get(point.property, "") for point in self.points}

    def body(self) -> Body:
        """Return the report as a body, for requests with $expand or $select."""
        # Not msgspec, which refuses NaN: a fault may have inserted one.
        body: Body = json.loads(self.raw().content)
        return body

    def raw(self) -> RawReply:
        """Return the report, encoded."""
        state, faults = self._falcon.state, self._falcon.faults
        # Links change between two steps as well, and the report must show that.
        key = (state.steps, self._falcon.events.last_number, faults.changes)
        if key != self._built and not (self._built and faults.is_active("repeated_report")):
            self._built = key
            content = msgspec.json.encode(self._report())
            self._raw = RawReply(content, etag=f'"{"-".join(map(str, key))}"')
            self._recorded.append((self._falcon.clock.now(), self._raw))
            while len(self._recorded) > (LATE_REPORTS if faults.is_active("late_reports") else RECORDED_REPORTS):
                self._recorded.popleft()
        return self._selected()

    def _selected(self) -> RawReply:
        """Return the report to send: with late reports, every third is an older one."""
        for fault in self._falcon.faults.of_kind("late_reports"):
            if self._falcon.state.steps % 3 == 0:
                latest = self._falcon.clock.now() - fault.delay
                return next((report for at, report in reversed(self._recorded) if at <= latest), self._raw)
        return self._raw

    def _report(self) -> Body:
        stamp = self._falcon.clock.timestamp(self._falcon.physics.time)
        values = [
            ReportedMetric(point.metric, self._value(point.metric, value), stamp, point.property)
            for point in self.points
            if (value := point.read()) is not None
        ]
        size = max((fault.readings for fault in self._falcon.faults.of_kind("many_readings")), default=0)
        for number in range(len(values) + 1, size + 1):
            extra = f"Extra{number}"
            # Its number and noise: identical series would compress unrealistically well.
            value = f"{number + crc32(f'{extra} {stamp}'.encode()) % 1000 / 1000:.3f}"
            values.append(ReportedMetric(extra, value, stamp, f"{FALCON}/EnvironmentMetrics#/Oem/H3/{extra}"))
        return {
            **identity(REPORT_URI, "MetricReport", REPORT_NAME),
            "Timestamp": stamp,
            "MetricReportDefinition": link(f"{DEFINITIONS}/All"),
            "MetricValues": values,
            "MetricValues@odata.count": len(values),
        }

    def _value(self, metric: str, value: str) -> str | msgspec.Raw | None:
        """Return the reported value after the faults; only the first three apply to values that are not numbers."""
        for fault in self._falcon.faults.of_kind("bad_values"):
            if fault.target in metric:
                if fault.value == "nan":
                    return JSON_NAN
                if fault.value == "null":
                    return None
                if fault.value == "text":
                    return "not available"
                if re.fullmatch(r"[\d.]+", value):
                    return f"-{value}" if float(value) else "-1"
        return value


def _points(falcon: Falcon) -> list[ReportPoint]:
    points = [
        ReportPoint(f"{point.chassis.rpartition('/')[2]}_{point.id}", f"{point.uri}#/Reading", _sensor(falcon, point))
        for point in sensor_points(falcon)
    ]
    for drawer in falcon.state.drawers.values():
        for port in drawer.switch_ports():
            points += _port_points(port)
        for slot in drawer.slots.values():
            if slot.device is not None and slot.device.model.kind is DeviceModelKind.GPU:
                points.append(_gpu_point(slot))
    return points


def _sensor(falcon: Falcon, point: SensorPoint) -> Callable[[], str | None]:
    def text() -> str | None:
        value = current_sensor(falcon, point).read()
        return None if value is None else f"{value:.2f}"

    return text


def _port_points(port: SwitchPort) -> list[ReportPoint]:
    wire, uri = port.link, port.port_uri
    name = f"drawer{port.drawer}_{wire.port}"
    points = [
        ReportPoint(f"{name}_RXBytes", f"{uri}/Metrics#/RXBytes", lambda: str(int(wire.received_bytes))),
        ReportPoint(f"{name}_TXBytes", f"{uri}/Metrics#/TXBytes", lambda: str(int(wire.transmitted_bytes))),
        ReportPoint(f"{name}_LinkStatus", f"{uri}#/LinkStatus", lambda: wire.status),
        ReportPoint(f"{name}_ActiveWidth", f"{uri}#/ActiveWidth", lambda: str(wire.lanes)),
        ReportPoint(f"{name}_CurrentSpeedGbps", f"{uri}#/CurrentSpeedGbps", lambda: f"{wire.gbps:g}"),
    ]
    return points + [
        ReportPoint(f"{name}_{counter}", f"{uri}/Metrics#/PCIeErrors/{counter}", partial(_count, wire, counter))
        for counter in ERROR_COUNTERS
    ]


def _count(wire: SimulatedLink, counter: str) -> str:
    return str(wire.errors[counter])


def _gpu_point(slot: SimulatedSlot) -> ReportPoint:
    def read() -> str | None:
        device = slot.present
        return None if device is None else f"{100 * device.load:.1f}"

    return ReportPoint(
        f"drawer{slot.drawer}_gpu{slot.number}_BandwidthPercent",
        f"{slot.gpu_uri}/ProcessorMetrics#/BandwidthPercent",
        read,
    )
