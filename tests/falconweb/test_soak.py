"""A site at work for long: no growth of memory, sockets, files or threads; no frame that a reader misses or gets twice.

Two minutes in the tests, half an hour in the nightly profile. Chassis are read, sockets come and go, devices are moved,
BMCs fail for a while. What a reader must get is what Redis was told; what the site takes is what the system says of its
processes while the same number of sockets is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import statistics
import threading
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis

from falconweb.sqlite.spare import MOST as MOST_SPARES
from telemetry.frames import HEADER
from tests.falconweb.operating import Operator, parent_of
from tests.falconweb.watching import CHASSIS, SEQUENCE, Number, Watcher, broker_of
from tests.processes import SimulatorProcess
from tests.site import RunningSite, pids_naming
from tests.waiting import wait_for

NIGHTLY = hypothesis.settings.default is not None and hypothesis.settings.default.max_examples > 100
SECONDS = 1800.0 if NIGHTLY else 120.0
# Until then caches, pools and buffers fill; Redis keeps ten minutes of readings.
WARM_SECONDS = 780.0 if NIGHTLY else 60.0
MORE_CHASSIS = 10 if NIGHTLY else 4
READERS = 10 if NIGHTLY else 3
VISITORS = 10 if NIGHTLY else 4
LOOK_SECONDS = 5.0
# MiB that the resident memory of a process may move between the thirds of what is looked at: allocators are no scales.
MOST_GROWTH = 25.0
MOST_HANDLES = 4  # of files and sockets: a request may be under way
# Connections to a database are made as they are needed at once and kept, up to so many, each with its log: where the
# machine is busy, more work meets late.
MOST_DATABASE_FILES = MOST_HANDLES + 2 * MOST_SPARES
# Python's pool makes its threads as they are needed, up to so many; what grows without end has more in no time.
MOST_THREADS = MOST_HANDLES + min(32, (os.cpu_count() or 1) + 4)
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "slow", "delay": 0.3, "seconds": 3},
    {"kind": "reset_connections", "count": 2},
    {"kind": "server_error", "status": 503, "count": 2},
    {"kind": "link_flap", "target": "drawer1slot2", "seconds": 6},
    {"kind": "bmc_reboot", "seconds": 3},
)
pytestmark = [pytest.mark.process, pytest.mark.timeout(SECONDS + 240)]


@dataclass
class Taken:
    """What one process took at each look: resident memory (MiB), files and sockets, files of databases, threads."""

    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    database_files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def look(self, pid: int) -> None:
        """Look once more."""
        folder = Path(f"/proc/{pid}")
        pages = int((folder / "statm").read_text().split()[1])
        self.memory.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        of_databases = [".sqlite3" in os.path.realpath(one) for one in (folder / "fd").iterdir()]
        self.files.append(of_databases.count(False))
        self.database_files.append(of_databases.count(True))
        self.threads.append(len(list((folder / "task").iterdir())))

    def growth(self) -> tuple[float, float, float, float]:
        """Return how much more the last third has than the first, in the middle of each."""
        third = max(1, len(self.memory) // 3)
        kinds: tuple[list[Any], ...] = (self.memory, self.files, self.database_files, self.threads)
        memory, files, database_files, threads = (
            statistics.median(kind[-third:]) - statistics.median(kind[:third]) for kind in kinds
        )
        return memory, files, database_files, threads


class Listener:
    """Notes each frame that Redis is told of, in a thread of its own."""

    def __init__(self, broker: redis.Redis) -> None:
        self.told: list[tuple[Number, float]] = []
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._broker.pubsub() as heard:  # type: ignore[no-untyped-call]
            heard.psubscribe("live:[0-9]*")
            while not self._ended.is_set():
                message = heard.get_message(ignore_subscribe_messages=True, timeout=0.5)
                if message:
                    header = HEADER.unpack_from(message["data"])
                    self.told.append(((header[CHASSIS], header[SEQUENCE]), time.time()))

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self._thread.join(5)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The administrator of a site of this module's own."""
    with RunningSite(tmp_path_factory.mktemp("soak")) as site:
        yield Operator(site)


@pytest.fixture(scope="module")
def more_chassis(operator: Operator) -> Iterator[list[int]]:
    """Further chassis, that are only read."""
    with SimulatorProcess("--chassis-count", str(MORE_CHASSIS)) as process:
        yield [
            int(operator.post("chassis/", {
                "name": f"soak-{number}", "url": url, "username": "administrator", "password": process.password,
                "fingerprint": process.fingerprint,
            })["id"])
            for number, url in enumerate(process.addresses)
        ]  # fmt: skip


