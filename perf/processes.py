"""All that a running site takes: CPU time, memory, disk and network of the launcher and of all processes below it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings

from falconweb.config import BASE_DIR, stored_secret
from falconweb.launch.broker import free_port
from falconweb.launch.processes import ChildProcess, terminate_all, wait_until_ready
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure

START_SECONDS, FILL_SECONDS = 90.0, 180.0
SETTLE_SECONDS = 30.0
MB = 1e6
# Of a command line or a name, in the order in which they are looked for; what is of none of them is the launcher's own.
KINDS = (
    ("agent", "agents"), ("simulator", "simulators"), ("valkey-server", "broker"), ("redis-server", "broker"),
    ("scheduler", "scheduler"), ("beat", "scheduler"), ("worker", "worker"), ("web", "web"), ("demo", "demo"),
)  # fmt: skip


@dataclass(frozen=True)
class ProcessFigures:
    """CPU time (s) of a process and its ended children, the bytes that it has written to the disk, and its PSS."""

    kind: str
    cpu: float
    written: int
    memory: int


@dataclass(frozen=True)
class RunningSite:
    """A site as `make up` starts it, with its demonstration: its launcher, and the environment of its processes."""

    launcher: ChildProcess
    environment: dict[str, str]

    @property
    def port(self) -> int:
        return int(self.environment["PORT"])


@contextmanager
def demonstration_site(log: Callable[[str], None]) -> Iterator[RunningSite]:
    """Start a site with two simulated chassis, and yield it at rest; reports its progress to `log`."""
    data = settings.CONFIG.data / "site"
    (data / "logs").mkdir(parents=True)
    # The measurement's own broker and database are not the site's.
    environment = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "FALCONWEB_DATA"}}
    environment |= {"FALCONWEB_DATA": str(data), "PORT": str(free_port())}
    command = [sys.executable, "-m", "falconweb.launch", "--demo"]
    site = ChildProcess("site", command, environment=environment, log=data / "logs" / "site.log")
    site.start()
    try:
        log("the site starts")
        _wait(site, lambda: "FalconWeb is at" in site.log.read_text(), START_SECONDS)
        log("its demonstration is filled")
        _wait(
            site,
            lambda: site.alive and not any(one.kind == "demo" for one in site_processes(site.pid).values()),
            FILL_SECONDS,
        )
        running = RunningSite(site, environment | {"REDIS_URL": _broker_address(site.pid, data)})
        log("its first runs end")
        _wait(site, lambda: ask_site(running, "open_runs") == 0, FILL_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield running
    finally:
        terminate_all([site])


def ask_site(site: RunningSite, *what: str) -> Any:
    """Return the answer of perf.busy_site in the environment of the site."""
    answer = subprocess.run(  # noqa: S603 - a module of this package
        [sys.executable, "-m", "perf.busy_site", *what],
        cwd=BASE_DIR, env=site.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode:
        raise CannotMeasureError(f"the site did not answer: {answer.stderr[-500:]}")
    return json.loads(answer.stdout)


def _broker_address(launcher: int, data: Path) -> str:
    """Return the address of the site's own broker, whose process has its port in its name."""
    brokers = (pid for pid, one in site_processes(launcher).items() if one.kind == "broker")
    for pid in brokers:
        port = re.search(r"127\.0\.0\.1:(\d+)", Path(f"/proc/{pid}/cmdline").read_text())
        if port is not None:
            return f"redis://:{quote(stored_secret(data, 'broker_password'))}@127.0.0.1:{port[1]}/0"
    raise CannotMeasureError("the site has no broker of its own.")


