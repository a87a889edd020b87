"""Whoever may write to Redis runs no code in the site, and ends none of its loops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import redis
import zstandard
from channels.layers import get_channel_layer
from django.conf import settings
from django.core.cache import cache
from django.test import Client

from accounts.audit import refusal_limits
from accounts.audit.services import refusals_summarise
from core.counters import count_in_period
from falconweb.celery import application
from telemetry.alerts.services import unread_chassis_check
from telemetry.instrumentation.publisher import MetricsPublisher
from telemetry.live.frames import (
    HEADER,
    KEY,
    RECENT_HEADER,
    Frame,
    FrameOutbox,
    FrameUpdate,
    set_catalogue,
    stored_frame,
    unpack_recent,
)
from telemetry.live.services import record_device_activity
from telemetry.pipeline.selectors import pipeline_snapshot
from telemetry.polling.claims import ChassisClaims
from telemetry.store import tasks as store
from telemetry.store.services import store_size
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_matrix import GETS
from tests.site import RunningSite, processes_of
from tests.stage.operator import Operator
from tests.stage.processes import broker_of
from tests.turns import in_turn
from tests.waiting import wait_for

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db(databases="__all__")
CHASSIS = 7


class RunsCode:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.fixture
def bus() -> Iterator[Any]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture
def proof(tmp_path: Path) -> Iterator[Path]:
    """The file that a pickle makes where somebody reads it."""
    yield tmp_path / "proof"
    assert not (tmp_path / "proof").exists()


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
        {"a sorted set": 1e300, "worker@gone:1": 1e16, b"\xff": float(time.time())},
    ]


KINDS = range(len(hostile_values(Path())))


def put(bus: Any, key: str, value: object) -> None:
    """Replace what is at a key, for ever."""
    bus.delete(key)
    if isinstance(value, dict) and all(isinstance(one, float) for one in value.values()):
        bus.zadd(key, value)
    elif isinstance(value, dict):
        bus.hset(key, mapping=value)
    elif isinstance(value, list):
        bus.rpush(key, *value)
    elif isinstance(value, set):
        bus.sadd(key, *value)
    else:
        assert isinstance(value, bytes)
        bus.set(key, value)


def put_inside(bus: Any, chassis: int, value: object) -> None:
    """Put a value where lists, hashes and sets are as the site has them."""
    period = int(time.time() // 900) - 4
    bus.delete("pipeline:processes", "falconweb:audit:periods")
    bus.zadd("pipeline:processes", {b"\xff": time.time(), "worker@here:1": time.time()})
    bus.sadd("falconweb:audit:periods", "x", b"\xff", "9" * 5000, str(period))
    if isinstance(value, bytes):
        for key in (f"live:recent:{chassis}", settings.CELERY_TASK_DEFAULT_QUEUE):
            bus.delete(key)
            bus.rpush(key, value)
        for name in ("pipeline:counts", f"falconweb:audit:{period}:more"):
            bus.delete(name)
            bus.hset(name, mapping={value[:1000]: b"1", "events_bad": value[:1000], "7|a": value[:1000]})


def keys_of(chassis: int) -> list[str]:
    """Return a key of each family that the site reads."""
    minute, period = int(time.time() // 60), int(time.time() // 900)
    return [
        *map(cache.make_key, ("healthz", "store:size:3", "store:check-asked", "guesses:127.0.0.1", "counted")),
        f"live:catalogue:{chassis}", f"live:catalogue:{chassis}:1", f"live:frame:{chassis}", f"live:counted:{chassis}",
        f"live:recent:{chassis}", f"polling:{chassis}", "polling:workers", "polling:since", "polling:forgotten",
        f"alerts:unread:{chassis}", "pipeline:counts", f"pipeline:counts:{minute}", "pipeline:seen", "pipeline:since",
        "pipeline:processes", "pipeline:worker@here:1", f"falconweb:audit:{period}:strangers",
        f"falconweb:audit:{period}:more", f"falconweb:audit:{period - 4}:more", "falconweb:audit:periods",
        "store:rolling", "store:cleaning", "scheduler", settings.CELERY_TASK_DEFAULT_QUEUE,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_to_redis_is_no_error_of_a_page_or_task(bus: Any, lab: Lab, proof: Path, kind: int) -> None:
    chassis, value = lab.device.chassis_id, hostile_values(proof)[kind]

    def write() -> None:
        for key in keys_of(chassis):
            put(bus, key, value)

    write()
    for name in in_turn(sorted(GETS), kind, of=len(KINDS)):
        answer = lab.clients["administrator"].get(address(lab, name))
        b"".join(answer) if answer.streaming else answer.content
        assert answer.status_code < 500 or answer.status_code == 503, (name, value)
    assert Client().get("/healthz").status_code == 200
    assert Client().post("/sign-in/", {"username": "nobody", "password": "wrong"}).status_code < 500
    for inside in (False, True):
        write()
        if inside:
            put_inside(bus, chassis, value)
        unread_chassis_check()
        record_device_activity()
        refusals_summarise()
        store.roll_up()
        assert store_size().on_disk > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_site_has_its_own_again_a_moment_after(bus: Any, proof: Path, kind: int) -> None:
    value = hostile_values(proof)[kind]
    for key in keys_of(CHASSIS):
        put(bus, key, value)
    # Who counts and publishes does it at the second time at the latest.
    publisher = MetricsPublisher("worker")
    for _ in range(2):
        publisher.publish()
        count_in_period("counted", 60, "a test")
        refusal_limits.refusal_admitted(None, "1.2.3.4")
    assert isinstance(count_in_period("counted", 60, "a test"), int)
    assert [one.kind for one in pipeline_snapshot().processes if one.name == publisher.process] == ["worker"]
    refusals_summarise()
    assert bus.type(refusal_limits.PERIODS_KEY) in {b"none", b"set"}
    publisher.end()
    # A chassis is polled, and its frames are published.
    claims = ChassisClaims(bus, "worker")
    wait_for(lambda: claims.renew([CHASSIS]).claimed == {CHASSIS}, seconds=15, every=0.1)

    async def publish() -> bool:
        client = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        outbox = FrameOutbox(client, "worker")
        frame = Frame(await set_catalogue(client, CHASSIS, []), CHASSIS, 4711, time.time(), np.zeros(0))
        is_outdated = await outbox.publish(FrameUpdate(frame))
        await outbox.close()
        await client.aclose()
        return is_outdated

    assert not asyncio.run(publish())
    frame = stored_frame(bus.get(f"live:frame:{CHASSIS}"))
    assert frame is not None
    assert frame.sequence == 4711
    assert unpack_recent(bus.lindex(f"live:recent:{CHASSIS}", -1))[1] == frame.at


def test_a_lock_that_nobody_holds_stops_no_rollup(bus: Any) -> None:
    for key in ("store:rolling", "store:cleaning"):
        bus.set(key, "somebody else")
    held: tuple[object, ...] = (None,)
    for _ in range(2):
        with store._exclusive("rolling") as rolling, store._exclusive("cleaning") as cleaning:
            held = rolling, cleaning
    assert None not in held


def test_a_message_of_the_channel_layer_calls_nothing_but_the_end_of_a_session(proof: Path) -> None:
    layer: Any = get_channel_layer()
    for value in hostile_values(proof):
        if isinstance(value, bytes):
            assert layer.deserialize(value) == {"type": "refused.message"}
    for kind in ("websocket.receive", "websocket.disconnect", "close", "disconnect", "_broken", ""):
        assert layer.deserialize(msgspec.msgpack.encode({"type": kind, "session": None}))["type"] == "refused.message"
    known = {"type": "signed.out", "session": "abc"}
    assert layer.deserialize(layer.serialize(known)) == known


def test_a_message_that_is_none_ends_nobody_who_takes_tasks(bus: Any, proof: Path) -> None:
    queue = "hostile-queue"
    taken: list[object] = []
    with application.connection_for_read() as connection, connection.channel() as channel:

        def drain() -> bool:
            """Take what is there; return whether the list is empty."""
            with contextlib.suppress(TimeoutError):
                connection.drain_events(timeout=0.01)
            return bool(bus.type(queue) == b"none")

        bound = application.amqp.queues.new_missing(queue)(channel)
        with channel.Consumer([bound], callbacks=[lambda body, message: taken.append(body)], accept=["json"]):
            for value in (*hostile_values(proof), b"{}", b'{"properties": {"delivery_tag": []}}', b"null"):
                put(bus, queue, [value] if isinstance(value, bytes) else value)
                wait_for(drain, f"{value!r:.100}", every=0.01)
                application.send_task("nothing", args=["sent"], queue=queue)
                wait_for(lambda: drain() and taken, f"{value!r:.100}", every=0.01)
                taken.clear()
    for key in ("_kombu.binding.hostile-queue", "_kombu.binding.perm.hostile-queue"):
        put(bus, key, b"x")
    with application.connection_for_read() as connection, connection.channel() as channel:
        application.amqp.queues.new_missing(queue)(channel).declare()


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_running_site_goes_on_behind_whatever_is_written_to_every_key_and_channel(proof: Path) -> None:
    with RunningSite(proof.with_name("data"), FALCONWEB_SIMULATED="1") as site:
        operator = Operator(site)
        bus: Any = broker_of(site)[1]

        def parts() -> dict[str, str]:
            return dict(json.loads(site.get("/readyz")[1]))

        def sequence() -> int:
            frame = stored_frame(bus.get("live:frame:1")) if bus.type("live:frame:1") == b"string" else None
            return frame.sequence if frame is not None else 0

        def recovered(newest: int) -> bool:
            return parts()["status"] == "ok" and sequence() not in {0, newest}

        wait_for(partial(recovered, 0), "it is not whole", seconds=120, every=0.5)
        processes = {part: processes_of(site, part) for part in ("web", "worker", "beat", "broker")}
        for value in hostile_values(proof):
            newest = sequence()
            for key in bus.keys():  # noqa: SIM118 - it is no mapping
                put(bus, key.decode(), value)
            if isinstance(value, bytes):
                bus.lpush("falconweb", value)
                for channel in ("refresh", "access", "live:1", "changed:1", "/0.celery.pidbox"):
                    bus.publish(channel, value)
            for page in ("/", "/api/v1/chassis/1/series/", "/metrics", "/telemetry/pipeline/"):
                assert operator.status(page) in {200, 404, 503}, (page, value)
            said = f"not whole, or no readings: {value!r:.100}"
            wait_for(partial(recovered, newest), said, seconds=60, every=0.5)
        assert {part: processes_of(site, part) for part in processes} == processes
        bus.close()
