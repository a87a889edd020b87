"""Devices are attached and detached in each dialect, conditionally, and only what was read back is believed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_link, read_zone, set_drawer_mode
from fabric.bmc.discovery import Discovery, discover
from fabric.bmc.errors import BmcError, CompositionRefused, RequestRefused, ZoneChanged
from fabric.bmc.port_links import PortLink
from fabric.bmc.types import Dialect, DrawerMode
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply
from tests.waiting import eventually_in_loop

FABRIC = f"{ROOT}/Fabrics/PCIe"
ENDPOINTS = f"{FABRIC}/Endpoints"
H1, H2 = f"{FABRIC}/Zones/hostport1_H1", f"{FABRIC}/Zones/hostport1_H2"
NIC = f"{ENDPOINTS}/drawer1slot7"
DIALECTS = [Dialect.ZONE_PATCH, Dialect.ZONE_ACTIONS]


@pytest.fixture(autouse=True)
async def free_nic(bmc: BmcClient) -> None:
    """Leave the NIC of drawer 1 unattached, whatever the test before did."""
    for uri in (H1, H2):
        await detach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, uri), endpoint_uri=NIC)


async def test_the_falcon_is_composed_by_patch(bmc: BmcClient) -> None:
    assert (await discover(bmc)).dialect is Dialect.ZONE_PATCH


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_device_is_attached_read_back_and_detached(
    dialect: Dialect, bmc: BmcClient, chassis: SimulatorProcess
) -> None:
    before = await read_zone(bmc, H2)
    attached = await attach(bmc, dialect, zone=before, endpoint_uri=NIC)
    assert attached.members == (*before.members, NIC)
    assert attached.etag != before.etag
    assert "drawer1slot7" in json.dumps(chassis.state()["zones"])
    detached = await detach(bmc, dialect, zone=attached, endpoint_uri=NIC)
    assert detached.members == before.members
    assert "drawer1slot7" not in json.dumps(chassis.state()["zones"])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_so_already_is_not_written(dialect: Dialect, bmc: BmcClient) -> None:
    zone = await attach(bmc, dialect, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    assert (await attach(bmc, dialect, zone=zone, endpoint_uri=NIC)).etag == zone.etag
    other = await read_zone(bmc, H1)
    assert (await detach(bmc, dialect, zone=other, endpoint_uri=NIC)).etag == other.etag


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_zone_that_somebody_changed_is_left_alone(dialect: Dialect, bmc: BmcClient) -> None:
    looked_at = await read_zone(bmc, H2)
    changed = await attach(bmc, dialect, zone=looked_at, endpoint_uri=NIC)
    slot5 = f"{ENDPOINTS}/drawer1slot5"
    with pytest.raises(ZoneChanged):
        await detach(bmc, dialect, zone=looked_at, endpoint_uri=slot5)
    assert (await read_zone(bmc, H2)).members == changed.members


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_device_of_another_zone_is_refused_with_the_sentence_of_the_bmc(
    dialect: Dialect, bmc: BmcClient
) -> None:
    with pytest.raises(CompositionRefused, match="hostport1_H1") as refusal:
        await attach(bmc, dialect, zone=await read_zone(bmc, H2), endpoint_uri=f"{ENDPOINTS}/drawer1slot1")
    assert refusal.value.answered == 409


async def test_two_at_the_same_moment_one_gets_it(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    zones = await asyncio.gather(read_zone(bmc, H1), read_zone(bmc, H2))
    outcomes = await asyncio.gather(
        *(attach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=NIC) for zone in zones), return_exceptions=True
    )
    assert sum(isinstance(outcome, CompositionRefused) for outcome in outcomes) == 1
    assert json.dumps(chassis.state()["zones"]).count('"drawer1slot7"') == 1


async def test_a_viewer_may_not_compose(chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis, "viewer")) as viewer:
        with pytest.raises(CompositionRefused) as refusal:
            await attach(viewer, Dialect.ZONE_PATCH, zone=await read_zone(viewer, H2), endpoint_uri=NIC)
    assert refusal.value.answered == 403


async def test_a_bind_that_is_half_applied_is_no_success(
    bmc: BmcClient, chassis: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabric.bmc.settling.FIRST_SECONDS", 0.5)
    chassis.fault("half_applied_bind", answer="error")
    zone = await read_zone(bmc, H2)
    with pytest.raises(BmcError):
        await attach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=NIC)


async def test_a_link_is_read_back_until_it_is_up_at_its_width_and_speed(bmc: BmcClient) -> None:
    await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    port = f"{FABRIC}/Switches/drawer1_switch/Ports/slot7"
    seen: list[str] = []

    async def read() -> PortLink:
        seen.append((link := await read_link(bmc, port)).status)
        return link

    link = await eventually_in_loop(read, lambda link: link.status == "LinkUp")
    assert set(seen) <= {"Starting", "Training", "LinkDown", "NoLink", "LinkUp"}
    # A Gen 3 x16 card in a Gen 4 slot.
    assert (link.status, link.active_width, link.speed_gbps) == ("LinkUp", 16, 128.0)


async def test_the_inventory_follows_an_attachment_with_a_refresh(bmc: BmcClient) -> None:
    discovery = Discovery(bmc)
    before = await discovery.walk()
    await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    after = await discovery.refresh()
    assert [zone.uri for zone in after.zones if NIC in zone.endpoint_uris] == [H2]
    assert [zone.uri for zone in before.zones if NIC in zone.endpoint_uris] == []
    assert next(each for each in after.endpoints if each.uri == NIC).zone_uris == (H2,)
    assert after.sensors == before.sensors


async def test_a_device_that_is_pulled_leaves_the_inventory_and_comes_back(
    bmc: BmcClient, chassis: SimulatorProcess
) -> None:
    discovery = Discovery(bmc)
    before = await discovery.walk()
    fault = chassis.fault("surprise_removal", target="drawer1slot7")
    without = await discovery.refresh()
    device = f"{ROOT}/Chassis/drawer1/PCIeDevices/slot7"
    assert {each.uri for each in before.devices} - {each.uri for each in without.devices} == {device}
    assert NIC not in {each.uri for each in without.endpoints}
    slot = next(each for each in without.slots if each.uri.startswith(device))
    assert (slot.occupied, slot.state, slot.number) == (False, "Absent", 7)
    chassis.end_fault(fault)
    again = await discovery.refresh()
    assert [each.uri for each in again.devices] == [each.uri for each in before.devices]


async def test_the_mode_of_a_drawer_is_set_and_refused_by_its_rules(bmc: BmcClient) -> None:
    drawer = f"{ROOT}/Chassis/drawer2"

    async def mode() -> DrawerMode:
        return next(each.mode for each in (await discover(bmc)).drawers if each.uri == drawer)

    assert await mode() is DrawerMode.STANDARD_ONE_HOST
    await set_drawer_mode(bmc, drawer, DrawerMode.ADVANCED)
    assert await mode() is DrawerMode.ADVANCED
    await set_drawer_mode(bmc, drawer, DrawerMode.STANDARD_ONE_HOST)
    with pytest.raises(CompositionRefused):
        await set_drawer_mode(bmc, f"{ROOT}/Chassis/drawer1", DrawerMode.STANDARD_ONE_HOST)
    with pytest.raises(CompositionRefused, match="does not let"):
        await set_drawer_mode(bmc, f"{ROOT}/Chassis/falcon", DrawerMode.ADVANCED)


class Psme:
    """A service of the older kind: endpoints at the top level of the zone, a task for every change."""

    zone = f"{FABRIC}/Zones/1"

    def __init__(self) -> None:
        self.members = [f"{ENDPOINTS}/host"]
        self.routes: dict[str, Any] = {
            self.zone: self.show,
            f"PATCH {self.zone}": self.change,
            f"{ROOT}/Tasks/1/Monitor": Reply(204, b""),
        }

    def show(self, _asked: Asked) -> dict[str, Any]:
        return {
            "@odata.id": self.zone, "@odata.type": "#Zone.v1_0_0.Zone", "Id": "1", "Name": "Zone 1",
            "@odata.etag": f'W/"{len(self.members)}"', "Endpoints": [{"@odata.id": uri} for uri in self.members],
        }  # fmt: skip

    def change(self, asked: Asked) -> Reply:
        body = json.loads(asked.body)
        if set(body) != {"Endpoints"}:
            return Reply(400, {"error": {"message": "unknown property"}})
        if asked.headers.get("If-Match") != f'W/"{len(self.members)}"':
            return Reply(412)
        self.members = [entry["@odata.id"] for entry in body["Endpoints"]]
        return Reply(202, {}, {"Location": f"{ROOT}/Tasks/1/Monitor"})


async def test_an_older_service_gets_its_endpoints_where_it_lists_them() -> None:
    psme = Psme()
    with NonsenseServer(psme.routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, psme.zone)
            zone = await attach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=f"{ENDPOINTS}/gpu")
            assert zone.members == (f"{ENDPOINTS}/host", f"{ENDPOINTS}/gpu")
            zone = await detach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=f"{ENDPOINTS}/gpu")
            assert zone.members == (f"{ENDPOINTS}/host",)
    assert len(server.paths("PATCH")) == 2


@pytest.mark.parametrize("at_top", [Reply(400), Reply(200, {})])
async def test_a_zone_of_the_oldest_schema_that_takes_no_list_at_the_top_gets_it_below_links(at_top: Reply) -> None:
    zone_uri, host, gpu = f"{FABRIC}/Zones/1", f"{ENDPOINTS}/host", f"{ENDPOINTS}/gpu"
    members = [host]

    def show(_asked: Asked) -> dict[str, Any]:
        below = {"Endpoints": [{"@odata.id": uri} for uri in members]}
        return {"@odata.id": zone_uri, "@odata.type": "#Zone.v1_0_0.Zone", "Id": "1", "Name": "Zone 1", "Links": below}

    def change(asked: Asked) -> Reply:
        body = json.loads(asked.body)
        if "Links" not in body:
            return at_top
        members[:] = [entry["@odata.id"] for entry in body["Links"]["Endpoints"]]
        return Reply(204, b"")

    with NonsenseServer({zone_uri: show, f"PATCH {zone_uri}": change}) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, zone_uri, Dialect.ZONE_PATCH)
            attached = await attach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=gpu)
    assert attached.members == (host, gpu)


async def test_a_change_between_look_and_write_is_seen_by_the_etag() -> None:
    psme = Psme()
    psme.routes[f"PATCH {psme.zone}"] = Reply(412)
    with NonsenseServer(psme.routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, psme.zone)
            with pytest.raises(ZoneChanged):
                await attach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=f"{ENDPOINTS}/gpu")
    assert len(server.paths("PATCH")) == 1, "a write is never repeated"


async def test_a_bmc_that_accepts_and_does_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.settling.FIRST_SECONDS", 0.3)
    psme = Psme()
    psme.routes[f"PATCH {psme.zone}"] = Reply(204, b"")
    with NonsenseServer(psme.routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, psme.zone)
            with pytest.raises(CompositionRefused, match="accepted the change, but zone Zone 1 does not hold gpu"):
                await attach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=f"{ENDPOINTS}/gpu")


async def test_resource_blocks_are_added_to_and_removed_from_a_system() -> None:
    system, block = f"{ROOT}/Systems/composed", f"{ROOT}/CompositionService/ResourceBlocks/gpu1"
    blocks: list[str] = []

    def show(_asked: Asked) -> dict[str, Any]:
        actions = f"{system}/Actions/ComputerSystem."
        return {
            "@odata.id": system, "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem", "Id": "composed",
            "Name": "Composed system", "@odata.etag": f'"{len(blocks)}"',
            "Links": {"ResourceBlocks": [{"@odata.id": uri} for uri in blocks]},
            "Actions": {f"#ComputerSystem.{verb}ResourceBlock": {"target": f"{actions}{verb}ResourceBlock"}
                        for verb in ("Add", "Remove")},
        }  # fmt: skip

    def act(asked: Asked) -> Reply:
        body = json.loads(asked.body)
        assert body == {
            "ResourceBlock": {"@odata.id": block}, "ResourceBlockETag": '"b"', "ComputerSystemETag": f'"{len(blocks)}"',
        }  # fmt: skip
        if asked.path.endswith("AddResourceBlock"):
            blocks.append(block)
        else:
            blocks.remove(block)
        return Reply(204, b"")

    routes = {
        system: show,
        block: Reply(200, {"@odata.id": block, "Id": "gpu1", "Name": "GPU"}, {"ETag": '"b"'}),
        f"POST {system}/Actions/ComputerSystem.AddResourceBlock": act,
        f"POST {system}/Actions/ComputerSystem.RemoveResourceBlock": act,
    }
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            zone = await read_zone(bmc, system, Dialect.RESOURCE_BLOCKS)
            zone = await attach(bmc, Dialect.RESOURCE_BLOCKS, zone=zone, endpoint_uri=block)
            assert zone.members == (block,)
            zone = await detach(bmc, Dialect.RESOURCE_BLOCKS, zone=zone, endpoint_uri=block)
            assert zone.members == ()


async def test_a_chassis_without_a_dialect_says_that_it_is_only_monitored(bmc: BmcClient) -> None:
    zone = await read_zone(bmc, H1)
    with pytest.raises(CompositionRefused, match="only be monitored"):
        await attach(bmc, Dialect.NONE, zone=zone, endpoint_uri=NIC)


async def test_a_zone_that_is_gone_is_said_to_be(bmc: BmcClient) -> None:
    with pytest.raises(RequestRefused) as refusal:
        await read_zone(bmc, f"{FABRIC}/Zones/none")
    assert refusal.value.answered == 404
