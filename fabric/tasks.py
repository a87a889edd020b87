"""Celery's faces of the fabric: each task calls one service."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down

from core.enqueue import enqueue, worker_name
from fabric.services.agents import answers_forget
from fabric.services.execution import execute, next_after, waiting
from fabric.services.hearing import begin_hearing, end_hearing
from fabric.services.jobs import plan_advance, plan_of, plans_waiting
from fabric.services.lease_clock import leases_tend

# How often beat asks: whatever was not taken until then is asked for again.
RECOVER_SECONDS = 5.0


@shared_task(name="fabric.run_operation")
def run_operation(operation_id: str) -> None:
    """Carry one operation out, unless somebody else does, and those that waited for its drawer meanwhile."""
    following: str | None = operation_id
    while following is not None:
        execute(following, worker=worker_name())
        if (plan_id := plan_of(following)) is not None:
            plan_advance(plan_id)
        following = next_after(following)


@shared_task(name="fabric.advance_plan")
def advance_plan(plan_id: str) -> None:
    """Let a plan go on that waits for its way on or back to be planned."""
    plan_advance(plan_id)


@shared_task(name="fabric.recover_operations")
def recover_operations() -> None:
    """Have operations and plans carried on whose worker died, or that no worker was told of."""
    for operation_id in waiting():
        enqueue("fabric.run_operation", operation_id, expires=RECOVER_SECONDS)
    for plan_id in plans_waiting():
        enqueue("fabric.advance_plan", plan_id, expires=RECOVER_SECONDS)


@shared_task(name="fabric.tend_leases")
def tend_leases() -> None:
    """Start, warn of and end leases that are due, and send what is to be written about them."""
    leases_tend()


@shared_task(name="fabric.forget_answers")
def forget_answers() -> None:
    """Delete answers of agents that nobody waits for any more."""
    answers_forget()


@worker_ready.connect
def hear_hosts(**kwargs: Any) -> None:
    """Hear the agents of hosts from the first moment."""
    begin_hearing()


@worker_shutting_down.connect
def hear_no_more(**kwargs: Any) -> None:
    """Leave what hosts say to other workers."""
    end_hearing()
