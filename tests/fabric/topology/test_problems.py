"""Present problems: who sees which, how bad they are, and what they make of the status of things."""

from __future__ import annotations

import pytest
from django.urls import reverse

from accounts.models import User
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device
from fabric.topology.layout import layout_chassis
from fabric.topology.problems import Problem, ProblemLevel, StatusBoard, Subject, present_problems
from fabric.topology.selectors import fabric_view
from telemetry.alerts.models import Alert, Silence
from tests.access.lab import Lab, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


def problem(word: str, about: Subject, level: ProblemLevel = ProblemLevel.WARNING) -> Problem:
    return Problem(level=level, word=word, sentence=f"{word}.", page="fabric:device", pk=1, about=about)


@pytest.fixture
def whole(lab: Lab) -> Lab:
    """Two tenants' devices in one chassis, with nothing wrong."""
    Alert.objects.all().delete()
    Chassis.objects.update(last_error="")
    return lab


def seen_by(name: str) -> list[Problem]:
    return list(present_problems(User.objects.get(username=name), [*Chassis.objects.values_list("pk", flat=True)]))


def words_of(name: str) -> list[str]:
    return [one.word for one in seen_by(name)]


def test_a_tenant_sees_the_problems_of_its_own_things_alone(whole: Lab) -> None:
    Device.objects.update(health="Critical")
    other = Device.objects.exclude(pk=whole.device.pk).get()
    assert {one.about for one in seen_by("administrator")} >= {("device", whole.device.pk), ("device", other.pk)}
    assert ("device", other.pk) not in {one.about for one in seen_by("owner")}
    assert ("device", whole.device.pk) in {one.about for one in seen_by("owner")}
    assert words_of("stranger") == []


def test_the_worst_comes_first_and_what_says_more_replaces_that_something_is_wrong(whole: Lab) -> None:
    Device.objects.filter(pk=whole.device.pk).update(health="Warning")
    Drift.objects.all().delete()
    assert "health Warning" in words_of("owner")
    Device.objects.filter(pk=whole.device.pk).update(lanes_in_use=8, max_lanes=16)
    assert "health Warning" not in words_of("owner")
    Device.objects.filter(pk=whole.device.pk).update(health="Critical")
    assert words_of("owner")[0] == "health Critical"
    levels = [one.level for one in seen_by("administrator")]
    assert levels == sorted(levels, reverse=True)


def test_an_alert_of_a_device_is_its_problem_until_it_is_resolved(lab: Lab) -> None:
    alert = Alert.objects.get(device=lab.device)
    assert "temperature" not in words_of("administrator")  # it is silenced
    Silence.objects.all().delete()
    Alert.objects.filter(pk=alert.pk).update(quantity="Temperature", value=99.0, unit="°C", series_key="device/1/x")
    (found,) = [one for one in seen_by("administrator") if one.page == "alerts:alert" and one.pk == alert.pk]
    assert (found.level, found.word, found.about) == (ProblemLevel.CRITICAL, "temperature", ("device", lab.device.pk))
    assert "99.0 °C" in found.sentence
    for word, page, query in (
        ("temperature", "fabric:fabric", {}), ("temperature", "fabric:fabric", {"view": "list"}),
        (found.sentence, "fabric:overview", {}), (found.sentence, "fabric:device", {}),
        (found.sentence, "fabric:host", {}),
    ):  # fmt: skip
        pk = {"fabric:device": [lab.device.pk], "fabric:host": [lab.host_port.host_id]}.get(page)
        assert word in page_text(lab.clients["owner"].get(reverse(page, args=pk), query)), page
    Alert.objects.filter(pk=alert.pk).update(state="resolved")
    assert alert.pk not in {one.pk for one in seen_by("administrator") if one.page == "alerts:alert"}


def test_the_status_of_a_thing_is_the_worst_of_its_parts(whole: Lab) -> None:
    (view,) = fabric_view(User.objects.get(username="administrator"))
    slot = next(one for one in view.drawers[0].slots if one.device and one.device.id == whole.device.pk)
    assert slot.port_id is not None
    host_port = next(one for one in view.host_ports if one.id == whole.host_port.pk)
    drawer = view.drawers[0].id
    assert drawer is not None
    board = StatusBoard(
        [view],
        [
            problem("missing", ("device", whole.device.pk), ProblemLevel.CRITICAL),
            problem("link degraded", ("port", slot.port_id)),
            problem("drifted", ("host-port", host_port.id)),
        ],
    )
    device, port, above = (
        board.of("device", whole.device.pk),
        board.of("host-port", host_port.id),
        board.of("drawer", drawer),
    )
    assert device is not None
    assert port is not None
    assert above is not None
    assert (device.level, device.words) == (ProblemLevel.CRITICAL, "missing, link degraded")
    assert (port.level, port.words) == (ProblemLevel.WARNING, "drifted")
    assert (above.level, above.words) == (ProblemLevel.CRITICAL, "missing, link degraded, drifted")
    assert board.of("chassis", view.id) is not None
    assert board.of("drawer", None) is None
    picture = layout_chassis(view, board=board).drawers[0]
    boxes = {box.slot.device.id: box for box in picture.boxes if box.slot.device}
    assert "critical: missing, link degraded" in boxes[whole.device.pk].label
    assert {pk for pk, box in boxes.items() if box.status} == {whole.device.pk}
