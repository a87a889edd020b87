"""One frame per second to two thousand browsers: latency and CPU time, compared with Channels and a bare server.

All three servers run in parallel and send the same bytes, those of the site, in alternation. Publisher and browsers are
on one machine, so that latencies are measured with one clock.

Then more chassis: each has a frame per second, published as by a worker, sequentially and spread over half of it. The
number of frames per socket stays the same; the number read from Redis and encoded grows. And a browser that stops
reading: it has an effect only when the kernel's buffers are full, so frames are larger and more frequent than in
practice.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis.asyncio
from channels_redis.core import RedisChannelLayer
from django.conf import settings

from fabric.inventory.models import Chassis
from falconweb.launch.processes import ChildProcess, raise_file_limit, terminate_all
from perf.environment import CannotMeasureError, cpu_seconds
from perf.figures import PerfFigure
from perf.servers import FrameSource, LoadGeneratorProcess, create_session, start_bare, start_web
from telemetry.live.frames import Frame, FrameOutbox, FrameUpdate

HOLDER = "perf"
SITE, CHANNEL_LAYER, BARE = "site", "channel layer", "bare picows"
ROUNDS = 3
FRAMES = 8  # per round, one per second
# A frame is processed within this part of its second; CPU time in the rest of it is the cost without frames.
BUSY_SECONDS = 0.5
SETTLE_SECONDS = 3.0
REST_SECONDS = 60.0  # two sweeps of the sockets' access
PEOPLE = 250  # whose sessions the sockets have
MAX_RATIO = {CHANNEL_LAYER: 1 / 6, BARE: 1.6}
MOST_REST_MS = 10.0  # of a second, for a thousand sockets without frames
MAX_P99_RATIO = {BARE: 1.25}


@dataclass(frozen=True)
class FanoutLoad:
    """A number of sockets, and frames of a number of series, of which the share `moving` changes per frame.

    `beside` are the other servers that can sustain it: they must send each second's frame within half a second.
    """

    sockets: int
    series: int
    moving: float
    beside: tuple[str, ...] = (CHANNEL_LAYER, BARE)


# The third is 8 KB a frame.
LOADS = (
    FanoutLoad(500, 400, 0.6),
    FanoutLoad(1000, 400, 0.6),
    FanoutLoad(1000, 1000, 1.0),
    FanoutLoad(2000, 400, 0.6, (BARE,)),
)
RESTING = LOADS[1]


@dataclass
class FanoutServer:
    """One of the servers: its process, its load generator, and its frame source."""

    pid: int
    generator: LoadGeneratorProcess
    publish: Callable[[Frame, bytes], Awaitable[None]]


@dataclass(frozen=True)
class FanoutRound:
    """The results of a server in one round.

    `cost` is CPU time in s per delivery, `rest` CPU time in s per second without frames, `p50` and `p99` are latencies
    in s, `size` is bytes per frame, `received` the share of the frames that arrived.
    """

    cost: float
    rest: float
    p50: float
    p99: float
    size: float
    received: float


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of fan-out; reports its progress to `log`. Takes some minutes."""
    raise_file_limit()
    cookies = [f"{settings.SESSION_COOKIE_NAME}={create_session(f'perf-{n}')}" for n in range(PEOPLE)]
    many = range(1, max(SPREAD_CHASSIS) + 1)
    Chassis.objects.bulk_create(Chassis(name=f"perf-{n}", url=f"https://127.0.0.1:{n}", enabled=False) for n in many)
    return asyncio.run(_measure(log, cookies, list(Chassis.objects.order_by("pk").values_list("pk", flat=True))))


async def _measure(log: Callable[[str], None], cookies: list[str], numbers: Sequence[int]) -> list[PerfFigure]:
    chassis, other_chassis = numbers[:2]
    bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    outbox = FrameOutbox(bus, HOLDER)
    children: list[ChildProcess] = []
    generators: list[LoadGeneratorProcess] = []
    try:
        await bus.mset({f"polling:{number}": HOLDER for number in numbers})
        site, port = await start_web("site", "falconweb.asgi:application")
        children.append(site)
        live = f"ws://127.0.0.1:{port}/ws/live/"
        generators.append(await LoadGeneratorProcess.start(live, cookies, _greeting(chassis)))
        servers = await _start_all(bus, outbox, children, generators)
        figures = await _loads(log, FrameSource(bus, chassis), servers)
        for generator in generators:
            await generator.end()
        log("one that stops reading")
        generator = await LoadGeneratorProcess.start(live, cookies, _greeting(other_chassis))
        generators.append(generator)
        figures += await _measure_stalled(generator, FrameSource(bus, other_chassis), outbox)
        await generator.end()
        made = partial(LoadGeneratorProcess.start, live, cookies)
        return figures + await _measure_spread(log, made, SpreadPublisher(bus, outbox), site.pid, numbers)
    finally:
        for generator in generators:
            await generator.end()
        terminate_all(children)
        await outbox.close()
        await bus.delete(*(f"polling:{number}" for number in numbers))
        await bus.aclose()


