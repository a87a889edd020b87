"""Celery's faces of exports."""

from __future__ import annotations

from celery import shared_task

from core.enqueue import enqueue, worker_name
from telemetry.exports.execution import exports_begin_due, exports_delete_expired, run_continue

# How often beat asks: whatever was not taken until then is asked for again.
TEND_SECONDS = 2.0


@shared_task(name="exports.run")
def run(run_id: int) -> None:
    """Take a run of an export further, unless somebody else does."""
    if run_continue(run_id, worker=worker_name()):
        enqueue("exports.run", run_id)


@shared_task(name="exports.tend")
def begin_due() -> None:
    """Begin exports that are due, and have those go on that no worker is at."""
    for run_id in exports_begin_due():
        enqueue("exports.run", run_id, expires=TEND_SECONDS)


@shared_task(name="exports.tidy")
def delete_expired() -> None:
    """Delete exported files that are over their time."""
    exports_delete_expired()
