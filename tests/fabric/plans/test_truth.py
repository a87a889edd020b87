"""Plans believe what the hardware shows: neither what they did themselves, nor what others are about to do."""

from __future__ import annotations

import pytest

from accounts.models import User
from core.errors import Conflict
from fabric.bmc.types import DrawerMode
from fabric.execution.services import execute
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.operations.services import mode_request, operation_cancel, operation_request
from fabric.plans.jobs import plan_advance, plan_cancel, plan_resume
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create, plan_undo
from falconweb.testing import SimulatorProcess, carry_out, carry_out_plan, device_in, host_port_of, mirror
from tests.fabric import outside
from tests.fabric.disorder import at_step, short_outages
from tests.turns import at_night

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("short_retraining")]


def gpu(chassis: Chassis, slot: int = 1) -> Device:
    return device_in(chassis, drawer=1, slot=slot)


def to(chassis: Chassis, label: str, *slots: int) -> DesiredState:
    target = host_port_of(chassis, label).pk
    return DesiredState(attachments=dict.fromkeys((gpu(chassis, slot).pk for slot in slots), target))


def applied(person: User, wanted: DesiredState) -> Plan:
    plan = plan_create(person=person, desired=wanted, title="", origin="api")
    return plan_apply(person=person, plan=plan)


def stopped(person: User, simulator: SimulatorProcess, wanted: DesiredState, trouble: str) -> Plan:
    """Return a plan that stopped since the link of one of its devices trained badly."""
    fault = simulator.fault("link_downgrade", trouble, lanes=1)
    plan = carry_out_plan(applied(person, wanted))
    simulator.end_fault(fault)
    assert plan.state == "stopped"
    return plan


def way_back(person: User, plan: Plan) -> list[Operation]:
    """Return the operations of the way back, none of which has begun."""
    plan_cancel(person=person, plan=plan, roll_back=True)
    plan_advance(plan.pk)
    return list(plan.operations.filter(is_rollback=True).in_turn())


def test_a_way_back_has_ended_when_the_hardware_shows_it(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    plan = stopped(administrator, simulator, to(chassis, "H3", 1, 2), "drawer1slot2")
    for operation in way_back(administrator, plan):
        execute(str(operation.pk), worker="w")
    assert Plan.objects.get(pk=plan.pk).state == "rolling_back", "nobody has told yet"
    outside.put(chassis, simulator, gpu(chassis), to=None)
    plan_advance(plan.pk)
    plan.refresh_from_db()
    assert plan.state == "stopped", "what was brought back is gone again"
    assert "was done, but somebody else has changed it since." in plan.sentence
    ended = carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True))
    assert ended.state == "rolled_back"
    assert "drawer1slot1" in simulator.state()["zones"]["hostport1_H1"]


@pytest.mark.parametrize("place", ["H2", *at_night("")])
def test_a_way_back_leaves_alone_what_the_plan_never_came_to(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, place: str
) -> None:
    plan = stopped(administrator, simulator, to(chassis, "H3", 1, 2), "drawer1slot1")
    target = host_port_of(chassis, place) if place else None
    carry_out(operation_request(person=administrator, device=gpu(chassis, 2), target=target))
    ended = carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True))
    zones = {one: zone for zone, inside in simulator.state()["zones"].items() for one in inside}
    assert (ended.state, zones["drawer1slot1"]) == ("rolled_back", "hostport1_H1")
    assert zones.get("drawer1slot2") == (f"hostport1_{place}" if place else None)


def test_what_never_began_is_not_undone(chassis: Chassis, administrator: User) -> None:
    plan = applied(administrator, to(chassis, "H3", 1, 2))
    plan_cancel(person=administrator, plan=plan)
    plan_advance(plan.pk)
    plan.refresh_from_db()
    assert plan.state == "cancelled"
    with pytest.raises(Conflict, match="has changed nothing"):
        plan_undo(person=administrator, plan=plan)


def test_a_way_back_does_not_count_on_what_others_are_about_to_do(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    plan = stopped(administrator, simulator, to(chassis, "H3", 1), "drawer1slot1")
    other = operation_request(person=administrator, device=gpu(chassis), target=host_port_of(chassis, "H1"))
    assert way_back(administrator, plan) == []
    plan.refresh_from_db()
    assert plan.state == "rolling_back", "it is not at its place yet"
    operation_cancel(person=administrator, operation=other)
    assert carry_out_plan(plan).state == "rolled_back"
    assert "drawer1slot1" in simulator.state()["zones"]["hostport1_H1"]
    assert "below what device and slot can do" in Plan.objects.get(pk=plan.pk).sentence, (
        "why it went back is told still"
    )


@pytest.mark.usefixtures("simulator")
def test_a_plan_is_not_done_by_what_others_are_about_to_do(chassis: Chassis, administrator: User) -> None:
    wish = to(chassis, "H3", 1)
    other = operation_request(person=administrator, device=gpu(chassis), target=host_port_of(chassis, "H3"))
    with pytest.raises(Conflict, match="which has not ended"):
        applied(administrator, wish)
    carry_out(other)
    assert applied(administrator, wish).state == "done"


def test_a_mode_that_others_are_about_to_change_is_not_counted_on(chassis: Chassis, administrator: User) -> None:
    drawer = Drawer.objects.get(number=2)
    mode_request(person=administrator, drawer=drawer, mode="Advanced")
    with pytest.raises(Conflict, match="which has not ended"):
        applied(administrator, DesiredState(modes={drawer.pk: DrawerMode.ADVANCED}))


@pytest.mark.nightly
def test_a_port_that_was_set_while_the_bmc_vanished_is_set_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    port = Port.objects.get(slot__device=gpu(chassis, 7))
    before = port.configured_width
    plan = applied(administrator, DesiredState(settings={port.pk: PortSetting(configured_width=4)}))
    [operation] = plan.operations.all()

    def vanish() -> None:
        simulator.fault("hang")

    with short_outages(), at_step(operation.pk, "Wait for the link", vanish):
        execute(str(operation.pk), worker="w")
    plan_advance(plan.pk)
    simulator.clear_faults()
    plan.refresh_from_db()
    assert (plan.state, simulator.state()["ports"]["drawer1slot7"]["configured_lanes"]) == ("stopped", 4)
    assert Port.objects.get(pk=port.pk).configured_width == before, "nobody could read it"
    assert carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True)).state == "rolled_back"
    assert simulator.state()["ports"]["drawer1slot7"]["configured_lanes"] == before


def test_a_plan_whose_device_is_gone_stops_until_it_is_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    plan = stopped(administrator, simulator, to(chassis, "H3", 1, 2), "drawer1slot2")
    fault = simulator.fault("surprise_removal", "drawer1slot1")
    mirror(chassis)
    for back in (True, False):
        plan = (
            plan_cancel(person=administrator, plan=plan, roll_back=True)
            if back
            else plan_resume(person=administrator, plan=plan)
        )
        plan = carry_out_plan(plan)
        assert (plan.state, "it is missing" in plan.sentence) == ("stopped", True)
    simulator.end_fault(fault)
    mirror(chassis)
    ended = carry_out_plan(plan_resume(person=administrator, plan=plan))
    assert (ended.state, ended.sentence) == ("done", "")
    assert set(simulator.state()["zones"]["hostport1_H3"]) == {"drawer1slot1", "drawer1slot2"}
    assert not HostPort.objects.filter(label="H1", devices__in=[gpu(chassis)]).exists()
