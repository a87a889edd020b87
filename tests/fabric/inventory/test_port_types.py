"""What a port can be configured as is what it is wired for: a host's port upstream, a slot's downstream."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from core.errors import Invalid
from fabric.allocation.services import allocation_check, allocation_export
from fabric.inventory.models import Chassis, Device, HostPort, Port
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import SimulatorProcess

pytestmark = pytest.mark.django_db


def ports() -> tuple[Port, Port]:
    """Return the port of host port H1, and that of a slot."""
    host_port = HostPort.objects.select_related("port").get(label="H1")
    slotted = Device.objects.select_related("slot__port").filter(slot__drawer__number=1, slot__number=1).get().slot
    assert host_port.port is not None
    assert slotted is not None
    assert slotted.port is not None
    return host_port.port, slotted.port


def test_a_type_that_the_bmc_would_refuse_is_refused_before_anything_is_touched(
    chassis: Chassis, administrator: User, simulator: SimulatorProcess
) -> None:
    of_host, of_slot = ports()
    for port, port_type, leads in ((of_host, "DownstreamPort", "host"), (of_slot, "UpstreamPort", "slot")):
        wanted = DesiredState(settings={port.pk: PortSetting(port_type=port_type)})
        with pytest.raises(Invalid, match=f"leads to a {leads}: it can be .*, not {port_type}"):
            plan_create(person=administrator, desired=wanted, title="", origin="api")
    # One that was drafted before this was looked at is not applied.
    plan = plan_create(
        person=administrator,
        desired=DesiredState(settings={of_host.pk: PortSetting(configured_width=8)}),
        title="",
        origin="api",
    )
    Plan.objects.update(wanted=DesiredState(settings={of_host.pk: PortSetting(port_type="DownstreamPort")}).as_json())
    with pytest.raises(Invalid, match="leads to a host"):
        plan_apply(person=administrator, plan=plan)
    assert not Operation.objects.exists()
    assert simulator.state()["requests"].get("PATCH", 0) == 0


def test_a_port_is_offered_what_it_can_be(chassis: Chassis, administrator: User) -> None:
    of_host, of_slot = ports()
    browser = Client()
    browser.force_login(administrator)
    host_page = browser.get(reverse("fabric:port", args=[of_host.pk])).content.decode()
    slot_page = browser.get(reverse("fabric:port", args=[of_slot.pk])).content.decode()
    assert '<option value="UnconfiguredPort">' in host_page
    assert '<option value="UnconfiguredPort">' in slot_page
    assert "DownstreamPort" not in host_page
    assert "UpstreamPort" not in slot_page
    answer = browser.post(
        reverse("api:plans"),
        {"port_settings": [{"port_id": of_host.pk, "port_type": "DownstreamPort"}]},
        content_type="application/json",
    )
    assert answer.status_code == 400
    assert "can be UpstreamPort or UnconfiguredPort" in answer.json()["errors"]["port_settings"]
    form = {"port": of_host.pk, "port_type": "DownstreamPort", "configured_width": "", "next": "/"}
    browser.post(reverse("fabric:draft"), form)
    assert not Plan.objects.exists()


def test_a_file_that_wants_another_type_does_not_fit(chassis: Chassis, administrator: User) -> None:
    document = json.loads(allocation_export(person=administrator).text("json"))
    drawer = document["chassis"][0]["drawers"][0]
    drawer["host_ports"][0]["port_type"] = "DownstreamPort"
    drawer["slots"][0]["port_type"] = "UpstreamPort"
    report = allocation_check(person=administrator, raw=json.dumps(document).encode(), format="json").report
    assert report is not None
    assert [line.sentence for line in report.misfits] == [
        "A host's port can be configured as UpstreamPort or UnconfiguredPort, not as 'DownstreamPort'.",
        "The port of a slot can be configured as DownstreamPort or UnconfiguredPort, not as 'UpstreamPort'.",
    ]
