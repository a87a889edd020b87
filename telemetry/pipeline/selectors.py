"""Reading the pipeline's own health: what its processes publish, and what Redis and the databases hold."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from falconweb.errors import Unavailable
from telemetry.pipeline.publishing import COUNTS, EXPIRY_SECONDS, PROCESSES, SEEN, SINCE
from telemetry.pipeline.tally import Name
from telemetry.store.keeping import TierSize, store_size

RECENT_MINUTES = 10


@dataclass(frozen=True)
class Process:
    """A process that was heard: `kind` is worker or web, times are Unix s, `gauges` end with their units."""

    name: str
    kind: str
    began: float
    heard_at: float
    gauges: Mapping[str, float]

    @property
    def begun(self) -> datetime:
        """When it began to publish."""
        return datetime.fromtimestamp(self.began, UTC)

    @property
    def heard(self) -> datetime:
        """When it was heard last."""
        return datetime.fromtimestamp(self.heard_at, UTC)

    @property
    def host(self) -> str:
        """The machine it runs on."""
        return self.name.partition("@")[2].rpartition(":")[0]

    @property
    def pid(self) -> int:
        """Its number there."""
        return int(self.name.rpartition(":")[2] or 0)


@dataclass(frozen=True)
class Counted:
    """How often something happened: since `Pipeline.since`, in the last minutes, and when last (Unix s, 0 unknown)."""

    total: int
    recent: int = 0
    seen_at: float = 0.0

    @property
    def seen(self) -> datetime | None:
        """When it happened last; None where nobody knows."""
        return datetime.fromtimestamp(self.seen_at, UTC) if self.seen_at else None


@dataclass(frozen=True)
class Pipeline:
    """What the processes of the site publish, as it is at `at` (Unix s); `seconds` is how long `recent` counts go back.

    `notes` are the newest values of each chassis, `followed_by` says which process follows it.
    """

    at: float
    since: float
    seconds: float
    processes: tuple[Process, ...]
    counts: Mapping[Name, Counted]
    notes: Mapping[int, Mapping[str, float]]
    followed_by: Mapping[int, str]
    queue: int
    redis_bytes: int
    redis_most_bytes: int  # 0: without a limit

    @property
    def begun(self) -> datetime:
        """Since when it is counted."""
        return datetime.fromtimestamp(self.since, UTC)

    def of(self, kind: str) -> tuple[Process, ...]:
        """Return the processes of a kind."""
        return tuple(one for one in self.processes if one.kind == kind)

    def count(self, name: str, chassis: int | None = None) -> Counted:
        """Return how often something happened."""
        return self.counts.get((name, chassis), Counted(0))


@dataclass(frozen=True)
class Sizes:
    """What the databases and the disk hold, in bytes; None where that cannot be told just now."""

    database: int | None
    readings: int | None
    disk_free: int | None
    disk: int | None
    tiers: tuple[TierSize, ...] = ()  # of the readings


def pipeline_now() -> Pipeline:
    """Return what the processes publish; raises Unavailable without Redis."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=3.0, socket_connect_timeout=3.0)
    try:
        return _pipeline(client, time.time())
    except (redis.RedisError, OSError) as error:
        raise Unavailable("The pipeline's health cannot be read just now: Redis does not answer.") from error
    finally:
        client.close()


def _pipeline(client: Any, now: float) -> Pipeline:
    names = [name.decode() for name in client.zrangebyscore(PROCESSES, now - EXPIRY_SECONDS, "+inf")]
    minute = int(now // 60)
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.get(f"pipeline:{name}")
    for back in range(RECENT_MINUTES + 1):
        pipe.hgetall(f"{COUNTS}:{minute - back}")
    pipe.hgetall(COUNTS).hgetall(SEEN).get(SINCE).llen(settings.CELERY_TASK_DEFAULT_QUEUE).info("memory")
    answers = pipe.execute()
    told = [json.loads(raw) for raw in answers[: len(names)] if raw]
    recent: dict[bytes, int] = {}
    # Of the oldest minute, which has begun before the ten, the part that lies within them is taken to be even.
    for back, hash_ in enumerate(answers[len(names) : -5]):
        share = 1.0 if back < RECENT_MINUTES else 1.0 - now % 60 / 60
        for key, n in hash_.items():
            recent[key] = recent.get(key, 0) + round(int(n) * share)
    totals, seen, since, queue, memory = answers[-5:]
    counts = {
        _name_of(key): Counted(int(n), recent.get(key, 0), float(seen.get(key, 0.0))) for key, n in totals.items()
    }
    processes = [Process(one["process"], one["kind"], one["began"], one["at"], one["gauges"]) for one in told]
    began = float(since) if since else now
    return Pipeline(
        at=now,
        since=began,
        seconds=min(RECENT_MINUTES * 60.0, max(now - began, 1.0)),
        processes=tuple(sorted(processes, key=lambda one: (one.kind, one.name))),
        counts=counts,
        notes={int(pk): notes for one in told for pk, notes in one["chassis"].items()},
        followed_by={int(pk): one["process"] for one in told for pk in one["chassis"]},
        queue=int(queue),
        redis_bytes=int(memory.get("used_memory", 0)),
        redis_most_bytes=int(memory.get("maxmemory", 0)),
    )


def _name_of(key: bytes) -> Name:
    name, _, chassis = key.decode().partition("/")
    return name, int(chassis) if chassis else None


def sizes() -> Sizes:
    """Return what databases and disk hold."""
    free, whole = _disk(Path(settings.CONFIG.data))
    try:
        store = store_size()
    except (DatabaseError, redis.RedisError, OSError):
        store = None
    return Sizes(
        database=_database_bytes(),
        readings=store.on_disk if store else None,
        disk_free=free,
        disk=whole,
        tiers=store.tiers if store else (),
    )


def _disk(folder: Path) -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None, None
    return usage.free, usage.total


def _database_bytes() -> int | None:
    """Return how large the site's own database is, its journal included."""
    if connection.vendor == "sqlite":
        name = str(connection.settings_dict["NAME"])
        try:
            journal = Path(f"{name}-wal")
            return Path(name).stat().st_size + (journal.stat().st_size if journal.exists() else 0)
        except OSError:
            return None
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    except DatabaseError:
        return None
