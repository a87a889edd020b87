"""`make up` runs an agent for each simulated host."""

from __future__ import annotations

import pytest

from tests.simulator.conftest import eventually
from tests.site import RunningSite, pids_naming

pytestmark = pytest.mark.process


def test_each_simulated_host_has_an_agent_that_takes_commands(running_site: RunningSite) -> None:
    hosts = {folder.name for folder in (running_site.data / "simulator/hosts").iterdir()}
    assert hosts == {"node-a", "node-b", "node-c"}
    for host in hosts:
        log = running_site.data / f"logs/agent-{host}.log"
        eventually(log.read_text, lambda said: "ready\n" in said, seconds=30)
        assert "Traceback" not in log.read_text()
        # What it reads is the tree of its own host.
        assert pids_naming(f"agent.steps\0{running_site.data}/simulator/hosts/{host}")
