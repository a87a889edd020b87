"""What the tests of the pipeline share: an empty Redis, and chassis that are read without a BMC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from django.conf import settings

from fabric.inventory.models import Chassis
from telemetry.instrumentation import publisher
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.frames import Frame, set_catalogue
from tests.redis_keys import delete_keys
from tests.telemetry.live.publishing import put_frame

Publish = Callable[..., None]


@pytest.fixture(autouse=True)
def empty_redis() -> Iterator[Any]:
    """A Redis in which nobody has counted anything, nor does: tests before may have left this process a publisher."""
    if publisher._publisher is not None:
        publisher._publisher.end()
        publisher._publisher = None
    delete_keys("pipeline*", "live:*", "*pipeline-sizes*")
    client = redis.Redis.from_url(settings.REDIS_URL)
    yield client
    client.close()


def entry(of: str, pk: int, quantity: str, label: str = "", detail: str = "") -> SeriesEntry:
    """Return an entry as a catalogue has it."""
    key = f"{of}/{pk}/{quantity}" + (f"/{detail}" if detail else "")
    return SeriesEntry(key=key, object=of, id=pk, quantity=quantity, label=label, unit="")


def read(
    chassis: Chassis, values: Sequence[tuple[SeriesEntry, float]], *, counters: Sequence[float] = (), age: float = 0.0
) -> None:
    """Publish readings of a chassis, as the poller does: `age` seconds ago."""

    async def tell() -> None:
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        try:
            revision = await set_catalogue(bus, chassis.pk, [one for one, _ in values])
            at = time.time() - age
            frame = Frame(revision, chassis.pk, int(at), at, np.array([value for _, value in values], dtype=np.float64))
            await put_frame(bus, frame, np.array(counters, dtype=np.float64))
        finally:
            await bus.aclose()

    asyncio.run(tell())
