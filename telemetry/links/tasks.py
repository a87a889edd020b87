"""Celery's faces of the room."""

from __future__ import annotations

from celery import shared_task

from telemetry.links.services import links_forget


@shared_task(name="links.forget")
def forget() -> None:
    """Remove the history of links that was kept long enough."""
    links_forget()
