"""Fixtures of the agent's tests: simulated hosts, the agent of one of them, and what the BMC is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from falconweb.testing import AgentProcess
from falconweb.testing.hosts import folder_of_hosts
from falconweb.testing.processes import SimulatorProcess
from hostwire.protocol import RescanRequest
from tests.simulator.conftest import Client
from tests.waiting import eventually

DEVICES = 9  # of the chassis, on `node-a`
DRAWER_1, H1_SLOTS = "hostport1_H1", [f"drawer1slot{number}" for number in (1, 2, 3, 4)]


class Lab:
    """One simulated chassis with its hosts, and the agent of `node-a`."""

    def __init__(self, falcon: SimulatorProcess, hosts: Path, agent: AgentProcess) -> None:
        self.falcon = falcon
        self.hosts = hosts
        self.agent = agent
        self.bmc = Client(falcon)
        self.runs: list[str] = []  # that a test may have begun

    @property
    def shown(self) -> dict[str, str]:
        """The addresses that `node-a` shows, by the slot's endpoint."""
        return dict(self.falcon.state()["hosts"]["node-a"])

    def attach(self, *slots: str) -> None:
        """Make these the devices of `node-a`'s first host port, and wait until their links are up."""
        assert self.bmc.compose(DRAWER_1, [DRAWER_1, *slots]).status_code == 200
        eventually(self.falcon.state, lambda state: all(state["links"][slot]["status"] == "LinkUp" for slot in slots))

    def reset(self) -> None:
        """Bring everything back to how the lab began, the devices that were taken included."""
        self.falcon.clear_faults()
        for process in self.falcon.ask_control("GET", "/hosts/node-a/processes"):
            self.falcon.release("node-a", process["pid"])
        self.attach(*H1_SLOTS)
        assert self.agent.ask(RescanRequest(wait=5)).outcome == "seen"
        eventually(lambda: len(self.shown), lambda shown: shown == DEVICES)
        self.falcon.unmount("node-a", "drawer2slot5")

    def folder(self, address: str) -> Path:
        """The folder of a device on `node-a`."""
        return self.hosts / "node-a/sys/bus/pci/devices" / address


@pytest.fixture
def make_lab(
    simulated_falcon: SimulatorProcess, simulated_hosts: Path, host_agent: Callable[..., AgentProcess]
) -> Callable[..., Lab]:
    """A function that starts the agent of `node-a` with options of the test's own."""

    def make(**options: Any) -> Lab:
        return Lab(simulated_falcon, simulated_hosts, host_agent("node-a", **options))

    return make


@pytest.fixture(scope="module")
def lab_of_module() -> Iterator[Lab]:
    """One lab for a module. Its agent takes the commands of `node-a`: no other one may be started there beside it."""
    folder = folder_of_hosts()
    with (
        SimulatorProcess("--hosts-root", str(folder / "hosts"), "--speed", "20") as falcon,
        AgentProcess(folder / "hosts/node-a", state=folder / "agent") as agent,
    ):
        yield Lab(falcon, folder / "hosts", agent)


@pytest.fixture
def lab(lab_of_module: Lab) -> Lab:
    """The lab of the module as it began, with the agent of `node-a`."""
    lab_of_module.reset()
    return lab_of_module
