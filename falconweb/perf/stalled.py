"""What a browser that stops reading costs the others: frames received and how late, without it and with it.

It is felt only once the kernel holds no more for it, so that frames are larger and come faster here than in life.
"""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path
from typing import Any

from falconweb.perf.figures import Figure
from falconweb.perf.place import CannotMeasureError
from falconweb.perf.servers import Crowd, Feed
from telemetry.live import News
from telemetry.polling.outbox import Outbox

OTHERS = 100
SERIES = 8000  # 64 KB a frame
FRAMES_A_SECOND = 20
MEASURED_SECONDS = 5.0
FILLING_SECONDS = 8.0
LEAST_RECEIVED = 99.0  # %
ESTABLISHED = "01"


async def measure_stalled(crowd: Crowd, feed: Feed, outbox: Outbox) -> list[Figure]:
    """Return the figures, from a crowd that has no socket open yet; the outbox's holder has the chassis of the feed."""
    await feed.shape(SERIES, 1.0)
    await crowd.ask("open", count=OTHERS)
    await _publish(feed, outbox, seconds=1.0)
    without = [await _look(crowd, feed, outbox)]
    port = (await crowd.ask("stall"))["port"]
    await _publish(feed, outbox, seconds=FILLING_SECONDS)
    held = _held_for(port)
    stalled = await _look(crowd, feed, outbox)
    if not held or _held_for(port) != held:
        raise CannotMeasureError(f"the socket that stops reading did not fill up ({held} B, then {_held_for(port)} B).")
    await crowd.ask("release")
    await _publish(feed, outbox, seconds=1.0)
    without.append(await _look(crowd, feed, outbox))
    figures = []
    for name, figure, unit, factor, least in (
        ("received", "received by the one that got fewest", "%", 100.0, LEAST_RECEIVED),
        ("p99", "p99 late", "ms", 1000.0, None),
    ):
        figures.append(
            Figure(
                name="fanout",
                figure=f"{figure}, {OTHERS} sockets beside one that stopped reading",
                value=stalled[name] * factor,
                unit=unit,
                beside="without it",
                beside_value=statistics.mean(one[name] for one in without) * factor,
                least=least,
            )
        )
    return figures


async def _look(crowd: Crowd, feed: Feed, outbox: Outbox) -> dict[str, Any]:
    await asyncio.sleep(0.5)
    await crowd.ask("begin")
    sent = await _publish(feed, outbox, seconds=MEASURED_SECONDS)
    await asyncio.sleep(0.5)
    noted: dict[str, Any] = await crowd.ask("report")
    return {**noted, "received": noted["fewest"] / sent}


async def _publish(feed: Feed, outbox: Outbox, *, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    count = round(seconds * FRAMES_A_SECOND)
    begin = loop.time()
    for number in range(count):
        await outbox.publish(News(feed.next()[0]))
        await asyncio.sleep(begin + (number + 1) / FRAMES_A_SECOND - loop.time())
    return count


def _held_for(port: int) -> int:
    """Return the bytes that the kernel holds for the socket of that client port, 0 where it is not open."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, queues = line.split()[:5]
        if remote.endswith(f":{port:04X}") and state == ESTABLISHED:
            return int(queues.partition(":")[0], 16)
    return 0
