"""Systems composed of the blocks of hosts and devices: by POST, PATCH and DELETE, or by a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import PORTS, V1, Client, rule_of
from tests.waiting import eventually

SYSTEMS = f"{V1}/Systems"
SERVICE = f"{V1}/CompositionService"
BLOCKS = f"{SERVICE}/ResourceBlocks"
COMPOSE = f"{SERVICE}/Actions/CompositionService.Compose"


@pytest.fixture(scope="module", params=["systems", "systems-fixed", "compose"])
def offered(request: pytest.FixtureRequest) -> Iterator[SimulatorProcess]:
    with SimulatorProcess("--dialect", request.param, "--speed", "20") as process:
        yield process


@pytest.fixture
def systems() -> Iterator[Client]:
    """The administrator of a chassis whose systems are composed by POST and changed by PATCH."""
    with SimulatorProcess("--dialect", "systems", "--speed", "20") as process:
        yield Client(process)


@pytest.fixture
def composer() -> Iterator[Client]:
    """The administrator of a chassis whose systems are composed by manifests."""
    with SimulatorProcess("--dialect", "compose", "--speed", "20") as process:
        yield Client(process)


def blocks(*ids: str) -> dict[str, Any]:
    return {"Links": {"ResourceBlocks": [{"@odata.id": f"{BLOCKS}/{one}"} for one in ids]}}


def assign(client: Client, *ids: str, name: str = "FalconWeb") -> None:
    for block in ids:
        wanted = {"Pool": "Free", "Client": name}
        assert client.request("PATCH", f"{BLOCKS}/{block}", json=wanted).status_code == 204


def members(client: Client, uri: str) -> list[str]:
    return [one["@odata.id"].rpartition("/")[2] for one in client.get(uri)["Members"]]


def manifest(client: Client, *stanzas: tuple[str, dict[str, Any]]) -> requests.Response:
    listed = [{"StanzaType": kind, "StanzaId": str(at), "Request": asked} for at, (kind, asked) in enumerate(stanzas)]
    body = {"RequestFormat": "Manifest", "RequestType": "Apply", "Manifest": {"Stanzas": listed}}
    return client.request("POST", COMPOSE, json=body)


def test_hosts_and_devices_are_blocks_in_pools(offered: SimulatorProcess) -> None:
    client = Client(offered)
    assert {"hostport1_H1", "drawer1slot1"} <= set(members(client, f"{SERVICE}/ActivePool"))
    assert members(client, f"{SERVICE}/FreePool") == []
    free = client.get(f"{BLOCKS}/drawer1slot7")
    assert (free["Pool"], free["Client"]) == ("Unassigned", None)
    host = client.get(f"{BLOCKS}/hostport1_H1")
    assert client.get(host["ComputerSystems"][0]["@odata.id"])["HostName"] == "node-a"
    system = client.get(host["Links"]["ComputerSystems"][0]["@odata.id"])
    assert system["Links"]["ResourceBlocks"][0] == {"@odata.id": host["@odata.id"]}
    initiator = client.get(f"{V1}/Fabrics/PCIe/Endpoints/hostport1_H1")
    assert initiator["ConnectedEntities"][0]["EntityLink"] == host["ComputerSystems"][0]
    assert len(members(client, SYSTEMS)) == 3


def test_a_block_of_no_client_or_of_another_is_not_composed(systems: Client) -> None:
    refused = systems.request("POST", SYSTEMS, json=blocks("hostport1_H3", "drawer1slot7"))
    assert (refused.status_code, "is in no pool" in rule_of(refused)) == (409, True)
    assign(systems, "hostport1_H3")
    assign(systems, "drawer1slot7", name="somebody else")
    refused = systems.request("POST", SYSTEMS, json=blocks("hostport1_H3", "drawer1slot7"))
    assert (refused.status_code, "belongs to the client somebody else" in rule_of(refused)) == (409, True)
    assert systems.request("PATCH", f"{BLOCKS}/hostport1_H1", json={"Pool": "Unassigned"}).status_code == 409
    assert systems.request("PATCH", f"{BLOCKS}/hostport1_H3", json={"Pool": "Active"}).status_code == 400
    assert Client(systems.process, "viewer").request("POST", SYSTEMS, json=blocks("hostport1_H3")).status_code == 403


def test_a_system_is_composed_changed_and_decomposed(systems: Client) -> None:
    assign(systems, "hostport1_H3", "drawer1slot7")
    made = systems.request("POST", SYSTEMS, json={"Name": "mine", **blocks("hostport1_H3", "drawer1slot7")})
    assert made.status_code == 201
    uri = made.headers["Location"]
    assert (
        systems.get(uri)["Links"]["ResourceBlocks"] == blocks("hostport1_H3", "drawer1slot7")["Links"]["ResourceBlocks"]
    )
    assert systems.get(f"{BLOCKS}/drawer1slot7")["Pool"] == "Active"
    eventually(lambda: systems.get(f"{PORTS}/slot7")["LinkStatus"], "LinkUp".__eq__)
    again = systems.request("POST", SYSTEMS, json=blocks("hostport1_H3"))
    assert (again.status_code, "decompose that first" in rule_of(again)) == (409, True)
    etag = systems.request("GET", uri).headers["ETag"]
    assert systems.request("PATCH", uri, json=blocks("drawer1slot7")).status_code == 409
    changed = systems.request("PATCH", uri, json=blocks("hostport1_H3"), headers={"If-Match": etag})
    assert changed.status_code == 200
    assert systems.request("PATCH", uri, json=blocks("hostport1_H3"), headers={"If-Match": etag}).status_code == 412
    assert systems.process.state()["zones"]["hostport1_H3"] == []
    assert systems.request("DELETE", uri).status_code == 204
    assert systems.request("GET", uri).status_code == 404
    assert sorted(members(systems, f"{SERVICE}/FreePool")) == ["drawer1slot7", "hostport1_H3"]
    assert systems.request("POST", SYSTEMS, json=blocks("hostport1_H3")).headers["Location"] != uri


def test_a_system_is_decomposed_once() -> None:
    with SimulatorProcess("--dialect", "systems", "--bind-by-task") as process:
        client = Client(process)
        asked = [client.request("DELETE", f"{SYSTEMS}/hostport1_H2-1").headers["Location"] for _ in range(2)]
        ends = [eventually(lambda: client.request("GET", uri), lambda one: one.status_code != 202) for uri in asked]  # noqa: B023
        assert [end.status_code for end in ends] == [204, 404]


def test_where_composed_systems_are_fixed_the_service_says_so() -> None:
    with SimulatorProcess("--dialect", "systems-fixed") as process:
        client = Client(process)
        capability = client.get(SYSTEMS)["@Redfish.CollectionCapabilities"]["Capabilities"][0]
        can = client.get(capability["CapabilitiesObject"]["@odata.id"])
        assert can["Links"]["ResourceBlocks@Redfish.UpdatableAfterCreate"] is False
        uri = f"{SYSTEMS}/hostport1_H2-1"
        assert client.request("PATCH", uri, json=blocks("hostport1_H2")).status_code == 405
        assert client.request("DELETE", uri).status_code == 204
        assert process.state()["zones"]["hostport1_H2"] == []


def test_a_manifest_is_performed_as_a_whole_or_not_at_all(composer: Client) -> None:
    assign(composer, "hostport1_H3", "drawer1slot7")
    former = {"@odata.id": f"{SYSTEMS}/hostport1_H2-1"}
    before = composer.process.state()["zones"]
    broken = manifest(
        composer,
        ("DecomposeSystem", former),
        ("ComposeSystem", blocks("hostport1_H3", "drawer2slot1")),
    )
    assert (broken.status_code, composer.process.state()["zones"]) == (409, before)
    assert composer.request("GET", former["@odata.id"]).status_code == 200
    torn = manifest(
        composer,
        ("DecomposeSystem", former),
        ("ComposeSystem", blocks("hostport1_H2", "drawer1slot7")),
        ("ComposeSystem", blocks("hostport1_H3", "drawer1slot7")),
    )
    assert (torn.status_code, composer.process.state()["zones"]) == (409, before)
    done = manifest(
        composer,
        ("DecomposeSystem", former),
        ("ComposeSystem", blocks("hostport1_H2", "drawer1slot5", "drawer1slot6", "drawer1slot7")),
    )
    assert done.status_code == 200
    system = done.json()["Manifest"]["Stanzas"][1]["Response"]["@odata.id"]
    assert system != former["@odata.id"]
    assert composer.process.state()["zones"]["hostport1_H2"] == ["drawer1slot5", "drawer1slot6", "drawer1slot7"]
    assert composer.get(f"{PORTS}/slot5")["LinkStatus"] == "LinkUp"  # what a host keeps is not interrupted
    assert manifest(composer, ("DecomposeSystem", {"@odata.id": system})).status_code == 200
    assert composer.process.state()["zones"]["hostport1_H2"] == []
    assert composer.request("POST", SYSTEMS, json=blocks("hostport1_H3")).status_code == 405


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "requires the parameter RequestFormat"),
        ({"RequestFormat": "Manifest", "RequestType": "Preview"}, "not in the list"),
        ({"RequestFormat": "Manifest", "RequestType": "Apply"}, "not of a type"),
        ({"RequestFormat": "Manifest", "RequestType": "Apply", "Manifest": {"Stanzas": [1]}}, "not of a type"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(composer: Client, body: dict[str, Any], word: str) -> None:
    refused = composer.request("POST", COMPOSE, json=body)
    assert (refused.status_code, word in rule_of(refused)) == (400, True)
