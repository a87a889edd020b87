"""Celery tasks of sweeps."""

from __future__ import annotations

from celery import shared_task

from benchmarks.sweeps.scheduler import sweep_advance, sweeps_due
from core.enqueue import enqueue, worker_name


@shared_task(name="sweeps.advance")
def advance(sweep_id: str) -> None:
    """Advance a sweep by one step, unless another worker has claimed it."""
    sweep_advance(sweep_id, worker=worker_name())


@shared_task(name="sweeps.tend")
def schedule() -> None:
    """Enqueue a step of each unclaimed sweep with pending work."""
    for sweep_id in sweeps_due():
        enqueue("sweeps.advance", sweep_id)
