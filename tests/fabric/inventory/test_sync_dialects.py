"""The mirror of a chassis composed by resource blocks, of ports that were set up, and of cables that were moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, configure_port, detach, read_zone
from fabric.bmc.discovery import Discovery
from fabric.bmc.types import Dialect, Inventory
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device, Host, HostPort, Port
from fabric.inventory.sync import inventory_apply
from falconweb.testing import SimulatorProcess, add_chassis, add_mirrored, device_in, host_port_of, mirror
from tests.fabric.conftest import put_back
from tests.fabric.inventory.test_sync import differences, rows
from tests.fabric.walks import last_walk
from tests.turns import at_night, in_turn

SYSTEMS = "/redfish/v1/Systems"
BLOCKS = "/redfish/v1/CompositionService/ResourceBlocks"


@pytest.fixture
def pool() -> Iterator[SimulatorProcess]:
    """falcon-1 as a pool of resource blocks, with fast links."""
    with SimulatorProcess("--dialect", "blocks", "--speed", "20", chassis="falcon-1") as process:
        yield process


@pytest.fixture
def by_blocks(db: None, pool: SimulatorProcess) -> Chassis:
    """The pool, mirrored once."""
    return put_back(pool)


def cable(process: SimulatorProcess, port: str, host: str | None) -> None:
    process.ask_control("POST", "/chassis/falcon-1/cabling", {"port": port, "host": host})


def test_systems_are_host_ports_and_blocks_are_what_devices_are_named_by(by_blocks: Chassis) -> None:
    assert by_blocks.dialect == Dialect.RESOURCE_BLOCKS
    assert by_blocks.dialect_reason.startswith("System hostport1_H1 offers the action #ComputerSystem.AddResourceBlock")
    ports = {port.label: port for port in HostPort.objects.select_related("host", "drawer", "port")}
    assert {label: port.uri for label, port in ports.items()} == {
        "H1": f"{SYSTEMS}/hostport1_H1", "H2": f"{SYSTEMS}/hostport1_H2",
        "H3": f"{SYSTEMS}/hostport1_H3", "H4": f"{SYSTEMS}/hostport2_H4",
    }  # fmt: skip
    assert all(port.drawer and port.port and port.port.port_id == label for label, port in ports.items())
    # Two connections of one host are one host.
    assert [ports[label].host.name for label in ("H1", "H2", "H3", "H4")] == ["node-a", "node-b", "node-c", "node-a"]
    assert Host.objects.count() == 3
    gpu, nic = device_in(by_blocks, drawer=1, slot=1), device_in(by_blocks, drawer=1, slot=7)
    assert (gpu.endpoint_uri, gpu.host_port) == (f"{BLOCKS}/drawer1slot1", ports["H1"])
    assert (nic.endpoint_uri, nic.host_port) == (f"{BLOCKS}/drawer1slot7", None)
    assert Device.objects.filter(host_port=ports["H4"]).count() == 5


def test_what_is_added_to_a_system_is_mirrored(by_blocks: Chassis) -> None:
    nic, port = device_in(by_blocks, drawer=1, slot=7), host_port_of(by_blocks, "H3")

    async def add() -> None:
        async with BmcClient(by_blocks.address()) as bmc:
            zone = await read_zone(bmc, port.uri, Dialect.RESOURCE_BLOCKS)
            await attach(bmc, Dialect.RESOURCE_BLOCKS, zone=zone, endpoint_uri=nic.endpoint_uri)

    asyncio.run(add())
    mirror(by_blocks)
    nic.refresh_from_db()
    assert nic.host_port == port


UNREAD = (
    "/Systems", "/Systems/hostport1_H1", "/CompositionService", "/CompositionService/ResourceBlocks",
    "/ResourceBlocks/drawer1slot1", "/Processors", "/Endpoints", "/Endpoints/hostport1_H1", "/Fabrics",
    "/NetworkInterfaces", "/Drives",
)  # fmt: skip


def test_a_walk_that_could_not_read_everything_loses_nothing(by_blocks: Chassis, pool: SimulatorProcess) -> None:
    before = rows(by_blocks)
    for path in in_turn(UNREAD, 0, of=2):
        fault = pool.fault("server_error", path=path)
        broken = mirror(by_blocks)
        assert broken.last_error == ""
        assert differences(before, rows(by_blocks)) == {}, path
        assert broken.dialect == Dialect.RESOURCE_BLOCKS
        pool.end_fault(fault)


def test_the_blocks_of_hosts_are_host_ports_while_systems_come_and_go(db: None) -> None:
    with SimulatorProcess("--dialect", "systems", "--speed", "20", chassis="falcon-1") as process:
        chassis = put_back(process)
        port, gpu, nic = host_port_of(chassis, "H1"), *(device_in(chassis, drawer=1, slot=slot) for slot in (1, 7))
        assert (port.uri, port.host and port.host.name, gpu.host_port) == (f"{BLOCKS}/hostport1_H1", "node-a", port)
        assert not Host.objects.filter(name__startswith="Capabilities").exists()
        before = rows(chassis)
        for path in ("/Systems/hostport1_H1-1", "/Systems/H1", *in_turn(UNREAD, 1, of=4)):
            fault = process.fault("server_error", path=path)
            assert differences(before, rows(mirror(chassis))) == {}, path
            process.end_fault(fault)
        empty = host_port_of(chassis, "H3")

        async def change(*, present: bool) -> None:
            async with BmcClient(chassis.address()) as bmc:
                zone = await read_zone(bmc, empty.uri, Dialect.SYSTEM_POST)
                verb = attach if present else detach
                await verb(bmc, Dialect.SYSTEM_POST, zone=zone, endpoint_uri=nic.endpoint_uri)

        for present in (True, False, True):
            asyncio.run(change(present=present))
            mirror(chassis)
            nic.refresh_from_db()
            assert nic.host_port == (empty if present else None)
            assert host_port_of(chassis, "H3").pk == empty.pk


@pytest.mark.parametrize("dialect", ["connections", *at_night("zones", "connection-patch")])
def test_a_walk_that_could_not_read_what_attaches_detaches_nothing(db: None, dialect: str) -> None:
    with SimulatorProcess("--dialect", dialect, "--no-expand") as process:
        chassis = put_back(process)
        before = rows(chassis)
        name = "Zones" if dialect == "zones" else "Connections"
        for path in (f"/PCIe/{name}", f"/{name}/hostport1_H1", "/Endpoints/hostport1_H1", "/Fabrics"):
            fault = process.fault("server_error", path=path)
            assert mirror(chassis).last_error == ""
            assert differences(before, rows(chassis)) == {}, path
            process.end_fault(fault)


def test_a_dialect_that_cannot_be_told_for_now_stays(chassis: Chassis, simulator: SimulatorProcess) -> None:
    before = rows(chassis)
    simulator.fault("server_error", path="/Zones")
    broken = mirror(chassis)
    assert (broken.dialect, broken.dialect_reason) == (Dialect.ZONE_PATCH, "Zone hostport1_H1 allows PATCH.")
    assert differences(before, rows(chassis)) == {}


def test_a_chassis_whose_dialect_was_never_told_says_so(db: None) -> None:
    with SimulatorProcess() as process:
        process.fault("server_error", path="/Zones")
        row = mirror(add_chassis(process))  # the walk of an unchanged one is kept for others
    assert row.dialect == Dialect.NONE
    assert "unknown for now" in row.dialect_reason


def test_a_chassis_without_a_way_to_attach_says_why(db: None) -> None:
    with SimulatorProcess("--dialect", "none") as process:
        row = add_mirrored(process)
    assert (row.dialect, row.is_composable) == (Dialect.NONE, False)
    assert row.dialect_reason.startswith("None of the known ways was found")
    assert Device.objects.exclude(host_port=None).count() == 11  # what is attached is seen all the same


@pytest.mark.parametrize("dialect", ["connections", *at_night("connection-patch", "zones"), "blocks"])
def test_what_is_attached_is_shown_where_nothing_can_be_changed(db: None, dialect: str) -> None:
    with SimulatorProcess("--dialect", dialect) as process:
        chassis = add_mirrored(process)
        truth = process.state()["zones"]
    inventory_apply(chassis=chassis, inventory=msgspec.structs.replace(last_walk(chassis), dialect=Dialect.NONE))
    chassis.refresh_from_db()
    assert not chassis.is_composable
    shown = {label: HostPort.objects.filter(label=label, missing_since=None).get() for label in ("H1", "H2", "H4")}
    found = {label: sorted(port.devices.values_list("slot__number", flat=True)) for label, port in shown.items()}
    assert found == {"H1": [1, 2, 3, 4], "H2": [5, 6], "H4": [1, 2, 3, 4, 5]}
    assert sum(map(len, found.values())) == sum(map(len, truth.values()))


@pytest.mark.parametrize("dialect", ["connections", *at_night("connection-patch", "zones", "blocks")])
def test_a_host_port_stays_the_same_when_another_resource_has_its_devices(db: None, dialect: str) -> None:
    with SimulatorProcess() as process:
        chassis = add_mirrored(process)
    before = dict(HostPort.objects.values_list("label", "pk"))
    held = dict(Device.objects.values_list("uri", "host_port"))
    with SimulatorProcess("--dialect", dialect) as process:
        chassis.url, chassis.fingerprint = process.address, process.fingerprint
        chassis.save()
        assert mirror(chassis).dialect != Dialect.ZONE_PATCH
    ports = HostPort.objects.filter(missing_since=None)
    assert dict(ports.values_list("label", "pk")) == before
    assert dict(Device.objects.values_list("uri", "host_port")) == held
    assert not Drift.objects.exists()


@pytest.mark.parametrize("dialect", ["blocks", *at_night("both")])
def test_a_moved_cable_is_mirrored_within_one_walk(db: None, dialect: str) -> None:
    with SimulatorProcess("--dialect", dialect, "--speed", "20") as process:
        chassis = add_mirrored(process)
        node_b, node_c = Host.objects.get(name="node-b"), Host.objects.get(name="node-c")
        cable(process, "H3", "node-b")
        mirror(chassis)
        assert host_port_of(chassis, "H3").host == node_b
        assert set(node_b.host_ports.values_list("label", flat=True)) == {"H2", "H3"}
        cable(process, "H3", None)
        mirror(chassis)
        assert host_port_of(chassis, "H3").host is None
        assert HostPort.objects.get(label="H3").missing_since is None
        cable(process, "H3", "node-c")
        mirror(chassis)
        assert host_port_of(chassis, "H3").host == node_c  # the same row as before


@pytest.mark.parametrize("dialect", [*in_turn(["both", "blocks"], 1, of=2)])
def test_a_pulled_cable_leaves_devices_attached_and_the_old_host_where_others_lead(db: None, dialect: str) -> None:
    with SimulatorProcess("--dialect", dialect, "--speed", "20") as process:
        chassis = add_mirrored(process)
        node_a = Host.objects.get(name="node-a")
        cable(process, "H1", None)
        mirror(chassis)
        port = host_port_of(chassis, "H1")
        assert port.host is None
        assert port.devices.count() == 4
        assert [other.label for other in node_a.host_ports.all()] == ["H4"]
        assert Host.objects.count() == 3


@pytest.mark.parametrize("options", [(), *at_night(("--no-expand",))])
def test_a_refresh_sees_cables_too(db: None, options: tuple[str, ...]) -> None:
    with SimulatorProcess(*options, "--speed", "20") as process:
        chassis = add_chassis(process)

        async def follow() -> list[Inventory]:
            async with BmcClient(chassis.address()) as bmc:
                discovery = Discovery(bmc)
                found = [await discovery.walk()]
                for host in ("node-b", None, "node-c"):
                    await asyncio.to_thread(cable, process, "H3", host)
                    found.append(await discovery.refresh())
                return found

        seen = []
        for inventory in asyncio.run(follow()):
            inventory_apply(chassis=chassis, inventory=inventory)
            host = host_port_of(chassis, "H3").host
            seen.append((host.name if host else None, [system.name for system in inventory.systems]))
    assert seen == [
        ("node-c", ["node-a", "node-b", "node-c"]),
        ("node-b", ["node-a", "node-b"]),
        (None, ["node-a", "node-b"]),
        ("node-c", ["node-a", "node-b", "node-c"]),
    ]


def test_a_service_that_names_no_root_complex_without_a_cable_keeps_its_host_port(chassis: Chassis) -> None:
    inventory = last_walk(chassis)
    port = host_port_of(chassis, "H3")
    endpoints = tuple(
        msgspec.structs.replace(each, role="", entity_type="", entity_uris=())
        if each.uri == port.endpoint_uri
        else each
        for each in inventory.endpoints
    )
    inventory_apply(chassis=chassis, inventory=msgspec.structs.replace(inventory, endpoints=endpoints))
    port.refresh_from_db()
    assert (port.missing_since, port.host) == (None, None)


def test_a_host_whose_end_is_a_processor_of_it_is_found(chassis: Chassis) -> None:
    inventory, port = last_walk(chassis), host_port_of(chassis, "H1")
    host = port.host
    assert host is not None
    endpoints = tuple(
        msgspec.structs.replace(each, entity_uris=tuple(f"{uri}/Processors/CPU1" for uri in each.entity_uris))
        for each in inventory.endpoints
    )
    inventory_apply(chassis=chassis, inventory=msgspec.structs.replace(inventory, endpoints=endpoints))
    port.refresh_from_db()
    assert port.host == host


def test_a_device_in_two_zones_is_shown_at_both_and_to_a_tenant_at_its_own(
    chassis: Chassis, administrator: User, member: User, client: Client
) -> None:
    inventory, other = last_walk(chassis), host_port_of(chassis, "H2")
    row = Device.objects.filter(chassis=chassis, host_port__label="H1").first()
    assert row is not None
    shared = tuple(
        msgspec.structs.replace(zone, endpoint_uris=(*zone.endpoint_uris, row.endpoint_uri))
        if zone.uri == other.uri
        else zone
        for zone in inventory.zones
    )
    inventory_apply(chassis=chassis, inventory=msgspec.structs.replace(inventory, zones=shared))
    row.refresh_from_db()
    assert row.host_port is not None
    assert (row.host_port.label, list(row.other_host_ports.all())) == ("H1", [other])
    client.force_login(administrator)
    page = client.get(reverse("fabric:device", args=[row.pk])).content.decode()
    assert "(H1)" in page
    assert "(H2)" in page
    assert client.get(f"/api/v1/devices/{row.pk}/").json()["other_host_port_ids"] == [other.pk]
    assert client.get(f"/api/v1/host-ports/{other.pk}/").json()["other_device_ids"] == [row.pk]
    assert other.host is not None
    assert f'/devices/{row.pk}/"' in client.get(reverse("fabric:host", args=[other.host.pk])).content.decode()
    Device.objects.filter(pk=row.pk).update(tenant=member.tenant)
    client.force_login(member)
    own = client.get(reverse("fabric:device", args=[row.pk]))
    assert own.status_code == 200
    assert other.host.name not in own.content.decode()
    assert "(H2)" not in own.content.decode()
    assert client.get(f"/api/v1/devices/{row.pk}/").json()["other_host_port_ids"] == []
    inventory_apply(chassis=chassis, inventory=inventory)
    assert not row.other_host_ports.exists()


@pytest.mark.usefixtures("simulator")
def test_how_a_port_is_set_up_is_mirrored(chassis: Chassis) -> None:
    port = Port.objects.get(chassis=chassis, port_id="slot1", switch__drawer__number=1)
    assert (port.port_type, port.configured_width, port.active_width) == ("DownstreamPort", 16, 16)

    async def narrow() -> None:
        async with BmcClient(chassis.address()) as bmc:
            await configure_port(bmc, port.uri, configured_width=4)
            await configure_port(bmc, port.uri.replace("slot1", "slot8"), port_type="UnconfiguredPort")

    asyncio.run(narrow())
    mirror(chassis)
    port.refresh_from_db()
    assert port.configured_width == 4
    assert Port.objects.get(uri=port.uri.replace("slot1", "slot8")).port_type == "UnconfiguredPort"
