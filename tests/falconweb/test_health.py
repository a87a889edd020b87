"""/healthz and /readyz: with everything there, and with each part away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.core.cache import caches
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone

from fabric.agents.models import HostAgent
from fabric.inventory.models import Host
from falconweb import health
from falconweb.launch.broker import free_port
from hostwire import heartbeat
from telemetry.instrumentation.publisher import MetricsPublisher

pytestmark = pytest.mark.django_db(databases="__all__")
HELPERS = {"workers": "ok", "scheduler": "ok", "web": "ok"}
ALL_WELL = {"database": "ok", "readings": "ok", "migrations": "ok", "redis": "ok", **HELPERS, "agents": "ok"}


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not found its migrations applied, and has no loops: those of other tests have ended."""
    monkeypatch.setattr(heartbeat, "_beats", {})
    monkeypatch.setattr(heartbeat, "_turned", set())
    health._migrated.clear()
    yield
    health._migrated.clear()


@pytest.fixture
def worker() -> Iterator[MetricsPublisher]:
    """A worker that has just been heard, and a scheduler."""
    publisher, scheduler = MetricsPublisher("worker"), MetricsPublisher("scheduler")
    publisher.publish()
    scheduler.publish()
    yield publisher
    publisher.end()
    scheduler.end()


@pytest.fixture
def redis_away() -> Iterator[None]:
    there = settings.REDIS_URL, settings.CACHES["default"]["LOCATION"]
    settings.REDIS_URL = settings.CACHES["default"]["LOCATION"] = "redis://127.0.0.1:1/0"
    del caches["default"]
    yield
    settings.REDIS_URL, settings.CACHES["default"]["LOCATION"] = there
    del caches["default"]


def ready() -> tuple[int, dict[str, str]]:
    answer = Client().get("/readyz", HTTP_HOST="10.0.0.9:8000")  # known by its address
    return answer.status_code, answer.json()


def test_a_site_that_can_serve_is_ready(worker: MetricsPublisher) -> None:
    assert ready() == (200, {"status": "ok", **ALL_WELL})
    assert Client().get("/healthz").json() == {"status": "ok", "database": "ok", "redis": "ok"}
    assert Client().head("/readyz").status_code == 200


def test_without_a_worker_it_serves_and_says_that_it_is_not_whole() -> None:
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.delete("pipeline:processes")
    assert ready() == (200, {"status": "degraded", **ALL_WELL, "workers": "none heard", "scheduler": "none heard"})
    web = MetricsPublisher("web")
    web.publish()
    assert ready()[1]["workers"] == "none heard"
    web.end()


def test_a_part_whose_loop_hangs_is_named(worker: MetricsPublisher) -> None:
    web = MetricsPublisher("web")
    web.publish()
    heartbeat._beats["tasks"] = time.monotonic() - 60
    try:
        worker.publish()
        assert ready() == (200, {"status": "degraded", **ALL_WELL, "workers": "none heard"})
        web.publish()
        assert ready()[1]["web"] == "silent"
    finally:
        heartbeat.pause("tasks")
        web.end()
    worker.publish()
    assert ready() == (200, {"status": "ok", **ALL_WELL})


def test_a_silent_agent_is_named_and_no_trouble_of_the_site(worker: MetricsPublisher) -> None:
    host = Host.objects.create(name="gpu-host", identity="gpu-host")
    reported_at = timezone.now() - timedelta(minutes=5)
    agent = HostAgent.objects.create(host=host, digest="0", key_encrypted="", reported_at=reported_at)
    assert ready() == (200, {"status": "ok", **ALL_WELL, "agents": "silent"})
    agent.reported_at = timezone.now()
    agent.save()
    assert ready() == (200, {"status": "ok", **ALL_WELL})


def test_without_redis_it_is_not_ready(redis_away: None) -> None:
    assert ready() == (503, {"status": "down", **ALL_WELL, "redis": "down", **dict.fromkeys(HELPERS, "unknown")})
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "down", "database": "ok", "redis": "down"})


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("alias", sorted({"default", settings.READINGS_DATABASE}))
def test_without_a_database_it_is_not_ready(
    alias: str, worker: MetricsPublisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away; of SQLite a file that is no database: what a disk that is ill leaves."""
    connection = connections[alias]
    connection.close()
    (tmp_path / "broken").write_bytes(b"no database" * 1000)
    elsewhere = {"NAME": str(tmp_path / "broken")} if connection.vendor == "sqlite" else {"PORT": str(free_port())}
    for name, value in elsewhere.items():
        monkeypatch.setitem(connection.settings_dict, name, value)
    status, answer = ready()
    connection.close()
    assert (status, answer["status"]) == (503, "down")
    assert answer["database" if alias == "default" else "readings"] == "down"
    assert answer["redis"] == "ok"
    assert not [hidden for hidden in elsewhere.values() if hidden in str(answer)]


def test_migrations_that_have_not_run_are_waited_for(worker: MetricsPublisher) -> None:
    applied = MigrationRecorder.Migration.objects.using("default")
    row = applied.filter(app="accounts").latest("pk")
    name, app = row.name, row.app
    row.delete()
    assert ready() == (503, {"status": "down", **ALL_WELL, "migrations": "missing"})
    # It is looked for anew until all have run, and not after that.
    MigrationRecorder(connections["default"]).record_applied(app, name)
    assert ready()[0] == 200
    assert health._migrated == {"default", settings.READINGS_DATABASE}


def test_what_has_no_table_beside_the_readings_is_not_migrated_there(db: None) -> None:
    if settings.READINGS_DATABASE == "default":
        pytest.skip("readings are in the site's own database")
    applied = MigrationRecorder(connections[settings.READINGS_DATABASE]).applied_migrations()
    assert {room for room, _ in applied} == {"store"}
    assert "accounts_user" not in connections[settings.READINGS_DATABASE].introspection.table_names()
