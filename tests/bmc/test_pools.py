"""Systems composed of the blocks of hosts: whose blocks they are, and what cannot be changed while it is in use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_snapshot, read_zone
from fabric.bmc.dialects.protocol import HeldZone
from fabric.bmc.discovery import discover
from fabric.bmc.errors import CompositionRefused, TaskFailed, ZoneChanged
from fabric.bmc.types import Dialect
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, service_root

BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
NIC = f"{BLOCKS}/drawer1slot7"


@pytest.fixture
def fixed(certificates: Path) -> Iterator[SimulatorProcess]:
    """A chassis whose composed systems cannot be changed."""
    with SimulatorProcess("--dialect", "systems-fixed", certificate_directory=certificates) as process:
        yield process


@pytest.fixture
async def client(fixed: SimulatorProcess) -> AsyncIterator[BmcClient]:
    async with BmcClient(pinned(fixed)) as made:
        yield made


async def host(bmc: BmcClient, port: str) -> HeldZone:
    return await read_zone(bmc, f"{BLOCKS}/{port}", Dialect.SYSTEM_POST)


async def test_a_composed_system_that_cannot_be_changed_keeps_its_devices(
    client: BmcClient, fixed: SimulatorProcess
) -> None:
    assert (await discover(client)).dialect_reason.endswith("and a composed system cannot be changed.")
    before = fixed.state()["zones"]
    for change, block in ((attach, NIC), (detach, f"{BLOCKS}/drawer1slot5")):
        with pytest.raises(CompositionRefused, match="takes all its devices away"):
            await change(client, Dialect.SYSTEM_POST, zone=await host(client, "hostport1_H2"), endpoint_uri=block)
    assert fixed.state()["zones"] == before
    empty = await host(client, "hostport1_H3")
    held = await attach(client, Dialect.SYSTEM_POST, zone=empty, endpoint_uri=NIC)
    assert fixed.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]
    free = await detach(client, Dialect.SYSTEM_POST, zone=held, endpoint_uri=NIC)
    assert (free.members, free.parts) == ((), {})


async def test_a_block_of_another_client_is_left_alone(client: BmcClient, fixed: SimulatorProcess) -> None:
    await client.patch(NIC, {"Pool": "Free", "Client": "somebody else"})
    with pytest.raises(CompositionRefused, match="belongs to another client: somebody else"):
        await attach(client, Dialect.SYSTEM_POST, zone=await host(client, "hostport1_H3"), endpoint_uri=NIC)
    assert (await client.get(f"{BLOCKS}/hostport1_H3")).body["Pool"] == "Unassigned"
    assert fixed.state()["zones"]["hostport1_H3"] == []


async def test_a_block_that_is_not_composed_after_all_belongs_to_nobody_again(certificates: Path) -> None:
    with SimulatorProcess("--dialect", "systems", certificate_directory=certificates) as process:
        async with BmcClient(pinned(process)) as bmc:
            with pytest.raises(CompositionRefused, match="cannot reach drawer1slot7"):
                await attach(bmc, Dialect.SYSTEM_POST, zone=await host(bmc, "hostport2_H4"), endpoint_uri=NIC)
            body = (await bmc.get(NIC)).body
    assert (body["Pool"], body["Client"]) == ("Unassigned", None)


@pytest.mark.parametrize("dialect", [Dialect.SYSTEM_POST, Dialect.COMPOSE])
async def test_two_who_want_one_block_at_once_do_not_share_it(dialect: Dialect, certificates: Path) -> None:
    switch = {Dialect.SYSTEM_POST: "systems", Dialect.COMPOSE: "compose"}[dialect]
    with SimulatorProcess("--dialect", switch, certificate_directory=certificates) as process:
        async with BmcClient(pinned(process)) as bmc:
            hosts = [await read_zone(bmc, f"{BLOCKS}/hostport1_{port}", dialect) for port in ("H2", "H3")]
            wanted = (attach(bmc, dialect, zone=zone, endpoint_uri=NIC) for zone in hosts)
            done = await asyncio.gather(*wanted, return_exceptions=True)
            held = [zone.uri for zone in done if isinstance(zone, HeldZone)]
            assert all(isinstance(other, HeldZone | CompositionRefused | ZoneChanged) for other in done)
            assert len(held) <= 1
            block = (await bmc.get(NIC)).body
        owners = [port for port, devices in process.state()["zones"].items() if "drawer1slot7" in devices]
        assert [f"{BLOCKS}/{port}" for port in owners] == held
        assert block["Pool"] == ("Active" if held else "Unassigned")


async def test_a_snapshot_has_the_hosts_with_and_without_a_system(client: BmcClient) -> None:
    ports = [f"{BLOCKS}/hostport1_{name}" for name in ("H2", "H3", "H9")]
    found = await read_snapshot(client, zone_uris=ports, port_uris=[], dialect=Dialect.SYSTEM_POST)
    assert found.zones == {ports[0]: (f"{BLOCKS}/drawer1slot5", f"{BLOCKS}/drawer1slot6"), ports[1]: ()}


async def test_a_host_whose_system_is_gone_has_none() -> None:
    block = f"{BLOCKS}/host"
    routes = {
        ROOT: service_root(),
        block: {"@odata.id": block, "Links": {"ComputerSystems": [{"@odata.id": f"{ROOT}/Systems/x"}]}},
        f"{ROOT}/SessionService/Sessions": Reply(403),
    }
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            assert (await read_zone(bmc, block, Dialect.COMPOSE)).members == ()
            found = await read_snapshot(bmc, zone_uris=[block], port_uris=[], dialect=Dialect.COMPOSE)
    assert found.zones == {block: ()}


async def test_a_stanza_that_failed_in_a_manifest_that_was_taken_is_a_refusal() -> None:
    service, block, device = f"{ROOT}/CompositionService", f"{BLOCKS}/host", f"{BLOCKS}/gpu"
    action = {"target": f"{service}/Actions/CompositionService.Compose"}
    failed = {"error": {"@Message.ExtendedInfo": [{"Message": "The block gpu is reserved."}]}}
    routes = {
        ROOT: service_root(CompositionService={"@odata.id": service}),
        service: {"@odata.id": service, "Actions": {"#CompositionService.Compose": action}},
        block: {"@odata.id": block, "Name": "host", "Links": {"ComputerSystems": "nonsense"}},
        device: {"@odata.id": device, "Name": "gpu"},
        f"POST {action['target']}": {"Manifest": {"Stanzas": ["nonsense", {"Response": {}}, {"Response": failed}]}},
        f"{ROOT}/SessionService/Sessions": Reply(403),
    }
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, block, Dialect.COMPOSE)
            with pytest.raises(CompositionRefused, match="The block gpu is reserved"):
                await attach(bmc, Dialect.COMPOSE, zone=zone, endpoint_uri=device)


async def test_a_block_whose_composition_fails_in_its_task_belongs_to_nobody_again() -> None:
    block, device, monitor = f"{BLOCKS}/host", f"{BLOCKS}/gpu", f"{ROOT}/TaskService/TaskMonitors/1"
    pools = dict.fromkeys((block, device), "Unassigned")

    def assigned(asked: Asked) -> Reply:
        pools[asked.path] = json.loads(asked.body)["Pool"]
        return Reply(204, b"")

    def composed(_asked: Asked) -> Reply:
        assert set(pools.values()) == {"Free"}
        return Reply(202, {}, {"Location": monitor})

    routes = {
        ROOT: service_root(Systems={"@odata.id": f"{ROOT}/Systems"}),
        f"POST {ROOT}/Systems": composed,
        monitor: {"TaskState": "Exception", "Messages": [{"Message": "no room in the fabric"}]},
    }
    for uri in pools:
        routes[uri] = lambda asked: {"@odata.id": asked.path, "Name": asked.path, "Pool": pools[asked.path]}
        routes[f"PATCH {uri}"] = assigned
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, block, Dialect.SYSTEM_POST)
            with pytest.raises(TaskFailed, match="no room in the fabric"):
                await attach(bmc, Dialect.SYSTEM_POST, zone=zone, endpoint_uri=device)
    assert set(pools.values()) == {"Unassigned"}
