"""The engine of operations in a loop with a seed: workers that die, hang and lose answers, on a simulated chassis.

Chassis, engine and rows are the real ones. There are no sockets, threads and clocks: a seed says all that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pytest
from aiohttp import Payload, web
from django.db import OperationalError, transaction
from django.utils import timezone
from multidict import CIMultiDict
from yarl import URL

from accounts.models import User
from core import claims, threads
from core.claims import LOOK_SECONDS, ClaimWatcher
from core.errors import Conflict, FalconWebError
from core.failpoints import Failpoint, set_failpoint_handler
from fabric.bmc import client, sign_in
from fabric.bmc.errors import TimedOut, Unreachable
from fabric.bmc.kept_connection import RawResponse
from fabric.bmc.transport import Transport
from fabric.execution.claims import OperationClaim
from fabric.execution.lanes import OperationLane
from fabric.execution.services import run_claimed, runnable_operations
from fabric.inventory.models import Device, HostPort
from fabric.operations.models import Operation
from fabric.operations.services import operation_cancel, operation_request
from falconweb.testing.people import PASSWORD
from simulator.errors import RedfishError
from simulator.lab import load_lab
from simulator.physics import Clock
from simulator.resources import register_all
from simulator.server import Exchange, error_response
from simulator.service import Falcon, ServiceOptions
from tests.failpoints.courses import attached
from tests.failpoints.loop import PROCESS, Process, ProcessDied, SeededLoop, Standstill, in_no_loop
from tests.repro import commit

BEGIN: Final = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
WORKERS: Final = 3
LABELS: Final = ("H1", "H2", "H3", None)
FAULTS_END: Final = 100.0  # s: what is open then has the time to end
STUCK_AFTER: Final = 600.0  # s
UNREAD: Final = "could not be read: the next poll shows its state."
LINES: Final = 60  # of the trace, in a failure
LONGEST_HANG: Final = 40.0  # s; four times as long as a claim


class SeedFailed(AssertionError):
    """A course under a seed lost something, did it twice, or got stuck."""


@dataclass
class Change:
    """What the chassis changed: a device left or got a host port, and who had asked for it."""

    at: datetime
    process: str
    member: str
    before: str | None
    after: str | None


@dataclass
class Request:
    """One request, as the simulator's exchange reads it."""

    method: str
    rel_url: URL
    headers: CIMultiDict[str]
    content: bytes
    remote: str = "127.0.0.1"

    async def read(self) -> bytes:
        """Return the body."""
        return self.content


@dataclass
class Course:
    """Everything of one seed: its chances, the chassis, what it changed, and the trace."""

    seed: int
    chance: random.Random = field(init=False)
    loop: SeededLoop = field(init=False)
    falcon: Falcon = field(init=False)
    trace: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - chance, no secret
        self.loop = SeededLoop(self.chance)
        # Some seeds have few faults and long courses, others many.
        self.rate = self.chance.choice([0.005, 0.02, 0.05])

    def note(self, what: str) -> None:
        """Add a line to the trace, not of what becomes of dead workers when all is over."""
        if not self.loop.is_running():
            return
        process = PROCESS.get()
        self.trace.append(f"{self.loop.seconds:11.6f} {process.name if process else 'bmc':9} {what}")

    def strikes(self, weight: float = 1.0) -> bool:
        """Return whether a fault comes now."""
        return self.loop.seconds < FAULTS_END and self.chance.random() < self.rate * weight

    def now(self) -> datetime:
        """Return the time of day in this course."""
        return datetime.fromtimestamp(BEGIN.timestamp() + self.loop.seconds, UTC)

    def at_failpoint(self, name: Failpoint, about: object = None) -> None:
        """Let a process go on, hang, die, or lose the database, as drawn."""
        process = PROCESS.get()
        if process is None:
            return
        if process.is_dead:
            raise ProcessDied
        self.note(name)
        if not self.strikes():
            return
        what = self.chance.choice(["dies", "hangs", "hangs", "loses the database"])
        self.note(f"{name}: {what}")
        self.faults[what] += 1
        if what == "dies":
            process.is_dead = True
            raise ProcessDied
        if what == "loses the database":
            raise OperationalError("the database is gone")
        process.hangs_until = self.loop.seconds + self.chance.uniform(0.0, LONGEST_HANG)

    def attached(self) -> dict[str, str]:
        """Return what is attached where, as the chassis knows."""
        return {slot.endpoint: slot.attached_to for slot in self.falcon.state.all_slots() if slot.attached_to}

    async def answer(self, request: Request, process: str) -> RawResponse:
        """Carry a request out on the chassis, and note what it changed."""
        before = self.attached()
        self.falcon.advance()
        try:
            reply = await Exchange(self.falcon, request).respond()  # type: ignore[arg-type]  # all that it reads is there
        except RedfishError as error:
            reply = error_response(error)
        after = self.attached()
        for member in sorted(before.keys() | after.keys()):
            if before.get(member) != after.get(member):
                self.changes.append(Change(self.now(), process, member, before.get(member), after.get(member)))
                self.note(f"{member} from {before.get(member)} to {after.get(member)}, asked for by {process}")
        assert isinstance(reply, web.Response)
        return RawResponse(reply.status, reply.headers, bytes(reply.body or b""))  # type: ignore[arg-type]


