"""A fault at each boundary of operations, plans, leases, exports and runs: nothing is lost, doubled, or stuck."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import User
from core.failpoints import FAILPOINTS, Failpoint
from fabric.execution.services import execute
from fabric.inventory.models import Chassis
from fabric.operations.models import Operation
from falconweb.testing import SimulatorProcess
from telemetry.events.models import Event
from tests.fabric.disorder import at_step
from tests.failpoints import courses
from tests.failpoints.conftest import World
from tests.failpoints.courses import ASKS, TIMES, course_of, settle
from tests.failpoints.injector import EXIT_STATUS, LOST_ANSWERS
from tests.failpoints.workers import Copy, Workers
from tests.processes import ROOT
from tests.waiting import wait_for

ROOMS = ("accounts", "benchmarks", "core", "fabric", "falconweb", "hostwire", "telemetry")
# 'hang' is killed in the end; 'late' goes on after others have done its work.
FAULTS = ("die", "hang", "late", "lose_answer", "lose_database")
# Here it holds the lock of the file that it writes.
FILE_LOCKED = ("export.page.written", "export.progress.stored", "export.rename", "export.renamed")
Begin = Callable[[str], World]
# How each course ends, whatever the fault.
WANTED: dict[str, dict[str, Any]] = {
    "move": {"moved": {"drawer1slot1": "H3"}, "operations": {"done": 1}, "changes": {"H1": 1, "H3": 1}},
    "cancel": {"operations": {"cancelled": 1}},
    "configure": {"operations": {"done": 4}, "plans": ["done"], "changes": {"H4": 2}},
    "roll back": {"operations": {"done": 3, "failed": 1}, "plans": ["rolled_back"], "changes": {"H1": 4}},
    "cancel plan": {"operations": {"cancelled": 1}, "plans": ["rolled_back"]},
    "lease": {
        "moved": {"drawer1slot1": None}, "operations": {"done": 1}, "plans": ["done"], "leases": ["ended", "active"],
        "holders": ["Second"], "changes": {"H1": 1},
    },
    "export": {"exports": [("file", "done", 700), ("file", "done", 700), ("receiver", "done", 700)]},
    "run": {
        "operations": {"done": 2}, "plans": ["done", "done"], "runs": [("completed", 12)],
        "changes": {"H1": 2, "H2": 2},
    },
    "stray": {
        "moved": {"drawer1slot5": "H1"}, "operations": {"done": 1}, "plans": ["done"], "changes": {"H1": 1, "H2": 1},
    },
}  # fmt: skip
# The same device was moved away again before the late worker came back.
AFTER_ANOTHER = {"moved": {"drawer1slot1": None}, "operations": {"done": 2}, "changes": {"H1": 1, "H3": 2}}


def cells() -> list[Any]:
    """Return each fault at each time that a failpoint is reached."""
    return [
        pytest.param(f"{name}=?@{number}", what, id=f"{name}-{what}-{number}")
        for name in FAILPOINTS
        for what in FAULTS
        if what != "lose_answer" or name.startswith(tuple(LOST_ANSWERS))
        # Others cannot write until it comes back, or has died: it is never late.
        if what != "late" or not (name.endswith(".uncommitted") or name in FILE_LOCKED)
        for number in range(1, TIMES.get(name, 1) + 1)
    ]


def result(world: World) -> dict[str, Any]:
    """Return how all has ended, without what is not there, after checking that rows and hardware agree."""
    courses.check_rows()
    assert courses.attached() == courses.in_zones(world.simulator.state()["zones"]), "the rows are as the hardware is"
    check_received(world)
    changes = courses.zone_changes(world.simulator.events())
    return {name: value for name, value in {**courses.outcome(), "changes": changes}.items() if value}


def check_received(world: World) -> None:
    """Check that the receiver got each event once; what came again came with the same id, and was the same."""
    if not world.receiver.got:
        return
    bodies = {(got.headers["webhook-id"], got.body) for got in world.receiver.got}
    assert len(bodies) == len({name for name, _ in bodies})
    numbers = [json.loads(line)["id"] for _, body in bodies for line in body.splitlines()]
    assert sorted(numbers) == list(Event.objects.filter(source="bmc").order_by("pk").values_list("pk", flat=True))


def meanwhile(course: str) -> None:
    """Do what others do while a worker is away that comes back late: another request, about the same."""
    if course == "move":
        courses.ask_operation(1, None, "meanwhile")
        settle()


def ends(begin: Begin, workers: Workers, fault: str, what: str) -> dict[str, Any]:
    """Return how a course ends in which a worker meets a fault, and others go on."""
    course = course_of(fault)
    world = begin(course)
    action = "hang" if what in {"hang", "late"} else what
    with workers.begun(course, fault.replace("?", action), world.exports) as copy:
        if action == "hang":
            others_go_on(copy, course, fault.partition("=")[0], what)
        elif what == "die":
            assert copy.end() == EXIT_STATUS
        else:
            copy.end()
            assert copy.counts().get(fault.partition("=")[0])
    ASKS[course]()  # who got no answer asks again
    settle()
    return result(world)


def wanted(course: str, what: str) -> dict[str, Any]:
    """Return how a course is to end."""
    return AFTER_ANOTHER if (course, what) == ("move", "late") else WANTED[course]


def others_go_on(copy: Copy, course: str, name: str, what: str) -> None:
    """Let others do the work of a worker that hangs, then kill it, or let it go on."""
    wait_for(lambda: copy.hangs or copy.is_over, "it reaches the failpoint", courses.SECONDS)
    assert copy.hangs
    if copy.is_uncommitted or name in FILE_LOCKED:
        copy.kill()  # nobody can write until then; the watchdog does it in a site
    ASKS[course]()
    settle()
    if what == "late":
        meanwhile(course)
        copy.release()
        copy.end()


def test_each_failpoint_is_at_one_place_and_has_a_course_and_no_site_arms_one() -> None:
    texts = [path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    calls = Counter(
        leaf.value
        for text in texts
        if "failpoint(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint"
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    )
    assert calls == Counter(FAILPOINTS)
    assert len(FAILPOINTS) >= 41
    assert {course_of(name) for name in FAILPOINTS} == set(ASKS)
    assert sum("set_failpoint_handler" in text for text in texts) == 1, "where it is defined"


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("operation.end.uncommitted", "die"), ("bmc.attach.answered", "lose_answer"), ("bmc.attach.request", "late"),
        ("plan.settled", "lose_database"), ("export.renamed", "die"), ("export.begun", "late"),
    ],
)  # fmt: skip
def test_a_fault_loses_nothing_and_doubles_nothing(site: Begin, workers: Workers, name: Failpoint, what: str) -> None:
    assert ends(site, workers, f"{name}=?", what) == wanted(course_of(name), what)


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.with_agent
@pytest.mark.parametrize("course", ASKS)
def test_each_failpoint_of_a_course_is_reached(site: Begin, workers: Workers, course: str) -> None:
    world = site(course)
    with workers.begun(course, "", world.exports) as copy:
        assert copy.end() == 0
        counts = copy.counts()
    for name in (one for one in FAILPOINTS if course_of(one) == course):
        assert counts.get(name, 0) >= TIMES.get(name, 1), name
    assert result(world) == WANTED[course]


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.with_agent
@pytest.mark.parametrize(("fault", "what"), cells())
def test_each_fault_at_each_failpoint_ends_as_without_it(site: Begin, workers: Workers, fault: str, what: str) -> None:
    assert ends(site, workers, fault, what) == wanted(course_of(fault), what)


def test_a_worker_whose_operation_others_have_by_now_writes_nothing_to_the_hardware(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    """It hung before it read the zone: its condition is fresh, and only its claim says that it is late."""
    operation = courses.ask_operation(1, "H3", "late")

    def lose_claim() -> None:
        Operation.objects.update(worker="second")

    with at_step(operation.pk, "Detach", lose_claim):
        execute(str(operation.pk), worker="first")
    operation.refresh_from_db()
    assert (operation.state, operation.worker) == ("running", "second")
    assert "PATCH" not in simulator.state()["requests"]
    assert courses.attached() == courses.AT_FIRST
