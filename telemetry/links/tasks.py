"""Celery's faces of the room."""

from __future__ import annotations

from celery import shared_task

from telemetry.links.services import links_delete_old


@shared_task(name="links.forget")
def delete_old() -> None:
    """Remove the history of links that was kept long enough."""
    links_delete_old()
