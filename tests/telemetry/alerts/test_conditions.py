"""Built-in rules about what is not measured: missing devices, drift, links, and the site's own disk and store."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest
from django.conf import settings
from django.utils import timezone

from core.errors import Unavailable
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device, Port
from fabric.topology.problems import present_problems
from telemetry.alerts import conditions
from telemetry.alerts.conditions import PresentCondition, conditions_check
from telemetry.alerts.models import Alert
from telemetry.alerts.notifications import notification_line
from telemetry.alerts.rule_services import built_in_switch
from telemetry.alerts.rules import BUILT_IN_RULES, CONDITION_RULES
from telemetry.alerts.selectors import active_alerts_for, alert_rows, alert_views
from telemetry.links.models import LinkCount, LinkVerdict
from telemetry.links.rules import RANKS, LinkLevel
from telemetry.pipeline import selectors as pipeline
from telemetry.pipeline.rules import STORE_LAG_SECONDS
from telemetry.store.batches import ReadingBatch, ReadingRow
from telemetry.store.writer import StoreWriter
from tests.pages import page_text
from tests.telemetry.alerts.conftest import Lab
from tests.telemetry.pipeline.test_health import pipeline as snapshot
from tests.telemetry.pipeline.test_health import process

pytestmark = pytest.mark.django_db


class Usage(NamedTuple):
    """As shutil.disk_usage returns it."""

    total: float
    used: float
    free: float


@pytest.fixture(autouse=True)
def healthy_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine's own disk and processes be no matter."""
    monkeypatch.setitem(conditions._sources, "disk_filling", lambda: ())
    monkeypatch.setitem(conditions._sources, "store_behind", lambda: ())


def ago(seconds: float) -> datetime:
    return timezone.now() - timedelta(seconds=seconds)


def states() -> dict[str, str]:
    conditions_check()
    return {row.cause: row.state for row in Alert.objects.order_by("pk")}


def verdict(port: Port, level: LinkLevel, *, since: float) -> None:
    values = {"level": level, "rank": RANKS[level], "since": ago(since), "judged_at": timezone.now()}
    LinkVerdict.objects.update_or_create(port=port, tenant=None, defaults={
        **values, "reasons": [{"code": "width", "level": level.value, "sentence": "The link runs x8."}],
        "sent_rate": 0, "received_rate": 0, "correctable_rate": 0, "flaps": 0, "recoveries": 0, "errors": 0,
    })  # fmt: skip


def port_of(lab: Lab) -> Port:
    assert lab.device.slot is not None
    port = lab.device.slot.port
    assert port is not None
    return port


def test_what_an_operator_expects_on_the_first_day_is_on() -> None:
    assert {name for name, known in BUILT_IN_RULES.items() if not known.is_on} == set()
    assert set(BUILT_IN_RULES) >= CONDITION_RULES
    assert set(conditions._sources) == CONDITION_RULES


def test_a_healthy_lab_has_no_alerts(lab: Lab) -> None:
    verdict(port_of(lab), LinkLevel.WATCH, since=1000)
    assert states() == {}


def test_a_missing_device_fires_after_its_hold_and_resolves_when_it_is_back(lab: Lab) -> None:
    devices = Device.objects.filter(pk=lab.device.pk)
    devices.update(missing_since=ago(10))
    assert states() == {}
    devices.update(missing_since=ago(31))
    assert states() == {"device_missing": "firing"} == states()
    alert = Alert.objects.get()
    assert (alert.device, alert.drawer, alert.threshold) == (lab.device, lab.drawer, "missing for 30 s")
    assert alert.subject_name == "GPU 1, Drawer 1 slot 1"
    assert alert.fired_at is not None
    assert (alert.fired_at - alert.since).total_seconds() == pytest.approx(31, abs=5)
    assert active_alerts_for(lab.user).critical == 1
    assert active_alerts_for(lab.stranger).critical == 0
    # The fabric says that it is missing: it is a problem once.
    assert [one.word for one in present_problems(lab.user) if one.about == ("device", lab.device.pk)] == ["missing"]
    devices.update(missing_since=None)
    assert states() == {"device_missing": "resolved"}


