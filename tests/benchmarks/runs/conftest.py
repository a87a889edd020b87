"""A lab with a host that runs what is asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from accounts.models import User
from agent.machine import Machine
from agent.report import HostReporter
from agent.runs.manager import RunManager
from agent.settings import Settings
from fabric.agents.services import agent_register, report_store
from fabric.inventory.models import Chassis, Host
from falconweb.testing import AgentProcess, SimulatorProcess
from hostwire.protocol import HostReport
from hostwire.signing import new_key, seal_report
from tests.benchmarks.runs.lab import Lab, RunningLab
from tests.waiting import wait_for


@pytest.fixture
def administrator(transactional_db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")


@pytest.fixture
def lab(
    request: pytest.FixtureRequest,
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    simulated_hosts: Path,
    administrator: User,
) -> Lab:
    """node-a of falcon-1, which has reported what it is like once; only a test `with_agent` can run something there."""
    if request.node.get_closest_marker("with_agent"):
        running: Lab = request.getfixturevalue("running_lab")
        return running
    host, key = Host.objects.get(name="node-a"), new_key()
    agent_register(host=host, key=key)
    report_store(seal_report(reported(simulated_hosts, host), key))
    return Lab(falcon_chassis, simulated_falcon, administrator, host)


@pytest.fixture
def running_lab(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    host_agent: Callable[..., AgentProcess],
    administrator: User,
) -> Iterator[RunningLab]:
    """node-a of falcon-1 with its agent, heard by the site."""
    agent = host_agent("node-a")
    host = Host.objects.get(name="node-a")
    agent_register(host=host, key=agent.key)
    with agent.delivering():
        wait_for(lambda: Host.objects.get(pk=host.pk).agent.report, "the agent reports")
        yield RunningLab(falcon_chassis, simulated_falcon, administrator, host, agent)


_reports: dict[str, HostReport] = {}


def reported(hosts: Path, host: Host) -> HostReport:
    """Return what the agent of a host reports; looked at once, since each simulated chassis begins alike."""
    if host.name not in _reports:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AGENT_ROOT", str(hosts / host.name))
            environment.setenv("AGENT_NVML", "simulator.nvml")
            unused = {"AGENT_KEY": new_key(), "AGENT_BROKER": "unused", "AGENT_HOST": host.identity}
            settings = Settings.from_environment({**os.environ, **unused})
            machine = Machine(settings.root, read_seconds=settings.read_seconds, step_seconds=settings.step_seconds)
            reporter = HostReporter(settings, machine, RunManager(settings, machine))

            def with_gpus() -> HostReport | None:
                report = reporter.read()
                return report if len(report.gpus) >= host.local_gpu_count else None

            # Where this is the first look at the host, the simulator has just begun to write its meters.
            _reports[host.name] = wait_for(with_gpus)
            machine.close()
    return replace(_reports[host.name], started=time.time(), sent=time.time())
