"""Zones and connections that are created for an attached device: what others share is left alone."""

from __future__ import annotations

import pytest

from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.dialects import host_port_zones
from fabric.bmc.errors import CompositionRefused
from fabric.bmc.types import Dialect, Inventory, RedfishEndpoint, RedfishZone
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, collection, service_root

ZONES = f"{ROOT}/Fabrics/PCIe/Zones"
ENDPOINTS = f"{ROOT}/Fabrics/PCIe/Endpoints"


@pytest.mark.parametrize("switch", ["zones", "connections"])
async def test_what_leads_to_other_devices_too_is_not_deleted(switch: str) -> None:
    host, gpu, nic = (f"{ENDPOINTS}/{name}" for name in ("host", "gpu", "nic"))
    collection_uri = f"{ROOT}/Fabrics/PCIe/{switch.title()}"
    ends = {
        "zones": {"Endpoints": [{"@odata.id": uri} for uri in (host, gpu, nic)]},
        "connections": {
            "InitiatorEndpoints": [{"@odata.id": host}], "TargetEndpoints": [{"@odata.id": uri} for uri in (gpu, nic)],
        },
    }  # fmt: skip
    one = f"{collection_uri}/1"
    routes = {
        ROOT: service_root(),
        host: {"@odata.id": host, "@odata.type": "#Endpoint.v1_8_2.Endpoint", "Id": "host", "Name": "Host"},
        collection_uri: {"@odata.id": collection_uri, "Members": [{"@odata.id": one}]},
        one: {"@odata.id": one, "Id": "1", "Name": "Both", "Links": ends[switch]},
    }
    dialect = Dialect.ZONE_POST if switch == "zones" else Dialect.CONNECTIONS
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, host, dialect)
            assert zone.members == (gpu, nic)
            with pytest.raises(CompositionRefused, match="has other members too"):
                await detach(bmc, dialect, zone=zone, endpoint_uri=gpu)
    assert server.paths("DELETE") == []


async def test_all_connections_to_a_device_are_deleted() -> None:
    fabric, host, gpu = f"{ROOT}/Fabrics/PCIe", f"{ENDPOINTS}/host", f"{ENDPOINTS}/gpu"
    ends = {"InitiatorEndpoints": [{"@odata.id": host}], "TargetEndpoints": [{"@odata.id": gpu}]}
    made = {f"{fabric}/Connections/{number}" for number in (1, 2)}
    routes: dict[str, object] = {
        ROOT: service_root(),
        host: {"@odata.id": host, "Id": "host", "Name": "Host"},
        f"{fabric}/Connections": lambda _asked: {"Members": [{"@odata.id": uri} for uri in sorted(made)]},
    }

    def delete(asked: Asked) -> Reply:
        made.remove(asked.path)
        return Reply(204, b"")

    for uri in made:
        routes[uri] = {"@odata.id": uri, "Id": uri[-1], "Name": uri[-1], "Links": ends}
        routes[f"DELETE {uri}"] = delete
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, host, Dialect.CONNECTIONS)
            assert (await detach(bmc, Dialect.CONNECTIONS, zone=zone, endpoint_uri=gpu)).members == ()
    assert not made


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "at the same moment"])
async def test_a_device_that_another_host_has_is_not_given_to_a_second_one_either(*, is_before: bool) -> None:
    collection_uri = f"{ROOT}/Fabrics/PCIe/Connections"
    ours, theirs, gpu = (f"{ENDPOINTS}/{name}" for name in ("ours", "theirs", "gpu"))
    made: dict[str, str] = {}  # connections with their host's end
    routes: dict[str, object] = {
        uri: {"@odata.id": uri, "Id": uri, "Name": uri, "ConnectedEntities": [{"EntityRole": role}]}
        for uri, role in ((ours, "Initiator"), (theirs, "Initiator"), (gpu, "Target"))
    }
    routes |= {ROOT: service_root(), collection_uri: lambda _asked: collection(collection_uri, "Connection", *made)}

    def create(host: str) -> Reply:
        uri = f"{collection_uri}/{host.rpartition('/')[2]}"
        ends = {"InitiatorEndpoints": [{"@odata.id": host}], "TargetEndpoints": [{"@odata.id": gpu}]}
        made[uri] = host
        server.routes[uri] = {"@odata.id": uri, "Id": uri, "Name": uri, "Links": ends}
        server.routes[f"DELETE {uri}"] = lambda asked: Reply(204, made.pop(asked.path).encode() and b"")
        return Reply(201, {"@odata.id": uri})

    def created(_asked: Asked) -> Reply:
        create(theirs)
        return create(ours)

    with NonsenseServer(routes | {f"POST {collection_uri}": created}) as server:
        if is_before:
            create(theirs)
        async with server.client() as bmc:
            zone = await read_zone(bmc, ours, Dialect.CONNECTIONS)
            with pytest.raises(CompositionRefused, match="is attached to theirs; detach it there first"):
                await attach(bmc, Dialect.CONNECTIONS, zone=zone, endpoint_uri=gpu)
    assert list(made.values()) == [theirs]
    assert len(server.paths("POST")) == (0 if is_before else 1)


def test_a_zone_of_everything_attaches_nothing_to_a_host() -> None:
    hosts = [RedfishEndpoint(uri=f"{ENDPOINTS}/h{number}", name="host", role="Initiator") for number in range(60)]
    cards = [RedfishEndpoint(uri=f"{ENDPOINTS}/d{number}", name="card", role="Target") for number in range(60)]
    everything = RedfishZone(uri=f"{ZONES}/all", name="all", endpoint_uris=tuple(each.uri for each in hosts + cards))
    own = RedfishZone(uri=f"{ZONES}/1", name="1", endpoint_uris=(hosts[0].uri, cards[0].uri))
    inventory = Inventory(endpoints=(*hosts, *cards), zones=(everything, own))
    members = {port.uri: port.members for port in host_port_zones(inventory, Dialect.ZONE_POST)}
    assert len(members) == 60
    assert {uri: found for uri, found in members.items() if found} == {hosts[0].uri: (cards[0].uri,)}