def test_a_chassis_that_is_not_polled_and_a_rule_that_is_off_raise_nothing(lab: Lab) -> None:
    Device.objects.update(missing_since=ago(3600))
    Chassis.objects.update(enabled=False)
    assert states() == {}
    Chassis.objects.update(enabled=True)
    assert states() == {"device_missing": "firing"}
    built_in_switch(person=lab.administrator, name="device_missing", enabled=False)
    assert states() == {"device_missing": "resolved"}
    assert Alert.objects.count() == 2


def test_a_clock_that_is_set_back_does_not_prolong_a_hold(lab: Lab) -> None:
    Device.objects.filter(pk=lab.device.pk).update(missing_since=ago(-3600))
    assert states() == {"device_missing": "firing"}
    assert Alert.objects.get().since <= timezone.now()


def test_drift_fires_after_two_minutes_and_names_no_host_to_a_tenant(lab: Lab) -> None:
    drift = Drift.objects.create(
        chassis=lab.chassis, kind="attachment", uri="/device/1", device=lab.device, what="GPU 1", noticed_at=ago(60),
        expected_words="H1, secret-host", found_words="none",
    )  # fmt: skip
    assert states() == {}
    Drift.objects.update(noticed_at=ago(121))
    assert states() == {"drift": "firing"}
    alert = Alert.objects.get()
    assert alert.severity == "Warning"
    for person, note in ((lab.administrator, str(drift)), (lab.user, "")):
        assert alert_views(person, alert_rows(person))[0].note == note
    assert notification_line(alert)["note"] == str(drift)
    assert notification_line(alert, tenant=lab.tenant.pk)["note"] == ""
    Drift.objects.update(ended_at=timezone.now())
    assert states() == {"drift": "resolved"}


def test_a_link_has_the_alert_of_its_verdict_and_does_not_flap(lab: Lab) -> None:
    port = port_of(lab)
    LinkCount.objects.create(port=port, watched_since=ago(900), state_since=ago(900), status="LinkUp", width=8)
    verdict(port, LinkLevel.DEGRADED, since=10)
    assert states() == {}
    verdict(port, LinkLevel.DEGRADED, since=31)
    assert states() == {"link_degraded": "firing"}
    view = alert_views(lab.administrator, alert_rows(lab.administrator))[0]
    assert (view.value_words, view.note, view.threshold) == ("8 lanes", "The link runs x8.", "degraded for 30 s")
    assert f"of=port%2F{port.pk}" in view.chart_url
    assert Alert.objects.get().device == lab.device
    verdict(port, LinkLevel.DOWN, since=31)
    assert states() == {"link_degraded": "firing", "link_down": "firing"}
    assert (active_alerts_for(lab.administrator).critical, active_alerts_for(lab.administrator).warning) == (1, 0)
    # It is up again, and may go down again at once: the alert goes on for a minute.
    verdict(port, LinkLevel.HEALTHY, since=30)
    assert states() == {"link_degraded": "firing", "link_down": "firing"}
    verdict(port, LinkLevel.HEALTHY, since=61)
    assert states() == {"link_degraded": "resolved", "link_down": "resolved"}
    # A link that has just become well raises nothing.
    verdict(port, LinkLevel.HEALTHY, since=30)
    assert Alert.objects.count() == 2
    assert states() == {"link_degraded": "resolved", "link_down": "resolved"}


def test_a_tenant_is_told_of_no_verdict_from_before_its_lease(lab: Lab) -> None:
    verdict(port_of(lab), LinkLevel.FAILING, since=100)
    assert states()["link_down"] == "firing"
    assert active_alerts_for(lab.user).critical == 1
    Device.objects.filter(pk=lab.device.pk).update(tenant=lab.others, tenant_since=timezone.now())
    assert (active_alerts_for(lab.stranger).critical, active_alerts_for(lab.user).critical) == (0, 0)
    assert active_alerts_for(lab.administrator).critical == 1