def _greeting(chassis: int) -> str:
    return json.dumps({"subscribe": [chassis]})


async def _start_all(
    bus: redis.asyncio.Redis, outbox: FrameOutbox, children: list[ChildProcess], generators: list[LoadGeneratorProcess]
) -> dict[str, FanoutServer]:
    """Start the other servers, and return them after the site's own."""
    from perf import reference_servers

    layer = RedisChannelLayer(**reference_servers.layers()["default"]["CONFIG"])

    async def by_hub(frame: Frame, _: bytes) -> None:
        await outbox.publish(FrameUpdate(frame))

    async def by_group(_: Frame, raw: bytes) -> None:
        await layer.group_send(reference_servers.GROUP, {"type": "frame.now", "raw": raw})

    async def by_channel(_: Frame, raw: bytes) -> None:
        await bus.publish(reference_servers.CHANNEL, raw)

    servers = {SITE: FanoutServer(children[0].pid, generators[0], by_hub)}
    for name, started, publish in (
        (CHANNEL_LAYER, await start_web("stock", "perf.reference_servers:application"), by_group),
        (BARE, await start_bare("bare"), by_channel),
    ):
        child, port = started
        children.append(child)
        generators.append(await LoadGeneratorProcess.start(f"ws://127.0.0.1:{port}/"))
        servers[name] = FanoutServer(child.pid, generators[-1], publish)
    return servers


async def _loads(log: Callable[[str], None], feed: FrameSource, servers: dict[str, FanoutServer]) -> list[PerfFigure]:
    figures: list[PerfFigure] = []
    opened = 0
    for load in LOADS:
        log(f"{load.sockets:,} sockets, {load.series:,} series")
        await feed.shape(load.series, load.moving)
        for server in servers.values() if load.sockets > opened else ():
            await server.generator.command("open", count=load.sockets - opened)
        opened = load.sockets
        await asyncio.sleep(SETTLE_SECONDS)
        rounds: dict[str, list[FanoutRound]] = {name: [] for name in (SITE, *load.beside)}
        for _ in range(ROUNDS):
            for name, server in ((name, servers[name]) for name in rounds):
                rounds[name].append(await _round(name, server, feed, load))
        medians = {name: _median(those) for name, those in rounds.items()}
        figures += _figures(load, medians)
        if load is RESTING:
            log("without frames")
            figures += _whole_figures(load, medians, await _resting_cost(servers))
    return figures


async def _resting_cost(servers: dict[str, FanoutServer]) -> dict[str, float]:
    """Return the CPU time in s that each server spends in a second without frames, all of them at the same time."""
    before = {name: cpu_seconds(server.pid) for name, server in servers.items()}
    await asyncio.sleep(REST_SECONDS)
    return {name: (cpu_seconds(server.pid) - before[name]) / REST_SECONDS for name, server in servers.items()}


def _whole_figures(load: FanoutLoad, found: dict[str, FanoutRound], rest: dict[str, float]) -> list[PerfFigure]:
    whole = {name: rest[name] + one.cost * load.sockets for name, one in found.items()}
    return [
        PerfFigure(
            f"{figure}, {load.sockets:,} sockets", values[SITE] * 1e3, "ms/s",
            beside=beside, beside_value=values[beside] * 1e3, most=most,
        )
        for figure, values, most in (
            ("CPU without frames", rest, MOST_REST_MS), ("CPU with a frame a second", whole, None),
        )
        for beside in load.beside
    ]  # fmt: skip


async def _round(name: str, server: FanoutServer, feed: FrameSource, load: FanoutLoad) -> FanoutRound:
    loop = asyncio.get_running_loop()
    # The first is a key frame, which is not typical of each second.
    await server.publish(*feed.next())
    await asyncio.sleep(1.0)
    await server.generator.command("begin")
    busy = rest = 0.0
    for _ in range(FRAMES):
        begin = loop.time()
        before = cpu_seconds(server.pid)
        await server.publish(*feed.next())
        await asyncio.sleep(begin + BUSY_SECONDS - loop.time())
        between = cpu_seconds(server.pid)
        await asyncio.sleep(begin + 1.0 - loop.time())
        busy += between - before
        rest += cpu_seconds(server.pid) - between
    noted = await server.generator.command("report")
    if not noted["frames"]:
        raise CannotMeasureError(f"{name}: no frame came through.")
    rest_a_second = rest / FRAMES / (1.0 - BUSY_SECONDS)
    return FanoutRound(
        cost=(busy - rest_a_second * BUSY_SECONDS * FRAMES) / noted["frames"],
        rest=rest_a_second,
        p50=noted["p50"],
        p99=noted["p99"],
        size=noted["bytes"],
        received=noted["frames"] / load.sockets / FRAMES,
    )


