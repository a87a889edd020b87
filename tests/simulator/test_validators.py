"""Two independent tools judge the service: DMTF's service validator and protocol validator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.resources.schemas import SCHEMA_FOLDER
from tests.processes import ROOT, SimulatorProcess
from tests.simulator.conftest import Client

CSDL = ROOT.parent / "shared" / "redfish" / "csdl"


def run(tool: str, *arguments: str) -> str:
    """Run a validator with no certificate bundle of the environment and return what it printed."""
    environment = {**os.environ, "REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "", "NO_PROXY": "127.0.0.1"}
    command = [str(Path(sys.executable).with_name(tool)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chassis", ["falcon-1", pytest.param("falcon-2", marks=pytest.mark.nightly)])
def test_the_service_validator_finds_nothing_wrong(chassis: str, tmp_path: Path) -> None:
    if not CSDL.is_dir():
        pytest.skip(f"the Redfish schemas are missing: {CSDL}")
    schemas = tmp_path / "csdl"
    shutil.copytree(CSDL, schemas)
    for schema in SCHEMA_FOLDER.glob("*.xml"):
        shutil.copy(schema, schemas)
    with SimulatorProcess("--speed", "20", chassis=chassis) as process:
        client = Client(process)
        # Something of everything that comes and goes: an event, a task, a subscription.
        assert client.compose("hostport1_H1", ["hostport1_H1"]).status_code == 200
        mode = "StandardOneHost"
        drawer = "drawer1" if chassis == "falcon-1" else "drawer2"
        for port in ("hostport1_H2", "hostport2_H3", "hostport2_H4"):
            client.compose(port, [port])
        patched = client.request("PATCH", f"/redfish/v1/Chassis/{drawer}", json={"Oem": {"H3": {"DrawerMode": mode}}})
        assert patched.status_code == 202, patched.text
        body = {"Destination": "https://127.0.0.1:9/", "Protocol": "Redfish", "Context": "test"}
        assert client.request("POST", "/redfish/v1/EventService/Subscriptions", json=body).status_code == 201
        said = run(
            "rf_service_validator", "-u", "administrator", "-p", process.password, "-r", process.address,
            "--authtype", "Session", "--schema_directory", str(schemas), "--skipschema", "--logdir", str(tmp_path),
        )  # fmt: skip
    figures = re.search(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+\d+\s+\|", said)
    assert figures is not None, said[-2000:]
    passed, warned, failed = (int(figure) for figure in figures.groups())
    assert failed == 0, said
    assert warned == 0, said
    assert passed > 7000
    for uri in ("Oem", "Chassis/drawer1", "LogServices/Events/Entries/1", "TaskService/Tasks/1", "Subscriptions/1"):
        assert uri == "Oem" or f"/{uri}..." in said, f"{uri} was never looked at"


@pytest.mark.timeout(300)
def test_the_protocol_validator_finds_nothing_wrong(tmp_path: Path) -> None:
    with SimulatorProcess() as process:
        said = run(
            "rf_protocol_validator", "-u", "administrator", "-p", process.password, "-r", process.address,
            "--no-cert-check", "--avoid-http-redirect", "--report-dir", str(tmp_path),
        )  # fmt: skip
    figures = re.search(r"PASS: (\d+), WARN: (\d+), FAIL: (\d+)", said)
    assert figures is not None, said[-2000:]
    assert int(figures[3]) == 0, (
        said,
        [line for file in tmp_path.glob("*.tsv") for line in file.open() if "FAIL" in line],
    )
    assert int(figures[1]) > 350
