"""Events reach the log, event streams and subscribers."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import requests

from tests.processes import SimulatorProcess
from tests.simulator.conftest import V1, Client, eventually

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
        payload = received.get(timeout=10)
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


def test_a_log_longer_than_a_page_is_read_page_by_page(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.set_speed(1000)
    eventually(lambda: _toggle(client, fresh), lambda count: count > 30, seconds=20)
    fresh.set_speed(1)
    uri, read = f"{LOG}/Entries?$top=10", 0
    total = client.get(uri)["Members@odata.count"]
    while uri:
        page = client.get(uri)
        read += len(page["Members"])
        uri = page.get("Members@odata.nextLink", "")
    assert read >= total


def _toggle(client: Client, process: SimulatorProcess) -> int:
    client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
    client.compose("hostport1_H3", ["hostport1_H3"])
    return int(process.state()["log_entries"])
