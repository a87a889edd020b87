"""The same two thousand sockets over ever more chassis: what a web process spends, and how late frames are.

Each chassis has a frame a second, as a worker publishes them: one after the other, spread over half of the second. So
many frames reach sockets at any number of chassis; what grows is how many are read from Redis and made into bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import redis.asyncio

from falconweb.perf.figures import Figure
from falconweb.perf.place import CannotMeasureError, cpu_seconds
from falconweb.perf.servers import Crowd, Feed
from telemetry.live import News
from telemetry.polling.outbox import Outbox

CHASSIS = (1, 10, 100, 1000)
SOCKETS = 2000
SERIES, MOVING = 400, 0.6
SPREAD_SECONDS = 0.5
WARM_SECONDS, MEASURED_SECONDS = 3, 10
MOST_P99_MS = 120.0


@dataclass
class Publisher:
    """What frames are published by: the outbox's holder has the chassis."""

    bus: redis.asyncio.Redis
    outbox: Outbox

    async def seconds(self, feeds: Sequence[Feed], count: int) -> None:
        """Publish the frames of so many seconds."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for second in range(count):
            under_way = []
            for place, feed in enumerate(feeds):
                due = begin + second + SPREAD_SECONDS * place / len(feeds)
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                under_way.append(asyncio.create_task(self.outbox.publish(News(feed.next()[0]))))
            await asyncio.gather(*under_way)
        await asyncio.sleep(begin + count - loop.time())


async def measure_spread(
    say: Callable[[str], None],
    crowd_made: Callable[[], Awaitable[Crowd]],
    publisher: Publisher,
    pid: int,
    numbers: Sequence[int],
) -> list[Figure]:
    """Return the figures of the web process `pid`, with crowds made anew and the chassis of these numbers."""
    feeds = [Feed(publisher.bus, number) for number in numbers]
    for feed in feeds:
        await feed.shape(SERIES, MOVING)
    figures = []
    for count in CHASSIS:
        say(f"{SOCKETS:,} sockets on {count:,} chassis")
        crowd = await crowd_made()
        try:
            greetings = [json.dumps({"subscribe": [number]}) for number in numbers[:count]]
            await crowd.ask("open", count=SOCKETS, greetings=greetings)
            await publisher.seconds(feeds[:count], WARM_SECONDS)
            await crowd.ask("begin")
            before = cpu_seconds(pid)
            await publisher.seconds(feeds[:count], MEASURED_SECONDS)
            spent = cpu_seconds(pid) - before
            noted = await crowd.ask("report")
        finally:
            await crowd.end()
        if not noted["frames"]:
            raise CannotMeasureError(f"no frame of {count:,} chassis came through.")
        what = f"{SOCKETS:,} sockets on {count:,} chassis"
        received = noted["frames"] / SOCKETS / MEASURED_SECONDS
        figures += [
            Figure(name="fanout", figure=f"CPU, {what}", value=spent / MEASURED_SECONDS * 1e3, unit="ms/s"),
            Figure(name="fanout", figure=f"p50 late, {what}", value=noted["p50"] * 1e3, unit="ms"),
            Figure(name="fanout", figure=f"p99 late, {what}", value=noted["p99"] * 1e3, unit="ms", most=MOST_P99_MS),
            Figure(name="fanout", figure=f"received, {what}", value=received * 100, unit="%", least=99.0),
        ]
    return figures
