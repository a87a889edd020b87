"""What a BMC sends is bounded before it is read: by its values, its depth, its time and its memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tracemalloc
from typing import Any

import pytest

from fabric.bmc import crawl, json_bounds, readings, relations, walk_turns
from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.discovery import Discovery, discover
from fabric.bmc.errors import Malformed, NotRedfish, Unreachable
from fabric.bmc.events import decode_events
from fabric.bmc.json_bounds import MAX_DEPTH, MAX_VALUES, count_values
from fabric.bmc.readings import MAX_SERIES, plan_readings
from fabric.bmc.types import Inventory, ProblemKind
from fabric.bmc.values import paths_above
from fabric.bmc.walk_turns import MemoryShare, WalkPace, WalkTurns
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, chassis, collection, service_root


@pytest.mark.parametrize(
    ("raw", "values"),
    [(b"{}", 1), (b'{"a":[1,2]}', 4), (b'{"a":"[{,:]","b":1}', 8), (b"", 0), (b"\xff{", 1), (b'{"a":"\\"[', 3)],
)
def test_values_are_counted_in_bytes(raw: bytes, values: int) -> None:
    assert count_values(raw, where="it") == values


@pytest.mark.parametrize("bomb", [b"{}", b"[]", b'{"a":1}', b"1", b'""'])
def test_a_bomb_of_values_is_refused_before_it_takes_memory(bomb: bytes) -> None:
    raw = b'{"x":[' + b",".join([bomb] * MAX_VALUES) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more than 500000 values"):
            count_values(raw, where="it")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(raw)


def test_texts_full_of_separators_are_no_bomb() -> None:
    raw = json.dumps({"Message": '{"a": [1, 2]}, ' * MAX_VALUES}).encode()
    assert count_values(raw, where="it") > MAX_VALUES


@pytest.mark.parametrize("inside", ["", "[", "]]}}", '"', "\\"])
def test_depth_counts_brackets_outside_of_texts(inside: str) -> None:
    def nested(depth: int) -> bytes:
        value: Any = inside
        for _level in range(depth):
            value = [value]
        return json.dumps(value).encode()

    count_values(nested(MAX_DEPTH), where="it")
    with pytest.raises(Malformed, match="nested"):
        count_values(nested(MAX_DEPTH + 2), where="it")


def test_an_event_of_too_many_values_is_none() -> None:
    assert list(decode_events('{"Events":[' + ",".join(["{}"] * MAX_VALUES) + "]}", "1")) == []


async def test_a_bomb_beside_good_resources_is_a_problem_and_no_more() -> None:
    routes = rack(3)
    routes[f"{ROOT}/Chassis/1"] = Reply(body=b'{"x":[' + b"{}," * MAX_VALUES + b"{}]}")
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            inventory = await discover(bmc)
    assert [one.uri for one in inventory.chassis] == [f"{ROOT}/Chassis/0", f"{ROOT}/Chassis/2"]
    assert [one.uri for one in inventory.problems] == [f"{ROOT}/Chassis/1"]


def rack(count: int) -> dict[str, Any]:
    uris = [f"{ROOT}/Chassis/{number}" for number in range(count)]
    return {
        ROOT: service_root(Chassis={"@odata.id": f"{ROOT}/Chassis"}),
        f"{ROOT}/Chassis": collection(f"{ROOT}/Chassis", "Chassis", *uris),
        **{uri: chassis(uri) for uri in uris},
    }


def limits_of(inventory: Inventory) -> list[str]:
    return [problem.sentence for problem in inventory.problems if problem.kind is ProblemKind.INCOMPLETE]


async def test_a_slow_service_is_read_in_parts_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first inventory has what was read in time; each refresh adds to it, until all is there."""
    monkeypatch.setattr(walk_turns, "FIRST_TURN_SECONDS", 0.0)
    monkeypatch.setattr(walk_turns, "TURN_SECONDS", 0.0)
    with NonsenseServer(rack(8)) as server:
        async with server.client(at_a_time=1) as bmc:
            discovery = Discovery(bmc, at_a_time=1)
            first = await discovery.walk(seconds=1e-9)
            assert limits_of(first) == ["2 of about 10 resources were read so far."]
            assert not first.dialect_known
            remained = [discovery.remains]
            last = await discovery.refresh()
            remained.append(discovery.remains)
    assert remained == [True, False]
    assert limits_of(last) == []
    assert len(last.chassis) == 8
    assert len(server.paths()) == 10  # none twice


