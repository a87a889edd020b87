"""Celery's faces of alerts: each task calls one service."""

from __future__ import annotations

from celery import shared_task

from telemetry.alerts.services.absence import chassis_watch
from telemetry.alerts.services.delivering import deliveries_forget, deliveries_send
from telemetry.alerts.services.gathering import notifications_gather


@shared_task(name="alerts.notify")
def notify() -> None:
    """Gather what is to be told, and send what is due."""
    notifications_gather()
    deliveries_send()


@shared_task(name="alerts.watch_chassis")
def watch_chassis() -> None:
    """Raise alerts of chassis that nobody reads."""
    chassis_watch()


@shared_task(name="alerts.forget")
def forget() -> None:
    """Delete deliveries and alerts of long ago."""
    deliveries_forget()
