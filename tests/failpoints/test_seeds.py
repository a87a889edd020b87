"""The engine of operations under seeds: nothing is lost, doubled or stuck, and a seed says the same each time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextvars import copy_context
from random import Random
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from accounts.models import User
from fabric.bmc import sign_in
from fabric.execution.claims import OperationClaim
from fabric.execution.lanes import OperationLane
from fabric.execution.membership import zones_of
from fabric.inventory.models import Chassis
from fabric.operations.models import Operation
from fabric.signals import operation_progressed
from tests.failpoints import seeds
from tests.failpoints.loop import PROCESS, Process, SeededLoop
from tests.failpoints.seeds import Course, SeedFailed, ask_once, falcon, run_seed, surroundings
from tests.repro import SEED

pytestmark = [
    pytest.mark.process,  # a failure asks git for the commit
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),  # of dead workers
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FEW = 3
# Of the first, the last worker gave the operation up, could not read where the device was, and nothing said so.
FOUND = (207830230, 207830257, 207830740)
# s of a night's run; some thousand seeds on a machine of its own
NIGHT_SECONDS = float(os.environ.get("FALCONWEB_SEED_SECONDS", "1200"))


@pytest.fixture
def rows(db: None, chassis: Chassis, administrator: User) -> None:
    """A chassis as it is at first, and who asks."""


def run_few() -> None:
    """Run some seeds, or the one that is asked for."""
    for seed in [int(os.environ[SEED])] if SEED in os.environ else range(FEW):
        run_seed(seed)


def test_under_each_seed_a_request_ends_once_and_the_rows_are_as_the_hardware_is(rows: None) -> None:
    run_few()


@pytest.mark.parametrize("seed", FOUND)
def test_no_seed_fails_that_failed_once(rows: None, seed: int) -> None:
    run_seed(seed)


def test_what_a_process_has_to_do_while_it_hangs_it_does_later_in_order() -> None:
    loop, process, done = SeededLoop(Random(1)), Process("hangs"), list[tuple[int, float]]()  # noqa: S311 - chance
    process.hangs_until = 5.0
    context = copy_context()
    context.run(PROCESS.set, process)
    for number in (1, 2):
        loop.call_soon(lambda number: done.append((number, round(loop.seconds, 3))), number, context=context)
    loop.run_until_complete(asyncio.sleep(9.0))
    loop.close()
    assert done == [(1, 5.0), (2, 5.0)]


def test_a_seed_does_the_same_each_time(rows: None) -> None:
    first = run_seed(3)
    # As a course leaves it that ends while an answer is lost.
    sign_in._left_sessions[Chassis.objects.get().address()].append(("/redfish/v1/SessionService/Sessions/s1", "token"))
    again, other = run_seed(3), run_seed(4)
    assert first.changes, "something happened"
    assert first.trace == again.trace != other.trace


def claim_of(person: User) -> OperationClaim:
    """Return the claim on a new operation."""
    claim = OperationClaim.take(str(ask_once(person, 1, "H3").pk), "worker")
    assert claim is not None
    return claim


def test_what_is_not_stored_for_once_is_stored_before_the_next_write_and_changes_no_end(
    rows: None, administrator: User
) -> None:
    claim, course, stored = claim_of(administrator), Course(1), list[str]()
    course.rate = 0.0

    def hear(**_: Any) -> None:
        stored.append(Operation.objects.get().state)
        if len(stored) == 1:
            claim.operation.state = Operation.State.DONE
            raise OperationalError("the database is gone")

    async def write() -> tuple[object, object]:
        claim.save_late(state=Operation.State.VERIFYING)
        return await asyncio.gather(claim._store(), claim.check_held(), return_exceptions=True)

    operation_progressed.connect(hear)
    try:
        with surroundings(course):
            lost, held = course.loop.run_until_complete(write())
    finally:
        operation_progressed.disconnect(hear)
    assert isinstance(lost, OperationalError)
    assert held is None
    assert stored == ["verifying"] * 2
    assert claim.operation.state == Operation.State.DONE


def test_zones_are_as_old_as_the_begin_of_their_read(rows: None, administrator: User) -> None:
    course, claim = Course(1), claim_of(administrator)
    course.rate = 0.0

    async def read() -> None:
        async with OperationLane().bmc(claim.operation.chassis) as bmc:
            begun = timezone.now()
            await zones_of(claim, bmc, "")
        assert claim.zones.read_at == begun < timezone.now()

    with surroundings(course):
        course.falcon = falcon()
        course.loop.run_until_complete(read())


def test_a_dead_workers_operation_that_nobody_takes_over_is_found(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_claimed() -> list[str]:
        rows = Operation.objects.open().filter(attempts=0)
        return [str(pk) for pk in rows.in_turn().values_list("pk", flat=True)]

    monkeypatch.setattr(seeds, "runnable_operations", never_claimed)
    with pytest.raises(SeedFailed, match=r"stuck: .*Again: make repro NAME=operations SEED=\d+"):
        run_few()


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_thousands_of_seeds_lose_double_and_hold_nothing(rows: None, capsys: pytest.CaptureFixture[str]) -> None:
    first = int(time.time()) // 86_400 * 10_000  # others each night
    end, seed, faults = time.monotonic() + NIGHT_SECONDS, first, 0
    while time.monotonic() < end:
        faults += run_seed(seed).faults.total()
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{seed - first} seeds from {first} on, {faults} faults: 0 lost, 0 doubled, 0 stuck\n")