class SiteCost:
    """What a site takes from the making of this until `figures`."""

    def __init__(self, site: RunningSite) -> None:
        self._site = site
        self._before, self._network, self._began = (
            site_processes(site.launcher.pid),
            _loopback_bytes(),
            time.monotonic(),
        )

    def figures(self, *, most_mb: float | None = None, most_cpu_ms: float | None = None) -> list[PerfFigure]:
        """Return the whole, and its parts by kind of process, with bars for the memory and the CPU time of a second."""
        seconds, network = time.monotonic() - self._began, _loopback_bytes() - self._network
        after = site_processes(self._site.launcher.pid)
        return _figures(self._before, after, network, seconds, most_mb=most_mb, most_cpu_ms=most_cpu_ms)


def _wait(site: ChildProcess, is_so: Callable[[], bool], seconds: float) -> None:
    try:
        wait_until_ready(site, lambda: is_so() or None, seconds)
    except TimeoutError as error:
        raise CannotMeasureError(f"the site did not come to rest within {seconds:.0f} s: {error}") from None


def site_processes(launcher: int) -> dict[int, ProcessFigures]:
    """Return the figures of the launcher (pid) and of all processes below it, by their ids."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(entry.parent.name)] = int(_stat_fields(entry)[1])
    found: dict[int, ProcessFigures] = {}
    below = {launcher: "launcher"}
    while below:
        for pid, kind in list(below.items()):
            del below[pid]
            # A process may end between the listing and the reading.
            with suppress(OSError):
                found[pid] = _process(pid, kind)
                below |= {child: _kind(child) or found[pid].kind for child, parent in parents.items() if parent == pid}
    return found


def _stat_fields(file: Path) -> list[str]:
    """Return the fields of a process' `stat` from its state on; the name before them may have spaces."""
    return file.read_text().rpartition(")")[2].split()


def _process(pid: int, kind: str) -> ProcessFigures:
    folder = Path(f"/proc/{pid}")
    ticks = sum(int(text) for text in _stat_fields(folder / "stat")[11:15])
    io, memory = (
        dict(line.split(":") for line in (folder / name).read_text().splitlines()[first:])
        for name, first in (("io", 0), ("smaps_rollup", 1))
    )
    return ProcessFigures(
        kind, ticks / os.sysconf("SC_CLK_TCK"), int(io["write_bytes"]), int(memory["Pss"].split()[0]) * 1024
    )


def _kind(pid: int) -> str:
    """Return what a process is by its command, or by its name where it is a fork; '' where neither tells."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has ended; its sisters have not
        return ""
    own = name if "falconweb.launch" in words else words
    return next((kind for part, kind in KINDS if part in own), "")


def _loopback_bytes() -> int:
    """Return the bytes that have passed the loopback interface, those of other programs of this machine included."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == "lo:")


def _figures(
    before: dict[int, ProcessFigures],
    after: dict[int, ProcessFigures],
    network: int,
    seconds: float,
    *,
    most_mb: float | None,
    most_cpu_ms: float | None,
) -> list[PerfFigure]:
    cpu: dict[str, float] = defaultdict(float)
    memory: dict[str, int] = defaultdict(int)
    counts = Counter(one.kind for one in after.values())
    written = 0
    for pid, one in after.items():
        was = before.get(pid, ProcessFigures(one.kind, 0.0, 0, 0))
        cpu[one.kind] += (one.cpu - was.cpu) / seconds * 1e3
        memory[one.kind] += one.memory
        written += one.written - was.written
    parts = [
        figure
        for kind in sorted(memory, key=lambda kind: -memory[kind])
        for figure in (
            PerfFigure(f"memory, {counts[kind]} {kind}", memory[kind] / MB, "MB"),
            PerfFigure(f"CPU, {counts[kind]} {kind}", cpu[kind], "ms/s"),
        )
    ]
    return [
        PerfFigure("memory of all processes", sum(memory.values()) / MB, "MB", most=most_mb),
        PerfFigure("CPU of all processes", sum(cpu.values()), "ms/s", most=most_cpu_ms),
        *parts,
        PerfFigure("written to the disk", written / seconds / 1e3, "KB/s"),
        PerfFigure("over the loopback interface, and by others", network / seconds / 1e3, "KB/s"),
    ]
