"""Sweeps in the lab: asked for, and a worker's part of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.runs.models import Run
from benchmarks.sweeps.grid import SweepGrid
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.scheduler import sweep_advance, sweeps_due
from benchmarks.sweeps.services import sweep_create
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from tests.benchmarks.runs.lab import Lab, attached, work
from tests.waiting import Pauses


def grid_of(lab: Lab, **members: Any) -> SweepGrid:
    """Return a grid of quick runs on the host's own GPUs, unless told."""
    given = {
        "workload": ["mnist_cnn"], "host": [lab.host.pk], "placement": ["local"], "count": [1], "batch": [8, 16],
        "same": {"steps": 6, "warmup": 1}, "executor": "simulated",
    }  # fmt: skip
    return SweepGrid.from_json({**given, **members})


def ask(lab: Lab, **members: Any) -> Sweep:
    """Ask for a sweep."""
    return sweep_create(person=lab.person, grid=grid_of(lab, **members), title="A sweep")


def tend() -> None:
    """Do once what workers do."""
    for sweep_id in sweeps_due():
        sweep_advance(sweep_id, worker="tests")
    work()


def until(sweep: Sweep, fits: Callable[[Sweep], Any], *, seconds: float = 60.0) -> Sweep:
    """Work until a sweep is so, and return it anew."""
    end, pauses = time.monotonic() + seconds, Pauses()
    while True:
        tend()
        sweep = Sweep.objects.get(pk=sweep.pk)
        if fits(sweep):
            return sweep
        states = list(Run.objects.filter(sweep=sweep).values_list("position", "state", "phase", "sentence", "error"))
        assert time.monotonic() < end, f"{sweep.state} {sweep.sentence} {sweep.note} {states}"
        pauses.take(states)


def settled(sweep: Sweep) -> Sweep:
    """Work until nothing runs and nothing is attached any more."""
    return until(sweep, lambda one: one.state != Sweep.State.RUNNING and one.settled and not running(one))


def running(sweep: Sweep) -> list[Run]:
    """Return the runs of a sweep that have not ended."""
    return list(Run.objects.filter(sweep=sweep).open())


def states(sweep: Sweep) -> list[str]:
    """Return the states of a sweep's runs, in the order of its points."""
    return list(Run.objects.filter(sweep=sweep).order_by("position", "queued_at").values_list("state", flat=True))


def points(sweep: Sweep) -> list[Point]:
    """Return the points of a sweep."""
    return list(Point.objects.filter(sweep=sweep))


def freed(lab: Lab, *slots: int) -> dict[int, str]:
    """Detach the devices in these slots of the first drawer; return what is attached then."""
    wanted = DesiredState(attachments={lab.device(slot).pk: None for slot in slots})
    plan = plan_create(person=lab.person, desired=wanted, title="Free them", origin="api")
    plan = plan_apply(person=lab.person, plan=plan)
    end = time.monotonic() + 30
    while not plan.is_final:
        assert time.monotonic() < end, plan.sentence
        work()
        plan.refresh_from_db()
    return attached(lab.chassis)
