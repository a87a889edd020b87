"""Celery's faces of the fabric: each task calls one service."""

from __future__ import annotations

import os
import socket
import threading

from celery import shared_task

from fabric.services.execution import execute, next_after, waiting

# How often beat asks: whatever was not taken until then is asked for again.
RECOVER_SECONDS = 5.0


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"


@shared_task(name="fabric.run_operation")
def run_operation(operation_id: str) -> None:
    """Carry one operation out, unless somebody else does, and those that waited for its drawer meanwhile."""
    following: str | None = operation_id
    while following is not None:
        execute(following, worker=_worker())
        following = next_after(following)


@shared_task(name="fabric.recover_operations")
def recover_operations() -> None:
    """Have operations carried on whose worker died, or that no worker was told of."""
    for operation_id in waiting():
        run_operation.apply_async(args=(operation_id,), ignore_result=True, expires=RECOVER_SECONDS)
