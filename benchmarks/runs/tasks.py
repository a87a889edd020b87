"""Celery's faces of runs: each task calls one service."""

from __future__ import annotations

from celery import shared_task

from benchmarks.runs.strays import strays_end
from benchmarks.runs.tending import run_go_on, runs_tend
from core.enqueue import enqueue, worker_name

# How often beat asks: whatever was not taken until then is asked for again.
TEND_SECONDS = 1.0


@shared_task(name="runs.tend")
def tend() -> None:
    """Begin runs whose turn it is, and have each go on that no worker is at."""
    for run_id in runs_tend():
        enqueue("runs.go_on", run_id, expires=2 * TEND_SECONDS)


@shared_task(name="runs.go_on")
def go_on(run_id: str) -> None:
    """Take a run further, unless somebody else does."""
    run_go_on(run_id, worker=worker_name())


@shared_task(name="runs.end_strays")
def end_strays() -> None:
    """End what hosts still run of runs that have ended here."""
    strays_end()
