"""Whether the site can serve, for load balancers and people in a hurry."""

from __future__ import annotations

from django.core.cache import cache
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from redis.exceptions import RedisError


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when database and Redis answer, 503 with the part that does not; tells nothing else."""
    parts = {"database": "ok", "redis": "ok"}
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        parts["database"] = "down"
    try:
        cache.get("healthz")
    except (RedisError, OSError):
        parts["redis"] = "down"
    healthy = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ok" if healthy else "down", **parts}, status=200 if healthy else 503)
