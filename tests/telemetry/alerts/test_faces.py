"""Pages and API of alerts: what is shown to whom, worst first, found, sorted, downloaded, and acknowledged."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import redis
from django.conf import settings
from django.test import Client
from django.utils import timezone

from accounts.models import User
from fabric.inventory.models import Device
from telemetry.alerts.models import Alert, BuiltInSwitch, Delivery, Route, Rule, Silence
from telemetry.alerts.route_services import RouteValues, SilenceValues, route_add, silence_add
from telemetry.alerts.selectors import active_alerts_for
from telemetry.alerts.services import alerts_acknowledge
from telemetry.live.frames import Frame, encode_key
from tests.pages import page_text
from tests.telemetry.alerts.conftest import Lab, check_of, fire, record, resolve, turn
from tests.telemetry.history.conftest import entry

pytestmark = pytest.mark.django_db
JSON = "application/json"
FORMULA = '=HYPERLINK("http://evil.example")'


def names(client: Client, **query: str) -> list[str]:
    """Return what the API lists, in order."""
    return [one["subject_name"] for one in client.get("/api/v1/alerts/", query).json()["results"]]


@pytest.fixture
def three(lab: Lab) -> list[Alert]:
    """A warning, a critical one that is acknowledged, and a critical one of somebody else's."""
    warning = fire(lab.device, cause="sensor_caution:upper", severity="Warning", key="a")
    known = fire(lab.device, key="b")
    Alert.objects.filter(pk=known.pk).update(state="acknowledged", subject_name="GPU 1 known")
    loud = fire(lab.other, key="c")
    return [warning, known, loud]


def test_the_worst_comes_first_and_every_order_and_filter_is_in_the_address(lab: Lab, three: list[Alert]) -> None:
    client = lab.client(lab.administrator)
    assert names(client) == ["GPU 2", "GPU 1 known", "GPU 1"]
    assert names(client, sort="oldest") == ["GPU 1", "GPU 1 known", "GPU 2"]
    assert names(client, severity="Warning") == ["GPU 1"]
    assert names(client, state="acknowledged") == ["GPU 1 known"]
    assert names(client, search="gpu known") == ["GPU 1 known"]
    assert names(client, device_id=str(lab.other.pk)) == ["GPU 2"]
    assert names(client, chassis_id="1000000") == []
    resolve(three[2])
    assert names(client, show="history") == ["GPU 2"]
    assert len(names(client, show="all")) == 3
    page = page_text(client.get("/alerts/", {"q": "known"}))
    assert "GPU 1 known" in page
    assert "GPU 2" not in page
    assert "1 alert found" in page


@pytest.mark.parametrize(
    "query", ["severity=Bad", "show=later", "sort=luck", "since=yesterday", "chassis=x", "state=gone", "q=" + "x" * 300]
)
def test_a_filter_that_cannot_be_is_told_so(lab: Lab, query: str) -> None:
    client = lab.client(lab.administrator)
    page = client.get(f"/alerts/?{query}")
    assert page.status_code == 400
    assert 'id="alert-errors"' in page.content.decode()
    answer = client.get(f"/api/v1/alerts/?{query.replace('chassis=', 'chassis_id=').replace('q=', 'search=')}")
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"


def test_the_sheet_has_what_the_filter_keeps_and_no_formula(lab: Lab, three: list[Alert]) -> None:
    Alert.objects.filter(pk=three[0].pk).update(title=FORMULA)
    answer = lab.client(lab.user).get("/alerts/alerts.csv", {"sort": "oldest"})
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [row["about"] for row in rows] == ["GPU 1", "GPU 1 known"]
    assert rows[0]["alert"] == f"'{FORMULA}"
    assert rows[0]["threshold"] == "above 85 °C for 3 s"
    assert float(rows[0]["value_at_fire"]) == 92.5


