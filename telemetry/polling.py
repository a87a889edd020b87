"""The loop that keeps the mirror true: one polite client a chassis, in one thread of a Celery worker.

Chassis are shared among workers by leases in Redis: one poller a chassis, taken over within LEASE_SECONDS of a death.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from typing import Any

import redis
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import Discovery
from fabric.models import Chassis
from fabric.services.sync import inventory_apply, inventory_failed
from falconweb.errors import FalconWebError

logger = logging.getLogger(__name__)

LEASE_SECONDS = 5
LOOK_SECONDS = 1.0  # how often chassis are claimed, and new ones found
REFRESHES_A_WALK = 20  # a whole walk finds what a refresh does not look for
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
        """Walk and refresh one chassis until cancelled; a failure is logged once, and so is the recovery."""
        failures = 0
        while True:
            try:
                chassis = await Chassis.objects.aget(pk=pk)
                async with BmcClient(await sync_to_async(chassis.address)()) as bmc:
                    discovery = Discovery(bmc)
                    for turn in range(REFRESHES_A_WALK):
                        started = time.monotonic()
                        inventory = await (discovery.refresh() if turn else discovery.walk())
                        await sync_to_async(self._apply)(chassis, inventory)
                        if failures:
                            logger.info("%s answers again", chassis.name)
                            failures = 0
                        spent = time.monotonic() - started
                        await asyncio.sleep(max(1.0, settings.CONFIG.inventory_period - spent))
            except Chassis.DoesNotExist:
                return
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

    @staticmethod
    def _apply(chassis: Chassis, inventory: Any) -> None:
        close_old_connections()
        inventory_apply(chassis=chassis, inventory=inventory)
