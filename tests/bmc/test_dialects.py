"""Each way to attach, against a real simulated chassis that offers it alone: told, used, refused, broken, proved."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.dialects import dialect_of, host_port_zones
from fabric.bmc.discovery import Discovery, discover
from fabric.bmc.errors import BmcError, CompositionRefused, ServerFault, ZoneChanged
from fabric.bmc.types import (
    Dialect,
    Inventory,
    InventoryProblem,
    ProblemKind,
)
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned, serve_mockup
from tests.bmc.nonsense import ROOT, NonsenseServer, Reply, collection, service_root
from tests.bmc.test_mockups import FOLDERS, MOCKUPS
from tests.turns import NIGHTLY

ZONES = f"{ROOT}/Fabrics/PCIe/Zones"
ENDPOINTS = f"{ROOT}/Fabrics/PCIe/Endpoints"
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"


class Way(NamedTuple):
    """One dialect: the simulator's switch, what it is told as and why, and how ports and devices are named in it."""

    switch: str
    dialect: Dialect
    reason: str
    ports: str
    devices: str

    def port(self, name: str) -> str:
        """Return the URI of a host port by the Id of its endpoint, such as hostport1_H3."""
        drawer, _, label = name.removeprefix("hostport").partition("_")
        return self.ports.format(drawer=drawer, label=label) if "{" in self.ports else f"{self.ports}/{name}"

    def device(self, name: str) -> str:
        """Return the URI by which a device is a member, by the Id of its endpoint, such as drawer1slot7."""
        drawer, _, slot = name.removeprefix("drawer").partition("slot")
        return self.devices.format(drawer=drawer, slot=slot) if "{" in self.devices else f"{self.devices}/{name}"


WAYS = [
    Way("patch", Dialect.ZONE_PATCH, "Zone hostport1_H1 allows PATCH.", ZONES, ENDPOINTS),
    Way(
        "psme-old",
        Dialect.ZONE_PATCH,
        "Zone hostport1_H1 allows PATCH, with its endpoints at the top level as older PSME services have it.",
        ZONES,
        ENDPOINTS,
    ),
    Way("pnc", Dialect.ZONE_PATCH, "Zone hostport1_H1 allows PATCH.", ZONES, ENDPOINTS),
    Way("zones", Dialect.ZONE_POST, "Zones of fabric PCIe can be created.", ENDPOINTS, ENDPOINTS),
    Way("zones-pools", Dialect.ZONE_POST, "Zones of fabric PCIe can be created.", ENDPOINTS, ENDPOINTS),
    Way("connections", Dialect.CONNECTIONS, "Connections of fabric PCIe can be created.", ENDPOINTS, ENDPOINTS),
    Way(
        "connection-patch",
        Dialect.CONNECTION_PATCH,
        "Connection hostport1_H1 allows PATCH.",
        f"{ROOT}/Fabrics/PCIe/Connections",
        ENDPOINTS,
    ),
    Way("actions", Dialect.ZONE_ACTIONS, "Zone hostport1_H1 offers the action #Zone.AddEndpoint.", ZONES, ENDPOINTS),
    Way(
        "blocks",
        Dialect.RESOURCE_BLOCKS,
        "System hostport1_H1 offers the action #ComputerSystem.AddResourceBlock; there are 12 resource blocks.",
        f"{ROOT}/Systems",
        BLOCKS,
    ),
    Way(
        "block-patch",
        Dialect.BLOCK_PATCH,
        "System hostport1_H1 lists resource blocks and allows PATCH; there are 12.",
        f"{ROOT}/Systems",
        BLOCKS,
    ),
    Way(
        "systems",
        Dialect.SYSTEM_POST,
        "Systems are composed by POST of resource blocks; there are 4 of hosts.",
        BLOCKS,
        BLOCKS,
    ),
    Way(
        "compose",
        Dialect.COMPOSE,
        "Systems are composed by the action #CompositionService.Compose; there are 4 resource blocks of hosts.",
        BLOCKS,
        BLOCKS,
    ),
    Way(
        "cxl",
        Dialect.PORT_LINKS,
        "Bridge 1 of a virtual CXL switch allows PATCH; there are 32 bridges.",
        ROOT + "/Fabrics/PCIe/Switches/drawer{drawer}_switch/VCSs/{label}",
        ROOT + "/Fabrics/PCIe/Switches/drawer{drawer}_switch/Ports/slot{slot}",
    ),
]


# One for each way that the site has; by night the variants of services, too, which by day are told, used and left.
DISTINCT = pytest.mark.parametrize(
    "way",
    [way for way in WAYS if NIGHTLY or way.switch not in {"psme-old", "pnc", "zones-pools"}],
    ids=lambda way: way.switch, indirect=True, scope="module",
)  # fmt: skip


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.switch)
def way(request: pytest.FixtureRequest) -> Way:
    """Return one of the ways."""
    found: Way = request.param
    return found


