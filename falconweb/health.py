"""Liveness and readiness of the site: for load balancers and operators."""

from __future__ import annotations

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connections, router
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from redis.exceptions import RedisError

from core.errors import Unavailable
from core.sqlite_damage import files_set_aside, known_damage
from telemetry.pipeline.selectors import agents_heard, pipeline_snapshot
from telemetry.store.renewal import database_file

SET_ASIDE = "set aside"  # readings: within the last day a damaged file was, and they began anew
# SQLite accesses its file only for a query of a table.
TABLE_QUERY = "SELECT id FROM django_migrations LIMIT 1"
HELPERS = {"workers": "worker", "scheduler": "scheduler", "web": "web"}  # part, and kind of its processes
# Databases in which this process found all migrations applied; none is reversed while it runs.
_migrated: set[str] = set()


def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 if the database and Redis respond, else 503 with the failing part; nothing else is disclosed."""
    parts = {"database": _database("default"), "redis": _redis()}
    healthy = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ok" if healthy else "down", **parts}, status=200 if healthy else 503)


def readyz(request: HttpRequest) -> JsonResponse:
    """Return the readiness by component: 200 'ok', 200 'degraded' where one of HELPERS is missing, 503 'down'.

    Without those, pages are served, with ageing readings; without any other component they are not. A host that is
    off is no trouble of the site: its silent agent is named, and no more.
    """
    parts = {
        "database": _main_database(),
        "readings": _readings(),
        "migrations": _migrations(),
        "redis": _redis(),
    }
    is_ready = all(state in {"ok", SET_ASIDE} for state in parts.values())
    helpers = _helpers() if parts["redis"] == "ok" else dict.fromkeys(HELPERS, "unknown")
    is_whole = all(state == "ok" for state in (*parts.values(), *helpers.values()))
    word = "down" if not is_ready else "ok" if is_whole else "degraded"
    return JsonResponse({"status": word, **parts, **helpers, "agents": _agents()}, status=200 if is_ready else 503)


def _database(alias: str, query: str = "SELECT 1") -> str:
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute(query)
    except DatabaseError:
        return "down"
    return "ok"


def _main_database() -> str:
    file = database_file("default")
    return "damaged" if file is not None and known_damage(file) else _database("default", TABLE_QUERY)


def _readings() -> str:
    state = _database(settings.READINGS_DATABASE, TABLE_QUERY)
    file = database_file(settings.READINGS_DATABASE)
    return SET_ASIDE if state == "ok" and file is not None and files_set_aside(file) else state


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


def _helpers() -> dict[str, str]:
    """Return the states of HELPERS: 'none heard' without any that has a heartbeat, 'silent' where one hangs."""
    try:
        pipeline = pipeline_snapshot()
    except Unavailable:
        return dict.fromkeys(HELPERS, "unknown")
    states = {part: "ok" if pipeline.is_heard(kind) else "none heard" for part, kind in HELPERS.items()}
    # This process answers, so it is another that hangs.
    states["web"] = "silent" if any(one.is_silent(pipeline.at) for one in pipeline.of("web")) else "ok"
    return states


def _agents() -> str:
    try:
        return "silent" if any(one.is_silent(timezone.now()) for one in agents_heard()) else "ok"
    except DatabaseError:
        return "unknown"
