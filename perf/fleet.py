"""A thousand chassis at 1 Hz: the worker processes of the site, in production mode, polling simulated BMCs over HTTPS.

A listener to the frames judges from outside whether a poll is on time: the frame of a second must arrive before the
second ends. The environment variables PERF_CHASSIS and PERF_WORKERS change the size.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import redis
import redis.asyncio
from django.conf import settings
from django.db import connections

from fabric.inventory.models import Chassis
from falconweb.launch.commands import beat_arguments, celery_command, worker_arguments
from falconweb.launch.processes import ChildProcess, terminate_all
from falconweb.testing import SimulatorProcess
from perf.chassis import new_chassis
from perf.environment import CannotMeasureError, cpu_seconds
from perf.figures import PerfFigure
from perf.servers import start_process
from telemetry.live.frames import HEADER

CHASSIS = 1000
STAGES = (1, 10, 100)  # and then all
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

    def since(self, second: int) -> dict[tuple[int, int], tuple[float, float]]:
        """Return the frames from a second on."""
        return {key: times for key, times in self.came.items() if key[1] >= second}


@dataclass(frozen=True)
class FleetCpu:
    """CPU time in s of the workers, the broker and the simulators."""

    workers: float
    broker: float
    simulators: float


@dataclass(frozen=True)
class FleetProcesses:
    """The PIDs of the measured processes."""

    workers: Sequence[int]
    broker: int
    simulators: Sequence[int]

    def spent(self) -> FleetCpu:
        """Return their CPU time so far."""
        return FleetCpu(
            workers=sum(map(cpu_seconds, self.workers)),
            broker=cpu_seconds(self.broker),
            simulators=sum(map(cpu_seconds, self.simulators)),
        )


def measure_fleet(say: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of 1, 10, 100 and all chassis; takes some minutes."""
    most = int(os.environ.get("PERF_CHASSIS") or CHASSIS)
    workers = int(os.environ.get("PERF_WORKERS") or WORKERS)
    say(f"{most:,} simulated chassis")
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
            for count in sorted({min(count, most) for count in (*STAGES, most)}):
                say(f"{count:,} chassis, {workers} workers")
                Chassis.objects.filter(pk__in=Chassis.objects.order_by("pk")[:count].values("pk")).update(enabled=True)
                connections.close_all()
                figures += asyncio.run(_measure(count, processes, is_all=count == most))
                if dead := [child.name for child in children if not child.alive]:
                    raise CannotMeasureError(f"{dead[0]} ended: {children[0].log.read_text()[-2000:]}")
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


def _start(workers: int) -> list[ChildProcess]:
    commands = {f"worker-{number}": worker_arguments(number) for number in range(1, workers + 1)}
    commands["beat"] = beat_arguments()
    return [start_process(name, celery_command(CELERY, arguments)) for name, arguments in commands.items()]


async def _measure(count: int, processes: FleetProcesses, *, is_all: bool) -> list[PerfFigure]:
    received = ReceivedFrames({})
    listening = asyncio.create_task(_listen(received))
    try:
        began = time.monotonic()
        while len({chassis for chassis, _ in received.since(int(time.time()) - 3)}) < count:
            if time.monotonic() - began > READ_SECONDS:
                raise CannotMeasureError(f"{count} chassis were not all read within {READ_SECONDS:.0f} s.")
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
    what = f"{count:,} chassis"
    return [
        *_frames(what, count, received, first, is_all=is_all),
        PerfFigure(f"all read after, {what}", until_read, "s"),
        *_costs(what, count, processes, FleetCpu(*(getattr(after, one) - getattr(before, one) for one in vars(after)))),
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
    on_time = sum(came < second + 1 for (_, second), (came, _) in mine.items())
    share = 100 * on_time / (count * MEASURED_SECONDS)
    lags = sorted(came - at for came, at in mine.values())
    return [
        PerfFigure(f"polls on time, {what}", share, "%", least=MIN_ON_TIME if is_all else None),
        PerfFigure(f"from answer to listener, p50, {what}", 1e3 * statistics.median(lags), "ms"),
        PerfFigure(f"from answer to listener, p99, {what}", 1e3 * lags[int(0.99 * (len(lags) - 1))], "ms"),
    ]


def _costs(what: str, count: int, processes: FleetProcesses, spent: FleetCpu) -> list[PerfFigure]:
    def share(seconds: float) -> float:
        return 100 * seconds / MEASURED_SECONDS

    return [
        PerfFigure(f"CPU of {len(processes.workers)} workers, {what}", share(spent.workers), "% of a core"),
        PerfFigure(f"CPU of the workers a chassis, {what}", 1e3 * spent.workers / MEASURED_SECONDS / count, "ms/s"),
        PerfFigure(f"CPU of the broker, {what}", share(spent.broker), "% of a core"),
        PerfFigure(f"CPU of the simulated BMCs, {what}", share(spent.simulators), "% of a core"),
        PerfFigure(f"memory of the workers, {what}", sum(map(_memory, processes.workers)) / 2**20, "MiB"),
        PerfFigure(f"memory of the broker, {what}", _memory(processes.broker) / 2**20, "MiB"),
    ]


def _memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
