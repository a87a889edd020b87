"""What happens beside a plan or an operation: walks, swaps, parts that go missing, a BMC that is away, other hands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from core.errors import Conflict
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.types import DrawerMode, Inventory
from fabric.execution.services import execute
from fabric.inventory.models import Chassis, Device, Drawer
from fabric.inventory.sync import inventory_apply
from fabric.leases.grants import grants_set
from fabric.operations.models import Operation, Plan, Proof
from fabric.operations.projected_state import projected_drawers
from fabric.operations.selectors import PROOF_UNREAD
from fabric.operations.services import mode_request, operation_request
from fabric.plans.jobs import plan_advance, plan_resume
from fabric.plans.progress import plan_job
from fabric.plans.refresh import refresh_allocation
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import SimulatorProcess, add_mirrored, carry_out, carry_out_plan, device_in, host_port_of, mirror
from tests.fabric import outside
from tests.fabric.disorder import at_step, short_outages
from tests.turns import at_night

pytestmark = pytest.mark.django_db


def gpu(chassis: Chassis, slot: int = 1) -> Device:
    return device_in(chassis, drawer=1, slot=slot)


def drafted(person: User, wanted: DesiredState) -> Plan:
    return plan_create(person=person, desired=wanted, title="", origin="api")


def applied(person: User, wanted: DesiredState) -> Plan:
    return plan_apply(person=person, plan=drafted(person, wanted))


def walked(chassis: Chassis) -> Inventory:
    async def walk() -> Inventory:
        async with BmcClient(await run_in_thread(chassis.address)) as bmc:
            return await discover(bmc)

    return asyncio.run(walk())


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("state", ["running", "verifying"])
def test_what_an_operation_at_work_has_read_back_is_newer_than_a_walk_beside_it(
    chassis: Chassis, administrator: User, state: str
) -> None:
    begun, older = timezone.now(), walked(chassis)
    asked = operation_request(person=administrator, device=gpu(chassis), target=None)
    Operation.objects.filter(pk=asked.pk).update(state=state)
    Device.objects.filter(pk=gpu(chassis).pk).update(host_port=None)
    inventory_apply(chassis=chassis, inventory=older, begun_at=begun)
    assert gpu(chassis).host_port is None
    asyncio.run(refresh_allocation(chassis, DesiredState()))
    assert gpu(chassis).host_port is None


def named(chassis: Chassis, serial_number: str, name: str) -> None:
    """Let the rows say that another card is in the slot than the chassis has."""
    Device.objects.filter(pk=gpu(chassis).pk).update(serial_number=serial_number, name=name)


def test_a_card_that_is_swapped_after_the_preview_is_not_attached(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    carry_out(operation_request(person=administrator, device=gpu(chassis), target=None))
    named(chassis, "THE-ONE-THAT-WAS-LOOKED-AT", "Previewed card")
    plan = drafted(administrator, DesiredState(attachments={gpu(chassis).pk: host_port_of(chassis, "H1").pk}))
    assert "Previewed card" in plan.preview[0]["sentence"]
    mirror(chassis)
    with pytest.raises(Conflict) as refused:
        plan_apply(person=administrator, plan=plan)
    assert "There is another device in Drawer 1 slot 1 now" in str(refused.value.details["differences"])
    assert "drawer1slot1" not in simulator.state()["zones"]["hostport1_H1"]


def test_a_card_that_is_swapped_while_its_operation_waits_is_not_attached(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    carry_out(operation_request(person=administrator, device=gpu(chassis), target=None))
    named(chassis, "THE-ONE-THAT-WAS-ASKED-FOR", "Asked card")
    asked = operation_request(person=administrator, device=gpu(chassis), target=host_port_of(chassis, "H1"))
    mirror(chassis)
    ended = carry_out(asked)
    assert (ended.state, ended.error.partition(":")[0]) == (
        "failed", "There is another device in the slot since this was requested",
    )  # fmt: skip
    assert "drawer1slot1" not in simulator.state()["zones"]["hostport1_H1"]


def test_a_plan_that_stopped_goes_not_on_with_another_card(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    carry_out(operation_request(person=administrator, device=gpu(chassis), target=None))
    named(chassis, "THE-ONE-THAT-WAS-LOOKED-AT", "Previewed card")
    simulator.fault("link_downgrade", "drawer1slot2", lanes=1)
    attachments = {gpu(chassis, slot).pk: host_port_of(chassis, "H3").pk for slot in (2, 1)}
    plan = applied(administrator, DesiredState(attachments=attachments))
    Operation.objects.filter(plan=plan, device=gpu(chassis)).update(
        state="cancelled", error="Not started.", finished_at=timezone.now()
    )
    assert carry_out_plan(plan).state == "stopped"
    mirror(chassis)
    plan = carry_out_plan(plan_resume(person=administrator, plan=plan))
    assert (plan.state, "another device in Drawer 1 slot 1" in plan.sentence) == ("stopped", True)


@pytest.mark.parametrize("retried", [True, *at_night(False)])
def test_a_link_that_trained_badly_is_trained_anew_when_the_plan_goes_on(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None, retried: bool
) -> None:
    fault = simulator.fault("link_downgrade", "drawer1slot1", lanes=4)
    plan = carry_out_plan(
        applied(administrator, DesiredState(attachments={gpu(chassis).pk: host_port_of(chassis, "H3").pk}))
    )
    assert plan.state == "stopped"
    if retried:
        simulator.end_fault(fault)
    plan = carry_out_plan(plan_resume(person=administrator, plan=plan))
    again = plan.operations.latest("position")
    assert again.summary.endswith("from node-c (H3) and attach it there again")
    assert (plan.state, again.state) == (("done", "done") if retried else ("stopped", "failed"))
    assert plan_job(administrator, plan).progress.done == int(retried)
    assert "drawer1slot1" in simulator.state()["zones"]["hostport1_H3"]
    assert (simulator.state()["links"]["drawer1slot1"]["lanes"] == 16) == retried


def test_what_a_plan_names_of_another_chassis_and_does_not_change_keeps_it_from_nothing(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    with SimulatorProcess(chassis="falcon-2") as other:
        second = add_mirrored(other, name="falcon-2")
        still = Device.objects.filter(chassis=second, host_port__isnull=False).first()
        assert still is not None
        fault = simulator.fault("link_downgrade", "drawer1slot1", lanes=1)
        wish = {gpu(chassis).pk: host_port_of(chassis, "H3").pk, still.pk: still.host_port_id}
        plan = carry_out_plan(applied(administrator, DesiredState(attachments=wish)))
        assert plan.state == "stopped"
        simulator.end_fault(fault)
        assert carry_out_plan(plan_resume(person=administrator, plan=plan)).state == "done"


def test_the_address_of_a_bmc_is_in_no_sentence_of_a_plan(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, member: User, short_retraining: None
) -> None:
    ports = [host_port_of(chassis, label) for label in ("H1", "H3")]
    assert member.tenant is not None
    grants_set(person=administrator, tenant=member.tenant, devices=[gpu(chassis)], host_ports=ports)
    simulator.fault("link_downgrade", "drawer1slot1", lanes=1)
    plan = carry_out_plan(applied(member, DesiredState(attachments={gpu(chassis).pk: ports[1].pk})))
    Chassis.objects.filter(pk=chassis.pk).update(url="https://127.0.0.1:9")
    with short_outages():
        plan = carry_out_plan(plan_resume(person=member, plan=plan))
    client = Client()
    client.force_login(member)
    sentence = client.get(reverse("api:plan", args=[plan.pk])).json()["sentence"]
    assert sentence.startswith("The rest could not be planned: falcon-1 does not answer")
    assert "127.0.0.1" not in sentence


def test_a_drawer_that_is_missing_can_be_looked_at_and_breaks_nothing_else(
    chassis: Chassis, administrator: User, client: Client
) -> None:
    drawer = Drawer.objects.get(chassis=chassis, number=1)
    assert drawer.mode == DrawerMode.ADVANCED
    Device.objects.filter(slot__drawer=drawer).update(host_port=None)
    mode_request(person=administrator, drawer=drawer, mode=DrawerMode.STANDARD_ONE_HOST)
    Drawer.objects.filter(pk=drawer.pk).update(missing_since=timezone.now())
    drawer.refresh_from_db()
    client.force_login(administrator)
    for name in ("fabric:drawer", "api:drawer"):
        assert client.get(reverse(name, args=[drawer.pk])).status_code == 200
    assert drafted(administrator, DesiredState(attachments={device_in(chassis, drawer=2, slot=1).pk: None})).preview
    Operation.objects.all().delete()
    with pytest.raises(Conflict, match="is missing"):
        mode_request(person=administrator, drawer=drawer, mode=DrawerMode.ADVANCED)


def test_what_a_hand_did_for_another_operation_is_no_doubt_in_a_proof(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    port = host_port_of(chassis, "H4")
    attached = Device.objects.filter(host_port=port)
    for device in attached:
        carry_out(operation_request(person=administrator, device=device, target=None))
    cable = applied(administrator, DesiredState(cables={port.pk: None})).operations.get()
    worker = in_background(lambda: execute(str(cable.pk), worker="w"))
    asked = operation_request(person=administrator, device=gpu(chassis), target=None)
    with at_step(asked.pk, "Detach", lambda: outside.recable(simulator, port.uri.rpartition("/")[2], None)):
        assert carry_out(asked).state == "done"
    worker.join(60)
    cable.refresh_from_db()
    assert cable.state == "done", cable.error
    proof = Proof.objects.get(operation=asked)
    assert (proof.untouched, [one["because"] for one in proof.differences]) == (True, [cable.summary])


def test_while_the_bmc_is_away_the_step_says_so(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    asked = operation_request(person=administrator, device=gpu(chassis), target=None)
    told: list[str] = []

    def look() -> None:
        for _ in range(200):
            steps = Operation.objects.get(pk=asked.pk).steps
            told.extend(step["sentence"] for step in steps if "does not answer" in step["sentence"])
            if told:
                return
            threading.Event().wait(0.05)

    watcher = in_background(look)
    with at_step(asked.pk, "Detach", lambda: fail(simulator, "reset_connections", count=12)):
        ended = carry_out(asked)
    watcher.join(60)
    assert set(told) == {"falcon-1 does not answer: requests are retried until it does."}
    assert (ended.state, [step for step in ended.steps if "does not answer" in step["sentence"]]) == ("done", [])


def test_an_end_that_nobody_could_read_is_no_proof(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    plan = applied(administrator, DesiredState(attachments={gpu(chassis).pk: host_port_of(chassis, "H3").pk}))
    asked = plan.operations.get()
    with short_outages(), at_step(asked.pk, "Wait for the link", lambda: fail(simulator, "hang")):
        execute(str(asked.pk), worker="w")
    plan_advance(plan.pk)
    asked.refresh_from_db()
    assert (asked.state, asked.proof.sentence, asked.proof.untouched) == ("failed", PROOF_UNREAD, None)
    assert asked.steps[-1]["sentence"] == "falcon-1 could not be read: the next poll shows its state."
    job = plan_job(administrator, plan)
    assert (job.proofs, job.proven, [sentence for _, _, sentence in job.doubts]) == (1, 0, [PROOF_UNREAD])


def test_drawers_are_seen_by_six_queries(chassis: Chassis, django_assert_num_queries: Callable[..., object]) -> None:
    with django_assert_num_queries(6):  # type: ignore[attr-defined]
        projected_drawers([chassis.pk])


def fail(simulator: SimulatorProcess, kind: str, **more: Any) -> None:
    simulator.fault(kind, **more)


def in_background(work: Callable[[], None]) -> threading.Thread:
    def do() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=do)
    thread.start()
    return thread
