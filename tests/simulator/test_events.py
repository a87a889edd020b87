"""Events reach the log, event streams and subscribers."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess
from simulator.lab import load_lab
from simulator.physics import Clock
from simulator.query import apply, parse
from simulator.resources import register_all
from simulator.service import Falcon, ServiceOptions
from tests.simulator.conftest import V1, Client
from tests.waiting import eventually

STREAM = f"{V1}/EventService/SSE"
LOG = f"{V1}/Managers/bmc/LogServices/Events"
SUBSCRIPTIONS = f"{V1}/EventService/Subscriptions"


@contextmanager
def stream(client: Client) -> Iterator[requests.Response]:
    """Open the event stream that the event service names."""
    uri = client.get(f"{V1}/EventService")["ServerSentEventUri"]
    reply = client.request("GET", uri, headers={"Accept": "text/event-stream"}, stream=True)
    assert reply.status_code == 200
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    try:
        yield reply
    finally:
        reply.close()


def events(reply: requests.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield id and payload of each event of a stream."""
    number, data = "", []
    for raw in reply.iter_lines(chunk_size=1):
        line = raw.decode()
        if line.startswith("id:"):
            number = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].strip())
        elif not line and data:
            yield number, json.loads("\n".join(data))
            data = []


def test_a_stream_whose_reader_has_gone_does_not_count(fresh: SimulatorProcess) -> None:
    with stream(Client(fresh)):
        assert fresh.state()["streams"] == 1
    eventually(lambda: fresh.state()["streams"], lambda count: count == 0)  # long before the next event


