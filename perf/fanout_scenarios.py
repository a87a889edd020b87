"""Scenarios of the fan-out: more chassis, and a browser that stops reading.

Each chassis has a frame per second, published as by a worker: sequentially, spread over half of the second. The number
of frames per socket is the same for any number of chassis; the number read from Redis and encoded grows.

A stalled socket has an effect only when the kernel's buffers are full, so frames are larger and more frequent here than
in practice.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis.asyncio

from perf.environment import CannotMeasureError, cpu_seconds
from perf.figures import PerfFigure
from perf.servers import FrameSource, LoadGeneratorProcess
from telemetry.live.frames import FrameOutbox, FrameUpdate

SPREAD_CHASSIS = (1, 10, 100, 1000)
SOCKETS = 2000
SERIES, MOVING = 400, 0.6
SPREAD_SECONDS = 0.5
WARM_SECONDS, MEASURED_SECONDS = 3, 10
MOST_P99_MS = 120.0


@dataclass
class SpreadPublisher:
    """Publishes frames; the outbox's owner has claimed the chassis."""

    bus: redis.asyncio.Redis
    outbox: FrameOutbox

    async def seconds(self, feeds: Sequence[FrameSource], count: int) -> None:
        """Publish the frames of this many seconds."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for second in range(count):
            under_way = []
            for place, feed in enumerate(feeds):
                due = begin + second + SPREAD_SECONDS * place / len(feeds)
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                under_way.append(asyncio.create_task(self.outbox.publish(FrameUpdate(feed.next()[0]))))
            await asyncio.gather(*under_way)
        await asyncio.sleep(begin + count - loop.time())


async def measure_spread(
    say: Callable[[str], None],
    start_generator: Callable[[], Awaitable[LoadGeneratorProcess]],
    publisher: SpreadPublisher,
    pid: int,
    numbers: Sequence[int],
) -> list[PerfFigure]:
    """Return the figures of the web process `pid`, with new load generators and these numbers of chassis."""
    feeds = [FrameSource(publisher.bus, number) for number in numbers]
    for feed in feeds:
        await feed.shape(SERIES, MOVING)
    figures = []
    for count in SPREAD_CHASSIS:
        say(f"{SOCKETS:,} sockets on {count:,} chassis")
        generator = await start_generator()
        try:
            greetings = [json.dumps({"subscribe": [number]}) for number in numbers[:count]]
            await generator.ask("open", count=SOCKETS, greetings=greetings)
            await publisher.seconds(feeds[:count], WARM_SECONDS)
            await generator.ask("begin")
            before = cpu_seconds(pid)
            await publisher.seconds(feeds[:count], MEASURED_SECONDS)
            spent = cpu_seconds(pid) - before
            noted = await generator.ask("report")
        finally:
            await generator.end()
        if not noted["frames"]:
            raise CannotMeasureError(f"no frame of {count:,} chassis came through.")
        what = f"{SOCKETS:,} sockets on {count:,} chassis"
        received = noted["frames"] / SOCKETS / MEASURED_SECONDS
        figures += [
            PerfFigure(f"CPU, {what}", spent / MEASURED_SECONDS * 1e3, "ms/s"),
            PerfFigure(f"p50 late, {what}", noted["p50"] * 1e3, "ms"),
            PerfFigure(f"p99 late, {what}", noted["p99"] * 1e3, "ms", most=MOST_P99_MS),
            PerfFigure(f"received, {what}", received * 100, "%", least=99.0),
        ]
    return figures


OTHERS = 100
STALLED_SERIES = 8000  # 64 KB a frame
FRAMES_A_SECOND = 20
STALLED_SECONDS = 5.0
FILLING_SECONDS = 8.0
MIN_RECEIVED = 99.0  # %
ESTABLISHED = "01"


async def measure_stalled(generator: LoadGeneratorProcess, feed: FrameSource, outbox: FrameOutbox) -> list[PerfFigure]:
    """Return the figures, from a load generator without open sockets; the outbox's owner has claimed the chassis."""
    await feed.shape(STALLED_SERIES, 1.0)
    await generator.ask("open", count=OTHERS)
    await _publish(feed, outbox, seconds=1.0)
    without = [await _measure_once(generator, feed, outbox)]
    port = (await generator.ask("stall"))["port"]
    await _publish(feed, outbox, seconds=FILLING_SECONDS)
    held = _kernel_buffered(port)
    stalled = await _measure_once(generator, feed, outbox)
    if not held or _kernel_buffered(port) != held:
        raise CannotMeasureError(
            f"the socket that stops reading did not fill up ({held} B, then {_kernel_buffered(port)} B)."
        )
    await generator.ask("release")
    await _publish(feed, outbox, seconds=1.0)
    without.append(await _measure_once(generator, feed, outbox))
    return [
        PerfFigure(
            f"{figure}, {OTHERS} sockets beside one that stopped reading",
            stalled[name] * factor,
            unit,
            beside="without it",
            beside_value=statistics.mean(one[name] for one in without) * factor,
            least=least,
        )
        for name, figure, unit, factor, least in (
            ("received", "received by the one that got fewest", "%", 100.0, MIN_RECEIVED),
            ("p99", "p99 late", "ms", 1000.0, None),
        )
    ]


async def _measure_once(generator: LoadGeneratorProcess, feed: FrameSource, outbox: FrameOutbox) -> dict[str, Any]:
    await asyncio.sleep(0.5)
    await generator.ask("begin")
    sent = await _publish(feed, outbox, seconds=STALLED_SECONDS)
    await asyncio.sleep(0.5)
    noted: dict[str, Any] = await generator.ask("report")
    return {**noted, "received": noted["fewest"] / sent}


async def _publish(feed: FrameSource, outbox: FrameOutbox, *, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    count = round(seconds * FRAMES_A_SECOND)
    begin = loop.time()
    for number in range(count):
        await outbox.publish(FrameUpdate(feed.next()[0]))
        await asyncio.sleep(begin + (number + 1) / FRAMES_A_SECOND - loop.time())
    return count


def _kernel_buffered(port: int) -> int:
    """Return the bytes that the kernel buffers for the socket of a client port, 0 where it is not open."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, queues = line.split()[:5]
        if remote.endswith(f":{port:04X}") and state == ESTABLISHED:
            return int(queues.partition(":")[0], 16)
    return 0
