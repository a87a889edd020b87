"""Events of a BMC as they happen, from its event stream; what was missed meanwhile is in its log: see `eventlog`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from fabric.bmc.answers import one_line
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import Malformed, Unreachable
from fabric.bmc.types import Event
from fabric.bmc.values import Body, inner, link, objects, plain_uri, text, texts

# A stream without even a comment for so long is taken for dead, s.
SILENCE = 90.0
LARGEST_EVENT = 4 * 2**20
LONGEST_NAME = 100


class EventStreamParser:
    """A parser of server-sent events (WHATWG HTML, 9.2.6), fed with bytes as they come."""

    def __init__(self) -> None:
        self._rest = bytearray()  # of a line without end as yet
        self._data: list[str] = []
        self._size = 0
        self._skip_newline = False
        self.last_event_id = ""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Yield (id, data) of each event that the chunk completes; raises Malformed for one without end."""
        for line in self._lines(chunk):
            if not line:
                if self._data:
                    yield self.last_event_id, "\n".join(self._data)
                self._data, self._size = [], 0
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
                self._size += len(value)
                if self._size > LARGEST_EVENT:
                    raise Malformed("The event stream sent an event without end.")
            elif name == "id" and "\0" not in value:
                self.last_event_id = value

    def _lines(self, chunk: bytes) -> Iterator[str]:
        """Yield complete lines; they end in CR, LF or CRLF, and CRLF may fall between two chunks."""
        if self._skip_newline and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if chunk:
            self._skip_newline = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > LARGEST_EVENT:
            raise Malformed("The event stream sent a line without end.")
        for line in lines:
            yield line.decode("utf-8", "replace").removeprefix("\ufeff")


async def stream_offered(bmc: BmcClient) -> str:
    """Return where a BMC offers its event stream now, '' where it does not. Raises BmcError."""
    if not bmc.root:
        await bmc.service_root()
    service = link(bmc.root, "EventService")
    return text((await bmc.get(service)).body, "ServerSentEventUri") if service else ""


async def stream_events(
    bmc: BmcClient,
    stream_uri: str,
    *,
    last_event_id: str = "",
    silence: float = SILENCE,
    opened: Callable[[], None] = lambda: None,
) -> AsyncIterator[Event]:
    """Yield events as they happen; ends by raising BmcError when the stream is lost, by the BMC too.

    `last_event_id` asks a BMC that can to begin after that event; those that cannot leave a gap for the log to fill.
    `opened` is called once the BMC has taken the request: what happens from then on is in the stream. Records that are
    no event are left out. `silence` is in seconds.
    """
    parser = EventStreamParser()
    async with bmc.stream(stream_uri, last_event_id=last_event_id, silence=silence) as response:
        opened()
        async for chunk in response.content.iter_any():
            for stream_id, data in parser.feed(chunk):
                for event in decode_events(data, stream_id):
                    yield event
    raise Unreachable(f"{bmc.host} ended its event stream.")


def decode_events(data: str, stream_id: str) -> Iterator[Event]:
    """Yield the records of one Event resource; metric reports and text that is no JSON yield nothing.

    A record without EventId goes by the stream's id, its member's number added where there are several.
    """
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return
    if not isinstance(body, dict):
        return
    records = objects(body, "Events")
    for index, record in enumerate(records):
        own = stream_id or text(body, "Id")
        fallback = f"{own}/{text(record, 'MemberId') or index}" if len(records) > 1 else own
        yield Event(
            event_id=text(record, "EventId") or fallback,
            message_id=text(record, "MessageId"),
            message=one_line(text(record, "Message")),
            severity=text(record, "MessageSeverity") or text(record, "Severity"),
            timestamp=text(record, "EventTimestamp"),
            origin_uri=_origin(inner(record, "OriginOfCondition")),
            arguments=texts(record, "MessageArgs"),
            originator=originator_of(record),
            address=address_of(record),
            entry_uri=plain_uri(link(record, "LogEntry")),
            stream_id=stream_id,
        )


def originator_of(record: Body) -> str:
    """Return the account that an event or log entry names; its originator may also be the BMC, or a host's firmware."""
    own = text(record, "Originator") if text(record, "OriginatorType") == "Client" else ""
    return one_line(text(record, "Username") or own)[:LONGEST_NAME]


def address_of(record: Body) -> str:
    """Return where the request behind an event or log entry came from, without its scheme."""
    return one_line(text(record, "OriginAddress").rpartition("://")[2].strip("[]"))[:LONGEST_NAME]


def _origin(value: Any) -> str:
    """Return where a record comes from; old services give text in place of a reference."""
    if isinstance(value, str):
        return plain_uri(value)
    return link({"at": value}, "at")
