"""The loop that keeps the mirror true: one polite client a chassis, in one thread of a Celery worker.

Chassis are shared among workers by leases in Redis: one poller a chassis, taken over within LEASE_SECONDS of a death.
Readings come first: a beat is one request and one frame, and inventory, events and the database go on beside it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import Discovery
from fabric.bmc.errors import BmcError, PlanOutdated
from fabric.bmc.events import stream_events
from fabric.bmc.readings import ReadingPlan, plan_readings
from fabric.bmc.types import Inventory
from fabric.models import Chassis
from fabric.selectors import Owner, owners_of_readings
from fabric.services.drift import drifts_explain
from fabric.services.sync import inventory_apply, inventory_failed
from falconweb.errors import FalconWebError
from falconweb.threads import in_thread
from telemetry.catalogue import Catalogue
from telemetry.frames import Frame
from telemetry.store import REFRESH_CHANNEL, keep_catalogue, publish

logger = logging.getLogger(__name__)

LEASE_SECONDS = 5
LOOK_SECONDS = 1.0  # how often chassis are claimed, and new ones found
REFRESHES_A_WALK = 20  # a whole walk finds what a refresh does not look for
SETTLE_SECONDS = 0.5  # events come in bursts: one refresh answers them all
REST_SECONDS = 2.0  # where they come without end, each refresh would only be outdated by the next
STREAM_PAUSE = 15.0
FAILED_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
STOP_SECONDS = 3.0
WALK_PAUSE = 3.0
# Of the BMC's four places: a reading, one request of the inventory beside it, and the event stream, which is open but
# idle. Operations take one each, one operation a drawer (fabric.services.execution).
PLACES = 3

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
                await _until(self._stopped, LOOK_SECONDS)
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


class Following:
    """One chassis: walked, then read on each rounded second; a failure is logged once, and so is the recovery."""

    def __init__(self, pk: int, bus: redis.asyncio.Redis) -> None:
        self._pk = pk
        self._bus = bus
        self._failures = 0
        self._unpublished = False
        self.disturbed = asyncio.Event()  # set when the inventory may have changed

    async def run(self) -> None:
        """Follow until cancelled, or until the chassis is removed."""
        while True:
            try:
                chassis = await in_thread(Chassis.objects.get, pk=self._pk)
                async with BmcClient(await in_thread(chassis.address), at_a_time=PLACES) as bmc:
                    await self._follow(chassis, bmc)
            except Chassis.DoesNotExist:
                return
            except (redis.RedisError, DatabaseError) as error:
                # The site's own trouble, not the chassis'.
                logger.warning("chassis %s is not followed while Redis or the database is away: %s", self._pk, error)
            except FalconWebError as error:
                if self._failures == 0:
                    logger.warning("chassis %s: %s", self._pk, error.sentence)
                await self._note(error.sentence)
            except Exception:
                logger.exception("chassis %s", self._pk)
                await self._note("Its answers could not be understood; the log of the worker says why.")
            await asyncio.sleep(FAILED_PAUSES[min(self._failures, len(FAILED_PAUSES) - 1)])
            self._failures += 1

    async def _note(self, sentence: str) -> None:
        try:
            await in_thread(inventory_failed, chassis_id=self._pk, sentence=sentence)
        except Exception:
            # A database that is locked or away must not end the following: the next failure is noted again.
            logger.exception("chassis %s: the failure could not be noted", self._pk)

    async def _follow(self, chassis: Chassis, bmc: BmcClient) -> None:
        """Walk, then read and refresh side by side, planned anew whenever what is there has changed."""
        discovery = Discovery(bmc, at_a_time=1)
        begun = timezone.now()
        inventory = await discovery.walk()
        listening = asyncio.create_task(self._listen(bmc, inventory))
        try:
            while True:
                await in_thread(inventory_apply, chassis=chassis, inventory=inventory, begun_at=begun)
                owners = await in_thread(owners_of_readings, chassis.pk, inventory)
                plan = await plan_readings(bmc, inventory)
                refreshing = asyncio.create_task(self._refresh(chassis, bmc, discovery, owners, _healths(inventory)))
                try:
                    await self._read(bmc, plan, owners, refreshing)
                except PlanOutdated:
                    # A report that changes its shape each second must not become a walk each second.
                    await asyncio.sleep(WALK_PAUSE)
                    begun = timezone.now()
                    inventory = await discovery.walk()
                else:
                    begun, inventory = refreshing.result()
                finally:
                    refreshing.cancel()
                    # Two walks over one discovery would disturb each other.
                    await asyncio.gather(refreshing, return_exceptions=True)
        finally:
            listening.cancel()

    async def _read(
        self,
        bmc: BmcClient,
        plan: ReadingPlan,
        owners: dict[str, Owner],
        refreshing: asyncio.Task[tuple[datetime, Inventory]],
    ) -> None:
        """Publish a frame on each rounded second until the refresh beside it ends."""
        catalogue = Catalogue(plan.series, owners)
        revision = await keep_catalogue(self._bus, self._pk, catalogue.entries)
        period = max(plan.period, settings.CONFIG.reading_period)
        while not refreshing.done():
            if plan.series:
                reading = await plan.read(bmc)
                await self._publish(Frame(revision, self._pk, int(reading.at), reading.at, catalogue.values(reading)))
            if self._failures:
                logger.info("chassis %s answers again", self._pk)
                self._failures = 0
            # The next rounded beat: one that was missed is skipped, not made up for.
            await asyncio.wait({refreshing}, timeout=period - time.time() % period)

    async def _publish(self, frame: Frame) -> None:
        try:
            await publish(self._bus, frame)
        except (redis.RedisError, OSError) as error:
            if not self._unpublished:
                logger.warning("readings of chassis %s are not published: %s", self._pk, error)
            self._unpublished = True
        else:
            self._unpublished = False

    async def _refresh(
        self,
        chassis: Chassis,
        bmc: BmcClient,
        discovery: Discovery,
        owners: dict[str, Owner],
        healths: dict[str, str],
    ) -> tuple[datetime, Inventory]:
        """Keep the mirror true; returns once readings must be planned anew, with the inventory to plan them by.

        With it goes when that walk began, since an operation may have ended meanwhile.
        """
        rested_at = 0.0
        for _ in range(REFRESHES_A_WALK):
            await _until(self.disturbed, settings.CONFIG.inventory_period)
            if self.disturbed.is_set():
                await asyncio.sleep(SETTLE_SECONDS if time.monotonic() > rested_at else REST_SECONDS)
                self.disturbed.clear()
            begun = timezone.now()
            inventory = await discovery.refresh()
            rested_at = time.monotonic() + REST_SECONDS
            try:
                await in_thread(inventory_apply, chassis=chassis, inventory=inventory, begun_at=begun)
                found = await in_thread(owners_of_readings, chassis.pk, inventory)
                await drifts_explain(chassis_id=chassis.pk, bmc=bmc)
            except DatabaseError as error:
                # Readings go on meanwhile; the next refresh writes what this one could not.
                logger.warning("chassis %s is not mirrored: %s", self._pk, error)
                continue
            if _healths(inventory) != healths:
                break  # the walk finds out what below it has fallen ill, or is well again
            if found != owners:
                # A device came, went or was swapped: its readings must not go out under another's id.
                return begun, inventory
        begun = timezone.now()
        return begun, await discovery.walk()

    async def _listen(self, bmc: BmcClient, inventory: Inventory) -> None:
        """Let the BMC's events bring the next refresh forward; where there is no stream, the period must do."""
        if not inventory.service.event_stream_uri:
            return
        while True:
            try:
                async for _ in stream_events(bmc, inventory.service.event_stream_uri):
                    self.disturbed.set()
            except BmcError as error:
                logger.debug("events of chassis %s: %s", self._pk, error.sentence)
            except Exception:
                logger.exception("events of chassis %s", self._pk)
            await asyncio.sleep(STREAM_PAUSE)


def _healths(inventory: Inventory) -> dict[str, str]:
    return {one.uri: one.health for one in (*inventory.chassis, *inventory.drawers)}


async def _until(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
