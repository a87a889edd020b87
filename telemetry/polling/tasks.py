"""Celery's faces of polling, and what else a polling worker does by itself."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down

from telemetry.instrumentation.publisher import ensure_publishing
from telemetry.live import services
from telemetry.polling import poller


@shared_task(name="telemetry.keep_polling")
def ensure_polling() -> None:
    """Make sure that this worker polls."""
    poller.ensure_polling()


@shared_task(name="telemetry.note_activity")
def note_activity() -> None:
    """Note which held devices were used in the last minute."""
    services.record_device_activity()


@worker_ready.connect
def start_polling(**kwargs: Any) -> None:
    """Poll from the first moment, without waiting for the scheduler."""
    poller.ensure_polling()
    ensure_publishing("worker")


@worker_shutting_down.connect
def stop_polling(**kwargs: Any) -> None:
    """Give leases and sessions back when the worker is asked to end."""
    poller.stop_polling()
