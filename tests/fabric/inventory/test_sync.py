"""The mirror follows the hardware: what goes, comes back, is swapped, cannot be read, or is another maker's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.errors import BmcError
from fabric.bmc.series import SeriesFactory
from fabric.bmc.types import Inventory
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Part, Port, Slot, Switch
from fabric.inventory.port_counters import port_reset_counters
from fabric.inventory.selectors import reading_owners
from fabric.inventory.sync import inventory_apply
from fabric.operations.services import mode_request, operation_request
from fabric.signals import access_changed
from falconweb.testing import SimulatorProcess, add_mirrored, carry_out, device_in, host_port_of, mirror
from telemetry.live.catalogue import SeriesCatalogue
from tests.bmc.conftest import serve_mockup
from tests.bmc.test_mockups import FOLDERS, MOCKUPS
from tests.fabric.walks import last_walk, with_device
from tests.turns import in_turn

PARTS: tuple[type[Part], ...] = (Drawer, Switch, Port, HostPort, Slot, Device)
# Errors that a simulated link may have had by itself by then; a burst makes thousands.
FEW = 10


def rows(chassis: Chassis) -> dict[str, dict[str, Any]]:
    """Return every mirrored row with every column but the readings and the healths, which go on by themselves."""
    left_out = {"errors", "health", "link_status", "link_state", "active_width", "speed_gbps", "lanes_in_use"}
    return {
        f"{model.__name__} {row['uri']}": {name: value for name, value in row.items() if name not in left_out}
        for model in PARTS
        for row in model._default_manager.filter(chassis=chassis).values()
    }


def differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what changed, column by column, as (before, after)."""
    return {
        f"{name} {column}": (row[column], after[name][column])
        for name, row in before.items()
        for column in row
        if row[column] != after[name][column]
    }


def walked(chassis: Chassis) -> Inventory:
    async def walk() -> Inventory:
        async with BmcClient(chassis.address()) as bmc:
            return await discover(bmc)

    return asyncio.run(walk())


# --- going and coming back ----------------------------------------------------------------------------------------


def test_a_device_that_vanishes_is_missing_and_comes_back_the_same(
    chassis: Chassis, simulator: SimulatorProcess, tenant: Tenant
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    before = rows(chassis)
    removal = simulator.fault("surprise_removal", "drawer1slot1")
    mirror(chassis)
    gpu.refresh_from_db()
    assert gpu.missing_since is not None
    assert gpu.host_port is None
    since = gpu.missing_since
    mirror(chassis)
    gpu.refresh_from_db()
    assert gpu.missing_since == since
    changed = {name for name, row in rows(chassis).items() if row != before[name]}
    assert changed == {f"Device {gpu.uri}"}
    simulator.end_fault(removal)
    mirror(chassis)
    back = Device.objects.get(pk=gpu.pk)
    # It comes back unattached, and with the same serial number it is still theirs.
    assert (back.missing_since, back.host_port, back.tenant) == (None, None, tenant)
    assert back.slot == Slot.objects.get(drawer__number=1, number=1)


@pytest.mark.usefixtures("simulator")
def test_attachments_follow_what_others_do_at_the_chassis(chassis: Chassis) -> None:
    gpu, card = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=7)

    ports = [host_port_of(chassis, "H1"), host_port_of(chassis, "H3")]
    slots = [[2, 3, 4], [1, 7]]

    async def move() -> None:
        async with BmcClient(chassis.address()) as bmc:
            for host_port, numbers in zip(ports, slots, strict=True):
                fabric = host_port.endpoint_uri.rpartition("/")[0]
                whole = [host_port.endpoint_uri, *(f"{fabric}/drawer1slot{number}" for number in numbers)]
                await bmc.patch(host_port.uri, {"Links": {"Endpoints": [{"@odata.id": uri} for uri in whole]}})

    asyncio.run(move())
    mirror(chassis)
    for device in (gpu, card):
        device.refresh_from_db()
        assert device.host_port == ports[1]
    assert Device.objects.filter(host_port=ports[0]).count() == 3


