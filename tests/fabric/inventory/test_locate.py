"""The location LED of a chassis: who may switch it, what is read back, and what a chassis without one says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.models import User
from core.errors import Conflict, Forbidden, Unavailable
from fabric.bmc.hardware import is_lit
from fabric.inventory.locate import part_locate
from fabric.inventory.models import Chassis, ManagedPart
from fabric.topology.selectors import walked_front
from falconweb.testing import add_chassis, mirror
from falconweb.testing.processes import SimulatorProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    """One simulated falcon-1 for a module."""
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def chassis(simulator: SimulatorProcess) -> Iterator[Chassis]:
    """Its row, walked once."""
    yield mirror(add_chassis(simulator))
    simulator.clear_faults()


@pytest.fixture
def boss() -> User:
    """An administrator."""
    return User.objects.create(username="boss", role="administrator")


def enclosure() -> ManagedPart:
    part: ManagedPart = ManagedPart.objects.select_related("chassis").get(kind="chassis")
    return part


def test_an_administrator_switches_it_on_the_front_and_the_chassis_says_so(chassis: Chassis, boss: User) -> None:
    client = Client()
    client.force_login(boss)
    front = f"/fabric/?view=front&chassis={chassis.pk}"
    assert "Locate" in client.get(front).content.decode()
    answer = client.post(f"/chassis/{chassis.pk}/locate/", follow=True)
    assert answer.redirect_chain == [(front, 302)]
    assert "The location LED of falcon-1 is on." in answer.content.decode()
    assert "Location LED on" in answer.content.decode()
    mirror(chassis)  # what the chassis itself says now
    assert walked_front(boss, chassis.pk)[1] is True
    part_locate(person=boss, part=enclosure(), lit=True)  # once more, which changes nothing
    client.post(f"/chassis/{chassis.pk}/locate/", {"off": "1"})
    assert walked_front(boss, chassis.pk)[1] is False
    mirror(chassis)
    assert walked_front(boss, chassis.pk)[1] is False
    done = AuditEntry.objects.filter(action="chassis.locate", outcome="done").order_by("pk")
    assert [one.after for one in done] == [{"lit": True}, {"lit": True}, {"lit": False}]


def test_others_may_not_and_see_nothing_of_it(chassis: Chassis) -> None:
    member = User.objects.create(username="member", role="user")
    with pytest.raises(Forbidden):
        part_locate(person=member, part=enclosure(), lit=True)
    assert walked_front(member, chassis.pk) == ([], None)


def test_a_chassis_that_is_away_or_not_polled_says_so_without_its_address(
    chassis: Chassis, boss: User, simulator: SimulatorProcess
) -> None:
    simulator.fault("reset_connections")
    with pytest.raises(Unavailable, match="falcon-1 did not answer correctly") as caught:
        part_locate(person=boss, part=enclosure(), lit=True)
    assert "127.0.0.1" not in caught.value.sentence
    Chassis.objects.update(enabled=False)
    with pytest.raises(Conflict, match="not polled"):
        part_locate(person=boss, part=enclosure(), lit=True)


def test_both_properties_of_the_standard_are_understood_and_none_is_no_led() -> None:
    for body, lit in (
        ({"LocationIndicatorActive": False, "IndicatorLED": "Lit"}, False), ({"IndicatorLED": "Blinking"}, True),
        ({"IndicatorLED": "Off"}, False), ({"IndicatorLED": "Unknown"}, None), ({"LocationIndicatorActive": 1}, None),
        ({}, None),
    ):  # fmt: skip
        assert is_lit(body) is lit
