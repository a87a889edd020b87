"""Services that the wire is tested against: published mock-ups and the simulated chassis, each in its own process."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from falconweb.testing.processes import SimulatorProcess
from tests.processes import ROOT
from tests.waiting import wait_for

SHARED = ROOT.parent / "shared" / "redfish"
# It writes the head of an answer before the body, which would wait for the head's acknowledgement, 40 ms each time.
SERVE_AT_ONCE = """
import runpy, socketserver, sys

socketserver.StreamRequestHandler.disable_nagle_algorithm = True
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextlib.contextmanager
def serve_mockup(folder: Path, credentials: str = "") -> Iterator[str]:
    """Serve a published tree from a process of its own and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-c",
        SERVE_AT_ONCE,
        str(SHARED / "serve.py"),
        str(folder),
        str(port),
        *([credentials] if credentials else []),
    ]
    with subprocess.Popen(command) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: answers(url), f"{url} did not get ready")
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    """Tell whether something answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{url}/redfish", timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which simulated chassis of this run keep their certificate."""
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def running_chassis(certificates: Path) -> Iterator[SimulatorProcess]:
    """Run one simulated chassis for a module."""
    with SimulatorProcess(certificate_directory=certificates) as process:
        yield process


@pytest.fixture
def chassis(running_chassis: SimulatorProcess) -> Iterator[SimulatorProcess]:
    """Return the simulated chassis, without faults and with links that train at once."""
    running_chassis.clear_faults()
    running_chassis.set_speed(20.0)
    yield running_chassis
    running_chassis.clear_faults()


def pinned(process: SimulatorProcess, username: str = "administrator") -> BmcAddress:
    """Return the address of a simulated chassis, its certificate pinned."""
    return BmcAddress(
        url=process.address,
        username=username,
        password=process.password,
        trust=CertificateTrust(fingerprint=process.fingerprint),
    )


@pytest.fixture
async def bmc(chassis: SimulatorProcess) -> AsyncIterator[BmcClient]:
    """Return a client signed in as administrator of the simulated chassis."""
    async with BmcClient(pinned(chassis), timeout=5.0) as client:
        yield client
