"""The cost of a reading, from the GET to the published frame, compared with a client that only fetches and parses it.

CPU time of this process only, so the speed of the simulated chassis has no influence.

Then a thousand chassis at 1 Hz: the workers of the site, in production mode, poll simulated BMCs over HTTPS. A listener
to the frames judges from outside whether a poll is on time: the frame of a second must arrive before the second ends,
or before the period ends where the machine bears a longer one. The environment variables PERF_CHASSIS and PERF_WORKERS
change the size. At last a tenth as many again are dead: half of them refuse a connection, half take it and stay silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import aiohttp
import redis
import redis.asyncio
import uvloop
from django.conf import settings
from django.db import connections

from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.metric_report import DECODER
from fabric.bmc.readings import ReportPlan, plan_readings
from fabric.bmc.transport import client_tls
from fabric.inventory.models import Chassis
from falconweb.launch.commands import SCHEDULER_COMMAND, worker_command
from falconweb.launch.processes import ChildProcess, raise_file_limit, terminate_all
from falconweb.testing import SimulatorProcess
from perf.chassis import bmc_address, new_chassis
from perf.environment import CannotMeasureError, cpu_seconds
from perf.figures import PerfFigure
from perf.servers import start_process
from telemetry.live.catalogue import SeriesCatalogue
from telemetry.live.frames import HEADER, Frame, FrameOutbox, FrameUpdate, set_catalogue

CHASSIS = 8
ROUNDS = 9
POLLS = 50  # per chassis and round
HOLDER = "perf"
MAX_RATIO = 1.5
SHORT = {"ROUNDS": 5, "POLLS": 25, "FLEET_CHASSIS": 0}

Poll = Callable[[], Awaitable[None]]


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of polling."""
    raise_file_limit()
    with SimulatorProcess("--chassis-count", str(CHASSIS), own=True) as simulator:
        addresses = [bmc_address(simulator, address) for address in simulator.addresses]
        log(f"{CHASSIS} chassis, {ROUNDS} rounds of {POLLS} polls each")
        figures = uvloop.run(_measure(addresses))
    return figures + (_measure_fleet(log) if FLEET_CHASSIS else [])


async def _measure(addresses: list[BmcAddress]) -> list[PerfFigure]:
    async with contextlib.AsyncExitStack() as stack:
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
    what = f"a report of {round(size, -4) // 1000} kB, {series} series"
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
        await outbox.publish(FrameUpdate(frame, sample.byte_counters))

    return poll


async def _bare(stack: contextlib.AsyncExitStack, address: BmcAddress, uri: str, series: int) -> Poll:
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


FLEET_CHASSIS = 1000
STAGES = (1, 10, 100)  # and then all
DEAD_SHARE = 10  # of so many living ones, one dead
HOST = "127.0.0.1"
WORKERS = 3
CHASSIS_PER_SIMULATOR = 250  # chassis per process of the simulator
CELERY = "falconweb.celery:application"
READ_SECONDS = 600.0  # s within which all chassis must have been read
SETTLE_SECONDS = 45.0  # first walks and looks are over
MEASURED_SECONDS = 30
MIN_ON_TIME = 99.0  # %
SEQUENCE, AT = 4, 5  # indices of a frame header's fields


@dataclass
class ReceivedFrames:
    """Frames as a listener receives them: by (chassis, second) the arrival time and the frame's own, Unix s."""

    came: dict[tuple[int, int], tuple[float, float]]
    twice: int = 0


@dataclass(frozen=True)
class FleetProcesses:
    """The PIDs of the measured processes."""

    workers: Sequence[int]
    broker: int
    simulators: Sequence[int]

    def spent(self) -> tuple[float, float, float]:
        """Return the CPU time in s so far of the workers, the broker and the simulators."""
        return sum(map(cpu_seconds, self.workers)), cpu_seconds(self.broker), sum(map(cpu_seconds, self.simulators))


