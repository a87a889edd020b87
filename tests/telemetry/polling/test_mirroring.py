"""The mirror of a chassis whose sensors change their unit, while a look fails or the database is away."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, connections

from fabric.bmc.client import BmcClient
from fabric.bmc.events import RedfishEvent
from fabric.bmc.types import Inventory
from fabric.bmc.walk_turns import WalkTurns
from fabric.inventory.models import Chassis, Device
from falconweb.testing import add_chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.polling import mirror as polling_mirror
from telemetry.polling.chassis_poller import cancel_and_wait
from telemetry.polling.mirror import InventoryMirror
from tests.waiting import eventually_in_loop

pytestmark = pytest.mark.django_db(transaction=True)
SQLITE = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="SQLite is locked by whoever writes")
SENSOR = "/redfish/v1/Chassis/drawer1/Sensors/slot1_temp"


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def simulator(running: SimulatorProcess) -> Iterator[SimulatorProcess]:
    yield running
    running.clear_faults()


@pytest.fixture
def chassis(simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch) -> Chassis:
    """falcon-1, at which nobody looks of his own accord, beside a database that is given up soon."""
    monkeypatch.setattr(settings, "CONFIG", replace(settings.CONFIG, inventory_period=3600.0))
    monkeypatch.setattr(polling_mirror, "JITTER", (1.1, 1.1))  # the first whole walk is not due at once
    monkeypatch.setattr(polling_mirror, "REFRESH_PAUSE_SECONDS", 0.1)
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", 0.1)
    return add_chassis(simulator)


class Mirrored:
    """A mirror after its first walk; `refresh_requested` has it look."""

    def __init__(self, mirror: InventoryMirror, refresh_requested: asyncio.Event, inventory: Inventory) -> None:
        self.mirror, self.refresh_requested, self.inventory = mirror, refresh_requested, inventory

    def hear(self, uri: str) -> None:
        """Have the BMC say that it has changed a resource."""
        self.mirror.handle_event(
            RedfishEvent(
                event_id="1", message_id="ResourceEvent.1.3.ResourceChanged", message="", severity="OK",
                timestamp="", origin_uri=uri,
            )
        )  # fmt: skip
        self.refresh_requested.set()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[asyncio.Task[Inventory]]:
        task = asyncio.create_task(self.mirror.keep_current(self.inventory))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def mirrored(chassis: Chassis, changed: dict[str, float] | None = None) -> AsyncIterator[Mirrored]:
    refresh_requested = asyncio.Event()
    async with BmcClient(await sync_to_async(chassis.address)(), at_a_time=3) as bmc:
        mirror = InventoryMirror(chassis, bmc, WalkTurns(), refresh_requested, {} if changed is None else changed)
        yield Mirrored(mirror, refresh_requested, await mirror.walk())


@contextmanager
def locked() -> Iterator[None]:
    """Keep everybody from writing to the database."""
    name = str(connection.settings_dict["NAME"])
    with closing(sqlite3.connect(name, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


async def fault(simulator: SimulatorProcess, kind: str, target: str = "", **more: Any) -> None:
    await asyncio.to_thread(simulator.fault, kind, target, **more)


async def until_logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async def said() -> str:
        return caplog.text

    await eventually_in_loop(said, lambda text: words in text)


def factor_of(inventory: Inventory) -> float:
    return next(sensor.factor for sensor in inventory.sensors if sensor.uri == SENSOR)


async def test_a_look_that_finds_nothing_new_writes_nothing_but_that(
    chassis: Chassis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CONFIG", replace(settings.CONFIG, inventory_period=0.2))
    monkeypatch.setattr(polling_mirror, "PERIODS_A_WALK", 1_000_000)
    async with mirrored(chassis) as followed:
        await Device.objects.filter(chassis=chassis).aupdate(name="of another look")
        row = await Chassis.objects.aget(pk=chassis.pk)
        await Chassis.objects.filter(pk=chassis.pk).aupdate(last_error="It did not answer.")
        async with followed.following():
            again = await eventually_in_loop(
                lambda: Chassis.objects.aget(pk=chassis.pk), lambda now: now.inventory_at != row.inventory_at
            )
        names = {name async for name in Device.objects.filter(chassis=chassis).values_list("name", flat=True)}
    assert again.last_error == ""
    assert again.inventory_revision == row.inventory_revision
    assert names == {"of another look"}


async def test_a_chassis_that_was_just_walked_gives_way_while_others_wait_for_their_walk(chassis: Chassis) -> None:
    async with mirrored(chassis) as followed:
        period, mirror = settings.CONFIG.inventory_period, followed.mirror
        assert mirror._quiet_seconds() <= polling_mirror.JITTER[1] * period
        mirror.turns.waiting = 1
        assert mirror._quiet_seconds() >= polling_mirror.JITTER[0] * polling_mirror.MAX_QUIET_PERIODS * period


@pytest.mark.parametrize("status", [500, 503])
async def test_a_look_at_a_sensor_that_fails_is_made_again_and_its_unit_is_in_doubt_until_then(
    chassis: Chassis, simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(polling_mirror, "SENSOR_RETRY_DELAYS", (0.3,))
    async with mirrored(chassis) as followed:
        before = factor_of(followed.inventory)
        await fault(simulator, "server_error", path=SENSOR, status=status, count=2)
        await fault(simulator, "other_unit", "drawer1_slot1_temp")
        followed.hear(SENSOR)
        async with followed.following() as task:
            after = await asyncio.wait_for(task, 60)
        assert followed.mirror.doubted == {SENSOR}
        assert factor_of(after) != before


async def test_a_doubt_outlives_the_connection_over_which_the_sensor_was_to_be_looked_at(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    changed: dict[str, float] = {}
    async with mirrored(chassis, changed) as followed:
        followed.hear(SENSOR)
        before = followed.inventory
    await chassis.arefresh_from_db()  # as a poller does for each connection
    async with BmcClient(await sync_to_async(chassis.address)(), at_a_time=3) as bmc:
        again = InventoryMirror(chassis, bmc, WalkTurns(), asyncio.Event(), changed)
        assert again.doubted == {SENSOR}
        assert await again.recent() is not None
        await fault(simulator, "other_unit", "drawer1_slot1_temp")
        async with asyncio.timeout(60):
            after = await again.keep_current(before)
        assert factor_of(after) != factor_of(before)


async def test_events_of_sensors_that_there_are_not_are_of_no_account(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    async with mirrored(chassis) as followed:
        for number in range(50):
            followed.hear(f"/redfish/v1/Chassis/drawer1/Sensors/nobody{number}")
        assert followed.mirror.doubted == set()
        async with followed.following() as task:
            await asyncio.wait({task}, timeout=2)
            assert not task.done(), "it was walked anew"


@SQLITE
async def test_another_unit_is_taken_up_once_the_database_is_back(
    chassis: Chassis, simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings, "CONFIG", replace(settings.CONFIG, inventory_period=1.0))
    monkeypatch.setattr(polling_mirror, "PERIODS_A_WALK", 1_000_000)
    async with mirrored(chassis) as followed:
        async with followed.following() as task:
            with locked():
                await fault(simulator, "other_unit", "drawer1_slot1_temp")
                followed.hear(SENSOR)
                await until_logged(caplog, "is not mirrored")
                assert followed.mirror.doubted == {SENSOR}
            after = await asyncio.wait_for(task, 60)
        assert factor_of(after) != factor_of(followed.inventory)


@SQLITE
@pytest.mark.parametrize("why", ["readings are to be planned anew", "a whole walk is overdue"])
async def test_a_bmc_is_not_walked_again_and_again_while_the_database_is_away(
    chassis: Chassis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    monkeypatch.setattr(polling_mirror, "WALK_PAUSE", 0.0)
    async with mirrored(chassis) as followed:
        with locked():
            if why == "a whole walk is overdue":
                monkeypatch.setattr(polling_mirror, "PERIODS_A_WALK", 0)
            else:
                followed.mirror.request_walk()
            async with followed.following() as task:
                await until_logged(caplog, "is not mirrored")
                await asyncio.wait({task}, timeout=2)
        assert caplog.text.count("is not mirrored") == 1


async def test_a_walk_that_takes_its_end_for_a_time_out_is_ended_nevertheless() -> None:
    async def walk() -> None:
        # As a request does whose own time-out comes at the same moment.
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    walking = asyncio.create_task(walk())
    await asyncio.sleep(0)
    await asyncio.wait_for(cancel_and_wait(walking), 60)
    assert walking.cancelled()
