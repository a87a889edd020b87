"""Celery's faces of sweeps."""

from __future__ import annotations

import os
import socket
import threading

from celery import shared_task

from benchmarks.sweeps.tending import sweep_advance, sweeps_due

# How often beat asks: whatever was not taken until then is asked for again.
TEND_SECONDS = 2.0


@shared_task(name="sweeps.advance")
def advance(sweep_id: str) -> None:
    """Take a sweep one step further, unless somebody else does."""
    sweep_advance(sweep_id, worker=f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}")


@shared_task(name="sweeps.tend")
def tend() -> None:
    """Have those sweeps go on that have something to do."""
    for sweep_id in sweeps_due():
        advance.apply_async(args=(sweep_id,), ignore_result=True, expires=TEND_SECONDS)
