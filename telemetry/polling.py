"""The loop that keeps the mirror true: one polite client a chassis, in one thread of a Celery worker.

Chassis are shared among workers by leases in Redis: one poller a chassis, taken over within LEASE_SECONDS of a death.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import Discovery
from fabric.bmc.errors import PlanOutdated
from fabric.bmc.readings import plan_readings
from fabric.models import Chassis
from fabric.selectors import owners_of_readings
from fabric.services.sync import inventory_apply, inventory_failed
from falconweb.errors import FalconWebError
from telemetry.catalogue import Catalogue
from telemetry.frames import Frame, encode_key

logger = logging.getLogger(__name__)

LEASE_SECONDS = 5
LOOK_SECONDS = 1.0  # how often chassis are claimed, and new ones found
REFRESHES_A_WALK = 20  # a whole walk finds what a refresh does not look for
FRAME_SECONDS = 30  # a newcomer gets no older frame than this
FAILED_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)

_lock = threading.Lock()
_thread: threading.Thread | None = None


def keep_polling() -> None:
    """Make sure that this worker's loop runs; harmless when it does."""
    global _thread  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=lambda: asyncio.run(_Poller().run()), name="polling", daemon=True)
            _thread.start()


class _Poller:
    def __init__(self) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.redis = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0)
        self.bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        self.tasks: dict[tuple[int, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            try:
                wanted = await sync_to_async(self._claim)()
            except Exception:
                logger.exception("chassis could not be claimed")
                wanted = set()  # without a lease nobody is polled: another worker may hold it
            for key in [key for key in self.tasks if key not in wanted]:
                self.tasks.pop(key).cancel()
            for key in wanted - self.tasks.keys():
                self.tasks[key] = asyncio.create_task(self._follow(key[0]))
            await asyncio.sleep(LOOK_SECONDS)

    def _claim(self) -> set[tuple[int, str]]:
        close_old_connections()
        claimed = set()
        rows = Chassis.objects.filter(enabled=True)
        # A changed address or password ends the old client and starts a new one.
        fields = ("pk", "url", "username", "password_encrypted", "ca_pem", "fingerprint")
        for pk, *address in rows.values_list(*fields):
            lease = f"polling:{pk}"
            held = self.redis.set(lease, self.name, nx=True, ex=LEASE_SECONDS)
            if not held and self.redis.get(lease) == self.name.encode():
                held = self.redis.expire(lease, LEASE_SECONDS)
            if held:
                claimed.add((pk, "\0".join(address)))
        return claimed

    async def _follow(self, pk: int) -> None:
        """Mirror and read one chassis until cancelled; a failure is logged once, and so is the recovery."""
        failures = 0

        def answered() -> None:
            nonlocal failures
            if failures:
                logger.info("chassis %s answers again", pk)
            failures = 0

        while True:
            try:
                chassis = await Chassis.objects.aget(pk=pk)
                async with BmcClient(await sync_to_async(chassis.address)()) as bmc:
                    await self._read(chassis, bmc, answered)
            except Chassis.DoesNotExist:
                return
            except PlanOutdated:
                continue  # other readings than before: walk and plan anew
            except FalconWebError as error:
                if failures == 0:
                    logger.warning("chassis %s: %s", pk, error.sentence)
                await sync_to_async(inventory_failed)(chassis_id=pk, sentence=error.sentence)
            except Exception:
                logger.exception("chassis %s", pk)
                await sync_to_async(inventory_failed)(
                    chassis_id=pk, sentence="Its answers could not be understood; the log of the worker says why."
                )
            await asyncio.sleep(FAILED_PAUSES[min(failures, len(FAILED_PAUSES) - 1)])
            failures += 1

    async def _read(self, chassis: Chassis, bmc: BmcClient, answered: Callable[[], None]) -> None:
        """Walk once, then a frame on each rounded second and a refresh each inventory period."""
        discovery = Discovery(bmc)
        inventory = await discovery.walk()
        await sync_to_async(self._apply)(chassis, inventory)
        plan = await plan_readings(bmc, inventory)
        owners = await sync_to_async(owners_of_readings)(chassis.pk)
        catalogue = Catalogue(plan.series, owners)
        kept = json.dumps({"revision": catalogue.revision, "series": catalogue.entries})
        await self.bus.set(f"live:catalogue:{chassis.pk}", kept)
        period = max(plan.period, settings.CONFIG.reading_period)
        refresh_at = time.monotonic() + settings.CONFIG.inventory_period
        walk_at = time.monotonic() + settings.CONFIG.inventory_period * REFRESHES_A_WALK
        while time.monotonic() < walk_at:
            if plan.series:
                reading = await plan.read(bmc)
                frame = Frame(catalogue.revision, chassis.pk, int(reading.at), reading.at, catalogue.values(reading))
                raw = encode_key(frame)
                await self.bus.set(f"live:frame:{chassis.pk}", raw, ex=FRAME_SECONDS)
                await self.bus.publish(f"live:{chassis.pk}", raw)
            answered()
            if time.monotonic() >= refresh_at:
                await sync_to_async(self._apply)(chassis, await discovery.refresh())
                refresh_at = time.monotonic() + settings.CONFIG.inventory_period
            # The next rounded beat: one that was missed is skipped, not made up for.
            await asyncio.sleep(period - time.time() % period)

    @staticmethod
    def _apply(chassis: Chassis, inventory: Any) -> None:
        close_old_connections()
        inventory_apply(chassis=chassis, inventory=inventory)