async def test_a_refresh_that_finds_no_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = rack(8)
    with NonsenseServer(routes) as server:
        async with server.client(at_a_time=1) as bmc:
            discovery = Discovery(bmc, at_a_time=1)
            whole = await discovery.walk()
            begun = discovery.begun_at
            del server.routes[f"{ROOT}/Chassis/7"]
            server.routes[f"{ROOT}/Chassis"] = collection(
                f"{ROOT}/Chassis", "Chassis", *(f"{ROOT}/Chassis/{number}" for number in range(7))
            )
            walk = crawl.Crawl.walk
            monkeypatch.setattr(crawl.Crawl, "walk", lambda self: walk(self, seconds=1e-9))
            monkeypatch.setattr(walk_turns, "TURN_SECONDS", 0.0)
            assert await discovery.refresh() is whole
            assert discovery.remains
            assert discovery.begun_at > begun
            begun = discovery.begun_at
            monkeypatch.setattr(crawl.Crawl, "walk", walk)
            later = await discovery.refresh()
            # What an operation changed since the oldest of these reads is newer.
            assert discovery.begun_at == begun
    assert len(later.chassis) == 7
    assert limits_of(later) == []


async def test_a_whole_walk_that_finds_no_time_keeps_the_inventory_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with NonsenseServer(rack(8)) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc, at_a_time=1)
            whole = await discovery.walk()
            walk = crawl.Crawl.walk
            monkeypatch.setattr(crawl.Crawl, "walk", lambda self, **more: walk(self, **more | {"seconds": 1e-9}))
            monkeypatch.setattr(walk_turns, "TURN_SECONDS", 0.0)
            monkeypatch.setattr(walk_turns, "FIRST_TURN_SECONDS", 0.0)
            assert await discovery.walk() is whole
            monkeypatch.setattr(crawl.Crawl, "walk", walk)
            assert len((await discovery.refresh()).chassis) == 8


async def test_who_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty BMCs take a connection and stay silent; the next walk begins after their first turns."""
    monkeypatch.setattr(walk_turns, "FIRST_TURN_SECONDS", 0.05)
    turns = WalkTurns()
    released = asyncio.Event()

    async def silent() -> None:
        async with turns.turn(WalkPace()):
            await released.wait()

    waiting = [asyncio.create_task(silent()) for _ in range(20)]
    await asyncio.sleep(0)
    with NonsenseServer(rack(3)) as server:
        async with server.client() as bmc:
            inventory = await Discovery(bmc, at_a_time=1, turns=turns).walk()
    assert len(inventory.chassis) == 3
    released.set()
    await asyncio.gather(*waiting)
    # Each place was given back once.
    async with asyncio.timeout(5), turns.turn(WalkPace()), turns.turn(WalkPace()), turns.turn(WalkPace()):
        pace = WalkPace()
        async with turns.turn(pace):
            assert turns._walking[False].locked()
    assert not turns._walking[False].locked()


async def test_who_did_not_answer_the_last_time_takes_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_turns, "FIRST_TURN_SECONDS", 60.0)
    turns, pace = WalkTurns(), WalkPace(requests=1, seconds=10.0)
    with NonsenseServer(rack(10)) as server:
        async with asyncio.timeout(5), contextlib.AsyncExitStack() as held, server.client() as bmc:
            while not turns._walking[False].locked():
                await held.enter_async_context(turns.turn(WalkPace()))
            await Discovery(bmc, at_a_time=1, turns=turns, pace=pace).walk()
    assert not pace.is_heavy, "it answers again"


async def test_the_dead_take_no_place_of_the_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred BMCs that were lost and stay silent are asked, while a slow one that answers has its walk."""
    monkeypatch.setattr(walk_turns, "FIRST_TURN_SECONDS", 60.0)
    turns, asked, released = WalkTurns(), asyncio.Queue[bytes](), asyncio.Event()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        await released.wait()
        writer.close()

    silent = await asyncio.start_server(silence, "127.0.0.1", 0)
    place = BmcAddress(url=f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}", username="", password="")
    paces = [WalkPace(requests=1, seconds=10.0, is_lost=True) for _ in range(100)]
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
        stack.callback(silent.close)
        dead = [await stack.enter_async_context(BmcClient(place)) for _ in paces]
        walks = [
            asyncio.create_task(Discovery(bmc, at_a_time=1, turns=turns, pace=pace).walk())
            for bmc, pace in zip(dead, paces, strict=True)
        ]
        for _ in walks:
            await asked.get()
        slow = WalkPace(requests=10, seconds=100.0)
        server = stack.enter_context(NonsenseServer(rack(3)))
        bmc = await stack.enter_async_context(server.client())
        assert len((await Discovery(bmc, at_a_time=1, turns=turns, pace=slow).walk()).chassis) == 3
        assert not any(walk.done() for walk in walks)
        released.set()
        ends = await asyncio.gather(*walks, return_exceptions=True)
    assert all(isinstance(end, Unreachable) for end in ends)
    assert all(pace.is_lost for pace in paces)


