"""Plans in each way that services let devices be attached: the same words of the site, several of the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from accounts.models import User
from core.errors import Conflict
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.plans.jobs import plan_cancel
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import SimulatorProcess, add_mirrored, carry_out_plan
from tests.turns import at_night

DIALECTS = {
    "patch": "zone_patch",
    "psme-old": "zone_patch",
    "actions": "zone_actions",
    "blocks": "resource_blocks",
    "block-patch": "block_patch",
    "systems": "system_post",
    "compose": "compose",
}


# Zones that are patched are those of all other tests.
@pytest.fixture(params=["blocks", *at_night("actions", "patch", "psme-old", "block-patch", "systems", "compose")])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def simulator(transactional_db: None, dialect: str) -> Iterator[SimulatorProcess]:
    with SimulatorProcess("--dialect", dialect, chassis="falcon-1") as process:
        process.set_speed(20)
        yield process


def wanted() -> DesiredState:
    """A device of drawer 1 detached, another one attached, and drawer 2 in another mode."""
    leaves, comes = (Device.objects.get(slot__drawer__number=1, slot__number=number).pk for number in (1, 7))
    return DesiredState(
        attachments={leaves: None, comes: HostPort.objects.get(label="H3").pk},
        modes={Drawer.objects.get(number=2).pk: DrawerMode.ADVANCED},
    )


def zones(simulator: SimulatorProcess) -> dict[str, list[str]]:
    return {zone: sorted(members) for zone, members in simulator.state()["zones"].items()}


def test_a_plan_attaches_detaches_and_changes_the_mode_and_goes_back(
    chassis: Chassis, dialect: str, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    assert chassis.dialect == DIALECTS[dialect]
    assert chassis.dialect_reason
    before, modes = zones(simulator), simulator.state()["modes"]
    simulator.fault("link_downgrade", "drawer1slot7", lanes=1)
    plan = plan_create(person=administrator, desired=wanted(), title="", origin="api")
    stopped = carry_out_plan(plan_apply(person=administrator, plan=plan))
    assert stopped.state == "stopped"
    assert "drawer1slot1" not in zones(simulator)["hostport1_H1"]
    simulator.clear_faults()
    assert carry_out_plan(plan_cancel(person=administrator, plan=stopped, roll_back=True)).state == "rolled_back"
    assert (zones(simulator), simulator.state()["modes"]) == (before, modes)
    plan = plan_create(person=administrator, desired=wanted(), title="", origin="api")
    ended = carry_out_plan(plan_apply(person=administrator, plan=plan))
    assert (ended.state, ended.sentence) == ("done", "")
    assert "drawer1slot1" not in zones(simulator)["hostport1_H1"]
    assert zones(simulator)["hostport1_H3"] == ["drawer1slot7"]
    assert simulator.state()["modes"]["drawer2"] == "Advanced"
    assert set(ended.operations.values_list("proof__untouched", flat=True)) == {True}


def test_a_service_without_any_of_them_is_monitored_only_and_says_so(
    db: None, administrator: User, client: Client
) -> None:
    with SimulatorProcess("--dialect", "none", chassis="falcon-1") as process:
        row = add_mirrored(process)
    device = Device.objects.filter(chassis=row, host_port=None, missing_since=None).first()
    assert device is not None
    with pytest.raises(Conflict, match="monitored only"):
        plan_create(person=administrator, desired=DesiredState(attachments={device.pk: None}), title="", origin="api")
    client.force_login(administrator)
    page = client.get(f"/chassis/{row.pk}/").content.decode()
    assert "Monitored only" in page
    assert "and no system offers" in page
