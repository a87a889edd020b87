"""A simulated chassis a module, whose every event is known, and the listener that a worker runs beside its readings."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.events import parse_timestamp
from fabric.bmc.types import Inventory
from fabric.inventory.access import POLLER_REQUESTS
from fabric.inventory.models import Chassis
from fabric.inventory.sync import inventory_apply
from falconweb.testing.processes import SimulatorProcess
from telemetry.events.models import Event
from telemetry.polling.event_listener import EventListener
from tests.fabric.disorder import database_url
from tests.waiting import Pauses, wait_for

EventKey = tuple[str, str, str]


@pytest.fixture(scope="module")
def falcon() -> Iterator[SimulatorProcess]:
    """A running falcon-1."""
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def simulator(falcon: SimulatorProcess) -> Iterator[SimulatorProcess]:
    """falcon-1 without faults, with an empty log of the usual size."""
    falcon.clear_faults()
    falcon.change_log(clear=True, limit=5000)
    yield falcon
    falcon.clear_faults()


def address_of(process: SimulatorProcess) -> Chassis:
    """Return a row of a simulated chassis, not yet stored."""
    chassis = Chassis(name="falcon-1", url=process.address, username="administrator", fingerprint=process.fingerprint)
    chassis.set_password(process.password)
    return chassis


@pytest.fixture(scope="module")
def inventory(falcon: SimulatorProcess) -> Inventory:
    """What a walk of it finds."""

    async def walk() -> Inventory:
        async with BmcClient(address_of(falcon).address()) as bmc:
            return await discover(bmc)

    return asyncio.run(walk())


@pytest.fixture
def chassis(transactional_db: None, simulator: SimulatorProcess, inventory: Inventory) -> Chassis:
    """The row of falcon-1, mirrored."""
    row = address_of(simulator)
    row.save()
    inventory_apply(chassis=row, inventory=inventory)
    return Chassis.objects.get(pk=row.pk)


@dataclass
class Listener:
    """A worker's listener of one chassis, in a thread of its own."""

    refresh_requested: asyncio.Event
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[None]


@contextmanager
def listening_to(chassis: Chassis, inventory: Inventory) -> Iterator[None]:
    """Let a worker listen to a chassis; it ends at once, as it does when its lease is lost."""
    ready = threading.Event()
    listeners: list[Listener] = []

    async def main() -> None:
        async with BmcClient(chassis.address(), at_a_time=POLLER_REQUESTS) as bmc:
            await bmc.service_root()
            refresh_requested = asyncio.Event()
            task = asyncio.create_task(EventListener(chassis.pk, bmc, inventory, refresh_requested).run())
            listeners.append(Listener(refresh_requested, asyncio.get_running_loop(), task))
            ready.set()
            await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        listeners[0].loop.call_soon_threadsafe(listeners[0].task.cancel)
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def listening_process(chassis: Chassis) -> Iterator[subprocess.Popen[bytes]]:
    """Let a worker in a process of its own listen to a chassis; the process may be killed."""
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
    command = [sys.executable, "-m", "tests.telemetry.events.worker", str(chassis.pk)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()
            process.wait()


def truth(simulator: SimulatorProcess, since: int = 0) -> Counter[EventKey]:
    """Return what a chassis told since so many events, and how often."""
    return Counter(
        (record["MessageId"], record["Message"], moment(record["EventTimestamp"]))
        for record in simulator.events()[since:]
    )


def kept(chassis: Chassis) -> Counter[EventKey]:
    """Return what is kept of what a chassis told, and how often."""
    rows = Event.objects.filter(chassis_id=chassis.pk, source="bmc").exclude(message__startswith="FalconWeb.")
    return Counter(
        (row.message_id, row.text, row.told_at.isoformat(timespec="milliseconds") if row.told_at else "")
        for row in rows
    )


def moment(told: str) -> str:
    """Return a time as it is kept."""
    found = parse_timestamp(told)
    return found.isoformat(timespec="milliseconds") if found else ""


def wait_for_stream(simulator: SimulatorProcess) -> None:
    """Wait until somebody listens."""
    wait_for(lambda: simulator.state()["streams"] > 0)


def wait_until_same(chassis: Chassis, simulator: SimulatorProcess, since: int, seconds: float = 60.0) -> None:
    """Wait until what is kept is what was told, each exactly once."""
    end, pauses = time.monotonic() + seconds, Pauses()
    while (found := kept(chassis)) != (told := truth(simulator, since)):
        assert not found - told, f"kept twice, or never told: {found - told}"
        assert time.monotonic() < end, f"missing: {sum((told - found).values())} of {sum(told.values())}"
        pauses.take()
