"""Celery tasks of exports."""

from __future__ import annotations

from celery import shared_task

from core.enqueue import enqueue, worker_name
from telemetry.exports.audit_entries import audit_entries_add
from telemetry.exports.execution import exports_begin_due, exports_delete_expired, run_continue


@shared_task(name="exports.run")
def run(run_id: int) -> None:
    """Continue a run of an export, unless another worker does."""
    if run_continue(run_id, worker=worker_name()):
        enqueue("exports.run", run_id)


@shared_task(name="exports.tend")
def begin_due() -> None:
    """Start due exports, and continue runs without a worker; then add what the audit log has for the next time."""
    for run_id in exports_begin_due():
        enqueue("exports.run", run_id)
    audit_entries_add()


@shared_task(name="exports.tidy")
def delete_expired() -> None:
    exports_delete_expired()
