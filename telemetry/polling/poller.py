"""The loop of a worker that follows chassis: one polite client a chassis, in one thread of a Celery worker.

Chassis are shared among workers by leases (telemetry.polling.claims): one poller a chassis, and within five seconds of
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

from fabric.inventory.models import Chassis
from telemetry.instrumentation.publisher import measure_loop_lag
from telemetry.live.frames import REFRESH_CHANNEL, FrameOutbox
from telemetry.polling.chassis_poller import ChassisPoller, PollerContext, cancel_and_wait
from telemetry.polling.claims import ChassisClaims, ClaimShare
from telemetry.polling.event_listener import STREAM_PAUSE
from telemetry.polling.mirror import wait_for_event

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.75  # how often leases are renewed and free chassis claimed
GATHER_SECONDS = 0.25  # the same while workers that start together wait for each other
# What a worker that comes later gets is handed over bit by bit: each chassis first brings its last to the database.
MAX_HANDOVERS = 20
STOP_SECONDS = 3.0
LEAVE_SECONDS = 5.0  # after which a chassis that is followed on all the same is asked again to end
MAX_CONCURRENT_WALKS = 4
SWITCH_SECONDS = 0.0005
# Chassis of one worker are read one after the other rather than all at the rounded second: so much apart, s, and all
# of them within so much of it, so that each frame is there before its second is over.
STAGGER_SECONDS = 0.0015
MAX_PHASE = 0.5
# Multiples of it, without their whole part, spread evenly however many there are.
GOLDEN_RATIO = 0.6180339887498949

_lock = threading.Lock()
_thread: threading.Thread | None = None
_poller: Poller | None = None
_ended = threading.Event()

ChassisKey = tuple[int, str]


def ensure_polling() -> None:
    """Make sure that this worker's loop runs; harmless when it does."""
    global _thread, _poller  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if not _ended.is_set() and (_thread is None or not _thread.is_alive()):
            _poller = poller = Poller()
            _thread = threading.Thread(target=lambda: run_poller(poller), name="polling", daemon=True)
            _thread.start()


def stop_polling() -> None:
    """End this worker's loop: leases and sessions are given back, so that others take over at once."""
    _ended.set()
    with _lock:
        if _thread is not None and _poller is not None:
            _poller.stop()
            _thread.join(STOP_SECONDS)


def run_poller(poller: Poller) -> None:
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
        self._leases = ChassisClaims(client, self.name)
        # Claims have a thread of their own: a slow database write of one chassis must not let all leases lapse.
        self._claims = ThreadPoolExecutor(1, "leases")
        self._rows: dict[int, ChassisKey] = {}
        self._tasks: dict[ChassisKey, asyncio.Task[None]] = {}
        self._following: dict[int, ChassisPoller] = {}
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
        measure_loop_lag(self._loop)
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=5.0)
        outbox = FrameOutbox(bus, self.name)
        gate = asyncio.Semaphore(MAX_CONCURRENT_WALKS)
        around = PollerContext(bus=bus, outbox=outbox, holds=self._leases.holds, phase=self._phase, gate=gate)
        hearing = asyncio.create_task(self._hear())
        try:
            while not self._stopped.is_set():
                await self._look(around)
                await wait_for_event(self._stopped, self._pause)
        finally:
            await asyncio.gather(*map(cancel_and_wait, (hearing, *self._tasks.values())), *self._ending.values())
            await outbox.close()
            await self._loop.run_in_executor(self._claims, self._leave)
            self._claims.shutdown(wait=False)
            await bus.aclose()

    def _phase(self, chassis: int) -> float:
        return chassis * GOLDEN_RATIO % 1.0 * min(MAX_PHASE, STAGGER_SECONDS * (len(self._tasks) - 1))

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

    async def _look(self, around: PollerContext) -> None:
        try:
            leaving = sum(map(self._leases.holds, self._ending))
            share = await asyncio.get_running_loop().run_in_executor(self._claims, self._claim, leaving)
        except Exception as error:
            if self._leases.are_in_force:
                logger.warning("leases were not renewed: %s", error)
                return
            logger.exception("chassis could not be claimed")
            share = ClaimShare(held=frozenset(), keep=0, workers=0)  # another worker may hold them by now
        self._pause = GATHER_SECONDS if share.is_gathering else LOOK_SECONDS
        # A changed address or password ends the old client and starts a new one.
        wanted = {self._rows[pk] for pk in share.held if pk in self._rows}
        self._end([key for key in self._tasks if key not in wanted or self._tasks[key].done()])
        # Those not yet read go first: nobody misses them.
        mine = sorted(self._tasks, key=lambda key: self._following[key[0]].is_reading)
        excess = min(len(share.held - self._ending.keys()) - share.keep, MAX_HANDOVERS - len(self._ending))
        if excess > 0 and mine:
            logger.info("%s chassis handed over: %s workers share them", excess, share.workers)
            self._end(mine[:excess], give_back=True)
        for key in wanted - self._tasks.keys():
            if key[0] not in self._ending and self._leases.holds(key[0]):
                following = self._following[key[0]] = ChassisPoller(key[0], around)
                self._tasks[key] = asyncio.create_task(following.run())

    def _end(self, keys: Iterable[ChassisKey], *, give_back: bool = False) -> None:
        """Follow these no longer; a lease is given back once nobody here asks the BMC any more."""
        for key in keys:
            self._following.pop(key[0], None)
            ending = self._finish(key[0], self._tasks.pop(key), give_back=give_back)
            self._ending[key[0]] = asyncio.create_task(ending)

    async def _finish(self, pk: int, task: asyncio.Task[None], *, give_back: bool) -> None:
        # A BMC is to hear that its session ends, which may take it some seconds.
        await cancel_and_wait(task, again=LEAVE_SECONDS)
        if give_back and not self._stopped.is_set():
            await asyncio.get_running_loop().run_in_executor(self._claims, self._give_back, pk)
        del self._ending[pk]

    def _claim(self, leaving: int) -> ClaimShare:
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