def transport_of(course: Course) -> type[Transport]:
    """Return a transport that reaches the chassis of a course without a network, but with its delays and losses."""

    class DirectTransport(Transport):
        def open(self) -> None:
            """There is nothing to open."""

        async def close(self) -> None:
            """There is nothing to close."""

        async def send(
            self, method: str, uri: str, *, headers: Mapping[str, str], content: bytes | Payload | None = None,
            timeout: float | None = None,
        ) -> RawResponse:  # fmt: skip
            url, process = self.locate(uri), PROCESS.get()
            if process is not None and process.is_dead:
                raise ProcessDied  # on the way out of what it was at
            name = process.name if process else ""
            is_struck = course.strikes(1.0 if method == "GET" else 10.0)
            what = course.chance.choice(["refused", "lost", "lost", "slow"]) if is_struck else ""
            if method != "GET" or what:
                course.note(f"{method} {url.path} {what}".rstrip())
            if what:
                course.faults[what] += 1
            if what == "refused":
                await asyncio.sleep(course.chance.uniform(0.0, 0.1))
                raise Unreachable(f"{self.host} does not answer.")
            assert not isinstance(content, Payload)  # no file is pushed here
            request = Request(method, url.relative(), CIMultiDict(headers), content or b"")
            # Nobody can know of a write that a BMC carries out after its client has given it up.
            slow = 25.0 if method == "GET" else timeout or self._timeout
            delay = course.chance.uniform(0.0, slow) if what == "slow" else course.chance.uniform(0.001, 0.05)

            async def carried_out() -> RawResponse:
                await asyncio.sleep(delay)
                return await course.answer(request, name)

            # What was sent arrives, whatever becomes of the sender.
            outside = copy_context()
            outside.run(PROCESS.set, None)
            arriving = course.loop.create_task(carried_out(), context=outside)
            try:
                async with asyncio.timeout(timeout or self._timeout):
                    found = await asyncio.shield(arriving)
            except TimeoutError as error:
                raise TimedOut(f"{self.host} did not answer in time.") from error
            if what == "lost":
                raise Unreachable(f"{self.host} broke the connection before its answer was complete.")
            return found

    return DirectTransport


