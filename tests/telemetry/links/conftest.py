"""A simulated chassis whose links are watched by a real poller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from accounts.models import Role, Tenant, User
from fabric.models import Chassis, Device, HostPort, Port
from falconweb.testing import device_in, mirror
from telemetry.links.models import LinkVerdict
from telemetry.polling.poller import Poller
from tests.processes import SimulatorProcess


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatorProcess]:
    """One simulated falcon-1 for a module."""
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write counts and judge more often than a site does."""
    for name in ("COUNT_SECONDS", "RESTLESS_SECONDS"):
        monkeypatch.setattr(f"telemetry.links.recording.{name}", 0.5)


@pytest.fixture
def simulator(running: SimulatorProcess) -> Iterator[SimulatorProcess]:
    """The simulated chassis without faults."""
    running.clear_faults()
    yield running
    running.clear_faults()


@pytest.fixture
def chassis(transactional_db: None, simulator: SimulatorProcess) -> Chassis:
    """The row of the simulated chassis, walked once."""
    row = Chassis(name="falcon-1", url=simulator.address, username="administrator", fingerprint=simulator.fingerprint)
    row.set_password(simulator.password)
    row.save()
    return mirror(row)


@pytest.fixture
def boss(transactional_db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    """A tenant without grants."""
    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def member(tenant: Tenant) -> User:
    """A user of the tenant."""
    return User.objects.create_user("bob", password="a-long-password-1", role=Role.USER, tenant=tenant)


@pytest.fixture
def viewer(tenant: Tenant) -> User:
    """A viewer of the tenant."""
    return User.objects.create_user("eve", password="a-long-password-1", role=Role.VIEWER, tenant=tenant)


@contextmanager
def polling() -> Iterator[Poller]:
    """A worker's polling thread."""
    poller = Poller()
    thread = threading.Thread(target=lambda: asyncio.run(poller.run()))
    thread.start()
    try:
        yield poller
    finally:
        poller.stop()
        thread.join(20)
        assert not thread.is_alive()


def port_in(chassis: Chassis, *, slot: int, drawer: int = 1) -> Port:
    """Return the port of a slot."""
    device: Device = device_in(chassis, drawer=drawer, slot=slot)
    assert device.slot is not None
    assert device.slot.port is not None
    return device.slot.port


def host_link(chassis: Chassis, label: str) -> Port:
    """Return the port of a host port."""
    port = HostPort.objects.get(chassis=chassis, label=label).port
    assert port is not None
    return port


def verdict_of(port: Port, tenant: Tenant | None = None) -> LinkVerdict | None:
    """Return the verdict on a port's link, if there is one yet."""
    return LinkVerdict.objects.filter(port=port, tenant=tenant).first()


def codes_of(port: Port, tenant: Tenant | None = None) -> set[str]:
    """Return the codes of the reasons."""
    found = verdict_of(port, tenant)
    return {one["code"] for one in found.reasons} if found is not None else set()


def wait_for(true: Callable[[], object], seconds: float = 25.0) -> None:
    """Wait until something came to pass."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)
