"""Attacks by a BMC that somebody has taken over: answers without end, bombs, endless numbers, links that lead away."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from fabric.bmc import crawl, walk_turns
from fabric.bmc.discovery import discover
from fabric.bmc.transport import MAX_RESPONSE_BYTES
from fabric.bmc.types import Inventory, ProblemKind
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, chassis, collection, service_root
from tests.turns import at_night

SECONDS = 60.0


def rack(**more: Any) -> dict[str, Any]:
    """Return the routes of a service with one chassis, `more` being added to it."""
    return {
        ROOT: service_root(Chassis={"@odata.id": f"{ROOT}/Chassis"}),
        f"{ROOT}/Chassis": collection(f"{ROOT}/Chassis", "Chassis", f"{ROOT}/Chassis/one"),
        f"{ROOT}/Chassis/one": chassis(f"{ROOT}/Chassis/one", **more),
    }


async def walked(routes: dict[str, Any], **credentials: str) -> Inventory:
    async with asyncio.timeout(SECONDS):
        with NonsenseServer(routes) as server:
            async with server.client(**credentials) as bmc:
                return await discover(bmc)


@pytest.mark.parametrize(
    "value",
    ["9" * 10_000, "slot" + "9" * 10_000, "\x00", "\u202e", "x" * 100_000, 10**300, -(10**300), True, [], {},
     ["a" * 10] * 1000, "\u0663" * 5000],
)  # fmt: skip
async def test_no_value_of_a_property_ends_a_walk(value: Any) -> None:
    """In every place that is a name, a number, or a link."""
    device = f"{ROOT}/Chassis/one/PCIeDevices/1"
    routes = rack(
        Name=value, Id=value, UUID=value, SerialNumber=value, Status={"Health": value, "State": value},
        PCIeDevices={"@odata.id": f"{ROOT}/Chassis/one/PCIeDevices"},
        Sensors={"@odata.id": f"{ROOT}/Chassis/one/Sensors"}, Location={"PartLocation": {"ServiceLabel": value}},
    )  # fmt: skip
    routes[f"{ROOT}/Chassis/one/PCIeDevices"] = collection(f"{ROOT}/Chassis/one/PCIeDevices", "PCIeDevice", device)
    routes[device] = {
        "@odata.id": device, "@odata.type": "#PCIeDevice.v1_15_0.PCIeDevice", "Id": value, "Name": value,
        "Slot": {"Location": {"PartLocation": {"ServiceLabel": value, "LocationOrdinalValue": value}}, "Lanes": value},
        "PCIeInterface": {"LanesInUse": value, "MaxLanes": value, "PCIeType": value}, "SerialNumber": value,
        "Links": {"Chassis": value}, "Manufacturer": value,
    }  # fmt: skip
    routes[f"{ROOT}/Chassis/one/Sensors"] = {"@odata.id": value, "Members": value, "Members@odata.nextLink": value}
    inventory = await walked(routes)
    assert len(inventory.chassis) == 1


@pytest.mark.parametrize("encoding", ["gzip", *at_night("deflate")])
async def test_a_small_answer_that_unpacks_to_a_huge_one_is_cut_off(encoding: str) -> None:
    plain = b" " * (MAX_RESPONSE_BYTES * 8)
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    routes = rack(Thermal={"@odata.id": f"{ROOT}/Chassis/one/Thermal"})
    routes[f"{ROOT}/Chassis/one/Thermal"] = Reply(body=packed, headers={"Content-Encoding": encoding})
    tracemalloc.start()
    inventory = await walked(routes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [problem.uri for problem in inventory.problems] == [f"{ROOT}/Chassis/one/Thermal"]
    assert peak < MAX_RESPONSE_BYTES * 3


async def test_a_service_that_never_ends_is_left_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each resource links to two more, large ones: the walk ends in a sentence before the memory does."""
    monkeypatch.setattr(walk_turns, "OWN_BYTES", 2**19)
    monkeypatch.setattr(walk_turns, "POOL_BYTES", 2**19)

    def more(asked: Asked) -> dict[str, Any]:
        return {
            "@odata.id": asked.path, "@odata.type": "#Chassis.v1_28_0.Chassis", "Id": "x", "Name": "x" * 20_000,
            "Links": {"Contains": [{"@odata.id": f"{asked.path}{one}"} for one in "ab"]},
        }  # fmt: skip

    class Endless(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            return str(key).startswith(f"{ROOT}/Chassis/") or super().__contains__(key)

        def __missing__(self, key: str) -> Any:
            return more

    routes = rack(Links={"Contains": [{"@odata.id": f"{ROOT}/Chassis/a"}]})
    with NonsenseServer({}) as server:
        server.routes = Endless(routes)
        async with server.client() as bmc:
            async with asyncio.timeout(SECONDS):
                inventory = await discover(bmc)
        assert len(server.asked) < 200
    assert 10 < len(inventory.chassis) < 60
    limits = [problem.sentence for problem in inventory.problems if problem.kind is ProblemKind.INCOMPLETE]
    assert len(limits) == 1
    assert "1 MB of memory" in limits[0]


async def test_members_that_are_given_whole_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl, "MAX_RESOURCES", 100)
    routes = rack()
    routes[ROOT] = service_root(
        Chassis={"@odata.id": f"{ROOT}/Chassis"}, ProtocolFeaturesSupported={"ExpandQuery": {"NoLinks": True}}
    )
    routes[f"{ROOT}/Chassis"] = {
        **collection(f"{ROOT}/Chassis", "Chassis"),
        "Members": [chassis(f"{ROOT}/Chassis/{number}") for number in range(5000)],
    }
    inventory = await walked(routes)
    assert len(inventory.chassis) <= 100
    assert any("more than" in problem.sentence for problem in inventory.problems)


