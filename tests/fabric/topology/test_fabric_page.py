"""The pages of a fleet: a map and one drawing, the devices that a search finds, and what they and the overview cost."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Slot, Walk
from fabric.topology.front import layout_front
from fabric.topology.layout import DRAWER_GAP, Screen, layout_chassis
from fabric.topology.places import SLOT_HEIGHT, SLOT_WIDTH
from fabric.topology.problems import status_board
from fabric.topology.selectors import fabric_view

pytestmark = pytest.mark.django_db
SLOTS = 8


def add_fleet(count: int, *, after: int = 0) -> None:
    """Add as many chassis, named last first, of two full drawers whose devices are attached by two host ports each."""
    host = Host.objects.create(name="node-a", identity=f"node-a {after}")
    chassis = Chassis.objects.bulk_create(
        Chassis(name=f"falcon-{number}", url=f"https://127.0.0.1:{number}", dialect="zone_patch")
        for number in range(after + count, after, -1)
    )
    drawers = Drawer.objects.bulk_create(
        Drawer(chassis=one, uri=f"/{number}", number=number, name=f"Drawer {number}")
        for one in chassis
        for number in (1, 2)
    )
    ports = HostPort.objects.bulk_create(
        HostPort(
            chassis=one.chassis, drawer=one, uri=f"{one.uri}/{number}", label=f"H{number}", number=number, host=host
        )
        for one in drawers
        for number in (1, 2)
    )
    slots = Slot.objects.bulk_create(
        Slot(chassis=one.chassis, drawer=one, uri=f"{one.uri}/{number}", number=number, name=f"Slot {number}")
        for one in drawers
        for number in range(1, SLOTS + 1)
    )
    Device.objects.bulk_create(
        Device(
            chassis=slot.chassis, slot=slot, uri=slot.uri, name="Tesla V100-PCIE-16GB", kind="gpu",
            host_port=ports[place // SLOTS * 2 + place % 2],
        )
        for place, slot in enumerate(slots)
    )  # fmt: skip


def signed_in(**of: object) -> Client:
    """Return the client of a person."""
    client = Client()
    client.force_login(User.objects.create(username="somebody", **of))
    return client


def page_of(client: Client, query: str = "") -> str:
    """Return the fabric page."""
    answer = client.get(f"/fabric/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def drawn(page: str) -> list[str]:
    """Return the chassis that a page shows."""
    return re.findall(r'<section\s+class="card"\s+data-chassis="\d+"\s+aria-label="([^"]*)"', page)


def tiles(page: str) -> list[str]:
    """Return the chassis on the map of a page."""
    return re.findall(r'class="tile-name">(?:<span aria-hidden="true">.</span>)?\s*([^<]*?)</span>', page)


def test_the_page_of_two_hundred_chassis_is_small_and_takes_as_many_queries_as_that_of_two() -> None:
    add_fleet(2)
    client = signed_in(role="administrator")
    queries, sizes = {}, {}
    for view in ("topology", "list", "front"):
        page_of(client, f"?view={view}")
        with CaptureQueriesContext(connection) as found:
            page_of(client, f"?view={view}")
        queries[view] = len(found)
    Chassis.objects.all().delete()
    Host.objects.all().delete()
    add_fleet(200)
    for view in ("topology", "list", "front"):
        with CaptureQueriesContext(connection) as found:
            sizes[view] = len(page_of(client, f"?view={view}"))
        assert len(found) == queries[view]
    assert max(sizes.values()) < 200_000, sizes


@pytest.mark.parametrize("by", ["status", "tenant", "temperature"])
def test_the_overview_of_two_hundred_chassis_takes_as_many_queries_as_that_of_two(by: str) -> None:
    client = signed_in(role="administrator")
    tenants = Tenant.objects.bulk_create(Tenant(name=f"Team {number}") for number in range(8))
    client.get("/", {"by": by})
    counts = []
    for more, before in ((2, 0), (198, 2)):
        add_fleet(more, after=before)
        for place, tenant in enumerate(tenants):
            Device.objects.annotate(place=F("pk") % 9).filter(place=place).update(tenant=tenant)
        unwell = Device.objects.filter(slot__number=1, slot__drawer__number=1, chassis__name__endswith="1")
        assert unwell.update(health="Warning")
        ill = Chassis.objects.filter(name__in=["falcon-2", "falcon-102", "falcon-198"])
        ill.update(health="Warning")
        fans = {"fans": [{"name": "Fan 7", "health": "Warning"}]}
        Walk.objects.bulk_create(Walk(chassis=one, found=fans) for one in ill.filter(walk=None))
        with CaptureQueriesContext(connection) as queries:
            page = client.get("/").content
        counts.append((len(queries), page.decode().count('title="falcon-'), len(page) < 150_000))
    assert counts == [(counts[0][0], 2, True), (counts[0][0], 200, True)]


def test_one_chassis_is_shown_and_the_map_has_all_by_their_numbers() -> None:
    add_fleet(11)
    client = signed_in(role="administrator")
    names = [f"falcon-{number}" for number in range(1, 12)]
    ids = dict(Chassis.objects.values_list("name", "pk"))
    page = page_of(client)
    assert tiles(page) == names
    assert drawn(page) == ["falcon-1"]
    for view in ("topology", "list", "front"):
        page = page_of(client, f"?view={view}&chassis={ids['falcon-10']}")
        assert drawn(page) == ["falcon-10"]
        assert [f"chassis={ids[name]}" in page for name in ("falcon-9", "falcon-11")] == [True, True]
        assert "10 of 11" in page
    # What is wrong comes first.
    device = Device.objects.filter(chassis__name="falcon-7").earliest("pk")
    Device.objects.filter(pk=device.pk).update(lanes_in_use=8, max_lanes=16)
    page = page_of(client)
    assert tiles(page)[:2] == ["falcon-7", "falcon-1"]
    assert drawn(page) == ["falcon-7"]
    for nobody in ("0", "999999", "x", "9" * 40, "-1"):
        assert drawn(page_of(client, f"?chassis={nobody}")) == ["falcon-7"]


def test_one_chassis_has_no_map() -> None:
    add_fleet(1)
    page = page_of(signed_in(role="administrator"))
    assert drawn(page) == ["falcon-1"]
    assert tiles(page) == []
    assert 'rel="next"' not in page


def test_a_search_narrows_the_map_and_lists_all_that_it_finds_by_pages() -> None:
    add_fleet(12)
    client = signed_in(role="administrator")
    Device.objects.filter(chassis__name__in=("falcon-3", "falcon-12"), slot__number=1).update(serial_number="SN-77")
    page = page_of(client, "?q=sn-77")
    assert (tiles(page), drawn(page)) == (["falcon-3", "falcon-12"], ["falcon-3"])
    page = page_of(client, "?q=sn-77&view=list")
    assert (tiles(page), drawn(page)) == ([], ["falcon-3", "falcon-12"])
    assert "4 devices found" in " ".join(page.split())
    pages = [page_of(client, f"?q=V100&view=list&page={number}") for number in (1, 2)]
    assert [one.count('<tr class="occupied">') for one in pages] == [100, 12 * 2 * SLOTS - 100]
    assert drawn(pages[0])[-1] == drawn(pages[1])[0] == "falcon-7", "a page may begin within a chassis"
    assert "Nothing found" in page_of(client, "?q=nothing-of-that-kind")


def test_a_tenant_sees_its_own_chassis_alone_on_the_map_and_in_the_drawing() -> None:
    add_fleet(3)
    tenant = Tenant.objects.create(name="Vision group")
    client = signed_in(role="user", tenant=tenant)
    assert drawn(page_of(client)) == []
    ids = dict(Chassis.objects.values_list("name", "pk"))
    Device.objects.filter(chassis__name="falcon-2", slot__number=1).update(tenant=tenant)
    for query in ("", f"?chassis={ids['falcon-1']}", f"?view=list&chassis={ids['falcon-3']}", "?q=V100&view=list"):
        page = page_of(client, query)
        assert drawn(page) == ["falcon-2"], query
        assert "falcon-1" not in page
        assert "falcon-3" not in page


@pytest.mark.parametrize("screen", Screen)
def test_a_layout_fits_its_screen_and_no_box_covers_another(screen: Screen) -> None:
    add_fleet(1)
    boss = User.objects.create(username="boss", role="administrator")
    first, _ = Drawer.objects.order_by("number")
    for number in (3, 4):
        HostPort.objects.create(
            chassis=first.chassis, drawer=first, uri=f"/h{number}", label=f"H{number}", number=number
        )
    (view,) = fabric_view(boss)
    picture = layout_chassis(view, screen=screen)
    assert picture.width == {Screen.WIDE: 1120, Screen.MEDIUM: 720, Screen.NARROW: 340}[screen]
    boxes = [(box.x, box.y, SLOT_WIDTH, SLOT_HEIGHT) for part in picture.drawers for box in part.boxes]
    boxes += [(head.x, head.y, 160, 64) for part in picture.drawers for head in part.heads]
    assert len(boxes) == 2 * SLOTS + 6
    for place, (x, y, wide, high) in enumerate(boxes):
        assert 0 <= x <= picture.width - wide
        assert 0 <= y <= picture.height - high
        for left, top, width, height in boxes[place + 1 :]:
            assert x + wide <= left or left + width <= x or y + high <= top or top + height <= y
    beside = picture.drawers[0].y == picture.drawers[1].y
    assert beside == (screen is Screen.MEDIUM)
    if not beside:
        assert picture.drawers[1].y == picture.drawers[0].height + DRAWER_GAP


def test_a_browser_that_says_nothing_known_of_its_screen_has_a_wide_one() -> None:
    assert Screen.of({}) == Screen.of({"screen": "<b>"}) == Screen.WIDE
    assert Screen.of({"screen": "narrow"}) is Screen.NARROW


@pytest.mark.parametrize("screen", Screen)
def test_the_front_has_a_module_for_each_slot_within_its_drawer(screen: Screen) -> None:
    add_fleet(1)
    boss = User.objects.create(username="boss", role="administrator")
    Device.objects.filter(slot__number=8).delete()
    (view,) = fabric_view(boss)
    fans = [{"name": f"Fan {number}", "health": "Critical" if number == 2 else "OK"} for number in range(1, 9)]
    picture = layout_front(view, fans, board=status_board(boss), screen=screen)
    bottom = 0
    for drawer in picture.drawers:
        assert drawer.y >= bottom
        bottom = drawer.y + drawer.height
        assert [box.title.split(" ")[0] for box in drawer.modules] == [str(number) for number in range(1, 9)]
        assert drawer.modules[-1].line == "empty"
        boxes = [(box.x, box.y, picture.module_width, 128) for box in drawer.modules]
        boxes += [(head.x, head.y, picture.port_width, 30) for head in drawer.heads]
        assert len({(x, y) for x, y, *_ in boxes}) == 8 + 2
        for x, y, wide, high in boxes:
            assert picture.ear < x <= picture.right_ear - wide
            assert drawer.y < y <= bottom - high
    assert all(fan.y > bottom for fan in picture.fans)
    assert [fan.name for fan in picture.fans if fan.level] == ["Fan 2"]


def test_the_front_shows_fans_to_administrators_and_a_tenant_nothing_of_others() -> None:
    add_fleet(2)
    chassis = Chassis.objects.get(name="falcon-1")
    Walk.objects.create(chassis=chassis, found={"fans": [{"name": "Fan 7", "health": "Warning"}]})
    page = page_of(signed_in(role="administrator"), f"?view=front&chassis={chassis.pk}")
    assert 'data-fan="Fan 7"' in page
    assert page.count("/temperature_celsius") == 2 * SLOTS
    tenant = Tenant.objects.create(name="Vision group")
    device = Device.objects.filter(chassis=chassis).earliest("pk")
    Device.objects.filter(pk=device.pk).update(tenant=tenant)
    client = Client()
    client.force_login(User.objects.create(username="member", role="user", tenant=tenant))
    page = page_of(client, "?view=front")
    assert "data-fan" not in page
    assert re.findall(r"device/(\d+)/temperature_celsius", page) == [str(device.pk)]
    assert "node-a" not in page


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("Falcon 4016", "as published of H3 Platform Falcon 4016"),
        ("Falcon 4109", "none published of H3 Platform Falcon 4109: the BMC decides"),
        ("Falcon 9", "not known of this model: the BMC decides"),
    ],
)
@pytest.mark.django_db
def test_the_page_of_a_chassis_says_which_limits_are_known_of_its_model(
    administrator_client: Client, model: str, words: str
) -> None:
    row = Chassis.objects.create(
        name="one", url="https://127.0.0.1:1", manufacturer="H3 Platform", model=model, inventory_at=timezone.now()
    )
    assert words in administrator_client.get(f"/chassis/{row.pk}/").text
