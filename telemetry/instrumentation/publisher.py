"""Publishes each process' counters and gauges to Redis (keys below); `MetricsMiddleware` does so in web processes.

    pipeline:processes       sorted set: process, and the time of its last publication (Unix s)
    pipeline:<process>       JSON, expires after EXPIRY_SECONDS: kind and gauges; `<process>` is worker@host:pid. The
                             gauge `silent_seconds` is the time since the last turn of its slowest loop
    pipeline:counts          hash: counters since the start of Redis, of all processes, ended ones too; a field is
                             'name' or 'name/chassis'
    pipeline:counts:<minute> the same of one minute (Unix time / 60), kept for RETENTION_MINUTES
    pipeline:seen            hash: when a problem was counted last (Unix s)
    pipeline:since           when counting started (Unix s)

Counters are summed in Redis rather than read from each process, since a sum would decrease when a process ends. A
process that dies loses the counts since its last publication, of PERIOD_SECONDS at most.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import redis
from django.conf import settings

from hostwire import heartbeat as loops
from telemetry.instrumentation import metrics
from telemetry.instrumentation.metrics import PROBLEMS

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 3.0
EXPIRY_SECONDS = 15
RETENTION_MINUTES = 15
PROBE_SECONDS = 0.25  # interval of the probes of event loops
PROCESSES_KEY, COUNTS_KEY = "pipeline:processes", "pipeline:counts"
SEEN_KEY, SINCE_KEY = "pipeline:seen", "pipeline:since"


def _minute_key(now: float) -> str:
    return f"{COUNTS_KEY}:{int(now // 60)}"


class LoopLagProbe:
    """Measures the delay of an event loop from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled_at: float | None = None
        self._worst = 0.0

    def schedule(self) -> bool:
        """Schedule a probe, unless the last one is still pending; returns whether the loop is open."""
        now = time.monotonic()
        if self._scheduled_at is not None:
            self._worst = max(self._worst, now - self._scheduled_at)
            return not self._loop.is_closed()
        self._scheduled_at = now
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # it is closed
            return False
        return True

    def _run(self) -> None:
        if self._scheduled_at is not None:
            self._worst = max(self._worst, time.monotonic() - self._scheduled_at)
        self._scheduled_at = None

    def take_worst(self) -> float:
        """Return the longest wait since the last call, in s."""
        worst, self._worst = self._worst, 0.0
        return worst


class MetricsPublisher:
    """Publishes the counters and gauges of this process in its own thread.

    `kind` is 'worker', 'web', 'scheduler' or 'launcher'.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.process = f"{kind}@{socket.gethostname()}:{os.getpid()}"
        self._redis = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0, socket_connect_timeout=2.0)
        self._began = time.time()
        self._published: dict[tuple[str, int | None], int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Publish for the last time, and remove this process."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(PROBE_SECONDS * 4)
        self.publish()
        try:
            with self._redis.pipeline() as pipe:
                pipe.zrem(PROCESSES_KEY, self.process)
                pipe.delete(f"pipeline:{self.process}")
                pipe.execute()
        except redis.RedisError as error:
            logger.info("the end of this process was not published: %s", error)

    def publish(self) -> None:
        """Publish once; counts that cannot be published now are published next time."""
        with self._lock:
            try:
                self._publish()
            except (redis.RedisError, OSError) as error:
                if "WRONGTYPE" in str(error) or "not an integer" in str(error):  # somebody else wrote there
                    self._redis.delete(COUNTS_KEY, SEEN_KEY, SINCE_KEY, PROCESSES_KEY, _minute_key(time.time()))
                if not self._is_failing:
                    logger.warning("the pipeline's counts are not published: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False

    def _publish(self) -> None:
        counted, now = metrics.counter_values(), time.time()
        more = {name: total - self._published.get(name, 0) for name, total in counted.items()}
        minute = _minute_key(now)
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(f"pipeline:{self.process}", json.dumps(self._process_state(now)), ex=EXPIRY_SECONDS)
            pipe.zadd(PROCESSES_KEY, {self.process: now})
            pipe.zremrangebyscore(PROCESSES_KEY, 0, now - EXPIRY_SECONDS)
            pipe.set(SINCE_KEY, now, nx=True)
            for (name, chassis), n in more.items():
                if n > 0:
                    field = name if chassis is None else f"{name}/{chassis}"
                    pipe.hincrby(COUNTS_KEY, field, n)
                    pipe.hincrby(minute, field, n)
                    if name in PROBLEMS:
                        pipe.hset(SEEN_KEY, field, f"{now:.1f}")
            pipe.expire(minute, RETENTION_MINUTES * 60)
            pipe.execute()
        self._published = counted

    def _process_state(self, now: float) -> dict[str, Any]:
        own: dict[str, float] = dict(_process_resources())
        if probes := list(_probes.values()):
            own["loop_lag_seconds"] = round(max(probe.take_worst() for probe in probes), 4)
        if (silent := loops.silence()) is not None:
            own["silent_seconds"] = round(silent, 1)
        of_chassis: dict[int, dict[str, float]] = defaultdict(dict)
        for (name, chassis), value in metrics.gauge_values().items():
            if chassis is None:
                own[name] = value
            else:
                of_chassis[chassis][name] = round(value, 4)
        return {"process": self.process, "kind": self.kind, "began": self._began, "at": now, "gauges": own,
                "chassis": of_chassis}  # fmt: skip

    def _run(self) -> None:
        due = 0.0
        while not self._ended.wait(PROBE_SECONDS):
            for loop, probe in list(_probes.items()):
                if not probe.schedule():
                    _probes.pop(loop, None)
            if time.monotonic() >= due:
                due = time.monotonic() + PERIOD_SECONDS
                try:
                    self.publish()
                except Exception:
                    # A failing gauge must not stop the publication of all others.
                    logger.exception("the pipeline's counts are not published")


def _process_resources() -> Mapping[str, float]:
    """Return the resource usage of this process, in s, bytes and numbers; memory and files on Linux only."""
    own = {"cpu_seconds": round(time.process_time(), 2), "threads": float(threading.active_count())}
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        own["memory_bytes"] = float(pages * os.sysconf("SC_PAGE_SIZE"))
        own["open_files"] = float(len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - names alone, every few seconds
    except (OSError, ValueError, IndexError):
        pass
    return own


_start_lock = threading.Lock()
_probes: dict[asyncio.AbstractEventLoop, LoopLagProbe] = {}
_publisher: MetricsPublisher | None = None


def measure_loop_lag(loop: asyncio.AbstractEventLoop) -> None:
    """Start measuring the delay of an event loop of this process, unless it is measured already."""
    for closed in [known for known in _probes if known.is_closed()]:
        _probes.pop(closed, None)
    if loop not in _probes:
        _probes[loop] = LoopLagProbe(loop)


def ensure_publishing(kind: str) -> MetricsPublisher:
    """Return the publisher of this process, which publishes until the process ends; started where missing."""
    global _publisher  # noqa: PLW0603 - one a process is the point
    with _start_lock:
        if _publisher is None:
            _publisher = MetricsPublisher(kind)
            _publisher.start()
            atexit.register(_publisher.end)
        return _publisher


def heartbeat(kind: str) -> None:
    """Record that the only loop of this process turned, and have it published."""
    loops.beat(kind)
    ensure_publishing(kind)


class MetricsMiddleware:
    """Starts the publisher of a web process at its first request: only then there is an event loop to measure."""

    def __init__(self, application: Callable[[Any, Any, Any], Awaitable[Any]]) -> None:
        self.application = application
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            ensure_publishing("web")
            measure_loop_lag(loop)
        await self.application(scope, receive, send)
