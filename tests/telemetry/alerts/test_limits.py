"""Limits for charts: those that are evaluated, for whoever may see the series."""

from __future__ import annotations

import pytest
import redis
from django.conf import settings

from telemetry.alerts.limits import AlertLimit, alert_limits, limits_publish
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