async def test_one_that_was_lost_is_as_quick_as_it_answers() -> None:
    pace = WalkPace(requests=1, seconds=10.0, is_lost=True)
    with NonsenseServer(rack(3)) as server:
        async with server.client() as bmc:
            await Discovery(bmc, at_a_time=1, pace=pace).walk()
    assert not pace.is_lost
    assert not pace.is_heavy


async def test_others_give_way_to_first_walks_alone_that_wait() -> None:
    turns, paces = WalkTurns(), {"first": WalkPace(), "known": WalkPace(is_known=True), "slow": WalkPace(seconds=10.0)}
    async with asyncio.timeout(5), contextlib.AsyncExitStack() as held:
        while not turns._storing[False].locked():
            await held.enter_async_context(turns.storing(WalkPace()))
        await held.enter_async_context(turns.storing(paces["slow"]))
        for name, counted in (("known", 0), ("first", 1)):
            storing = asyncio.create_task(turns.storing(paces[name]).__aenter__())
            await asyncio.sleep(0)
            assert turns.waiting == counted
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
    assert turns.waiting == 0


def test_slow_and_large_walks_have_a_lane_of_their_own() -> None:
    assert not WalkPace(requests=3, seconds=1.0).is_heavy
    assert WalkPace(requests=1, seconds=10.0).is_heavy
    assert not WalkPace(requests=1000, seconds=100.0).is_heavy
    assert WalkPace(requests=1000, seconds=10.0, read=walk_turns.LARGE_WALK + 1).is_heavy


def test_memory_beyond_its_own_share_comes_out_of_a_pool_of_all() -> None:
    turns = WalkTurns()
    one, other = MemoryShare(), MemoryShare()
    own, pool = walk_turns.OWN_BYTES, walk_turns.POOL_BYTES
    assert turns.grant(one, own + pool)
    assert turns.grant(other, own)
    assert not turns.grant(other, own + 1)
    assert turns.grant(one, own + pool - 5)
    del one
    assert turns.grant(other, own + pool)
    assert not turns.grant(other, own + pool + 1)