@pytest.fixture(scope="module")
def offering(way: Way, certificates: Path) -> Iterator[SimulatorProcess]:
    """Run a chassis that offers one way alone."""
    with SimulatorProcess("--dialect", way.switch, "--speed", "20", certificate_directory=certificates) as process:
        yield process


@pytest.fixture
async def client(way: Way, offering: SimulatorProcess) -> AsyncIterator[BmcClient]:
    """Return a client of that chassis, whose NIC is free."""
    offering.clear_faults()
    async with BmcClient(pinned(offering), timeout=5.0) as made:
        for port in ("hostport1_H2", "hostport1_H3"):
            await put(made, way, port, present=False)
        yield made


async def put(bmc: BmcClient, way: Way, port: str, device: str = "drawer1slot7", *, present: bool) -> None:
    zone = await read_zone(bmc, way.port(port), way.dialect)
    change = attach if present else detach
    await change(bmc, way.dialect, zone=zone, endpoint_uri=way.device(device))


def attached(process: SimulatorProcess, port: str) -> list[str]:
    found: list[str] = process.state()["zones"][port]
    return found


async def test_it_is_told_with_its_reason_and_every_device_has_its_name(way: Way, client: BmcClient) -> None:
    inventory = await discover(client)
    assert (inventory.dialect, inventory.dialect_reason, inventory.dialect_known) == (way.dialect, way.reason, True)
    assert not inventory.problems
    names = {dialect_of(way.dialect).members_of(device)[0] for device in inventory.devices}
    numbers = (re.findall(r"\d+", device.uri)[-2:] for device in inventory.devices)
    assert names == {way.device(f"drawer{drawer}slot{slot}") for drawer, slot in numbers}
    assert len(names) == 12
    holders = host_port_zones(inventory, inventory.dialect)
    named = ("hostport1_H1", "hostport1_H2", "hostport1_H3", "hostport2_H4")
    assert [holder.uri for holder in holders] == [way.port(name) for name in named]
    assert all(holder.initiator and holder.initiator.port_uris for holder in holders)
    assert {name for holder in holders for name in holder.members} & names == {
        way.device(device) for port in ("1_H1", "1_H2", "2_H4") for device in attached_at_first(port)
    }


def attached_at_first(port: str) -> list[str]:
    numbers = {"1_H1": (1, 2, 3, 4), "1_H2": (5, 6), "2_H4": (1, 2, 3, 4, 5)}[port]
    return [f"drawer{port[0]}slot{number}" for number in numbers]


async def test_a_device_is_attached_moved_and_detached(way: Way, client: BmcClient, offering: SimulatorProcess) -> None:
    await put(client, way, "hostport1_H3", present=True)
    assert attached(offering, "hostport1_H3") == ["drawer1slot7"]
    with pytest.raises(CompositionRefused, match="hostport1_H3"):
        await put(client, way, "hostport1_H2", present=True)
    await put(client, way, "hostport1_H3", present=False)
    await put(client, way, "hostport1_H2", present=True)
    assert (attached(offering, "hostport1_H3"), attached(offering, "hostport1_H2")[-1:]) == ([], ["drawer1slot7"])
    await put(client, way, "hostport1_H2", present=False)
    assert attached(offering, "hostport1_H2") == ["drawer1slot5", "drawer1slot6"]


@DISTINCT
async def test_what_somebody_changed_meanwhile_is_left_alone(
    way: Way, client: BmcClient, offering: SimulatorProcess
) -> None:
    looked_at = await read_zone(client, way.port("hostport1_H2"), way.dialect)
    await put(client, way, "hostport1_H2", present=True)
    with pytest.raises(ZoneChanged):
        await detach(client, way.dialect, zone=looked_at, endpoint_uri=way.device("drawer1slot5"))
    assert attached(offering, "hostport1_H2") == ["drawer1slot5", "drawer1slot6", "drawer1slot7"]


