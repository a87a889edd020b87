"""Processes of a measurement: web servers, a measured worker, load generators with their frame sources."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import redis
import redis.asyncio
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

from accounts.models import User
from accounts.sign_in.security import SessionStore
from falconweb.launch.broker import free_port
from falconweb.launch.commands import web_command, worker_command
from falconweb.launch.processes import ChildProcess, end_with_parent, terminate_all, wait_until_ready
from perf.environment import TASK_RESULTS, CannotMeasureError
from telemetry.live.catalogue import SeriesEntry, Values
from telemetry.live.frames import Frame, encode_delta, set_catalogue

START_SECONDS = 30.0


class FrameSource:
    """Frames of one chassis, made as by the poller."""

    def __init__(self, bus: redis.asyncio.Redis, chassis: int) -> None:
        self._bus = bus
        self._chassis = chassis
        self._random = np.random.default_rng(4016)
        self._revision = self._sequence = self._moving = 0
        self._values: Values = np.zeros(0)

    async def shape(self, series: int, moving: float) -> None:
        """Set the number of series, of which the share `moving` changes per frame."""
        entries = [
            SeriesEntry(key=f"port/{n}/errors", object="port", id=n, quantity="errors", label="Errors", unit="")
            for n in range(1, series + 1)
        ]
        self._revision = await set_catalogue(self._bus, self._chassis, entries)
        self._values = self._random.normal(50.0, 10.0, series)
        self._moving = round(series * moving)

    def next(self) -> tuple[Frame, bytes]:
        """Return the present frame, and its bytes for a browser that has the previous one."""
        before = self._values
        self._values = before.copy()
        places = self._random.choice(len(before), self._moving, replace=False)
        self._values[places] = self._random.normal(50.0, 10.0, self._moving)
        self._sequence += 1
        frame = Frame(self._revision, self._chassis, self._sequence, time.time(), self._values)
        return frame, encode_delta(before, frame)


class LoadGeneratorProcess:
    """The process that simulates the browsers of one server: see perf.load_generator."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str, cookies: Sequence[str] = (), greeting: str = "") -> LoadGeneratorProcess:
        """Start the process, without open sockets."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perf.load_generator"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=end_with_parent(),
        )
        generator = cls(process)
        generator._write([url, cookies, greeting])
        return generator

    async def command(self, do: str, **more: Any) -> Any:
        """Send a command and return the answer."""
        self._write({"do": do, **more})
        line = await self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise CannotMeasureError("the sockets' process ended; see its output above.")
        return json.loads(line)

    def _write(self, line: Any) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def end(self) -> None:
        """Close its sockets."""
        if self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


async def start_web(name: str, application: str) -> tuple[ChildProcess, int]:
    """Start uvicorn with the site's options and wait until it listens; returns the process and its port."""
    port = free_port()
    return await _start(name, port, web_command(application, port))


async def start_bare(name: str) -> tuple[ChildProcess, int]:
    """Start the bare server and wait until it listens; returns the process and its port."""
    port = free_port()
    return await _start(name, port, [sys.executable, "-m", "perf.reference_servers", str(port)])


async def _start(name: str, port: int, command: list[str]) -> tuple[ChildProcess, int]:
    child = start_process(name, command)

    def ready() -> bool | None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return None

    try:
        await asyncio.to_thread(wait_until_ready, child, ready, START_SECONDS)
    except TimeoutError:
        raise CannotMeasureError(f"{name} did not start: {child.log.read_text()[-2000:]}") from None
    return child, port


def start_process(name: str, command: list[str]) -> ChildProcess:
    """Start a process of the site, whose log is in the data folder."""
    child = ChildProcess(name, command, environment=os.environ, log=settings.CONFIG.data / "logs" / f"{name}.log")
    child.start()
    return child


@contextmanager
def measured_worker() -> Iterator[None]:
    """Run a worker that reports the times of its tasks: see perf.worker."""
    worker = start_process("worker", worker_command("perf.worker:application"))
    try:
        yield
    finally:
        terminate_all([worker])


def next_task(seconds: float) -> dict[str, Any]:
    """Return the times of the next task that the measured worker ends (`perf.worker.MeasuredTask.report`)."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        raw: Any = client.blpop([TASK_RESULTS], timeout=seconds)
    if raw is None:
        raise CannotMeasureError(f"the worker ended no task in {seconds:.0f} s.")
    task: dict[str, Any] = json.loads(raw[1])
    return task


def create_session(username: str = "perf") -> str:
    """Create an administrator; returns a session key of theirs, the value of the cookie."""
    person = User.objects.create_superuser(username)
    session = SessionStore()
    session[SESSION_KEY] = str(person.pk)
    session[BACKEND_SESSION_KEY] = "accounts.sign_in.backends.LocalBackend"
    session[HASH_SESSION_KEY] = person.get_session_auth_hash()
    session.save()
    return str(session.session_key)
