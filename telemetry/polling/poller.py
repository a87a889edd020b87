"""The loop of a worker that follows chassis: one polite client a chassis, in one thread of a Celery worker.

Chassis are shared among workers by leases (telemetry.polling.leases): one poller a chassis, and within five seconds of
a death another.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from fabric.models import Chassis
from telemetry.live import REFRESH_CHANNEL
from telemetry.pipeline.publishing import watch
from telemetry.polling.following import Following, Surroundings, ended
from telemetry.polling.leases import Leases, Share
from telemetry.polling.listening import STREAM_PAUSE
from telemetry.polling.mirroring import until
from telemetry.polling.outbox import Outbox

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.75  # how often leases are renewed and free chassis claimed
GATHER_SECONDS = 0.25  # the same while workers that start together wait for each other
# What a worker that comes later gets is handed over bit by bit: each chassis first brings its last to the database.
HANDED_AT_ONCE = 20
STOP_SECONDS = 3.0
LEAVE_SECONDS = 5.0  # after which a chassis that is followed on all the same is asked again to end
WALKS_AT_A_TIME = 4
SWITCH_SECONDS = 0.0005
# Chassis of one worker are read one after the other rather than all at the rounded second: so much apart, s, and all
# of them within so much of it, so that each frame is there before its second is over.
APART_SECONDS = 0.0015
LONGEST_PHASE = 0.5
# Multiples of it, without their whole part, spread evenly however many there are.
GOLDEN = 0.6180339887498949

_lock = threading.Lock()
_thread: threading.Thread | None = None
_poller: Poller | None = None
_ended = threading.Event()

Key = tuple[int, str]


def keep_polling() -> None:
    """Make sure that this worker's loop runs; harmless when it does."""
    global _thread, _poller  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if not _ended.is_set() and (_thread is None or not _thread.is_alive()):
            _poller = poller = Poller()
            _thread = threading.Thread(target=lambda: run(poller), name="polling", daemon=True)
            _thread.start()


def stop_polling() -> None:
    """End this worker's loop: leases and sessions are given back, so that others take over at once."""
    _ended.set()
    with _lock:
        if _thread is not None and _poller is not None:
            _poller.stop()
            _thread.join(STOP_SECONDS)


def run(poller: Poller) -> None:
    """Run a poller to its end in this thread, on the fastest loop there is: its TLS costs half of asyncio's own."""
    # A walk makes some ten thousand objects and drops them at its end. Looked at meanwhile, they would be taken for
    # lasting ones, and everything that lasts would be gone through time and again.
    gc.set_threshold(100_000, 20, 20)
    # The loop lets go of the interpreter at each answer that it waits for, and gets it back from a thread that works on
    # rows of the database only after so long (5 ms by default): with hundreds of chassis these waits are what is late.
    sys.setswitchinterval(SWITCH_SECONDS)
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(poller.run())


class Poller:
    """Follows every chassis whose lease it holds. `run` ends after `stop`, which any thread may call."""

    def __init__(self, name: str = "") -> None:
        # In containers every process may have the same number on hosts of the same name.
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0, socket_connect_timeout=2.0)
        self._leases = Leases(client, self.name)
        # Claims have a thread of their own: a slow database write of one chassis must not let all leases lapse.
        self._claims = ThreadPoolExecutor(1, "leases")
        self._rows: dict[int, Key] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._following: dict[int, Following] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}  # followed no longer, but not yet given back
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._pause = LOOK_SECONDS

    def stop(self) -> None:
        """Ask the loop to end."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self) -> None:
        """Claim and follow until stopped."""
        self._loop = asyncio.get_running_loop()
        watch(self._loop)
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=5.0)
        outbox = Outbox(bus, self.name)
        gate = asyncio.Semaphore(WALKS_AT_A_TIME)
        around = Surroundings(bus=bus, outbox=outbox, holds=self._leases.holds, phase=self._phase, gate=gate)
        hearing = asyncio.create_task(self._hear())
        try:
            while not self._stopped.is_set():
                await self._look(around)
                await until(self._stopped, self._pause)
        finally:
            await asyncio.gather(*map(ended, (hearing, *self._tasks.values())), *self._ending.values())
            await outbox.close()
            await self._loop.run_in_executor(self._claims, self._leave)
            self._claims.shutdown(wait=False)
            await bus.aclose()

    def _phase(self, chassis: int) -> float:
        return chassis * GOLDEN % 1.0 * min(LONGEST_PHASE, APART_SECONDS * (len(self._tasks) - 1))

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

    async def _look(self, around: Surroundings) -> None:
        try:
            leaving = sum(map(self._leases.holds, self._ending))
            share = await asyncio.get_running_loop().run_in_executor(self._claims, self._claim, leaving)
        except Exception as error:
            if self._leases.are_in_force:
                logger.warning("leases were not renewed: %s", error)
                return
            logger.exception("chassis could not be claimed")
            share = Share(held=frozenset(), keep=0, workers=0)  # another worker may hold them by now
        self._pause = GATHER_SECONDS if share.is_gathering else LOOK_SECONDS
        # A changed address or password ends the old client and starts a new one.
        wanted = {self._rows[pk] for pk in share.held if pk in self._rows}
        self._end([key for key in self._tasks if key not in wanted or self._tasks[key].done()])
        # Those not yet read go first: nobody misses them.
        mine = sorted(self._tasks, key=lambda key: self._following[key[0]].is_reading)
        excess = min(len(share.held - self._ending.keys()) - share.keep, HANDED_AT_ONCE - len(self._ending))
        if excess > 0 and mine:
            logger.info("%s chassis handed over: %s workers share them", excess, share.workers)
            self._end(mine[:excess], give_back=True)
        for key in wanted - self._tasks.keys():
            if key[0] not in self._ending and self._leases.holds(key[0]):
                following = self._following[key[0]] = Following(key[0], around)
                self._tasks[key] = asyncio.create_task(following.run())

    def _end(self, keys: Iterable[Key], *, give_back: bool = False) -> None:
        """Follow these no longer; a lease is given back once nobody here asks the BMC any more."""
        for key in keys:
            self._following.pop(key[0], None)
            ending = self._finish(key[0], self._tasks.pop(key), give_back=give_back)
            self._ending[key[0]] = asyncio.create_task(ending)

    async def _finish(self, pk: int, task: asyncio.Task[None], *, give_back: bool) -> None:
        # A BMC is to hear that its session ends, which may take it some seconds.
        await ended(task, again=LEAVE_SECONDS)
        if give_back and not self._stopped.is_set():
            await asyncio.get_running_loop().run_in_executor(self._claims, self._give_back, pk)
        del self._ending[pk]

    def _claim(self, leaving: int) -> Share:
        close_old_connections()
        fields = ("pk", "url", "username", "password_encrypted", "ca_pem", "fingerprint")
        try:
            rows = list(Chassis.objects.filter(enabled=True).order_by("pk").values_list(*fields))
        except DatabaseError as error:
            if not self._rows:
                raise
            logger.warning("chassis are followed as they were known: %s", error)
        else:
            self._rows = {pk: (pk, "\0".join(address)) for pk, *address in rows}
        return self._leases.look(self._rows, leaving=leaving)

    def _give_back(self, pk: int) -> None:
        try:
            self._leases.give_back([pk])
        except redis.RedisError as error:
            logger.info("a lease was not given back: %s", error)

    def _leave(self) -> None:
        try:
            self._leases.leave()
        except redis.RedisError as error:
            logger.info("leases were not given back: %s", error)
        close_old_connections()
