"""Services whose devices are attached by zones or connections that come and go, or by connections of host ports."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import ENDPOINTS, PORTS, V1, ZONES, Client, rule_of
from tests.waiting import eventually

CONNECTIONS = f"{V1}/Fabrics/PCIe/Connections"
HOST, NIC = f"{ENDPOINTS}/hostport1_H3", f"{ENDPOINTS}/drawer1slot7"


def listed(*uris: str) -> list[dict[str, str]]:
    return [{"@odata.id": uri} for uri in uris]


def create(client: Client, dialect: str, host: str = HOST, device: str = NIC) -> requests.Response:
    below: dict[str, Any] = {"InitiatorEndpoints": listed(host), "TargetEndpoints": listed(device)}
    if dialect != "connections":
        below = {"Endpoints": listed(host, device), "AddressPools": listed(f"{V1}/Fabrics/PCIe/AddressPools/pcie")}
    where = CONNECTIONS if dialect == "connections" else ZONES
    return client.request("POST", where, json={"Links": below})


@pytest.mark.parametrize("dialect", ["zones", "zones-pools", "connections"])
def test_a_device_is_attached_by_what_is_created_and_detached_by_its_deletion(dialect: str) -> None:
    with SimulatorProcess("--dialect", dialect) as process:
        client = Client(process)
        made = create(client, dialect)
        assert (made.status_code, made.headers["Location"]) == (201, made.json()["@odata.id"])
        name = "Connections" if dialect == "connections" else "Zones"
        assert client.get(NIC)["Links"][name] == listed(made.headers["Location"])
        assert made.headers["Location"] in str(client.get(HOST)["Links"][name])
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
        stale = client.request("DELETE", made.headers["Location"], headers={"If-Match": '"stale"'})
        assert stale.status_code == 412
        assert client.request("DELETE", made.headers["Location"]).status_code == 204
        assert client.request("DELETE", made.headers["Location"]).status_code == 404
        assert process.state()["zones"]["hostport1_H3"] == []


def test_what_cannot_be_is_refused_with_a_sentence() -> None:
    with SimulatorProcess("--dialect", "zones-pools") as process:
        client = Client(process)
        before = process.state()["zones"]
        assert "belongs to the host port hostport1_H1" in rule_of(
            create(client, "zones-pools", device=f"{ENDPOINTS}/drawer1slot1")
        )
        bodies: list[dict[str, Any]] = [{}, {"Links": []}, {"Links": {"Endpoints": listed(HOST, NIC)}}]
        for body in bodies:
            assert client.request("POST", ZONES, json=body).status_code == 400
        assert create(client, "zones-pools", host=NIC, device=HOST).status_code == 400
        assert create(Client(process, "viewer"), "zones-pools").status_code == 403
        assert process.state()["zones"] == before


def test_the_connection_of_a_host_port_takes_the_list_of_its_devices() -> None:
    with SimulatorProcess("--dialect", "connection-patch") as process:
        client = Client(process)
        uri = f"{CONNECTIONS}/hostport1_H3"
        body = {"Links": {"TargetEndpoints": listed(NIC)}}
        etag = client.request("GET", uri).headers["ETag"]
        assert client.request("PATCH", uri, json=body, headers={"If-Match": etag}).ok
        assert client.request("PATCH", uri, json=body, headers={"If-Match": etag}).status_code == 412
        assert client.get(NIC)["Links"]["Connections"] == listed(uri)
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
        no_lists: list[dict[str, Any]] = [{}, {"Name": "x"}, {"Links": {}}, {"Links": {"TargetEndpoints": "x"}}]
        for wrong in no_lists:
            assert client.request("PATCH", uri, json=wrong).status_code == 400


def test_a_service_of_the_oldest_schema_drops_a_list_below_links_and_says_nothing_of_links() -> None:
    with SimulatorProcess("--dialect", "pnc") as process:
        client = Client(process)
        wanted = {"Endpoints": listed(HOST, NIC)}
        uri = f"{ZONES}/hostport1_H3"
        assert client.request("PATCH", uri, json={"Links": wanted}).status_code == 200
        assert process.state()["zones"]["hostport1_H3"] == []
        assert client.request("PATCH", uri, json=wanted).status_code == 200
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
        assert client.request("OPTIONS", uri).status_code == 405
        port = client.get(f"{PORTS}/slot7")
        assert port["@odata.type"] == "#Port.v1_0_0.Port"
        assert "LinkStatus" not in port


def test_a_change_may_show_later_without_a_task() -> None:
    with SimulatorProcess("--dialect", "zones") as process:
        process.fault("late_bind", delay=0.3)
        made = create(Client(process), "zones")
        assert made.status_code == 201
        eventually(lambda: process.state()["zones"]["hostport1_H3"], ["drawer1slot7"].__eq__)
