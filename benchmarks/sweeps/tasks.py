"""Celery's faces of sweeps."""

from __future__ import annotations

from celery import shared_task

from benchmarks.sweeps.scheduler import sweep_advance, sweeps_due
from core.enqueue import enqueue, worker_name

# How often beat asks: whatever was not taken until then is asked for again.
SCHEDULE_SECONDS = 2.0


@shared_task(name="sweeps.advance")
def advance(sweep_id: str) -> None:
    """Take a sweep one step further, unless somebody else does."""
    sweep_advance(sweep_id, worker=worker_name())


@shared_task(name="sweeps.tend")
def schedule() -> None:
    """Have those sweeps go on that have something to do."""
    for sweep_id in sweeps_due():
        enqueue("sweeps.advance", sweep_id, expires=SCHEDULE_SECONDS)
