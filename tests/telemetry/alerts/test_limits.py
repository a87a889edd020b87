"""Limits for charts: those that are evaluated, for whoever may see the series."""

from __future__ import annotations

import pytest
import redis
from django.conf import settings

from fabric.topology.readings import HotDevice
from telemetry.alerts.limits import AlertLimit, alert_limits, limited, limits_publish
from telemetry.alerts.rules import Condition, Terms
from tests.telemetry.alerts.conftest import Lab, check_of

pytestmark = pytest.mark.django_db


def test_the_limits_of_a_series_are_told_to_whoever_may_see_it(lab: Lab) -> None:
    low = Terms(condition=Condition.BELOW, value=5.0, clear=6.0)
    missing = Terms(condition=Condition.MISSING)
    mine, theirs = check_of(lab.device), check_of(lab.other)
    checks = [mine, theirs, check_of(lab.device, cause="rule-7", severity="Warning", terms=low, rule=7),
              check_of(lab.device, cause="rule-8", terms=missing, rule=8)]  # fmt: skip
    limits_publish(lab.chassis.pk, checks)
    wanted = {lab.chassis.pk: [mine.key, theirs.key, "device/x/none"], 10**6: [mine.key]}
    upper = AlertLimit(value=85.0, ends_at=85.0, is_upper=True, severity="Critical", title="Too hot")
    lower = AlertLimit(value=5.0, ends_at=6.0, is_upper=False, severity="Warning", title="Too hot")
    seen = {(lab.chassis.pk, mine.key): [upper, lower]}
    assert alert_limits(lab.user, wanted) == seen
    assert alert_limits(lab.administrator, wanted) == {**seen, (lab.chassis.pk, theirs.key): [upper]}
    redis.Redis.from_url(settings.REDIS_URL).hset(f"alerts:limits:{lab.chassis.pk}", mine.key, '[{"value": "much"}]')
    assert alert_limits(lab.user, wanted) == {}
    limits_publish(lab.chassis.pk, [])
    assert alert_limits(lab.administrator, wanted) == {}


def test_a_page_asks_for_the_limits_of_a_chassis_and_gets_those_that_its_person_may_see(lab: Lab) -> None:
    mine, theirs = check_of(lab.device), check_of(lab.other)
    limits_publish(lab.chassis.pk, [mine, theirs, check_of(lab.device, key="chassis/0/power_watts")])
    told = [{"value": 85.0, "is_upper": True, "severity": "Critical"}]
    page = f"/alerts/limits/{lab.chassis.pk}/"
    assert lab.client(lab.user).get(page).json() == {mine.key: told}
    whole = lab.client(lab.administrator).get(page).json()
    assert set(whole) == {mine.key, theirs.key, "chassis/0/power_watts"}
    assert lab.client(lab.administrator).get("/alerts/limits/999999/").status_code == 404
    redis.Redis.from_url(settings.REDIS_URL).set(f"alerts:limits:{lab.chassis.pk}", "of another type")
    assert lab.client(lab.user).get(page).status_code == 200


def test_the_hottest_devices_have_the_limit_that_they_are_beyond_or_would_be_first() -> None:
    warning = AlertLimit(value=83.0, ends_at=80.0, is_upper=True, severity="Warning", title="Warm")
    critical = AlertLimit(value=90.0, ends_at=88.0, is_upper=True, severity="Critical", title="Hot")
    cold = AlertLimit(value=99.0, ends_at=99.0, is_upper=False, severity="Critical", title="Cold")
    for celsius, limit, level in (
        (70.0, 83.0, ""),
        (83.0, 83.0, ""),
        (84.0, 83.0, "warning"),
        (95.0, 90.0, "critical"),
    ):
        found = limited(HotDevice(chassis_id=1, device_id=1, celsius=celsius), [critical, cold, warning])
        assert (found.limit, found.level) == (limit, level)
    assert limited(HotDevice(chassis_id=1, device_id=1, celsius=70.0), [cold]).limit is None
