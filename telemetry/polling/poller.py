"""The loop of a worker that follows chassis: one polite client a chassis, in one thread of a Celery worker.

Chassis are shared among workers by leases in Redis: one poller a chassis, taken over within LEASE_SECONDS of a death.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio
from django.conf import settings
from django.db import close_old_connections

from fabric.models import Chassis
from telemetry.live import REFRESH_CHANNEL
from telemetry.polling.following import Following, until
from telemetry.polling.listening import STREAM_PAUSE

logger = logging.getLogger(__name__)

LEASE_SECONDS = 5
LOOK_SECONDS = 1.0  # how often chassis are claimed, and new ones found
STOP_SECONDS = 3.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_poller: Poller | None = None
_ended = threading.Event()


def keep_polling() -> None:
    """Make sure that this worker's loop runs; harmless when it does."""
    global _thread, _poller  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if not _ended.is_set() and (_thread is None or not _thread.is_alive()):
            _poller = poller = Poller()
            _thread = threading.Thread(target=lambda: asyncio.run(poller.run()), name="polling", daemon=True)
            _thread.start()


def stop_polling() -> None:
    """End this worker's loop: leases and sessions are given back, so that others take over at once."""
    _ended.set()
    with _lock:
        if _thread is not None and _poller is not None:
            _poller.stop()
            _thread.join(STOP_SECONDS)


class Poller:
    """Follows every chassis whose lease it holds. `run` ends after `stop`, which any thread may call."""

    def __init__(self) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._redis = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0)
        # Claims have a thread of their own: a slow database write of one chassis must not let all leases lapse.
        self._claims = ThreadPoolExecutor(1, "leases")
        self._tasks: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._following: dict[int, Following] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Ask the loop to end."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self) -> None:
        """Claim and follow until stopped."""
        self._loop = asyncio.get_running_loop()
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=5.0)
        hearing = asyncio.create_task(self._hear())
        try:
            while not self._stopped.is_set():
                await self._look(bus)
                await until(self._stopped, LOOK_SECONDS)
        finally:
            left = {hearing, *self._tasks.values()}
            while left:
                # Asked again: somewhere below, one may be taken for a time-out.
                for task in left:
                    task.cancel()
                _, left = await asyncio.wait(left, timeout=1.0)
            await self._loop.run_in_executor(self._claims, self._give_back)
            self._claims.shutdown(wait=False)
            await bus.aclose()

    async def _hear(self) -> None:
        """Refresh a chassis at once whose operation has ended."""
        while True:
            try:
                async with redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_keepalive=True) as bus:
                    pubsub = bus.pubsub()
                    await pubsub.subscribe(REFRESH_CHANNEL)
                    async for message in pubsub.listen():
                        number = message["data"]
                        following = self._following.get(int(number) if message["type"] == "message" else 0)
                        if following is not None:
                            following.disturbed.set()
            except (redis.RedisError, OSError, ValueError) as error:
                logger.warning("ends of operations are not heard: %s", error)
            await asyncio.sleep(STREAM_PAUSE)

    async def _look(self, bus: redis.asyncio.Redis) -> None:
        try:
            wanted = await asyncio.get_running_loop().run_in_executor(self._claims, self._claim)
        except Exception:
            logger.exception("chassis could not be claimed")
            wanted = set()  # without a lease nobody is polled: another worker may hold it
        for key in [key for key in self._tasks if key not in wanted or self._tasks[key].done()]:
            self._tasks.pop(key).cancel()
            self._following.pop(key[0], None)
        for key in wanted - self._tasks.keys():
            following = self._following[key[0]] = Following(key[0], bus)
            self._tasks[key] = asyncio.create_task(following.run())

    def _claim(self) -> set[tuple[int, str]]:
        close_old_connections()
        claimed = set()
        rows = Chassis.objects.filter(enabled=True)
        # A changed address or password ends the old client and starts a new one.
        fields = ("pk", "url", "username", "password_encrypted", "ca_pem", "fingerprint")
        for pk, *address in rows.values_list(*fields):
            lease = f"polling:{pk}"
            held = self._redis.set(lease, self.name, nx=True, ex=LEASE_SECONDS)
            if not held and self._redis.get(lease) == self.name.encode():
                held = self._redis.expire(lease, LEASE_SECONDS)
            if held:
                claimed.add((pk, "\0".join(address)))
        return claimed

    def _give_back(self) -> None:
        try:
            for pk, _ in self._tasks:
                if self._redis.get(f"polling:{pk}") == self.name.encode():
                    self._redis.delete(f"polling:{pk}")
        except redis.RedisError as error:
            logger.info("leases were not given back: %s", error)
        close_old_connections()
