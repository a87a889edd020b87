"""Celery tasks of the store: rollups and clean-up, by one worker at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import redis
from celery import shared_task
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import LockError
from redis.lock import Lock

from telemetry.store import renewal, services

logger = logging.getLogger(__name__)

LOCK_SECONDS = 60.0  # a worker that does not extend its lock for so long has died: another may start


@shared_task(name="telemetry.store.roll_up")
def roll_up() -> None:
    with _exclusive("rolling") as lock:
        if lock is not None:
            services.roll_up_all(before_each=lock.reacquire)


@shared_task(name="telemetry.store.clean")
def clean() -> None:
    with _exclusive("cleaning") as lock:
        if lock is not None:
            services.delete_expired(seconds=LOCK_SECONDS)


@shared_task(name="telemetry.store.check")
def check() -> None:
    renewal.databases_check()


@contextmanager
def _exclusive(what: str) -> Iterator[Lock | None]:
    """Lock during a task; yields None where another worker has the lock. The next run makes up for a failure."""
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client:
            left = cast("int", client.pttl(f"store:{what}"))
            if left == -1 or left > 1000 * LOCK_SECONDS:  # it is nobody's
                client.delete(f"store:{what}")
            lock = client.lock(f"store:{what}", timeout=LOCK_SECONDS, blocking=False)
            is_mine = lock.acquire()
            yield lock if is_mine else None
            if is_mine:
                lock.release()
    except LockError:
        # It expired during a long transaction: two workers do no harm, they only do the work twice.
        logger.info("%s took longer than its lock", what)
    except DatabaseError as error:
        logger.warning("%s of stored readings was aborted: %s", what, error)
