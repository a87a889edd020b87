"""Fixtures of the simulator's tests: a running chassis and a small client that checks certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess

V1 = "/redfish/v1"
ZONES = f"{V1}/Fabrics/PCIe/Zones"
ENDPOINTS = f"{V1}/Fabrics/PCIe/Endpoints"
PORTS = f"{V1}/Fabrics/PCIe/Switches/drawer1_switch/Ports"


class Client:
    """Requests to one simulated chassis as one of its people, by Basic."""

    def __init__(self, process: SimulatorProcess, user: str = "administrator") -> None:
        self.process = process
        self.session = requests.Session()
        # The environment may name a proxy or another CA; neither is about a process on this machine.
        self.session.trust_env = False
        self.session.verify = str(process.certificate)
        self.session.auth = (user, process.password)

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send one request; 10 s are enough for every answer but a hanging one."""
        options.setdefault("timeout", 10)
        return self.session.request(method, self.process.address + path, **options)

    def get(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the body of a resource that is there."""
        reply = self.request("GET", path, **options)
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        return body

    def zone(self, zone: str) -> list[str]:
        """Return the endpoint Ids of a zone, in its order."""
        return [one["@odata.id"].rpartition("/")[2] for one in self.get(f"{ZONES}/{zone}")["Links"]["Endpoints"]]

    def compose(self, zone: str, endpoints: list[str], **options: Any) -> requests.Response:
        """Send a zone its whole new list."""
        body = {"Links": {"Endpoints": [{"@odata.id": f"{ENDPOINTS}/{one}"} for one in endpoints]}}
        return self.request("PATCH", f"{ZONES}/{zone}", json=body, **options)


def rule_of(reply: requests.Response) -> str:
    """Return the sentence of a refusal."""
    return str(reply.json()["error"]["@Message.ExtendedInfo"][0]["Message"])


@pytest.fixture(scope="module")
def shared() -> Iterator[SimulatorProcess]:
    """One chassis for the tests of a module that leave it as they found it."""
    with SimulatorProcess("--speed", "10") as process:
        yield process


@pytest.fixture
def client(shared: SimulatorProcess) -> Client:
    """The administrator of the module's chassis."""
    return Client(shared)


@pytest.fixture
def fresh() -> Iterator[SimulatorProcess]:
    """A chassis of the test's own, in the state of the lab file, with quick time."""
    with SimulatorProcess("--speed", "10") as process:
        yield process
