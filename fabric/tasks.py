"""Celery's faces of the fabric: each task calls one service."""

from __future__ import annotations

import os
import socket
import threading

from celery import shared_task

from fabric.services.execution import execute, waiting


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"


@shared_task(name="fabric.run_operation")
def run_operation(operation_id: str) -> None:
    """Carry one operation out, unless somebody else does."""
    execute(operation_id, worker=_worker())


@shared_task(name="fabric.recover_operations")
def recover_operations() -> None:
    """Carry on with operations whose worker died, or that no worker was told of."""
    for operation_id in waiting():
        execute(operation_id, worker=_worker())
