"""The telemetry service: one report with every reading of the chassis."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from simulator.catalog import Kind
from simulator.errors import Body
from simulator.reportfaults import ReportFaults
from simulator.resources.chassis import FALCON, gpu_uri
from simulator.resources.ports import Place, places, port_uri
from simulator.resources.thermal import SensorPoint, sensor_now, sensor_points
from simulator.state import ERROR_COUNTERS, Link, Slot
from simulator.tree import Node, Raw, collection, link

if TYPE_CHECKING:
    from simulator.service import Falcon

SERVICE = "/redfish/v1/TelemetryService"
REPORTS = f"{SERVICE}/MetricReports"
DEFINITIONS = f"{SERVICE}/MetricReportDefinitions"
ALL = f"{REPORTS}/All"


class MetricValue(msgspec.Struct, rename="pascal", omit_defaults=True):
    """One value of the report; absent things have no value."""

    metric_id: str
    metric_value: str | msgspec.Raw | None
    timestamp: str
    metric_property: str


class Report(msgspec.Struct):
    """The MetricReport resource in the order of its properties on the wire."""

    odata_id: str = msgspec.field(name="@odata.id")
    odata_type: str = msgspec.field(name="@odata.type")
    id: str = msgspec.field(name="Id")
    name: str = msgspec.field(name="Name")
    timestamp: str = msgspec.field(name="Timestamp")
    definition: Body = msgspec.field(name="MetricReportDefinition")
    values: list[MetricValue] = msgspec.field(name="MetricValues")
    count: int = msgspec.field(name="MetricValues@odata.count")


@dataclass(frozen=True)
class Point:
    """One reading of the report: its name, its property, and the function that reads it."""

    metric: str
    property: str
    read: Callable[[], str | None]


def register(falcon: Falcon) -> None:
    """Add the telemetry service, unless the service offers no reports."""
    if not falcon.options.report:
        return
    tree = falcon.tree
    report = AllReadings(falcon)

    def service() -> Body:
        return {
            "@odata.id": SERVICE,
            "@odata.type": "#TelemetryService.v1_4_1.TelemetryService",
            "Id": "TelemetryService",
            "Name": "Telemetry Service",
            "ServiceEnabled": True,
            "MaxReports": 1,
            "MinCollectionInterval": "PT1S",
            "MetricReports": link(REPORTS),
            "MetricReportDefinitions": link(DEFINITIONS),
            "Status": {"State": "Enabled", "Health": "OK"},
        }

    def definition() -> Body:
        return {
            "@odata.id": f"{DEFINITIONS}/All",
            "@odata.type": "#MetricReportDefinition.v1_4_7.MetricReportDefinition",
            "Id": "All",
            "Name": "Every reading of the chassis",
            "MetricReportDefinitionType": "Periodic",
            "MetricReportDefinitionEnabled": True,
            "ReportActions": ["LogToMetricReportsCollection"],
            "ReportUpdates": "Overwrite",
            "Schedule": {"RecurrenceInterval": "PT1S"},
            "MetricReport": link(ALL),
            "Metrics": [],
            "MetricProperties": [point.property for point in report.points],
            "Status": {"State": "Enabled", "Health": "OK"},
        }

    tree.resource(SERVICE, service)
    tree.resource(REPORTS, lambda: collection(REPORTS, "MetricReport", "Metric Reports", [ALL]))
    tree.resource(
        DEFINITIONS,
        lambda: collection(DEFINITIONS, "MetricReportDefinition", "Definitions", [f"{DEFINITIONS}/All"]),
    )
    tree.resource(f"{DEFINITIONS}/All", definition)
    tree.add(Node(ALL, report.body, raw=report.raw))


class AllReadings:
    """Builds the report once a simulated second, and answers from memory in between."""

    def __init__(self, falcon: Falcon) -> None:
        self._falcon = falcon
        self._encoder = msgspec.json.Encoder()
        self._built: tuple[int, ...] = ()
        self._raw = Raw(b"")
        self._faults = ReportFaults(falcon.faults)
        self.points = _points(falcon)
        sensors = {f"{point.uri}#/Reading": point.uri for point in sensor_points(falcon)}
        falcon.faults.metrics = {point.metric: sensors.get(point.property, "") for point in self.points}

    def body(self) -> Body:
        """Return the report as a body, for requests that expand or select."""
        # Not msgspec, which takes no NaN: a fault may have put one in.
        body: Body = json.loads(self.raw().content)
        return body

    def raw(self) -> Raw:
        """Return the report, encoded."""
        state, faults = self._falcon.state, self._falcon.faults
        # Links change between two steps as well, and a report must not hide that.
        key = (state.steps, self._falcon.events.last_number, faults.changes)
        if key != self._built and not (self._built and faults.is_active("repeated_report")):
            self._built = key
            content = self._encoder.encode(self._report())
            self._raw = Raw(content, etag=f'"{"-".join(map(str, key))}"')
            self._faults.keep(self._falcon.clock.now(), self._raw)
        return self._faults.sent(self._falcon.clock.now(), state.steps, self._raw)

    def _report(self) -> Report:
        stamp = self._falcon.clock.timestamp(self._falcon.physics.time)
        values = []
        for point in self.points:
            value = point.read()
            if value is not None:
                values.append(MetricValue(point.metric, self._faults.value(point.metric, value), stamp, point.property))
        for number in range(len(values) + 1, self._faults.most + 1):
            extra = f"Extra{number}"
            # Its number, and noise: what moves alike would be stored in no room at all.
            value = f"{number + crc32(f'{extra} {stamp}'.encode()) % 1000 / 1000:.3f}"
            values.append(MetricValue(extra, value, stamp, f"{FALCON}/EnvironmentMetrics#/Oem/H3/{extra}"))
        return Report(
            ALL,
            "#MetricReport.v1_5_2.MetricReport",
            "All",
            "Every reading of the chassis",
            stamp,
            {"@odata.id": f"{DEFINITIONS}/All"},
            values,
            len(values),
        )


def _points(falcon: Falcon) -> list[Point]:
    points = [
        Point(f"{point.chassis.rpartition('/')[2]}_{point.id}", f"{point.uri}#/Reading", _sensor(falcon, point))
        for point in sensor_points(falcon)
    ]
    for drawer in falcon.state.drawers.values():
        for place in places(drawer):
            points += _port_points(place)
        for slot in drawer.slots.values():
            if slot.device is not None and slot.device.model.kind is Kind.GPU:
                points.append(_gpu_point(slot))
    return points


def _sensor(falcon: Falcon, point: SensorPoint) -> Callable[[], str | None]:
    def text() -> str | None:
        value = sensor_now(falcon, point).read()
        return None if value is None else f"{value:.2f}"

    return text


def _port_points(place: Place) -> list[Point]:
    wire, uri = place.link, port_uri(place)
    name = f"drawer{place.drawer}_{wire.port}"
    points = [
        Point(f"{name}_RXBytes", f"{uri}/Metrics#/RXBytes", lambda: str(int(wire.received_bytes))),
        Point(f"{name}_TXBytes", f"{uri}/Metrics#/TXBytes", lambda: str(int(wire.transmitted_bytes))),
        Point(f"{name}_LinkStatus", f"{uri}#/LinkStatus", lambda: wire.status),
        Point(f"{name}_ActiveWidth", f"{uri}#/ActiveWidth", lambda: str(wire.lanes)),
        Point(f"{name}_CurrentSpeedGbps", f"{uri}#/CurrentSpeedGbps", lambda: f"{wire.gbps:g}"),
    ]
    return points + [
        Point(f"{name}_{counter}", f"{uri}/Metrics#/PCIeErrors/{counter}", partial(_count, wire, counter))
        for counter in ERROR_COUNTERS
    ]


def _count(wire: Link, counter: str) -> str:
    return str(wire.errors[counter])


def _gpu_point(slot: Slot) -> Point:
    def read() -> str | None:
        device = slot.present
        return None if device is None else f"{100 * device.load:.1f}"

    return Point(
        f"drawer{slot.drawer}_gpu{slot.number}_BandwidthPercent",
        f"{gpu_uri(slot)}/ProcessorMetrics#/BandwidthPercent",
        read,
    )
