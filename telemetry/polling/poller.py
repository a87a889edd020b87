"""The polling loop of a worker: one client a chassis, in one thread of a Celery worker.

Workers share the chassis by claims (telemetry.polling.claims): one poller a chassis, replaced within five seconds when
its worker dies.
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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from fabric.bmc.walk_turns import WalkTurns
from fabric.inventory.models import Chassis
from hostwire.heartbeat import BEAT_SECONDS, beat
from telemetry.instrumentation.publisher import measure_loop_lag
from telemetry.live.frames import REFRESH_CHANNEL, FrameOutbox
from telemetry.polling.chassis_poller import ChassisPoller, PollerContext, cancel_and_wait
from telemetry.polling.claims import ChassisClaims, ClaimShare
from telemetry.polling.event_listener import STREAM_PAUSE
from telemetry.polling.mirror import wait_for_event
from telemetry.polling.pace import SWITCH_SECONDS, ReadingPace

logger = logging.getLogger(__name__)

RENEW_SECONDS = 0.75  # interval of renewing claims and claiming free chassis
GATHER_SECONDS = 0.25  # the same while workers that start together wait for each other
# Chassis are released to a new worker a few at a time: each first stores its last readings.
MAX_HANDOVERS = 20
STOP_SECONDS = 3.0
RESTART_SECONDS = 2.0  # after a failure of the loop
CANCEL_SECONDS = 5.0  # interval of cancelling a poller that has not ended yet
# Chassis of one worker are polled one after the other rather than all at the full second: at this distance, s, and all
# within MAX_PHASE, so that each frame is published before its second ends. A worker that reads them less often than it
# should is busy: they are spread over all of the period.
STAGGER_SECONDS = 0.0015
MAX_PHASE = 0.5
# The fractional parts of its multiples are evenly distributed for any number of them.
GOLDEN_RATIO = 0.6180339887498949

_lock = threading.Lock()
_thread: threading.Thread | None = None
_poller: Poller | None = None
_ended = threading.Event()

ChassisKey = tuple[int, str]


def start_polling() -> None:
    """Start this worker's loop, unless it runs already; where it fails, it begins again."""
    global _thread  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if not _ended.is_set() and (_thread is None or not _thread.is_alive()):
            _thread = threading.Thread(target=_poll, name="polling", daemon=True)
            _thread.start()


def _poll() -> None:
    global _poller  # noqa: PLW0603
    while not _ended.is_set():
        try:
            with _lock:
                _poller = poller = Poller()
            if not _ended.is_set():
                run_poller(poller)
        except Exception:
            logger.exception("polling ended, and begins again")
        _ended.wait(RESTART_SECONDS)


def stop_polling() -> None:
    """Stop this worker's loop: claims and sessions are released, so that other workers continue immediately."""
    _ended.set()
    with _lock:
        if _thread is not None and _poller is not None:
            _poller.stop()
            _thread.join(STOP_SECONDS)


def run_poller(poller: Poller) -> None:
    """Run a poller to its end in this thread, on uvloop where available: its TLS takes half the time of asyncio's."""
    # A walk creates about ten thousand objects and drops them at its end. A collection meanwhile would promote them to
    # the old generation, which would then be scanned again and again.
    gc.set_threshold(100_000, 20, 20)
    # The loop releases the GIL at each wait for a response, and gets it back from a thread that runs database code only
    # after this interval (5 ms by default): with hundreds of chassis these waits make polls late.
    sys.setswitchinterval(SWITCH_SECONDS)  # and longer while readings give way to walks, see ReadingPace
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(poller.run())


async def _beat() -> None:
    while True:
        beat("polling")
        await asyncio.sleep(BEAT_SECONDS)


