"""What every test of telemetry begins with."""

from __future__ import annotations

import pytest
import redis
from django.conf import settings


@pytest.fixture(autouse=True)
def no_readings_of_before(request: pytest.FixtureRequest) -> None:
    """Forget what Redis keeps by the numbers of chassis, which come again in each test that empties the tables."""
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and marker.kwargs.get("transaction"):
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            kept = [key for pattern in ("live:*", "alerts:*", "polling:*") for key in client.scan_iter(pattern, 1000)]
            if kept:
                client.delete(*kept)
