"""Devices for a host as the site proposes them."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from accounts.models import Tenant, User
from fabric.compose.proposal import GiveProposal, give_proposal
from fabric.inventory.models import Chassis, Device, Drawer, Host
from fabric.operations.models import Plan
from tests.fabric.hosts import MARIA, TellingHost
from tests.fabric.plans.pages import browser, device_in, granted, port, words

V100 = "Tesla V100-PCIE-16GB"


@pytest.fixture
def chassis(chassis: Chassis) -> Chassis:
    """A chassis whose first drawer has six GPUs of one model, all but the first one detached."""
    for slot in range(2, 7):
        Device.objects.filter(pk=device_in(1, slot).pk).update(host_port=None, name=V100)
    return chassis


def proposed(person: User, count: int, host: str = "node-b") -> GiveProposal:
    return give_proposal(person, Host.objects.get(name=host), V100, count)


def slots(proposal: GiveProposal, cost: int | None = None) -> list[int]:
    """Return the slots of what is proposed, or of what has a cost."""
    found = [one for one in proposal.devices if (one.is_proposed if cost is None else one.cost == cost)]
    return [one.change.device.slot.number for one in found if one.change.device.slot is not None]


def test_detached_devices_without_problems_are_proposed_first(
    chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    Device.objects.filter(pk=device_in(1, 2).pk).update(health="Critical")
    granted(tenant, 3)
    proposal = proposed(administrator, 2)
    assert slots(proposal) == [4, 5]
    assert {one.change.target for one in proposal.devices} == {port("H2")}
    told = {slot: one.reason for slot, one in zip(slots(proposal, 3), [proposal.devices[-1]], strict=True)}
    assert told == {3: f"Assigned to {tenant.name}"}
    assert slots(proposal, 2) == [2]
    asked: dict[str, str | int] = {"host": Host.objects.get(name="node-b").pk, "model": V100, "count": 9}
    shown = words(browser(administrator).get(reverse("fabric:give"), asked))
    assert "Not enough: 3 of 9" in shown
    assert "1 more has a problem" in shown
    assert "No other one" not in shown
    # The tenant's own device may go where the tenant's host port is.
    granted(tenant, ports=("H2",))
    assert slots(proposed(administrator, 2)) == [3, 4]


def test_what_a_rule_refuses_is_replaced_by_what_it_permits(chassis: Chassis, administrator: User) -> None:
    Drawer.objects.filter(number=1).update(mode="StandardTwoHosts")
    Device.objects.filter(pk=device_in(1, 1).pk).update(host_port=None, name=V100)
    proposal = proposed(administrator, 2)
    assert slots(proposal) == [5, 6]
    assert "H2 reaches slots 5 to 8" in proposal.devices[-1].reason


def test_where_there_are_not_enough_it_says_what_would_have_to_move(chassis: Chassis, administrator: User) -> None:
    TellingHost("node-a").tell({device_in(1, 1): MARIA})
    asked: dict[str, str | int] = {"host": Host.objects.get(name="node-b").pk, "model": V100, "count": 9}
    answer = browser(administrator).get(reverse("fabric:give"), asked)
    shown = words(answer)
    assert "▲ Not enough: 5 of 9 detached and without problems." in shown
    assert "1 more would have to move from another host" in shown
    assert f"train (process {MARIA.pid} of maria)" in shown
    assert len(re.findall(r"\bchecked\b", answer.content.decode())) == 5
    # What it proposes is what the request takes, without a script too.
    changes = [one.change.value for one in proposed(administrator, 2).devices if one.is_proposed]
    sent = browser(administrator).post(reverse("fabric:compose"), {"change": changes})
    assert sent["Location"] == f"/plans/{Plan.objects.get().pk}/"


def test_a_tenant_is_proposed_only_what_it_holds(chassis: Chassis, tenant: Tenant, member: User, viewer: User) -> None:
    address = reverse("fabric:give")
    host = Host.objects.get(name="node-b")
    asked: dict[str, str | int] = {"host": host.pk, "model": V100, "count": 2}
    assert "Nothing to attach" in words(browser(member).get(address, asked))
    granted(tenant, 2, 3, ports=("H2",))
    proposal = proposed(member, 2)
    assert slots(proposal) == [2, 3]
    assert len(proposal.devices) == 2
    # A host that is not theirs, a model that does not exist, and numbers out of range propose nothing, or at most all.
    wrongs: list[dict[str, str | int]] = [{"host": Host.objects.get(name="node-a").pk}, {"model": "<b>"}, {"host": "x"}]
    for wrong in wrongs:
        assert "Attach selected" not in words(browser(member).get(address, {**asked, **wrong}))
    assert "Not enough: 2 of 16" in words(browser(member).get(address, {**asked, "count": "99999"}))
    assert "You may look, but not attach anything." in words(browser(viewer).get(address, asked))
