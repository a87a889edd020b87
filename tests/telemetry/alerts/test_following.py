"""A simulated chassis over HTTPS, a worker that follows it, and receivers: from the fault to who is told of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings as site
from django.utils import timezone

from accounts.models import User
from fabric.inventory.models import Chassis, Device
from falconweb.testing import SimulatorProcess, add_chassis
from telemetry.alerts.models import Alert, Delivery, Route
from telemetry.alerts.notifications import GATHER_WAITS
from telemetry.alerts.route_services import RouteValues, route_add
from telemetry.alerts.rule_services import RuleValues, built_in_switch, rule_add, rule_edit, rule_values
from telemetry.alerts.rules import BUILT_IN_RULES, NOT_ANSWERING
from telemetry.alerts.services import CHECK_SECONDS, HOLD_SECONDS, NO_WORKER, unread_chassis_check
from telemetry.alerts.tasks import notify
from telemetry.events.models import Event
from telemetry.polling import chassis_poller
from tests.smtp_sink import SmtpSink
from tests.telemetry.delivery.sinks import HttpSink, SyslogSink
from tests.telemetry.polling.worker import polling
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    """falcon-1, whose second is a twentieth of ours."""
    with SimulatorProcess(chassis="falcon-1") as process:
        process.set_speed(20)
        yield process


@pytest.fixture
def chassis(simulator: SimulatorProcess) -> Iterator[Chassis]:
    """falcon-1, not yet looked at."""
    row = add_chassis(simulator)
    yield row
    simulator.clear_faults()


@pytest.fixture
def ada() -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="x")


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold, wait and pause for less long than an operator's site does."""
    for name, seconds in ((NOT_ANSWERING, 1.5), ("sensor_critical", 1.0), ("sensor_caution", 1.0)):
        monkeypatch.setitem(BUILT_IN_RULES, name, replace(BUILT_IN_RULES[name], hold=seconds))
    monkeypatch.setattr(chassis_poller, "RETRY_DELAYS", (0.4,))
    monkeypatch.setattr("telemetry.alerts.watch.LOOK_SECONDS", 0.4)
    monkeypatch.setattr("telemetry.alerts.notifications.GATHER_WAITS", tuple(one / 20 for one in GATHER_WAITS))


def ringing() -> set[str]:
    return set(Alert.objects.active().values_list("cause", flat=True))


def notify_until(true: Callable[[], object]) -> None:
    """Let notifications go out until something is true."""

    def notified() -> object:
        notify()
        return true()

    wait_for(notified)


def route(ada: User, kind: str, address: str) -> Route:
    row = route_add(person=ada, values=RouteValues(name=f"{kind} {address}", kind=kind, address=address))
    Route.objects.filter(pk=row.pk).update(enabled_at=timezone.now() - timedelta(hours=1))
    return row


@pytest.mark.nightly
def test_an_overheated_device_is_told_to_everybody_and_so_is_its_end(
    chassis: Chassis, simulator: SimulatorProcess, ada: User, settings: Any
) -> None:
    with HttpSink() as hook, SmtpSink() as mail, SyslogSink("tcp") as syslog, polling():
        settings.EMAIL_IS_SENT, settings.EMAIL_HOST, settings.EMAIL_PORT = True, "127.0.0.1", mail.port
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        for kind, address in (("webhook", hook.url), ("email", "ops@example.org"), ("syslog", syslog.address)):
            route(ada, kind, address)
        wait_for(lambda: Device.objects.filter(slot__drawer__number=1, slot__number=2).exists())
        device = Device.objects.get(slot__drawer__number=1, slot__number=2)
        fault = simulator.fault("overheat", "drawer1slot2")
        wait_for(lambda: "sensor_critical:upper" in ringing())
        alert = Alert.objects.get(cause="sensor_critical:upper")
        assert (alert.device_id, alert.object, alert.severity) == (device.pk, "device", "Critical")
        assert alert.value is not None
        assert alert.value > 85
        assert alert.fired_at is not None
        assert alert.fired_at - alert.since >= timedelta(seconds=1)
        notify_until(lambda: hook.got and mail.got and syslog.got)
        simulator.end_fault(fault)
        wait_for(lambda: not ringing())
        notify_until(
            lambda: not Delivery.objects.exclude(state="delivered").exists() and b"Resolved" in b"".join(syslog.got)
        )
        states = [line["state"] for body in hook.bodies for line in json.loads(body)["alerts"]]
        assert states.count("firing") == states.count("resolved")
        assert any("Resolved" in subject for _, subject in mail.subjects)
    alert.refresh_from_db()
    assert alert.worst_value is not None
    assert alert.worst_value >= alert.value
    messages = Event.objects.filter(source="alert", device_id=device.pk).values_list("message", flat=True)
    assert set(messages) == {"FalconWeb.AlertFiring", "FalconWeb.AlertResolved"}


