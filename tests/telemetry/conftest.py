"""What every test of telemetry begins with."""

from __future__ import annotations

import pytest

from tests.redis_keys import delete_keys


@pytest.fixture(autouse=True)
def no_readings_of_before(request: pytest.FixtureRequest) -> None:
    """Forget what Redis keeps by the numbers of chassis, which come again in each test that empties the tables."""
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and marker.kwargs.get("transaction"):
        delete_keys("live:*", "alerts:*", "polling:*")
