"""A host of the simulated lab on which runs are carried out, and a worker's part of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accounts.models import User
from benchmarks.runs.models import Run
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.rules import Composition
from benchmarks.runs.scheduler import run_advance, runs_schedule
from benchmarks.runs.services import run_create
from benchmarks.workloads.catalogue import spec_of
from fabric.execution.services import execute, runnable_operations
from fabric.inventory.models import Chassis, Device, Host
from fabric.operations.models import Operation
from fabric.plans.jobs import idle_plans, plan_advance
from falconweb.testing import AgentProcess, SimulatorProcess, device_in, host_port_of, mirror
from tests.waiting import Pauses


@dataclass
class Lab:
    """falcon-1, its host node-a, and who asks."""

    chassis: Chassis
    simulator: SimulatorProcess
    person: User
    host: Host

    def device(self, slot: int, drawer: int = 1) -> Device:
        """Return the device in a slot."""
        return device_in(self.chassis, drawer=drawer, slot=slot)

    def place(self, *slots: int, local: int = 0, port: str = "H1") -> Composition:
        """Return a composition of the devices in these slots of the first drawer."""
        target = host_port_of(self.chassis, port).pk
        return Composition(
            host=self.host.pk, local_gpus=local, devices={self.device(slot).pk: target for slot in slots}
        )

    def ask(self, composition: Composition, *, workload: str = "resnet50", **more: Any) -> Run:
        """Ask for a run of a few quick steps; unless said otherwise, it may share its host."""
        count = composition.local_gpus + len(composition.devices)
        given = {"devices": max(1, count), "backend": "cuda", "steps": 12, "batch": 16, **more.pop("given", {})}
        spec = spec_of(workload, "custom", given)
        person = more.pop("person", self.person)
        request = RunRequest(spec=spec, composition=composition, **{"executor": "simulated", "may_share": True, **more})
        return run_create(person=person, request=request)


@dataclass
class RunningLab(Lab):
    """The same with the agent of node-a."""

    agent: AgentProcess


def work() -> None:
    """Do once what workers do: operations, plans and runs."""
    for operation in Operation.objects.open().in_turn():
        execute(str(operation.pk), worker="tests")
        if operation.plan_id is not None:
            plan_advance(operation.plan_id)
    for operation_id in runnable_operations():
        execute(operation_id, worker="tests")
    for plan_id in idle_plans():
        plan_advance(plan_id)
    for run_id in runs_schedule():
        run_advance(run_id, worker="tests")


def until(run: Run, fits: Callable[[Run], Any], *, seconds: float = 60.0, doing: Callable[[], None] = work) -> Run:
    """Work until a run is so, and return it anew."""
    end, pauses = time.monotonic() + seconds, Pauses()
    while True:
        doing()
        run = Run.objects.get(pk=run.pk)
        if fits(run):
            return run
        assert time.monotonic() < end, f"{run.state} {run.phase}: {run.sentence} {run.trouble} {run.error}"
        pauses.take((run.state, run.phase, run.sentence, run.steps_done))


def ended(run: Run, **more: Any) -> Run:
    """Work until a run has ended."""
    return until(run, lambda one: not one.is_open, **more)


def in_state(state: str) -> Callable[[Run], bool]:
    """Return whether a run is in a state, as `until` asks."""
    return lambda run: run.state == state


def attached(chassis: Chassis) -> dict[int, str]:
    """Return what the hardware shows: which slot of the first drawer is attached to which host port."""
    mirror(chassis)
    rows = Device.objects.filter(chassis=chassis, slot__drawer__number=1).select_related("slot", "host_port")
    return {row.slot.number: row.host_port.label for row in rows if row.slot and row.host_port}