@contextmanager
def surroundings(course: Course) -> Iterator[None]:
    """Put a course's clock, transport and faults in place of the real ones."""

    def quiet(_: Any) -> None:
        """Coroutines of dead processes are closed somewhere."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", course.loop.time)
        patch.setattr(time, "time", lambda: course.now().timestamp())
        patch.setattr(timezone, "now", course.now)
        # Of what the workers here do; a query for each of the others would take most of the time.
        patch.setattr(claims, "WATCHED", [one for one in claims.WATCHED if one.rows().model is Operation])
        patch.setattr(client, "Transport", transport_of(course))
        patch.setattr(sign_in, "_left_sessions", defaultdict(list))  # those of the course before are of another chassis
        patch.setattr(threads, "close_old_connections", lambda: None)  # all of it is in the test's transaction
        patch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # the trace has it
        set_failpoint_handler(course.at_failpoint)
        try:
            yield
        finally:
            set_failpoint_handler(None)
            patch.setattr(sys, "unraisablehook", quiet)
            course.loop.forget()
            course.loop.close()


def falcon() -> Falcon:
    """Return the chassis falcon-1 as it is at first, with links that train fast."""
    lab = load_lab(None)
    made = Falcon(
        lab, "falcon-1", lab.chassis["falcon-1"], password=PASSWORD, clock=Clock(20.0), options=ServiceOptions()
    )
    register_all(made)
    return made


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work of the database as the engine does."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: work(*arguments))


async def watch(course: Course) -> None:
    """Release the claims of dead workers, as each worker does."""
    watcher = ClaimWatcher()
    while not course.over:
        await asyncio.sleep(LOOK_SECONDS)
        if await in_thread(watcher.look):
            course.note("releases a claim")


async def work(course: Course, process: Process) -> None:
    """Do what a worker does of operations, until the course is over; those that follow one another share a session."""
    lane = OperationLane()
    while not course.over:
        try:
            due = await in_thread(runnable_operations)
            if not due:
                await lane.sign_out()
                await asyncio.sleep(3.0)
                continue
            claim = await in_thread(OperationClaim.take, course.chance.choice(due), process.name)
            if claim is None:
                await asyncio.sleep(3.0)  # an older operation of the drawer is in front of it
            else:
                await run_claimed(lane, claim)
        except OperationalError:
            await asyncio.sleep(1.0)


async def ask(course: Course) -> None:
    """Ask for changes of devices, and cancel some, as people do."""
    person = await in_thread(User.objects.get)
    for _ in range(course.chance.randint(3, 8)):
        slot, label = course.chance.randint(1, 2), course.chance.choice(LABELS)
        try:
            operation = await in_thread(ask_once, person, slot, label)
        except FalconWebError as error:
            course.note(f"slot {slot} to {label}: {type(error).__name__}")
        else:
            course.note(f"slot {slot} to {label}")
            if course.chance.random() < 0.1:
                await asyncio.sleep(course.chance.uniform(0.0, 8.0))
                with contextlib.suppress(Conflict):  # it has ended
                    await in_thread(partial(operation_cancel, person=person, operation=operation))
                    course.note("cancelled")
        await asyncio.sleep(course.chance.choice([0.5, 5.0, 20.0]))


def ask_once(person: User, slot: int, label: str | None) -> Operation:
    """Ask for one change; raises FalconWebError where it is refused."""
    device = Device.objects.get(slot__drawer__number=1, slot__number=slot)
    target = HostPort.objects.get(label=label) if label else None
    operation = operation_request(person=person, device=device, target=target)
    # The column's default is the real clock.
    Operation.objects.filter(pk=operation.pk).update(requested_at=timezone.now())
    return operation


async def course_of_events(course: Course) -> None:
    """Let people ask, and workers work; one that has died is replaced."""
    asking = asyncio.create_task(ask(course))
    workers: list[Process] = []
    started = 0
    while course.loop.seconds < STUCK_AFTER:
        for process in [*workers]:
            if process.is_dead:
                workers.remove(process)
        while len(workers) < WORKERS:
            started += 1
            workers.append(process := Process(f"worker-{started}"))
            context = copy_context()
            context.run(PROCESS.set, process)
            for task in (work(course, process), watch(course)):
                course.loop.create_task(task, context=context)
        await asyncio.sleep(4.0)
        hangs = any(process.hangs_until > course.loop.seconds for process in workers)
        if asking.done() and not hangs and not in_no_loop(Operation.objects.open().exists):
            break
    asking.result()
    course.over = True
    await asyncio.sleep(60.0)  # what is still on its way arrives


def check(course: Course) -> None:
    """Raise SeedFailed unless everything ended, once, and the rows are as the hardware is."""
    operations = list(Operation.objects.select_related("device", "target").order_by("requested_at"))
    counted: Counter[tuple[Any, bool]] = Counter()
    for change in course.changes:
        open_then = [
            one
            for one in operations
            if member_of(one) == change.member and one.requested_at <= change.at <= (one.finished_at or change.at)
        ]
        if not open_then:
            raise SeedFailed(f"{change.process} changed {change.member} after the end: to {change.after}")
        counted[open_then[0].pk, change.after is not None] += 1
    if doubled := [pk for (pk, _), count in counted.items() if count > 1]:
        raise SeedFailed(f"doubled: {Operation.objects.get(pk=doubled[0]).summary}")
    there, rows = course.attached(), attached()
    for member, last in {member_of(one): one for one in operations}.items():
        if last.is_open:
            raise SeedFailed(f"stuck: {last.summary} is {last.state}")
        if last.state == Operation.State.DONE and there.get(member) != (last.target.label if last.target else None):
            raise SeedFailed(f"lost: {last.summary} is done, and it is at {there.get(member)}")
    # After a failure the page says so, and what is so until the next poll. What never began read nothing since.
    looked = {
        member_of(one): one for one in operations if one.steps[-1]["sentence"] or one.steps[-1]["state"] == "done"
    }
    for member, last in looked.items():
        if last.steps[-1]["sentence"].endswith(UNREAD):
            rows, there = ({**places, member: ""} for places in (rows, there))
    if rows != there:
        raise SeedFailed(f"the rows differ from the hardware: {dict(set(rows.items()) ^ set(there.items()))}")


def member_of(operation: Operation) -> str:
    """Return the id of the device on the chassis."""
    return operation.device.endpoint_uri.rpartition("/")[2] if operation.device else ""


def run_seed(seed: int) -> Course:
    """Do the course of a seed on a chassis that is as at first, undo its rows, and return it; raises SeedFailed.

    asgiref gives whoever collects a coroutine of a dead process that process' context: nobody does while it runs, and
    what is left of it stays in a context of its own.
    """
    gc.disable()
    try:
        return copy_context().run(_run_seed, seed)
    finally:
        gc.enable()


def _run_seed(seed: int) -> Course:
    course = Course(seed)
    with transaction.atomic(), surroundings(course):
        course.falcon = falcon()
        try:
            course.loop.run_until_complete(course_of_events(course))
            check(course)
        except (SeedFailed, Standstill) as error:
            trace = "\n".join(course.trace[-LINES:])
            raise SeedFailed(f"{error}. {repro_line(seed)}\n{trace}") from None
        finally:
            transaction.set_rollback(True)
    return course


def repro_line(seed: int) -> str:
    """Return the command that does the same again, on the same commit."""
    return f"Again: make repro NAME=operations SEED={seed} (at commit {commit()})"
