"""Celery tasks of alerts: each calls one service."""

from __future__ import annotations

from celery import shared_task

from telemetry.alerts.conditions import conditions_check
from telemetry.alerts.notifications import deliveries_delete_old, deliveries_send, notifications_gather
from telemetry.alerts.services import unread_chassis_check


@shared_task(name="alerts.notify")
def notify() -> None:
    notifications_gather()
    deliveries_send()


@shared_task(name="alerts.watch_chassis")
def watch_chassis() -> None:
    unread_chassis_check()
    conditions_check()


@shared_task(name="alerts.forget")
def delete_old() -> None:
    deliveries_delete_old()
