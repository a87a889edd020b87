"""Three independent tools judge the service: DMTF's validators of services, of the protocol and of profiles."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.gaps import ProfileGap
from fabric.bmc.interoperability import read_profile
from falconweb.testing.processes import SimulatorProcess
from simulator.odata import SCHEMA_FOLDER
from simulator.service import BLOCK_DIALECTS, DIALECTS
from tests.processes import ROOT
from tests.simulator.conftest import PORTS, Client
from tests.waiting import eventually

pytestmark = pytest.mark.process

BLOCKS = "/redfish/v1/CompositionService/ResourceBlocks"
DUMP = "/redfish/v1/Managers/bmc/LogServices/Dump"
CSDL = ROOT.parent / "shared" / "redfish" / "csdl"
OCP = ROOT.parent / "shared" / "redfish" / "profiles"
OWN = ROOT / "docs" / "profiles" / "FalconWebPCIeFabric.v1_0_0.json"
# Its workbook, which nobody reads here, takes five times as long as all that it judges.
SERVICE_VALIDATOR = """
from redfish_service_validator import console_scripts, report

report.xlsx_report = lambda *_: "no workbook"
console_scripts.main()
"""
PROTOCOL_VALIDATOR = "from redfish_protocol_validator.console_scripts import main; main()"
# Its reports have more than it prints, and take longer than all that it judges.
INTEROP_VALIDATOR = """
from redfish_interop_validator import console_scripts, report
from redfish_interop_validator.validate import Result

def tell(sut, *_):
    found = [("", sut._service_resource_results["Results"])]
    found += [(uri, each["Results"]) for uri, each in sut._resources.items()]
    for uri, results in found:
        for name, result in results.items():
            if result["Result"] in (Result.FAIL, Result.WARN):
                print("LACKS", uri or "any", name or "/", result["Message"])

report.html_report = tell
report.xlsx_report = lambda *_: "no workbook"
console_scripts.main()
"""
# What OCP's profile of a baseboard of GPUs (UBB) asks for that does not apply to a chassis of PCIe devices: resource,
# property, reason. docs/simulator.md lists the same.
UBB_EXCEPTIONS = (
    (r"/redfish/v1/Systems/.+", ".+", "hosts are outside of the chassis, at the end of a cable"),
    ("any", "Memory|MemoryCollection|MemoryMetrics", "the chassis does not see the memory of cards and hosts"),
    (r".+/Chassis/\w+", "/Links/ComputerSystems", "hosts are outside of the chassis"),
    (r".+/Processors/gpu\d+", "/EnvironmentMetrics", "temperature and power of a card are sensors of its slot"),
    (r".+/Processors/gpu\d+", "/Ports", "the link of a card is the port of its slot at the switch"),
    (r".+/PCIeDevices/slot\d+", "/DeviceType|/PCIeInterface|/Status/Health", "the slot is empty"),
    (r".+/Sensors/slot\d+_(temp|power)", "/Status/Health", "the slot is empty"),
    (
        r".+/Sensors/\w+",
        r"/Thresholds/(Lower\w+|UpperFatal)",
        "temperatures have upper limits, for caution and critical",
    ),
    (r".+/EnvironmentMetrics", "/EnergyJoules", "energy is in kWh, once"),
    (r".+/Entries/\d+", "/OriginOfCondition", "the schema has it in Links, where it is"),
    (r".+/Entries/\d+", "/Resolution", "it is in the registry of the message"),
    (".+/UpdateService", "/SoftwareInventory", "firmware is listed, in FirmwareInventory; there is no other software"),
)


def run(program: str, *arguments: str) -> str:
    """Run a validator with no certificate bundle of the environment and return what it printed."""
    environment = {**os.environ, "REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout + done.stderr


def use_zones(client: Client, chassis: str) -> None:
    """Leave something of all that comes and goes: an event, a task, a dump, a subscription, an unconfigured port."""
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
    use_the_rest(client, *(("drawer1", "StandardOneHost") if lasting else in_other_mode(chassis)))
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


def use_bridges(client: Client, chassis: str) -> None:
    """Free one bridge of a virtual switch."""
    uri = "/redfish/v1/Fabrics/PCIe/Switches/drawer1_switch/VCSs/H1/VPPBs/1"
    assert client.request("PATCH", uri, json={"Links": {"Port": None}}).ok
    use_the_rest(client, *in_other_mode(chassis))


def in_other_mode(chassis: str) -> tuple[str, str]:
    """Return a drawer and a mode that it is not in."""
    return "drawer2" if chassis == "falcon-1" else "drawer1", "Advanced"


# What is done first in a service of a dialect; others are judged as they begin.
USES: dict[str, Callable[[Client, str], None]] = {
    "both": use_zones,
    "cxl": use_bridges,
    **dict.fromkeys(BLOCK_DIALECTS, use_blocks),
}
# Of the older PSME, zones are not as the schemas of today want them; of Intel's PNC, ports tell no link.
JUDGED_DIALECTS = sorted(set(DIALECTS) - {"psme-old", "pnc"})
CASES = [
    (dialect, chassis) for dialect in JUDGED_DIALECTS for chassis in ("falcon-1", "falcon-2")[: 1 + (dialect in USES)]
]


def use_the_rest(client: Client, drawer: str, wanted: str = "StandardOneHost") -> None:
    mode = {"Oem": {"H3": {"DrawerMode": wanted}}}
    port = f"{PORTS}/slot8"
    assert client.request("PATCH", port, json={"PortType": "UnconfiguredPort", "ConfiguredWidth": 4}).ok
    assert client.request("PATCH", f"/redfish/v1/Chassis/{drawer}", json=mode).status_code == 202
    collect = {"DiagnosticDataType": "Manager"}
    assert client.request("POST", f"{DUMP}/Actions/LogService.CollectDiagnosticData", json=collect).status_code == 202
    eventually(lambda: client.get(f"{DUMP}/Entries")["Members"], bool)
    body = {"Destination": "https://127.0.0.1:9/", "Protocol": "Redfish", "Context": "test"}
    assert client.request("POST", "/redfish/v1/EventService/Subscriptions", json=body).status_code == 201


@pytest.mark.nightly
@pytest.mark.parametrize(("dialect", "chassis"), CASES)
def test_the_service_validator_finds_nothing_wrong(dialect: str, chassis: str, tmp_path: Path) -> None:
    if not CSDL.is_dir():
        pytest.skip(f"the Redfish schemas are missing: {CSDL}")
    schemas = tmp_path / "csdl"
    shutil.copytree(CSDL, schemas)
    for schema in SCHEMA_FOLDER.glob("*.xml"):
        shutil.copy(schema, schemas)
    with SimulatorProcess("--speed", "20", "--dialect", dialect, chassis=chassis) as process:
        if dialect in USES:
            USES[dialect](Client(process), chassis)
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
    lasting = ("LogServices/Events/Entries/1", "LogServices/Dump/Entries/1", "TaskService/Tasks/1", "Subscriptions/1")
    used = lasting if dialect in USES else ()
    for uri in ("Oem", "Chassis/drawer1", *used):
        assert uri == "Oem" or f"/{uri}..." in said, f"{uri} was never looked at"


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", JUDGED_DIALECTS)
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


def lacks(profile: Path, folder: Path, *options: str, dialect: str = "both", chassis: str = "falcon-1") -> list[str]:
    """Return what a simulator lacks of a profile: resource, property and sentence a line."""
    with SimulatorProcess("--dialect", dialect, *options, chassis=chassis) as process:
        if dialect in USES:
            USES[dialect](Client(process), chassis)
        said = run(
            INTEROP_VALIDATOR, "-u", "administrator", "-p", process.password, "-r", process.address,
            "--logdir", str(folder), str(profile),
        )  # fmt: skip
    assert re.search(r"\|\s+\d{2,}\s+\|\s+\d+\s+\|\s+\d+\s+\|", said), said[-2000:]
    return [line.removeprefix("LACKS ") for line in said.splitlines() if line.startswith("LACKS ")]


@pytest.mark.nightly
@pytest.mark.parametrize(("dialect", "chassis"), CASES)
def test_nothing_lacks_of_the_profile_of_a_fabric(dialect: str, chassis: str, tmp_path: Path) -> None:
    assert lacks(OWN, tmp_path, dialect=dialect, chassis=chassis) == []


@pytest.mark.nightly
def test_nothing_lacks_of_the_baseline_of_ocp(tmp_path: Path) -> None:
    profile = OCP / "OCPBaselineHardwareManagement.v1_0_1.json"
    if not profile.is_file():
        pytest.skip(f"the profiles are missing: {OCP}")
    assert lacks(profile, tmp_path, "--legacy") == []


@pytest.fixture
def ubb(tmp_path: Path) -> Path:
    """Return OCP's profile of GPU baseboards, whose level IfImplement the validator refuses as it is published."""
    published = OCP / "OCP_UBB_BaselineManagement.v1.1.0.json"
    if not published.is_file():
        pytest.skip(f"the profiles are missing: {OCP}")
    profile = tmp_path / "OCP_UBB_BaselineManagement.v1_1_0.json"
    profile.write_text(published.read_text().replace('"IfImplement"', '"IfImplemented"'))
    return profile


