"""Ports are set up conditionally, read back, and refused with the BMC's own sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, configure_port, detach, read_link, read_zone
from fabric.bmc.discovery import discover
from fabric.bmc.errors import CompositionRefused, RequestRefused, ZoneChanged
from fabric.bmc.port_links import PortLink
from fabric.bmc.types import Dialect
from fabric.inventory.rules import describe_link, is_link_degraded
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply
from tests.waiting import eventually_in_loop

FABRIC = f"{ROOT}/Fabrics/PCIe"
PORTS = f"{FABRIC}/Switches/drawer1_switch/Ports"
H3 = f"{FABRIC}/Zones/hostport1_H3"
NIC = f"{FABRIC}/Endpoints/drawer1slot7"


@pytest.fixture(autouse=True)
async def as_delivered(bmc: BmcClient) -> None:
    """Leave the ports of the tests as a chassis is delivered."""
    await detach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, H3), endpoint_uri=NIC)
    for name in ("slot1", "slot7"):
        await configure_port(bmc, f"{PORTS}/{name}", port_type="DownstreamPort", configured_width=16)


async def until_up(bmc: BmcClient, port: str) -> PortLink:
    return await eventually_in_loop(lambda: read_link(bmc, port), lambda link: link.status == "LinkUp")


async def test_a_port_tells_its_setting(bmc: BmcClient) -> None:
    setting = await read_link(bmc, f"{PORTS}/slot7")
    assert (setting.port_type, setting.configured_width, setting.width) == ("DownstreamPort", 16, 16)
    assert (setting.link_state, setting.status) == ("Enabled", "LinkDown")
    assert (await read_link(bmc, f"{PORTS}/H1")).port_type == "UpstreamPort"


async def test_a_link_as_narrow_as_configured_is_as_it_should_be(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    done = await configure_port(bmc, f"{PORTS}/slot1", configured_width=4)
    assert done.configured_width == 4
    link = await until_up(bmc, f"{PORTS}/slot1")
    assert (link.active_width, link.configured_width, link.speed_gbps) == (4, 4, 32.0)
    assert not is_link_degraded(link, 16, "Gen3")
    assert describe_link(link) == "Link up, x4 as configured at 32 Gb/s."
    inventory = await discover(bmc)
    port = next(port for port in inventory.ports if port.uri == f"{PORTS}/slot1")
    assert (port.configured_width, port.port_type, port.active_width) == (4, "DownstreamPort", 4)
    chassis.fault("link_downgrade", "drawer1slot1", lanes=2)
    worse = await until_up(bmc, f"{PORTS}/slot1")
    assert is_link_degraded(worse, 16, "Gen3")
    assert describe_link(worse) == "Link up, x2 of x16 at 16 Gb/s."


async def test_an_unconfigured_port_attaches_nothing(bmc: BmcClient) -> None:
    setting = await configure_port(bmc, f"{PORTS}/slot7", port_type="UnconfiguredPort", configured_width=8)
    assert (setting.port_type, setting.configured_width) == ("UnconfiguredPort", 8)
    with pytest.raises(CompositionRefused, match="is an UnconfiguredPort"):
        await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, H3), endpoint_uri=NIC)


async def test_a_port_in_use_keeps_its_type_and_both_or_neither_are_set(bmc: BmcClient) -> None:
    with pytest.raises(CompositionRefused, match="detach it before") as refusal:
        await configure_port(bmc, f"{PORTS}/slot1", port_type="UnconfiguredPort", configured_width=8)
    assert refusal.value.answered == 409
    assert (await read_link(bmc, f"{PORTS}/slot1")).configured_width == 16


@pytest.mark.parametrize("change", [{"port_type": "InterswitchPort"}, {"configured_width": 3}])
async def test_a_setting_that_cannot_be_is_refused(bmc: BmcClient, change: dict[str, Any]) -> None:
    with pytest.raises(CompositionRefused, match="is not in the list of acceptable values"):
        await configure_port(bmc, f"{PORTS}/slot7", **change)


async def test_what_is_set_already_is_not_written(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    before = chassis.state()["requests"].get("PATCH", 0)
    await configure_port(bmc, f"{PORTS}/slot1", port_type="DownstreamPort", configured_width=16)
    await configure_port(bmc, f"{PORTS}/slot1")
    assert chassis.state()["requests"].get("PATCH", 0) == before


async def test_a_viewer_sets_no_port_and_a_missing_port_is_told(chassis: SimulatorProcess, bmc: BmcClient) -> None:
    async with BmcClient(pinned(chassis, "viewer")) as viewer:
        with pytest.raises(CompositionRefused):
            await configure_port(viewer, f"{PORTS}/slot7", configured_width=8)
    with pytest.raises(RequestRefused):
        await configure_port(bmc, f"{PORTS}/slot9", configured_width=8)


class Restless:
    """A port whose ETag changes with each look, as one whose link trains, `moves` times."""

    uri = f"{PORTS}/1"

    def __init__(self, moves: int, *, others: bool = False) -> None:
        self.moves, self.others, self.looks = moves, others, 0
        self.body: dict[str, Any] = {"Id": "1", "PortType": "DownstreamPort", "ConfiguredWidth": 16}
        self.routes: dict[str, Any] = {self.uri: self.show, f"PATCH {self.uri}": self.change}

    def show(self, _asked: Asked) -> Reply:
        self.looks += 1
        return Reply(200, self.body, {"ETag": f'"{self.looks}"'})

    def change(self, asked: Asked) -> Reply:
        assert asked.headers["If-Match"] == f'"{self.looks}"'
        if self.moves:
            self.moves -= 1
            if self.others:
                self.body["ConfiguredWidth"] = 2
            return Reply(412)
        self.body.update(json.loads(asked.body))
        return Reply(204, b"")


async def test_a_link_that_trains_between_look_and_write_is_looked_at_again() -> None:
    port = Restless(2)
    with NonsenseServer(port.routes) as server:
        async with server.client() as bmc:
            assert (await configure_port(bmc, port.uri, configured_width=8)).configured_width == 8
    assert len(server.paths("PATCH")) == 3


async def test_a_setting_that_somebody_else_changed_is_left_alone() -> None:
    port = Restless(1, others=True)
    with NonsenseServer(port.routes) as server:
        async with server.client() as bmc:
            with pytest.raises(ZoneChanged, match="by somebody else"):
                await configure_port(bmc, port.uri, configured_width=8)
    assert len(server.paths("PATCH")) == 1


async def test_a_port_that_never_rests_is_given_up() -> None:
    port = Restless(1000)
    with NonsenseServer(port.routes) as server:
        async with server.client() as bmc:
            with pytest.raises(ZoneChanged, match="keeps changing"):
                await configure_port(bmc, port.uri, configured_width=8)


async def test_a_bmc_that_accepts_and_does_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.settling.FIRST_SECONDS", 0.3)
    port = Restless(0)
    port.routes[f"PATCH {port.uri}"] = Reply(204, b"")
    with NonsenseServer(port.routes) as server:
        async with server.client() as bmc:
            with pytest.raises(CompositionRefused, match="the ConfiguredWidth of the port is not as requested"):
                await configure_port(bmc, port.uri, configured_width=8)
            del port.body["ConfiguredWidth"]
            with pytest.raises(CompositionRefused, match="does not let the ConfiguredWidth"):
                await configure_port(bmc, port.uri, configured_width=8)
