"""While Redis is away, or loads what it had, requests that need it are answered with 503, and all others as always."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.utils import timezone

from fabric.inventory.models import Chassis
from falconweb.api.errors import unavailable_part
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_matrix import GETS
from tests.turns import in_turn

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


class Loading(socketserver.StreamRequestHandler):
    """Answers each command as a server that has just started and reads its file."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            for _ in range(2 * int(line[1:])):  # a command is a list of texts, each with its length before it
                self.rfile.readline()
            self.wfile.write(b"-LOADING Valkey is loading the dataset in memory\r\n")


@pytest.fixture(params=["loading", "gone"])
def away(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    """A Redis that loads, or none."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Loading) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.server_address[1] if request.param == "loading" else 1
        settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": settings.REDIS_URL}}
        yield
        server.shutdown()
        thread.join()


def test_recent_readings_are_answered_later(lab: Lab, away: None) -> None:
    for name in ("api:series", "api:readings"):
        answer = lab.clients["owner"].get(address(lab, name), {"keys": "chassis/0/temperature_celsius"})
        assert (answer.status_code, answer["Retry-After"], answer.json()["code"]) == (503, "5", "unavailable")


def test_no_address_has_an_error_of_the_site(lab: Lab, away: None) -> None:
    for name in in_turn(sorted(set(GETS) - {"healthz", "readyz", "metrics"}), 0, of=4):
        answer = lab.clients["administrator"].get(address(lab, name))
        assert answer.status_code not in {500, 502}, (name, answer.content[:300])


def test_a_redis_that_came_back_empty_has_no_readings_of_a_chassis_that_answers(lab: Lab) -> None:
    where = address(lab, "api:series")
    Chassis.objects.update(inventory_at=None)
    assert lab.clients["owner"].get(where).json() == []  # it was never read
    Chassis.objects.update(inventory_at=timezone.now(), last_error="")
    for name in ("api:series", "api:readings"):
        answer = lab.clients["owner"].get(address(lab, name), {"keys": "chassis/0/temperature_celsius"})
        assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    Chassis.objects.update(last_error="It does not answer.")
    assert lab.clients["owner"].get(where).json() == []


def test_only_connections_that_fail_are_called_unavailable() -> None:
    for error in (redis.BusyLoadingError(), redis.ConnectionError(), redis.TimeoutError()):
        assert unavailable_part(error) is not None
    assert unavailable_part(redis.ResponseError()) is None