@DISTINCT
async def test_a_change_by_half_is_no_success_and_can_be_repeated(
    way: Way, client: BmcClient, offering: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabric.bmc.settling.FIRST_SECONDS", 0.3)
    offering.fault("half_applied_bind")
    with pytest.raises(CompositionRefused, match=r"does not hold (drawer1)?slot7"):
        await put(client, way, "hostport1_H3", present=True)
    offering.fault("half_applied_bind", answer="error")
    with pytest.raises(ServerFault):
        await put(client, way, "hostport1_H3", present=True)
    # The truth is read, not assumed: it was done, so that nothing is written a second time.
    zone = await read_zone(client, way.port("hostport1_H3"), way.dialect)
    assert way.device("drawer1slot7") in zone.members
    await put(client, way, "hostport1_H3", present=True)
    assert attached(offering, "hostport1_H3") == ["drawer1slot7"]


@DISTINCT
async def test_a_viewer_may_not(way: Way, client: BmcClient, offering: SimulatorProcess) -> None:
    async with BmcClient(pinned(offering, "viewer")) as viewer:
        with pytest.raises(CompositionRefused) as refusal:
            await put(viewer, way, "hostport1_H3", present=True)
    assert refusal.value.answered == 403


@DISTINCT
async def test_the_inventory_follows_with_a_refresh(way: Way, client: BmcClient) -> None:
    discovery = Discovery(client)
    before = await discovery.walk()
    await put(client, way, "hostport1_H3", present=True)
    after = await discovery.refresh()

    def holding(inventory: Inventory) -> list[str]:
        found = host_port_zones(inventory, inventory.dialect)
        return [holder.uri for holder in found if way.device("drawer1slot7") in holder.members]

    assert (holding(before), holding(after)) == ([], [way.port("hostport1_H3")])


@DISTINCT
async def test_slow_changes_and_tasks_are_waited_for(way: Way, certificates: Path) -> None:
    options = ("--dialect", way.switch, "--speed", "20", "--slow-bind", "4", "--bind-by-task")
    with SimulatorProcess(*options, certificate_directory=certificates) as process:
        async with BmcClient(pinned(process)) as bmc:
            await put(bmc, way, "hostport1_H3", present=True)
            assert attached(process, "hostport1_H3") == ["drawer1slot7"]
            await put(bmc, way, "hostport1_H3", present=False)
            assert attached(process, "hostport1_H3") == []


async def test_a_service_without_any_way_is_monitored_only(certificates: Path) -> None:
    with SimulatorProcess("--dialect", "none", certificate_directory=certificates) as process:
        async with BmcClient(pinned(process)) as bmc:
            inventory = await discover(bmc)
            assert inventory.dialect is Dialect.NONE
            assert inventory.dialect_reason.startswith("None of the known ways was found: none of its 4 zones allows")
            zone = await read_zone(bmc, f"{ZONES}/hostport1_H3")
            with pytest.raises(CompositionRefused, match="can only be monitored"):
                await attach(bmc, Dialect.NONE, zone=zone, endpoint_uri=f"{ENDPOINTS}/drawer1slot7")


@pytest.mark.process
@pytest.mark.skipif(not FOLDERS, reason="../shared/redfish/mockups is missing")
async def test_a_real_service_of_today_is_monitored_only() -> None:
    with serve_mockup(MOCKUPS / "openbmc-bmcweb-live") as url:
        from fabric.bmc.addresses import BmcAddress

        async with BmcClient(BmcAddress(url=url)) as bmc:
            inventory = await discover(bmc)
    assert inventory.dialect is Dialect.NONE
    assert inventory.dialect_known
    assert "it has no zones" in inventory.dialect_reason


@pytest.mark.parametrize(("fault", "path"), [("server_error", "/Zones"), ("server_error", "/Fabrics")])
async def test_what_cannot_be_read_for_now_tells_no_dialect(chassis: SimulatorProcess, fault: str, path: str) -> None:
    async with BmcClient(pinned(chassis)) as bmc:
        discovery = Discovery(bmc)
        broken = chassis.fault(fault, path=path)
        inventory = await discovery.walk()
        assert (inventory.dialect, inventory.dialect_known) == (Dialect.NONE, False)
        assert "unknown for now" in inventory.dialect_reason
        chassis.end_fault(broken)
        assert (await discovery.walk()).dialect is Dialect.ZONE_PATCH


async def test_a_zone_that_fails_while_it_is_asked_is_not_taken_for_a_refusal(chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis)) as bmc:
        discovery = Discovery(bmc)
        found = await discovery.walk()
        assert found.dialect is Dialect.ZONE_PATCH
        # With $expand the walk reads the collection; the zones themselves fail when they are asked for Allow.
        chassis.fault("server_error", path="/Zones/hostport")
        broken = await discovery.walk()
        assert (broken.dialect, broken.dialect_known) == (Dialect.NONE, False)
        chassis.clear_faults()
        assert (await discovery.refresh()).dialect is Dialect.ZONE_PATCH