def _median(rounds: list[FanoutRound]) -> FanoutRound:
    names = FanoutRound.__dataclass_fields__
    return FanoutRound(**{name: statistics.median(getattr(one, name) for one in rounds) for name in names})


def _figures(load: FanoutLoad, found: dict[str, FanoutRound]) -> list[PerfFigure]:
    site = found[SITE]
    what = f"{load.sockets:,} sockets, {site.size:,.0f} B a frame"

    def compared(beside: str, figure: str, unit: str, value: Callable[[FanoutRound], float], **bars: Any) -> PerfFigure:
        return PerfFigure(
            f"{figure}, {what}", value(site), unit, beside=beside, beside_value=value(found[beside]), **bars
        )

    figures = []
    for beside in load.beside:
        # Without equal sizes the ratios would be meaningless.
        if abs(found[beside].size - site.size) > 0.05 * site.size:
            raise CannotMeasureError(f"the site sends {site.size:.0f} B a frame, {beside} {found[beside].size:.0f} B.")
        cost = compared(beside, "CPU a delivery", "us", lambda one: one.cost * 1e6, most_ratio=MAX_RATIO[beside])
        figures.append(cost)
    for beside in load.beside:
        figures.append(compared(beside, "p50 late", "ms", lambda one: one.p50 * 1e3))
        limit = MAX_P99_RATIO.get(beside)
        figures.append(compared(beside, "p99 late", "ms", lambda one: one.p99 * 1e3, most_ratio=limit))
    beside = load.beside[0]
    return [*figures, compared(beside, "received", "%", lambda one: one.received * 100)]


SPREAD_CHASSIS = (1, 10, 100, 1000)
SOCKETS = 2000
SERIES, MOVING = 400, 0.6
SPREAD_SECONDS = 0.5
# Subscriptions are answered from the database, and the last of them some seconds after the sockets are open.
WARM_SECONDS, MEASURED_SECONDS = 12, 10
SPREAD_MOST_P99_MS = 120.0


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


async def _measure_spread(
    log: Callable[[str], None],
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
        log(f"{SOCKETS:,} sockets on {count:,} chassis")
        generator = await start_generator()
        try:
            greetings = [json.dumps({"subscribe": [number]}) for number in numbers[:count]]
            await generator.command("open", count=SOCKETS, greetings=greetings)
            await publisher.seconds(feeds[:count], WARM_SECONDS)
            await generator.command("begin")
            before = cpu_seconds(pid)
            await publisher.seconds(feeds[:count], MEASURED_SECONDS)
            spent = cpu_seconds(pid) - before
            noted = await generator.command("report")
        finally:
            await generator.end()
        if not noted["frames"]:
            raise CannotMeasureError(f"no frame of {count:,} chassis came through.")
        what = f"{SOCKETS:,} sockets on {count:,} chassis"
        received = noted["frames"] / SOCKETS / MEASURED_SECONDS
        figures += [
            PerfFigure(f"CPU, {what}", spent / MEASURED_SECONDS * 1e3, "ms/s"),
            PerfFigure(f"p50 late, {what}", noted["p50"] * 1e3, "ms"),
            PerfFigure(f"p99 late, {what}", noted["p99"] * 1e3, "ms", most=SPREAD_MOST_P99_MS),
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


async def _measure_stalled(generator: LoadGeneratorProcess, feed: FrameSource, outbox: FrameOutbox) -> list[PerfFigure]:
    """Return the figures, from a load generator without open sockets; the outbox's owner has claimed the chassis."""
    await feed.shape(STALLED_SERIES, 1.0)
    await generator.command("open", count=OTHERS)
    await _publish(feed, outbox, seconds=1.0)
    without = [await _measure_once(generator, feed, outbox)]
    port = (await generator.command("stall"))["port"]
    await _publish(feed, outbox, seconds=FILLING_SECONDS)
    held = _kernel_buffered(port)
    stalled = await _measure_once(generator, feed, outbox)
    if not held or _kernel_buffered(port) != held:
        raise CannotMeasureError(
            f"the socket that stops reading did not fill up ({held} B, then {_kernel_buffered(port)} B)."
        )
    await generator.command("release")
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
    await generator.command("begin")
    sent = await _publish(feed, outbox, seconds=STALLED_SECONDS)
    await asyncio.sleep(0.5)
    noted: dict[str, Any] = await generator.command("report")
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
