"""Present problems: who sees which, how bad they are, and what they make of the status of things."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.topology import problems
from fabric.topology.fleet import fleet_of
from fabric.topology.layout import layout_chassis
from fabric.topology.problems import Problem, ProblemLevel, present_problems, register_problem_source, status_board
from fabric.topology.selectors import fabric_view
from telemetry.alerts.models import Alert, Silence
from tests.access.lab import Lab, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


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
    # That it has drifted, too, does not say why it is unwell.
    assert {"health Warning", "drifted"} <= set(words_of("owner"))
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
        (found.sentence, "fabric:host", {}), (found.sentence, "fabric:slot", {}), (found.sentence, "fabric:port", {}),
    ):  # fmt: skip
        pks: dict[str, list[Any]] = {
            "fabric:device": [lab.device.pk], "fabric:host": [lab.host_port.host_id],
            "fabric:slot": [lab.device.slot_id], "fabric:port": [lab.device.slot.port_id if lab.device.slot else 0],
        }  # fmt: skip
        assert word in page_text(lab.clients["owner"].get(reverse(page, args=pks.get(page)), query)), page
    fan = {"cause": "fan_failed", "title": "Fan failed", "quantity": "Fan 2", "unit": "health", "value": 1.0}
    name = lab.device.chassis.name
    Alert.objects.filter(pk=alert.pk).update(object="chassis", subject_name=name, device=None, **fan)
    assert f"Fan failed: {name}, Fan 2." in {one.sentence for one in seen_by("administrator")}
    Alert.objects.filter(pk=alert.pk).update(state="resolved")
    assert alert.pk not in {one.pk for one in seen_by("administrator") if one.page == "alerts:alert"}


def test_the_status_of_a_thing_is_the_worst_of_its_parts(whole: Lab) -> None:
    Drift.objects.all().delete()
    HostPort.objects.update(missing_since=timezone.now())  # their links are said to be down
    Device.objects.filter(pk=whole.device.pk).update(missing_since=timezone.now())
    Device.objects.exclude(pk=whole.device.pk).update(lanes_in_use=8, max_lanes=16, host_port=None)
    other = Device.objects.select_related("slot__drawer").exclude(pk=whole.device.pk).get()
    boss = User.objects.get(username="administrator")
    (view,) = fabric_view(boss)
    board = status_board(boss, [view.id])
    device, narrow = board.of("device", whole.device.pk), board.of("device", other.pk)
    drawer, chassis = board.of("drawer", view.drawers[0].id), board.of("chassis", view.id)
    assert device is not None
    assert narrow is not None
    assert drawer is not None
    assert chassis is not None
    assert (device.level, device.words) == (ProblemLevel.CRITICAL, "missing")
    assert (narrow.level, narrow.words) == (ProblemLevel.WARNING, "narrow link")
    assert (drawer.level, drawer.words) == (ProblemLevel.CRITICAL, "missing, narrow link")
    assert chassis.level == ProblemLevel.CRITICAL
    assert board.of("drawer", None) is None
    picture = layout_chassis(view, board=board).drawers[0]
    labels = {box.slot.device.id: box.label for box in picture.boxes if box.slot.device}
    assert ", critical" in labels[whole.device.pk]
    assert ", warning: narrow link" in labels[other.pk]
    assert picture.status == drawer


def test_the_problem_of_a_port_is_that_of_what_is_behind_it_too(whole: Lab) -> None:
    port = whole.host_port.port_id
    assert port is not None
    found = Problem(
        level=ProblemLevel.WARNING, word="link degraded", sentence="It is.", page="links:link", pk=port,
        about=("port", port),
    )  # fmt: skip
    register_problem_source(source := lambda *_: [found])
    try:
        board = status_board(User.objects.get(username="owner"), [whole.device.chassis_id])
        status = board.of("host-port", whole.host_port.pk)
        assert status is not None
        assert found in status.problems
    finally:
        problems._problem_sources.remove(source)


def test_a_tile_has_a_cell_for_each_slot_and_the_worst_come_first(whole: Lab) -> None:
    Drift.objects.all().delete()
    Chassis.objects.create(name="falcon-10", url="https://127.0.0.1:10")
    Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    Device.objects.filter(pk=whole.device.pk).update(missing_since=timezone.now())
    other = Device.objects.exclude(pk=whole.device.pk).get()
    for name, states in (("administrator", {"critical", "attached"}), ("owner", {"critical", "others"})):
        person = User.objects.get(username=name)
        tiles = fleet_of(person, status_board(person)).tiles
        assert tiles[0].id == whole.device.chassis_id
        assert tiles[0].status is not None
        assert {state for drawer in tiles[0].cells for state in drawer} >= states
        assert "missing" in page_text(whole.clients[name].get(reverse("fabric:overview")))
    boss = User.objects.get(username="administrator")
    names = [one.name for one in fleet_of(boss, status_board(boss)).tiles]
    assert names[-2:] == ["falcon-9", "falcon-10"]
    assert other.name not in page_text(whole.clients["owner"].get(reverse("fabric:overview")))


def test_a_tenant_is_told_no_value_from_before_its_lease(lab: Lab) -> None:
    Silence.objects.all().delete()
    before = timezone.now() - timedelta(days=2)
    Alert.objects.filter(device=lab.device).update(
        quantity="Temperature", value=99.0, unit="°C", series_key="device/1/x", since=before, fired_at=before
    )
    Device.objects.filter(pk=lab.device.pk).update(tenant_since=timezone.now())
    of_all, of_tenant = (
        next(one for one in seen_by(name) if one.word == "temperature") for name in ("administrator", "owner")
    )
    assert "99.0" in of_all.sentence
    assert "99.0" not in of_tenant.sentence
