"""Frames in a real Valkey, as a worker that has the lease of their chassis publishes them."""

from __future__ import annotations

import redis.asyncio

from telemetry.live.catalogue import Values
from telemetry.live.frames import Frame, FrameOutbox, FrameUpdate

HOLDER = "a worker of a test"


async def put_frame(bus: redis.asyncio.Redis, frame: Frame, counters: Values | None = None) -> None:
    """Publish a frame; the lease is held for no longer than that, and the newest second may come once more."""
    await bus.set(f"polling:{frame.chassis}", HOLDER)
    await bus.delete(f"live:frame:{frame.chassis}")
    published, _ = await FrameOutbox(bus, HOLDER).publish_batch([FrameUpdate(frame, counters)])
    await bus.delete(f"polling:{frame.chassis}")
    assert published == 1
