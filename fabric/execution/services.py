"""Execution of operations: claimed by one worker, ended despite crashes, done only after a read-back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import close_old_connections, transaction
from django.db.models import F, Max, Q
from django.utils import timezone

from accounts.audit.actions import Action, Outcome
from accounts.audit.context import log_context
from accounts.audit.services import audit_record, target_of
from core.database import DATABASE_UNAVAILABLE
from core.errors import FalconWebError
from core.threads import run_in_thread, single_connection_thread
from fabric.bmc.client import CONNECTIONS_PER_OPERATION, REQUEST_SECONDS, BmcClient
from fabric.drift.approvals import operation_result_approve
from fabric.execution.claims import CLAIM_SECONDS, OperationCancelledError, OperationClaim, host_claims_release
from fabric.execution.proof import proof_end, proof_mark_unread
from fabric.execution.steps import read_back, read_back_sentence, restore_on_host, run_steps
from fabric.inventory.labels import host_port_name, redact_address
from fabric.inventory.locks import lock_chassis
from fabric.operations.models import Operation
from fabric.operations.rules import CABLE_SECONDS
from fabric.plans.jobs import plan_step_failed
from fabric.signals import operation_changed

logger = logging.getLogger(__name__)

READ_BACK_SECONDS = 45.0  # after a failure
OPERATION_SECONDS = 180.0  # a worker's time for an operation
MAX_WAITING_SECONDS = 600.0  # an operation that could not start for so long fails instead of starting unexpectedly
MAX_ATTEMPTS = 5
PICKUP_SECONDS = 3  # time for a worker to take a new operation from the queue


def runnable_operations() -> list[str]:
    """Return the ids of open operations that are due, and that no worker has claimed."""
    now = timezone.now()
    heads: dict[tuple[int, int | None], Operation] = {}
    # Queried every few seconds, for all of them: their steps are not needed.
    needed = Operation.objects.open().in_turn().only("chassis", "drawer", "lease_until", "requested_at")
    for operation in needed:
        heads.setdefault((operation.chassis_id, operation.drawer_id), operation)
    return [
        str(operation.pk)
        for operation in heads.values()
        if (operation.lease_until is not None and operation.lease_until < now)
        or (operation.lease_until is None and operation.requested_at < now - timedelta(seconds=PICKUP_SECONDS))
    ]


def next_operation(operation_id: str) -> str | None:
    """Return the id of the operation that waited for the end of this one; None for none, or while this one runs."""
    ended = Operation.objects.filter(pk=operation_id).first()
    if ended is None or ended.is_open:
        return None
    following = Operation.objects.open().filter(chassis=ended.chassis_id, drawer=ended.drawer_id)
    first = following.in_turn().first()
    return None if first is None or first.lease_until is not None else str(first.pk)


def execute(operation_id: str, *, worker: str) -> None:
    """Claim an operation and run it to its end.

    Does nothing where it has ended, another worker has claimed it, or an older operation of the same drawer has not
    ended: it is executed after that one (`next_operation`).
    """
    operation = _claim(operation_id, worker)
    if operation is None:
        return
    try:
        with log_context(chassis_id=operation.chassis_id, operation_id=str(operation.pk)), single_connection_thread():
            asyncio.run(_OperationRun(operation, worker).run())
    finally:
        close_old_connections()


def _claim(operation_id: str, worker: str) -> Operation | None:
    """Claim the operation for this worker and return it; None where it cannot be claimed now."""
    chassis = Operation.objects.filter(pk=operation_id).values_list("chassis", flat=True).first()
    if chassis is None:
        return None
    with transaction.atomic():
        # The lock serialises claims of this chassis: values read before it may be stale.
        lock_chassis([chassis])
        now = timezone.now()
        free = Operation.objects.open().filter(Q(lease_until=None) | Q(lease_until__lt=now), pk=operation_id)
        operation: Operation | None = free.select_related(
            "chassis", "plan", "requested_by", "drawer", "port", "host",
            "device__slot__port", "source__host", "target__host",
        ).first()  # fmt: skip
        if operation is None:
            return None
        # In order, since each was checked against the state after its predecessors.
        same = Operation.objects.open().filter(chassis=operation.chassis_id, drawer=operation.drawer_id)
        first = same.in_turn().first()
        if first is not None and first.pk != operation.pk:
            return None
        values = {"worker": worker, "lease_until": now + timedelta(seconds=CLAIM_SECONDS), "state": "running"}
        if free.update(attempts=F("attempts") + 1, **values) != 1:
            return None
    operation.refresh_from_db(fields=["attempts", *values])
    return operation


class _OperationRun:
    """One worker's execution of an operation, from the claim to the end."""

    def __init__(self, operation: Operation, worker: str) -> None:
        self.operation = operation
        self.claim = OperationClaim(operation, worker)

    async def run(self) -> None:
        work = asyncio.create_task(self._work())
        renewal = asyncio.create_task(self.claim.renew(work))
        try:
            await work
        except asyncio.CancelledError:
            if not self.claim.lost:
                raise
            logger.warning("operation %s: %s lost its claim to another worker", self.operation.pk, self.claim.worker)
        except DATABASE_UNAVAILABLE:
            # Its result cannot be stored: the claim expires, and another worker continues from the hardware's state.
            logger.exception("operation %s waits for the database", self.operation.pk)
        finally:
            renewal.cancel()

    async def _work(self) -> None:
        operation = self.operation
        try:
            if operation.attempts > 1:
                await run_in_thread(host_claims_release, operation)
            if operation.attempts > MAX_ATTEMPTS:
                await self._finish(f"Abandoned after {MAX_ATTEMPTS} attempts, each of which was interrupted.")
                return
            if operation.started_at is None and await run_in_thread(_waiting_seconds, operation) > MAX_WAITING_SECONDS:
                await self._finish(
                    f"It could not start within {MAX_WAITING_SECONDS / 60:.0f} minutes. Request it again."
                )
                return
            await self.claim.save(started_at=operation.started_at or timezone.now())
            async with asyncio.timeout(_seconds_of(operation)), self._bmc(REQUEST_SECONDS) as bmc:
                await run_steps(self.claim, bmc)
        except DATABASE_UNAVAILABLE:
            raise
        except OperationCancelledError as error:
            await self._finish(error.sentence, state=Operation.State.CANCELLED)
        except FalconWebError as error:
            await self._finish(error.sentence)
        except TimeoutError:
            await self._finish(f"It did not end within {_seconds_of(operation):.0f} s.")
        except Exception:
            logger.exception("operation %s", operation.pk)
            await self._finish("An error of the site stopped it; see the log of the worker.")
        else:
            await self._finish("", state=Operation.State.DONE)

    @asynccontextmanager
    async def _bmc(self, timeout: float) -> AsyncIterator[BmcClient]:
        address = await run_in_thread(self.operation.chassis.address)
        async with BmcClient(address, timeout=timeout, at_a_time=CONNECTIONS_PER_OPERATION) as bmc:
            yield bmc

    async def _finish(self, error: str, state: Operation.State = Operation.State.FAILED) -> None:
        operation = self.operation
        if state != Operation.State.DONE:
            error = redact_address(error, operation.chassis)
            self.claim.close_steps(await self._read_back_after_failure())
        values = {"state": state, "error": error, "finished_at": timezone.now(), "lease_until": None}
        for name, value in values.items():
            setattr(operation, name, value)
        if not await run_in_thread(self._end, values):
            self.claim.lost = True
            raise asyncio.CancelledError
        await run_in_thread(operation_changed.send, Operation, operation=operation)

    def _end(self, values: dict[str, Any]) -> bool:
        """Write the end, and stop its plan in the same transaction where it failed."""
        operation = self.operation
        with transaction.atomic():
            if operation.state == Operation.State.FAILED:
                plan_step_failed(operation)
            else:
                lock_chassis([operation.chassis_id])
            if self.claim.held().update(steps=operation.steps, **values) != 1:
                transaction.set_rollback(True)
                return False
            operation_result_approve(operation)
            _record_end(operation)
        return True

    async def _read_back_after_failure(self) -> str:
        """Read the hardware into the database after a failure and return the result as a sentence.

        An unreachable BMC is read by the next poll: then ''.
        """
        try:
            async with asyncio.timeout(READ_BACK_SECONDS), self._bmc(REQUEST_SECONDS / 2) as bmc:
                found = await read_back(self.claim, bmc)
                await proof_end(self.claim, bmc)
            # The agent has its own timeout: the read-back is reported in any case.
            await restore_on_host(self.claim, found)
            return read_back_sentence(self.operation, found)
        except FalconWebError as error:
            logger.info("operation %s: read-back after failure: %s", self.operation.pk, error.sentence)
        except TimeoutError:
            logger.info("operation %s: read-back after failure took over %s s", self.operation.pk, READ_BACK_SECONDS)
        except Exception:
            # Whatever the chassis answers, the operation must end.
            logger.exception("operation %s: read-back after failure", self.operation.pk)
        await run_in_thread(proof_mark_unread, self.operation)
        return ""


def _record_end(operation: Operation) -> None:
    """Write the audit entry of an operation's end; as the last statement of a transaction."""
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


def _seconds_of(operation: Operation) -> float:
    """Return the timeout of an operation, s: for a cable, including the time for a person to move it."""
    return OPERATION_SECONDS + (CABLE_SECONDS if operation.kind == Operation.Kind.CABLE else 0.0)


def _waiting_seconds(operation: Operation) -> float:
    """Return for how long an operation could have started, s: waiting for its predecessors does not count."""
    before = Operation.objects.filter(chassis=operation.chassis_id, drawer=operation.drawer_id)
    ended: datetime | None = before.aggregate(at=Max("finished_at"))["at"]
    since = operation.requested_at if ended is None else max(ended, operation.requested_at)
    return (timezone.now() - since).total_seconds()
