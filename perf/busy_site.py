"""What is asked of a measured site, from its inside: `python -m perf.busy_site` with one of QUESTIONS."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import django

STEPS, REPEATS = 20, 4  # of a run, and of a point


def people(count: str) -> dict[str, Any]:
    """Create administrators; returns the keys of their sessions, and the chassis."""
    from fabric.inventory.models import Chassis
    from perf.servers import create_session

    return {
        "chassis": list(Chassis.objects.values_list("pk", flat=True)),
        "sessions": [create_session(f"perf-{number}") for number in range(int(count))],
    }


def sweep(runs: str) -> dict[str, Any]:
    """Create a sweep of simulated runs on a host's own GPU."""
    from accounts.models import Role, User
    from benchmarks.sweeps.grid import SweepGrid
    from benchmarks.sweeps.services import sweep_create
    from fabric.inventory.models import Host

    host = Host.objects.filter(local_gpu_count__gte=1).order_by("name").values_list("pk", flat=True)[0]
    grid = SweepGrid.from_json({
        "workload": ["resnet50"], "host": [host], "batch": list(range(4, int(runs) + 4, REPEATS)), "repeats": REPEATS,
        "same": {"steps": STEPS},
    })  # fmt: skip
    person = User.objects.filter(role=Role.ADMINISTRATOR).order_by("pk")[0]
    return {"sweep": str(sweep_create(person=person, grid=grid, title="perf").pk)}


def state(number: str) -> dict[str, Any]:
    """Return how many runs of the sweep have not ended, and how many failed."""
    from benchmarks.runs.models import Run
    from benchmarks.sweeps.models import Point

    waiting = Point.objects.filter(sweep=UUID(number), state=Point.State.WAITING)
    runs = Run.objects.filter(sweep=UUID(number))
    return {
        "waiting": waiting.count() + runs.filter(finished_at=None).count(),
        "failed": runs.filter(state=Run.State.FAILED).count(),
    }


def open_runs() -> int:
    """Return how many runs have not ended."""
    from benchmarks.runs.models import Run

    return int(Run.objects.open().count())


QUESTIONS: dict[str, Callable[..., Any]] = {"people": people, "sweep": sweep, "state": state, "open_runs": open_runs}

if __name__ == "__main__":
    django.setup()
    sys.stdout.write(json.dumps(QUESTIONS[sys.argv[1]](*sys.argv[2:])))
