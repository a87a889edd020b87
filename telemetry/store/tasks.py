"""Celery tasks of the store: rollups and clean-up, by one worker at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from celery import shared_task
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import LockError
from redis.lock import Lock

from telemetry.store import services

logger = logging.getLogger(__name__)

LOCK_SECONDS = 60.0  # a worker that does not extend its lock for so long has died: another may start


@shared_task(name="telemetry.store.roll_up")
def roll_up() -> None:
    """Make the rollups that are due."""
    with _exclusive("rolling") as lock:
        if lock is not None:
            services.roll_up_all(breath=lambda: _extend_lock(lock))


@shared_task(name="telemetry.store.clean")
def clean() -> None:
    """Delete rows past their retention."""
    with _exclusive("cleaning") as lock:
        if lock is not None:
            services.delete_expired(seconds=LOCK_SECONDS)


def _extend_lock(lock: Lock) -> None:
    lock.reacquire()


@contextmanager
def _exclusive(what: str) -> Iterator[Lock | None]:
    """Hold a lock during a task; yields None where another worker holds it. The next run makes up for a failure."""
    client = redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS)
    lock = client.lock(f"store:{what}", timeout=LOCK_SECONDS, blocking=False)
    try:
        is_mine = lock.acquire()
        yield lock if is_mine else None
        if is_mine:
            lock.release()
    except LockError:
        # It expired during a long transaction: two workers do no harm, they only do the work twice.
        logger.info("%s took longer than its lock", what)
    except DatabaseError as error:
        logger.warning("%s of stored readings was aborted: %s", what, error)
    finally:
        client.close()