def test_an_alert_leads_to_its_thing_and_to_the_moment_in_its_charts(lab: Lab) -> None:
    alert = fire(lab.device)
    page = lab.client(lab.user).get(f"/alerts/{alert.pk}/").content.decode()
    assert f'href="/devices/{lab.device.pk}/"' in page
    (address,) = re.findall(r'href="(/telemetry/\?[^"]+)"', page)
    charts = lab.client(lab.user).get(html.unescape(address))
    assert [one.ref for one, _ in charts.context["subjects"]] == [f"device/{lab.device.pk}"]
    assert charts.context["shown"].metrics == ("temperature_celsius",)
    assert "/alerts/silences/add/" not in page  # that is administrators'
    boss = lab.client(lab.administrator)
    assert f"/alerts/silences/add/?of={alert.pk}" in boss.get(f"/alerts/{alert.pk}/").content.decode()
    form = boss.get("/alerts/silences/add/", {"of": str(alert.pk)}).content.decode()
    assert f'<option value="{lab.device.pk}" selected>' in form
    assert '<option value="sensor_critical" selected>' in form


@pytest.mark.parametrize("key", ["device/{}/temperature_celsius/Sensors.hot", "device/{}/other"])
def test_what_no_metric_is_made_of_is_charted_as_a_series_by_itself(lab: Lab, key: str) -> None:
    alert = fire(lab.device)
    key = key.format(lab.device.pk)
    Alert.objects.filter(pk=alert.pk).update(series_key=key)
    client = lab.client(lab.administrator)
    address = client.get(f"/api/v1/alerts/{alert.pk}/").json()["chart_url"]
    charts = client.get(address)
    assert charts.status_code == 200
    assert charts.context["shown"].subjects == (f"series/{lab.chassis.pk}/{key}",)


def test_one_or_many_are_acknowledged_with_a_note_and_each_result_is_told(lab: Lab, three: list[Alert]) -> None:
    client = lab.client(lab.administrator)
    sent = {"alert": [three[0].pk, three[1].pk], "note": "On it", "next": "/alerts/?sort=oldest"}
    answer = client.post("/alerts/acknowledge/", sent, follow=True)
    assert answer.redirect_chain == [("/alerts/?sort=oldest", 302)]
    text = answer.content.decode()
    assert "Acknowledged: Too hot: GPU 1." in text
    assert "Too hot: GPU 1 known:  acknowledged it" in text.replace("&#x27;", "'")
    assert "On it" in text
    away = client.post("/alerts/acknowledge/", {"only": three[2].pk, "next": "//evil.example/"})
    assert away["Location"] == "/alerts/"
    result = client.post("/api/v1/alerts/acknowledgement/", {"alert_ids": [three[2].pk]}, content_type=JSON)
    assert result.status_code == 409
    assert result.json()["differences"]
    bodies: list[dict[str, object]] = [
        {}, {"alert_ids": []}, {"alert_ids": ["x"]}, {"alert_ids": [three[2].pk], "why": "?"},
    ]  # fmt: skip
    for wrong in bodies:
        assert client.post("/api/v1/alerts/acknowledgement/", wrong, content_type=JSON).status_code == 400


def test_the_value_of_now_stands_beside_that_of_the_firing_and_the_limit(lab: Lab) -> None:
    alert, counted = fire(lab.device), fire(lab.device, key=f"port/{lab.device.pk}/errors/ReplayCount")
    at = time.time()
    entries = [entry("device", lab.device.pk, "temperature_celsius", "Temperature", "°C"),
               entry("port", lab.device.pk, "errors/ReplayCount", "Replays", "")]  # fmt: skip
    bus = redis.Redis.from_url(settings.REDIS_URL)
    catalogue, newest = f"live:catalogue:{lab.chassis.pk}", f"live:frame:{lab.chassis.pk}"
    bus.set(catalogue, json.dumps({"revision": 3, "series": entries}))
    bus.set(newest, encode_key(Frame(3, lab.chassis.pk, 1, at, np.array([88.25, 7.0]))), ex=60)
    try:
        for address in ("/alerts/", f"/alerts/{alert.pk}/"):
            page = page_text(lab.client(lab.user).get(address))
            for words in ("88.2 °C", "92.5 °C", "above 85 °C for 3 s"):
                assert words in page, address
        of_all, of_tenant = (lab.client(who).get("/api/v1/alerts/").json()["results"]
                             for who in (lab.administrator, lab.user))  # fmt: skip
        assert {one["id"]: one["current_value"] for one in of_all} == {alert.pk: 88.25, counted.pk: 7.0}
        # Errors from before a lease are nobody else's business.
        assert {one["id"]: one["current_value"] for one in of_tenant} == {alert.pk: 88.25, counted.pk: None}
    finally:
        bus.delete(catalogue, newest)
    assert lab.client(lab.user).get(f"/api/v1/alerts/{alert.pk}/").json()["current_value"] is None


