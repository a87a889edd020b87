"""What a rule would have done: played on stored readings, told on the page and by the API, and nothing is kept."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from django.template.loader import render_to_string

from accounts.audit.models import AuditEntry
from telemetry.alerts.facts import active_rule
from telemetry.alerts.models import Alert, Rule
from telemetry.alerts.pictures import metric_pictures
from telemetry.alerts.preview import HEIGHT, WIDTH, RulePreview, draw_preview_line, rule_preview
from telemetry.alerts.rule_services import RuleValues, rule_fill
from tests.telemetry.alerts.conftest import Lab
from tests.telemetry.history.conftest import entry, record

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
SECONDS = 600


@pytest.fixture
def began(lab: Lab) -> float:
    """Ten minutes of readings of two devices: the first is hot from 100 s to 160 s and once, for a second, at 400 s."""
    began = float(int(time.time()) - 2 * SECONDS)
    times = [began + second for second in range(SECONDS)]
    hot, cool = np.full(SECONDS, 50.0), np.full(SECONDS, 40.0)
    hot[100:160] = 90.0
    hot[400] = 95.0
    hot[130:135] = np.nan
    entries = [
        entry("device", device.pk, "temperature_celsius", "Temperature", "°C") for device in (lab.device, lab.other)
    ]
    record(lab.chassis.pk, entries, times, lambda at: (hot[int(at - began)], cool[int(at - began)]))
    return began


def tried(lab: Lab, began: float, **values: Any) -> RulePreview:
    """Return what a rule on the temperature would have done."""
    wanted: dict[str, Any] = {
        "name": "x",
        "metric": "temperature_celsius",
        "condition": "above",
        "value": 80.0,
    } | values
    row = Rule(pk=0)
    rule_fill(row, RuleValues(**wanted))
    return rule_preview(person=lab.administrator, rule=active_rule(row), since=began, until=began + SECONDS)


def test_it_says_how_often_when_for_how_long_and_on_what(lab: Lab, began: float) -> None:
    preview = tried(lab, began)
    assert (preview.series, preview.fired, preview.step) == (2, 2, 1.0)
    late, early = preview.episodes
    assert (early.fired_at, early.until, early.worst) == (began + 100, began + 160, 90.0)
    assert (late.fired_at, late.until, late.worst) == (began + 400, began + 401, 95.0)
    assert {one.check.key for one in preview.episodes} == {f"device/{lab.device.pk}/temperature_celsius"}
    assert preview.sentence == "It would have fired 2 times on 2 series, for 61 s altogether."


def test_what_has_to_last_is_not_set_off_by_a_second(lab: Lab, began: float) -> None:
    preview = tried(lab, began, hold_seconds=30.0)
    (only,) = preview.episodes
    assert (only.since, only.fired_at, only.until) == (began + 100, began + 135, began + 160)
    assert tried(lab, began, hold_seconds=120.0).sentence == "It would not have fired on any of 2 series."


def test_hysteresis_scope_and_the_other_conditions(lab: Lab, began: float) -> None:
    assert tried(lab, began, clear_value=30.0).episodes[0].until is None  # it would fire still
    assert tried(lab, began, scope="device", scope_id=lab.other.pk).fired == 0
    assert tried(lab, began, scope="tenant", scope_id=lab.others.pk).series == 1
    assert tried(lab, began, condition="below", value=45.0).fired == 1
    assert tried(lab, began, condition="equals", value=90.0).fired == 1
    assert tried(lab, began, condition="missing", hold_seconds=3.0).fired == 1
    assert tried(lab, began, metric="power_watts").series == 0
    assert tried(lab, began, condition="rises", value=20.0).fired >= 1
    falling = tried(lab, began, condition="falls", value=20.0, hold_seconds=5.0)
    assert falling.fired >= 1
    assert (falling.value, falling.is_of_missing) == (None, False)
    assert tried(lab, began, condition="changes", value=100.0).fired == 0


def test_a_series_is_not_missing_before_it_was_first_measured(lab: Lab, began: float) -> None:
    row = Rule(pk=0)
    rule_fill(row, RuleValues(name="x", metric="temperature_celsius", condition="missing", hold_seconds=3.0))
    rule, whole = active_rule(row), began + SECONDS
    early = rule_preview(person=lab.administrator, rule=rule, since=began - 600, until=whole)
    assert [one.since for one in early.episodes] == [pytest.approx(began + 130, abs=early.step)]
    # One that was measured before is missing from the begin of the range on.
    late = rule_preview(person=lab.administrator, rule=rule, since=began + 130, until=whole)
    assert [one.since for one in late.episodes] == [began + 130]


def test_a_value_is_not_missing_while_nothing_was_read_and_it_is_said_in_other_words(lab: Lab, began: float) -> None:
    entries = [entry("device", lab.device.pk, "temperature_celsius", "Temperature", "°C")]
    again = began + SECONDS + 300
    record(lab.chassis.pk, entries, [again + second for second in range(60)], lambda _at: (50.0,))
    row = Rule(pk=0)
    rule_fill(row, RuleValues(name="x", metric="temperature_celsius", condition="missing", hold_seconds=3.0,
                              scope="device", scope_id=lab.device.pk))  # fmt: skip
    preview = rule_preview(person=lab.administrator, rule=active_rule(row), since=began, until=again + 60)
    assert preview.gaps
    assert preview.sentence == "It would have fired once, as there was no value, on one series, for 2 s altogether."
    (drawing,) = (draw_preview_line(line, preview) for line in preview.lines)
    assert (drawing.limit, len(drawing.bars)) == (None, 1)
    text = render_to_string(
        "telemetry/alerts/preview.html", {"preview": preview, "drawings": [drawing], "span_words": "an hour"}
    )
    assert "Worst" not in text
    said = [
        tried(lab, began, condition="missing", hold_seconds=60.0).sentence,
        tried(lab, began, condition="missing", metric="power_watts").sentence,
    ]
    assert said[0] == "It would not have fired. None of 2 series was without a value for that long."
    assert "there is no preview" in said[1]


def test_the_picture_shows_the_band_the_limit_and_the_times(lab: Lab, began: float) -> None:
    preview = tried(lab, began)
    drawing = draw_preview_line(preview.lines[0], preview)
    assert len(drawing.bars) == 2
    assert drawing.bars[0].x == pytest.approx(WIDTH * 100 / SECONDS, abs=1)
    assert drawing.limit is not None
    assert 0 < drawing.limit < HEIGHT
    assert drawing.label == "GPU 1, Drawer 1 slot 1 of falcon: from 50.0 °C to 95.0 °C, fired 2 times"
    places = [float(part) for band in drawing.bands for point in band.split() for part in point.split(",")]
    assert all(0 <= one <= WIDTH for one in places)


def test_page_and_api_try_a_rule_and_keep_nothing(lab: Lab, began: float) -> None:
    client = lab.client(lab.administrator)
    entries = AuditEntry.objects.count()
    asked = {"metric": "temperature_celsius", "condition": "above", "value": "80", "scope": "all"}
    page = client.get(
        "/alerts/rules/preview/", {**asked, "name": "x", "hold_seconds": "0", "severity": "Warning", "range": "3600"}
    )
    text = page.content.decode()
    assert page.status_code == 200
    assert "It would have fired 2 times on 2 series" in text
    assert text.count("<svg") == 2
    unfinished = client.get("/alerts/rules/preview/", {"metric": "temperature_celsius"}).content.decode()
    assert "Fill in the rule first" in unfinished
    whole = client.get("/alerts/rules/add/", {**asked, "name": "x", "hold_seconds": "0", "severity": "Warning"})
    assert "It would have fired 2 times" in whole.content.decode()
    answer = client.get("/api/v1/alert-rules/preview/", {**asked, "since": "2000-01-01T00:00:00Z"})
    assert answer.status_code == 400
    answer = client.get("/api/v1/alert-rules/preview/", asked)
    assert answer.status_code == 200
    assert (answer.json()["fired"], answer.json()["series"]) == (2, 2)
    assert json.loads(answer.content)["episodes"][0]["subject_name"] == "GPU 1, Drawer 1 slot 1"
    assert client.get("/api/v1/alert-rules/preview/", {**asked, "condition": "near"}).status_code == 400
    assert not Rule.objects.exists()
    assert not Alert.objects.exists()
    assert AuditEntry.objects.count() == entries
    for person in (lab.user, lab.viewer):
        assert lab.client(person).get("/api/v1/alert-rules/preview/", asked).status_code == 403
        assert lab.client(person).get("/alerts/rules/preview/", asked).status_code == 403


def test_each_metric_has_a_picture_of_its_last_hour(lab: Lab, began: float) -> None:
    labels = {"temperature_celsius": "Temperature (°C)", "power_watts": "Power (W)"}
    (warm, power), name = metric_pictures(lab.administrator, labels)
    assert name == "falcon"
    assert (warm.range, power.range, power.bands) == ("40.0 °C to 95.0 °C", "", ())
    (band,) = warm.bands
    places = [float(part) for point in band.split() for part in point.split(",")]
    assert all(0 <= one <= 120 for one in places)
    assert lab.client(lab.administrator).get("/alerts/rules/metrics/").status_code == 200
    assert lab.client(lab.user).get("/alerts/rules/metrics/").status_code == 403