def _measure_fleet(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of 1, 10, 100 and all chassis; takes some minutes."""
    most = int(os.environ.get("PERF_CHASSIS") or FLEET_CHASSIS)
    workers = int(os.environ.get("PERF_WORKERS") or WORKERS)
    log(f"{most:,} simulated chassis")
    with contextlib.ExitStack() as stack:
        simulators = [stack.enter_context(one) for one in _simulators(most)]
        Chassis.objects.bulk_create(_new_rows(simulators))
        children = _start(workers)
        client = redis.Redis.from_url(settings.REDIS_URL)
        broker = int(cast("dict[str, int]", client.info("server"))["process_id"])
        processes = FleetProcesses(
            [child.pid for child in children[:workers]], broker, [one.process.pid for one in simulators]
        )
        figures: list[PerfFigure] = []
        try:
            stages = [(count, 0) for count in sorted({min(count, most) for count in (*STAGES, most)})]
            for count, dead in (*stages, (most, most // DEAD_SHARE)):
                log(f"{count:,} chassis, {dead} dead ones, {workers} workers")
                Chassis.objects.filter(pk__in=Chassis.objects.order_by("pk")[:count].values("pk")).update(enabled=True)
                Chassis.objects.bulk_create(_dead_rows(stack, dead))
                connections.close_all()
                figures += asyncio.run(_measure_stage(count, processes, dead=dead, is_all=count == most))
                if ended := [child.name for child in children if not child.alive]:
                    raise CannotMeasureError(f"{ended[0]} ended: {children[0].log.read_text()[-2000:]}")
        finally:
            terminate_all(children)
            client.close()
    return figures


def _simulators(count: int) -> Iterator[SimulatorProcess]:
    """Start processes with this many simulated chassis in all."""
    for begin in range(0, count, CHASSIS_PER_SIMULATOR):
        size = min(CHASSIS_PER_SIMULATOR, count - begin)
        yield SimulatorProcess("--chassis-count", str(size), "--seed", str(begin + 1), own=True)


def _new_rows(simulators: Sequence[SimulatorProcess]) -> list[Chassis]:
    addresses = [(simulator, address) for simulator in simulators for address in simulator.addresses]
    return [
        new_chassis(simulator, f"perf-{number:04}", address) for number, (simulator, address) in enumerate(addresses, 1)
    ]


def _dead_rows(stack: contextlib.ExitStack, count: int) -> Iterator[Chassis]:
    """Return the rows of BMCs that are dead while the stack lasts, one after the other silent and refusing."""
    for number in range(count):
        place = stack.enter_context(socket.socket())
        place.bind((HOST, 0))
        if number % 2 == 0:
            place.listen()
        yield Chassis(name=f"dead-{number:04}", url=f"https://{HOST}:{place.getsockname()[1]}", enabled=True)


def _start(workers: int) -> list[ChildProcess]:
    numbers = range(1, workers + 1)
    commands = {f"worker-{number}": worker_command(CELERY, number) for number in numbers}
    return [start_process(name, command) for name, command in {**commands, "beat": [*SCHEDULER_COMMAND]}.items()]


async def _measure_stage(count: int, processes: FleetProcesses, *, dead: int, is_all: bool) -> list[PerfFigure]:
    received = ReceivedFrames({})
    listening = asyncio.create_task(_listen(received))
    try:
        began = time.monotonic()
        while (read := len({chassis for chassis, _ in received.came})) < count:
            if time.monotonic() - began > READ_SECONDS:
                raise CannotMeasureError(f"{read} of {count} chassis were read within {READ_SECONDS:.0f} s.")
            await asyncio.sleep(0.5)
        until_read = time.monotonic() - began
        await asyncio.sleep(SETTLE_SECONDS)
        received.came.clear()
        received.twice = 0
        first = int(time.time()) + 1
        await asyncio.sleep(first - time.time())
        before = processes.spent()
        await asyncio.sleep(first + MEASURED_SECONDS - time.time())
        after = processes.spent()
        await asyncio.sleep(1.0)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    if received.twice:
        raise CannotMeasureError(f"{received.twice} frames came twice.")
    what = f"{count:,} chassis" + (f", {dead} dead beside them" if dead else "")
    return [
        *_frames(what, count, received, first, is_all=is_all),
        PerfFigure(f"all read after, {what}", until_read, "s"),
        *_costs(what, count, processes, [late - early for early, late in zip(before, after, strict=True)]),
    ]


async def _listen(received: ReceivedFrames) -> None:
    async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as bus, bus.pubsub() as pubsub:
        await pubsub.psubscribe("live:[0-9]*")
        async for message in pubsub.listen():
            if message["type"] == "pmessage":
                header = HEADER.unpack_from(message["data"])
                key = int(message["channel"].rpartition(b":")[2]), header[SEQUENCE]
                received.twice += key in received.came
                received.came[key] = time.time(), header[AT]


def _frames(what: str, count: int, received: ReceivedFrames, first: int, *, is_all: bool) -> list[PerfFigure]:
    mine = {key: times for key, times in received.came.items() if first <= key[1] < first + MEASURED_SECONDS}
    periods = _periods(mine)
    period = max(1.0, statistics.median(periods))
    on_time = sum(came < second + period for (_, second), (came, _) in mine.items())
    share = 100 * min(1.0, on_time * period / (count * MEASURED_SECONDS))
    lags = [came - at for came, at in mine.values()]
    offsets: dict[int, list[float]] = defaultdict(list)  # a chassis has a moment of its own within the period
    for (chassis, second), (came, _) in mine.items():
        offsets[chassis].append(came - second)
    late = [offset - statistics.median(own) for own in offsets.values() for offset in own]
    return [
        PerfFigure(f"period of readings, {what}", period, "s"),
        PerfFigure(f"period of readings of the slowest, {what}", max(periods), "s"),
        PerfFigure(f"polls on time, {what}", share, "%", least=MIN_ON_TIME if is_all else None),
        PerfFigure(f"later than at its usual moment, p99, {what}", 1e3 * _percentile_99(late), "ms"),
        PerfFigure(f"from answer to listener, p50, {what}", 1e3 * statistics.median(lags), "ms"),
        PerfFigure(f"from answer to listener, p99, {what}", 1e3 * _percentile_99(lags), "ms"),
    ]


def _percentile_99(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.99 * (len(ordered) - 1))]


def _periods(came: Iterable[tuple[int, int]]) -> list[float]:
    """Return the mean time in s between two frames of each chassis; its number and the frame's second are given."""
    seconds: dict[int, list[int]] = defaultdict(list)
    for chassis, second in came:
        seconds[chassis].append(second)
    return [(max(one) - min(one)) / (len(one) - 1) if len(one) > 1 else MEASURED_SECONDS for one in seconds.values()]


def _costs(what: str, count: int, processes: FleetProcesses, spent: Sequence[float]) -> list[PerfFigure]:
    workers, broker, simulators = (seconds / MEASURED_SECONDS for seconds in spent)
    return [
        PerfFigure(f"CPU of {len(processes.workers)} workers, {what}", 100 * workers, "% of a core"),
        PerfFigure(f"CPU of the workers a chassis, {what}", 1e3 * workers / count, "ms/s"),
        PerfFigure(f"CPU of the broker, {what}", 100 * broker, "% of a core"),
        PerfFigure(f"CPU of the simulated BMCs, {what}", 100 * simulators, "% of a core"),
        PerfFigure(f"memory of the workers, {what}", sum(map(_memory, processes.workers)) / 2**20, "MiB"),
        PerfFigure(f"memory of the broker, {what}", _memory(processes.broker) / 2**20, "MiB"),
    ]


def _memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
