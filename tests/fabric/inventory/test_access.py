"""All processes of a site together ask a BMC for no more than four things at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis
from django.conf import settings as site
from django.utils import timezone

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import SignInRefused, TimedOut, Unreachable
from fabric.inventory import access
from fabric.inventory.access import RequestSlots, chassis_client, poller_client
from fabric.inventory.models import Chassis
from falconweb.testing import add_chassis
from falconweb.testing.processes import SimulatorProcess
from tests.redis_keys import delete_keys
from tests.waiting import eventually_in_loop

MANY = 6
PLACE = "/redfish/v1/Chassis/drawer1"


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def chassis(transactional_db: None, simulator: SimulatorProcess) -> Iterator[Chassis]:
    """falcon-1, which takes a moment for each request."""
    delete_keys("bmc:*")
    row = add_chassis(simulator)
    simulator.fault("slow", delay=0.05)
    yield row
    simulator.clear_faults()
    delete_keys("bmc:*")


async def test_a_poller_operations_and_commands_make_four_requests_at_most(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    async with AsyncExitStack() as stack:
        address = chassis.address()
        clients: list[BmcClient] = [poller_client(chassis, address)]
        clients += [chassis_client(chassis, address) for _ in range(MANY)]
        clients += [BmcClient(address, access=RequestSlots(address.url))]
        for client in clients:
            await stack.enter_async_context(client)
        await asyncio.gather(*(client.get(PLACE) for client in clients for _ in range(4)))
    assert 2 < max(simulator.state()["max_in_flight"].values()) <= 4
    assert not list(redis.Redis.from_url(site.REDIS_URL).scan_iter("bmc:*"))


async def test_what_a_killed_process_held_is_free_after_a_while(
    chassis: Chassis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SLOT_MARGIN", 0.3)
    keys = RequestSlots(chassis.url)._keys
    killed = RequestSlots(chassis.url)
    for _ in keys:
        await killed._take(0.0, "bmc")
    async with chassis_client(chassis, chassis.address()) as bmc:
        assert (await bmc.get(PLACE)).status == 200
    # Nor does a key that somebody else wrote hold it up for good.
    client = redis.Redis.from_url(site.REDIS_URL)
    monkeypatch.setattr(access, "LONGEST_SLOT", 0.3)
    for key in keys:
        client.rpush(key, "a list without end")
    async with chassis_client(chassis, chassis.address()) as bmc:
        assert (await bmc.get(PLACE)).status == 200
    await killed.close()


async def test_requests_in_a_row_keep_theirs_until_somebody_else_looks_for_one(
    chassis: Chassis, simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.clear_faults()
    monkeypatch.setattr(access, "LONGEST_KEEP", 0.0)
    client = redis.Redis.from_url(site.REDIS_URL)
    async with AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(chassis_client(chassis, chassis.address())) for _ in range(3)
        ]
        held = set()
        for _ in range(5):
            await first.get(PLACE)
            held.add(client.get(RequestSlots(chassis.url)._keys[0]))
        assert len(held) == 1, "nobody waited, and it was not taken anew"

        async def ask_on(bmc: BmcClient) -> None:
            while not other.done():
                await bmc.get(PLACE)

        other = asyncio.create_task(third.get(PLACE))
        await asyncio.gather(ask_on(first), ask_on(second))
        assert other.result().status == 200


async def test_where_none_gets_free_that_is_said_and_tried_again(
    chassis: Chassis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_SLOT_WAIT", 0.2)
    busy = RequestSlots(chassis.url)
    for _ in busy._keys:
        await busy._take(60.0, "bmc")
    async with chassis_client(chassis, chassis.address()) as bmc:
        with pytest.raises(TimedOut, match="busy with other requests of this site") as error:
            await bmc.get(PLACE)
    assert error.value.retry_helps
    await busy.close()


async def test_without_redis_requests_go_on(chassis: Chassis, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    async with chassis_client(chassis, chassis.address()) as bmc:
        assert (await bmc.get(PLACE)).status == 200


async def test_who_waited_while_the_password_was_changed_does_not_try_the_old_one(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    async with chassis_client(chassis, chassis.address("not this one")) as bmc:
        await Chassis.objects.aupdate(password_encrypted="another")
        with pytest.raises(SignInRefused, match="was changed meanwhile"):
            await bmc.get(PLACE)
    assert not simulator.state()["refused_passwords"]


async def test_two_processes_whose_turn_has_come_try_once(chassis: Chassis, simulator: SimulatorProcess) -> None:
    row = await Chassis.objects.aget()
    address = row.address("not this one")
    async with chassis_client(row, address) as one, chassis_client(row, address) as other:
        with pytest.raises(SignInRefused):
            await one.get(PLACE)
        assert (await Chassis.objects.aget()).refusals == 1
        before = simulator.state()["refused_passwords"]["administrator"]
        await Chassis.objects.aupdate(next_sign_in_at=row.created_at)
        outcomes = await asyncio.gather(one.get(PLACE), other.get(PLACE), return_exceptions=True)
        assert all(isinstance(outcome, SignInRefused) for outcome in outcomes)

    async def refusals() -> int:
        return (await Chassis.objects.aget()).refusals

    assert await eventually_in_loop(refusals, lambda count: count == 2)
    assert simulator.state()["refused_passwords"]["administrator"] == before + 1


async def test_a_try_that_the_bmc_did_not_answer_is_no_refusal(chassis: Chassis, simulator: SimulatorProcess) -> None:
    await Chassis.objects.aupdate(refusals=6, refused_at=chassis.created_at, next_sign_in_at=chassis.created_at)
    simulator.fault("reset_connections", path="Sessions", count=5)
    async with chassis_client(chassis, chassis.address()) as bmc:
        with pytest.raises(Unreachable):
            await bmc.get(PLACE)
    row = await Chassis.objects.aget()
    assert row.refusals == 6
    assert row.next_sign_in_at is not None
    assert timezone.now() < row.next_sign_in_at <= timezone.now() + access.FIRST_RETRY


async def test_a_bmc_that_has_no_session_left_for_now_is_not_one_without_sessions(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    simulator.fault("server_error", path="Sessions", count=1, status=503)
    async with chassis_client(chassis, chassis.address()) as bmc:
        assert (await bmc.get(PLACE)).status == 200
    assert not (await Chassis.objects.aget()).uses_basic
