"""Execution of operations: claimed by one worker, ended despite crashes, done only after a read-back."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial

from django.utils import timezone

from accounts.audit.context import log_context
from core.database import DATABASE_UNAVAILABLE, single
from core.errors import FalconWebError
from core.failpoints import failpoint
from core.language import gettext_noop
from core.threads import run_in_thread
from fabric.bmc.client import REQUEST_SECONDS
from fabric.bmc.firmware import PUSH_SECONDS
from fabric.execution.claims import OperationCancelledError, OperationClaim
from fabric.execution.firmware_steps import UPDATE_SECONDS, VERSION_SECONDS
from fabric.execution.host_claims import host_claims_release
from fabric.execution.lanes import OperationLane, warm_lanes
from fabric.execution.log_steps import LOGS_SECONDS
from fabric.execution.part_steps import RESET_SECONDS
from fabric.execution.proof import proof_end, proof_mark_unread
from fabric.execution.steps import read_back, read_back_sentence, restore_on_host, run_steps
from fabric.inventory.labels import redact_address
from fabric.operations.models import Operation
from fabric.operations.rules import CABLE_SECONDS
from fabric.operations.selectors import queue_head

logger = logging.getLogger(__name__)

READ_BACK_SECONDS = 45.0  # after a failure
OPERATION_SECONDS = 180.0  # a worker's time for an operation
PICKUP_SECONDS = 3  # time for a worker to take a new operation from the queue


def runnable_operations() -> list[str]:
    """Return the ids of open operations that are due, and that no worker has claimed."""
    now = timezone.now()
    heads: dict[tuple[int, int | None, bool], Operation] = {}
    # Queried every few seconds, for all of them: their steps are not needed.
    needed = (
        Operation.objects.open()
        .in_turn_to_run()
        .only("chassis", "drawer", "kind", "lease_until", "requested_at", "attempts")
    )
    for operation in needed:
        place = (operation.chassis_id, operation.drawer_id, operation.kind in Operation.READING)
        heads.setdefault(place, operation)
    return [
        str(operation.pk)
        for operation in heads.values()
        # A clock that was set back must not delay one.
        if operation.lease_until is None
        and (operation.attempts or not timedelta() <= now - operation.requested_at <= timedelta(seconds=PICKUP_SECONDS))
    ]


def ended_operation(operation_id: str) -> Operation | None:
    """Return what `next_operation` needs of an operation; None while it runs, or where it is gone."""
    ended = single(Operation.objects.only("state", "kind", "chassis", "drawer", "plan").filter(pk=operation_id))
    return None if ended is None or ended.is_open else ended


def next_operation(ended: Operation) -> Operation | None:
    """Return the operation that waited for the end of this one, with its id and plan; None for none."""
    first = queue_head(ended)
    return None if first is None or first.lease_until is not None else first


def execute(operation_id: str, *, worker: str) -> None:
    """Claim an operation and run it to its end.

    Does nothing where it has ended, another worker has claimed it, or an older operation of the same drawer has not
    ended: it is executed after that one (`next_operation`).
    """
    if (claim := OperationClaim.take(operation_id, worker)) is not None:
        with warm_lanes.lane(claim.operation.chassis_id) as lane:
            carry_out(lane, claim)


def carry_out(lane: OperationLane, claim: OperationClaim) -> None:
    """Run a claimed operation to its end."""
    with log_context(chassis_id=claim.operation.chassis_id, operation_id=str(claim.operation.pk)):
        lane.run(partial(run_claimed, lane, claim))


async def run_claimed(lane: OperationLane, claim: OperationClaim) -> None:
    """Run a claimed operation to its end, in the loop of the lane."""
    lane.claim = claim
    await _OperationRun(lane, claim).run()


class _OperationRun:
    """One worker's execution of an operation, from the claim to the end."""

    def __init__(self, lane: OperationLane, claim: OperationClaim) -> None:
        self.lane = lane
        self.claim = claim
        self.operation = claim.operation

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
            await self.claim.close()

    async def _work(self) -> None:
        operation = self.operation
        try:
            if operation.attempts > 1:
                await run_in_thread(host_claims_release, operation)
            if self.claim.obstacle:
                await self._finish(self.claim.obstacle)
                return
            self.claim.announce_begin()
            failpoint("operation.begun")
            async with asyncio.timeout(_seconds_of(operation)), self.lane.bmc(operation.chassis) as bmc:
                await run_steps(self.claim, bmc)
            await self.claim.end_meanwhile()  # an error of it is one of the operation
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
            await self._finish(gettext_noop("An error of the site stopped it; see the log of the worker."))
        else:
            await self._finish("", state=Operation.State.DONE)

    async def _finish(self, error: str, state: Operation.State = Operation.State.FAILED) -> None:
        if state != Operation.State.DONE:
            error = redact_address(error, self.operation.chassis)
            self.claim.close_steps(await self._read_back_after_failure())
        await self.claim.end(state, error)
        await self.lane.put_off(self.claim.announce_end)

    async def _read_back_after_failure(self) -> str:
        """Read the hardware into the database after a failure and return the result as a sentence.

        An unreachable BMC is read by the next poll: then ''.
        """
        chassis = self.operation.chassis
        try:
            async with asyncio.timeout(READ_BACK_SECONDS), self.lane.bmc(chassis, REQUEST_SECONDS / 2) as bmc:
                found = await read_back(self.claim, bmc)
                await proof_end(self.claim, bmc)
            await self.claim.end_meanwhile()
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


def _seconds_of(operation: Operation) -> float:
    """Return the timeout of an operation, s: for a cable, including the time for a person to move it."""
    more = {
        Operation.Kind.CABLE: CABLE_SECONDS,
        Operation.Kind.RESET: RESET_SECONDS,
        Operation.Kind.LOGS: LOGS_SECONDS,
        Operation.Kind.FIRMWARE: PUSH_SECONDS + UPDATE_SECONDS + VERSION_SECONDS,
    }
    return OPERATION_SECONDS + more.get(Operation.Kind(operation.kind), 0.0)