def test_an_attach_is_told_on_the_stream_and_found_in_the_log(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    with stream(client) as reply:
        assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok
        told = events(reply)
        first, second = next(told), next(told)
    assert first[1]["@odata.type"] == "#Event.v1_13_0.Event"
    records = [payload["Events"][0] for _, payload in (first, second)]
    assert [record["MessageId"] for record in records] == [
        "Fabric.1.0.ZoneModified",
        "Fabric.1.0.DownstreamLinkEstablished",
    ]
    assert [record["EventId"] for record in records] == [first[0], second[0]]
    assert records[0]["OriginOfCondition"] == {"@odata.id": f"{V1}/Fabrics/PCIe/Zones/hostport1_H3"}
    for record in records:
        entry = client.get(record["LogEntry"]["@odata.id"])
        for name in ("EventId", "MessageId", "Message", "MessageArgs"):
            assert entry[name] == record[name]


def test_a_stream_is_a_subscription_for_as_long_as_it_is_open(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    with stream(client):
        members = client.get(SUBSCRIPTIONS)["Members"]
        assert len(members) == 1
        assert client.get(members[0]["@odata.id"])["SubscriptionType"] == "SSE"
    # The service notices a client that left when it next writes to it.
    client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
    eventually(lambda: client.get(SUBSCRIPTIONS)["Members"], lambda members: members == [])


def test_a_stream_ends_when_its_subscription_is_deleted(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    with stream(client) as reply:
        uri = client.get(SUBSCRIPTIONS)["Members"][0]["@odata.id"]
        assert client.request("DELETE", uri).status_code == 204
        assert list(events(reply)) == []


def test_an_eleventh_stream_is_refused(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    replies = [client.request("GET", STREAM, stream=True) for _ in range(11)]
    assert [reply.status_code for reply in replies] == [200] * 10 + [503]
    for reply in replies:
        reply.close()


def test_a_stream_needs_sign_in_and_is_nothing_but_an_event_stream(client: Client) -> None:
    assert client.request("GET", STREAM, auth=("viewer", "wrong one")).status_code == 401
    assert client.request("GET", STREAM, headers={"Accept": "application/json"}).status_code == 406
    assert client.request("POST", STREAM).status_code in (404, 405)


def test_a_subscriber_is_posted_what_it_asked_for(fresh: SimulatorProcess) -> None:
    received: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that the library calls
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(fresh)
    try:
        body = {
            "Destination": f"http://127.0.0.1:{server.server_port}/",
            "Protocol": "Redfish",
            "Context": "our test",
            "RegistryPrefixes": ["SensorEvent"],
        }
        assert client.request("POST", SUBSCRIPTIONS, json=body).status_code == 201
        client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
        fresh.fault("overheat", "drawer1slot1")
        payload = received.get(timeout=60)
    finally:
        server.shutdown()
        server.server_close()
    assert payload["Context"] == "our test"
    assert payload["Events"][0]["MessageId"].startswith("SensorEvent.")


def test_a_log_is_cleared_and_goes_on_counting(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
    last = max(int(one["@odata.id"].rpartition("/")[2]) for one in client.get(f"{LOG}/Entries")["Members"])
    target = client.get(LOG)["Actions"]["#LogService.ClearLog"]["target"]
    assert Client(fresh, "operator").request("POST", target, json={}).status_code == 403
    assert client.request("POST", target, json={}).status_code == 204
    client.compose("hostport1_H3", ["hostport1_H3"])
    numbers = [int(one["@odata.id"].rpartition("/")[2]) for one in client.get(f"{LOG}/Entries")["Members"]]
    assert numbers
    assert min(numbers) > last


def test_a_log_longer_than_a_page_is_read_page_by_page() -> None:
    lab = load_lab()
    falcon = Falcon(
        lab, "falcon-1", lab.chassis["falcon-1"], password="long enough", clock=Clock(), options=ServiceOptions()
    )
    register_all(falcon)
    for number in range(2500):
        falcon.events.emit("ResourceEvent.1.3.ResourceChanged", f"change {number}")
    node = falcon.tree.find(f"{LOG}/Entries")
    assert node is not None
    assert node.render is not None
    uri, read = f"{LOG}/Entries", []
    while uri:
        parameters = dict(parse_qsl(urlsplit(uri).query))
        query = parse(parameters, expand_allowed=True)
        page = apply(node.render(), query, lambda _uri: None, f"{LOG}/Entries")
        assert page["Members@odata.count"] == 2500
        assert len(page["Members"]) <= 1000
        read += [entry["Id"] for entry in page["Members"]]
        uri = page.get("Members@odata.nextLink", "")
    assert read == [str(number) for number in range(1, 2501)]


def test_a_page_of_the_log_points_to_the_next(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    for endpoints in (["hostport1_H3", "drawer1slot7"], ["hostport1_H3"]) * 2:
        assert client.compose("hostport1_H3", endpoints).ok
    first = client.get(f"{LOG}/Entries?$top=2&$select=MessageId")
    assert [set(entry) >= {"Id", "MessageId"} for entry in first["Members"]] == [True, True]
    assert client.get(first["Members@odata.nextLink"])["Members"][0]["Id"] == "3"


def test_events_are_made_and_lost_at_the_control_address(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.add_events(5, message="Made {n}.", severity="Warning")
    fresh.change_log(limit=2)
    entries = client.get(f"{LOG}/Entries")["Members"]
    assert [entry["Message"] for entry in entries] == ["Made 4.", "Made 5."]
    assert client.get(LOG)["MaxNumberOfRecords"] == 2
    fresh.change_log(begin_anew=True)
    fresh.add_events(1, message="Made anew.")
    (entry,) = client.get(f"{LOG}/Entries")["Members"]
    assert (entry["Id"], entry["Message"]) == ("1", "Made anew.")
    # The truth knows them all.
    assert [event["Message"] for event in fresh.events()][-6:] == [*(f"Made {n}." for n in range(1, 6)), "Made anew."]
    for body in ({"count": 0}, {"number": 1}):
        with pytest.raises(HTTPError):
            fresh.ask_control("POST", "/events", body)
    with pytest.raises(HTTPError):
        fresh.change_log(limit=0)


def test_a_clock_is_set_without_losing_time(fresh: SimulatorProcess) -> None:
    before = fresh.ask_control("GET", "/time")
    fresh.set_clock(-7200)
    after = fresh.ask_control("GET", "/time")
    assert after["seconds"] >= before["seconds"]
    assert after["now"] < before["now"]


def test_a_stream_is_missing_cut_or_without_ids_as_a_fault_says(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("events_without_id")
    fresh.fault("event_stream_cut", count=1)
    with stream(client) as reply:
        lines = reply.iter_lines()
        assert next(lines) == b": the stream is open"
        fresh.add_events(1)
        assert not any(line.startswith(b"id:") for line in lines)  # which ends: it is cut
    fault = fresh.fault("event_stream_missing")
    assert "ServerSentEventUri" not in client.get(f"{V1}/EventService")
    assert client.request("GET", STREAM).status_code == 404
    fresh.end_fault(fault)
    with stream(client) as reply:
        fresh.add_events(1)
        data = next(line for line in reply.iter_lines() if line.startswith(b"data:"))
    assert set(json.loads(data.removeprefix(b"data: "))["Events"][0]) & {"EventId", "LogEntry"} == set()
