"""Celery tasks of runs: each calls one service."""

from __future__ import annotations

from celery import shared_task

from benchmarks.runs.execution import orphaned_runs_end
from benchmarks.runs.scheduler import run_advance, runs_schedule
from core.enqueue import enqueue, worker_name


@shared_task(name="runs.tend")
def schedule() -> None:
    """Start the queued runs that are due, and enqueue the next step of each unclaimed run."""
    for run_id in runs_schedule():
        enqueue("runs.go_on", run_id)


@shared_task(name="runs.go_on")
def advance(run_id: str) -> None:
    """Advance a run, unless another worker has claimed it."""
    run_advance(run_id, worker=worker_name())


@shared_task(name="runs.end_strays")
def end_orphaned_runs() -> None:
    """Stop orphaned runs on hosts."""
    orphaned_runs_end()
