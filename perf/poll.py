"""The cost of a reading, from the GET to the published frame, compared with a client that only fetches and parses it.

CPU time of this process only, so the speed of the simulated chassis has no influence. Then the cost of a thousand
chassis for the site's workers (perf.fleet).
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import redis.asyncio
import uvloop
from django.conf import settings

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.readings import DECODER, ReportPlan, plan_readings
from fabric.bmc.transport import client_tls
from fabric.bmc.types import BmcAddress
from falconweb.launch.processes import raise_file_limit
from falconweb.testing import SimulatorProcess
from perf.chassis import bmc_address
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from perf.fleet import measure_fleet
from telemetry.live.catalogue import SeriesCatalogue
from telemetry.live.frames import Frame, FrameOutbox, FrameUpdate, set_catalogue

CHASSIS = 8
ROUNDS = 9
POLLS = 50  # per chassis and round
HOLDER = "perf"
MAX_RATIO = 3.0

Poll = Callable[[], Awaitable[None]]


def measure(say: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of polling."""
    raise_file_limit()
    with SimulatorProcess("--chassis-count", str(CHASSIS), own=True) as simulator:
        addresses = [bmc_address(simulator, address) for address in simulator.addresses]
        say(f"{CHASSIS} chassis, {ROUNDS} rounds of {POLLS} polls each")
        figures = uvloop.run(_measure(addresses))
    return figures + measure_fleet(say)


async def _measure(addresses: list[BmcAddress]) -> list[PerfFigure]:
    async with AsyncExitStack() as stack:
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        stack.push_async_callback(bus.aclose)
        outbox = FrameOutbox(bus, HOLDER)
        ours, bares = [], []
        size = series = 0
        for number, address in enumerate(addresses, 1):
            bmc = await stack.enter_async_context(BmcClient(address))
            inventory = await discover(bmc)
            plan = await plan_readings(bmc, inventory)
            if not isinstance(plan, ReportPlan):
                raise CannotMeasureError("the simulated chassis are not read by one report.")
            uri = inventory.service.metric_report_uris[0]
            series, size = len(plan.series), len(await bmc.get_bytes(uri))
            await bus.set(f"polling:{number}", HOLDER)
            stack.push_async_callback(bus.delete, f"polling:{number}")
            ours.append(await _as_the_site(bmc, plan, number, bus, outbox))
            bares.append(await _bare(stack, address, uri, series))
        site, bare = await _rounds(ours, bares)
    what = f"a report of {size / 1000:.0f} kB, {series} series"
    beside = "bare aiohttp and msgspec"
    return [
        PerfFigure(
            f"CPU a poll, {what}", site * 1e6, "us", beside=beside, beside_value=bare * 1e6, most_ratio=MAX_RATIO
        ),
        PerfFigure(f"chassis a second and core, {what}", 1 / site, "1/s", beside=beside, beside_value=1 / bare),
    ]


async def _as_the_site(
    bmc: BmcClient, plan: ReportPlan, number: int, bus: redis.asyncio.Redis, outbox: FrameOutbox
) -> Poll:
    """Return a function that polls once, as the worker's loop does (telemetry.polling)."""
    catalogue = SeriesCatalogue(plan.series, {})
    revision = await set_catalogue(bus, number, catalogue.entries)
    numbers = itertools.count(1)

    async def poll() -> None:
        sample = catalogue.sample(await plan.read(bmc))
        frame = Frame(revision, number, next(numbers), sample.at, sample.values)
        await outbox.publish(FrameUpdate(frame, catalogue.counters(sample)))

    return poll


async def _bare(stack: AsyncExitStack, address: BmcAddress, uri: str, series: int) -> Poll:
    """Return a function that fetches and decodes the same report into the same types, over a persistent connection."""
    session = await stack.enter_async_context(
        aiohttp.ClientSession(address.url, connector=aiohttp.TCPConnector(limit=1, ssl=client_tls(address.trust)))
    )
    credentials = {"UserName": address.username, "Password": address.password}
    async with session.post("/redfish/v1/SessionService/Sessions", json=credentials) as response:
        headers = {"X-Auth-Token": response.headers["X-Auth-Token"]}

    async def poll() -> None:
        async with session.get(uri, headers=headers) as response:
            if len(DECODER.decode(await response.read()).metric_values) < series:
                raise CannotMeasureError("the bare client got another report.")

    return poll


async def _rounds(ours: list[Poll], bares: list[Poll]) -> tuple[float, float]:
    """Return the CPU time in s per poll, of the site and the bare client: medians of alternating rounds."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for polls, kept in zip((ours, bares), spent, strict=True):
            begin = time.process_time()
            await asyncio.gather(*(_repeat(poll) for poll in polls))
            kept.append((time.process_time() - begin) / len(polls) / POLLS)
    # Warm-up round.
    return statistics.median(spent[0][1:]), statistics.median(spent[1][1:])


async def _repeat(poll: Poll) -> None:
    for _ in range(POLLS):
        await poll()
