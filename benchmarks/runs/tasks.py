"""Celery's faces of runs: each task calls one service."""

from __future__ import annotations

from celery import shared_task

from benchmarks.runs.execution import orphaned_runs_end
from benchmarks.runs.scheduler import run_advance, runs_schedule
from core.enqueue import enqueue, worker_name

# How often beat asks: whatever was not taken until then is asked for again.
SCHEDULE_SECONDS = 1.0


@shared_task(name="runs.tend")
def schedule() -> None:
    """Begin runs whose turn it is, and have each go on that no worker is at."""
    for run_id in runs_schedule():
        enqueue("runs.go_on", run_id, expires=2 * SCHEDULE_SECONDS)


@shared_task(name="runs.go_on")
def advance(run_id: str) -> None:
    """Take a run further, unless somebody else does."""
    run_advance(run_id, worker=worker_name())


@shared_task(name="runs.end_strays")
def end_orphaned_runs() -> None:
    """End what hosts still run of runs that have ended here."""
    orphaned_runs_end()
