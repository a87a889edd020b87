"""The overview: the fleet by a measure, capacity, and the line of the traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.urls import reverse

from accounts.models import Tenant, User
from fabric.inventory.models import Device
from fabric.topology.fleet import MEASURES, SCALES, fleet_of
from fabric.topology.overview import overview_for
from fabric.topology.presentation import sparkline_path
from fabric.topology.problems import status_board
from fabric.topology.readings import ChassisReadings, FleetReadings
from tests.access.lab import Lab, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


def test_the_chosen_measure_is_remembered_and_an_unknown_one_is_not(lab: Lab) -> None:
    page, boss = reverse("fabric:overview"), lab.clients["administrator"]
    for by in MEASURES:
        assert boss.get(page, {"by": by}).status_code == 200
        assert f'href="?by={by}" aria-current="true"' in " ".join(boss.get(page).content.decode().split())
    assert boss.get(page, {"by": "<script>"}).context["overview"].fleet.by == by


def test_a_tenant_sees_no_other_tenant_by_letter_or_name(lab: Lab) -> None:
    boss, owner = (User.objects.get(username=name) for name in ("administrator", "owner"))
    assert owner.tenant_id is not None
    Tenant.objects.filter(pk=owner.tenant_id).update(name="Own group")
    Tenant.objects.exclude(pk=owner.tenant_id).filter(devices__isnull=False).update(name="Unseen group")
    own = fleet_of(owner, status_board(owner), by="tenant")
    assert [one.name for one in own.tenants] == ["Own group"]
    assert {"others", "t1"} <= {state for tile in own.tiles for drawer in tile.cells for state in drawer}
    assert "Unseen group" not in page_text(lab.clients["owner"].get(reverse("fabric:overview"), {"by": "tenant"}))
    assert {one.name for one in fleet_of(boss, status_board(boss), by="tenant").tenants} == {
        "Own group",
        "Unseen group",
    }


def test_free_is_detached_and_unassigned(lab: Lab) -> None:
    boss = User.objects.get(username="administrator")
    Device.objects.update(host_port=None)
    assert overview_for(boss).free == 0
    Device.objects.filter(pk=lab.device.pk).update(tenant=None)
    assert overview_for(boss).free == 1
    Device.objects.filter(pk=lab.device.pk).update(host_port=lab.host_port)
    assert overview_for(boss).free == 0


def test_a_value_at_a_bound_is_in_the_step_above_and_the_legend_says_so() -> None:
    heat = SCALES["temperature"]
    assert [heat.step(value) for value in (-5, 39.9, 40, 84.9, 85, 300)] == [1, 1, 2, 4, 5, 5]
    assert [SCALES["traffic"].words(value * 1e9) for value in (0.004, 9.96, 12.34, 131.4)] == [
        "0.00 GB/s", "9.96 GB/s", "12.3 GB/s", "131 GB/s"
    ]  # fmt: skip
    assert [words for _, words in heat.legend][::2] == ["below 40 °C", "55 to 70 °C", "from 85 °C"]


def test_a_sparkline_has_a_gap_where_there_is_no_value() -> None:
    assert sparkline_path([1.0, 2.0, None, 2.0]) == "M0 12.0h.1L10 1.0M30 1.0h.1"
    assert not sparkline_path([None, None])
    assert "nan" not in sparkline_path([0.0, 0.0])


def test_the_traffic_of_now_is_part_of_the_last_ten_minutes(lab: Lab) -> None:
    readings = FleetReadings(of={1: ChassisReadings(bytes_per_second=2e9)}, traffic=(1e9, None))
    overview = replace(overview_for(User.objects.get(username="administrator")), readings=readings)
    assert overview.traffic == overview.busiest == "2.00 GB/s"
