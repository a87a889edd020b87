"""A simulated chassis whose links are watched by a real poller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device, HostPort, Port
from falconweb.testing import add_chassis, device_in, mirror
from falconweb.testing.processes import SimulatorProcess
from telemetry.links.models import LinkVerdict


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatorProcess]:
    """One simulated falcon-1 for a module."""
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write counts and judge more often than a site does."""
    for name in ("COUNT_SECONDS", "TIME_DEPENDENT_SECONDS"):
        monkeypatch.setattr(f"telemetry.links.recorder.{name}", 0.5)
    monkeypatch.setattr("telemetry.polling.claims.LULL_SECONDS", 0.0)


@pytest.fixture
def simulator(running: SimulatorProcess) -> Iterator[SimulatorProcess]:
    """The simulated chassis without faults."""
    running.clear_faults()
    yield running
    running.clear_faults()


@pytest.fixture
def chassis(transactional_db: None, simulator: SimulatorProcess) -> Chassis:
    """The row of the simulated chassis, walked once."""
    return mirror(add_chassis(simulator))


@pytest.fixture
def boss(transactional_db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")


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
