"""Liveness and readiness of the site: for load balancers and operators."""

from __future__ import annotations

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connections, router
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from redis.exceptions import RedisError

from core.errors import Unavailable
from telemetry.pipeline.rules import SILENT_SECONDS
from telemetry.pipeline.selectors import pipeline_snapshot

# SQLite accesses its file only for a query of a table.
TABLE_QUERY = "SELECT id FROM django_migrations LIMIT 1"
# Databases in which this process found all migrations applied; none is reversed while it runs.
_migrated: set[str] = set()


def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 if the database and Redis respond, else 503 with the failing part; nothing else is disclosed."""
    parts = {"database": _database("default"), "redis": _redis()}
    healthy = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ok" if healthy else "down", **parts}, status=200 if healthy else 503)


def readyz(request: HttpRequest) -> JsonResponse:
    """Return the readiness by component: 200 'ok', 200 'degraded' without a worker, 503 'down'.

    Without a worker, pages are served with ageing readings; without any other component they are not.
    """
    parts = {
        "database": _database("default", TABLE_QUERY),
        "readings": _database(settings.READINGS_DATABASE, TABLE_QUERY),
        "migrations": _migrations(),
        "redis": _redis(),
    }
    parts["workers"] = _workers() if parts["redis"] == "ok" else "unknown"
    needed = [state for part, state in parts.items() if part != "workers"]
    is_ready = all(state == "ok" for state in needed)
    word = "down" if not is_ready else "ok" if parts["workers"] == "ok" else "degraded"
    return JsonResponse({"status": word, **parts}, status=200 if is_ready else 503)


def _database(alias: str, query: str = "SELECT 1") -> str:
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute(query)
    except DatabaseError:
        return "down"
    return "ok"


def _redis() -> str:
    try:
        cache.get("healthz")
    except (RedisError, OSError):
        return "down"
    return "ok"


def _migrations() -> str:
    for alias in {"default", settings.READINGS_DATABASE} - _migrated:
        try:
            executor = MigrationExecutor(connections[alias])
            newest = [one for one in executor.loader.graph.leaf_nodes() if router.allow_migrate(alias, one[0])]
            is_whole = not executor.migration_plan(newest)
        except DatabaseError:
            return "unknown"
        if not is_whole:
            return "missing"
        _migrated.add(alias)
    return "ok"


def _workers() -> str:
    try:
        pipeline = pipeline_snapshot()
    except Unavailable:
        return "unknown"
    has_worker = any(
        (pipeline.at - one.published_at).total_seconds() <= SILENT_SECONDS for one in pipeline.of("worker")
    )
    return "ok" if has_worker else "none heard"
