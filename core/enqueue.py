"""Celery tasks, enqueued by name: a service need not import the task that calls it."""

from __future__ import annotations

import os
import socket
import threading

from celery import current_app


def enqueue(task: str, *arguments: int | str, queue: str | None = None) -> None:
    """Send a task to the workers.

    Raises kombu's OperationalError, or OSError, immediately where the broker is unreachable. Where beat enqueues the
    task again anyway, call this in `transaction.on_commit(..., robust=True)`: a failure then loses nothing.
    """
    current_app.send_task(task, args=arguments, retry=False, ignore_result=True, queue=queue)


def worker_name() -> str:
    """Return the name under which this thread claims rows: host, process and thread."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