def test_viewers_look_on(lab: Lab) -> None:
    alert = fire(lab.device)
    client = lab.client(lab.viewer)
    page = client.get("/alerts/").content.decode()
    assert "GPU 1" in page
    assert "Acknowledge: " not in page
    assert client.post("/alerts/acknowledge/", {"only": alert.pk}).status_code == 403


def test_the_mark_in_the_header_counts_what_rings_and_no_more(lab: Lab, three: list[Alert]) -> None:
    found = lab.client(lab.administrator).get("/notices/").json()
    assert (found["worst"], found["critical"], found["warning"], found["status"]) == ("Critical", 2, 1, "Critical")
    assert found["alerts"][0]["subject"] == "GPU 2 of falcon"
    mine = lab.client(lab.user).get("/notices/").json()
    assert (mine["critical"], mine["warning"], mine["status"]) == (1, 1, "Warning")
    values = SilenceValues(ends_at=timezone.now() + timedelta(hours=1), why="Fans", severity="Critical")
    silence_add(person=lab.administrator, values=values)
    assert active_alerts_for(lab.administrator).worst == "Warning"
    # Routes to the page say what it shows, where there are any.
    route = route_add(person=lab.administrator, values=RouteValues(name="mark", kind="page", severity="Critical"))
    assert active_alerts_for(lab.administrator).worst == ""
    Route.objects.filter(pk=route.pk).update(severity="Warning", enabled=False)
    assert active_alerts_for(lab.administrator).worst == ""


def test_the_icon_tells_of_problems_that_are_no_alerts_until_somebody_has_acknowledged_or_silenced_them(
    lab: Lab,
) -> None:
    def status(person: User) -> str:
        return str(lab.client(person).get("/notices/").json()["status"])

    assert (status(lab.administrator), status(lab.user)) == ("", "")
    Device.objects.filter(pk=lab.other.pk).update(health="Warning")
    assert (status(lab.administrator), status(lab.user)) == ("Warning", "")
    Device.objects.filter(pk=lab.device.pk).update(missing_since=timezone.now())
    assert (status(lab.administrator), status(lab.user)) == ("Critical", "Critical")
    alert = fire(lab.device)
    alerts_acknowledge(person=lab.administrator, alerts=[alert.pk], note="")
    assert (status(lab.administrator), status(lab.user)) == ("Warning", "")


def test_of_a_dead_chassis_the_mark_counts_one(lab: Lab) -> None:
    record(
        [turn(check_of(lab.device, cause="not_answering", key=""), "firing")]
        + [turn(check_of(lab.device, key=f"k{number}"), "firing") for number in range(40)],
        lab.chassis,
    )
    found = active_alerts_for(lab.administrator)
    assert (found.critical, found.warning) == (1, 0)
    page = lab.client(lab.administrator).get("/alerts/").content.decode()
    assert page.count("suppressed by a more severe alert") == 40