@pytest.mark.nightly
def test_only_what_does_not_apply_lacks_of_ocps_profile_of_gpu_baseboards(ubb: Path, tmp_path: Path) -> None:
    missing = [line.split(" ", 2) for line in lacks(ubb, tmp_path)]
    excepted = [
        {
            number
            for number, (place, what, _) in enumerate(UBB_EXCEPTIONS)
            if re.fullmatch(place, uri) and re.fullmatch(what, name)
        }
        for uri, name, _ in missing
    ]
    assert [line for line, found in zip(missing, excepted, strict=True) if not found] == []
    # None of the exceptions is needed no longer.
    assert set().union(*excepted) == set(range(len(UBB_EXCEPTIONS)))


@pytest.mark.nightly
def test_what_lacks_is_the_same_for_the_validator_and_for_falconweb(ubb: Path, tmp_path: Path) -> None:
    theirs = {re.sub(r"/\d+(?=/)", "", line.split(" ", 2)[1]).strip("/") for line in lacks(ubb, tmp_path)}

    async def gaps() -> tuple[ProfileGap, ...]:
        with SimulatorProcess() as process:
            use_zones(Client(process), "falcon-1")
            trust = CertificateTrust(fingerprint=process.fingerprint)
            address = BmcAddress(url=process.address, username="viewer", password=process.password, trust=trust)
            async with BmcClient(address) as bmc:
                return (await discover(bmc, everything=True, profile=read_profile(str(ubb)))).gaps or ()

    found = asyncio.run(gaps())
    assert len(theirs) > 20
    assert {gap.property or gap.resource for gap in found if not gap.is_recommended} == theirs


def test_the_documentation_has_the_exceptions_with_their_reasons() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text()
    documented = set(re.findall(r"^\|.+\| (.+) \|$", text.partition("## Judged from outside")[2], re.MULTILINE)) - {
        "Since"
    }
    assert documented == {reason for _, _, reason in UBB_EXCEPTIONS}
