"""Celery tasks of links."""

from __future__ import annotations

from celery import shared_task

from telemetry.links.services import links_delete_old


@shared_task(name="links.forget")
def delete_old() -> None:
    links_delete_old()
