"""The database cannot be written for a while: operations and plans wait, and none of them is lost or done twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import OperationalError, connection, connections

from accounts.models import User
from core import claims as core_claims
from core.claims import ClaimWatcher
from fabric.execution import claims, services
from fabric.execution.claims import OperationClaim
from fabric.execution.services import execute, runnable_operations
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.models import Operation, Plan
from fabric.plans.jobs import idle_plans, plan_advance, plan_cancel
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import SimulatorProcess, carry_out_plan
from tests.fabric.disorder import at_step
from tests.turns import at_night
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'sqlite'", reason="SQLite is locked by whoever writes; a server is ended"),
]
BUSY_SECONDS = 0.2  # instead of 20
CLAIM_SECONDS = 0.5


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a locked database up soon, and the claims of a worker that is away."""
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", BUSY_SECONDS)
    monkeypatch.setattr(core_claims, "WATCHED", [replace(one, seconds=CLAIM_SECONDS) for one in core_claims.WATCHED])
    monkeypatch.setattr(claims, "CLAIM_RENEW_SECONDS", CLAIM_SECONDS / 3)
    monkeypatch.setattr(services, "PICKUP_SECONDS", 0)
    connection.close()
    yield
    connection.close()


@contextmanager
def locked() -> Iterator[Callable[[], None]]:
    """Give a function that keeps everybody from writing to the database until the end."""
    name = str(connection.settings_dict["NAME"])
    other = sqlite3.connect(name, isolation_level=None, check_same_thread=False)

    def lock() -> None:
        other.execute("BEGIN EXCLUSIVE")

    try:
        yield lock
    finally:
        other.close()


@pytest.fixture
def plan(chassis: Chassis, administrator: User) -> Plan:
    """A plan of two moves that has been applied."""
    gpus = Device.objects.filter(slot__drawer__number=1, slot__number__in=(1, 2))
    target = HostPort.objects.get(label="H3")
    wanted = DesiredState(attachments=dict.fromkeys((gpu.pk for gpu in gpus), target.pk))
    draft = plan_create(person=administrator, desired=wanted, title="", origin="api")
    return plan_apply(person=administrator, plan=draft)


@pytest.mark.parametrize("step", ["Attach", "Read back", *at_night("Check", "Detach", "Wait for the link")])
def test_an_operation_waits_for_a_locked_database_and_goes_on(
    chassis: Chassis, simulator: SimulatorProcess, plan: Plan, step: str
) -> None:
    first = plan.operations.in_turn().first()
    assert first is not None
    with locked() as lock, at_step(first.pk, step, lock):
        execute(str(first.pk), worker="first")
        first.refresh_from_db()
        assert (first.state, first.error) in {("running", ""), ("verifying", "")}, "it waits, and has not failed"
        execute_in_vain(first)
    ended = wait_and_end(plan)
    assert (ended.state, ended.sentence) == ("done", "")
    assert {operation.state for operation in ended.operations.all()} == {"done"}
    assert simulator.state()["zones"]["hostport1_H3"] == ["drawer1slot1", "drawer1slot2"]
    # Two moves of two zones each, and nothing twice.
    assert simulator.state()["requests"]["PATCH"] == 4


def execute_in_vain(operation: Operation) -> None:
    """Let another worker try while nobody can write."""
    connection.close()
    with pytest.raises(OperationalError):
        execute(str(operation.pk), worker="second")


def wait_and_end(plan: Plan) -> Plan:
    watcher = ClaimWatcher()
    wait_for(lambda: watcher.look() or runnable_operations())
    return carry_out_plan(plan)


@pytest.mark.nightly
def test_a_plan_on_its_way_back_waits_for_a_locked_database(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {zone: sorted(members) for zone, members in simulator.state()["zones"].items()}
    first, second = plan.operations.in_turn()
    execute(str(first.pk), worker="first")
    simulator.fault("link_downgrade", "drawer1slot2", lanes=1)
    execute(str(second.pk), worker="first")
    plan_advance(plan.pk)
    simulator.clear_faults()
    plan = plan_cancel(person=administrator, plan=Plan.objects.get(pk=plan.pk), roll_back=True)
    with locked() as lock:
        lock()
        with pytest.raises(OperationalError):
            plan_advance(plan.pk)
        assert idle_plans() == [str(plan.pk)]
    assert carry_out_plan(plan).state == "rolled_back"
    after = {zone: sorted(members) for zone, members in simulator.state()["zones"].items()}
    assert after == before


@pytest.mark.parametrize(
    ("state", "read_back", "said"),
    [
        ("waited", "", "Waits for node-a. falcon-1 could not be read: the next poll shows its state."),
        ("running", "", "falcon-1 could not be read: the next poll shows its state."),
        ("waiting", "", "falcon-1 could not be read: the next poll shows its state."),
        ("running", "It is at H3.", "It is at H3."),
        ("waiting", "It is at H3.", "It is at H3."),
        ("done", "", "Read."),
    ],
)
def test_an_interrupted_last_step_says_what_was_read_or_that_nothing_was(state: str, read_back: str, said: str) -> None:
    last = {"state": state, "sentence": "Read." if state == "done" else ""}
    if state == "waited":
        last = {"state": "running", "sentence": "Waits for node-a."}
    operation = Operation(chassis=Chassis(name="falcon-1"), steps=[{"state": "done", "sentence": ""}, last])
    OperationClaim(operation, "worker").close_steps(read_back)
    assert operation.steps[-1]["sentence"] == said
    assert operation.steps[-1]["state"] not in {"running", "waiting"}