def processes_of(site: RunningSite) -> dict[str, int]:
    """Return the ids of the site's own processes by what they are."""
    names = {"web": "falconweb.asgi:application", "worker": f"worker-{site.process.pid}@", "beat": " beat "}
    found = {"launcher": site.process.pid, "broker": broker_of(site)[0]}
    for name, text in names.items():
        here = [pid for pid in pids_naming(text.strip()) if parent_of(pid) == site.process.pid]
        found |= {name: here[0]} if len(here) == 1 else {}
    assert {"web", "worker"} <= found.keys()
    return found


def move_something(operator: Operator, dice: random.Random) -> None:
    """Detach a device, or attach one that is free; a refusal is an answer like others."""
    name = dice.choice(("falcon-1", "falcon-2"))
    devices = [one for place, one in operator.devices(name).items() if place.startswith("drawer1")]
    device = dice.choice(devices)
    ports = [port["id"] for port in operator.chassis(name)["host_ports"] if port["label"] in {"H1", "H2"}]
    target = dice.choice([None, *ports]) if device["host_port_id"] is None else None
    with contextlib.suppress(urllib.error.HTTPError):
        operator.post("operations/", {"device_id": device["id"], "target_host_port_id": target})


def visit(operator: Operator, chassis: list[int], seconds: float, dice: random.Random) -> None:
    """Open sockets, as many at a time, that stay for a moment each."""

    async def all_visit() -> None:
        async with asyncio.timeout(seconds + 20), asyncio.TaskGroup() as group:
            for _ in range(VISITORS):
                group.create_task(come_and_go(time.monotonic() + seconds))

    async def come_and_go(end: float) -> None:
        while time.monotonic() < end:
            visitor = Watcher(operator, dice.sample(chassis, 2))
            watching = asyncio.create_task(visitor.watch())
            await asyncio.sleep(dice.uniform(0.5, 3.0))
            visitor.stop()
            await watching

    asyncio.run(all_visit())


def test_a_site_at_work_takes_no_more_as_time_goes_by_and_no_reader_misses_a_frame(
    operator: Operator, more_chassis: list[int]
) -> None:
    site, dice = operator.site, random.Random(4016)  # noqa: S311 - no secret
    wait_for(lambda: all(one["inventory_at"] for one in operator.get("chassis/")), "some were not seen", seconds=60)
    chassis = [int(one["id"]) for one in operator.get("chassis/")]
    _, broker = broker_of(site)
    processes = processes_of(site)
    taken = {name: Taken() for name in processes}
    readers = [Watcher(operator, chassis) for _ in range(READERS)]
    with contextlib.ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader)
        wait_for(lambda: all(len(reader.times(pk)) > 2 for reader in readers for pk in chassis), "no frames came")
        listener = Listener(broker)
        stack.callback(listener.stop)
        began = time.time()
        faults = itertools.cycle(FAULTS)
        while time.time() < began + SECONDS:
            visit(operator, chassis, LOOK_SECONDS, dice)
            move_something(operator, dice)
            site.control(dice.choice(("falcon-1", "falcon-2")), "POST", "/faults", next(faults))
            assert operator.site.get("/healthz")[0] == 200
            # Visitors are gone by now; what they had is given up within a moment.
            time.sleep(1.0)
            if time.time() > began + WARM_SECONDS:
                for name, pid in processes.items():
                    taken[name].look(pid)
        ended = time.time()
        time.sleep(3.0)
    assert processes_of(site) == processes, "a process died and was started again"
    told = {number for number, at in listener.told if began + 2 < at < ended - 2}
    assert len(told) > 0.5 * len(chassis) * SECONDS
    assert len({number for number, _ in listener.told}) == len(listener.told)
    for reader in readers:
        assert reader.opened == 1
        assert reader.twice() == []
        assert told - {number for number, _ in reader.came} == set()
    for name, one in taken.items():
        memory, files, database_files, threads = one.growth()
        assert memory < MOST_GROWTH, (name, one.memory)
        assert files <= MOST_HANDLES, (name, one.files)
        assert database_files <= MOST_DATABASE_FILES, (name, one.database_files)
        assert threads <= MOST_THREADS, (name, one.threads)
