"""A BMC's logs tell who changed what, wherever they are kept, and whatever else stands in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, configure_port, detach, read_zone
from fabric.bmc.errors import BmcError
from fabric.bmc.events import decode_events
from fabric.bmc.log_search import MAX_SINGLE_READS, read_log_entries
from fabric.bmc.types import Dialect
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned, serve_mockup
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, collection, service_root
from tests.bmc.test_mockups import FOLDERS, MOCKUPS

ZONE = f"{ROOT}/Fabrics/PCIe/Zones/hostport1_H3"
PORT = f"{ROOT}/Fabrics/PCIe/Switches/drawer1_switch/Ports/slot8"
NIC = f"{ROOT}/Fabrics/PCIe/Endpoints/drawer1slot7"
LOGS = f"{ROOT}/Managers/bmc/LogServices"
ENTRIES = f"{LOGS}/Events/Entries"
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


async def test_who_changed_a_zone_and_a_port_is_told_newest_first(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis, "operator")) as operator:
        zone = await attach(operator, Dialect.ZONE_PATCH, zone=await read_zone(operator, ZONE), endpoint_uri=NIC)
        await configure_port(operator, PORT, configured_width=8)
    await detach(bmc, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=NIC)
    records = await read_log_entries(bmc, datetime.now(UTC) - HOUR)
    by_hand = [(record.origin_uri, record.originator, record.address) for record in records if record.originator]
    assert by_hand[:3] == [
        (ZONE, "administrator", "127.0.0.1"), (PORT, "operator", "127.0.0.1"), (ZONE, "operator", "127.0.0.1"),
    ]  # fmt: skip
    assert [record.at for record in records] == sorted((record.at for record in records), reverse=True)
    changed = next(record for record in records if record.origin_uri == ZONE)
    assert changed.message_id == "Fabric.1.0.ZoneModified"
    assert changed.arguments == ("hostport1_H3", "PCIe")
    assert changed.entry_uri.startswith(f"{ENTRIES}/")
    assert len(await read_log_entries(bmc, datetime.now(UTC) - HOUR, most=2)) == 2


async def test_nothing_is_told_of_the_time_before(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    chassis.set_speed(1.0)
    assert await read_log_entries(bmc, datetime.now(UTC) + 24 * HOUR) == []


def test_an_event_of_the_stream_names_who_did_it() -> None:
    record = '{"EventId": "7", "Username": "operator", "OriginAddress": "https://[::1]"}'
    (event,) = decode_events(f'{{"Events": [{record}]}}', "7")
    assert (event.originator, event.address) == ("operator", "::1")
    (nameless,) = decode_events('{"Events": [{"EventId": "8", "Username": 5, "OriginAddress": null}]}', "8")
    assert (nameless.originator, nameless.address) == ("5", "")


def moment(ago: timedelta) -> str:
    return (NOW - ago).isoformat()


def entry(number: int, *, ago: timedelta | None = None, **more: Any) -> dict[str, Any]:
    return {
        "@odata.id": f"{ENTRIES}/{number}", "@odata.type": "#LogEntry.v1_21_0.LogEntry", "Id": str(number),
        "Name": f"Entry {number}", "Created": moment(ago if ago is not None else timedelta(minutes=60 - number)),
        "Message": f"m{number}", "Severity": "OK", **more,
    }  # fmt: skip


def service(entries: Any, **root: Any) -> dict[str, Any]:
    """Return the routes of a service with one manager and one log."""
    manager = f"{ROOT}/Managers/bmc"
    return {
        ROOT: service_root(Managers={"@odata.id": f"{ROOT}/Managers"}, **root),
        f"{ROOT}/Managers": collection(f"{ROOT}/Managers", "Manager", manager),
        manager: {"@odata.id": manager, "Id": "bmc", "Name": "BMC", "LogServices": {"@odata.id": LOGS}},
        LOGS: collection(LOGS, "LogService", f"{LOGS}/Events"),
        f"{LOGS}/Events": {"Id": "Events", "Name": "Log", "Entries": {"@odata.id": ENTRIES}},
        ENTRIES: entries,
    }


async def read_messages(
    routes: dict[str, Any], since: timedelta = HOUR, most: int = 200
) -> tuple[list[str], NonsenseServer]:
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            return [record.message for record in await read_log_entries(bmc, NOW - since, most=most)], server


async def test_logs_of_systems_and_chassis_are_found_too() -> None:
    routes = service({"Members": [entry(1)]}, Systems={"@odata.id": f"{ROOT}/Systems"})
    system, log = f"{ROOT}/Systems/1", f"{ROOT}/Systems/1/LogServices/Log"
    routes |= {
        f"{ROOT}/Systems": collection(f"{ROOT}/Systems", "ComputerSystem", system, f"{ROOT}/Systems/dead"),
        system: {"Id": "1", "Name": "Host", "LogServices": {"@odata.id": f"{system}/LogServices"}},
        f"{system}/LogServices": collection(f"{system}/LogServices", "LogService", log),
        log: {"Id": "Log", "Name": "Log", "Entries": {"@odata.id": f"{log}/Entries"}},
        f"{log}/Entries": {"Members": [{**entry(2), "@odata.id": f"{log}/Entries/2"}]},
    }
    assert (await read_messages(routes))[0] == ["m2", "m1"]


async def test_of_a_long_log_only_the_newest_is_asked_for() -> None:
    def page(asked: Asked) -> dict[str, Any]:
        assert "skip=3" in asked.path
        return {"Members": [entry(4), entry(5)], "Members@odata.count": 5}

    first = {
        "Members": [entry(1), entry(2)], "Members@odata.count": 5, "Members@odata.nextLink": f"{ENTRIES}?$skip=2",
    }  # fmt: skip
    routes = service(first, ProtocolFeaturesSupported={"TopSkipQuery": True})
    routes[f"{ENTRIES}?$skip=3&$top=2"] = page
    messages, server = await read_messages(routes, most=2)
    assert messages == ["m5", "m4"]
    assert sum(path.startswith(ENTRIES) for path in server.paths()) == 2


async def test_pages_are_followed_where_nothing_else_is_offered_and_never_in_a_circle() -> None:
    first = {"Members": [entry(3), entry(2)], "Members@odata.nextLink": f"{ENTRIES}?page=2"}
    routes = service(first)
    routes[f"{ENTRIES}?page=2"] = {"Members": [entry(1)], "Members@odata.nextLink": f"{ENTRIES}?page=2"}
    assert (await read_messages(routes))[0] == ["m3", "m2", "m1"]


async def test_pages_that_are_too_large_together_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.log_search.MAX_BYTES", 100_000)
    asked: list[str] = []

    def page(request: Asked) -> dict[str, Any]:
        asked.append(request.path)
        return {"Members": [entry(1, MessageId="x" * 40_000)], "Members@odata.nextLink": f"{ENTRIES}?{len(asked)}"}

    with pytest.raises(BmcError, match="reading was aborted"):
        await read_messages({**service(page), **{f"{ENTRIES}?{number}": page for number in range(1, 10)}})
    assert len(asked) == 3


async def test_entries_that_are_only_linked_to_are_read_one_by_one_and_not_all() -> None:
    numbers = range(1, 120)
    routes = service({"Members": [{"@odata.id": f"{ENTRIES}/{number}"} for number in numbers]})
    routes |= {f"{ENTRIES}/{number}": entry(number, ago=timedelta(seconds=200 - number)) for number in numbers}
    routes[f"{ENTRIES}/118"] = Reply(404)
    messages, server = await read_messages(routes)
    assert messages[:3] == ["m119", "m117", "m116"]
    assert len(messages) == MAX_SINGLE_READS - 1
    assert len(server.paths()) < MAX_SINGLE_READS + 8


@pytest.mark.parametrize(
    "odd",
    [
        {"Created": None}, {"Created": "yesterday"}, {"Created": 5}, {"Created": "0001-01-01T00:00:00+14:00"},
        {"Created": ["2026"]}, {"Created": ""},
    ],
)  # fmt: skip
async def test_an_entry_without_a_time_is_left_out(odd: dict[str, Any]) -> None:
    assert (await read_messages(service({"Members": [entry(1, **odd), entry(2)]})))[0] == ["m2"]


async def test_nonsense_in_an_entry_hides_no_other() -> None:
    odd = entry(
        3, Message={"a": 1}, MessageArgs="x", Links=[1], MessageId=None, Severity=7, Originator=["me"],
        OriginAddress={"x": 1}, OriginatorType="Client", Username="a\x1b]0;b\n" + "c" * 500,
    )  # fmt: skip
    routes = service({"Members": [odd, 5, None, {"@odata.id": 7}, entry(4, Originator="x", OriginatorType="Internal")]})
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            second, first = await read_log_entries(bmc, NOW - HOUR)
    assert (first.message, first.arguments, first.origin_uri, first.address) == ("", (), "", "")
    assert len(first.originator) == 100
    assert "\x1b" not in first.originator
    assert (second.message, second.originator) == ("m4", "")


@pytest.mark.parametrize("skew", [-400 * 24 * HOUR, 3 * HOUR])
async def test_a_clock_that_is_wrong_is_put_right(skew: timedelta) -> None:
    wrong = NOW + skew
    members = [entry(number, ago=timedelta(minutes=60 * (3 - number)) - skew) for number in (1, 2, 3)]
    routes = service({"Members": members})
    routes[f"{LOGS}/Events"]["DateTime"] = (wrong + (datetime.now(UTC) - NOW)).isoformat()
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            records = await read_log_entries(bmc, NOW - timedelta(minutes=90))
    assert [record.message for record in records][:2] == ["m3", "m2"]
    assert abs(records[0].at - NOW) < timedelta(seconds=30)
    assert records[0].timestamp == members[2]["Created"]


async def test_one_log_that_cannot_be_read_leaves_the_others_and_none_at_all_is_told() -> None:
    routes = service({"Members": [entry(1)]})
    routes[LOGS] = collection(LOGS, "LogService", f"{LOGS}/Broken", f"{LOGS}/Events", f"{LOGS}/Odd")
    routes[f"{LOGS}/Broken"] = {"Id": "b", "Name": "b", "Entries": {"@odata.id": f"{LOGS}/Broken/Entries"}}
    routes[f"{LOGS}/Broken/Entries"] = Reply(500, {"error": {"message": "no"}})
    routes[f"{LOGS}/Odd"] = {"Id": "o", "Name": "o", "Entries": "nowhere"}
    assert (await read_messages(routes))[0] == ["m1"]
    routes[ENTRIES] = Reply(503)
    with pytest.raises(BmcError):
        await read_messages(routes)


async def test_a_service_without_logs_tells_nothing() -> None:
    assert (await read_messages({ROOT: service_root()}))[0] == []
    assert (await read_messages(service({"Members": []})))[0] == []


@pytest.mark.process
@pytest.mark.skipif(not FOLDERS, reason="../shared/redfish/mockups is missing")
@pytest.mark.parametrize("folder", FOLDERS)
async def test_every_published_service_can_be_asked(folder: str) -> None:
    with serve_mockup(MOCKUPS / folder) as url:
        async with BmcClient(BmcAddress(url=url)) as bmc:
            records = await read_log_entries(bmc, datetime(2000, 1, 1, tzinfo=UTC))
    assert len(records) <= 200
    assert all(record.message or record.message_id for record in records)


async def test_logs_that_link_in_a_circle_end() -> None:
    routes = service({"Members": [entry(1)]})
    routes[f"{LOGS}/Events"]["LogServices"] = {"@odata.id": LOGS}
    messages, server = await read_messages(routes)
    assert messages == ["m1"]
    assert len(server.paths()) < 60
