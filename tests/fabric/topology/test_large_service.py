"""Pages about a service of ten thousand devices: an operator reads a page, not all of it."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import User
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot, Switch, Walk
from fabric.topology.fleet import MAX_CELLS, STATES, _summarised
from fabric.topology.selectors import chassis_view
from fabric.topology.slot_pages import SLOTS_A_PAGE, slot_places, slots_on_page
from tests.turns import at_night, in_turn

pytestmark = pytest.mark.django_db
FEW, MANY = 1000, 10_000
MAX_KB = 300


def large_service(*, drawers: int, devices: int) -> Chassis:
    """Add a chassis with many devices in so many drawers; with none they are in no slot."""
    row = Chassis.objects.create(
        name="large", url="https://127.0.0.1:1", enabled=False, dialect="zone_patch", inventory_at="2026-01-01T00:00Z"
    )
    switch = Switch.objects.create(chassis=row, uri="/x", name="Switch", model="PEX88096")
    boxes = Drawer.objects.bulk_create(
        Drawer(chassis=row, uri=f"/d{number}", name=f"Drawer {number}", number=number) for number in range(drawers)
    )
    ports = Port.objects.bulk_create(
        Port(
            chassis=row, switch=switch, uri=f"/p{number}", port_id=f"{number}", name=f"Port {number}", width=16,
            link_status="LinkUp", active_width=16,
        )
        for number in range(devices)
    )  # fmt: skip
    host_ports = HostPort.objects.bulk_create(
        HostPort(
            chassis=row, uri=f"/h{number}", endpoint_uri=f"/e{number}", label=f"H{number}", number=number,
            drawer=boxes[number % drawers] if drawers else None,
        )
        for number in range(100)
    )  # fmt: skip
    slots = Slot.objects.bulk_create(
        Slot(
            chassis=row, uri=f"/s{number}", name=f"Slot {number}", number=number // max(drawers, 1), port=ports[number],
            drawer=boxes[number % drawers],
        )
        for number in range(devices if drawers else 0)
    )  # fmt: skip
    Device.objects.bulk_create(
        Device(
            chassis=row, uri=f"/g{number}", slot=slots[number] if slots else None, name=f"GPU {number}", kind="gpu",
            model="V100", manufacturer="NVIDIA", serial_number=f"SN{number}", lanes_in_use=16, max_lanes=16,
            host_port=host_ports[number % 100] if number % 2 else None, pcie_type="Gen4", max_pcie_type="Gen4",
        )
        for number in range(devices)
    )  # fmt: skip
    part = {"name": "A part", "state": "Enabled", "health": "OK"}
    kinds = ("devices", "ports", "port_metrics", "slots", "functions", "endpoints", "sensors")
    Walk.objects.create(
        chassis=row, found={kind: [{**part, "uri": f"/{kind}/{one}"} for one in range(devices)] for kind in kinds}
    )
    return row


@pytest.mark.parametrize(("drawers", "devices"), [(1, FEW), *at_night((0, MANY), (1, MANY), (100, MANY))])
def test_no_page_is_longer_than_a_person_reads(administrator_client: Client, drawers: int, devices: int) -> None:
    row = large_service(drawers=drawers, devices=devices)
    device = Device.objects.get(chassis=row, name=f"GPU {devices // 2}")
    pages = [
        "/", "/?by=tenant", "/fabric/", "/fabric/?view=list", "/fabric/?view=front", "/fabric/?q=GPU",
        "/fabric/?q=GPU&view=list", f"/chassis/{row.pk}/", f"/chassis/{row.pk}/?page=3&ports=4", "/devices/",
        f"/devices/{device.pk}/", "/hosts/", "/system/", "/links/",
        *(f"/drawers/{drawer.pk}/" for drawer in Drawer.objects.filter(chassis=row)[:1]),
    ]  # fmt: skip
    sizes = {}
    for page in pages:
        answer = administrator_client.get(page)
        assert answer.status_code == 200
        sizes[page] = len(answer.content) / 1000
    assert {page: size for page, size in sizes.items() if size > MAX_KB} == {}


def shown_devices(client: Client, query: str) -> set[str]:
    return set(re.findall(r"GPU \d+", client.get(f"/fabric/?{query}").content.decode()))


VIEWS, DRAWERS = ("topology", "list", "front"), (0, 1, 3)


@pytest.mark.parametrize(
    ("drawers", "view"),
    [(drawers, view) for turn, drawers in enumerate(DRAWERS) for view in in_turn(VIEWS, turn, of=3)],
)
def test_each_device_is_on_one_of_the_pages(administrator_client: Client, drawers: int, view: str) -> None:
    devices = 2 * SLOTS_A_PAGE + 20
    large_service(drawers=drawers, devices=devices)
    pages = [shown_devices(administrator_client, f"view={view}&page={number}") for number in (1, 2, 3)]
    assert [len(page) for page in pages] == [SLOTS_A_PAGE, SLOTS_A_PAGE, 20]
    assert len(set.union(*pages)) == devices
    assert shown_devices(administrator_client, f"view={view}&q=SN{devices - 1}") == {f"GPU {devices - 1}"}
    found = [shown_devices(administrator_client, f"view={view}&q=kind:gpu&page={number}") for number in (1, 2, 3)]
    assert found == pages


def test_a_host_port_counts_all_of_its_devices_beside_a_part_of_the_slots(administrator_client: Client) -> None:
    row = large_service(drawers=1, devices=1000)
    places = slot_places(User.objects.get(is_superuser=True), [row.pk])[row.pk]
    _page, shown = slots_on_page(places, "2")
    view = chassis_view(User.objects.get(is_superuser=True), row.pk, shown)
    slots = [slot for drawer in view.drawers for slot in drawer.slots]
    assert [slot.id for slot in slots] == [slot for slot, _ in places[SLOTS_A_PAGE : 2 * SLOTS_A_PAGE]]
    assert {len(port.device_ids) for port in view.host_ports if port.number % 2} == {10}


def test_a_tile_of_many_slots_shows_the_worst_of_several() -> None:
    drawer = ["attached"] * 5000
    drawer[4999] = "critical"
    (cells,) = _summarised([drawer], lambda some: min(some, key=STATES.index))
    assert len(cells) <= MAX_CELLS
    assert set(cells[:-1]) == {"attached"}
    assert cells[-1] == "critical"
    rows = _summarised([["empty"] * 9] * 300, lambda some: min(some, key=STATES.index))
    assert sum(map(len, rows)) <= MAX_CELLS
