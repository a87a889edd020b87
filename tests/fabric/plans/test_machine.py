"""Any order of plans, leases, single changes, hands behind our back, faults at each step, and deaths of workers.

Each step of the machine is one thing that somebody does, or one operation that a worker carries out: everything may
come between any two operations of a plan. After each step everything is held against the chassis' own truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError
from fabric.bmc.log_search import read_log_entries
from fabric.bmc.types import DrawerMode
from fabric.execution import services
from fabric.execution.services import execute, runnable_operations
from fabric.leases.models import Lease
from fabric.operations.models import Operation, Plan
from fabric.operations.services import operation_cancel
from fabric.plans.jobs import idle_plans, plan_advance, plan_cancel, plan_without_steps
from falconweb.testing import mirror
from tests.fabric import outside
from tests.fabric.disorder import (
    OF_HARDWARE,
    OF_REQUESTS,
    MortalWorkers,
    at_step,
    endpoint_of,
    settings_of,
    shorten_patience,
)
from tests.fabric.plans.leasing import Leasing
from tests.fabric.plans.requests import ACTIONS, AT, DRAWER, MODE, PICK, YES, action, maybe, one_of, port_of
from tests.fabric.plans.world import NAMES, PLACES, World
from tests.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

logger = logging.getLogger(__name__)

SETTINGS = settings_of(examples=104, steps=52)
AT_LEAST = 5000
PATIENCE = 0.02  # of what it is
FAULTS = tuple({**fault, "seconds": 0.4} if "seconds" in fault else fault for fault in (*OF_REQUESTS, *OF_HARDWARE))
# More often than the others: what makes an operation fail.
BREAKING = tuple(fault for fault in FAULTS if fault["kind"] in {"link_downgrade", "surprise_removal", "link_flap"})
LONGER = 1.6  # s, than anybody has patience


def step_of(operation: Operation, pick: int) -> str:
    """Return the name of one of the steps that a worker takes of an operation; no agent runs on the hosts."""
    names = [step["name"] for step in operation.steps if "host" not in step["name"]]
    return str(names[pick % len(names)])


class Planning(Leasing, RuleBasedStateMachine):
    """Two chassis, an administrator, three tenants, and everything that can happen to all of them."""

    certificates: Path
    workers: MortalWorkers
    steps = 0
    met: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    turn: int

    def __init__(self) -> None:
        super().__init__()
        Planning.steps -= 1  # the invariants are looked at before the first step, too
        self.world = World(self.certificates)
        self.drafts = {}
        self.turn = 0

    def teardown(self) -> None:
        """Let every fault end, and everything that is open come to its end: then the site shows the whole truth."""
        try:
            for simulator in self.world.simulators.values():
                simulator.clear_faults()
            self.come_to_the_end()
            for name in NAMES:
                self.look_until_true(name)
                self.nothing_was_done_twice(name)
            self.world.audit_is_whole()
            self.ends.update(f"plan {plan.state}" for plan in Plan.objects.all())
            self.ends.update(f"operation {operation.state}" for operation in Operation.objects.all())
            self.ends.update(f"lease {lease.state}" for lease in Lease.objects.all())
            self.ends.update({f"refused: {sentence}": n for sentence, n in self.world.refused.items()})
        finally:
            self.world.close()

    @rule(drawn=st.randoms(use_true_random=True))
    def step(self, drawn: Random) -> None:
        """Do one thing of those that can be done now.

        All are one rule, since Hypothesis leaves out half of the rules of an example: here one leads to the other. And
        what can be done depends on the clock, too: what Hypothesis draws is the same for all.
        """
        # It likes to draw the same again and again: then the same thing would be done at each step.
        random = Random(f"{drawn.getrandbits(64)} {self.turn}")  # noqa: S311 - chance, no secret
        self.turn += 1
        able = {name: one.weight for name, one in ACTIONS.items() if one.when(self)}
        [name] = random.choices([*able], [*able.values()])
        arguments = ACTIONS[name].chosen(random)
        note(f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")
        self.ends[name] += 1
        began = time.monotonic()
        getattr(self, name)(**arguments)
        self.ends[f"ms of {name}"] += round((time.monotonic() - began) * 1000)

    # --- what workers do --------------------------------------------------------------------------------------------

    @action(14, when=lambda self: runnable_operations() or idle_plans(), pick=PICK, goes_on=YES)
    def work(self, pick: int, goes_on: bool) -> None:
        """A worker carries an operation out, and lets the plan go on, or dies before that."""
        operation = self.next_operation(pick)
        if operation is not None:
            execute(str(operation.pk), worker="first")
            self.judge(operation)
            if goes_on and (plan := plan_without_steps(operation)):
                plan_advance(plan)

    @action(
        16,
        when=lambda self: runnable_operations(),
        pick=PICK,
        fault=one_of(*FAULTS, *BREAKING * 2),
        step=PICK,
        slot=maybe(PICK, 0.25),
        long=one_of(False, False, False, True),
    )
    def work_with_trouble(self, pick: int, fault: dict[str, Any], step: int, slot: int | None, long: bool) -> None:
        """Something goes wrong at the very moment at which a step begins."""
        operation = self.next_operation(pick)
        if operation is None:
            return
        name = operation.chassis.name
        if long and "seconds" in fault:
            fault = {**fault, "seconds": LONGER}
        target = endpoint_of(operation.device) if operation.device else "drawer1slot1"
        if slot is not None:
            others = [f"drawer{drawer}slot{number}" for chassis, drawer, number in PLACES if chassis == name]
            target = others[slot % len(others)]

        def strike() -> None:
            self.met[f"{fault['kind']} at {step_of(operation, step)}"] += 1
            self.world.strike(name, fault, target)

        with at_step(operation.pk, step_of(operation, step), strike):
            execute(str(operation.pk), worker="first")
        self.judge(operation)

    @action(3, when=lambda self: runnable_operations(), pick=PICK, step=PICK, roll_back=YES)
    def work_and_cancel(self, pick: int, step: int, roll_back: bool) -> None:
        """Somebody cancels at the moment at which a step begins."""
        operation = self.next_operation(pick)
        if operation is None:
            return
        ada, plan = self.person("ada"), operation.plan

        def cancel() -> None:
            if plan is None:
                operation_cancel(person=ada, operation=operation)
            elif Plan.objects.get(pk=plan.pk).state in {"running", "resuming", "cancelling"}:
                plan_cancel(person=ada, plan=plan, roll_back=roll_back)

        with at_step(operation.pk, step_of(operation, step), cancel):
            execute(str(operation.pk), worker="first")
        self.judge(operation)

    @action(
        6,
        when=lambda self: runnable_operations(),
        pick=PICK,
        step=PICK,
        seconds=maybe(one_of(0.05, 0.15, 0.25, 0.4)),
    )
    def work_to_death(self, pick: int, step: int, seconds: float | None) -> None:
        """The worker is killed: when a step begins, or at any moment while the BMC is slow. Another one carries on."""
        operation = self.next_operation(pick)
        if operation is None:
            return
        if seconds is None:
            died = self.workers.take(operation, step=step_of(operation, step))
        else:
            simulator = self.world.simulators[operation.chassis.name]
            slow = simulator.fault("slow", path="/Zones/", method="PATCH", delay=0.2)
            died = self.workers.take(operation, seconds=seconds)
            time.sleep(0.25)  # what it asked for at last is done, or not
            simulator.end_fault(slow)
        self.met[f"death at {step_of(operation, step)}" if seconds is None else "death at any moment"] += died
        # Its claims are released; nobody need wait here for that.
        Operation.objects.open().filter(lease_until__isnull=False).update(lease_until=None)
        Plan.objects.filter(planning_until__isnull=False).update(planning_until=None)

    @action(4, when=lambda self: runnable_operations() or idle_plans(), pick=PICK, other=PICK)
    def two_workers_at_once(self, pick: int, other: int) -> None:
        """Two workers take the same operation or two, and both let the plans go on."""
        todo = [one for one in (self.next_operation(pick), self.next_operation(other)) if one is not None]

        def work(operation: Operation, worker: str) -> None:
            execute(str(operation.pk), worker=worker)
            if plan := plan_without_steps(operation):
                plan_advance(plan)

        self.together([lambda one=one, n=n: work(one, f"worker {n}") for n, one in enumerate(todo)])  # type: ignore[misc]
        for operation in todo:
            self.judge(operation)

    @action(5, when=lambda self: idle_plans())
    def recover(self) -> None:
        """Beat finds plans whose worker died between two steps."""
        for plan in idle_plans():
            plan_advance(plan)

    # --- what happens -----------------------------------------------------------------------------------------------

    @action(2, place=one_of(*PLACES), choice=AT)
    def somebody_elses_hand(self, place: tuple[str, int, int], choice: int) -> None:
        """Somebody attaches a device elsewhere by a client of their own."""
        device, at = self.world.device(*place), port_of(place, choice)
        self.world.touch(place[0], endpoint_of(device))
        self.by_hand(
            lambda: outside.put(
                device.chassis, self.world.simulators[place[0]], device, to=self.world.host_port(*at) if at else None
            )
        )

    @action(1, drawer=DRAWER, mode=MODE)
    def somebody_elses_mode(self, drawer: tuple[str, int], mode: str) -> None:
        """Somebody changes a drawer's mode by a client of their own."""
        row = self.world.drawer(*drawer)
        self.world.touch(drawer[0], f"drawer{drawer[1]}")
        self.by_hand(lambda: outside.turn(row.chassis, self.world.simulators[drawer[0]], row, DrawerMode(mode)))

    @action(2, name=one_of(*NAMES), fault=one_of(*FAULTS), pick=PICK)
    def trouble(self, name: str, fault: dict[str, Any], pick: int) -> None:
        """Something goes wrong while nobody looks."""
        others = [f"drawer{drawer}slot{number}" for chassis, drawer, number in PLACES if chassis == name]
        self.world.strike(name, fault, others[pick % len(others)])

    @action(3, when=lambda self: self.has_faults())
    def trouble_ends(self) -> None:
        """Every fault ends; devices that were taken out are put back."""
        for simulator in self.world.simulators.values():
            simulator.clear_faults()

    @action(3, name=one_of(*NAMES))
    def look(self, name: str) -> None:
        """The mirror is refreshed, as it is every few seconds."""
        obstructed = self.world.obstructed(name)
        try:
            mirror(self.world.device(name, 1, 1).chassis)
        except BmcError:
            assert obstructed
        if not obstructed:
            self.world.mirror_is_true(name)

    # --- what must be true ------------------------------------------------------------------------------------------

    @invariant()
    def nobody_else_is_touched_and_everything_ends_once(self) -> None:
        """By the chassis' truth, byte by byte; no device is in two zones, and what a plan brought back is where it was.

        What has not ended waits for its turn.
        """
        Planning.steps += 1
        self.world.look()
        self.world.operations_are_in_order()
        self.world.leases_are_in_order()

    def nothing_was_done_twice(self, name: str) -> None:
        """Count what the chassis' own log says that the site has written, against what was asked for."""
        address = self.world.device(name, 1, 1).chassis.address()

        async def written() -> Counter[str]:
            async with BmcClient(address) as bmc:
                entries = await read_log_entries(bmc, self.world.began, most=5000)
            return Counter(entry.origin_uri for entry in entries if entry.originator == "administrator")

        found = asyncio.run(written())
        most: Counter[str] = Counter()
        least: Counter[str] = Counter()
        for operation in Operation.objects.filter(chassis__name=name, attempts__gt=0).select_related(
            "source", "target", "drawer", "port"
        ):
            places = [port.uri for port in (operation.source, operation.target) if port is not None]
            places += [row.uri for row in (operation.port, operation.drawer if operation.mode else None) if row]
            most.update(places)
            # A drawer may be asked for the mode that it is in.
            least.update(places if operation.state == "done" and not operation.mode else [])
        slack = self.world.disturbed[name]
        for place in {*found, *most}:
            assert found[place] <= most[place] + slack, f"{place} was written {found[place]} times"
            assert found[place] >= least[place] - slack, f"{place} was not written"

    # --- helpers ----------------------------------------------------------------------------------------------------

    def next_operation(self, pick: int) -> Operation | None:
        """Return one of those whose turn it is; without one, plans go on that wait for that."""
        ids = runnable_operations()
        if not ids:
            for plan in idle_plans():
                plan_advance(plan)
            return None
        rows = Operation.objects.select_related("chassis", "device", "plan")
        found: Operation = rows.get(pk=ids[pick % len(ids)])
        return found

    def judge(self, operation: Operation) -> None:
        """Hold an operation that a worker had against the truth."""
        operation = Operation.objects.select_related("chassis", "device__host_port", "target").get(pk=operation.pk)
        assert not operation.is_open
        if operation.state != "done":
            return
        assert {step["state"] for step in operation.steps} <= {"done", "skipped"}
        if operation.device is not None:
            truth = self.world.simulators[operation.chassis.name].state()
            zones = [zone for zone, members in truth["zones"].items() if endpoint_of(operation.device) in members]
            assert zones == ([operation.target.uri.rpartition("/")[2]] if operation.target else [])
            assert operation.device.host_port == operation.target

    def by_hand(self, do: Callable[[], None]) -> None:
        """Do what the chassis may well refuse."""
        with contextlib.suppress(BmcError):
            do()

    def has_faults(self) -> bool:
        return any(simulator.ask_control("GET", "/faults") for simulator in self.world.simulators.values())

    def come_to_the_end(self) -> None:
        """Let workers and beat do all that there is to do: nothing may stay behind."""
        end = time.monotonic() + 60
        while runnable_operations() or idle_plans():
            for pk in runnable_operations():
                execute(pk, worker="last")
            for plan in idle_plans():
                plan_advance(plan)
            self.world.look()
            self.world.operations_are_in_order()
            assert time.monotonic() < end, "something does not come to an end"
        assert not Operation.objects.open().exists()
        assert not Plan.objects.active().exists()

    def look_until_true(self, name: str) -> None:
        wait_for(lambda: not self.world.obstructed(name), "the chassis did not come back")
        self.look(name)


@pytest.mark.nightly
def test_whatever_happens_plans_end_in_the_truth_and_touch_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_patience(PATIENCE, monkeypatch.setattr)
    monkeypatch.setattr(services, "PICKUP_SECONDS", 0)
    monkeypatch.setattr(Planning, "steps", 0)
    with tempfile.TemporaryDirectory() as folder, MortalWorkers(PATIENCE) as workers:
        monkeypatch.setattr(Planning, "certificates", Path(folder), raising=False)
        monkeypatch.setattr(Planning, "workers", workers, raising=False)
        run_state_machine_as_test(Planning, settings=SETTINGS)
    met, ends = sorted(Planning.met.items()), sorted(Planning.ends.items())
    logger.info("%s steps\n%s", Planning.steps, "\n".join(f"{count:6} {what}" for what, count in [*ends, *met]))
    assert Planning.steps >= AT_LEAST
    kinds, steps = (set(words) for words in zip(*(one.split(" at ") for one in +Planning.met), strict=True))
    assert {*(fault["kind"] for fault in FAULTS), "death"} <= kinds
    assert {"Check", "Detach", "Attach", "Wait for the link", "Change mode", "Configure", "Read back"} <= steps
