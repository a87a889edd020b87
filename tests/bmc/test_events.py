"""Events arrive live from the stream, and those missed come from the log: none twice, none lost."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.discovery import discover
from fabric.bmc.errors import BmcError, Malformed, RequestRefused, TimedOut, Unreachable
from fabric.bmc.events import (
    EventStreamParser,
    LogCursor,
    LogReadResult,
    RedfishEvent,
    decode_events,
    read_log,
    read_log_service_info,
    stream_events,
)
from fabric.bmc.types import Dialect
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, service_root
from tests.waiting import eventually_in_loop

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
    monkeypatch.setattr("fabric.bmc.events.MAX_EVENT_BYTES", 1000)
    with pytest.raises(Malformed):
        parse(b"data: " + b"x" * 2000)
    with pytest.raises(Malformed):
        parse(*([b"data: " + b"x" * 100 + b"\n"] * 20))
    with pytest.raises(Malformed):
        parse(*([b"data\n" * 100] * 20))


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


async def collect(bmc: BmcClient, wanted: int, into: list[RedfishEvent], **how: Any) -> None:
    """Keep events as they come, until there are enough."""
    async for event in stream_events(bmc, STREAM, **how):
        into.append(event)
        if len(into) == wanted:
            return


async def wait_for_stream(chassis: SimulatorProcess, count: int) -> None:
    await eventually_in_loop(lambda: asyncio.to_thread(chassis.state), lambda state: state["streams"] >= count)


async def change_twice(bmc: BmcClient) -> None:
    zone = await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, ZONE), endpoint_uri=NIC)
    await detach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=NIC)


async def test_events_of_a_falcon_arrive_live_and_stand_in_its_log(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    inventory = await discover(bmc)
    assert inventory.service.event_stream_uri == STREAM
    live: list[RedfishEvent] = []
    listener = asyncio.create_task(collect(bmc, 2, live))
    await wait_for_stream(chassis, 1)
    await change_twice(bmc)
    await asyncio.wait_for(listener, 60)
    changes = [event for event in live if event.message_id.endswith("ZoneModified")]
    assert changes
    assert changes[0].origin_uri == ZONE
    logged = {event.event_id: event for event in (await read_log(bmc, ENTRIES)).events}
    for event in live:
        assert logged[event.event_id].message == event.message
        assert logged[event.event_id].origin_uri == event.origin_uri
        assert logged[event.event_id].entry_uri == event.entry_uri


async def test_a_reboot_ends_the_stream_and_the_log_fills_the_gap(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    await change_twice(bmc)
    last = (await read_log(bmc, ENTRIES)).newest
    assert last is not None
    live: list[RedfishEvent] = []
    listener = asyncio.create_task(collect(bmc, 1000, live))
    await wait_for_stream(chassis, 1)
    chassis.fault("bmc_reboot", seconds=0.3)
    with pytest.raises(BmcError):
        await asyncio.wait_for(listener, 60)

    async def restart_read() -> LogReadResult | None:
        try:
            reading = await read_log(bmc, ENTRIES, after=last)
        except BmcError:
            return None
        return reading if any("Restarted" in event.message_id for event in reading.events) else None

    reading = await eventually_in_loop(restart_read, bool)
    assert reading is not None
    assert reading.continuous
    missed = reading.events
    assert last.entry_uri not in {event.entry_uri for event in missed}
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
            seen: list[RedfishEvent] = []
            with pytest.raises(Unreachable, match="ended its event stream"):
                await collect(bmc, 2, seen, last_event_id="2")
            assert [each.event_id for each in seen] == ["3"]
            assert server.asked[-1].headers["Last-Event-ID"] == "2"
            # A BMC that was entered by its address names its stream under its own name.
            with pytest.raises(Unreachable, match="ended its event stream"):
                seen += [each async for each in stream_events(bmc, f"https://bmc.example{STREAM}")]
            assert [asked.path for asked in server.asked] == [STREAM] * 2
            server.routes = {}
            with pytest.raises(RequestRefused):
                await collect(bmc, 1, [])


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {
        "@odata.id": f"{ENTRIES}/{number}", "@odata.type": "#LogEntry.v1_21_0.LogEntry", "Id": str(number),
        "Name": f"Entry {number}", "Created": f"2026-01-01T00:00:{number:02d}Z", "Message": f"m{number}",
        "Severity": "OK", **more,
    }  # fmt: skip


def page_of(*members: Any, following: str = "") -> dict[str, Any]:
    more = {"Members@odata.nextLink": following} if following else {}
    return {"Members": list(members), "Members@odata.count": len(members), **more}


async def read(
    routes: dict[str, Any], after: LogCursor | None = None, **root: Any
) -> tuple[list[str], bool, LogCursor | None]:
    """Return the numbers of what is read, whether the mark was found, and the next mark."""
    with NonsenseServer({f"{ROOT}/": service_root(**root), **routes}) as server:
        async with server.client() as bmc:
            await bmc.service_root()
            found = await read_log(bmc, ENTRIES, after=after)
            return [event.event_id for event in found.events], found.continuous, found.newest


def mark(number: int, count: int = 0) -> LogCursor:
    return LogCursor(entry_uri=f"{ENTRIES}/{number}", timestamp=entry(number)["Created"], count=count)


async def test_a_log_is_read_over_all_its_pages_in_order() -> None:
    routes: dict[str, Any] = {
        ENTRIES: page_of(entry(3), entry(2), following=f"{ENTRIES}?$skip=2"),
        f"{ENTRIES}?$skip=2": page_of(
            entry(1), {"@odata.id": f"{ENTRIES}/0"}, {"@odata.id": f"{ENTRIES}/gone"}, following=ENTRIES
        ),
        f"{ENTRIES}/0": entry(0),
    }
    assert await read(routes) == (["0", "1", "2", "3"], True, mark(3, 5))
    assert (await read(routes, mark(1)))[:2] == (["2", "3"], True)


async def test_a_log_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.events.MAX_LOG_BYTES", 100_000)
    asked: list[str] = []

    def page(request: Asked) -> dict[str, Any]:
        asked.append(request.path)
        return page_of(entry(1, MessageId="x" * 10_000), following=f"{ENTRIES}?page={len(asked)}")

    with pytest.raises(Malformed, match="reading was aborted"):
        await read({ENTRIES: page, **{f"{ENTRIES}?page={number}": page for number in range(1, 100)}})
    assert len(asked) < 15


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_log_is_read_from_its_mark_on_whichever_way_it_stands(newest_first: bool) -> None:
    entries = [entry(number) for number in range(1, 8)]
    routes = {ENTRIES: page_of(*(reversed(entries) if newest_first else entries))}
    assert (await read(routes, mark(5)))[:2] == (["6", "7"], True)
    assert (await read(routes, mark(7)))[:2] == ([], True)
    # Entry 5 of another time: numbers began anew, so everything is news.
    other = LogCursor(entry_uri=f"{ENTRIES}/5", timestamp="2025-01-01T00:00:05Z")
    assert (await read(routes, other))[:2] == (["1", "2", "3", "4", "5", "6", "7"], False)


async def test_a_log_whose_clock_was_set_back_stays_in_the_order_of_its_numbers() -> None:
    back = {**entry(3), "Created": "2020-01-01T00:00:00Z"}
    routes = {ENTRIES: page_of(entry(1), entry(2), back)}
    assert await read(routes, mark(2)) == (
        ["3"],
        True,
        LogCursor(entry_uri=f"{ENTRIES}/3", timestamp=back["Created"], count=3),
    )


async def test_only_the_end_of_a_long_log_is_asked_for_where_the_bmc_can_skip() -> None:
    entries = [entry(number) for number in range(1, 60)]
    asked: list[str] = []

    def members(request: Asked) -> dict[str, Any]:
        asked.append(request.path)
        skip = int(request.path.partition("$skip=")[2] or 0)
        return page_of(*entries[skip:])

    features = {"ProtocolFeaturesSupported": {"TopSkipQuery": True}}
    assert await read({ENTRIES: members}, mark(55, 55), **features) == (["56", "57", "58", "59"], True, mark(59, 59))
    assert asked == [f"{ENTRIES}?$skip=35"]
    # The mark is not where it was: the log was emptied since.
    asked.clear()
    assert (await read({ENTRIES: members}, mark(55, 500), **features))[:2] == (["56", "57", "58", "59"], True)
    assert asked == [f"{ENTRIES}?$skip=480", ENTRIES]
    # One that says it can, and cannot, is read from its beginning.
    routes = {ENTRIES: page_of(*entries), f"{ENTRIES}?$skip=35": Reply(501)}
    assert (await read(routes, mark(58, 55), **features))[:2] == (["59"], True)


async def test_what_a_log_service_says_of_itself() -> None:
    routes = {
        "/log": {"Entries": {"@odata.id": ENTRIES}, "DateTime": "2001-01-01T00:00:00Z", "LogEntryType": "Event"},
        "/Journal": {"Entries": {"@odata.id": ENTRIES}, "DateTime": "no time"},
        "/oem": {"LogEntryType": "OEM"},
    }
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            log, journal, oem = [await read_log_service_info(bmc, uri) for uri in routes]
    assert log.ahead is not None
    assert log.ahead < timedelta(days=-8000)
    assert (log.entries_uri, log.has_events) == (ENTRIES, True)
    assert (journal.ahead, journal.has_events, oem.has_events) == (None, False, False)