def test_the_link_of_a_missing_device_is_no_second_alert(lab: Lab) -> None:
    verdict(port_of(lab), LinkLevel.DOWN, since=100)
    Device.objects.filter(pk=lab.device.pk).update(missing_since=ago(100), host_port=None)
    assert states() == {"device_missing": "firing"}


def test_what_is_not_known_now_ends_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Sequence[PresentCondition]:
        raise Unavailable("Redis does not answer.")

    Device.objects.filter(pk=lab.device.pk).update(missing_since=ago(100))
    conditions_check()
    monkeypatch.setitem(conditions._sources, "device_missing", unknown)
    assert states() == {"device_missing": "firing"}


def test_a_filling_disk_is_an_alert_of_the_site_for_administrators(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def free(gigabytes: float) -> dict[str, str]:
        usage = Usage(100 * 2**30, 0, gigabytes * 2**30)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        return states()

    monkeypatch.setitem(conditions._sources, "disk_filling", pipeline.filling_disks)
    assert free(5.5) == {}
    assert free(4.9) == {"disk_filling": "firing"} == free(5.5)
    (problem,) = [one for one in present_problems(lab.administrator) if one.page == "alerts:alert"]
    assert problem.sentence == "Disk nearly full: This site, Free space 4.9 GB, below 5.0 GB."
    assert active_alerts_for(lab.user).critical == 0
    client, alert = lab.client(lab.administrator), Alert.objects.get()
    for address in ("/alerts/", f"/alerts/{alert.pk}/", "/"):
        assert "Disk nearly full" in page_text(client.get(address))
    assert client.get("/notices/").json()["alerts"][0]["subject"] == "This site"
    assert client.get(f"/api/v1/alerts/{alert.pk}/").json()["chassis_id"] is None
    assert b"This site" in client.get("/alerts/alerts.csv").getvalue()
    assert notification_line(alert)["chassis"] == "This site"
    assert 'chassis=""' in client.get("/metrics").getvalue().decode()
    assert lab.client(lab.user).get(f"/alerts/{alert.pk}/").status_code == 404
    assert free(6.1) == {"disk_filling": "resolved"}


def test_readings_that_wait_too_long_are_told_by_the_process_they_wait_in(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(seconds: float) -> dict[str, str]:
        workers = [process(store_lag_seconds=lag) for lag in (1.0, seconds)]
        monkeypatch.setattr(pipeline, "pipeline_snapshot", lambda: snapshot(*workers))
        return states()

    monkeypatch.setitem(conditions._sources, "store_behind", pipeline.late_stores)
    assert waits(STORE_LAG_SECONDS) == {}
    assert waits(STORE_LAG_SECONDS + 1) == {"store_behind": "firing"} == waits(STORE_LAG_SECONDS / 2 + 1)
    assert Alert.objects.get().value == STORE_LAG_SECONDS + 1
    assert waits(3) == {"store_behind": "resolved"}


def test_the_age_of_waiting_readings_is_that_of_the_oldest() -> None:
    writer = StoreWriter()
    assert writer.lag == 0.0
    at = timezone.now().timestamp()
    for age in (90.0, 30.0):
        writer._inbox.append(ReadingBatch(1, 3.0, rows=(ReadingRow(at - age, 0.0, []),)))  # type: ignore[arg-type]
    assert writer.lag == pytest.approx(90.0, abs=5)


def test_redis_that_is_away_says_nothing_of_the_store(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setitem(conditions._sources, "store_behind", pipeline.late_stores)
    Alert.objects.create(
        cause="store_behind", series_key="store", title="x", severity="Warning", object="site", state="firing",
        subject_name="This site", since=timezone.now(), fired_at=timezone.now(),
    )  # fmt: skip
    assert states() == {"store_behind": "firing"}
