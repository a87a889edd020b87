"""Two independent tools judge the service: DMTF's service validator and protocol validator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from falconweb.testing.processes import SimulatorProcess
from simulator.odata import SCHEMA_FOLDER
from simulator.service import BLOCK_DIALECTS
from tests.processes import ROOT
from tests.simulator.conftest import PORTS, Client

pytestmark = pytest.mark.process

BLOCKS = "/redfish/v1/CompositionService/ResourceBlocks"
CSDL = ROOT.parent / "shared" / "redfish" / "csdl"
# Its workbook, which nobody reads here, takes five times as long as all that it judges.
SERVICE_VALIDATOR = """
from redfish_service_validator import console_scripts, report

report.xlsx_report = lambda *_: "no workbook"
console_scripts.main()
"""
PROTOCOL_VALIDATOR = "from redfish_protocol_validator.console_scripts import main; main()"


def run(program: str, *arguments: str) -> str:
    """Run a validator with no certificate bundle of the environment and return what it printed."""
    environment = {**os.environ, "REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout + done.stderr


def use_zones(client: Client, chassis: str) -> None:
    """Leave something of everything that comes and goes: an event, a task, a subscription, an unconfigured port."""
    assert client.compose("hostport1_H1", ["hostport1_H1"]).status_code == 200
    for port in ("hostport1_H2", "hostport2_H3", "hostport2_H4"):
        client.compose(port, [port])
    use_the_rest(client, "drawer1" if chassis == "falcon-1" else "drawer2")


def use_blocks(client: Client, chassis: str) -> None:
    """Leave the same, and one resource block where it was."""
    for slot in range(1, 7):
        for port in ("hostport1_H1", "hostport1_H2"):
            target = f"/redfish/v1/Systems/{port}/Actions/ComputerSystem.RemoveResourceBlock"
            client.request("POST", target, json={"ResourceBlock": {"@odata.id": f"{BLOCKS}/drawer1slot{slot}"}})
    use_composed_systems(client)
    lasting = client.request("GET", "/redfish/v1/Systems/hostport1_H1").ok
    use_the_rest(
        client,
        *(
            ("drawer1", "StandardOneHost")
            if lasting
            else ("drawer2" if chassis == "falcon-1" else "drawer1", "Advanced")
        ),
    )
    client.process.ask_control("POST", f"/chassis/{chassis}/cabling", {"port": "H3", "host": None})


def use_composed_systems(client: Client) -> None:
    """Empty a system whose list of blocks is patched, or compose one more: by POST, or by a manifest."""
    client.request("PATCH", "/redfish/v1/Systems/hostport1_H1", json={"Links": {"ResourceBlocks": []}})
    block = f"{BLOCKS}/hostport1_H3"
    client.request("PATCH", block, json={"Pool": "Free", "Client": "FalconWeb"})
    system = {"Links": {"ResourceBlocks": [{"@odata.id": block}]}}
    client.request("POST", "/redfish/v1/Systems", json=system)
    stanzas = [{"StanzaType": "ComposeSystem", "StanzaId": "1", "Request": system}]
    body = {"RequestFormat": "Manifest", "RequestType": "Apply", "Manifest": {"Stanzas": stanzas}}
    client.request("POST", "/redfish/v1/CompositionService/Actions/CompositionService.Compose", json=body)


def use_the_rest(client: Client, drawer: str, wanted: str = "StandardOneHost") -> None:
    mode = {"Oem": {"H3": {"DrawerMode": wanted}}}
    port = f"{PORTS}/slot8"
    assert client.request("PATCH", port, json={"PortType": "UnconfiguredPort", "ConfiguredWidth": 4}).ok
    assert client.request("PATCH", f"/redfish/v1/Chassis/{drawer}", json=mode).status_code == 202
    body = {"Destination": "https://127.0.0.1:9/", "Protocol": "Redfish", "Context": "test"}
    assert client.request("POST", "/redfish/v1/EventService/Subscriptions", json=body).status_code == 201


@pytest.mark.nightly
@pytest.mark.parametrize("chassis", ["falcon-1", "falcon-2"])
@pytest.mark.parametrize("dialect", ["both", *sorted(BLOCK_DIALECTS)])
def test_the_service_validator_finds_nothing_wrong(chassis: str, dialect: str, tmp_path: Path) -> None:
    if not CSDL.is_dir():
        pytest.skip(f"the Redfish schemas are missing: {CSDL}")
    schemas = tmp_path / "csdl"
    shutil.copytree(CSDL, schemas)
    for schema in SCHEMA_FOLDER.glob("*.xml"):
        shutil.copy(schema, schemas)
    with SimulatorProcess("--speed", "20", "--dialect", dialect, chassis=chassis) as process:
        (use_zones if dialect == "both" else use_blocks)(Client(process), chassis)
        said = run(
            SERVICE_VALIDATOR, "-u", "administrator", "-p", process.password, "-r", process.address,
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


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", ["both", *sorted(BLOCK_DIALECTS)])
def test_the_protocol_validator_finds_nothing_wrong(dialect: str, tmp_path: Path) -> None:
    with SimulatorProcess("--dialect", dialect) as process:
        said = run(
            PROTOCOL_VALIDATOR, "-u", "administrator", "-p", process.password, "-r", process.address,
            "--no-cert-check", "--avoid-http-redirect", "--report-dir", str(tmp_path),
        )  # fmt: skip
    figures = re.search(r"PASS: (\d+), WARN: (\d+), FAIL: (\d+)", said)
    assert figures is not None, said[-2000:]
    assert int(figures[3]) == 0, (
        said,
        [line for file in tmp_path.glob("*.tsv") for line in file.open() if "FAIL" in line],
    )
    assert int(figures[1]) > 350