@pytest.mark.parametrize("depth", [50, 5_000, 500_000])
async def test_deeply_nested_answers_are_a_problem_and_no_more(depth: int) -> None:
    routes = rack(Thermal={"@odata.id": f"{ROOT}/Chassis/one/Thermal"})
    nested = b'{"Members":[' * depth + b"]}" * depth
    routes[f"{ROOT}/Chassis/one/Thermal"] = Reply(body=nested)
    inventory = await walked(routes)
    assert len(inventory.chassis) == 1


async def test_members_within_members_are_walked_without_end_of_the_stack() -> None:
    uri = f"{ROOT}/Chassis/one/Nest"
    nested: dict[str, Any] = {"@odata.id": uri, "Id": "0", "Name": "n", "Members": []}
    for number in range(1, 300):
        nested = {"@odata.id": f"{uri}/{number}", "Id": "0", "Name": "n", "Members": [nested]}
    routes = rack(Sensors={"@odata.id": uri})
    routes[ROOT] = service_root(
        Chassis={"@odata.id": f"{ROOT}/Chassis"}, ProtocolFeaturesSupported={"ExpandQuery": {"NoLinks": True}}
    )
    routes[uri] = Reply(body=json.dumps(nested).encode())
    assert len((await walked(routes)).chassis) == 1


@pytest.mark.parametrize(
    "link",
    ["http://169.254.169.254/latest/meta-data/", "//169.254.169.254/", "https://127.0.0.1/redfish/v1/x",
     "http://127.0.0.1:1/redfish/v1/x", "file:///etc/passwd", "/redfish/v1/../../admin",
     "/redfish/v1/%2e%2e/%2E%2e/admin",
     "/redfish/v1/x\r\nHost: evil", "http://user:pass@evil.example/", "/\\evil.example/redfish/", "gopher://x", "\x00"],
)  # fmt: skip
async def test_no_link_and_no_redirect_leads_the_password_elsewhere(link: str) -> None:
    """Redirects stay within the origin, and links within /redfish too."""
    routes = rack(Thermal={"@odata.id": link}, Power={"@odata.id": f"{ROOT}/Chassis/one/Power"})
    if "admin" not in link:
        routes[f"{ROOT}/Chassis/one/Power"] = Reply(302, headers={"Location": link.replace("\r\n", "")})
    with NonsenseServer(routes) as server, NonsenseServer({}) as other:
        routes[f"{ROOT}/Chassis/one"]["Power"] = {"@odata.id": f"{other.url}/redfish/v1/x"}
        async with server.client(username="u", password="p") as bmc:
            async with asyncio.timeout(SECONDS):
                inventory = await discover(bmc)
        assert len(inventory.chassis) == 1
        assert all(asked.path.startswith("/redfish/") for asked in server.asked)
        assert not other.asked


async def test_an_event_stream_without_end_of_line_is_cut_off_soon() -> None:
    from fabric.bmc.errors import Malformed
    from fabric.bmc.events import MAX_EVENT_BYTES, EventStreamParser

    parser = EventStreamParser()
    loop = asyncio.get_running_loop()
    began = loop.time()
    chunks = (b"data: " + b"x" * 1000 for _ in range(MAX_EVENT_BYTES))
    with pytest.raises(Malformed):
        [list(parser.feed(chunk)) for chunk in chunks]
    assert loop.time() - began < 30