@pytest.mark.usefixtures("simulator")
def test_a_walk_that_is_older_than_what_an_operation_has_read_back_does_not_undo_it(
    chassis: Chassis, administrator: User
) -> None:
    begun, older = timezone.now(), walked(chassis)
    for asked in (
        operation_request(person=administrator, device=device_in(chassis, drawer=1, slot=1), target=None),
        mode_request(person=administrator, drawer=Drawer.objects.get(number=2), mode="Advanced"),
    ):
        assert carry_out(asked).state == "done"
    after = rows(chassis)
    inventory_apply(chassis=chassis, inventory=older, begun_at=begun)
    assert {name: change for name, change in differences(after, rows(chassis)).items() if "approved" not in name} == {}
    assert not Drift.objects.exists()


def test_a_walk_that_is_older_than_a_reset_does_not_bring_the_errors_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    simulator.fault("error_burst", "drawer1slot3", counter="BadTLPCount", rate=1000)
    begun, older = timezone.now(), walked(chassis)
    simulator.clear_faults()
    inventory_apply(chassis=chassis, inventory=older)
    port = Port.objects.get(slot__device=device_in(chassis, drawer=1, slot=3))
    assert port.errors["BadTLPCount"] > FEW
    port_reset_counters(person=administrator, port=port)
    inventory_apply(chassis=chassis, inventory=older, begun_at=begun)
    port.refresh_from_db()
    assert port.errors["BadTLPCount"] < FEW


@pytest.mark.usefixtures("simulator")
def test_a_walk_without_changes_changes_nothing(chassis: Chassis) -> None:
    before, revision = rows(chassis), chassis.inventory_revision
    again = mirror(chassis)
    assert differences(before, rows(chassis)) == {}
    assert again.inventory_revision == revision


def test_a_walk_asks_for_each_kind_of_part_and_for_no_part_alone(
    chassis: Chassis, django_assert_max_num_queries: Callable[[int], contextlib.AbstractContextManager[object]]
) -> None:
    walk = last_walk(chassis)
    with django_assert_max_num_queries(22):
        inventory_apply(chassis=chassis, inventory=walk)


# --- another device in the same slot ------------------------------------------------------------------------------


@pytest.fixture
def access_changes() -> Iterator[list[object]]:
    """What was sent when somebody's sight changed."""
    heard: list[object] = []

    def hear(sender: object, **more: object) -> None:
        heard.append(sender)

    access_changed.connect(hear)
    yield heard
    access_changed.disconnect(hear)


@pytest.mark.usefixtures("transactional_db")  # what is sent is sent after a transaction
@pytest.mark.parametrize("gone_between", [False, True])
def test_a_swapped_device_is_nobodys(
    chassis: Chassis, tenant: Tenant, access_changes: list[object], *, gone_between: bool
) -> None:
    gpu, other = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    Device.objects.filter(pk__in=[gpu.pk, other.pk]).update(tenant=tenant)
    inventory = last_walk(chassis)
    if gone_between:
        without = tuple(device for device in inventory.devices if device.uri != gpu.uri)
        inventory_apply(chassis=chassis, inventory=msgspec.structs.replace(inventory, devices=without))
    inventory_apply(chassis=chassis, inventory=with_device(inventory, gpu.uri, serial_number="ANOTHER"))
    gpu.refresh_from_db()
    other.refresh_from_db()
    assert (gpu.serial_number, gpu.tenant, gpu.missing_since) == ("ANOTHER", None, None)
    assert gpu.tenant_since is not None  # what was measured before is not the next holder's
    assert other.tenant == tenant
    assert access_changes == [Device]


@pytest.mark.parametrize("identity", [{"model": "Another"}, {"device_id": "0x9999"}, {"manufacturer": "Other"}])
def test_a_device_without_a_serial_number_is_told_by_what_it_is(
    chassis: Chassis, tenant: Tenant, identity: dict[str, str]
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    inventory = last_walk(chassis)
    inventory_apply(chassis=chassis, inventory=with_device(inventory, gpu.uri, serial_number=""))
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant, serial_number="")
    inventory_apply(chassis=chassis, inventory=with_device(inventory, gpu.uri, serial_number="", **identity))
    gpu.refresh_from_db()
    assert gpu.tenant is None


