"""Celery tasks of polling, and the signal handlers of polling workers."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down

from telemetry.instrumentation.publisher import ensure_publishing
from telemetry.live import services
from telemetry.polling import poller


@shared_task(name="telemetry.note_activity")
def note_activity() -> None:
    services.record_device_activity()


@worker_ready.connect
def start_polling(**kwargs: Any) -> None:
    """Start polling, which goes on until the worker shuts down."""
    poller.start_polling()
    ensure_publishing("worker")


@worker_shutting_down.connect
def stop_polling(**kwargs: Any) -> None:
    """Release claims and sessions when the worker shuts down."""
    poller.stop_polling()
