"""Services of other makers: endpoints at the top level of a zone, resource blocks of systems, or no way at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess
from simulator.service import DIALECTS
from tests.simulator.conftest import ENDPOINTS, PORTS, V1, ZONES, Client, rule_of
from tests.waiting import eventually

SYSTEM = f"{V1}/Systems/hostport1_H3"
BLOCKS = f"{V1}/CompositionService/ResourceBlocks"
NIC = f"{BLOCKS}/drawer1slot7"


@pytest.fixture
def blocks() -> Iterator[Client]:
    """The administrator of a chassis that composes by resource blocks."""
    with SimulatorProcess("--dialect", "blocks", "--speed", "10") as process:
        yield Client(process)


def change(client: Client, verb: str, block: str, system: str = SYSTEM, **more: object) -> requests.Response:
    body = {"ResourceBlock": {"@odata.id": block}, **more}
    return client.request("POST", f"{system}/Actions/ComputerSystem.{verb}ResourceBlock", json=body)


def listed(client: Client, *ids: str) -> list[dict[str, str]]:
    return [{"@odata.id": f"{ENDPOINTS}/{one}"} for one in ids]


def test_an_older_service_has_its_endpoints_at_the_top_and_takes_them_nowhere_else() -> None:
    with SimulatorProcess("--dialect", "psme-old") as process:
        client = Client(process)
        uri = f"{ZONES}/hostport1_H3"
        zone = client.get(uri)
        assert zone["Endpoints"] == listed(client, "hostport1_H3")
        assert "Endpoints" not in zone["Links"]
        assert "Actions" not in zone
        wanted = listed(client, "hostport1_H3", "drawer1slot7")
        etag = client.request("GET", uri).headers["ETag"]
        assert client.request("PATCH", uri, json={"Links": {"Endpoints": wanted}}).status_code == 400
        assert client.request("PATCH", uri, json={"Endpoints": wanted}, headers={"If-Match": etag}).ok
        assert client.request("PATCH", uri, json={"Endpoints": wanted}, headers={"If-Match": etag}).status_code == 412
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]


def test_a_service_of_today_takes_its_endpoints_below_links_alone() -> None:
    with SimulatorProcess("--dialect", "patch") as process:
        client = Client(process)
        body = {"Endpoints": listed(client, "hostport1_H3", "drawer1slot7")}
        assert client.request("PATCH", f"{ZONES}/hostport1_H3", json=body).status_code == 400
        assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok


def test_a_block_is_added_to_a_system_and_removed(blocks: Client) -> None:
    service = blocks.get(f"{V1}/CompositionService")
    members = [one["@odata.id"] for one in blocks.get(service["ResourceBlocks"]["@odata.id"])["Members"]]
    assert len(members) == len(blocks.process.state()["present"])
    etags = {
        "ResourceBlockETag": blocks.request("GET", NIC).headers["ETag"],
        "ComputerSystemETag": blocks.request("GET", SYSTEM).headers["ETag"],
    }
    assert change(blocks, "Add", NIC, **etags).status_code == 204
    assert blocks.get(SYSTEM)["Links"]["ResourceBlocks"] == [{"@odata.id": NIC}]
    assert blocks.get(NIC)["Links"]["ComputerSystems"] == [{"@odata.id": SYSTEM}]
    assert blocks.get(NIC)["CompositionStatus"]["CompositionState"] == "Composed"
    assert blocks.process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
    eventually(lambda: blocks.get(f"{PORTS}/slot7")["LinkStatus"], "LinkUp".__eq__)
    stale = change(blocks, "Remove", NIC, **etags)
    assert stale.status_code == 428
    assert change(blocks, "Remove", NIC).status_code == 204
    assert change(blocks, "Remove", NIC).status_code == 404
    assert blocks.process.state()["zones"]["hostport1_H3"] == []


def test_a_system_takes_the_whole_list_of_its_blocks() -> None:
    with SimulatorProcess("--dialect", "block-patch") as process:
        client = Client(process)
        assert "Actions" not in client.get(SYSTEM)
        etag = client.request("GET", SYSTEM).headers["ETag"]
        body = {"Links": {"ResourceBlocks": [{"@odata.id": NIC}]}}
        assert client.request("PATCH", SYSTEM, json=body, headers={"If-Match": etag}).status_code == 200
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
        stale = client.request("PATCH", SYSTEM, json={"Links": {"ResourceBlocks": []}}, headers={"If-Match": etag})
        assert stale.status_code == 412
        other = {"Links": {"ResourceBlocks": [{"@odata.id": f"{BLOCKS}/drawer1slot1"}]}}
        refused = client.request("PATCH", SYSTEM, json=other)
        assert (refused.status_code, "belongs to the system" in rule_of(refused)) == (409, True)
        assert client.request("PATCH", SYSTEM, json={"AssetTag": "x"}).status_code == 400
        assert client.request("PATCH", SYSTEM, json={"Links": {"ResourceBlocks": []}}).ok
        assert process.state()["zones"]["hostport1_H3"] == []


def test_a_bridge_is_bound_to_the_port_of_a_device_and_freed() -> None:
    with SimulatorProcess("--dialect", "cxl") as process:
        client = Client(process)
        switch = f"{V1}/Fabrics/PCIe/Switches/drawer1_switch"
        assert client.get(switch)["CXL"]["NumberOfBoundvPPBs"] == 6
        assert client.get(f"{switch}/VCSs/H3")["Links"]["Port"] == {"@odata.id": f"{PORTS}/H3"}
        bridge, nic = f"{switch}/VCSs/H3/VPPBs/5", {"Links": {"Port": {"@odata.id": f"{PORTS}/slot7"}}}
        etag = client.request("GET", bridge).headers["ETag"]
        bound = client.request("PATCH", bridge, json=nic, headers={"If-Match": etag}).json()
        assert (bound["BindingStatus"], bound["Links"]["Port"]) == ("BoundPhysicalPort", nic["Links"]["Port"])
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
        assert client.request("PATCH", bridge, json=nic, headers={"If-Match": etag}).status_code == 412
        other = {"Links": {"Port": {"@odata.id": f"{PORTS}/slot1"}}}
        for uri, body, word in [
            (bridge, other, "free it first"),
            (f"{switch}/VCSs/H3/VPPBs/6", nic, "at another bridge"),
            (f"{switch}/VCSs/H3/VPPBs/6", other, "belongs to the virtual switch hostport1_H1"),
            (f"{switch}/VCSs/H2/VPPBs/8", {"Links": {"Port": {"@odata.id": f"{PORTS}/slot8"}}}, "no device"),
            (bridge, {"Links": {"Port": {"@odata.id": f"{PORTS}/H1"}}}, "not of a type"),
            (bridge, {"BoundLDId": 1}, "not in the list"),
        ]:
            refused = client.request("PATCH", uri, json=body)
            assert (refused.status_code in (400, 409), word in rule_of(refused)) == (True, True), refused.text
        assert client.request("PATCH", bridge, json={"Links": {"Port": None}}).json()["BindingStatus"] == "Unbound"
        assert process.state()["zones"]["hostport1_H3"] == []


def test_no_zone_is_offered_where_blocks_are(blocks: Client) -> None:
    assert "Zones" not in blocks.get(f"{V1}/Fabrics/PCIe")
    assert blocks.request("GET", ZONES).status_code == 404
    assert blocks.request("GET", f"{V1}/ResourceBlocks").status_code == 404
    pool = blocks.get(f"{V1}/CompositionService/ResourceZones/drawer1")
    assert {"@odata.id": NIC} in pool["Links"]["ResourceBlocks"]


@pytest.mark.parametrize(
    ("block", "status", "word"),
    [
        (f"{BLOCKS}/drawer1slot1", 409, "belongs to the system hostport1_H1"),
        (f"{BLOCKS}/drawer2slot1", 409, "cannot reach drawer2slot1"),
        (f"{BLOCKS}/drawer1slot8", 400, "was not found"),
        (f"{BLOCKS}/hostport1_H3", 400, "was not found"),
        (f"{V1}/Chassis/drawer1", 400, "not of a type"),
        ("", 400, "not of a type"),
    ],
)
def test_a_block_that_cannot_be_added_is_refused_with_a_sentence(
    blocks: Client, block: str, status: int, word: str
) -> None:
    before = blocks.process.state()["zones"]
    refused = change(blocks, "Add", block)
    assert refused.status_code == status
    assert word in rule_of(refused)
    assert blocks.process.state()["zones"] == before


def test_a_viewer_adds_no_block_and_an_action_without_one_is_refused(blocks: Client) -> None:
    assert change(Client(blocks.process, "viewer"), "Add", NIC).status_code == 403
    target = f"{SYSTEM}/Actions/ComputerSystem.AddResourceBlock"
    assert "requires the parameter ResourceBlock" in rule_of(blocks.request("POST", target, json={}))


def test_each_device_is_a_block_that_leads_to_it() -> None:
    with SimulatorProcess("--dialect", "blocks", chassis="falcon-2") as process:
        client = Client(process)
        card = client.get(f"{BLOCKS}/drawer1slot7")
        processor = client.get(card["Processors"][0]["@odata.id"])
        assert (processor["ProcessorType"], processor["Model"]) == ("Accelerator", "Alveo U250")
        assert processor["Links"]["PCIeDevice"] == {"@odata.id": f"{V1}/Chassis/drawer1/PCIeDevices/slot7"}
        nic = client.get(client.get(f"{BLOCKS}/drawer2slot6")["NetworkInterfaces"][0]["@odata.id"])
        adapter = client.get(nic["Links"]["NetworkAdapter"]["@odata.id"])
        devices = adapter["Controllers"][0]["Links"]["PCIeDevices"]
        assert devices == [{"@odata.id": f"{V1}/Chassis/drawer2/PCIeDevices/slot6"}]
        drive = client.get(client.get(f"{BLOCKS}/drawer1slot3")["Drives"][0]["@odata.id"])
        assert drive["Links"]["PCIeFunctions"][0]["@odata.id"].endswith("/drawer1/PCIeDevices/slot3/PCIeFunctions/0")
        gone = process.fault("surprise_removal", "drawer1slot7")
        assert client.request("GET", f"{BLOCKS}/drawer1slot7").status_code == 404
        process.end_fault(gone)
        assert client.get(f"{BLOCKS}/drawer1slot7")["CompositionStatus"]["CompositionState"] == "Unused"


def test_a_block_may_be_added_by_a_task_by_half_or_with_an_error() -> None:
    with SimulatorProcess("--dialect", "blocks", "--bind-by-task", "--speed", "10") as process:
        client = Client(process)
        reply = change(client, "Add", NIC)
        assert reply.status_code == 202
        done = eventually(lambda: client.request("GET", reply.headers["Location"]), lambda one: one.status_code != 202)
        assert done.status_code == 204
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
    with SimulatorProcess("--dialect", "blocks") as process:
        client = Client(process)
        process.fault("half_applied_bind", path="hostport1_H3")
        assert change(client, "Add", NIC).status_code == 204
        assert process.state()["zones"]["hostport1_H3"] == []
        process.fault("half_applied_bind", answer="error")
        assert change(client, "Add", NIC).status_code == 500
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_truth_has_one_shape_in_every_dialect(dialect: str) -> None:
    with SimulatorProcess("--dialect", dialect) as process:
        state = process.state()
    assert state["zones"]["hostport1_H2"] == ["drawer1slot5", "drawer1slot6"]
    assert state["cabling"]["hostport1_H2"] == "node-b"
    assert state["ports"]["drawer1slot1"] == {"configured": True, "configured_lanes": 16, "enabled": True}