@pytest.mark.parametrize(
    ("uri", "kind", "known"),
    [
        ("/redfish/v1/Fabrics", ProblemKind.SERVER_ERROR, False),
        ("/redfish/v1/Fabrics/PCIe", ProblemKind.UNREACHABLE, False),
        ("/redfish/v1/Systems/1", ProblemKind.SERVER_ERROR, False),
        ("/redfish/v1/Fabrics/PCIe/Zones?$skip=2", ProblemKind.UNREACHABLE, False),
        ("/redfish/v1/Fabrics", ProblemKind.REFUSED, True),
        ("/redfish/v1/Fabrics/PCIe/Zones", ProblemKind.DEAD_LINK, True),
        ("/redfish/v1/Chassis/1/Sensors/2", ProblemKind.SERVER_ERROR, True),
    ],
)
async def test_only_a_passing_problem_of_what_would_tell_leaves_it_open(
    uri: str, kind: ProblemKind, *, known: bool
) -> None:
    from fabric.bmc.dialects import probe_dialect

    with NonsenseServer({}) as server:
        async with server.client() as bmc:
            probe = await probe_dialect(bmc, {}, {uri: InventoryProblem(uri=uri, kind=kind, sentence="broken")})
    assert (probe.dialect, probe.known) == (Dialect.NONE, known)
    assert len(probe.reason) <= 300


async def test_a_system_of_nowhere_is_no_host_port() -> None:
    system = f"{ROOT}/Systems/composed"
    action = {"target": f"{system}/Actions/ComputerSystem.AddResourceBlock"}
    routes = {
        ROOT: service_root(Systems={"@odata.id": f"{ROOT}/Systems"}),
        f"{ROOT}/Systems": collection(f"{ROOT}/Systems", "ComputerSystem", system),
        system: {
            "@odata.id": system, "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem", "Id": "composed",
            "Name": "Composed", "Actions": {"#ComputerSystem.AddResourceBlock": action},
            "Links": {"ResourceBlocks": {"nonsense": True}},
        },
        f"{ROOT}/SessionService/Sessions": Reply(403),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            inventory = await discover(bmc)
    assert inventory.dialect is Dialect.RESOURCE_BLOCKS
    assert host_port_zones(inventory, inventory.dialect) == []


async def test_an_address_that_answers_no_more_fails_the_walk_and_not_the_probe(chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis)) as bmc:
        discovery = Discovery(bmc)
        await discovery.walk()
        chassis.fault("reset_connections")
        with pytest.raises(BmcError):
            await discovery.walk()


@pytest.mark.parametrize("switch", ["zones-pools", "connections"])
async def test_the_first_device_that_is_attached_is_seen_by_a_refresh(switch: str, certificates: Path) -> None:
    way = next(way for way in WAYS if way.switch == switch)
    with SimulatorProcess("--dialect", switch, "--speed", "20", certificate_directory=certificates) as process:
        async with BmcClient(pinned(process)) as bmc:
            for port in ("1_H1", "1_H2", "2_H4"):
                for device in attached_at_first(port):
                    await put(bmc, way, f"hostport{port}", device, present=False)
            discovery = Discovery(bmc)
            ports = host_port_zones(await discovery.walk(), way.dialect)
            assert [port.members for port in ports] == [()] * 4
            await put(bmc, way, "hostport1_H3", present=True)
            found = host_port_zones(await discovery.refresh(), way.dialect)
    assert {port.uri: port.members for port in found if port.members} == {
        f"{ENDPOINTS}/hostport1_H3": (f"{ENDPOINTS}/drawer1slot7",)
    }


@pytest.mark.parametrize(
    ("allow", "dialect", "reason"),
    [
        ("options", Dialect.ZONE_PATCH, "Zone hostport1_H1 allows PATCH, as OPTIONS says."),
        ("none", Dialect.NONE, "None of the known ways was found: its 4 zones do not tell whether they allow PATCH"),
    ],
)
async def test_methods_that_get_does_not_name_are_asked_for_by_options(
    allow: str, dialect: Dialect, reason: str
) -> None:
    with SimulatorProcess("--dialect", "patch", "--allow", allow) as process:
        async with BmcClient(pinned(process)) as bmc:
            found = await discover(bmc)
    assert found.dialect is dialect
    assert found.dialect_reason.startswith(reason)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (Reply(405, {}, {"Allow": "GET, PATCH"}), "GET, PATCH"),
        (Reply(200, b"", {"Allow": "GET, PATCH"}), "GET, PATCH"),
        (Reply(501), ""),
        (Reply(hang_up=True), ""),
    ],
)
async def test_options_are_read_as_far_as_a_service_answers_them(options: Reply, allowed: str) -> None:
    with NonsenseServer({f"OPTIONS {ZONES}/1": options, f"{ZONES}/1": {}}) as server:
        async with server.client() as bmc:
            assert await bmc.options(f"{ZONES}/1") == allowed
            if options.hang_up:
                del server.routes[f"{ZONES}/1"]
                with pytest.raises(BmcError):
                    await bmc.options(f"{ZONES}/1")