class Poller:
    """Polls every chassis that it has claimed. `run` ends after `stop`, which is thread-safe."""

    def __init__(self, name: str = "") -> None:
        # In containers, process ids and host names may be the same.
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0, socket_connect_timeout=2.0)
        self._claims = ChassisClaims(client, self.name)
        # Claims have their own thread: a slow database write of one chassis must not let all claims expire.
        self._claim_thread = ThreadPoolExecutor(1, "claims")
        self._pace: ReadingPace
        self._rows: dict[int, ChassisKey] = {}
        self._tasks: dict[ChassisKey, asyncio.Task[None]] = {}
        self._pollers: dict[int, ChassisPoller] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}  # no longer polled, but not yet released
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._pause = RENEW_SECONDS

    def stop(self) -> None:
        """Request the end of the loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self) -> None:
        """Claim and poll until stopped."""
        self._loop = asyncio.get_running_loop()
        measure_loop_lag(self._loop)
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=5.0)
        outbox = FrameOutbox(bus, self.name)
        turns = WalkTurns(round(settings.CONFIG.inventory_memory * 2**20))
        self._pace = ReadingPace(turns, lambda: sum(one.is_reading for one in self._pollers.values()))
        context = PollerContext(bus, outbox, self._claims.is_claimed, self._phase, turns, self._pace)
        # Neither waits for the other: a slow database delays claims, and is no hang of the loop.
        all_along = (self._listen_for_refreshes(), _beat(), self._pace.watch(), context.progress.watch())
        beside = [asyncio.create_task(one) for one in all_along]
        try:
            while not self._stopped.is_set():
                await self._renew(context)
                await wait_for_event(self._stopped, self._pause)
        finally:
            await asyncio.gather(*map(cancel_and_wait, (*beside, *self._tasks.values())), *self._ending.values())
            await outbox.close()
            await self._end_claims(self._claims.deregister)
            self._claim_thread.submit(close_old_connections)
            self._claim_thread.shutdown(wait=False)
            await bus.aclose()

    def _phase(self, chassis: int) -> float:
        spread = min(MAX_PHASE, STAGGER_SECONDS * (len(self._tasks) - 1))
        return chassis * GOLDEN_RATIO % 1.0 * (self._pace.period if self._pace.is_stretched else spread)

    async def _listen_for_refreshes(self) -> None:
        """Refresh a chassis immediately when its operation has ended."""
        while True:
            try:
                async with redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_keepalive=True) as bus:
                    pubsub = bus.pubsub()
                    await pubsub.subscribe(REFRESH_CHANNEL)
                    async for message in pubsub.listen():
                        number = message["data"]
                        poller = self._pollers.get(int(number) if message["type"] == "message" else 0)
                        if poller is not None:
                            poller.request_refresh()
            except (redis.RedisError, OSError, ValueError) as error:
                logger.warning("ends of operations are not received: %s", error)
            await asyncio.sleep(STREAM_PAUSE)

    async def _renew(self, context: PollerContext) -> None:
        try:
            releasing = tuple(self._ending)
            share = await asyncio.get_running_loop().run_in_executor(self._claim_thread, self._claim, releasing)
        except Exception as error:
            if self._claims.are_valid:
                logger.warning("claims were not renewed: %s", error)
                return
            logger.exception("chassis could not be claimed")
            share = ClaimShare(frozenset(), keep=0, workers=0)  # another worker may have claimed them
        self._pause = GATHER_SECONDS if share.is_gathering else RENEW_SECONDS
        # A changed address or password ends the old client and starts a new one.
        claimed = {self._rows[pk] for pk in share.claimed if pk in self._rows}
        self._end([key for key in self._tasks if key not in claimed or self._tasks[key].done()])
        # Chassis without readings yet are released first.
        own = sorted(self._tasks, key=lambda key: self._pollers[key[0]].is_reading)
        excess = min(len(share.claimed - self._ending.keys()) - share.keep, MAX_HANDOVERS - len(self._ending))
        if excess > 0 and own:
            logger.info("releasing %s chassis: %s workers share them", excess, share.workers)
            self._end(own[:excess], release=True)
        for key in claimed - self._tasks.keys():
            if key[0] not in self._ending and self._claims.is_claimed(key[0]):
                poller = self._pollers[key[0]] = ChassisPoller(key[0], context)
                self._tasks[key] = asyncio.create_task(poller.run())

    def _end(self, keys: Iterable[ChassisKey], *, release: bool = False) -> None:
        """Stop polling chassis; a claim is released after the last request to the BMC."""
        for key in keys:
            self._pollers.pop(key[0], None)
            ending = self._finish(key[0], self._tasks.pop(key), release=release)
            self._ending[key[0]] = asyncio.create_task(ending)

    async def _finish(self, pk: int, task: asyncio.Task[None], *, release: bool) -> None:
        # Closing the session at the BMC may take some seconds.
        await cancel_and_wait(task, again=CANCEL_SECONDS)
        if release and not self._stopped.is_set():
            await self._end_claims(self._claims.release, [pk])
        del self._ending[pk]

    async def _end_claims(self, end: Callable[..., None], *chassis: list[int]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._claim_thread, end, *chassis)
        except redis.RedisError as error:
            logger.info("claims were not released: %s", error)

    def _claim(self, releasing: tuple[int, ...]) -> ClaimShare:
        close_old_connections()
        fields = ("pk", "url", "username", "password_encrypted", "ca_pem", "fingerprint", "dialect_choice")
        try:
            rows = list(Chassis.objects.filter(enabled=True).order_by("pk").values_list(*fields))
        except DatabaseError as error:
            if not self._rows:
                raise
            logger.warning("the last known chassis are polled: %s", error)
        else:
            self._rows = {pk: (pk, "\0".join(address)) for pk, *address in rows}
        return self._claims.renew(self._rows, releasing=releasing)
