"""A person moves cables: the BMC tells which host is behind a host port, and what is attached stays attached."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path

import pytest

from falconweb.testing.processes import SimulatorProcess
from simulator.lab import DEFAULT_LAB
from tests.simulator.conftest import ENDPOINTS, PORTS, V1, Client
from tests.simulator.test_events import events, stream
from tests.waiting import eventually


def cable(process: SimulatorProcess, port: str, host: str | None, chassis: str = "falcon-1") -> None:
    process.ask_control("POST", f"/chassis/{chassis}/cabling", {"port": port, "host": host})


def host_behind(client: Client, port: str) -> str | None:
    entity = client.get(f"{ENDPOINTS}/{port}")["ConnectedEntities"][0]
    assert (entity["EntityType"], entity["EntityRole"]) == ("RootComplex", "Initiator")
    return entity["EntityLink"]["@odata.id"].rpartition("/")[2] if "EntityLink" in entity else None


def systems(client: Client) -> list[str]:
    return [one["@odata.id"].rpartition("/")[2] for one in client.get(f"{V1}/Systems")["Members"]]


def test_a_cable_leads_to_another_host_and_its_devices_with_it(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    cable(fresh, "H3", "node-b")
    assert host_behind(client, "hostport1_H3") == "node-b"
    assert systems(client) == ["node-a", "node-b"]
    assert client.request("GET", f"{V1}/Systems/node-c").status_code == 404
    assert client.request("GET", f"{V1}/Systems/node-c/Processors/cpu1").status_code == 404
    assert client.get(f"{V1}/Systems/node-b")["Links"]["Endpoints"] == [
        {"@odata.id": f"{ENDPOINTS}/hostport1_H2"}, {"@odata.id": f"{ENDPOINTS}/hostport1_H3"},
    ]  # fmt: skip
    eventually(lambda: client.get(f"{PORTS}/H3")["LinkStatus"], "LinkUp".__eq__)


def test_a_cable_from_a_host_that_is_off_to_one_that_is_on_has_a_link_again(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    off = client.request("POST", f"{V1}/Systems/node-c/Actions/ComputerSystem.Reset", json={"ResetType": "ForceOff"})
    assert off.status_code == 204
    eventually(lambda: client.get(f"{PORTS}/H3")["LinkStatus"], "LinkDown".__eq__)
    cable(fresh, "H3", "node-b")
    eventually(lambda: client.get(f"{PORTS}/H3")["LinkStatus"], "LinkUp".__eq__)


def test_a_pulled_cable_leaves_the_devices_attached_and_unreached(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    before = fresh.state()["zones"]
    cable(fresh, "hostport1_H1", None)
    assert host_behind(client, "hostport1_H1") is None
    upstream = client.get(f"{PORTS}/H1")
    assert (upstream["LinkStatus"], upstream["ActiveWidth"], upstream["PortType"]) == ("NoLink", 0, "UpstreamPort")
    assert fresh.state()["zones"] == before
    # A switch that loses its upstream link resets what is below; those links come up again, for nobody to use.
    eventually(lambda: fresh.state()["links"]["drawer1slot1"]["status"], "LinkUp".__eq__)
    gpu = f"{V1}/ResourceBlocks/drawer1slot1/Processors/gpu1/ProcessorMetrics"
    eventually(lambda: client.get(gpu)["BandwidthPercent"], (0.0).__eq__)
    assert client.compose("hostport1_H1", ["hostport1_H1", "drawer1slot2"]).ok
    cable(fresh, "H1", "node-c")
    eventually(lambda: client.get(f"{PORTS}/H1")["LinkStatus"], "LinkUp".__eq__)
    eventually(lambda: client.get(gpu.replace("slot1", "slot2").replace("gpu1", "gpu2"))["BandwidthPercent"], bool)


def test_a_moved_cable_is_reported_by_events_that_name_nobody(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    with stream(client) as reply:
        cable(fresh, "H3", "node-b")
        told = events(reply)
        records = [next(told)[1]["Events"][0] for _ in range(4)]
    assert [record["MessageId"].rpartition(".")[2] for record in records] == [
        "CableRemoved", "UpstreamLinkDropped", "CableInserted", "EndpointModified",
    ]  # fmt: skip
    assert records[-1]["OriginOfCondition"] == {"@odata.id": f"{ENDPOINTS}/hostport1_H3"}
    assert all("Username" not in record for record in records)


def test_a_cable_that_is_where_it_should_be_is_left_alone(fresh: SimulatorProcess) -> None:
    before = fresh.state()["log_entries"]
    cable(fresh, "H3", "node-c")
    assert fresh.state()["log_entries"] == before
    assert fresh.state()["links"]["hostport1_H3"]["status"] == "LinkUp"


def test_a_port_without_a_cable_is_composed_like_others() -> None:
    with SimulatorProcess("--dialect", "blocks", "--speed", "10") as process:
        client = Client(process)
        cable(process, "H3", None)
        system = client.get(f"{V1}/Systems/hostport1_H3")
        assert system["Status"] == {"State": "Absent"}
        assert "HostName" not in system
        assert client.request("GET", f"{V1}/Systems/hostport1_H3/Processors").status_code == 404
        target = f"{V1}/Systems/hostport1_H3/Actions/ComputerSystem.AddResourceBlock"
        block = f"{V1}/CompositionService/ResourceBlocks/drawer1slot7"
        assert client.request("POST", target, json={"ResourceBlock": {"@odata.id": block}}).status_code == 204
        cable(process, "H3", "node-a")
        assert client.get(f"{V1}/Systems/hostport1_H3")["HostName"] == "node-a"
        assert len(client.get(f"{V1}/Systems/hostport1_H3/Processors")["Members"]) == 10


def test_a_lab_may_have_a_port_without_a_cable(tmp_path: Path) -> None:
    lab = json.loads(DEFAULT_LAB.read_text())
    lab["chassis"]["falcon-1"]["drawers"][0]["host_ports"]["H3"] = None
    file = tmp_path / "lab.json"
    file.write_text(json.dumps(lab))
    with SimulatorProcess("--lab", str(file)) as process:
        client = Client(process)
        assert host_behind(client, "hostport1_H3") is None
        assert client.get(f"{PORTS}/H3")["LinkStatus"] == "NoLink"
        assert systems(client) == ["node-a", "node-b"]


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("falcon-1", {"port": "H9", "host": "node-a"}, 400, "there are H1, H2, H3, H4"),
        ("falcon-1", {"port": "H1", "host": "node-z"}, 400, "node-a, node-b, node-c"),
        ("falcon-1", {"port": "H1"}, 400, "host"),
        ("falcon-1", {"port": "H1", "host": "node-a", "colour": "red"}, 400, "colour"),
        ("falcon-9", {"port": "H1", "host": "node-a"}, 404, "falcon-1"),
    ],
)
def test_a_cable_that_cannot_be_is_refused(
    shared: SimulatorProcess, path: str, body: dict[str, object], status: int, word: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        shared.ask_control("POST", f"/chassis/{path}/cabling", body)
    assert refusal.value.code == status
    assert word in refusal.value.read().decode()