async def test_a_report_of_too_many_readings_is_read_in_part_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "REPORT_BYTES_PER_SECOND", 2**19)
    uri = f"{ROOT}/TelemetryService/MetricReports/all"
    report = {
        "@odata.id": uri, "@odata.type": "#MetricReport.v1_5_0.MetricReport", "Id": "all", "Name": "all",
        "MetricValues": [
            {"MetricProperty": f"{ROOT}/Chassis/0/Sensors/{number}#/Reading", "MetricValue": str(number)}
            for number in range(MAX_SERIES + 5)
        ],
    }  # fmt: skip
    routes = rack(1)
    routes[ROOT] = service_root(
        Chassis={"@odata.id": f"{ROOT}/Chassis"}, TelemetryService={"@odata.id": f"{ROOT}/TelemetryService"}
    )
    routes[f"{ROOT}/TelemetryService"] = {
        "@odata.id": f"{ROOT}/TelemetryService", "@odata.type": "#TelemetryService.v1_3_0.TelemetryService",
        "MetricReports": {"@odata.id": f"{ROOT}/TelemetryService/MetricReports"},
    }  # fmt: skip
    routes[f"{ROOT}/TelemetryService/MetricReports"] = collection(
        f"{ROOT}/TelemetryService/MetricReports", "MetricReport", uri
    )
    routes[uri] = report
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            plan = await plan_readings(bmc, await discover(bmc))
            reading = await plan.read(bmc)
    assert len(plan.series) == len(reading.values) == MAX_SERIES
    assert reading.values[-1] == MAX_SERIES - 1
    assert not plan.is_outdated
    assert plan.period > 1
    assert plan.limit == f"It reports {MAX_SERIES + 5} readings; the first {MAX_SERIES} are read."


async def test_large_responses_come_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.transport.MAX_LARGE_RESPONSES", 1)
    monkeypatch.setattr("fabric.bmc.transport.LARGE_RESPONSE_BYTES", 1000)
    monkeypatch.setattr(json_bounds, "MAX_VALUES", 10)

    def large(asked: Asked) -> dict[str, Any]:
        return chassis(asked.path, Description="x" * 200_000)

    routes = rack(8) | {f"{ROOT}/Chassis/{number}": large for number in range(8)}
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            inventory = await discover(bmc)
    assert len(inventory.chassis) == 8


async def test_a_refresh_asks_for_no_more_than_the_one_before_it() -> None:
    with NonsenseServer(rack(4)) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc, at_a_time=1)
            whole = await discovery.walk()
            counts = []
            for _refresh in range(4):
                before = len(server.asked)
                assert await discovery.refresh() == whole
                counts.append(len(server.asked) - before)
    assert counts[0] == counts[-1] == 5


async def test_a_large_service_is_walked_again_in_the_memory_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_turns, "OWN_BYTES", 1000)
    turns = WalkTurns(pool=15_000)
    with NonsenseServer(rack(8)) as server:
        async with server.client() as bmc, server.client() as other:
            discovery = Discovery(bmc, at_a_time=1, turns=turns)
            for _walk in range(3):
                inventory = await discovery.walk()
                assert (len(inventory.chassis), limits_of(inventory)) == (8, [])
            neighbour = Discovery(other, at_a_time=1, turns=turns)
            assert limits_of(await neighbour.walk())
            del discovery
            assert limits_of(await neighbour.walk()) == []


async def test_a_service_root_of_very_many_values_is_none() -> None:
    with NonsenseServer({ROOT: service_root(Oem={str(number): number for number in range(10_000)})}) as server:
        async with server.client() as bmc:
            with pytest.raises(NotRedfish, match="more than 10000 values"):
                await discover(bmc)


