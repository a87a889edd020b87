"""Celery's faces of alerts: each task calls one service."""

from __future__ import annotations

from celery import shared_task

from telemetry.alerts.notifications import deliveries_delete_old, deliveries_send, notifications_gather
from telemetry.alerts.services import unread_chassis_check


@shared_task(name="alerts.notify")
def notify() -> None:
    """Gather what is to be told, and send what is due."""
    notifications_gather()
    deliveries_send()


@shared_task(name="alerts.watch_chassis")
def watch_chassis() -> None:
    """Raise alerts of chassis that nobody reads."""
    unread_chassis_check()


@shared_task(name="alerts.forget")
def delete_old() -> None:
    """Delete deliveries and alerts of long ago."""
    deliveries_delete_old()
