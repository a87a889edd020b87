"""Reads the pipeline's own health: the published state of its processes, and the sizes of Redis and the databases."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Count, Min, QuerySet
from django.utils import timezone

from accounts.access import require_administrator
from accounts.models import User
from core.database import natural
from core.errors import Unavailable
from core.language import _, gettext_noop
from core.sqlite_damage import files_set_aside, known_damage
from fabric.agents.models import HostAgent
from fabric.inventory.models import Chassis
from telemetry.alerts.conditions import PresentCondition
from telemetry.alerts.models import Delivery
from telemetry.exports.models import ExportRun
from telemetry.instrumentation.metrics import PROBLEMS, MetricKey, ProblemDescription
from telemetry.instrumentation.publisher import COUNTS_KEY, EXPIRY_SECONDS, PROCESSES_KEY, SEEN_KEY, SINCE_KEY
from telemetry.pipeline import rules
from telemetry.store.renewal import database_file
from telemetry.store.services import sqlite_bytes, store_size

logger = logging.getLogger(__name__)
RECENT_MINUTES = 10
COUNTER_FIELD = re.compile(rb"(\w{1,100})(?:/(\d{1,18}))?")
MAX_NUMBER = 1e11  # of a counter, and of a Unix time in s
_UnixTime = Annotated[float, msgspec.Meta(ge=0, lt=MAX_NUMBER)]
AGENT_SHOWN = timedelta(days=1)  # after its last report: a host that is off for longer is meant to be


def pipeline_snapshot() -> rules.PipelineSnapshot:
    """Return the published state of all processes; raises Unavailable without Redis."""
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client:
            return _read_snapshot(client, time.time())
    except (redis.RedisError, OSError) as error:
        raise Unavailable(_("The pipeline's health is not available now: Redis does not answer.")) from error


def _read_snapshot(client: Any, now: float) -> rules.PipelineSnapshot:
    names = [
        name.decode(errors="replace") for name in client.zrangebyscore(PROCESSES_KEY, now - EXPIRY_SECONDS, "+inf")
    ]
    minute = int(now // 60)
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.get(f"pipeline:{name}")
    for back in range(RECENT_MINUTES + 1):
        pipe.hgetall(f"{COUNTS_KEY}:{minute - back}")
    pipe.hgetall(COUNTS_KEY).hgetall(SEEN_KEY).get(SINCE_KEY).llen(settings.CELERY_TASK_DEFAULT_QUEUE).info()
    results = pipe.execute(raise_on_error=False)
    states = [one for raw in results[: len(names)] if (one := _stored_process(raw)) is not None]
    recent: Counter[MetricKey] = Counter()
    # The oldest minute is only partly within the ten: its counts are assumed to be evenly distributed.
    for back, hash_ in enumerate(results[len(names) : -5]):
        share = 1.0 if back < RECENT_MINUTES else 1.0 - now % 60 / 60
        for key, n in _stored_numbers(hash_).items():
            recent[key] += round(n * share)
    totals, seen, since, queue, server = results[-5:]
    seen_at = _stored_numbers(seen)
    processes = [
        rules.PublishingProcess(
            one.process, one.kind, _to_datetime(one.began), _to_datetime(one.at), one.gauges, len(one.chassis)
        )
        for one in states
    ]  # fmt: skip
    began = _stored_number(since, now)
    processes.append(_broker(server, now))
    return rules.PipelineSnapshot(
        at=_to_datetime(now),
        since=_to_datetime(began),
        seconds=min(RECENT_MINUTES * 60.0, max(now - began, 1.0)),
        processes=tuple(sorted(processes, key=lambda one: (one.kind, one.name))),
        counts={
            key: rules.CounterValue(int(n), recent[key], _to_datetime(seen_at[key]) if key in seen_at else None)
            for key, n in _stored_numbers(totals).items()
        },
        gauges={pk: gauges for one in states for pk, gauges in one.chassis.items()},
        polled_by={pk: one.process for one in states for pk in one.chassis},
        queue=queue if isinstance(queue, int) else 0,
        redis_bytes=int(server.get("used_memory", 0)),
        redis_max_bytes=int(server.get("maxmemory", 0)),
    )


def _broker(server: dict[str, Any], now: float) -> rules.PublishingProcess:
    """Return Redis itself, which answers now."""
    gauges = {"memory_bytes": float(server.get("used_memory_rss", 0))}
    gauges["cpu_seconds"] = float(server.get("used_cpu_user", 0)) + float(server.get("used_cpu_sys", 0))
    name = f"broker@{urlsplit(settings.REDIS_URL).hostname}:{server.get('process_id', 0)}"
    started = _to_datetime(now - float(server.get("uptime_in_seconds", 0)))
    return rules.PublishingProcess(name, "broker", started, _to_datetime(now), gauges)


def agents_heard() -> tuple[rules.PublishingProcess, ...]:
    """Return the agents of hosts that reported within a day; their reports are their heartbeats."""
    rows = HostAgent.objects.filter(reported_at__gte=timezone.now() - AGENT_SHOWN).order_by("host__name", "pk")
    return tuple(
        rules.PublishingProcess(f"agent@{host}:0", "agent", _to_datetime(started), reported_at, {})
        for host, started, reported_at in rows.values_list("host__name", "started", "reported_at")
        if reported_at is not None
    )


class _StoredProcess(msgspec.Struct):
    """The state of a process as telemetry.instrumentation.publisher writes it."""

    process: str
    kind: str
    began: _UnixTime
    at: _UnixTime
    gauges: dict[str, float]
    chassis: dict[int, dict[str, float]]


_process_decoder = msgspec.json.Decoder(_StoredProcess)


def _stored_process(raw: object) -> _StoredProcess | None:
    """Return a state that Redis had; None where it had none, or something else."""
    try:
        return _process_decoder.decode(raw) if isinstance(raw, bytes) else None
    except (msgspec.DecodeError, RecursionError) as error:
        logger.warning("the state of a process is refused: %s", error)
        return None


def _stored_numbers(found: object) -> dict[MetricKey, float]:
    """Return the numbers of a hash of counters, without what is none."""
    numbers: dict[MetricKey, float] = {}
    for field, raw in found.items() if isinstance(found, dict) else ():
        name = COUNTER_FIELD.fullmatch(field)
        number = _stored_number(raw, -1.0)
        if name is not None and number >= 0:
            numbers[name[1].decode(), int(name[2]) if name[2] else None] = number
    return numbers


def _stored_number(raw: object, otherwise: float) -> float:
    try:
        number = float(raw) if isinstance(raw, bytes) else otherwise
    except ValueError:
        return otherwise
    return number if 0 <= number < MAX_NUMBER else otherwise


def _to_datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def late_stores() -> Iterator[PresentCondition]:
    """Yield that readings wait too long to be stored, of the process where they wait longest."""
    longest = max(pipeline_snapshot().processes, key=lambda one: one.gauges.get("store_lag_seconds", 0.0), default=None)
    waits = longest.gauges.get("store_lag_seconds", 0.0) if longest is not None else 0.0
    # An alert goes on until they wait half as long.
    if longest is not None and waits > rules.STORE_LAG_SECONDS / 2:
        yield PresentCondition(
            key="store", is_met=waits > rules.STORE_LAG_SECONDS, value=waits, unit="s",
            quantity=gettext_noop("Oldest readings"), note=longest.label,
            threshold=f"waiting for more than {rules.STORE_LAG_SECONDS:.0f} s",
        )  # fmt: skip


def filling_disks() -> Iterator[PresentCondition]:
    """Yield that the disk with the site's data has little space."""
    disk = shutil.disk_usage(settings.CONFIG.data)
    least = rules.least_space(disk.total)
    # An alert goes on until there is a fifth more.
    if disk.free < 1.2 * least:
        yield PresentCondition(
            key="disk", is_met=disk.free < least, value=disk.free / 2**30, unit="GB",
            quantity=gettext_noop("Free space"), threshold=f"below {least / 2**30:.1f} GB",
        )  # fmt: skip


