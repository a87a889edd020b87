"""Plans against a real simulated chassis: previewed, applied, stopped, resumed, rolled back."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, Forbidden, NotFound, RuleViolation
from fabric.bmc.types import DrawerMode
from fabric.execution import services, steps
from fabric.execution.proof import PROOF_UNTOUCHED
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.operations.services import operation_cancel, operation_request
from fabric.plans.jobs import idle_plans, plan_advance, plan_cancel, plan_resume
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_change, plan_create, plan_discard, plan_undo
from fabric.tasks import run_operation
from falconweb.testing import SimulatorProcess, carry_out, carry_out_plan, mirror
from tests.fabric.disorder import at_step, short_outages
from tests.turns import at_night
from tests.waiting import wait_for


def device_in(drawer: int, slot: int) -> Device:
    return Device.objects.get(slot__drawer__number=drawer, slot__number=slot)


def port(label: str) -> HostPort:
    return HostPort.objects.get(label=label)


def drawer(number: int) -> Drawer:
    return Drawer.objects.get(number=number)


def planned(person: User | None, wanted: DesiredState, **more: Any) -> Plan:
    return plan_create(person=person, desired=wanted, title="", origin="api", **more)


def applied(person: User | None, wanted: DesiredState, **more: Any) -> Plan:
    return plan_apply(person=person, plan=planned(person, wanted), **more)


def kinds(plan: Plan) -> list[str]:
    return [step["kind"] for step in plan.preview]


def zones(simulator: SimulatorProcess) -> dict[str, list[str]]:
    return {zone: sorted(members) for zone, members in simulator.state()["zones"].items()}


def turnover() -> DesiredState:
    """All of drawer 1 to H3, and then in standard mode: seven devices, the first four from H1, the next two from H2."""
    devices = Device.objects.filter(slot__drawer__number=1)
    return DesiredState(
        attachments=dict.fromkeys((device.pk for device in devices), port("H3").pk),
        modes={drawer(1).pk: DrawerMode.STANDARD_ONE_HOST},
    )


def shift() -> DesiredState:
    """Three devices of drawer 1 to H3, one after the other."""
    return DesiredState(attachments=dict.fromkeys((device_in(1, slot).pk for slot in (1, 2, 3)), port("H3").pk))


@pytest.mark.nightly
def test_a_whole_drawer_is_turned_over_with_its_mode(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    plan = planned(administrator, turnover())
    assert set(kinds(plan)) == {"move", "attach", "mode"}
    before = simulator.state()
    ended = carry_out_plan(plan_apply(person=administrator, plan=plan))
    assert (ended.state, ended.sentence) == ("done", "")
    truth = simulator.state()
    assert truth["modes"]["drawer1"] == "StandardOneHost"
    assert sorted(truth["zones"]["hostport1_H3"]) == [f"drawer1slot{slot}" for slot in range(1, 8)]
    assert truth["zones"]["hostport2_H4"] == before["zones"]["hostport2_H4"], "drawer 2 was not named"
    assert [operation.state for operation in ended.operations.in_turn()] == ["done"] * len(plan.preview)
    assert set(ended.operations.values_list("proof__sentence", flat=True)) == {PROOF_UNTOUCHED}


def test_a_rule_that_stands_against_it_is_seen_in_the_draft_and_refused_at_the_application(
    chassis: Chassis, administrator: User
) -> None:
    wanted = DesiredState(modes={drawer(1).pk: DrawerMode.STANDARD_ONE_HOST})
    plan = planned(administrator, wanted)
    assert "objection" in plan.preview[0]
    with pytest.raises(RuleViolation) as refused:
        plan_apply(person=administrator, plan=plan)
    assert refused.value.details["objections"] == [step["objection"] for step in plan.preview]
    assert not Operation.objects.exists()


@pytest.mark.usefixtures("simulator")
def test_a_plan_on_a_state_that_has_changed_is_refused_with_the_difference(
    chassis: Chassis, administrator: User
) -> None:
    plan = planned(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    other = operation_request(person=administrator, device=device_in(1, 1), target=None)
    carry_out(other)
    with pytest.raises(Conflict) as refused:
        plan_apply(person=administrator, plan=plan)
    [difference] = refused.value.details["differences"]
    assert difference.startswith("Tesla V100")
    assert difference.endswith("is at no host now.")
    changed = plan_change(person=administrator, plan=plan, desired=DesiredState.from_json(plan.wanted))
    assert carry_out_plan(plan_apply(person=administrator, plan=changed)).state == "done"


def test_a_plan_is_applied_once(chassis: Chassis, administrator: User) -> None:
    plan = planned(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    plan_apply(person=administrator, plan=plan)
    with pytest.raises(Conflict, match="applied by ada already"):
        plan_apply(person=administrator, plan=plan)
    with pytest.raises(Conflict):
        plan_discard(person=administrator, plan=plan)
    assert plan.operations.count() == 1


def test_the_same_key_makes_the_same_plan(chassis: Chassis, administrator: User) -> None:
    wanted = DesiredState(attachments={device_in(1, 7).pk: None})
    assert planned(administrator, wanted, idempotency_key="k") == planned(administrator, wanted, idempotency_key="k")


@pytest.mark.usefixtures("transactional_db")
def test_nothing_to_do_is_done_at_once(chassis: Chassis, administrator: User) -> None:
    plan = applied(administrator, DesiredState(attachments={device_in(1, 7).pk: None}))
    assert (plan.state, plan.preview) == ("done", [])


def test_a_failed_step_stops_the_plan_and_nothing_more_begins(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    simulator.fault("link_downgrade", "drawer1slot2", lanes=4)
    plan = carry_out_plan(applied(administrator, shift()))
    assert plan.state == "stopped"
    assert "below what device and slot can do" in plan.sentence
    states = [operation.state for operation in plan.operations.in_turn()]
    at = states.index("failed")
    assert at > 0
    assert states == ["done"] * at + ["failed"] + ["cancelled"] * (len(states) - at - 1)
    rest = plan.operations.filter(state="cancelled").first()
    assert rest is not None
    assert rest.error.startswith("Not started: '")
    assert "' failed before it." in rest.error


def test_a_stopped_plan_is_resumed_from_what_the_hardware_shows(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    fault = simulator.fault("link_downgrade", "drawer1slot2", lanes=4)
    plan = carry_out_plan(applied(administrator, shift()))
    simulator.end_fault(fault)
    ended = carry_out_plan(plan_resume(person=administrator, plan=plan))
    assert (ended.state, ended.sentence) == ("done", "")
    assert len(simulator.state()["zones"]["hostport1_H3"]) == 3
    done_twice = ended.operations.filter(state="done").values("device").annotate(count=Count("pk")).filter(count__gt=1)
    assert not done_twice, "what is done is not done again"


@pytest.mark.usefixtures("short_retraining", "short_settling")
@pytest.mark.parametrize("answer", ["partial", *at_night("error")])
def test_a_stopped_plan_is_rolled_back_exactly(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, answer: str
) -> None:
    before, modes = zones(simulator), simulator.state()["modes"]
    simulator.fault("link_downgrade", "drawer1slot3", lanes=1)
    simulator.fault("half_applied_bind", "drawer1slot2", answer=answer)
    plan = carry_out_plan(applied(administrator, shift()))
    assert plan.state == "stopped"
    simulator.clear_faults()
    ended = carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True))
    assert ended.state == "rolled_back"
    assert (zones(simulator), simulator.state()["modes"]) == (before, modes)
    assert set(ended.operations.filter(is_rollback=True).values_list("state", flat=True)) == {"done"}


def test_a_plan_rolls_itself_back_where_that_was_wished(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    before = zones(simulator)
    simulator.fault("link_downgrade", "drawer1slot7", lanes=1)
    wanted = DesiredState(attachments={device_in(1, 1).pk: port("H2").pk, device_in(1, 7).pk: port("H2").pk})
    plan = carry_out_plan(applied(administrator, wanted, on_failure="roll_back"))
    assert plan.state == "rolled_back"
    assert "below what device and slot can do" in plan.sentence, "why is told still"
    assert zones(simulator) == before


def test_a_plan_is_cancelled_before_and_in_the_middle_and_goes_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before, modes = zones(simulator), simulator.state()["modes"]
    plan = applied(administrator, shift())
    for _ in range(2):
        first = plan.operations.filter(state="requested").in_turn().first()
        assert first is not None
        carry_out(first)
    ended = carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True))
    assert ended.state == "rolled_back"
    assert (zones(simulator), simulator.state()["modes"]) == (before, modes)
    assert plan.operations.filter(state="cancelled").count() == len(plan.preview) - 2


def test_a_cancelled_plan_stays_where_it_is_and_can_be_undone_later(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = zones(simulator)
    plan = applied(administrator, shift())
    first = plan.operations.in_turn().first()
    assert first is not None
    carry_out(first)
    ended = carry_out_plan(plan_cancel(person=administrator, plan=plan))
    assert ended.state == "cancelled"
    assert zones(simulator) != before
    undo = plan_undo(person=administrator, plan=ended)
    assert len(undo.preview) == 1
    assert carry_out_plan(plan_apply(person=administrator, plan=undo)).state == "done"
    assert zones(simulator) == before


def test_a_step_of_a_plan_whose_chassis_stays_away_stops_it_until_it_is_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    plan = applied(administrator, shift())
    simulator.fault("hang")
    with short_outages():
        plan = carry_out_plan(plan)
        assert plan.state == "stopped"
        back = carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True))
    assert back.state == "stopped", "the rollback begins with a read of the hardware"
    assert back.sentence.startswith("The rollback could not be planned:")
    simulator.clear_faults()
    assert carry_out_plan(plan_resume(person=administrator, plan=back)).state == "done"


def test_a_device_that_somebody_else_took_meanwhile_is_not_taken_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    fault = simulator.fault("link_downgrade", "drawer1slot7", lanes=1)
    plan = carry_out_plan(applied(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk})))
    assert plan.state == "stopped"
    simulator.end_fault(fault)
    carry_out(operation_request(person=administrator, device=device_in(1, 7), target=port("H1")))
    again = carry_out_plan(plan_resume(person=administrator, plan=plan))
    assert again.state == "stopped"
    assert "by somebody else meanwhile" in again.sentence
    assert carry_out_plan(plan_cancel(person=administrator, plan=again)).state == "left"


@pytest.mark.usefixtures("simulator")
def test_drawers_do_not_wait_for_each_other_and_a_second_plan_waits_behind_the_first(
    chassis: Chassis, administrator: User
) -> None:
    first = applied(
        administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk, device_in(2, 1).pk: None})
    )
    second = applied(administrator, DesiredState(attachments={device_in(1, 1).pk: None}))
    [waiting] = second.operations.all()
    carry_out(waiting)
    waiting.refresh_from_db()
    assert waiting.state == "requested", "the drawer is another job's"
    for operation in first.operations.order_by("-position"):
        carry_out(operation)
    assert carry_out_plan(first).state == "done"
    assert carry_out_plan(second).state == "done"


@pytest.mark.usefixtures("simulator")
def test_a_worker_that_died_between_two_steps_is_missed(chassis: Chassis, administrator: User) -> None:
    plan = applied(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    [operation] = plan.operations.all()
    carry_out(operation)
    assert Plan.objects.get(pk=plan.pk).state == "running", "nobody has told yet"
    assert idle_plans() == [str(plan.pk)]
    plan_advance(plan.pk)
    assert Plan.objects.get(pk=plan.pk).state == "done"
    assert idle_plans() == []


@pytest.mark.usefixtures("simulator")
def test_a_tenant_plans_with_what_it_holds_and_sees_nothing_of_others(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User, viewer: User
) -> None:
    own, other = device_in(1, 7), device_in(1, 1)
    Device.objects.filter(pk=own.pk).update(tenant=tenant)
    HostPort.objects.filter(label="H2").update(tenant=tenant)
    plan = planned(member, DesiredState(attachments={own.pk: port("H2").pk}))
    with pytest.raises(NotFound):
        planned(member, DesiredState(attachments={other.pk: None}))
    with pytest.raises(NotFound):
        planned(member, DesiredState(attachments={own.pk: port("H1").pk}))
    with pytest.raises(Forbidden, match="all of the drawer is granted to"):
        planned(member, DesiredState(modes={drawer(1).pk: DrawerMode.STANDARD_ONE_HOST}))
    with pytest.raises(Forbidden):
        planned(viewer, DesiredState(attachments={own.pk: None}))
    stranger = User.objects.create_user("mallory", role="user", tenant=Tenant.objects.create(name="Others"))
    with pytest.raises(NotFound):
        plan_apply(person=stranger, plan=plan)
    # What others do in the drawer is none of the tenant's: neither told, nor in its way.
    carry_out(operation_request(person=administrator, device=other, target=None))
    assert carry_out_plan(plan_apply(person=member, plan=plan)).state == "done"


@pytest.mark.usefixtures("simulator")
def test_a_tenant_that_holds_all_of_a_drawer_changes_its_mode(chassis: Chassis, tenant: Tenant, member: User) -> None:
    Device.objects.filter(slot__drawer__number=2).update(tenant=tenant)
    HostPort.objects.filter(drawer__number=2).update(tenant=tenant)
    ended = carry_out_plan(applied(member, DesiredState(modes={drawer(2).pk: DrawerMode.ADVANCED})))
    assert (ended.state, drawer(2).mode) == ("done", "Advanced")


def test_the_site_itself_plans_and_its_operations_need_no_person(chassis: Chassis, simulator: SimulatorProcess) -> None:
    plan = carry_out_plan(applied(None, DesiredState(attachments={device_in(1, 1).pk: None})))
    assert (plan.state, plan.requested_by_name) == ("done", "FalconWeb")
    assert "drawer1slot1" not in simulator.state()["zones"]["hostport1_H1"]


@pytest.mark.usefixtures("simulator")
def test_a_plan_of_somebody_who_lost_the_right_stops(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User
) -> None:
    Device.objects.filter(pk=device_in(1, 7).pk).update(tenant=tenant)
    HostPort.objects.filter(label="H2").update(tenant=tenant)
    plan = applied(member, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    User.objects.filter(pk=member.pk).update(role="viewer")
    ended = carry_out_plan(plan)
    assert ended.state == "stopped"
    assert "may no longer do this" in ended.sentence


@pytest.mark.usefixtures("simulator")
def test_what_is_in_the_mirror_after_a_plan_is_what_a_walk_finds(chassis: Chassis, administrator: User) -> None:
    carry_out_plan(applied(administrator, shift()))
    shown = dict(Device.objects.values_list("uri", "host_port"))
    mirror(chassis)
    assert dict(Device.objects.values_list("uri", "host_port")) == shown


@pytest.mark.nightly
def test_a_port_is_configured_with_its_device_taken_out_and_put_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = zones(simulator)
    gpu = device_in(1, 1)
    assert gpu.slot is not None
    assert gpu.slot.port is not None
    wanted = DesiredState(settings={gpu.slot.port.pk: PortSetting(configured_width=8)})
    plan = planned(administrator, wanted)
    assert kinds(plan) == ["detach", "port", "attach"]
    assert [step["interrupts"] for step in plan.preview] == [True, False, True]
    ended = carry_out_plan(plan_apply(person=administrator, plan=plan))
    assert (ended.state, ended.sentence) == ("done", "")
    assert zones(simulator) == before
    gpu = device_in(1, 1)
    assert gpu.slot is not None
    assert gpu.slot.port is not None
    assert (gpu.slot.port.configured_width, gpu.slot.port.active_width) == (8, 8)
    undo = plan_undo(person=administrator, plan=ended)
    assert carry_out_plan(plan_apply(person=administrator, plan=undo)).state == "done"
    assert Port.objects.get(pk=gpu.slot.port.pk).configured_width == 16


@pytest.mark.usefixtures("simulator")
def test_a_port_that_is_not_configured_takes_no_device(chassis: Chassis, administrator: User) -> None:
    nic = device_in(1, 7)
    assert nic.slot is not None
    assert nic.slot.port is not None
    off = DesiredState(settings={nic.slot.port.pk: PortSetting(port_type="UnconfiguredPort")})
    assert carry_out_plan(applied(administrator, off)).state == "done"
    plan = planned(administrator, DesiredState(attachments={nic.pk: port("H1").pk}))
    assert "cannot be attached through a port that is not configured" in plan.preview[0]["objection"]


def test_a_cable_is_moved_by_hand_while_the_plan_waits_for_it(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "CABLE_POLL_SECONDS", 0.1)
    node_c = Host.objects.get(name="node-c")
    wanted = DesiredState(cables={port("H2").pk: node_c.pk})
    plan = planned(administrator, wanted)
    assert kinds(plan) == ["detach", "detach", "cable", "attach", "attach"]
    plan = plan_apply(person=administrator, plan=plan)

    def move() -> None:
        asked = plan.operations.filter(kind="cable", state="running", steps__icontains="Now move the cable")
        wait_for(asked.exists)
        simulator.ask_control("POST", "/chassis/falcon-1/cabling", {"port": "H2", "host": "node-c"})
        connection.close()

    hand = threading.Thread(target=move)
    hand.start()
    ended = carry_out_plan(plan)
    hand.join(60)
    assert (ended.state, ended.sentence) == ("done", "")
    assert port("H2").host == node_c
    assert device_in(1, 5).host_port == port("H2")


def test_a_cable_that_nobody_moves_is_waited_for_until_somebody_cancels(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "CABLE_POLL_SECONDS", 0.1)
    plan = applied(administrator, DesiredState(cables={port("H3").pk: None}))

    def cancel() -> None:
        wait_for(plan.operations.filter(state="running", steps__icontains="Now move the cable").exists)
        plan_cancel(person=administrator, plan=plan)
        connection.close()

    impatience = threading.Thread(target=cancel)
    impatience.start()
    ended = carry_out_plan(plan)
    impatience.join(60)
    assert ended.state == "cancelled"
    [operation] = plan.operations.all()
    assert (operation.state, operation.error) == ("cancelled", "Cancelled while it was carried out.")


@pytest.mark.usefixtures("simulator")
def test_nobody_is_hurried_who_goes_to_move_a_cable(
    chassis: Chassis, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's turn at a cable is as long as that of other operations, and the time that a person has for it."""
    monkeypatch.setattr(services, "OPERATION_SECONDS", 0.5)
    monkeypatch.setattr(steps, "CABLE_SECONDS", 0.7)
    monkeypatch.setattr(steps, "CABLE_POLL_SECONDS", 0.1)
    plan = carry_out_plan(applied(administrator, DesiredState(cables={port("H3").pk: None})))
    assert plan.state == "stopped"
    assert "did not see the cable of H3 move" in plan.operations.get().error


