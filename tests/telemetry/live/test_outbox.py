"""Frames on their way to a real Valkey: whose are published, what is kept, and what a lost memory brings back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import numpy as np
import pytest
import redis.asyncio
from django.conf import settings
from websockets.client import ClientProtocol
from websockets.frames import Frame as Message
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from telemetry.live.frames import (
    Frame,
    FrameOutbox,
    FrameUpdate,
    decode_key,
    pack_recent,
    recent_values,
    set_catalogue,
    unpack_recent,
    websocket_message,
)
from tests.telemetry.live.test_sockets import entry

CHASSIS = 4016
SERIES = [entry("port", number, "errors") for number in range(3)]


@pytest.fixture
async def bus() -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as bus:
        await forget(bus)
        yield bus
        await forget(bus)


async def forget(bus: redis.asyncio.Redis) -> None:
    keys = [key for pattern in ("live:*", "polling:*") async for key in bus.scan_iter(pattern)]
    if keys:
        await bus.delete(*keys)


def news(second: int, *values: float, chassis: int = CHASSIS, revision: int = 1) -> FrameUpdate:
    return FrameUpdate(Frame(revision, chassis, second, float(second), np.array(values or (1.0, 2.0, 3.0))))


async def test_only_frames_of_chassis_that_are_held_are_published(bus: redis.asyncio.Redis) -> None:
    await bus.set(f"polling:{CHASSIS}", "me")
    await bus.set(f"polling:{CHASSIS + 1}", "another")
    async with bus.pubsub() as heard:
        await heard.psubscribe("live:[0-9]*")
        mine, theirs, nobodys = (news(7, chassis=CHASSIS + number) for number in range(3))
        published, _ = await FrameOutbox(bus, "me").publish_batch([mine, theirs, nobodys])
        assert published == 1
        while not (message := await heard.get_message(ignore_subscribe_messages=True, timeout=60)):
            pass
        assert decode_key(message["data"]).chassis == CHASSIS
        assert await heard.get_message(ignore_subscribe_messages=True, timeout=0.3) is None
    assert await bus.exists(f"live:frame:{CHASSIS + 1}", f"live:recent:{CHASSIS + 2}") == 0


async def test_a_second_is_published_once_whoever_reads_it(bus: redis.asyncio.Redis) -> None:
    await bus.set(f"polling:{CHASSIS}", "first")
    assert (await FrameOutbox(bus, "first").publish_batch([news(7)]))[0] == 1
    await bus.set(f"polling:{CHASSIS}", "second")
    frames = FrameOutbox(bus, "second")
    assert (await frames.publish_batch([news(7)]))[0] == 0
    assert (await frames.publish_batch([news(8)]))[0] == 1
    assert (await frames.publish_batch([news(6)]))[0] == 1  # a clock that was set back
    kept, _ = await asyncio.to_thread(recent_values, CHASSIS, [], since=0.0)
    assert kept == [7.0, 8.0, 6.0]


async def test_frames_that_come_while_a_write_is_under_way_go_together(bus: redis.asyncio.Redis) -> None:
    for number in range(200):
        await bus.set(f"polling:{CHASSIS + number}", "me")
    calls = (await bus.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0)
    outbox = FrameOutbox(bus, "me")
    await asyncio.gather(*(outbox.publish(news(7, chassis=CHASSIS + number)) for number in range(200)))
    assert (await bus.info("commandstats"))["cmdstat_evalsha"]["calls"] - calls <= 6
    assert len([key async for key in bus.scan_iter("live:frame:*")]) == 200
    await outbox.close()


async def test_who_publishes_is_told_when_redis_has_lost_the_catalogue_and_puts_it_back(
    bus: redis.asyncio.Redis,
) -> None:
    await bus.set(f"polling:{CHASSIS}", "me")
    outbox = FrameOutbox(bus, "me")
    await set_catalogue(bus, CHASSIS, SERIES[:2])
    assert await set_catalogue(bus, CHASSIS, SERIES) == 2
    assert not await outbox.publish(news(7, revision=2))
    await bus.delete(f"live:catalogue:{CHASSIS}")
    assert await outbox.publish(news(8, revision=2))
    assert await set_catalogue(bus, CHASSIS, SERIES, lost=2) == 2
    assert not await outbox.publish(news(9, revision=2))
    assert json.loads(await bus.get(f"live:catalogue:{CHASSIS}") or b"") == {"revision": 2, "series": SERIES}
    await outbox.close()


async def test_who_publishes_is_told_when_another_that_followed_has_put_its_catalogue_there(
    bus: redis.asyncio.Redis,
) -> None:
    await bus.set(f"polling:{CHASSIS}", "me")
    outbox = FrameOutbox(bus, "me")
    assert await set_catalogue(bus, CHASSIS, SERIES) == 1
    assert await set_catalogue(bus, CHASSIS, SERIES[:2]) == 2  # somebody else's
    assert await outbox.publish(news(7))
    assert await set_catalogue(bus, CHASSIS, SERIES, lost=1) == 3
    assert not await outbox.publish(news(8, revision=3))
    await outbox.close()


async def test_catalogues_that_are_kept_at_once_get_revisions_of_their_own(bus: redis.asyncio.Redis) -> None:
    kept = await asyncio.gather(*(set_catalogue(bus, CHASSIS, SERIES[:size]) for size in (1, 2, 3)))
    assert sorted(kept) == [1, 2, 3]


async def test_an_outbox_without_redis_lets_everybody_go_on() -> None:
    async with redis.asyncio.Redis.from_url("redis://127.0.0.1:1/0") as nobody:
        outbox = FrameOutbox(nobody, "me")
        async with asyncio.timeout(60):
            assert not await outbox.publish(news(7))
            assert not await outbox.publish(news(8))
        await outbox.close()


async def test_what_is_kept_of_a_frame_is_what_it_was_to_the_digits_of_an_f32(bus: redis.asyncio.Redis) -> None:
    values = (float("nan"), 1e-30, 123456.789, -0.0, 3.4e38)
    frame = Frame(5, CHASSIS, 7, 1234.5, np.array(values))
    revision, at, kept = unpack_recent(pack_recent(frame))
    assert (revision, at) == (5, 1234.5)
    assert np.array_equal(kept, np.array(values, dtype="<f4"), equal_nan=True)
    await bus.set(f"polling:{CHASSIS}", "me")
    await set_catalogue(bus, CHASSIS, SERIES)
    await FrameOutbox(bus, "me").publish_batch([news(second, 1.5, float("nan"), 9.0) for second in (7, 8)])
    keys = [one["key"] for one in SERIES]
    at_all, columns = await asyncio.to_thread(recent_values, CHASSIS, keys, since=0.0)
    assert at_all == [7.0, 8.0]
    assert [columns[key] for key in keys] == [[1.5, 1.5], [None, None], [9.0, 9.0]]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 100_000])
def test_a_message_that_is_made_once_is_what_a_browser_reads(size: int) -> None:
    raw = bytes(number % 251 for number in range(size))
    browser = ClientProtocol(parse_uri("ws://127.0.0.1/"), state=OPEN, max_size=None)
    browser.receive_data(websocket_message(raw))
    (message,) = browser.events_received()
    assert isinstance(message, Message)
    assert (bytes(message.data), message.fin, int(message.opcode)) == (raw, True, 2)


async def test_a_frame_that_cannot_be_packed_costs_no_other_chassis_its_own(
    bus: redis.asyncio.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    for chassis in range(CHASSIS, CHASSIS + 3):
        await bus.set(f"polling:{chassis}", "me")
    outbox = FrameOutbox(bus, "me")
    for second in (7, 8):
        frames = [news(second, chassis=CHASSIS), news(second, *[1.0] * 70_000, chassis=CHASSIS + 1)]
        frames.append(news(second, chassis=CHASSIS + 2))
        await asyncio.gather(*(outbox.publish(one) for one in frames))
        for chassis, wanted in ((CHASSIS, second), (CHASSIS + 2, second), (CHASSIS + 1, None)):
            raw = await bus.get(f"live:frame:{chassis}")
            assert (decode_key(raw).sequence if raw else None) == wanted
    assert caplog.text.count("cannot be published") == 1
