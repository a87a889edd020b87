"""A rule is about what the site knows, or what a chassis measures or has measured; else it is told what is near."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import redis
from django.conf import settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from accounts.audit.models import AuditEntry
from core.errors import Invalid, Unavailable
from fabric.inventory.models import Chassis
from telemetry.alerts import rule_services
from telemetry.alerts.models import Rule
from telemetry.alerts.rule_services import RuleValues, require_known_metric, rule_add, rule_edit, rule_values
from tests.telemetry.alerts.conftest import Lab
from tests.telemetry.history.conftest import entry, record

pytestmark = pytest.mark.django_db(databases="__all__")
RULE = RuleValues(name="Hot", metric="temperature_celsius", condition="above", value=80.0)


@pytest.fixture
def measured(lab: Lab) -> Iterator[None]:
    """A chassis that measures something of its own now, and measured something else an hour ago."""
    key = f"live:catalogue:{lab.chassis.pk}"
    client = redis.Redis.from_url(settings.REDIS_URL)
    entries = [
        entry("chassis", 0, "other/PumpDuty", "Pump duty", "%"),
        {**entry("port", 7, "errors/VendorErrorCount", "Vendor error count", ""), "quantity": "errors"},
        entry("drawer", 3, "temperature_celsius/Chassis.drawer1.Sensors.inlet", "Inlet", "°C"),
    ]
    client.set(key, json.dumps({"revision": 1, "series": entries}))
    record(lab.chassis.pk, [entry("chassis", 0, "other/Humidity", "Humidity", "%")], [time.time() - 3600.0],
           lambda _at: (40.0,))  # fmt: skip
    yield
    client.delete(key)
    client.close()


def test_what_the_site_knows_may_be_watched_before_any_chassis_has_it() -> None:
    for metric in (
        "temperature_celsius", "rx_bytes_per_second", "error_rate", "errors", "link_status", "voltage_volts",
        "port/*/link_status", "port/[78]/link_status", "port/7/errors/ReplayCount/rate", "port/*/errors/*",
        "port/*/errors/*/rate", "*/errors/*/rate", "*/link_status", "device/99/power_watts", "drawer/?/fan_rpm",
        "chassis/0/*", "other", "port/*/rate", "*/rate", "drawer/*/temperature_celsius/*", "chassis/*/other/*",
    ):  # fmt: skip
        require_known_metric(metric)


def test_what_is_misspelt_is_refused_with_what_is_near(lab: Lab) -> None:
    for metric, near in (
        ("temprature_celsius", "temperature_celsius"), ("TEMPERATURE_CELSIUS", "temperature_celsius"),
        ("temperature", "temperature_celsius"), ("rx_bytes", "rx_bytes_per_second"),
        ("port/*/lnik_status", "port/*/link_status"), ("port/7/linkstatus", "port/7/link_status"),
        ("port/*/errors/ReplayCuont/rate", "port/*/errors/ReplayCount/rate"),
        ("ReplayCount", "port/*/errors/ReplayCount"), ("prot/*/link_status", "port/*/link_status"),
        ("port/[12]/link_staus", "port/[12]/link_status"),
    ):  # fmt: skip
        with pytest.raises(Invalid) as refused:
            require_known_metric(metric)
        assert near in refused.value.details["near"], metric
        assert near in refused.value.details["errors"]["metric"]


def test_what_is_near_nothing_is_told_what_there_is(lab: Lab) -> None:
    with pytest.raises(Invalid, match=r"There is no metric 'zzz'\. Quantities are .*power_watts"):
        require_known_metric("zzz")


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_what_a_chassis_measures_or_has_measured_may_be_watched(lab: Lab, measured: None) -> None:
    for metric in (
        "chassis/0/other/PumpDuty", "chassis/*/other/Pump*", "port/7/errors/VendorErrorCount",
        "port/*/errors/VendorErrorCount/rate", "chassis/0/other/Humidity",
        "drawer/3/temperature_celsius/Chassis.drawer1.Sensors.inlet",
    ):  # fmt: skip
        require_known_metric(metric)
    with pytest.raises(Invalid) as refused:
        require_known_metric("chassis/0/other/PumpDoty")
    assert refused.value.details["near"][0] == "chassis/0/other/PumpDuty"


def test_without_redis_it_is_said_that_nobody_can_tell(lab: Lab) -> None:
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    try:
        for metric in ("power_watts", "port/*/rate", "drawer/*/temperature_celsius/*"):
            require_known_metric(metric)
        with pytest.raises(Unavailable, match="cannot be looked up"):
            require_known_metric("pwoer_watts")
    finally:
        settings.REDIS_URL = there


def test_a_rule_keeps_the_metric_that_it_has_although_nothing_measures_it_any_more(lab: Lab) -> None:
    row = rule_add(person=lab.administrator, values=RULE)
    Rule.objects.filter(pk=row.pk).update(metric="chassis/0/other/Gone")
    row.refresh_from_db()
    changed = rule_edit(
        person=lab.administrator, rule=row, values=RuleValues(**{**vars(rule_values(row)), "value": 1.0})
    )
    assert (changed.metric, changed.value) == ("chassis/0/other/Gone", 1.0)
    with pytest.raises(Invalid):
        rule_edit(person=lab.administrator, rule=row, values=RuleValues(**{**vars(rule_values(row)), "metric": "gnoe"}))


def test_page_and_api_refuse_a_metric_that_is_misspelt_and_say_what_is_near(lab: Lab) -> None:
    client = lab.client(lab.administrator)
    asked = {"name": "x", "metric": "power_wats", "condition": "above", "value": "80", "scope": "all",
             "hold_seconds": "0", "severity": "Warning"}  # fmt: skip
    answer = client.post("/api/v1/alert-rules/", asked, content_type="application/json")
    assert (answer.status_code, answer.json()["near"]) == (400, ["power_watts"])
    assert "Is power_watts meant?" in answer.json()["errors"]["metric"]
    tried = client.get("/api/v1/alert-rules/preview/", asked)
    assert tried.status_code == 400
    page = client.post("/alerts/rules/add/", asked)
    assert page.status_code == 400
    assert "Is power_watts meant?" in page.content.decode()
    assert "Is power_watts meant?" in client.get("/alerts/rules/preview/", asked).content.decode()
    assert not Rule.objects.exists()


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_what_is_stored_is_asked_for_once_however_many_chassis_there_are(lab: Lab, measured: None) -> None:
    other = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:2")
    record(other.pk, [entry("chassis", 0, "other/Dew", "Dew", "°C")], [time.time() - 3600.0], lambda _at: (9.0,))
    with CaptureQueriesContext(connections[settings.READINGS_DATABASE]) as asked:
        require_known_metric("chassis/0/other/Dew")
    assert sum('"store_' in one["sql"] for one in asked.captured_queries) == 1
    # What was measured before is not gone through: of each chassis the newest catalogue counts.
    record(other.pk, [entry("chassis", 0, "other/Glow", "Glow", "lx")], [time.time() - 1800.0], lambda _at: (9.0,))
    require_known_metric("chassis/0/other/Glow")
    with pytest.raises(Invalid):
        require_known_metric("chassis/0/other/Dew")


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_what_cannot_be_gone_through_in_time_is_no_slip_of_the_pen(
    lab: Lab, measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_services, "MAX_LOOKUP_SECONDS", 0.0)
    require_known_metric("power_watts")
    with pytest.raises(Unavailable, match="in time"):
        require_known_metric("pwoer_watts")


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_nobody_waits_with_writing_while_a_metric_is_looked_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = []

    def noted(metric: str) -> None:
        locked.append(connection.in_atomic_block)
        require_known_metric(metric)

    monkeypatch.setattr(rule_services, "require_known_metric", noted)
    row = rule_add(person=lab.administrator, values=RULE)
    rule_edit(person=lab.administrator, rule=row, values=RuleValues(**{**vars(RULE), "metric": "power_watts"}))
    with pytest.raises(Invalid):
        rule_add(person=lab.administrator, values=RuleValues(**{**vars(RULE), "name": "x", "metric": "pwoer"}))
    assert locked == [False, False, False]
    refused = AuditEntry.objects.get(action="alert_rule.add", outcome="refused")
    assert "There is no metric" in refused.sentence