def test_a_serial_number_that_is_not_told_for_a_moment_hides_no_swap(chassis: Chassis, tenant: Tenant) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    inventory = last_walk(chassis)
    inventory_apply(chassis=chassis, inventory=with_device(inventory, gpu.uri, serial_number=""))
    serial, gpu.serial_number = gpu.serial_number, ""
    gpu.refresh_from_db()
    assert (gpu.serial_number, gpu.tenant) == (serial, tenant)
    inventory_apply(chassis=chassis, inventory=with_device(inventory, gpu.uri, serial_number="ANOTHER"))
    gpu.refresh_from_db()
    assert (gpu.serial_number, gpu.tenant) == ("ANOTHER", None)


# --- what cannot be read for now ----------------------------------------------------------------------------------

PLACES = [
    "/Chassis",
    "/Chassis/drawer1",
    "/Chassis/drawer1/PCIeDevices",
    "/Chassis/drawer1/PCIeDevices/slot1",
    "/PCIeFunctions",
    "/Systems",
    "/Systems/node-a",
    "/Fabrics",
    "/Fabrics/PCIe",
    "/Fabrics/PCIe/Switches",
    "/Switches/drawer1_switch/Ports",
    "/Ports/H1",
    "/Fabrics/PCIe/Zones",
    "/Zones/hostport1_H1",
    "/Fabrics/PCIe/Endpoints",
    "/Endpoints/hostport1_H1",
    "/Endpoints/drawer1slot1",
    "/Processors",
    "/ResourceBlocks",
    "/NetworkAdapters",
    "/Drives",
]


def test_a_walk_that_could_not_read_everything_loses_nothing(chassis: Chassis, simulator: SimulatorProcess) -> None:
    before = rows(chassis)
    for path, kind in in_turn(product(PLACES, ("server_error", "reset_connections")), 0, of=5):
        fault = simulator.fault(kind, path=path)
        with contextlib.suppress(BmcError):  # so much was unreadable that nothing was written
            mirror(chassis)
        assert differences(before, rows(chassis)) == {}, f"{kind} at {path}"
        simulator.end_fault(fault)
    mirror(chassis)
    assert differences(before, rows(chassis)) == {}


# --- other makers' services, and nonsense -------------------------------------------------------------------------


def another(url: str, name: str = "another") -> Chassis:
    chassis: Chassis = Chassis.objects.create(name=name, url=url)
    return chassis


@pytest.mark.process
@pytest.mark.skipif(not FOLDERS, reason="../shared/redfish/mockups is missing")
@pytest.mark.parametrize("folder", [*in_turn(FOLDERS, 1, of=2)])
def test_every_published_service_is_mirrored(transactional_db: None, folder: str) -> None:
    with serve_mockup(MOCKUPS / folder) as url:
        chassis = another(url)
        inventory = walked(chassis)
        inventory_apply(chassis=chassis, inventory=inventory)
        found = rows(chassis)
        assert mirror(chassis).last_error == ""
    assert rows(chassis) == found
    assert Device.objects.filter(chassis=chassis).count() == len(inventory.devices)
    assert Slot.objects.filter(chassis=chassis).count() == len(inventory.slots)
    assert Port.objects.filter(chassis=chassis).count() == len(inventory.ports)
    assert Switch.objects.filter(chassis=chassis).count() == len(inventory.switches)
    assert Drawer.objects.filter(chassis=chassis).count() == len(inventory.drawers)
    # Each system is one host; two systems with one identity are one machine.
    assert 0 < Host.objects.count() <= max(1, len(inventory.systems)) or not inventory.systems
    # And what is mirrored is where people look: devices and switches in the picture, ports on the chassis' page.
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    answer = client.get(reverse("fabric:chassis", args=[chassis.pk]))
    picture = answer.context["picture"]
    shown = [box.slot.device.id for part in picture.drawers for box in part.boxes if box.slot.device]
    assert sorted(shown) == sorted(Device.objects.values_list("pk", flat=True))
    assert sum(len(part.chips) for part in picture.drawers) == len(inventory.switches)
    assert sum(len(part.heads) for part in picture.drawers) == HostPort.objects.count()
    page = answer.content.decode()
    for port in Port.objects.all():
        assert reverse("fabric:port", args=[port.pk]) in page
    labels = list(HostPort.objects.values_list("label", flat=True))
    assert len(labels) == len(set(labels))
    series = [SeriesFactory(inventory).series(f"{sensor.uri}#/Reading") for sensor in inventory.sensors]
    names = [
        (entry["object"], entry["id"], entry["quantity"], entry["label"])
        for entry in SeriesCatalogue(series, reading_owners(chassis.pk, inventory)).entries
    ]
    assert len(names) == len(set(names))


