"""Events arrive live from the stream, and those missed come from the log: none twice, none lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.discovery import discover
from fabric.bmc.errors import BmcError, Malformed, RequestRefused, TimedOut, Unreachable
from fabric.bmc.events import EventStreamParser, decode_events, later_than, log_event, read_log, stream_events
from fabric.bmc.types import Dialect, Event
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply
from tests.processes import SimulatorProcess

STREAM = f"{ROOT}/EventService/SSE"
ENTRIES = f"{ROOT}/Managers/bmc/LogServices/Events/Entries"
ZONE = f"{ROOT}/Fabrics/PCIe/Zones/hostport1_H2"
NIC = f"{ROOT}/Fabrics/PCIe/Endpoints/drawer1slot7"


def parse(*chunks: bytes) -> list[tuple[str, str]]:
    parser = EventStreamParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_data_over_several_lines_is_one_event() -> None:
    assert parse(b'id: 7\ndata: {"a":\ndata:  1}\n\n') == [("7", '{"a":\n 1}')]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_is_understood_wherever_the_bytes_are_cut(end: bytes) -> None:
    whole = b"\xef\xbb\xbfid: 1" + end + b"data: first" + end + end + b": comment" + end + b"data:second" + end + end
    assert parse(whole) == [("1", "first"), ("1", "second")]
    for cut in range(1, len(whole)):
        assert parse(whole[:cut], whole[cut:]) == [("1", "first"), ("1", "second")], cut
    assert parse(*(whole[index : index + 1] for index in range(len(whole)))) == [("1", "first"), ("1", "second")]


def test_comments_and_unknown_fields_and_an_event_without_its_end_yield_nothing() -> None:
    assert parse(b": still here\n\nretry: 5\n\nevent: x\n\ndata: never ended\n") == []


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.events.LARGEST_EVENT", 1000)
    with pytest.raises(Malformed):
        parse(b"data: " + b"x" * 2000)
    with pytest.raises(Malformed):
        parse(*([b"data: " + b"x" * 100 + b"\n"] * 20))


def test_records_without_an_event_id_go_by_the_streams() -> None:
    one = json.dumps({"Id": "5", "Events": [{"MessageId": "A.1.0.B", "Message": "m", "Severity": "Warning"}]})
    (event,) = decode_events(one, "17")
    assert (event.event_id, event.severity, event.message_id) == ("17", "Warning", "A.1.0.B")
    (event,) = decode_events(one, "")
    assert event.event_id == "5"
    two = json.dumps({"Events": [{"MemberId": "0"}, {"MemberId": "1"}, {"EventId": "own"}]})
    assert [event.event_id for event in decode_events(two, "17")] == ["17/0", "17/1", "own"]


@pytest.mark.parametrize("data", ["", "hello", "[]", "5", '{"Events": 5}', '{"Events": [5]}', '{"MetricValues": []}'])
def test_what_is_no_event_yields_none(data: str) -> None:
    assert list(decode_events(data, "1")) == []


def test_an_origin_may_be_a_reference_or_text() -> None:
    for origin in ({"@odata.id": "/redfish/v1/Chassis/1"}, "/redfish/v1/Chassis/1/"):
        (event,) = decode_events(json.dumps({"Events": [{"OriginOfCondition": origin}]}), "1")
        assert event.origin_uri == "/redfish/v1/Chassis/1"


async def collect(bmc: BmcClient, wanted: int, into: list[Event], **how: Any) -> None:
    """Keep events as they come, until there are enough."""
    async for event in stream_events(bmc, STREAM, **how):
        into.append(event)
        if len(into) == wanted:
            return


async def wait_for_stream(chassis: SimulatorProcess, count: int) -> None:
    for _ in range(100):
        if chassis.state()["streams"] >= count:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the stream did not open")


async def change_twice(bmc: BmcClient) -> None:
    zone = await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, ZONE), endpoint_uri=NIC)
    await detach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=NIC)


async def test_events_of_a_falcon_arrive_live_and_stand_in_its_log(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    inventory = await discover(bmc)
    assert inventory.service.event_stream_uri == STREAM
    live: list[Event] = []
    listener = asyncio.create_task(collect(bmc, 2, live))
    await wait_for_stream(chassis, 1)
    await change_twice(bmc)
    await asyncio.wait_for(listener, 10)
    changes = [event for event in live if event.message_id.endswith("ZoneModified")]
    assert changes
    assert changes[0].origin_uri == ZONE
    logged = {event.event_id: event for event in await read_log(bmc, ENTRIES)}
    for event in live:
        assert logged[event.event_id].message == event.message
        assert logged[event.event_id].origin_uri == event.origin_uri


async def test_a_reboot_ends_the_stream_and_the_log_fills_the_gap(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    await change_twice(bmc)
    last = (await read_log(bmc, ENTRIES))[-1]
    live: list[Event] = []
    listener = asyncio.create_task(collect(bmc, 1000, live))
    await wait_for_stream(chassis, 1)
    chassis.fault("bmc_reboot", seconds=0.3)
    with pytest.raises(BmcError):
        await asyncio.wait_for(listener, 10)
    for _ in range(100):
        try:
            missed = await read_log(bmc, ENTRIES, after=last.event_id)
            if any("Restarted" in event.message_id for event in missed):
                break
        except BmcError:
            pass
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the restart does not stand in the log")
    assert last.event_id not in {event.event_id for event in missed}
    assert len({event.event_id for event in missed}) == len(missed)


async def test_a_stream_that_falls_silent_times_out(bmc: BmcClient) -> None:
    with pytest.raises(TimedOut):
        await collect(bmc, 1000, [], silence=0.3)


async def test_a_stream_that_ends_or_is_refused_raises() -> None:
    event = b'id: 3\ndata: {"Events": [{"EventId": "3", "Message": "m"}]}\n\n'

    def stream(asked: Asked) -> Reply:
        assert asked.headers["Accept"] == "text/event-stream"
        return Reply(200, event, {"Content-Type": "text/event-stream"})

    with NonsenseServer({STREAM: stream}) as server:
        async with server.client() as bmc:
            seen: list[Event] = []
            with pytest.raises(Unreachable, match="ended its event stream"):
                await collect(bmc, 2, seen, last_event_id="2")
            assert [each.event_id for each in seen] == ["3"]
            assert server.asked[-1].headers["Last-Event-ID"] == "2"
            server.routes = {}
            with pytest.raises(RequestRefused):
                await collect(bmc, 1, [])


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {
        "@odata.id": f"{ENTRIES}/{number}", "@odata.type": "#LogEntry.v1_21_0.LogEntry", "Id": str(number),
        "Name": f"Entry {number}", "Created": f"2026-01-01T00:00:{number:02d}Z", "Message": f"m{number}",
        "Severity": "OK", **more,
    }  # fmt: skip


async def test_a_log_is_read_over_all_its_pages_in_order() -> None:
    routes: dict[str, Any] = {
        ENTRIES: {"Members": [entry(3), entry(2)], "Members@odata.nextLink": f"{ENTRIES}?$skip=2"},
        f"{ENTRIES}?$skip=2": {
            "Members": [entry(1), {"@odata.id": f"{ENTRIES}/0"}, {"@odata.id": f"{ENTRIES}/gone"}],
            "Members@odata.nextLink": ENTRIES,
        },
        f"{ENTRIES}/0": entry(0),
    }
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            assert [event.event_id for event in await read_log(bmc, ENTRIES)] == ["0", "1", "2", "3"]
            assert [event.event_id for event in await read_log(bmc, ENTRIES, after="1")] == ["2", "3"]


@pytest.mark.parametrize(
    ("present", "after", "expected"),
    [
        (["5", "6", "7"], "5", ["6", "7"]),
        (["5", "6", "7"], "3", ["5", "6", "7"]),
        (["5", "6", "7"], "7", []),
        (["1", "2"], "90", ["1", "2"]),
        (["a", "b"], "c", ["a", "b"]),
        (["a", "b"], "a", ["b"]),
        ([], "5", []),
    ],
)
def test_what_came_later_is_told_by_position_else_by_number(
    present: list[str], after: str, expected: list[str]
) -> None:
    events = [log_event({"Id": name}) for name in present]
    assert [event.event_id for event in later_than(events, after)] == expected
