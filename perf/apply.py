"""Execution of a plan: the time that FalconWeb adds to the BMC's own in a change of a whole lab.

Two drawers of two chassis are changed in parallel. Their links train for 1 to 3 s and each bind takes time, as in
reality; the sequence of the drawer with the longest BMC time is the critical path.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from accounts.models import User
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.models import Operation, Plan
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import SimulatorProcess
from perf.chassis import create_mirrored_chassis
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from perf.servers import measured_worker, next_task

CHASSIS = 2
DEVICES = 14
BIND_SECONDS = 0.5  # a zone is changed by a BMC in 0.5 to 15 s
ROUNDS = 4
PLAN_SECONDS = 180.0
LOOK_SECONDS = 0.01
MAX_RATIO = 1.10
MAX_OWN_MS = 60.0  # a step
# The host ports of the first drawer's devices, by slot: there and back.
LAYOUTS = (
    {1: "H2", 2: "H2", 3: "H3", 4: "H3", 5: "H1", 6: "H3", 7: "H1"},
    {1: "H1", 2: "H1", 3: "H1", 4: "H2", 5: "H2", 6: "H1", 7: "H3"},
)

Span = tuple[float, float]


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of applying a plan."""
    options = ("--chassis-count", str(CHASSIS), "--slow-bind", str(BIND_SECONDS))
    with SimulatorProcess(*options, chassis="falcon-1", own=True) as simulator, measured_worker():
        names = [f"falcon-1-{number}" for number in range(1, CHASSIS + 1)]
        for name, address in zip(names, simulator.addresses, strict=True):
            create_mirrored_chassis(simulator, name, address)
        person = User.objects.create_superuser("perf")
        log(f"{ROUNDS} plans of {DEVICES} devices over {CHASSIS} chassis, some 30 s each")
        return _figures([_apply_plan(person, simulator, names, LAYOUTS[number % 2]) for number in range(ROUNDS)])


def _apply_plan(
    person: User, simulator: SimulatorProcess, names: list[str], layout: dict[int, str]
) -> dict[str, float]:
    """Carry out a plan; returns the times in s, and the number of requests, of its critical path."""
    plan = plan_create(person=person, desired=_desired_allocation(layout), title="", origin="api")
    with LinkTrainings(simulator, names) as trainings:
        start = time.time()
        plan_apply(person=person, plan=plan)
        chains = [next_task(PLAN_SECONDS) for _ in names]
    plan = Plan.objects.get(pk=plan.pk)
    if plan.state != Plan.State.DONE or plan.finished_at is None:
        raise CannotMeasureError(f"the plan did not succeed: {plan.state} {plan.sentence}")
    paths = [_critical_path(one, trainings) for one in chains]
    longest = max(paths, key=lambda one: one["bmc"])
    return {**longest, "wall": plan.finished_at.timestamp() - start, "until_begun": longest["began"] - start}


def _critical_path(task: dict[str, Any], trainings: LinkTrainings) -> dict[str, float]:
    """Return a worker's times in one drawer: the BMC's time is waiting for requests and for link training."""
    chassis = Operation.objects.select_related("chassis").get(pk=task["about"]).chassis.name
    spans = [(begin, end) for begin, end in task["spans"]]
    return {
        "bmc": total_length([*spans, *trainings.of(chassis)]),
        "training": total_length(trainings.of(chassis)),
        "began": task["began"],
        "ended": task["ended"],
        "cpu": task["cpu"],
        "requests": task["requests"],
        "steps": float(DEVICES // CHASSIS),
    }


def total_length(spans: Iterable[Span]) -> float:
    """Return the total time covered by at least one of the spans."""
    total, until = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


class LinkTrainings:
    """The spans of link training of the chassis, from the simulator; a context manager that polls it throughout."""

    def __init__(self, simulator: SimulatorProcess, names: Iterable[str]) -> None:
        self._simulator = simulator
        self._spans: dict[str, list[Span]] = {name: [] for name in names}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def of(self, chassis: str) -> list[Span]:
        """Return the spans in which links of a chassis trained."""
        return self._spans[chassis]

    def _look(self) -> None:
        since: dict[tuple[str, str], float] = {}
        while not self._ended.wait(LOOK_SECONDS):
            for name, spans in self._spans.items():
                links = self._simulator.state(name)["links"]
                now = time.time()
                for slot, link in links.items():
                    if link["status"] == "Training":
                        since.setdefault((name, slot), now)
                    elif (begun := since.pop((name, slot), None)) is not None:
                        spans.append((begun, now))


def _desired_allocation(layout: dict[int, str]) -> DesiredState:
    attachments: dict[int, int | None] = {}
    for chassis in Chassis.objects.order_by("pk"):
        ports = dict(HostPort.objects.filter(chassis=chassis).values_list("label", "pk"))
        devices = Device.objects.filter(chassis=chassis, slot__drawer__number=1).values_list("slot__number", "pk")
        attachments |= {pk: ports[layout[slot]] for slot, pk in devices}
    if len(attachments) != DEVICES:
        raise CannotMeasureError(f"the simulated drawers have {len(attachments)} devices.")
    return DesiredState(attachments=attachments)


def _figures(plans: list[dict[str, float]]) -> list[PerfFigure]:
    def middle(take: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(take(one) for one in plans)

    requests = round(middle(lambda one: one["requests"]))
    parts = [
        ("own time a step", middle(lambda one: (one["wall"] - one["bmc"]) / one["steps"]), MAX_OWN_MS),
        ("CPU of the worker a step", middle(lambda one: one["cpu"] / DEVICES), None),
        ("until a worker begins", middle(lambda one: one["until_begun"]), None),
    ]
    return [
        PerfFigure(
            f"{DEVICES} devices, {CHASSIS} drawers side by side",
            middle(lambda one: one["wall"]),
            "s",
            beside="the BMC's own time",
            beside_value=middle(lambda one: one["bmc"]),
            most_ratio=MAX_RATIO,
        ),
        *(PerfFigure(figure, value * 1000, "ms", most=most) for figure, value, most in parts),
        PerfFigure(f"links training, of it; {requests} requests", middle(lambda one: one["training"]), "s"),
    ]