def test_only_administrators_have_cables_moved(chassis: Chassis, tenant: Tenant, member: User) -> None:
    HostPort.objects.filter(label="H3").update(tenant=tenant)
    with pytest.raises(Forbidden):
        planned(member, DesiredState(cables={port("H3").pk: None}))


@pytest.mark.usefixtures("simulator")
def test_an_operation_is_cancelled_before_it_begins(chassis: Chassis, administrator: User, member: User) -> None:
    operation = operation_request(person=administrator, device=device_in(1, 7), target=port("H2"))
    with pytest.raises(NotFound):
        operation_cancel(person=member, operation=operation)
    cancelled = operation_cancel(person=administrator, operation=operation)
    assert (cancelled.state, carry_out(operation).state) == ("cancelled", "cancelled")
    with pytest.raises(Conflict, match="ended already"):
        operation_cancel(person=administrator, operation=operation)


def test_a_step_of_a_plan_is_not_cancelled_by_itself(chassis: Chassis, administrator: User) -> None:
    plan = applied(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    [operation] = plan.operations.all()
    with pytest.raises(Conflict, match="cancel the plan"):
        operation_cancel(person=administrator, operation=operation)


def test_what_others_do_meanwhile_is_told_apart_from_what_nobody_explains(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    operation = operation_request(person=administrator, device=device_in(1, 7), target=port("H2"))

    def meanwhile() -> None:
        simulator.fault("surprise_removal", "drawer2slot1")

    with at_step(operation.pk, "Attach", meanwhile):
        ended = carry_out(operation)
    proof = ended.proof
    assert (ended.state, proof.untouched) == ("done", False)
    assert {one["because"] for one in proof.differences} == {""}
    assert [one["uri"].rpartition("/")[2] for one in proof.differences] == ["hostport2_H4", "slot1"]
    assert "Administrators see the details" in proof.sentence


@pytest.mark.usefixtures("simulator")
def test_everything_that_was_asked_and_done_is_on_record(chassis: Chassis, administrator: User) -> None:
    plan = carry_out_plan(applied(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk})))
    actions = list(AuditEntry.objects.order_by("sequence").values_list("action", "outcome", "actor_name"))
    assert actions == [
        ("plan.create", "done", "ada"),
        ("plan.apply", "done", "ada"),
        ("operation.end", "done", "ada"),
        ("plan.end", "done", "ada"),
    ]
    assert plan.state == "done"