def test_a_rule_goes_through_the_form_and_comes_back(lab: Lab) -> None:
    client = lab.client(lab.administrator)
    form = {"name": "Warm", "metric": "temperature_celsius", "condition": "above", "value": "60", "clear_value": "",
            "hold_seconds": "5", "severity": "Warning", "scope": "device", "device": lab.device.pk, "enabled": "on",
            "note": "See <b>the wiki</b>"}  # fmt: skip
    assert client.post("/alerts/rules/add/", form).status_code == 302
    rule = Rule.objects.get()
    assert (rule.scope, rule.device_id, rule.scope_words) == ("device", lab.device.pk, "GPU 1 of falcon")
    assert client.post(f"/alerts/rules/{rule.pk}/", {**form, "scope": "all", "value": "61.5"}).status_code == 302
    rule.refresh_from_db()
    assert (rule.scope, rule.device_id, rule.value) == ("all", None, 61.5)
    again = client.post("/alerts/rules/add/", form)
    assert again.status_code == 400
    assert "There is a rule of that name already." in again.content.decode()
    assert client.post("/alerts/rules/add/", {**form, "name": "x", "value": "warm"}).status_code == 400
    change = {**form, "name": "Moves", "condition": "changes", "value": ""}
    assert client.post("/alerts/rules/add/", {**change, "value": "-1"}).status_code == 400
    assert client.post("/alerts/rules/add/", change).status_code == 302
    assert Rule.objects.get(name="Moves").terms.words("W") == "changes, until steady for 5 s"
    client.post(f"/alerts/rules/{Rule.objects.get(name='Moves').pk}/remove/")
    listed = client.get("/alerts/rules/").content.decode()
    assert "above 61.5 for 5 s" in listed
    client.post(f"/alerts/rules/{rule.pk}/switch/", {"enabled": "0"})
    client.post("/alerts/rules/built-in/fan_failed/", {"enabled": "0"})
    rule.refresh_from_db()
    assert not rule.enabled
    assert BuiltInSwitch.objects.get().enabled is False
    assert client.post("/alerts/rules/built-in/nothing/", {"enabled": "0"}).status_code == 404
    client.post(f"/alerts/rules/{rule.pk}/remove/")
    assert not Rule.objects.exists()


