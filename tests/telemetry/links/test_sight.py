"""Who sees which links and what of them: pages, CSV and API tell the same, and a tenant nothing of before its time."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from django.conf import settings
from django.test import Client
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot, Switch
from fabric.inventory.selectors import ReadingScope, reading_scope
from fabric.leases.grants import device_grant, host_port_grant
from fabric.topology.selectors import fabric_view
from telemetry.links.models import CounterReset, LinkCount, LinkMinute, LinkSpan, LinkVerdict, Watched
from telemetry.links.services import links_judge
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.frames import ACCESS_CHANNEL, Frame, set_catalogue
from telemetry.live.selectors import recent_readings
from telemetry.pipeline.exposition import exposition
from tests.telemetry.live.publishing import put_frame

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = ("=GPU 1", "GPU 2", "NIC 3")


@pytest.fixture
def lab(transactional_db: None) -> Chassis:
    """Three devices in slots, each watched for a day, and a host port; the first link flaps, the second is narrow."""
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    switch = Switch.objects.create(chassis=chassis, uri="/w", name="Chip", drawer=drawer)
    upstream = port_of(chassis, switch, "H1")
    host_port = HostPort.objects.create(
        chassis=chassis, uri="/z", name="H1", label="H1", endpoint_uri="/e", drawer=drawer, port=upstream
    )
    for number, name in enumerate(NAMES, 1):
        port = port_of(chassis, switch, f"slot{number}")
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/s{number}", name=f"Slot {number}", number=number, port=port, drawer=drawer
        )
        Device.objects.create(
            chassis=chassis, uri=f"/g{number}", name=name, slot=slot, host_port=host_port, max_lanes=16,
            kind="nic" if name.startswith("NIC") else "gpu",
        )  # fmt: skip
    flapping = Port.objects.get(name="slot1")
    now = timezone.now()
    LinkSpan.objects.filter(port=flapping).delete()
    for place in range(13):
        since = now - timedelta(minutes=50) + timedelta(seconds=20 * place)
        LinkSpan.objects.create(
            port=flapping, since=since, until=since + timedelta(seconds=20) if place < 12 else None, width=16,
            status="LinkDown" if place % 2 else "LinkUp", speed_gbps=256.0,
        )  # fmt: skip
    LinkCount.objects.filter(port__name="slot2").update(width=8, speed_gbps=128.0)
    links_judge(chassis_id=chassis.pk)
    return chassis


def port_of(chassis: Chassis, switch: Switch, name: str) -> Port:
    """Make a port that is watched since yesterday."""
    port = Port.objects.create(
        chassis=chassis, uri=f"/p/{name}", name=name, switch=switch, width=16, max_speed_gbps=256.0,
        metrics_uri=f"/p/{name}/Metrics",
    )  # fmt: skip
    yesterday = timezone.now() - timedelta(days=1)
    LinkCount.objects.create(
        port=port, watched_since=yesterday, state_since=yesterday, status="LinkUp", width=16, speed_gbps=256.0,
        raw={"BadTLPCount": 70, "FatalErrorCount": 0}, totals={"BadTLPCount": 70, "FatalErrorCount": 0},
    )  # fmt: skip
    LinkSpan.objects.create(port=port, since=yesterday, status="LinkUp", width=16, speed_gbps=256.0)
    LinkMinute.objects.create(
        port=port, minute=timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=40),
        counts={"BadTLPCount": 70},
    )  # fmt: skip
    return port


def client_of(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def listed(person: User, query: str = "") -> list[tuple[str, str]]:
    """Return port and verdict of each link, by the API."""
    answer = client_of(person).get(f"/api/v1/links/{query}")
    assert answer.status_code == 200, answer.content
    return [(one["port_name"], one["verdict"]) for one in answer.json()["results"]]


def test_the_worst_comes_first_everywhere(lab: Chassis, boss: User) -> None:
    wanted = [("slot1", "degraded"), ("slot2", "degraded"), ("H1", "healthy"), ("slot3", "healthy")]
    assert listed(boss) == wanted
    client = client_of(boss)
    text = b"".join(client.get("/links/links.csv").streaming_content).decode()  # type: ignore[attr-defined]
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["port"], row["verdict"]) for row in rows] == wanted
    assert rows[0]["link"].startswith("'=GPU 1")  # no formula
    page = client.get("/links/").content.decode()
    places = [page.index(f'<a href="/links/{Port.objects.get(name=name).pk}/">') for name, _ in wanted]
    assert places == sorted(places)
    assert "It went down and up again 6 times in the last hour." in page


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("verdict=degraded", ["slot1", "slot2"]), ("verdict=down", []), ("kind=nic", ["slot3"]),
        ("kind=host", ["H1"]), ("search=gpu 2", ["slot2"]), ("search=nothing", []),
        ("sort=flaps&limit=1", ["slot1"]), ("sort=name", ["H1", "slot1", "slot2", "slot3"]),
        ("sort=-name", ["slot3", "slot2", "slot1", "H1"]), ("sort=-verdict", ["H1", "slot3", "slot1", "slot2"]),
        ("chassis_id=1000000", []), ("drawer_id=1000000", []), ("tenant_id=1000000", []), ("offset=3", ["slot3"]),
    ],
)  # fmt: skip
def test_lists_are_narrowed_and_sorted(lab: Chassis, boss: User, query: str, names: list[str]) -> None:
    assert [name for name, _ in listed(boss, f"?{query}")] == names
    of_page = query.replace("search=", "q=").replace("_id=", "=")
    if "limit" not in query and "offset" not in query:
        text = b"".join(client_of(boss).get(f"/links/links.csv?{of_page}").streaming_content).decode()  # type: ignore[attr-defined]
        assert [row["port"] for row in csv.DictReader(io.StringIO(text))] == names


def test_wrong_parameters_are_refused_by_the_api_and_ignored_by_the_page(lab: Chassis, boss: User) -> None:
    for query in ("verdict=ill", "kind=car", "sort=colour", "chassis_id=x", "search=%00", "limit=0"):
        assert client_of(boss).get(f"/api/v1/links/?{query}").status_code == 400, query
    for query in ("verdict=ill", "kind=car", "sort=colour", "chassis=x", "q=%00", "page=99", "drawer=-1", "sort=-"):
        assert client_of(boss).get(f"/links/?{query}").status_code == 200, query
    port = Port.objects.get(name="slot1")
    assert client_of(boss).get(f"/links/{port.pk}/?range=century&page=x").status_code == 200
    assert client_of(boss).get(f"/links/{2**63}/").status_code == 404


def test_strangers_find_nothing(lab: Chassis, member: User) -> None:
    port = Port.objects.get(name="slot1")
    client = client_of(member)
    assert listed(member) == []
    assert "Your tenant has no device" in client.get("/links/").content.decode()
    for address in ("/links/{}/", "/links/{}/states.csv", "/api/v1/links/{}/", "/api/v1/links/{}/states/"):
        assert client.get(address.format(port.pk)).status_code == 404, address
    for address in ("/links/{}/counter-reset/", "/api/v1/links/{}/counter-reset/"):
        answer = client.post(address.format(port.pk), content_type="application/json")
        assert answer.status_code == 404, address


def test_a_tenant_sees_its_links_since_they_are_its_own(lab: Chassis, boss: User, member: User, tenant: Tenant) -> None:
    port = Port.objects.get(name="slot1")
    CounterReset.objects.create(port=port, at=timezone.now() - timedelta(hours=2), how="bmc")
    device_grant(person=boss, device=Device.objects.get(slot__port=port), tenant=tenant)
    # Six flaps and seventy errors were somebody else's.
    assert listed(member) == [("slot1", "healthy")]
    assert listed(boss)[0] == ("slot1", "degraded")
    mine: dict[str, Any] = client_of(member).get(f"/api/v1/links/{port.pk}/").json()
    assert {one["name"]: (one["total"], one["last_hour"]) for one in mine["counters"]}["BadTLPCount"] == (0, 0)
    assert (mine["flaps"], mine["errors"], mine["resets"]) == (0, 0, [])
    states = client_of(member).get(f"/api/v1/links/{port.pk}/states/").json()["results"]
    since = Device.objects.get(slot__port=port).tenant_since
    assert since is not None
    assert [one["since"][:19] for one in states] == [since.isoformat()[:19]]
    assert len(client_of(boss).get(f"/api/v1/links/{port.pk}/states/").json()["results"]) == 13
    page = client_of(member).get(f"/links/{port.pk}/").content.decode()
    assert "up again" not in page
    # What comes from now on is theirs.
    count = LinkCount.objects.get(port=port)
    count.raw["BadTLPCount"], count.totals["BadTLPCount"] = 75, 75
    count.save()
    links_judge(chassis_id=lab.pk)
    mine = client_of(member).get(f"/api/v1/links/{port.pk}/").json()
    assert mine["errors"] == 5
    # And nothing any more once it is another's.
    device_grant(person=boss, device=Device.objects.get(slot__port=port), tenant=None)
    assert listed(member) == []
    assert not LinkVerdict.objects.exclude(tenant=None).exists()


def test_a_host_port_s_holder_sees_its_link(lab: Chassis, boss: User, member: User, tenant: Tenant) -> None:
    host_port_grant(person=boss, host_port=HostPort.objects.get(label="H1"), tenant=tenant)
    assert listed(member) == [("H1", "healthy")]
    assert [name for name, _ in listed(boss, f"?tenant_id={tenant.pk}")] == ["H1"]


def test_of_a_chassis_that_does_not_answer_nothing_is_known(lab: Chassis, boss: User) -> None:
    Chassis.objects.filter(pk=lab.pk).update(last_error="10.0.0.1 did not answer.")
    assert {level for _, level in listed(boss)} == {"unknown"}
    page = client_of(boss).get("/links/").content.decode()
    assert "The chassis does not answer" in page
    assert "10.0.0.1" not in page
    assert "is degraded" not in client_of(boss).get("/").content.decode()


def test_a_verdict_that_no_reading_confirms_any_more_is_told_as_one_of_then(lab: Chassis, boss: User) -> None:
    port = Port.objects.get(name="slot1")
    client = client_of(boss)

    def shown_to() -> tuple[Any, ...]:
        one = client.get(f"/api/v1/links/{port.pk}/").json()
        return one["verdict"], one["stale"], (one["judged_at"] or "")[:19]

    then = timezone.now() - timedelta(seconds=30)
    Watched.objects.create(chassis=lab, seen_at=then, judged_at=then)
    assert shown_to() == ("degraded", False, then.isoformat()[:19])
    pages = ("/links/", f"/links/{port.pk}/", f"/ports/{port.pk}/", f"/chassis/{lab.pk}/", "/fabric/?view=list", "/")
    assert not any("stale" in client.get(page).content.decode() for page in pages)
    # The worker ended: nobody writes that the chassis does not answer.
    then = timezone.now() - timedelta(minutes=10)
    Watched.objects.update(seen_at=then, judged_at=then)
    assert shown_to() == ("degraded", True, then.isoformat()[:19])
    for page in pages:
        assert "stale" in client.get(page).content.decode(), page
    assert f"Last judged at {then:%Y-%m-%d %H:%M:%S}, stale" in client.get(f"/links/{port.pk}/").content.decode()
    assert "was degraded (last judged at" in client.get("/").content.decode()
    text = b"".join(client.get("/links/links.csv").streaming_content).decode()  # type: ignore[attr-defined]
    assert {(row["stale"], row["judged_at"][:19]) for row in csv.DictReader(io.StringIO(text))} == {
        ("yes", then.isoformat()[:19])
    }
    # The BMC is silent: what is now is unknown, and what was is told.
    Chassis.objects.update(last_error="10.0.0.1 did not answer.")
    assert shown_to() == ("unknown", True, then.isoformat()[:19])
    assert f"at {then:%Y-%m-%d %H:%M:%S} UTC, it was degraded." in client.get(f"/links/{port.pk}/").content.decode()


def test_a_verdict_that_no_judging_confirms_any_more_is_stale_though_the_chassis_is_read(
    lab: Chassis, boss: User
) -> None:
    then = timezone.now() - timedelta(minutes=10)
    Watched.objects.create(chassis=lab, seen_at=timezone.now(), judged_at=then)
    found = client_of(boss).get("/api/v1/links/").json()["results"]
    assert {(one["stale"], one["judged_at"][:19]) for one in found} == {(True, then.isoformat()[:19])}


def test_a_link_that_nobody_judged_yet_is_no_stale_one(lab: Chassis, boss: User) -> None:
    LinkVerdict.objects.all().delete()
    Watched.objects.create(chassis=lab, seen_at=timezone.now() - timedelta(days=1))
    found = client_of(boss).get("/api/v1/links/").json()["results"]
    assert {(one["verdict"], one["stale"], one["judged_at"]) for one in found} == {("unknown", False, None)}


@pytest.mark.parametrize("view", ["topology", "list"])
def test_bad_links_are_marked_in_the_picture_and_the_list_and_lead_to_why(
    lab: Chassis, boss: User, member: User, tenant: Tenant, view: str
) -> None:
    ports = {port.name: f'href="/links/{port.pk}/"' for port in Port.objects.all()}
    page = client_of(boss).get(f"/fabric/?view={view}").content.decode()
    assert {name for name, mark in ports.items() if mark in page} == {"slot1", "slot2"}
    if view == "topology":
        assert "Drawer 1, Slot 1: Degraded. It went down and up again 6 times in the last hour." in page
        for other in (f"/chassis/{lab.pk}/", f"/drawers/{Drawer.objects.get().pk}/"):
            assert 'class="link-mark degraded"' in client_of(boss).get(other).content.decode(), other
    # A tenant sees its own, and what was before its time marks nothing.
    for name in NAMES:
        device_grant(person=boss, device=Device.objects.get(name=name), tenant=tenant)
    page = client_of(member).get(f"/fabric/?view={view}").content.decode()
    assert {name for name, mark in ports.items() if mark in page} == {"slot2"}


def test_a_tenant_reads_counters_from_its_own_time_on(lab: Chassis, boss: User, member: User, tenant: Tenant) -> None:
    port = Port.objects.get(name="slot1")
    device_grant(person=boss, device=Device.objects.get(slot__port=port), tenant=tenant)
    since = Device.objects.get(slot__port=port).tenant_since
    assert since is not None

    def now() -> int:
        answer = client_of(member).get(f"/api/v1/links/{port.pk}/").json()
        return {one["name"]: one["now"] for one in answer["counters"]}["BadTLPCount"]  # type: ignore[no-any-return]

    def counted(raw: int, total: int) -> None:
        LinkCount.objects.filter(port=port).update(raw={"BadTLPCount": raw}, totals={"BadTLPCount": total})

    assert now() == 0
    counted(75, 75)
    assert now() == 5
    page = client_of(member).get(f"/links/{port.pk}/").content.decode()
    assert f'data-live="port/{port.pk}/errors/BadTLPCount"' not in page
    assert ">75<" not in page
    # The chassis counts from zero: what stands there is theirs, all of it.
    counted(3, 78)
    CounterReset.objects.create(port=port, at=timezone.now(), not_before=since - timedelta(hours=3), how="bmc")
    assert now() == 3
    (reset,) = client_of(member).get(f"/api/v1/links/{port.pk}/").json()["resets"]
    assert reset["not_before"][:19] == since.isoformat()[:19]
    administrators = client_of(boss).get(f"/api/v1/links/{port.pk}/").json()
    assert administrators["resets"][0]["not_before"] < reset["not_before"]


def test_nothing_that_was_counted_before_is_told_of_a_port_that_is_a_tenant_s_now(
    lab: Chassis, boss: User, member: User, tenant: Tenant
) -> None:
    port = Port.objects.get(name="slot1")
    device = Device.objects.get(slot__port=port)
    Port.objects.filter(pk=port.pk).update(errors={"BadTLPCount": 73})
    device_grant(person=boss, device=device, tenant=tenant)
    key = f"port/{port.pk}/errors/BadTLPCount"
    entry = SeriesEntry(key=key, object="port", id=port.pk, quantity="errors", label="Bad TLPs", unit="")

    async def publish(second: int, count: float) -> None:
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as bus:
            revision = await set_catalogue(bus, lab.pk, [entry])
            at = time.time() + second
            await put_frame(bus, Frame(revision, lab.pk, second, at, np.array([count])))

    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.delete(f"live:recent:{lab.pk}")

    def shown_to(person: User) -> tuple[Any, ...]:
        client = client_of(person)
        recent = client.get(f"/api/v1/chassis/{lab.pk}/readings/?keys={key}").json()
        slots = [slot for one in fabric_view(person) for drawer in one.drawers for slot in drawer.slots]
        shown = [slot.device.errors_total for slot in slots if slot.device and slot.device.id == device.pk]
        errors = client.get(f"/api/v1/ports/{port.pk}/").json()["errors"]["BadTLPCount"]
        text = b"".join(exposition(person, version="1")).decode()
        metrics = re.findall(r"^falconweb_port_errors_total{.*bad_tlp.*} (.*)$", text, re.MULTILINE)
        return recent["values"][key], *shown, errors, [float(one) for one in metrics]

    asyncio.run(publish(1, 70.0))
    asyncio.run(publish(2, 73.0))
    assert shown_to(boss) == ([70.0, 73.0], 73, 73, [73.0])
    assert shown_to(member) == ([0.0, 3.0], 3, 3, [3.0])
    for address in (f"/ports/{port.pk}/", f"/chassis/{lab.pk}/", "/fabric/?view=list"):
        assert ">73<" in client_of(boss).get(address).content.decode(), address
        assert ">73<" not in client_of(member).get(address).content.decode(), address
    sight = reading_scope(member, lab.pk)
    assert sight is not None
    assert sight.counted == {(port.pk, "BadTLPCount", 70)}
    assert reading_scope(boss, lab.pk) == ReadingScope(everything=True)
    # Once the chassis counts from zero, what stands there is the tenant's.
    CounterReset.objects.create(port=port, at=timezone.now() + timedelta(seconds=3), how="bmc")  # after both readings
    LinkCount.objects.filter(port=port).update(raw={"BadTLPCount": 2}, totals={"BadTLPCount": 75})
    assert reading_scope(member, lab.pk) == replace(sight, counted=frozenset())
    # What was read before it did is subtracted nonetheless: the last minutes, and what the last walk saw.
    recent, slot, walked, _ = shown_to(member)  # the frame of the metrics is gone by then on a slow machine
    assert recent == [0.0, 3.0]
    assert (slot, walked) == (5, 5)
    Port.objects.filter(pk=port.pk).update(errors={"BadTLPCount": 2})
    assert shown_to(member)[1:3] == (2, 2)
    # A walk of before the tenant's time tells nothing of it, and past where the counter stood nothing is lost.
    for walked, total, own in ((68, 71, 1), (90, 163, 90)):
        LinkCount.objects.filter(port=port).update(totals={"BadTLPCount": total})
        Port.objects.filter(pk=port.pk).update(errors={"BadTLPCount": walked})
        assert shown_to(member)[1:3] == (own, own)


def test_a_reset_of_one_counter_leaves_the_others_of_the_port_what_they_had(
    lab: Chassis, boss: User, member: User, tenant: Tenant
) -> None:
    port = Port.objects.get(name="slot1")
    counts = {"BadTLPCount": 70, "ReplayCount": 40}
    LinkCount.objects.filter(port=port).update(raw=counts, totals=counts)
    device_grant(person=boss, device=Device.objects.get(slot__port=port), tenant=tenant)
    CounterReset.objects.create(port=port, at=timezone.now(), how="bmc", counted=counts)
    LinkCount.objects.filter(port=port).update(
        raw={"BadTLPCount": 72, "ReplayCount": 1}, totals={"BadTLPCount": 72, "ReplayCount": 41}
    )
    sight = reading_scope(member, lab.pk)
    assert sight is not None
    assert sight.counted == {(port.pk, "BadTLPCount", 70)}


def test_the_last_minutes_of_a_counter_that_no_short_number_holds_are_the_tenant_s_alone(
    lab: Chassis, boss: User, member: User, tenant: Tenant
) -> None:
    port = Port.objects.get(name="slot1")
    large = 2**25 + 1  # kept as 2**25
    LinkCount.objects.filter(port=port).update(raw={"BadTLPCount": large}, totals={"BadTLPCount": large})
    device_grant(person=boss, device=Device.objects.get(slot__port=port), tenant=tenant)
    key = f"port/{port.pk}/errors/BadTLPCount"
    entry = SeriesEntry(key=key, object="port", id=port.pk, quantity="errors", label="Bad TLPs", unit="")

    async def publish() -> None:
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as bus:
            await bus.delete(f"live:recent:{lab.pk}")
            revision = await set_catalogue(bus, lab.pk, [entry])
            for second, count in enumerate((large, large + 8, 3.0), 1):
                await put_frame(bus, Frame(revision, lab.pk, second, time.time() + second, np.array([count])))

    asyncio.run(publish())
    # The third stands lower and nothing tells of a reset: an old report that came late, as far as is known.
    assert recent_readings(member, lab.pk, [key]).values[key] == [0.0, 7.0, 0.0]


def test_until_it_is_noted_where_the_counters_stood_all_they_have_is_somebody_else_s(
    lab: Chassis, boss: User, member: User, tenant: Tenant
) -> None:
    port = Port.objects.get(name="slot1")
    device = Device.objects.get(slot__port=port)
    Port.objects.filter(pk=port.pk).update(errors={"BadTLPCount": 70})
    Device.objects.filter(pk=device.pk).update(tenant=tenant, tenant_since=timezone.now())  # and nobody is told

    def shown_to() -> tuple[Any, ...]:
        sight = reading_scope(member, lab.pk)
        errors = client_of(member).get(f"/api/v1/ports/{port.pk}/").json()["errors"]
        return sight and sight.counted, errors["BadTLPCount"]

    assert shown_to() == ({(port.pk, "BadTLPCount", 70)}, 0)
    links_judge(chassis_id=lab.pk)
    LinkCount.objects.filter(port=port).update(raw={"BadTLPCount": 90}, totals={"BadTLPCount": 90})
    Port.objects.filter(pk=port.pk).update(errors={"BadTLPCount": 90})
    assert shown_to() == ({(port.pk, "BadTLPCount", 70)}, 20)
    # It was taken back and given anew: what was noted then is of another time.
    Device.objects.filter(pk=device.pk).update(tenant_since=timezone.now() + timedelta(seconds=1))
    assert shown_to() == ({(port.pk, "BadTLPCount", 90)}, 0)


def test_sockets_recheck_once_the_baselines_of_counters_are_recorded(
    lab: Chassis, boss: User, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first word of a change comes before that: who looks by it must be told once more."""
    noted: list[int] = []

    class Heard:
        def publish(self, channel: str, data: bytes) -> None:
            if channel == ACCESS_CHANNEL:
                noted.append(LinkVerdict.objects.filter(tenant=tenant).count())

    monkeypatch.setattr("telemetry.live.receivers._client", Heard())
    device_grant(person=boss, device=Device.objects.get(slot__port__name="slot1"), tenant=tenant)
    assert noted[-1] == 1


