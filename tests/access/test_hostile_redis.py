"""Whoever may write to Redis runs no code in the site, and makes no page or task of it fail."""

from __future__ import annotations

import asyncio
import pickle
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import redis
import zstandard
from channels.layers import get_channel_layer
from django.conf import settings
from django.core.cache import cache
from django.test import Client

from accounts.audit.services import refusals_summarise
from fabric.inventory.models import Chassis
from telemetry.alerts.services import unread_chassis_check
from telemetry.live.frames import HEADER, KEY, RECENT_HEADER, set_catalogue
from telemetry.live.services import record_device_activity
from telemetry.polling.claims import ChassisClaims
from telemetry.store.services import store_size

pytestmark = pytest.mark.django_db(transaction=True)


class RunsCode:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.fixture
def bus() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client
        client.flushdb()


def hostile_values(proof: Path) -> list[object]:
    """Return values of each kind: pickles, garbage, other types, what is huge, and what is nearly right."""
    bomb = zstandard.compress(bytes(50_000_000))
    header = RECENT_HEADER.pack(1, time.time())
    return [
        pickle.dumps(RunsCode(proof)),
        b"",
        b"\xff\xfe garbage \x00",
        b"9" * 5000,
        b"[" * 100_000,
        b"x" * 8_000_000,
        b'{"revision": 1, "series": [{"key": 1}]}',
        b'{"revision": 1e400, "series": {}}',
        b'{"revision": -1, "series": []}',
        b'{"process": 1, "kind": [], "began": 1e300, "at": null, "gauges": 3, "chassis": []}',
        msgspec.msgpack.encode({"type": "websocket.disconnect", "code": 1000}),
        HEADER.pack(KEY, 1, 1, 1, 1, float("nan"), 0),
        HEADER.pack(KEY, 1, 1, 1, 1, 1e300, 3) + bytes(24),
        HEADER.pack(KEY, 1, 1, 1, 1, time.time(), 0xFFFF) + bytes(8),
        struct.pack("<Hd", 1, float("inf")) + b"no zstd",
        header + bomb,
        header + b"no zstd",
        {"key": "of a hash", "loop_lag/9999999999999999999999": "x", "events_bad/": "-1", "7|1.2.3.4": "many"},
        ["a", "list"],
        {"a", "set"},
    ]


def put(bus: redis.Redis, key: str, value: object) -> None:
    bus.delete(key)
    if isinstance(value, dict):
        bus.hset(key, mapping=value)
    elif isinstance(value, list):
        bus.rpush(key, *value)
    elif isinstance(value, set):
        bus.sadd(key, *value)
    else:
        assert isinstance(value, bytes)
        bus.set(key, value)


def keys_of(chassis: int) -> list[str]:
    """Return a key of each family that the site reads."""
    minute, period = int(time.time() // 60), int(time.time() // 900) - 4
    return [
        cache.make_key(name) for name in ("healthz", "store:size:3", "guesses:127.0.0.1")
    ] + [
        f"live:catalogue:{chassis}", f"live:catalogue:{chassis}:1", f"live:frame:{chassis}", f"live:counted:{chassis}",
        f"live:recent:{chassis}", f"polling:{chassis}", f"alerts:unread:{chassis}", "pipeline:counts",
        f"pipeline:counts:{minute}", "pipeline:seen", "pipeline:since", "pipeline:worker@here:1",
        f"falconweb:audit:{period}:more", settings.CELERY_TASK_DEFAULT_QUEUE,
    ]  # fmt: skip


def pages(chassis: int) -> list[str]:
    return [
        "/healthz", "/readyz", "/", "/pipeline/", "/metrics", f"/chassis/{chassis}/", "/api/v1/pipeline/",
        f"/api/v1/chassis/{chassis}/readings/", "/history/",
    ]  # fmt: skip


def test_what_is_written_to_redis_runs_nothing_and_fails_nothing(
    bus: redis.Redis, administrator_client: Client, tmp_path: Path
) -> None:
    chassis = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1", enabled=True)
    proof = tmp_path / "proof"
    period = int(time.time() // 900) - 4
    for value in hostile_values(proof):
        bus.flushdb()
        for key in keys_of(chassis.pk):
            put(bus, key, value)
        bus.zadd("pipeline:processes", {b"\xff": time.time(), "worker@here:1": time.time()})
        bus.sadd("falconweb:audit:periods", "x", b"\xff", "9" * 5000, str(period))
        if isinstance(value, bytes):
            for key in (f"live:recent:{chassis.pk}", settings.CELERY_TASK_DEFAULT_QUEUE):
                bus.delete(key)
                bus.rpush(key, value)
            for name in ("pipeline:counts", f"falconweb:audit:{period}:more"):
                bus.delete(name)
                bus.hset(name, mapping={value[:1000]: b"1", "events_bad": value[:1000], "7|a": value[:1000]})  # type: ignore[dict-item]
        for page in pages(chassis.pk):
            answer = administrator_client.get(page)
            b"".join(answer) if answer.streaming else answer.content
            assert answer.status_code < 500 or answer.status_code == 503, (page, value)
        assert administrator_client.get("/healthz").status_code == 200
        answer = Client().post("/sign-in/", {"username": "nobody", "password": "wrong"})
        assert answer.status_code < 500
        unread_chassis_check()
        record_device_activity()
        refusals_summarise()
        assert store_size().on_disk > 0
        assert ChassisClaims(bus, "worker").renew([chassis.pk]) is not None
    assert not proof.exists()


def test_a_catalogue_that_is_none_is_replaced(bus: redis.Redis, tmp_path: Path) -> None:
    async def revision() -> int:
        client = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        try:
            return await set_catalogue(client, 7, [])
        finally:
            await client.aclose()

    for value in hostile_values(tmp_path / "proof"):
        put(bus, "live:catalogue:7", value)
        assert asyncio.run(revision()) == 1
        assert bus.get("live:catalogue:7") == b'{"revision": 1, "series": []}'


def test_a_message_of_the_channel_layer_calls_nothing_but_the_end_of_a_session(tmp_path: Path) -> None:
    layer = get_channel_layer()
    assert layer is not None
    for value in hostile_values(tmp_path / "proof"):
        if isinstance(value, bytes):
            assert layer.deserialize(value) == {"type": "refused.message"}
    for kind in ("websocket.receive", "websocket.disconnect", "close", "disconnect", "_broken", ""):
        assert layer.deserialize(msgspec.msgpack.encode({"type": kind, "session": None}))["type"] == "refused.message"
    known = {"type": "signed.out", "session": "abc"}
    assert layer.deserialize(layer.serialize(known)) == known
    assert not (tmp_path / "proof").exists()


def test_celery_takes_json_only() -> None:
    from falconweb.celery import application

    assert set(application.conf.accept_content) == set(application.conf.result_accept_content) == {"json"}
    assert application.conf.task_serializer == application.conf.result_serializer == "json"
