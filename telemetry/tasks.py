"""Celery's faces of telemetry."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down

from telemetry import activity
from telemetry.pipeline.publishing import keep_publishing
from telemetry.polling import poller


@shared_task(name="telemetry.keep_polling")
def keep_polling() -> None:
    """Make sure that this worker polls."""
    poller.keep_polling()


@shared_task(name="telemetry.note_activity")
def note_activity() -> None:
    """Note which held devices were used in the last minute."""
    activity.note_activity()


@worker_ready.connect
def start_polling(**kwargs: Any) -> None:
    """Poll from the first moment, without waiting for the scheduler."""
    poller.keep_polling()
    keep_publishing("worker")


@worker_shutting_down.connect
def stop_polling(**kwargs: Any) -> None:
    """Give leases and sessions back when the worker is asked to end."""
    poller.stop_polling()
