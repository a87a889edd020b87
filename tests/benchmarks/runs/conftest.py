"""A lab with a host that runs what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from accounts.models import User
from fabric.models import Chassis, Host
from fabric.services.agents import agent_register
from falconweb.testing import AgentProcess, SimulatorProcess
from tests.benchmarks.runs.lab import Lab
from tests.waiting import wait_for


@pytest.fixture
def administrator(transactional_db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")


@pytest.fixture
def lab(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    host_agent: Callable[..., AgentProcess],
    administrator: User,
) -> Iterator[Lab]:
    """node-a of falcon-1 with its agent, heard by the site."""
    agent = host_agent("node-a")
    host = Host.objects.get(name="node-a")
    agent_register(host=host, key=agent.key)
    with agent.delivering():
        wait_for(lambda: Host.objects.get(pk=host.pk).agent.report, "the agent reports")
        yield Lab(falcon_chassis, simulated_falcon, agent, administrator, host)
