"""From rules, thresholds and what a chassis measures to the checks that are played; pure tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fabric.bmc.series import Quantity, ReadingSeries
from fabric.bmc.types import RedfishFan, RedfishSensor, Thresholds
from fabric.inventory.selectors import ReadingOwner
from telemetry.alerts.checks import ActiveRule, ChassisFacts, PlannedChecks, RuleSet, plan_checks
from telemetry.alerts.engine import NO_COLUMN
from telemetry.alerts.rules import (
    BUILT_IN_RULES,
    AlertScope,
    AlertSubject,
    Condition,
    Terms,
    duration_label,
    limit_label,
    value_label,
)
from telemetry.live.catalogue import Sample, SeriesEntry

GPU = AlertSubject(object="device", chassis=1, drawer=1, device=3, device_kind="gpu", tenant=5, name="GPU 3")
LINK = AlertSubject(
    object="port", chassis=1, drawer=1, device=3, device_kind="gpu", port=7, tenant=5, name="Link of GPU 3"
)
UPSTREAM = AlertSubject(object="port", chassis=1, drawer=2, port=8, host_port=2, name="Host port H1")
WHOLE = AlertSubject(object="chassis", chassis=1, name="falcon")
FACTS = ChassisFacts(1, "falcon", {("device", 3): GPU, ("port", 7): LINK, ("port", 8): UPSTREAM, ("chassis", 0): WHOLE})


def entry(key: str, quantity: str = "", unit: str = "") -> SeriesEntry:
    kind, pk, rest = key.split("/", 2)
    return SeriesEntry(key=key, object=kind, id=int(pk), quantity=quantity or rest.split("/")[0], label="x", unit=unit)


ENTRIES = [
    entry("device/3/temperature_celsius", unit="°C"),
    entry("port/7/link_status", unit="state"),
    entry("port/8/link_status", unit="state"),
    entry("port/7/errors/ReplayCount"),
    entry("chassis/0/power_watts", unit="W"),
    entry("port/7/link_width_lanes", unit="lanes"),
    entry("device/99/temperature_celsius", unit="°C"),  # of a device that the database does not know
]


def planned(metric: str, scope: AlertScope | None = None, condition: Condition = Condition.ABOVE) -> PlannedChecks:
    rule = ActiveRule(pk=7, name="r", metric=metric, scope=scope or AlertScope(), terms=Terms(condition=condition),
                       severity="Warning")  # fmt: skip
    return plan_checks(rule_set=RuleSet(rules=(rule,)), facts=FACTS, entries=ENTRIES)


def keys(plan: PlannedChecks) -> list[str]:
    return [check.key for check in plan.checks]


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("temperature_celsius", ["device/3/temperature_celsius", "device/99/temperature_celsius"]),
        ("link_status", ["port/7/link_status", "port/8/link_status"]),
        ("port/*/link_status", ["port/7/link_status", "port/8/link_status"]),
        ("port/7/link_status", ["port/7/link_status"]),
        ("port/[78]/link_status", ["port/7/link_status", "port/8/link_status"]),
        ("port/*/errors/*", ["port/7/errors/ReplayCount"]),
        ("port/*/errors/*/rate", ["port/7/errors/ReplayCount/rate"]),
        ("error_rate", ["port/7/errors/ReplayCount/rate"]),
        ("errors", ["port/7/errors/ReplayCount"]),
        ("TEMPERATURE_CELSIUS", []),
        ("nothing", []),
    ],
)
def test_a_metric_is_a_quantity_or_a_pattern_of_keys(metric: str, found: list[str]) -> None:
    assert keys(planned(metric)) == found


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        (AlertScope(), 2),
        (AlertScope(kind="chassis", id=1), 2),
        (AlertScope(kind="chassis", id=2), 0),
        (AlertScope(kind="drawer", id=1), 1),
        (AlertScope(kind="drawer", id=2), 1),
        (AlertScope(kind="device_kind", device_kind="gpu"), 1),
        (AlertScope(kind="device_kind", device_kind="nic"), 0),
        (AlertScope(kind="device", id=3), 1),
        (AlertScope(kind="port", id=8), 1),
        (AlertScope(kind="tenant", id=5), 1),
        (AlertScope(kind="tenant", id=6), 0),
        (AlertScope(kind="device"), 0),
    ],
)
def test_a_scope_takes_in_the_link_of_its_devices(scope: AlertScope, found: int) -> None:
    assert len(planned("link_status", scope).checks) == found


def test_what_is_missing_is_named_by_the_scope_or_by_the_key_although_nothing_is_sent() -> None:
    for metric, scope in (("power_watts", AlertScope(kind="device", id=3)), ("device/3/power_watts", AlertScope())):
        plan = planned(metric, scope, Condition.MISSING)
        assert (keys(plan), plan.places) == (["device/3/power_watts"], (NO_COLUMN,))
    for metric, scope in (("power_watts", AlertScope(kind="drawer", id=1)), ("device/44/power_watts", AlertScope())):
        assert planned(metric, scope, Condition.MISSING).checks == ()


def sample(at: float, counted: float, **more: float) -> Sample:
    values = np.zeros(len(ENTRIES))
    values[3] = counted
    return Sample(at=at, measured_at=more.get("measured_at", 0.0), counted=values, values=values)


def test_the_rate_of_a_counter_is_by_the_bmcs_clock_and_none_after_a_reset() -> None:
    plan = planned("port/*/errors/*/rate")
    (place,) = plan.places
    assert plan.values(sample(10, 100), None)[place] != plan.values(sample(10, 100), None)[place]  # NaN
    assert plan.values(sample(12, 150), sample(10, 100))[place] == 25
    assert plan.values(sample(12, 150, measured_at=14.0), sample(10, 100, measured_at=10.0))[place] == 12.5
    assert math.isnan(plan.values(sample(12, 3), sample(10, 100))[place])
    assert math.isnan(plan.values(sample(10, 100), sample(10, 100))[place])


def sensor_plan(thresholds: Thresholds, names: frozenset[str] = frozenset(BUILT_IN_RULES)) -> PlannedChecks:
    uri = "/redfish/v1/Chassis/d/Sensors/t"
    series = [ReadingSeries(property=f"{uri}#/Reading", owner_uri="x", quantity=Quantity.TEMPERATURE)]
    sensor = RedfishSensor(uri=uri, name="t", thresholds=thresholds)
    return plan_checks(
        rule_set=RuleSet(built_ins=names), facts=FACTS, entries=ENTRIES[:1], series=series, sensors=[sensor]
    )


def test_the_sensors_own_thresholds_ring_by_default() -> None:
    plan = sensor_plan(Thresholds(upper_caution=80, upper_critical=90, upper_fatal=100, lower_caution=5))
    checks = {check.cause: (check.severity, check.terms) for check in plan.checks}
    assert {cause: severity for cause, (severity, _) in checks.items()} == {
        "sensor_critical:upper": "Critical", "sensor_caution:upper": "Warning", "sensor_caution:lower": "Warning",
    }  # fmt: skip
    assert (checks["sensor_critical:upper"][1].value, checks["sensor_critical:upper"][1].ends_at) == (90, 88.2)
    assert checks["sensor_caution:lower"][1].condition is Condition.BELOW
    assert checks["sensor_caution:lower"][1].ends_at == pytest.approx(5.1)


def test_a_fatal_limit_alone_is_critical_and_limits_that_are_no_numbers_are_none() -> None:
    (check,) = sensor_plan(Thresholds(upper_fatal=100)).checks
    assert (check.cause, check.terms.value) == ("sensor_critical:upper", 100)
    assert sensor_plan(Thresholds(upper_caution=math.inf, lower_critical=math.nan)).checks == ()
    assert sensor_plan(Thresholds(upper_caution=80), frozenset({"fan_failed"})).checks == ()


def test_a_sensor_of_the_older_thermal_resource_is_found_by_its_fragment() -> None:
    uri = "/redfish/v1/Chassis/d/Thermal#/Temperatures/0"
    plan = plan_checks(
        rule_set=RuleSet(built_ins=frozenset({"sensor_critical"})), facts=FACTS, entries=ENTRIES[:1],
        series=[ReadingSeries(property=f"{uri}/ReadingCelsius", owner_uri="x", quantity=Quantity.TEMPERATURE)],
        sensors=[RedfishSensor(uri=uri, name="t", thresholds=Thresholds(upper_critical=70))],
    )  # fmt: skip
    assert [check.terms.value for check in plan.checks] == [70]


@pytest.mark.parametrize(("health", "value"), [("OK", 0.0), ("", 0.0), ("Warning", 1.0), ("Critical", 1.0)])
def test_a_fan_is_judged_by_its_health(health: str, value: float) -> None:
    fan = RedfishFan(uri="/fans/1", name="Fan 1", health=health)
    plan = plan_checks(rule_set=RuleSet(built_ins=frozenset({"fan_failed"})), facts=FACTS, entries=ENTRIES, fans=[fan],
                       owners={"/fans/1": ReadingOwner("chassis", 0)})  # fmt: skip
    (check,) = plan.checks
    assert plan.values(sample(1, 1), None)[plan.places[0]] == value
    assert check.key == "chassis/0/fan/Fan 1"


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(97.234, "°C", "97.2 °C"), (1234.4, "W", "1,234 W"), (4.0, "state", "up"), (9.0, "state", "9"),
     (2.5e9, "B/s", "2.5 GB/s"), (0.00012, "1/s", "0.00012 1/s"), (math.nan, "W", "no value"), (7.0, "", "7"),
     (math.inf, "W", "inf W")],
)  # fmt: skip
def test_values_are_told_with_fixed_decimals(value: float, unit: str, words: str) -> None:
    assert value_label(value, unit) == words


def test_limits_and_times_are_told_as_they_were_typed() -> None:
    assert limit_label(85.0, "°C") == "85 °C"
    assert limit_label(0.125, "V") == "0.125 V"
    assert [duration_label(one) for one in (0.5, 30, 90, 300, 330, 7200, 9000, 3 * 86400)] == [
        "0.5 s", "30 s", "90 s", "5 min", "5 min 30 s", "2 h", "2 h 30 min", "3 d",
    ]  # fmt: skip
    assert Terms(condition=Condition.DIFFERS, value=4, hold=30).words("state") == "other than up for 30 s"
    assert Terms(condition=Condition.MISSING).words("W") == "no value"