def test_the_overview_and_the_pages_of_hardware_tell_of_it(lab: Chassis, boss: User) -> None:
    client, port = client_of(boss), Port.objects.get(name="slot1")
    overview = client.get("/").content.decode()
    assert "The link of =GPU 1 in falcon-1, Drawer 1, Slot 1 is degraded: It went down and up again 6 times" in overview
    device = Device.objects.get(slot__port=port)
    for address in (f"/ports/{port.pk}/", f"/devices/{device.pk}/", f"/slots/{device.slot_id}/", f"/chassis/{lab.pk}/"):
        page = client.get(address).content.decode()
        assert f'href="/links/{port.pk}/"' in page, address
        assert "Degraded" in page, address
    assert 'href="/links/"' in client.get("/fabric/").content.decode()


def test_a_list_of_many_links_takes_as_many_queries_as_one_of_few(
    lab: Chassis, boss: User, django_assert_max_num_queries: Any
) -> None:
    switch = Switch.objects.get()
    for number in range(40):
        port_of(lab, switch, f"more{number}")
    links_judge(chassis_id=lab.pk)
    client = client_of(boss)
    client.get("/links/")
    with django_assert_max_num_queries(12):
        client.get("/links/")
    with django_assert_max_num_queries(8):
        links_judge(chassis_id=lab.pk)
