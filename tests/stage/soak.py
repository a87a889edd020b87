"""A site at work: browsers come and go, devices are moved, chassis fail for a while, and its processes are looked at.

Some time in the tests, half an hour in the nightly profile. What a reader must get is what Redis was given; what the
site takes is what the system says of its processes while the same number of sockets is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import statistics
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falconweb.sqlite.base import POOL_SIZE as MOST_SPARES
from tests.site import processes_of
from tests.stage.processes import broker_of
from tests.stage.stage import Stage
from tests.stage.watcher import Listener, Number, Watcher
from tests.turns import NIGHTLY
from tests.waiting import wait_for

SECONDS = 1800.0 if NIGHTLY else 0.0
# Until then, and while scenarios run, caches, pools and buffers fill; Redis keeps ten minutes of readings.
WARM_SECONDS = 780.0 if NIGHTLY else 20.0
LEAST_LOOKS = 4
READERS = 10 if NIGHTLY else 3
VISITORS = 10 if NIGHTLY else 6
VISIT_SECONDS = 5.0 if NIGHTLY else 1.2
STAYS_SECONDS = (0.5, 3.0) if NIGHTLY else (0.2, 1.0)
# MiB that the resident memory of a process may move between the thirds of what is looked at: allocators are no scales.
MOST_GROWTH = 25.0
# Of files and sockets: requests may be under way, more where the machine is busy. What leaks with each visitor has
# dozens more after some looks, what leaks with something rarer shows in half an hour.
MOST_HANDLES = 4 if NIGHTLY else 12
# A thread of a worker keeps its connection to the broker from its first task on; in half an hour all have had one. What
# leaks with each reading has more in no time, and what leaks with each operation shows in half an hour.
MOST_OF_THREADS = 0 if NIGHTLY else 32
# Connections to a database are made as they are needed at once and kept, up to so many, each with its log: where the
# machine is busy, more work meets late.
MOST_DATABASE_FILES = MOST_HANDLES + 2 * MOST_SPARES
# Python's pool makes its threads as they are needed, up to so many; what grows without end has more in no time.
MOST_THREADS = MOST_HANDLES + min(32, (os.cpu_count() or 1) + 4)
MOVED = ("falcon-1", "busy")  # chassis whose devices are moved, and that fail for a while
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "slow", "delay": 0.3, "seconds": 3},
    {"kind": "reset_connections", "count": 2},
    {"kind": "server_error", "status": 503, "count": 2},
    {"kind": "link_flap", "target": "drawer1slot2", "seconds": 6},
    {"kind": "bmc_reboot", "seconds": 3},
)


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


@dataclass
class Soaked:
    """What there was to see: frames that Redis was given, those that each reader got, what processes took, who read."""

    began: float
    ended: float
    given: Listener
    readers: list[Watcher]
    taken: dict[int, Taken]
    processes: list[dict[int, str]]  # at the begin and at the end
    pollers: list[dict[int, int]]

    @property
    def must_have_come(self) -> set[Number]:
        """Frames that every reader must have."""
        return {number for number, at in self.given.came if self.began + 2 < at < self.ended - 2}


def long_lived(stage: Stage) -> dict[int, str]:
    """Return the site's own processes, with what they are."""
    parts = {part: processes_of(stage.site, part) for part in ("worker", "beat", "web", "broker")}
    parts["launcher"] = {stage.site.process.pid}
    assert all(parts.values())
    return {pid: part for part, pids in parts.items() for pid in pids}


def soak(stage: Stage, is_over: Callable[[], bool]) -> Soaked:
    """Let the site work until something else is over, then look at what it takes, and for how long it must be."""
    dice = random.Random(4016)  # noqa: S311 - no secret
    _, broker = broker_of(stage.site)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(Watcher(stage.operator, stage.numbers)) for _ in range(READERS)]
        given = stack.enter_context(Listener(broker))
        wait_for(lambda: all(len(reader.times(pk)) > 2 for reader in readers for pk in stage.numbers), "no frames came")
        processes = long_lived(stage)
        found = Soaked(time.time(), 0.0, given, readers, {pid: Taken() for pid in processes}, [processes], [])
        faults = itertools.cycle(FAULTS)
        looked = next(iter(found.taken.values())).memory
        while time.time() < found.began + SECONDS or len(looked) < LEAST_LOOKS:
            visit(stage, dice)
            chassis = stage[dice.choice(MOVED)]
            move_something(stage, chassis.name, dice)
            chassis.fault(**next(faults))
            assert stage.site.get("/healthz")[0] == 200
            found.pollers.append(stage.pollers())
            # Visitors are gone by now; what they had is given up within a moment.
            time.sleep(1.0)
            if is_over() and time.time() > found.began + WARM_SECONDS:
                for pid, one in found.taken.items():
                    one.look(pid)
        found.ended = time.time()
        with contextlib.suppress(AssertionError):  # who missed some is judged later
            wait_for(lambda: all(found.must_have_come <= one.numbers for one in readers), every=0.5)
    found.processes.append(long_lived(stage))
    return found


def move_something(stage: Stage, name: str, dice: random.Random) -> None:
    """Detach a device, or attach one that is free; a refusal is an answer like others."""
    devices = [one for place, one in stage[name].devices().items() if place.startswith("drawer1")]
    device = dice.choice(devices)
    ports = [port["id"] for port in stage[name].row()["host_ports"] if port["label"] in {"H1", "H2"}]
    target = dice.choice([None, *ports]) if device["host_port_id"] is None else None
    with contextlib.suppress(urllib.error.HTTPError):
        stage.operator.post("operations/", {"device_id": device["id"], "target_host_port_id": target})


def visit(stage: Stage, dice: random.Random) -> None:
    """Open sockets, as many at a time, that stay for a moment each."""

    async def all_visit() -> None:
        async with asyncio.timeout(VISIT_SECONDS + 20), asyncio.TaskGroup() as group:
            for _ in range(VISITORS):
                group.create_task(come_and_go(time.monotonic() + VISIT_SECONDS))

    async def come_and_go(end: float) -> None:
        while time.monotonic() < end:
            visitor = Watcher(stage.operator, dice.sample(stage.numbers, 2))
            watching = asyncio.create_task(visitor.watch())
            await asyncio.sleep(dice.uniform(*STAYS_SECONDS))
            visitor.stop()
            await watching

    asyncio.run(all_visit())
