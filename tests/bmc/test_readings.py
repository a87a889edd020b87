"""Readings come from the report where there is one, from expanded collections or single resources where not."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.errors import BmcError, Malformed, Unreachable
from fabric.bmc.readings import (
    MAX_INCOMPLETE_REPORTS,
    ReadingPlan,
    ReadingRequest,
    ReportPlan,
    ResourcePlan,
    plan_readings,
)
from fabric.bmc.series import LINK_STATUSES, Quantity, SeriesFactory
from fabric.bmc.types import DeviceKind, Inventory
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import SHARED, serve_mockup
from tests.bmc.nonsense import ROOT, NonsenseServer, Reply, chassis, collection, service_root

REPORT = f"{ROOT}/TelemetryService/MetricReports/All"
SWITCH = f"{ROOT}/Fabrics/PCIe/Switches/drawer1_switch"


def report(*values: tuple[str, Any]) -> bytes:
    """Return a report with these properties and values."""
    return msgspec.json.encode(
        {"MetricValues": [{"MetricProperty": name, "MetricValue": value} for name, value in values]}
    )


def plan_of(*properties: str) -> ReportPlan:
    return ReportPlan(REPORT, list(properties), SeriesFactory(Inventory()))


def values_by_property(plan: ReadingPlan, values: Iterable[float]) -> dict[str, float]:
    return {series.property: value for series, value in zip(plan.series, values, strict=True)}


async def test_every_reading_of_a_falcon_comes_in_one_request(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    inventory = await discover(bmc)
    plan = await plan_readings(bmc, inventory)
    assert isinstance(plan, ReportPlan)
    assert plan.period == 1.0
    before = sum(chassis.state()["requests"].values())
    reading = await plan.read(bmc)
    assert sum(chassis.state()["requests"].values()) == before + 1
    assert len(reading.values) == len(plan.series) > 350
    assert not any(math.isnan(value) for value in reading.values)
    assert abs(reading.at - time.time()) < 5


async def test_every_series_of_a_falcon_says_what_it_measures_and_whose_it_is(bmc: BmcClient) -> None:
    inventory = await discover(bmc)
    plan = await plan_readings(bmc, inventory)
    known = {
        each.uri
        for name in ("ports", "devices", "sensors", "fans", "drawers", "chassis")
        for each in getattr(inventory, name)
    }
    assert {series.owner_uri for series in plan.series} <= known
    assert not [series for series in plan.series if series.quantity is Quantity.OTHER]
    of_port = {
        (series.quantity, series.detail) for series in plan.series if series.owner_uri == f"{SWITCH}/Ports/slot1"
    }
    assert {Quantity.RX_BYTES, Quantity.TX_BYTES, Quantity.LINK_STATUS, Quantity.LINK_WIDTH, Quantity.LINK_SPEED} <= {
        quantity for quantity, _ in of_port
    }
    assert (Quantity.ERRORS, "CorrectableErrorCount") in of_port
    gpu = {series.quantity for series in plan.series if series.owner_uri.endswith("drawer1/PCIeDevices/slot1")}
    assert {Quantity.UTILISATION, Quantity.TEMPERATURE} <= gpu


async def test_a_link_that_is_up_reads_as_its_place_in_the_list_of_states(bmc: BmcClient) -> None:
    plan = await plan_readings(bmc, await discover(bmc))
    values = values_by_property(plan, (await plan.read(bmc)).values)
    assert values[f"{SWITCH}/Ports/H1#/LinkStatus"] == LINK_STATUSES["LinkUp"]
    assert values[f"{SWITCH}/Ports/H1#/ActiveWidth"] == 16
    assert values[f"{SWITCH}/Ports/H1#/CurrentSpeedGbps"] == 256


async def test_a_device_that_is_pulled_leaves_gaps_and_one_that_is_put_in_outdates_the_plan(
    bmc: BmcClient, chassis: SimulatorProcess
) -> None:
    plan = await plan_readings(bmc, await discover(bmc))
    fault = chassis.fault("surprise_removal", target="drawer1slot1")
    values = values_by_property(plan, (await plan.read(bmc)).values)
    assert any(math.isnan(value) for value in values.values())
    assert not all(math.isnan(value) for value in values.values())
    smaller = await plan_readings(bmc, await discover(bmc))
    chassis.end_fault(fault)
    assert not any(math.isnan(value) for value in (await smaller.read(bmc)).values)
    assert smaller.is_outdated
    assert not plan.is_outdated
    assert not any(math.isnan(value) for value in (await plan.read(bmc)).values)


async def test_a_bmc_that_is_away_raises(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    plan = await plan_readings(bmc, await discover(bmc))
    chassis.fault("reset_connections")
    with pytest.raises(Unreachable):
        await plan.read(bmc)


async def test_without_a_report_collections_are_expanded(bmc: BmcClient) -> None:
    inventory = await discover(bmc)
    service = msgspec.structs.replace(inventory.service, metric_report_uris=())
    by_report = await plan_readings(bmc, inventory)
    plan = await plan_readings(bmc, msgspec.structs.replace(inventory, service=service))
    assert isinstance(plan, ResourcePlan)
    gpus = sum(device.kind is DeviceKind.GPU for device in inventory.devices)
    assert len(plan.sources) < 12 + gpus, "sensors of three chassis, ports of two switches, fans; use of GPUs"
    expected = values_by_property(by_report, (await by_report.read(bmc)).values)
    values = values_by_property(plan, (await plan.read(bmc)).values)
    links = [name for name in values if name.endswith(("LinkStatus", "ActiveWidth", "CurrentSpeedGbps"))]
    assert len(links) == 60
    assert {name: values[name] for name in links} == {name: expected[name] for name in links}
    sensors = [name for name in values if name.endswith("#/Reading")]
    assert len(sensors) == 53
    silent = {f"{sensor.uri}#/Reading" for sensor in inventory.sensors if sensor.reading is None}
    assert {name for name in sensors if math.isnan(values[name])} == silent


async def test_without_report_and_expand_each_resource_is_asked_more_slowly(bmc: BmcClient) -> None:
    inventory = await discover(bmc)
    service = msgspec.structs.replace(inventory.service, metric_report_uris=(), expand=False)
    plan = await plan_readings(bmc, msgspec.structs.replace(inventory, service=service))
    assert isinstance(plan, ResourcePlan)
    assert len(plan.sources) > 80
    assert plan.period > 5
    values = values_by_property(plan, (await plan.read(bmc)).values)
    silent = {f"{sensor.uri}#/Reading" for sensor in inventory.sensors if sensor.reading is None}
    assert {name for name, value in values.items() if math.isnan(value)} == silent


def test_a_service_is_read_as_often_as_it_bears_it() -> None:
    plan = ResourcePlan((), tuple(ReadingRequest(f"/redfish/v1/Chassis/{number}", ()) for number in range(60)))
    assert plan.period == 6.0, "ten requests a second, until its speed is known"

    def after(*seconds: float) -> float:
        for one in seconds:
            plan.learn(one)
        return plan.period

    assert after(0.4, 0.4, 0.4, 0.4) == 6.0
    assert after(0.4) == 2.0, "never more than 40 requests a second, however fast it is"
    assert after(0.4, 9.0, 0.4, 9.0, 0.4) == 2.0, "the median counts"
    assert after(4.1, 4.1, 4.1) == 9.0, "a slow one is busy with readings half of the time"
    assert after(4.0, 4.0, 4.0, 4.0, 4.0) == 9.0, "and does not go back and forth"
    assert after(*[1000.0] * 5) == 60.0
    larger = ResourcePlan((), plan.sources * 2)
    larger.take_over(ResourcePlan((), plan.sources))
    assert larger.period == 12.0


@pytest.mark.process
@pytest.mark.skipif(not (SHARED / "mockups").is_dir(), reason="../shared/redfish/mockups is missing")
async def test_a_published_service_without_report_is_read_from_its_sensors_and_ports() -> None:
    with serve_mockup(SHARED / "mockups" / "openbmc-bmcweb-live") as url:
        async with BmcClient(pinned_open(url)) as bmc:
            inventory = await discover(bmc)
            plan = await plan_readings(bmc, inventory)
            reading = await plan.read(bmc)
    values = values_by_property(plan, reading.values)
    # Its enclosure lists the sensors of both drawers again.
    assert sum(bool(sensor.copy_of) for sensor in inventory.sensors) == 18
    for sensor in inventory.sensors:
        if "#" not in sensor.uri and not sensor.copy_of:
            assert values[f"{sensor.uri}#/Reading"] == pytest.approx(sensor.reading, nan_ok=True)
    errors = [series for series in plan.series if series.quantity is Quantity.ERRORS]
    assert len(errors) == 20 * 9


def pinned_open(url: str) -> Any:
    from fabric.bmc.addresses import BmcAddress

    return BmcAddress(url=url)


async def test_a_report_of_past_averages_does_not_take_the_sensors_place() -> None:
    one, sensors = f"{ROOT}/Chassis/one", f"{ROOT}/Chassis/one/Sensors"
    names = [f"{sensors}/{number}" for number in range(6)]
    routes = {
        ROOT: service_root(Chassis={"@odata.id": one}, TelemetryService={"@odata.id": REPORT}),
        one: chassis(one, Sensors={"@odata.id": sensors}),
        sensors: collection(sensors, "Sensor", *names),
        **{
            name: {"@odata.id": name, "@odata.type": "#Sensor.v1_12_0.Sensor", "Id": name[-1], "Name": name[-1],
                   "Reading": 20.5, "ReadingUnits": "Cel"} for name in names
        },
        REPORT: {
            "@odata.id": REPORT, "@odata.type": "#MetricReport.v1_5_0.MetricReport", "Id": "All", "Name": "Average",
            "MetricValues": [{"MetricProperty": f"{one}/Power#/0/PowerConsumedWatts", "MetricValue": "100"}] * 3,
        },
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            plan = await plan_readings(bmc, await discover(bmc))
            assert isinstance(plan, ResourcePlan)
            assert tuple((await plan.read(bmc)).values) == (20.5,) * 6
            server.routes[names[2]] = Reply(404)
            values = (await plan.read(bmc)).values
            assert [math.isnan(value) for value in values] == [False, False, True, False, False, False]
            server.routes = {}
            with pytest.raises(BmcError):
                await plan.read(bmc)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("21.5", 21.5), (21.5, 21.5), (3, 3.0), ("LinkUp", 4.0), ("LinkDown", 1.0), ("1e3", 1000.0), ("-0.5", -0.5)],
)
def test_a_value_is_read_as_text_and_as_a_number(given: Any, expected: float) -> None:
    assert tuple(plan_of("/a#/b").decode(report(("/a#/b", given)), 0.0).values) == (expected,)


@pytest.mark.parametrize("given", [None, "", "n/a", "NaN", "Infinity", True, "true"])
def test_a_value_that_is_no_number_is_a_gap_and_never_zero(given: Any) -> None:
    (value,) = plan_of("/a#/b").decode(report(("/a#/b", given)), 0.0).values
    assert math.isnan(value)


@pytest.mark.parametrize(
    "given", [b"NaN", b"-Infinity", b"1e999", b"9" * 400, b'{"Value": 1}', b"[1]", b'"\\ud800"', b'"\xff"']
)
def test_a_value_that_json_or_the_schema_do_not_know_is_a_gap_and_the_others_are_read(given: bytes) -> None:
    raw = report(("/a#/x", "1"), ("/a#/y", "odd"), ("/a#/z", 3)).replace(b'"odd"', given)
    first, odd, last = plan_of("/a#/x", "/a#/y", "/a#/z").decode(raw, 0.0).values
    assert (first, last) == (1.0, 3.0)
    assert math.isnan(odd)


@pytest.mark.parametrize("entry", [b"null", b"5", b"{}", b'{"MetricProperty": null, "MetricValue": "1"}'])
def test_an_entry_without_a_name_is_left_out_and_the_others_are_read(entry: bytes) -> None:
    raw = report(("/a#/x", "1"), ("/a#/y", "2")).replace(b"[", b"[" + entry + b",", 1)
    assert tuple(plan_of("/a#/x", "/a#/y").decode(raw, 0.0).values) == (1.0, 2.0)


def test_a_report_whose_time_is_no_text_is_read_without_it() -> None:
    raw = report(("/a#/x", "1")).replace(b"{", b'{"Timestamp": 5,', 1)
    reading = plan_of("/a#/x").decode(raw, 0.0)
    assert (*reading.values, reading.measured_at) == (1.0, 0.0)


def test_another_order_is_followed_and_a_missing_property_is_a_gap() -> None:
    plan = plan_of("/a#/x", "/a#/y", "/a#/z")
    for _ in range(2):
        assert tuple(plan.decode(report(("/a#/z", "3"), ("/a#/x", "1"), ("/a#/y", "2")), 0.0).values) == (1.0, 2.0, 3.0)
    first, second, third = plan.decode(report(("/a#/z", "3"), ("/a#/x", "1")), 0.0).values
    assert (first, third) == (1.0, 3.0)
    assert math.isnan(second)
    assert tuple(plan.decode(report(("/a#/x", "1"), ("/a#/y", "2"), ("/a#/z", "3")), 0.0).values) == (1.0, 2.0, 3.0)


def test_a_property_that_comes_several_times_counts_with_its_last_value() -> None:
    plan = plan_of("/a#/x", "/a#/x", "/a#/y")
    assert [series.property for series in plan.series] == ["/a#/x", "/a#/y"]
    assert tuple(plan.decode(report(("/a#/x", "1"), ("/a#/x", "2"), ("/a#/y", "3")), 0.0).values) == (2.0, 3.0)


def test_a_new_property_outdates_the_plan_and_the_others_are_read_on() -> None:
    plan = plan_of("/a#/x", "/a#/y")
    for _ in range(2):
        assert tuple(plan.decode(report(("/a#/new", "2"), ("/a#/y", "3"), ("/a#/x", "1")), 0.0).values) == (1.0, 3.0)
        assert plan.is_outdated


def test_a_property_that_is_missing_for_half_a_minute_outdates_the_plan() -> None:
    plan = plan_of("/a#/x", "/a#/y")
    for _ in range(MAX_INCOMPLETE_REPORTS - 1):
        plan.decode(report(("/a#/x", "1")), 0.0)
    plan.decode(report(("/a#/x", "1"), ("/a#/y", "2")), 0.0)
    assert not plan.is_outdated
    for _ in range(MAX_INCOMPLETE_REPORTS):
        assert not plan.is_outdated
        plan.decode(report(("/a#/x", "1")), 0.0)
    assert plan.is_outdated


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"MetricValues": 5}', b'{"MetricValues": [5]}', b"\xff"])
def test_a_report_that_is_none_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        plan_of("/a#/x").decode(raw, 0.0)