@pytest.mark.nightly
def test_rules_count_within_seconds_and_go_on_with_the_next_worker(
    chassis: Chassis, simulator: SimulatorProcess, ada: User
) -> None:
    with polling():
        wait_for(lambda: Device.objects.filter(chassis=chassis).count() > 10)
        values = RuleValues(name="Warm", metric="temperature_celsius", condition="above", value=-50.0, scope="all")
        rule = rule_add(person=ada, values=values)
        wait_for(lambda: f"rule-{rule.pk}" in ringing())
        count = Alert.objects.active().count()
        assert count > 10
        # Narrowed to a port, it is about nothing that has a temperature.
        device = Device.objects.filter(chassis=chassis, slot__isnull=False).first()
        assert device is not None
        changed = RuleValues(**{**vars(values), "scope": "device", "scope_id": device.pk, "hold_seconds": 1.0})
        rule_edit(person=ada, rule=rule, values=changed)
        wait_for(lambda: Alert.objects.active().count() == 1)
        before = Alert.objects.active().get()
        pending = RuleValues(name="Soon", metric=f"device/{device.pk}/temperature_celsius", condition="above",
                             value=-50.0, hold_seconds=4.0)  # fmt: skip
        soon = rule_add(person=ada, values=pending)
        wait_for(lambda: Alert.objects.filter(rule=soon, state="pending").exists())
        since = Alert.objects.get(rule=soon).since
    with polling():  # another worker: what rings goes on ringing, what is pending holds on
        wait_for(lambda: Alert.objects.filter(rule=soon, state="firing").exists())
        row = Alert.objects.get(rule=soon)
        assert row.fired_at is not None
        assert row.since == since
        assert (row.fired_at - since).total_seconds() >= 4
        assert Alert.objects.active().get(rule=rule) == before
        off = RuleValues(**{**vars(rule_values(soon)), "value": 900.0})
        rule_edit(person=ada, rule=soon, values=off)
        wait_for(lambda: Alert.objects.get(pk=row.pk).state == "resolved")
    assert Alert.objects.filter(rule=soon).count() == 1


def test_a_dead_bmc_is_one_alert_and_one_notification_whatever_else_rings(
    chassis: Chassis, simulator: SimulatorProcess, ada: User
) -> None:
    with HttpSink() as hook, polling():
        wait_for(lambda: Device.objects.filter(chassis=chassis).count() > 10)
        wait_for(lambda: redis.Redis.from_url(site.REDIS_URL).exists(f"live:frame:{chassis.pk}"))
        newest = redis.Redis.from_url(site.REDIS_URL).get(f"live:frame:{chassis.pk}")
        assert isinstance(newest, bytes)
        rule_add(person=ada, values=RuleValues(name="Gone", metric="temperature_celsius", condition="missing"))
        fault = simulator.fault("reset_connections")
        route(ada, "webhook", hook.url)
        wait_for(lambda: ringing() == {NOT_ANSWERING})
        assert Alert.objects.get().note
        notify_until(lambda: hook.got)
        # The newest frame stays in Redis for a while, and says nothing of now.
        redis.Redis.from_url(site.REDIS_URL).set(f"live:frame:{chassis.pk}", newest, ex=60)
        for _ in range(10):
            unread_chassis_check()
            notify()
        assert ringing() == {NOT_ANSWERING}
        simulator.end_fault(fault)
        wait_for(lambda: not ringing())
        notify_until(lambda: len(hook.got) == 2)
    assert Alert.objects.count() == 1
    assert [json.loads(body)["summary"] for body in hook.bodies] == [
        "Critical: Chassis does not answer, falcon-1",
        "Resolved: Chassis does not answer, falcon-1",
    ]


def test_a_failed_fan_rings_and_a_rule_that_is_off_does_not(
    chassis: Chassis, simulator: SimulatorProcess, ada: User
) -> None:
    with polling():
        wait_for(lambda: Device.objects.filter(chassis=chassis).count() > 10)
        simulator.fault("fan_failure", "fan2")
        wait_for(lambda: "fan_failed" in ringing())
        built_in_switch(person=ada, name="fan_failed", enabled=False)
        assert "fan_failed" not in ringing()
        built_in_switch(person=ada, name="fan_failed", enabled=True)
        wait_for(lambda: "fan_failed" in ringing())


def test_a_chassis_that_no_worker_reads_rings_and_one_that_is_switched_off_is_quiet(chassis: Chassis) -> None:
    unread_chassis_check()
    assert not Alert.objects.exists()  # it was added a moment ago
    Chassis.objects.update(created_at=timezone.now() - timedelta(hours=1))
    bus = redis.Redis.from_url(site.REDIS_URL)
    bus.delete(f"alerts:unread:{chassis.pk}")
    unread_chassis_check()
    assert not Alert.objects.exists()  # the site may have been started a moment ago
    for _ in range(round(HOLD_SECONDS / CHECK_SECONDS)):
        unread_chassis_check()
    assert list(Alert.objects.values_list("cause", "state", "note")) == [(NOT_ANSWERING, "firing", NO_WORKER)]
    with polling():
        wait_for(lambda: not ringing())
    Chassis.objects.update(enabled=False)
    Alert.objects.update(state="firing", resolved_at=None)
    unread_chassis_check()
    assert not ringing()
