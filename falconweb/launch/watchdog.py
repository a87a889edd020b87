"""Restarts processes that died or hang, and tells systemd that the site works."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from falconweb.launch.processes import ChildProcess
from telemetry.instrumentation import metrics
from telemetry.instrumentation.publisher import PERIOD_SECONDS, MetricsPublisher

LOOK_SECONDS = 0.2
PING_SECONDS = 1.0  # the wait for an answer of the broker
# What passes between two looks counts up to this: after a pause of this process, or of the machine, none is hung.
MAX_LOOK_SECONDS = 2.0
KINDS = {"web": "web", "worker": "worker", "beat": "scheduler", "agent": "agent", "broker": "broker"}


class ServiceManager:
    """systemd, where it started this process with Type=notify; otherwise nobody, to whom nothing is sent.

    Takes its variables out of the environment: no child process speaks for the site.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        # An address that begins with @ is an abstract one.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        microseconds = environment.pop("WATCHDOG_USEC", "")
        environment.pop("WATCHDOG_PID", None)  # that of `make`
        self.watchdog_seconds = int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0

    def tell(self, state: str) -> None:
        """Send a state such as READY=1. One that cannot be sent now is not sent at all."""
        if self._address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)


class Watchdog:
    """Watches the processes of a site; `look` is called again and again by one thread."""

    def __init__(
        self, children: Sequence[ChildProcess], redis_url: str, manager: ServiceManager, tell: Callable[[str], None]
    ) -> None:
        self._children = children
        self._manager = manager
        self._tell = tell
        self._broker = redis.Redis.from_url(
            redis_url, socket_timeout=PING_SECONDS, socket_connect_timeout=PING_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self._publisher = MetricsPublisher("launcher")
        self._looked_at = time.monotonic()
        self._pinged_at = self._published_at = self._notified_at = 0.0

    def look(self) -> None:
        """Kill what hangs, restart what has ended, and tell about it."""
        now = time.monotonic()
        elapsed, self._looked_at = min(now - self._looked_at, MAX_LOOK_SECONDS), now
        if now - self._pinged_at >= PING_SECONDS:
            self._pinged_at = now
            self._ping(now)
        for child in self._children:
            if sentence := child.kill_if_hung(elapsed):
                metrics.increment("processes_hung")
                self._tell(sentence)
            if sentence := child.restart_if_dead():
                if (kind := KINDS.get(child.name.partition("-")[0])) is not None:
                    metrics.increment(f"restarts_{kind}")
                self._tell(sentence)
        self._notify(now)

    def _ping(self, now: float) -> None:
        try:
            self._broker.ping()
        except (redis.RedisError, OSError):
            return
        for child in self._children:
            if child.name == "broker":
                child.heard()
        if now - self._published_at >= PERIOD_SECONDS:
            self._published_at = now
            self._publisher.publish()

    def _notify(self, now: float) -> None:
        """Send the sign of life at half of its period, while a web process has turned within that time."""
        half = self._manager.watchdog_seconds / 2
        if half and now - self._notified_at >= half:
            webs = [child for child in self._children if child.name.partition("-")[0] == "web"]
            if any(child.is_heard_within(half) for child in webs):
                self._notified_at = now
                self._manager.tell("WATCHDOG=1")
