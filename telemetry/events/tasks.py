"""Celery tasks of events."""

from __future__ import annotations

from celery import shared_task

from telemetry.events.receivers import events_catch_up
from telemetry.events.services import events_delete_old


@shared_task(name="events.catch_up")
def catch_up() -> None:
    events_catch_up()


@shared_task(name="events.forget")
def delete_old() -> None:
    events_delete_old()
