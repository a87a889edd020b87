"""A chassis of the site that mirrors a real simulated one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounts.models import User
from fabric.models import Chassis
from falconweb.testing import SimulatorProcess, add_mirrored, mirror

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
    return add_mirrored(simulator)


@pytest.fixture
def administrator(transactional_db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")
