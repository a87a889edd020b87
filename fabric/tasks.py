"""Celery tasks of the fabric: each calls one service."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down

from core.enqueue import enqueue, worker_name
from core.failpoints import failpoint
from fabric.agents.inbox import start_inbox, stop_inbox
from fabric.agents.services import answers_delete_expired
from fabric.execution.claims import OperationClaim
from fabric.execution.lanes import OperationLane, warm_lanes
from fabric.execution.services import carry_out, ended_operation, next_operation, runnable_operations
from fabric.failures.services import failures_process
from fabric.leases.lifecycle import leases_process
from fabric.plans.jobs import idle_plans, plan_advance, plan_without_steps


@shared_task(name="fabric.run_operation")
def run_operation(operation_id: str) -> None:
    """Run one operation, unless another worker does, and those that waited for its drawer meanwhile."""
    following: str | None = operation_id
    worker = worker_name()
    with ExitStack() as kept:
        lane: OperationLane | None = None
        while following is not None:
            if (claim := OperationClaim.take(following, worker)) is not None:
                lane = lane or kept.enter_context(warm_lanes.lane(claim.operation.chassis_id))
                carry_out(lane, claim)
            failpoint("operation.next")
            ended = claim.operation if claim is not None and claim.has_ended else ended_operation(following)
            if ended is None:
                return
            waiting = next_operation(ended)
            is_same_plan = waiting is not None and waiting.plan_id == ended.plan_id  # which goes on with it
            if not is_same_plan and (plan_id := plan_without_steps(ended)) is not None:
                if lane is not None:
                    lane.catch_up()
                # Reading the hardware for a rollback may take long.
                plan_advance(plan_id, before_reading=None if lane is None else lane.end_session)
                waiting = next_operation(ended)
            following = None if waiting is None else str(waiting.pk)


@shared_task(name="fabric.advance_plan")
def advance_plan(plan_id: str) -> None:
    """Advance a plan whose resume or rollback is to be planned."""
    plan_advance(plan_id)


@shared_task(name="fabric.recover_operations")
def recover_operations() -> None:
    """Continue operations and plans whose worker died, or that no worker was notified of."""
    for operation_id in runnable_operations():
        enqueue("fabric.run_operation", operation_id)
    for plan_id in idle_plans():
        enqueue("fabric.advance_plan", plan_id)


@shared_task(name="fabric.tend_leases")
def tend_leases() -> None:
    """Start, warn of and end due leases, and send their e-mails."""
    leases_process()


@shared_task(name="fabric.tend_failures")
def tend_failures() -> None:
    """Propose or begin replacements of failed devices, and conclude those that have ended."""
    failures_process()


@shared_task(name="fabric.forget_answers")
def forget_answers() -> None:
    """Delete answers of agents that no requester waits for any more."""
    answers_delete_expired()


@worker_ready.connect
def keep_lanes(**kwargs: Any) -> None:
    """Keep sessions with BMCs for operations that follow soon."""
    warm_lanes.open()


@worker_shutting_down.connect
def close_lanes(**kwargs: Any) -> None:
    """End the sessions that are kept."""
    warm_lanes.close()


@worker_ready.connect
def start_agent_inbox(**kwargs: Any) -> None:
    """Start reading the messages of agents when the worker is ready."""
    start_inbox()


@worker_shutting_down.connect
def stop_agent_inbox(**kwargs: Any) -> None:
    """Stop reading the messages of agents: other workers take over."""
    stop_inbox()