def test_a_port_that_leads_nowhere_is_not_planned_with(chassis: Chassis, administrator: User) -> None:
    lonely = Port.objects.create(chassis=chassis, uri="/lonely", name="Lonely port")
    with pytest.raises(Conflict, match="on no slot and no host port"):
        planned(administrator, DesiredState(settings={lonely.pk: PortSetting(configured_width=8)}))


def test_a_device_that_vanished_while_the_plan_stood_still_stops_its_resumption_with_a_sentence(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    fault = simulator.fault("link_downgrade", "drawer1slot7", lanes=1)
    plan = carry_out_plan(applied(administrator, DesiredState(attachments={device_in(1, 7).pk: port("H2").pk})))
    simulator.end_fault(fault)
    simulator.fault("surprise_removal", "drawer1slot7")
    mirror(chassis)
    again = carry_out_plan(plan_resume(person=administrator, plan=plan))
    assert again.state == "stopped"
    assert again.sentence.startswith("The rest could not be planned: ")
    assert "it is missing" in again.sentence


def test_what_a_plan_only_interrupts_is_put_back_when_it_stops_halfway(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = zones(simulator)
    gpu = device_in(1, 1)
    assert gpu.slot is not None
    assert gpu.slot.port is not None
    simulator.fault("server_error", path="Switches/drawer1_switch/Ports/slot1", method="PATCH", status=400)
    plan = carry_out_plan(
        applied(administrator, DesiredState(settings={gpu.slot.port.pk: PortSetting(configured_width=8)}))
    )
    assert plan.state == "stopped"
    assert zones(simulator) != before
    simulator.clear_faults()
    assert carry_out_plan(plan_cancel(person=administrator, plan=plan, roll_back=True)).state == "rolled_back"
    assert zones(simulator) == before


@pytest.mark.usefixtures("simulator")
def test_what_a_worker_does_is_on_record_as_the_workers(chassis: Chassis, administrator: User) -> None:
    operation = operation_request(person=administrator, device=device_in(1, 7), target=port("H2"))
    run_operation.apply(args=(str(operation.pk),))
    entry = AuditEntry.objects.get(action="operation.end")
    assert (entry.via, entry.path) == ("worker", "fabric.run_operation")
