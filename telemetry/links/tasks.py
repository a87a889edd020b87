"""Celery tasks of links."""

from __future__ import annotations

from celery import shared_task

from telemetry.links.services import links_delete_old


@shared_task(name="links.forget")
def delete_old() -> None:
    """Delete the history of links past its retention."""
    links_delete_old()