def test_the_same_names_everywhere_are_told_apart_by_where_they_are(chassis: Chassis) -> None:
    inventory = last_walk(chassis)

    def renamed(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(msgspec.structs.replace(part, name="Same") for part in parts)

    names = ("drawers", "switches", "ports", "slots", "devices", "zones", "systems", "endpoints")
    changes = {name: renamed(getattr(inventory, name)) for name in names}
    before = rows(chassis)
    inventory_apply(chassis=chassis, inventory=msgspec.structs.replace(inventory, **changes))
    after = rows(chassis)
    for name, row in before.items():
        ignored = {"name", "label", "number"}
        assert {k: v for k, v in after[name].items() if k not in ignored} == {
            k: v for k, v in row.items() if k not in ignored
        }


@pytest.mark.parametrize(
    "nonsense",
    [
        {"name": "x" * 5000, "model": "y" * 5000, "serial_number": "z" * 5000},
        {"model": "A\0B", "manufacturer": "\0"},
        {"lanes_in_use": -1, "max_lanes": 10**30},
        {"memory_bytes": 10**40, "capacity_bytes": -(10**40)},
        {"health": "Fine, thank you, and how are you today?", "pcie_type": "Gen" * 100},
        {"endpoint_uris": ("/redfish/v1/nowhere",), "slot_uri": "/redfish/v1/nowhere"},
    ],
)
def test_a_nonsensical_value_keeps_no_other_out(chassis: Chassis, nonsense: dict[str, Any]) -> None:
    gpu, other = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    inventory = with_device(last_walk(chassis), gpu.uri, **nonsense)
    inventory_apply(chassis=chassis, inventory=with_device(inventory, other.uri, firmware_version="99.9"))
    other.refresh_from_db()
    assert other.firmware_version == "99.9"
    gpu.refresh_from_db()
    assert len(gpu.name) <= 200
    assert "\0" not in gpu.model
    assert (gpu.max_lanes or 0) < 2**31


# --- hosts --------------------------------------------------------------------------------------------------------


def test_a_host_cabled_to_two_chassis_is_one_host(chassis: Chassis) -> None:
    with SimulatorProcess(chassis="falcon-2") as second:
        add_mirrored(second, name="falcon-2")
    assert sorted(Host.objects.values_list("name", flat=True)) == ["node-a", "node-b", "node-c"]
    node_a = Host.objects.get(name="node-a")
    cabled = {(port.chassis.name, port.label) for port in HostPort.objects.filter(host=node_a)}
    assert cabled == {("falcon-1", "H1"), ("falcon-1", "H4"), ("falcon-2", "H4")}


def change_systems(inventory: Inventory, change: Callable[[int], dict[str, Any]]) -> Inventory:
    systems = tuple(msgspec.structs.replace(system, **change(index)) for index, system in enumerate(inventory.systems))
    return msgspec.structs.replace(inventory, systems=systems)


@pytest.mark.parametrize("uuid", ["", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"])
def test_hosts_that_tell_no_identity_are_not_taken_for_one(chassis: Chassis, uuid: str) -> None:
    inventory = last_walk(chassis)
    unnamed = change_systems(inventory, lambda _: {"uuid": uuid, "serial_number": "", "manufacturer": "Acme"})
    inventory_apply(chassis=chassis, inventory=unnamed)
    cabled = {port.host for port in HostPort.objects.filter(chassis=chassis)}
    assert len(cabled) == 3


def test_without_a_uuid_the_serial_number_tells_the_host(chassis: Chassis) -> None:
    inventory = last_walk(chassis)
    changed = change_systems(inventory, lambda index: {"uuid": "", "serial_number": f"S{index}"})
    inventory_apply(chassis=chassis, inventory=changed)
    inventory_apply(chassis=chassis, inventory=changed)
    assert Host.objects.filter(identity__endswith=" S1").count() == 1
    assert HostPort.objects.get(chassis=chassis, label="H2").host == Host.objects.get(identity__endswith=" S1")