def test_the_api_does_all_of_it(lab: Lab) -> None:
    client = lab.client(lab.administrator)

    def ask(method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        answer = client.generic(method, f"/api/v1/{path}", json.dumps(body or {}), content_type=JSON)
        return answer.status_code, json.loads(answer.content or b"null")

    status, rule = ask(
        "POST", "alert-rules/", {"name": "Warm", "metric": "power_watts", "condition": "below", "value": 5}
    )
    assert (status, rule["scope"], rule["hold_seconds"]) == (201, "all", 0)
    status, rule = ask("PATCH", f"alert-rules/{rule['id']}/", {"scope": "device", "scope_id": lab.device.pk})
    assert (status, rule["scope_id"], rule["value"]) == (200, lab.device.pk, 5)
    status, rule = ask("PATCH", f"alert-rules/{rule['id']}/", {"enabled": False})
    assert (status, rule["scope_id"], rule["enabled"]) == (200, lab.device.pk, False)
    assert ask("PATCH", f"alert-rules/{rule['id']}/", {"scope": "drawer"})[0] == 400
    assert ask("PATCH", f"alert-rules/{rule['id']}/", {"id": 7})[0] == 400
    assert ask("POST", "alert-rules/", {"name": "Warm", "metric": "errors", "condition": "above", "value": 1})[0] == 409
    status, one = ask("POST", "alert-routes/", {"name": "Hook", "kind": "webhook", "address": "https://h.example/",
                                                "secret": "s3cret"})  # fmt: skip
    assert (status, one["has_secret"], "secret" in one) == (201, True, False)
    status, one = ask("PATCH", f"alert-routes/{one['id']}/", {"severity": "Critical"})
    assert (status, one["has_secret"]) == (200, True)
    assert ask("PATCH", f"alert-routes/{one['id']}/", {"address": "https://other.example/"})[0] == 400
    status, delivery = ask("POST", f"alert-routes/{one['id']}/test/")
    assert (status, delivery["is_test"], delivery["state"]) == (202, True, "waiting")
    assert ask("GET", "alert-deliveries/?state=waiting")[1]["count"] == 1
    assert ask("GET", "alert-deliveries/?state=lost")[0] == 400
    assert ask("POST", f"alert-deliveries/{delivery['id']}/retry/")[0] == 202
    Delivery.objects.update(state="delivered", delivered_at=timezone.now())
    assert ask("POST", f"alert-deliveries/{delivery['id']}/retry/")[0] == 409
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    status, silence = ask("POST", "alert-silences/", {"ends_at": until, "why": "Fans", "built_in": "fan_failed"})
    assert (status, silence["is_in_force"]) == (201, True)
    assert ask("POST", "alert-silences/", {"why": "for ever"})[0] == 400
    assert ask("POST", f"alert-silences/{silence['id']}/end/")[1]["is_in_force"] is False
    assert ask("POST", f"alert-silences/{silence['id']}/end/")[0] == 409
    assert ask("PATCH", "alert-rules/built-in/link_down/", {"enabled": True})[1]["enabled"] is True
    assert {one["name"]: one["enabled"] for one in ask("GET", "alert-rules/built-in/")[1]}["link_down"] is True
    assert ask("DELETE", f"alert-routes/{one['id']}/")[0] == 204
    assert ask("DELETE", f"alert-rules/{rule['id']}/")[0] == 204
    assert ask("GET", f"alert-rules/{rule['id']}/")[0] == 404
    assert not Route.objects.exists()


def test_a_silence_for_times_of_the_week_is_in_force_at_these_alone(lab: Lab) -> None:
    alert, client = fire(lab.device), lab.client(lab.administrator)
    now = timezone.now()
    form = {"scope": "all", "ends_at": f"{now + timedelta(days=30):%Y-%m-%dT%H:%M}", "why": "Each week"}
    for wrong in ({"from_time": "02:00"}, {"days": ["1"]}, {"from_time": "25:00", "until_time": "02:00"}):
        assert client.post("/alerts/silences/add/", {**form, **wrong}).status_code == 400
    other = (now.isoweekday() + 3) % 7
    times = {"from_time": "00:00", "until_time": "00:00", "days": [str(other)]}
    assert client.post("/alerts/silences/add/", {**form, **times}).status_code == 302
    silence = Silence.objects.get()
    assert (silence.days, silence.is_in_force, silence.is_over) == (str(other), False, False)
    assert (active_alerts_for(lab.administrator).critical, Silence.objects.in_force()) == (1, [])
    assert "between its times" in page_text(client.get("/alerts/silences/"))
    Silence.objects.update(days="")
    assert active_alerts_for(lab.administrator).critical == 0
    assert "silenced" in page_text(client.get("/alerts/"))
    assert "Silenced (each day, 00:00 to 00:00 UTC) until" in page_text(client.get(f"/alerts/{alert.pk}/"))
    assert "each day, 00:00 to 00:00" in page_text(client.get("/alerts/silences/"))
    body = {"ends_at": (now + timedelta(days=1)).isoformat(), "why": "x", "from_time": "22:00", "until_time": "04:00",
            "days": [0, 6]}  # fmt: skip
    made = client.post("/api/v1/alert-silences/", body, content_type=JSON)
    assert made.status_code == 201, made.content
    assert (made.json()["days"], made.json()["from_time"]) == ([0, 6], "22:00:00")
    assert client.post("/api/v1/alert-silences/", {**body, "days": [7]}, content_type=JSON).status_code == 400


def test_an_empty_list_says_why_and_what_to_do(lab: Lab) -> None:
    boss, user = lab.client(lab.administrator), lab.client(lab.user)
    assert "No active alerts" in boss.get("/alerts/").content.decode()
    assert "host ports of your tenant" in user.get("/alerts/").content.decode()
    assert "No matching alerts" in boss.get("/alerts/?q=nobody").content.decode()
    assert "New route" in boss.get("/alerts/routes/").content.decode()
    assert Silence.objects.count() == 0
    assert "None. A silence stops" in boss.get("/alerts/silences/").content.decode()


def test_a_list_of_many_costs_as_many_queries_as_one_of_few(lab: Lab, django_assert_max_num_queries: Any) -> None:
    client = lab.client(lab.administrator)
    devices = Device.objects.filter(chassis=lab.chassis)
    record(
        [turn(check_of(one, key=f"{one.pk}/{number}"), "firing") for one in devices for number in range(40)],
        lab.chassis,
    )
    with django_assert_max_num_queries(20):
        client.get("/alerts/")
    with django_assert_max_num_queries(28):
        client.get("/notices/")