def storage_sizes() -> rules.StorageSizes:
    try:
        disk = shutil.disk_usage(settings.CONFIG.data)
    except OSError:
        disk = None
    try:
        store = store_size()
    except (DatabaseError, redis.RedisError, OSError):
        store = None
    own, readings = database_file("default"), database_file(settings.READINGS_DATABASE)
    return rules.StorageSizes(
        database=_database_bytes(),
        readings=store.on_disk if store else None,
        disk_free=disk.free if disk else None,
        disk=disk.total if disk else None,
        tiers=store.tiers if store else (),
        damage=known_damage(own) if own is not None else "",
        set_aside=", ".join(file.name for file in files_set_aside(readings)[:1]) if readings is not None else "",
    )


def _database_bytes() -> int | None:
    """Return the size of the site's own database in bytes, its journal included."""
    try:
        if connection.vendor == "sqlite":
            return sqlite_bytes(connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    except (OSError, DatabaseError):
        return None


def undelivered_now() -> list[rules.Undelivered]:
    """Return the undelivered items of alerts and exports; exports count while their receiver fails."""
    failing = ExportRun.objects.open().filter(failing_since__isnull=False)
    return [
        _undelivered(gettext_noop("notifications"), Delivery.objects.waiting(), "made_at", "/alerts/"),
        _undelivered(gettext_noop("exports"), failing, "failing_since", "/exports/"),
    ]


def _undelivered(what: str, rows: QuerySet[Any], since: str, link: str) -> rules.Undelivered:
    found = rows.order_by().aggregate(count=Count("pk"), oldest=Min(since))
    return rules.Undelivered(what, found["count"], found["oldest"], link)


@dataclass(frozen=True)
class ProblemRow:
    """A counted problem of a chassis, or of the site as a whole (None, '')."""

    name: str
    chassis_id: int | None
    chassis_name: str
    counted: rules.CounterValue
    meaning: ProblemDescription


@dataclass(frozen=True)
class PipelineStatus:
    level: rules.HealthLevel
    findings: Sequence[rules.Finding]
    chassis: Sequence[rules.ChassisHealth]
    rows: Sequence[ProblemRow]
    waiting: Sequence[rules.Undelivered]
    sizes: rules.StorageSizes
    pipeline: rules.PipelineSnapshot


def pipeline_status(person: User) -> PipelineStatus:
    """Return the pipeline's health; raises Forbidden except for administrators, Unavailable without Redis."""
    require_administrator(person)
    pipeline, sizes, waiting = pipeline_snapshot(), storage_sizes(), undelivered_now()
    pipeline = replace(pipeline, processes=pipeline.processes + agents_heard())
    names = dict(Chassis.objects.values_list("pk", "name"))
    polled = Chassis.objects.filter(enabled=True).order_by(natural("name"))
    rows = polled.values_list("pk", "name", "last_error")
    chassis = rules.chassis_health(pipeline, [rules.PolledChassis(*row) for row in rows])
    found = rules.findings(pipeline, sizes, chassis, waiting)
    return PipelineStatus(
        level=max((one.level for one in found), default=rules.HealthLevel.GOOD),
        findings=found,
        chassis=chassis,
        rows=_problem_rows(pipeline, names),
        waiting=waiting,
        sizes=sizes,
        pipeline=pipeline,
    )


def _problem_rows(pipeline: rules.PipelineSnapshot, names: dict[int, str]) -> list[ProblemRow]:
    """Return the counted problems, recent losses first, without removed chassis."""
    rows = [
        ProblemRow(name, chassis, names[chassis] if chassis else "", counted, PROBLEMS[name])
        for (name, chassis), counted in pipeline.counts.items()
        if name in PROBLEMS and (chassis is None or chassis in names)
    ]
    return sorted(
        rows, key=lambda row: (-row.counted.recent, not row.meaning.is_loss, -row.counted.total, row.meaning.words)
    )
