"""What a poller says and does of a BMC that is away, restarts, or refuses its password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis
from fabric.inventory.sync import inventory_apply
from telemetry.live.frames import FrameOutbox
from telemetry.polling import chassis_poller
from telemetry.polling.chassis_poller import ChassisPoller, PollerContext, cancel_and_wait
from tests.bmc.nonsense import NonsenseServer, Reply
from tests.bmc.test_openbmc import bmcweb
from tests.waiting import eventually_in_loop

pytestmark = pytest.mark.django_db(transaction=True)


def inventory_of(chassis: Chassis) -> Inventory:
    """Return what a walk of a chassis finds."""

    async def walk() -> Inventory:
        async with BmcClient(chassis.address()) as bmc:
            return await discover(bmc)

    return asyncio.run(walk())


async def poll_through(chassis: Chassis, *stages: Callable[[], Any]) -> None:
    """Poll a chassis until each stage in turn has become true."""
    bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    context = PollerContext(bus, FrameOutbox(bus, "test"), lambda _: True, lambda _: 0.0, asyncio.Semaphore(1))
    task = asyncio.create_task(ChassisPoller(chassis.pk, context).run())
    try:
        for stage in stages:
            await eventually_in_loop(partial(asyncio.to_thread, stage), bool)
    finally:
        await cancel_and_wait(task)
        await context.outbox.close()
        await bus.aclose()


def test_a_dead_bmc_is_not_said_to_answer_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chassis_poller, "RETRY_DELAYS", (0.05,))
    routes = bmcweb()
    routes["/redfish/v1"].pop("ProtocolFeaturesSupported")
    with NonsenseServer(routes) as server, caplog.at_level(logging.INFO, chassis_poller.__name__):
        chassis = Chassis.objects.create(name="openbmc", url=server.url)
        inventory_apply(chassis=chassis, inventory=inventory_of(chassis))
        server.asked.clear()
        monkeypatch.setattr(server, "answer", lambda _asked: Reply(hang_up=True))

        def is_back() -> bool:
            """Have it answer, once it was asked in vain for a while: tried more often than once a beat."""
            if len(server.asked) < 30:
                return False
            assert "answers again" not in caplog.text
            monkeypatch.setattr(server, "answer", partial(NonsenseServer.answer, server))
            return True

        asyncio.run(poll_through(chassis, is_back, lambda: "answers again" in caplog.text))
    assert caplog.text.count("answers again") == 1