async def test_what_is_below_a_resource_that_is_gone_goes_with_it_and_further_pages_are_read_again() -> None:
    uris = [f"{ROOT}/Chassis/{number}" for number in range(4)]
    routes = rack(4)
    routes[f"{ROOT}/Chassis"] = collection(
        f"{ROOT}/Chassis", "Chassis", *uris[:2], **{"Members@odata.nextLink": f"{ROOT}/Chassis?$skip=2"}
    )
    routes[f"{ROOT}/Chassis?$skip=2"] = collection(f"{ROOT}/Chassis", "Chassis", *uris[2:])
    routes[uris[3]] = chassis(uris[3], Thermal={"@odata.id": f"{uris[3]}/Thermal"})
    routes[f"{uris[3]}/Thermal"] = {"@odata.id": f"{uris[3]}/Thermal", "Id": "Thermal", "Fans": [{"MemberId": "0"}]}
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc)
            inventory = await discovery.walk()
            assert (len(inventory.chassis), len(inventory.fans)) == (4, 1)
            page = server.routes[f"{ROOT}/Chassis?$skip=2"]
            server.routes[f"{ROOT}/Chassis?$skip=2"] = Reply(503)
            kept = await discovery.refresh()
            assert [one.uri for one in kept.problems] == [f"{ROOT}/Chassis?$skip=2"]
            assert (kept.chassis, kept.fans) == (inventory.chassis, inventory.fans)
            server.routes[f"{ROOT}/Chassis?$skip=2"] = page
            assert await discovery.refresh() == inventory
            server.routes[f"{ROOT}/Chassis?$skip=2"] = collection(f"{ROOT}/Chassis", "Chassis", uris[2])
            for gone in (uris[3], f"{uris[3]}/Thermal"):
                del server.routes[gone]
            inventory = await discovery.refresh()
    assert (len(inventory.chassis), len(inventory.fans)) == (3, 0)


async def test_a_link_of_very_many_steps_is_not_followed() -> None:
    routes = rack(1)
    routes[f"{ROOT}/Chassis/0"] = chassis(
        f"{ROOT}/Chassis/0", Links={"Contains": [{"@odata.id": f"{ROOT}{'/a' * 60}"}]}
    )
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            inventory = await discover(bmc)
    assert [problem.sentence for problem in inventory.problems] == [f"{ROOT}/Chassis/0 has a link that is too long."]


async def test_an_embedded_member_of_very_many_steps_is_a_problem_and_no_resource() -> None:
    """Each step of a path is looked at with all above it: a megabyte of them would take an hour."""
    deep = f"{ROOT}/Chassis{'/a' * 60}"
    routes = rack(1)
    routes[ROOT] = service_root(
        Chassis={"@odata.id": f"{ROOT}/Chassis"}, ProtocolFeaturesSupported={"ExpandQuery": {"NoLinks": True}}
    )
    routes[f"{ROOT}/Chassis"] = collection(f"{ROOT}/Chassis", "Chassis") | {
        "Members": [chassis(f"{ROOT}/Chassis/0"), chassis(deep)]
    }
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            inventory = await discover(bmc)
    assert [one.uri for one in inventory.chassis] == [f"{ROOT}/Chassis/0"]
    assert [one.sentence for one in inventory.problems] == [f"{ROOT}/Chassis has a link that is too long."]
    assert list(paths_above(deep)) == []
    [event] = decode_events(json.dumps({"Events": [{"EventId": "1", "OriginOfCondition": deep}]}), "1")
    assert event.origin_uri == ""


def test_links_that_many_resources_share_make_a_bounded_number_of_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "MAX_RELATIONS", 25)
    endpoint, drives = f"{ROOT}/Fabrics/F/Endpoints/1", f"{ROOT}/Storage/1"
    ports = [{"@odata.id": f"{ROOT}/Fabrics/F/Switches/S/Ports/{number}"} for number in range(10)]
    devices = [{"@odata.id": f"{ROOT}/Chassis/1/PCIeDevices/{number}"} for number in range(10)]
    resources: list[tuple[str, str, dict[str, Any]]] = [
        (endpoint, "Endpoint", {"Links": {"ConnectedPorts": ports}}),
        (drives, "Storage", {"Drives": devices}),
        *((one["@odata.id"], "PCIeDevice", {"Links": {"Endpoints": [{"@odata.id": endpoint}]}}) for one in devices),
        *((f"{ROOT}/Blocks/{n}", "ResourceBlock", {"Storage": [{"@odata.id": drives}]}) for n in range(10)),
    ]
    found = {uri: CrawledResource(uri, kind, body, "") for uri, kind, body in resources}
    related = relations.ResourceRelations(found)
    for pairs in (related.devices_at, related.devices_in, related.blocks_of):
        assert sum(map(len, pairs.values())) == 25
