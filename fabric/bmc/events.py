"""Events of a BMC: live from its event stream, and the missed ones from its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from fabric.bmc.answers import one_line
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import is_whole
from fabric.bmc.errors import BmcError, Malformed, Unreachable
from fabric.bmc.types import Event
from fabric.bmc.values import Body, inner, link, natural, objects, plain_uri, text, texts

# A stream without even a comment for so long is taken for dead, s.
SILENCE = 90.0
LARGEST_EVENT = 4 * 2**20
MOST_PAGES = 1000
LONGEST_NAME = 100


class EventStreamParser:
    """A parser of server-sent events (WHATWG HTML, 9.2.6), fed with bytes as they come."""

    def __init__(self) -> None:
        self._rest = b""
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
        pending = (self._rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = pending.split(b"\n")
        if len(self._rest) > LARGEST_EVENT:
            raise Malformed("The event stream sent a line without end.")
        for line in lines:
            yield line.decode("utf-8", "replace").removeprefix("\ufeff")


async def stream_events(
    bmc: BmcClient, stream_uri: str, *, last_event_id: str = "", silence: float = SILENCE
) -> AsyncIterator[Event]:
    """Yield events as they happen; ends by raising BmcError when the stream is lost, by the BMC too.

    `last_event_id` asks a BMC that can to begin after that event; those that cannot leave a gap for `read_log` to fill.
    Records that are no event are left out. `silence` is in seconds.
    """
    parser = EventStreamParser()
    async with bmc.stream(stream_uri, last_event_id=last_event_id, silence=silence) as response:
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


async def read_log(bmc: BmcClient, entries_uri: str, *, after: str = "") -> list[Event]:
    """Return the entries of a log, oldest first, those later than the entry or event with the ID `after`.

    Where no such entry is left, numbered logs give those with greater numbers, others give all. Pages are followed.
    Raises BmcError.
    """
    entries: list[tuple[tuple[str, Any], Event]] = []
    seen: set[str] = set()
    uri = entries_uri
    while uri and uri not in seen and len(seen) < MOST_PAGES:
        seen.add(uri)
        page = (await bmc.get(uri)).body
        for member in objects(page, "Members"):
            entry = member if is_whole(member) else await _entry(bmc, link(member))
            if entry is not None:
                entries.append(((text(entry, "Created"), natural(text(entry, "Id"))), log_event(entry)))
        uri = text(page, "Members@odata.nextLink")
    entries.sort(key=lambda pair: pair[0])
    return later_than([event for _, event in entries], after)


async def _entry(bmc: BmcClient, uri: str) -> Body | None:
    """Return one entry, None where it has meanwhile been overwritten."""
    try:
        return (await bmc.get(uri)).body if uri else None
    except BmcError as error:
        if error.answered in {404, 410}:
            return None
        raise


def log_event(entry: Body) -> Event:
    """Return a log entry as the event it records."""
    return Event(
        event_id=text(entry, "EventId") or text(entry, "Id"),
        message_id=text(entry, "MessageId"),
        message=one_line(text(entry, "Message")),
        severity=text(entry, "Severity"),
        timestamp=text(entry, "EventTimestamp") or text(entry, "Created"),
        origin_uri=link(entry, "Links", "OriginOfCondition"),
        arguments=texts(entry, "MessageArgs"),
        originator=originator_of(entry),
        address=address_of(entry),
    )


def later_than(events: list[Event], after: str) -> list[Event]:
    """Return the events behind the one with the ID `after`; see `read_log`."""
    if not after:
        return events
    for index in range(len(events) - 1, -1, -1):
        if events[index].event_id == after:
            return events[index + 1 :]
    if after.isdecimal() and all(event.event_id.isdecimal() for event in events):
        newer = [event for event in events if int(event.event_id) > int(after)]
        # Numbers that began anew after the log was lost: everything is news.
        return newer or events
    return events
