"""A worker's claim on an operation: taken, renewed while it runs, cancelled on request; with its steps and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from copy import copy
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Self, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record, target_of
from core.claims import WATCHED, WatchedClaims, unclaimed
from core.database import DATABASE_UNAVAILABLE, CompiledQuery, find_row, lock_rows
from core.errors import FalconWebError
from core.failpoints import failpoint
from core.language import gettext_noop
from core.threads import run_in_pool, run_in_thread
from fabric.bmc.client import retry_while_unreachable
from fabric.bmc.dialects import HeldZone
from fabric.bmc.errors import BmcError
from fabric.bmc.port_links import PortLink
from fabric.drift.approvals import operation_result_approve
from fabric.execution.chassis_parts import NO_PARTS, ChassisParts, chassis_parts
from fabric.inventory.labels import host_port_name, redact_address
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import Chassis, Drawer
from fabric.operations.models import Operation, Plan, Proof
from fabric.operations.selectors import queue_head
from fabric.plans.jobs import plan_step_failed
from fabric.signals import operation_changed, operation_progressed

logger = logging.getLogger(__name__)
CLAIM_SECONDS = 10.0
CLAIM_RENEW_SECONDS = 3.0
LATE_SECONDS = 0.2  # after which a page shows a step that is not over by then
ANNOUNCE_SECONDS = 1.0  # after which the begin of an operation is announced that is not over by then
CANCEL_CHECK_SECONDS = 0.5
RECENT_SECONDS = 1.0  # in which zones and links count as just read
MAX_WAITING_SECONDS = 600.0  # an operation that could not start for so long fails instead of starting unexpectedly
MAX_ATTEMPTS = 5

Result = TypeVar("Result")


class OperationFailedError(FalconWebError):
    """The operation ends as failed, with this sentence."""


class OperationCancelledError(FalconWebError):
    """The operation ends as cancelled, as requested while it ran."""


class RecentRead(Generic[Result]):
    """What has just been read of the BMC, once for whoever needs it next."""

    def __init__(self) -> None:
        self._found: Result | None = None
        self._until = 0.0  # by the monotonic clock
        self._read_at: datetime | None = None

    def keep(self, found: Result, read_at: datetime) -> None:
        """Keep what was read just now, by a read that began at `read_at`."""
        self._found, self._until, self._read_at = found, time.monotonic() + RECENT_SECONDS, read_at

    @property
    def read_at(self) -> datetime | None:
        """When the read of it began, None where nothing recent is kept."""
        return self._read_at if self._found is not None and time.monotonic() < self._until else None

    def take(self) -> Result | None:
        """Return what was read just now; None the next time."""
        found, self._found = (self._found if self.read_at else None), None
        return found


class OperationClaim:
    """One worker's claim on an operation."""

    def __init__(self, operation: Operation, worker: str, parts: ChassisParts = NO_PARTS, obstacle: str = "") -> None:
        self.operation = operation
        self.worker = worker
        self.parts = parts  # those of the chassis, as they were at the claim
        self.obstacle = obstacle  # why the operation is not begun
        self.lost = False  # another worker has claimed the operation: this one must not write again
        self.has_ended = False  # with an end that this worker has written
        # When a cancellation was looked for, by the monotonic clock: at the claim.
        self._checked_at = time.monotonic() if operation.cancel_requested_at is None else 0.0
        self._storing = asyncio.Lock()
        self._unstored = asyncio.Event()  # a step has begun that is to be stored soon
        self._late_values: dict[str, Any] = {}
        self._until_announced: asyncio.TimerHandle | None = None
        self._begin_announced: asyncio.Task[None] | None = None
        self.zones = RecentRead[dict[str, HeldZone]]()
        self.link = RecentRead[PortLink]()  # of the device
        self.proof: Proof | None = None  # of which this worker has stored the begin
        self._before_end: Callable[[], None] | None = None
        self._meanwhile: list[asyncio.Task[None]] = []

    @classmethod
    def take(cls, operation_id: str, worker: str) -> Self | None:
        """Claim an operation for this worker; None where it cannot be claimed now."""
        failpoint("operation.claim")
        with transaction.atomic():
            # The lock serialises claims of this chassis: values read before it may be stale.
            chassis = CHASSIS_OF_OPERATION.first(UUID(operation_id))
            operation = FREE_OPERATION.first(UUID(operation_id))
            if operation is None or chassis is None:
                return None
            # In order, since each was checked against the state after its predecessors.
            if (head := queue_head(operation)) is not None and head.pk != operation.pk:
                return None
            operation.worker, operation.state = worker, Operation.State.RUNNING
            operation.lease_until = timezone.now() + timedelta(seconds=CLAIM_SECONDS)
            operation.attempts += 1
            obstacle = _obstacle(operation)
            if not obstacle:
                operation.started_at = operation.started_at or timezone.now()
            names = ("worker", "state", "lease_until", "attempts", "started_at")
            claimed = {name: getattr(operation, name) for name in names}
            if _free(operation.pk).update(**claimed) != 1:
                return None
            # Within the transaction, whose lock on the row keeps them from being deleted meanwhile.
            operation.chassis = chassis
            _read_relations(operation)
            parts = chassis_parts(operation.chassis)
            failpoint("operation.claimed.uncommitted")
        failpoint("operation.claimed")
        return cls(operation, worker, parts, obstacle)

    async def renew(self, work: asyncio.Task[None]) -> None:
        """Renew the claim, and store what is late, until this task is cancelled; cancels `work` once it is lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLAIM_RENEW_SECONDS):
                    await self._unstored.wait()
                await asyncio.sleep(LATE_SECONDS)
                if not self._unstored.is_set():
                    continue  # stored meanwhile, and the claim renewed by that
            try:
                held = await self._store()
            except DATABASE_UNAVAILABLE:
                logger.exception("operation %s: the claim could not be renewed", self.operation.pk)
                await asyncio.sleep(LATE_SECONDS)
                continue
            failpoint("operation.claim.renewed")
            if not held:
                if self.operation.is_open:
                    self.lost = True
                    work.cancel()
                return

    def held(self) -> QuerySet[Operation]:
        """Return the operation's row, if this worker still has the claim."""
        return Operation.objects.open().filter(pk=self.operation.pk, worker=self.worker)

    def announce_begin(self) -> None:
        """Announce in a while that the operation has begun, unless its end is announced before."""

        def announce() -> None:
            self._begin_announced = asyncio.create_task(run_in_pool(_announce, copy(self.operation)))

        self._until_announced = asyncio.get_running_loop().call_later(ANNOUNCE_SECONDS, announce)

    def stop_announcing(self) -> None:
        """Announce nothing more that is not being announced."""
        if self._until_announced is not None:
            self._until_announced.cancel()

    async def close(self) -> None:
        """Wait for all that was begun."""
        self.stop_announcing()
        await asyncio.gather(*self._meanwhile, return_exceptions=True)

    def meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        """Do database work beside what follows; all that is stored after it waits for it, and so does the next write.

        Its error is raised there.
        """
        self._meanwhile.append(asyncio.create_task(work))

    async def end_meanwhile(self) -> None:
        """Wait for what was begun meanwhile; raises its first error, once."""
        begun, self._meanwhile = self._meanwhile, []
        for found in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(found, BaseException):
                raise found

    async def save(self, **values: Any) -> None:
        """Save the steps and these values, and publish them; cancels the running task where the claim is lost."""
        await self.end_meanwhile()
        self.save_late(**values)
        if not await self._store():
            self.lost = True
            raise asyncio.CancelledError

    def save_late(self, **values: Any) -> None:
        """Have the steps and these values saved with the next write to the BMC, or in LATE_SECONDS."""
        for name, value in values.items():
            setattr(self.operation, name, value)
        self._late_values |= values
        self._unstored.set()

    async def store_with(self, work: Callable[[], None]) -> None:
        """Do database work in a transaction that renews the claim; cancels the running task where the claim is lost."""
        if not await self._store(work):
            self.lost = True
            raise asyncio.CancelledError

    async def _store(self, work: Callable[[], None] | None = None) -> bool:
        """Renew the claim, store what is late, and do `work` in the same transaction; returns whether it is held."""
        async with self._storing:
            values: dict[str, Any] = {"lease_until": timezone.now() + timedelta(seconds=CLAIM_SECONDS)}
            late = self._late_values
            if is_late := self._unstored.is_set():
                values |= {**late, "steps": [{**step} for step in self.operation.steps]}
                self._late_values = {}
                self._unstored.clear()
            try:
                held: bool = await run_in_thread(self._write, values, work)
            except DATABASE_UNAVAILABLE:
                if is_late:
                    # The operation has these values, or later ones already: it may end at this moment.
                    self._late_values = late | self._late_values
                    self._unstored.set()
                raise
            return held

    def _write(self, values: dict[str, Any], work: Callable[[], None] | None) -> bool:
        with nullcontext() if work is None else transaction.atomic():
            if self.held().update(**values) != 1:
                return False
            if work is not None:
                work()
        if "steps" in values:
            operation_progressed.send(Operation, operation=self.operation)
        return True

    async def end(self, state: Operation.State, error: str) -> None:
        """Write the end of the operation, which `announce_end` announces; cancels the running task where it is lost."""
        self.stop_announcing()
        if self._begin_announced is not None:
            await self._begin_announced
        await self.end_meanwhile()
        values = {"state": state, "error": error, "finished_at": timezone.now(), "lease_until": None}
        for name, value in values.items():
            setattr(self.operation, name, value)
        if not await run_in_thread(self._end_here, values):
            self.lost = True
            raise asyncio.CancelledError

    def at_end(self, work: Callable[[], None] | None) -> None:
        """Have database work done right before the end is written, in the same trip; it must not fail by itself.

        It takes the place of what was to be done before; None: nothing.
        """
        self._before_end = work

    def _end_here(self, values: dict[str, Any]) -> bool:
        if self._before_end is not None:
            self._before_end()
        failpoint("operation.end")
        if not self._write_end(values):
            return False
        self.has_ended = True
        failpoint("operation.ended")
        return True

    def announce_end(self) -> None:
        """Announce the end that this worker has written."""
        operation_changed.send(Operation, operation=self.operation)
        failpoint("operation.announced")

    def _write_end(self, values: dict[str, Any]) -> bool:
        """Write the end, and stop its plan in the same transaction where it failed."""
        operation = self.operation
        with transaction.atomic():
            if operation.state == Operation.State.FAILED:
                plan_step_failed(operation)
            else:
                lock_chassis([operation.chassis_id])
            if self.held().update(steps=operation.steps, **values) != 1:
                transaction.set_rollback(True)
                return False
            operation_result_approve(operation)
            failpoint("operation.end.uncommitted")
            # The last statement of the transaction.
            audit_record(
                action=Action.OPERATION_END,
                actor=operation.requested_by,
                target=target_of(operation, operation.summary),
                before={"attached_to": host_port_name(operation.source)} if operation.device_id else None,
                after={"attached_to": host_port_name(operation.target)} if operation.device_id else None,
                outcome=Outcome.DONE if operation.state == Operation.State.DONE else Outcome.FAILED,
                sentence=operation.error,
                request_id=operation.request_id,
            )
        return True

    @asynccontextmanager
    async def step(self, name: str, *, late: bool = False, **values: Any) -> AsyncIterator[dict[str, Any]]:
        """Run a step for the duration of the context, which gets its entry: times and outcome are saved.

        `values` of the operation are saved with its begin: `late` where it changes nothing but by writes to the BMC.
        """
        entry = self._entry(name)
        if entry is not self.operation.steps[-1]:
            await self.check_cancelled()
        entry.update(state="running", started_at=entry["started_at"] or iso_now())
        failpoint("operation.step.begin")
        self.save_late(**values)
        if not late:
            await self.save()
        failpoint("operation.step.begun", (self.operation.pk, name))
        # The end is saved with the next change, which follows immediately: the next step's start, or the operation's.
        try:
            yield entry
        except Exception as error:
            if isinstance(error, FalconWebError):
                entry["sentence"] = redact_address(error.sentence, self.operation.chassis)
            entry.update(state="failed", finished_at=iso_now())
            raise
        entry.update(state="done", finished_at=iso_now())
        failpoint("operation.step.done")

    def skip(self, name: str, sentence: str) -> None:
        """Skip a step, with the reason; saved with the begin of the next one, which follows immediately."""
        self._entry(name).update(state="skipped", sentence=sentence)

    def _entry(self, name: str) -> dict[str, Any]:
        entry: dict[str, Any] = next(step for step in self.operation.steps if step["name"] == name)
        return entry

    async def retry(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """Send a request to the BMC, retried while it is unreachable until a cancellation; the step shows the wait."""

        async def pausing(error: BmcError, seconds: float) -> None:
            if error.retry_helps:
                await show(f"{self.operation.chassis.name} does not answer: requests are retried until it does.")
            await asyncio.sleep(seconds)
            await self.check_cancelled()

        async with self.waiting() as show:
            return await retry_while_unreachable(request, pausing=pausing)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
        """Yield a function that shows what the running step waits for, if any runs, until the end of the context."""
        shown: list[dict[str, Any]] = []

        async def show(sentence: str) -> None:
            running = [step for step in self.operation.steps if step["state"] == "running"][:1]
            if running and not shown:
                running[0]["sentence"] = sentence
                shown.extend(running)
                await self.save()

        try:
            yield show
        finally:
            for entry in shown:
                entry["sentence"] = ""  # saved with the next change

    async def check_held(self) -> None:
        """Cancel the running task where the claim is lost.

        A worker may have hung since its last renewal. After a read, and before a write that depends on it: what is late
        is saved by then.
        """
        await self.end_meanwhile()
        # What is being stored at this moment may fail.
        is_late = self._unstored.is_set() or self._storing.locked()
        if not await (self._store() if is_late else run_in_thread(self.held().exists)):
            self.lost = True
            raise asyncio.CancelledError

    async def check_cancelled(self) -> None:
        """Raise OperationCancelledError if a cancellation was requested; checks at most twice a second."""
        if time.monotonic() < self._checked_at + CANCEL_CHECK_SECONDS:
            return
        self._checked_at = time.monotonic()
        cancelled = self.held().filter(cancel_requested_at__isnull=False)
        if await run_in_thread(cancelled.exists):
            raise OperationCancelledError(gettext_noop("Cancelled while it was carried out."))

    def close_steps(self, read_back: str) -> None:
        """Close all open steps of an operation that did not succeed; the last one gets the read-back, if any."""
        for step in self.operation.steps:
            step["state"] = {"waiting": "skipped", "running": "failed"}.get(step["state"], step["state"])
        last = self.operation.steps[-1]
        if last["state"] == "done":
            return
        if not read_back:
            unread = f"{self.operation.chassis.name} could not be read: the next poll shows its state."
            last["sentence"] = f"{last['sentence']} {unread}".strip()
        elif last["state"] == "skipped":
            last.update(state="done", started_at=iso_now(), finished_at=iso_now(), sentence=read_back)
        else:
            last["sentence"] = last["sentence"] or read_back


def _obstacle(operation: Operation) -> str:
    """Return why an operation that a worker claims is not begun, '' where it is."""
    if operation.attempts > MAX_ATTEMPTS:
        return f"Abandoned after {MAX_ATTEMPTS} attempts, each of which was interrupted."
    if operation.started_at is None and _waiting_seconds(operation) > MAX_WAITING_SECONDS:
        return f"It could not start within {MAX_WAITING_SECONDS / 60:.0f} minutes. Request it again."
    return ""


def _waiting_seconds(operation: Operation) -> float:
    """Return for how long an operation could have started, s: waiting for its predecessors does not count."""
    waiting = (timezone.now() - operation.requested_at).total_seconds()
    if waiting <= MAX_WAITING_SECONDS:
        return waiting  # its predecessors need not be looked up
    before = Operation.objects.in_queue_of(operation)
    ended: datetime | None = before.aggregate(at=Max("finished_at"))["at"]
    since = operation.requested_at if ended is None else max(ended, operation.requested_at)
    return (timezone.now() - since).total_seconds()


def _announce(operation: Operation) -> None:
    try:
        operation_changed.send(Operation, operation=operation)
    except Exception:
        logger.exception("operation %s: a change was not announced", operation.pk)


# What a run needs of each relation of an operation.
RELATIONS: Final = {
    "requested_by": (), "port": (), "host": (), "managed_part": (), "device": ("slot__port",), "source": ("host",),
    "target": ("host",),
}  # fmt: skip
CHASSIS_OF_OPERATION: Final[CompiledQuery[Chassis]] = CompiledQuery(
    lambda pk: lock_rows(Chassis.objects.filter(operations__pk=pk))
)


def _free(pk: Any) -> QuerySet[Operation]:
    return Operation.objects.open().filter(unclaimed(), pk=pk)


FREE_OPERATION: Final[CompiledQuery[Operation]] = CompiledQuery(lambda pk: _free(pk).order_by())
# Its states are long, and a step needs none of them.
PLAN_OF_STEP: Final[CompiledQuery[Plan]] = CompiledQuery(
    lambda pk: Plan.objects.defer("wanted", "base", "preview").filter(pk=pk).order_by()
)


def _read_relations(operation: Operation) -> None:
    """Read the relations that a run needs, which are few: all of them joined take longer to put together."""
    for name, further in RELATIONS.items():
        relation: Any = Operation._meta.get_field(name)  # noqa: SLF001 - documented by Django
        setattr(operation, name, find_row(relation.related_model, getattr(operation, relation.attname), *further))
    if operation.plan_id is not None:
        operation.plan = PLAN_OF_STEP.first(operation.plan_id)
    if operation.kind == Operation.Kind.MODE:
        operation.drawer = find_row(Drawer, operation.drawer_id)


def iso_now() -> str:
    """Return the current time in the format of a step."""
    return timezone.now().isoformat()


WATCHED.append(WatchedClaims(Operation.objects.open, "lease_until", CLAIM_SECONDS, {"worker": ""}))
