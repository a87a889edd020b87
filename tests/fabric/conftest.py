"""A chassis of the site that mirrors a real simulated one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounts.models import Role, Tenant, User
from fabric.models import Chassis
from falconweb.testing import SimulatorProcess, mirror

__all__ = ["mirror"]


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    """falcon-1 with fast links."""
    with SimulatorProcess(chassis="falcon-1") as process:
        process.set_speed(20)
        yield process


@pytest.fixture
def chassis(transactional_db: None, simulator: SimulatorProcess) -> Chassis:
    """falcon-1, mirrored once."""
    chassis = Chassis(
        name="falcon-1", url=simulator.address, username="administrator", fingerprint=simulator.fingerprint
    )
    chassis.set_password(simulator.password)
    chassis.save()
    return mirror(chassis)


@pytest.fixture
def administrator(transactional_db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    """A tenant without grants."""
    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def member(tenant: Tenant) -> User:
    """A user of the tenant, who may compose."""
    return User.objects.create_user("bob", password="a-long-password-1", role=Role.USER, tenant=tenant)


@pytest.fixture
def viewer(tenant: Tenant) -> User:
    """A viewer of the tenant."""
    return User.objects.create_user("eve", password="a-long-password-1", role=Role.VIEWER, tenant=tenant)
