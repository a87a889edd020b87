"""Administrators choose how a chassis attaches devices, whatever it shows, and go back to what it shows."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import User
from core.errors import Conflict, Forbidden, Invalid
from fabric.bmc.dialects import dialect_of
from fabric.bmc.types import Dialect
from fabric.execution.chassis_parts import chassis_parts
from fabric.execution.services import execute
from fabric.inventory.dialect_choice import dialect_choose
from fabric.inventory.labels import DIALECT_LABELS
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.services import operation_request
from falconweb.testing import mirror
from falconweb.testing.processes import SimulatorProcess

FOUND = "Zone hostport1_H1 allows PATCH."


def test_each_dialect_has_a_class_and_a_label() -> None:
    assert set(DIALECT_LABELS) == set(Dialect)
    assert {dialect_of(name).name for name in Dialect} == set(Dialect)


def test_a_choice_outlives_walks_until_what_they_find_is_wanted_again(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    dialect_choose(person=administrator, chassis=chassis, choice="zone_actions")
    mirror(chassis)
    chassis.refresh_from_db()
    assert (chassis.dialect, chassis.dialect_choice) == ("zone_actions", "zone_actions")
    assert chassis.dialect_reason.startswith("Chosen by ada on ")
    assert HostPort.objects.filter(missing_since=None).count() == 4
    dialect_choose(person=administrator, chassis=chassis, choice="")
    chassis.refresh_from_db()
    assert (chassis.dialect, chassis.dialect_reason) == ("zone_patch", FOUND)
    told = AuditEntry.objects.filter(action="chassis.dialect").order_by("pk")
    key = "attach and detach"
    assert [(one.before and one.before[key], one.after and one.after[key]) for one in told] == [
        ("zone_patch", "zone_actions"), ("zone_actions", "zone_patch"),
    ]  # fmt: skip


def test_the_host_ports_of_a_choice_are_there_at_once(chassis: Chassis, administrator: User) -> None:
    def present() -> set[str]:
        stored = set(HostPort.objects.filter(missing_since=None).values_list("uri", flat=True))
        assert chassis_parts(Chassis.objects.get(pk=chassis.pk)).zones.keys() == stored, "operations read these, too"
        return {uri.rsplit("/", 2)[-2] for uri in stored}

    gpu = Device.objects.filter(host_port__isnull=False).first()
    assert gpu is not None
    assert present() == {"Zones"}
    dialect_choose(person=administrator, chassis=chassis, choice="zone_post")
    assert present() == {"Endpoints"}
    dialect_choose(person=administrator, chassis=chassis, choice="")
    assert present() == {"Zones"}
    assert Device.objects.get(pk=gpu.pk).host_port == gpu.host_port


def test_an_operation_uses_the_dialect_that_was_chosen(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    dialect_choose(person=administrator, chassis=chassis, choice="zone_actions")
    before = simulator.state()["requests"]
    nic = Device.objects.get(uri__endswith="drawer1/PCIeDevices/slot7")
    operation = operation_request(person=administrator, device=nic, target=HostPort.objects.get(label="H2"))
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    assert operation.state == "done"
    now = simulator.state()["requests"]
    assert now.get("PATCH", 0) == before.get("PATCH", 0)
    assert now["POST"] > before.get("POST", 0) + 1, "more than to sign in"


def test_what_is_monitored_only_by_choice_is_not_written(chassis: Chassis, administrator: User) -> None:
    dialect_choose(person=administrator, chassis=chassis, choice="none")
    nic = Device.objects.get(uri__endswith="drawer1/PCIeDevices/slot7")
    with pytest.raises(Conflict, match="monitored only"):
        operation_request(person=administrator, device=nic, target=HostPort.objects.get(label="H2"))


def test_a_choice_is_refused_to_others_for_what_is_unknown_and_during_an_operation(
    chassis: Chassis, administrator: User
) -> None:
    with pytest.raises(Forbidden):
        dialect_choose(person=User.objects.create(username="eve"), chassis=chassis, choice="zone_patch")
    with pytest.raises(Invalid, match="no known way"):
        dialect_choose(person=administrator, chassis=chassis, choice="telepathy")
    nic = Device.objects.get(uri__endswith="drawer1/PCIeDevices/slot7")
    operation_request(person=administrator, device=nic, target=HostPort.objects.get(label="H2"))
    with pytest.raises(Conflict, match="has not ended"):
        dialect_choose(person=administrator, chassis=chassis, choice="zone_actions")
    chassis.refresh_from_db()
    assert chassis.dialect_choice == ""


def test_the_page_and_the_api_say_which_and_why_and_take_another(chassis: Chassis, administrator: User) -> None:
    browser = Client()
    browser.force_login(administrator)
    page = reverse("fabric:chassis_dialect", args=[chassis.pk])
    assert FOUND in browser.get(page).content.decode()
    assert page in browser.get(reverse("fabric:chassis", args=[chassis.pk])).content.decode()
    shown = browser.post(page, {"choice": "zone_actions"}, follow=True).content.decode()
    assert "Chosen by ada on " in shown
    assert FOUND in shown, "what the chassis shows is said, too"
    address = reverse("api:chassis_dialect", args=[chassis.pk])
    assert browser.get(address).json()["choice"] == "zone_actions"
    answer = browser.put(address, {"choice": ""}, content_type="application/json")
    assert answer.json() == {
        "id": chassis.pk, "dialect": "zone_patch", "dialect_reason": FOUND, "choice": "", "settle_seconds": None,
    }  # fmt: skip
    assert browser.put(address, {"choice": "telepathy"}, content_type="application/json").status_code == 400
    assert browser.put(address, {}, content_type="application/json").status_code == 400
