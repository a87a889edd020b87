"""Zones and links are read together, in few requests, and two readings of the same are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import CompositionSnapshot, attach, read_snapshot, read_zone
from fabric.bmc.dialects import host_port_zones
from fabric.bmc.discovery import discover
from fabric.bmc.errors import BmcError, ServerFault
from fabric.bmc.types import Dialect
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, NonsenseServer, Reply, service_root

ZONES = f"{ROOT}/Fabrics/PCIe/Zones"


@pytest.fixture(scope="module", params=["both", "both --no-expand", "psme-old", "actions", "blocks", "none"])
def any_chassis(request: pytest.FixtureRequest, certificates: Path) -> Iterator[tuple[SimulatorProcess, bool]]:
    """Run a chassis of each dialect, and one without $expand; told with whether it has that."""
    with SimulatorProcess("--dialect", *request.param.split(), certificate_directory=certificates) as process:
        process.set_speed(20.0)
        yield process, "--no-expand" not in request.param


async def whole(bmc: BmcClient) -> tuple[CompositionSnapshot, dict[str, Any]]:
    """Return a snapshot of all of a chassis, and what it was asked for."""
    inventory = await discover(bmc)
    asked: dict[str, Any] = {
        "zone_uris": [holder.uri for holder in host_port_zones(inventory, inventory.dialect)],
        "port_uris": [port.uri for port in inventory.ports if port.switch_uri],
        "dialect": inventory.dialect,
    }
    return await read_snapshot(bmc, **asked), asked


def gets(process: SimulatorProcess) -> int:
    return int(process.state()["requests"].get("GET", 0))


async def test_a_falcon_takes_three_requests_or_one_a_thing(any_chassis: tuple[SimulatorProcess, bool]) -> None:
    process, expands = any_chassis
    async with BmcClient(pinned(process)) as bmc:
        first, asked = await whole(bmc)
        before = gets(process)
        second = await read_snapshot(bmc, **asked)
        assert gets(process) - before == (3 if expands else 24)
    assert (len(first.zones), len(first.links)) == (4, 20)
    assert first == second
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    truth = process.state()
    for uri, members in first.zones.items():
        names = sorted(member.rpartition("/")[2] for member in members)
        own = [] if asked["dialect"] is Dialect.RESOURCE_BLOCKS else [uri.rpartition("/")[2]]
        assert names == sorted([*own, *truth["zones"][uri.rpartition("/")[2]]])
    slot = f"{ROOT}/Fabrics/PCIe/Switches/drawer2_switch/Ports/slot5"
    assert first.links[slot] == ("LinkUp", 16, 4, 32.0)


async def test_a_change_shows_where_it_was_made_and_nowhere_else(bmc: BmcClient) -> None:
    before, asked = await whole(bmc)
    zone, member = f"{ZONES}/hostport1_H3", f"{ROOT}/Fabrics/PCIe/Endpoints/drawer1slot7"
    await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, zone), endpoint_uri=member)
    after = await read_snapshot(bmc, **asked)
    assert {uri for uri in before.zones if before.zones[uri] != after.zones[uri]} == {zone}
    assert {uri.rpartition("/")[2] for uri in before.links if before.links[uri] != after.links[uri]} == {"slot7"}


async def test_what_is_gone_has_no_entry_and_what_fails_is_no_snapshot(
    bmc: BmcClient, chassis: SimulatorProcess
) -> None:
    zones, ports = [f"{ZONES}/hostport1_H1", f"{ZONES}/hostport9_H9/"], [f"{ROOT}/Fabrics/PCIe/Switches/x/Ports/1"]
    found = await read_snapshot(bmc, zone_uris=zones, port_uris=ports, dialect=Dialect.ZONE_PATCH)
    assert (list(found.zones), found.links) == ([f"{ZONES}/hostport1_H1"], {})
    chassis.fault("server_error", path="/Zones")
    with pytest.raises(ServerFault):
        await read_snapshot(bmc, zone_uris=zones, port_uris=(), dialect=Dialect.ZONE_PATCH)


async def test_nothing_asked_for_is_nothing_read() -> None:
    with NonsenseServer({ROOT: service_root()}) as server:
        async with server.client() as bmc:
            empty = await read_snapshot(bmc, zone_uris=(), port_uris=(), dialect=Dialect.NONE)
    assert (empty.zones, empty.links) == ({}, {})
    assert server.paths() == [ROOT + "/"]


@pytest.mark.parametrize(
    "members",
    [
        "no list",
        [{"@odata.id": f"{ZONES}/1"}],
        [{"@odata.id": ZONES, "Id": "1", "Name": "a", "Links": {}}] * 2,
        [{"@odata.id": 7, "Id": "1", "Name": "a", "Links": {}}],
        Reply(400, {}),
        Reply(500, {}),
        Reply(200, b"<html>"),
    ],
)
async def test_an_expansion_that_is_none_costs_requests_and_nothing_else(members: Any) -> None:
    def zone(number: int) -> dict[str, Any]:
        return {"@odata.id": f"{ZONES}/{number}", "Id": str(number), "Name": "Zone", "Links": {"Endpoints": []}}

    features = {"ExpandQuery": {"NoLinks": True, "Levels": True}}
    answer = members if isinstance(members, Reply) else {"Members": members}
    routes = {
        ROOT: service_root(ProtocolFeaturesSupported=features), ZONES: answer,
        f"{ZONES}/1": zone(1), f"{ZONES}/2": zone(2),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            uris = [f"{ZONES}/1", f"{ZONES}/2"]
            found = await read_snapshot(bmc, zone_uris=uris, port_uris=(), dialect=Dialect.ZONE_PATCH)
    assert found.zones == {f"{ZONES}/1": (), f"{ZONES}/2": ()}
    assert json.loads(msgspec.json.encode(found)) == {"zones": {f"{ZONES}/1": [], f"{ZONES}/2": []}, "links": {}}


async def test_a_bmc_that_is_away_raises(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    _, asked = await whole(bmc)
    chassis.fault("reset_connections")
    with pytest.raises(BmcError):
        await read_snapshot(bmc, **asked)
