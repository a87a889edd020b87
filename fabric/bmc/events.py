"""Events of a BMC: live from its event stream, and missed ones from its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from core.text import natural_key
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import Malformed, RequestRefused, ServerFault, Unreachable
from fabric.bmc.expansion import is_embedded
from fabric.bmc.json_bounds import count_values
from fabric.bmc.transport import one_line
from fabric.bmc.values import JsonObject, boolean, link, normalize_uri, objects, text, texts, value_at

# A stream without even a comment for so long counts as dead, s.
MAX_SILENCE_SECONDS = 90.0
MAX_EVENT_BYTES = 4 * 2**20
MAX_NAME_LENGTH = 100


class RedfishEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One Redfish event record, from the stream or the log."""

    event_id: str
    message_id: str
    message: str
    severity: str
    timestamp: str
    origin_uri: str = ""
    arguments: tuple[str, ...] = ()
    originator: str = ""  # the account of the request; '' where the BMC does not report it, or acted by itself
    address: str = ""  # where that request came from
    entry_uri: str = ""  # of the log entry, '' where a record of a stream names none
    stream_id: str = ""  # the Last-Event-ID to resume after this event; '' in a log


class EventStreamParser:
    """A parser of server-sent events (WHATWG HTML, 9.2.6), fed with bytes as they come."""

    def __init__(self) -> None:
        self._rest = bytearray()  # of a line that is still incomplete
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
                self._size += len(value) + 1  # with its line end: empty lines fill the memory too
                if self._size > MAX_EVENT_BYTES:
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
        if len(self._rest) > MAX_EVENT_BYTES:
            raise Malformed("The event stream sent a line without end.")
        for line in lines:
            yield line.decode("utf-8", "replace").removeprefix("\ufeff")


async def find_event_stream(bmc: BmcClient) -> str:
    """Return the present URI of a BMC's event stream, '' where it offers none. Raises BmcError."""
    if not bmc.root:
        await bmc.service_root()
    service = link(bmc.root, "EventService")
    return text((await bmc.get(service)).body, "ServerSentEventUri") if service else ""


async def stream_events(
    bmc: BmcClient,
    stream_uri: str,
    *,
    last_event_id: str = "",
    silence: float = MAX_SILENCE_SECONDS,
    opened: Callable[[], None] = lambda: None,
) -> AsyncIterator[RedfishEvent]:
    """Yield events as they happen; ends by raising BmcError when the stream is lost, also if the BMC closes it.

    `last_event_id` lets a BMC that supports it resume after that event; others leave a gap for the log to fill.
    `opened` is called once the BMC has accepted the request: later events are in the stream. Records that are not
    events are left out. `silence` is in seconds.
    """
    parser = EventStreamParser()
    async with bmc.stream(stream_uri, last_event_id=last_event_id, silence=silence) as response:
        opened()
        async for chunk in response.content.iter_any():
            for stream_id, data in parser.feed(chunk):
                for event in decode_events(data, stream_id):
                    yield event
    raise Unreachable(f"{bmc.host} ended its event stream.")


def decode_events(data: str, stream_id: str) -> Iterator[RedfishEvent]:
    """Yield the records of one Event resource; metric reports and text that is not JSON yield nothing.

    A record without EventId gets the stream's id, with its member's number where there are several.
    """
    try:
        count_values(data.encode(errors="replace"), where="The event stream")
        body = msgspec.json.decode(data)
    except (Malformed, msgspec.DecodeError, RecursionError):
        return
    if not isinstance(body, dict):
        return
    records = objects(body, "Events")
    for index, record in enumerate(records):
        own = stream_id or text(body, "Id")
        fallback = f"{own}/{text(record, 'MemberId') or index}" if len(records) > 1 else own
        yield _event(
            record,
            event_id=text(record, "EventId") or fallback,
            severity=text(record, "MessageSeverity") or text(record, "Severity"),
            timestamp=text(record, "EventTimestamp"),
            origin_uri=_origin(value_at(record, "OriginOfCondition")),
            entry_uri=normalize_uri(link(record, "LogEntry")),
            stream_id=stream_id,
        )


def log_event(entry: JsonObject) -> RedfishEvent:
    """Return a log entry as the event it records."""
    return _event(
        entry,
        event_id=text(entry, "EventId") or text(entry, "Id"),
        severity=text(entry, "Severity"),
        timestamp=text(entry, "EventTimestamp") or text(entry, "Created"),
        origin_uri=link(entry, "Links", "OriginOfCondition") or link(entry, "OriginOfCondition"),
        entry_uri=normalize_uri(text(entry, "@odata.id")),
    )


def _event(record: JsonObject, **values: str) -> RedfishEvent:
    """Return an event with what records of a stream and of a log name alike."""
    # The originator may also be the BMC, or a host's firmware.
    client = text(record, "Originator") if text(record, "OriginatorType") == "Client" else ""
    return RedfishEvent(
        message_id=text(record, "MessageId"),
        message=one_line(text(record, "Message")),
        arguments=texts(record, "MessageArgs"),
        originator=one_line(text(record, "Username") or client)[:MAX_NAME_LENGTH],
        # Without the scheme of the address.
        address=one_line(text(record, "OriginAddress").rpartition("://")[2].strip("[]"))[:MAX_NAME_LENGTH],
        **values,
    )


def _origin(value: Any) -> str:
    """Return the origin of a record; old services give text in place of a reference."""
    return link({"at": {"@odata.id": value} if isinstance(value, str) else value}, "at")


MAX_LOG_PAGES = 1000
# Bound on all pages of one reading together, bytes: each may be as large as an answer is allowed to be.
MAX_LOG_BYTES = 128 * 2**20
# Entries that are kept of a log that was never read before; in memory they are some 20 MB.
MAX_LOG_ENTRIES = 20_000
# In a log that only links to its entries each costs a request.
MAX_SINGLE_READS = 500
# Entries before the cursor that are read again: enough to find it in a log that drops its oldest ones meanwhile.
TAIL_OVERLAP = 20
# Services report whole seconds.
CLOCK_TOLERANCE = timedelta(seconds=1.5)
NON_EVENT_LOGS = ("journal", "dump", "postcode")


class LogCursor(msgspec.Struct, frozen=True, kw_only=True):
    """The position in a log: its newest entry by address and reported time, and the number of entries."""

    entry_uri: str
    timestamp: str
    count: int = 0


class LogReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a log, oldest first.

    `continuous`: the cursor's entry was found, so nothing is missing between it and the first of `events`. `newest` is
    the cursor for the next read, None where the log is empty. `cut`: there were more entries than are kept.
    """

    events: tuple[RedfishEvent, ...]
    continuous: bool
    newest: LogCursor | None
    cut: bool = False


class LogServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a log service; `ahead` is the BMC's clock minus ours, None: it does not report its time."""

    entries_uri: str
    ahead: timedelta | None
    has_events: bool  # False for logs for maintenance: a BMC's journal, dumps, boot codes


async def read_log(bmc: BmcClient, entries_uri: str, *, after: LogCursor | None = None) -> LogReadResult:
    """Return the entries of a log after a cursor; all of them without one, or where its entry no longer exists.

    The entry must match the cursor's time: after numbering restarted its address may be another entry's. Raises
    BmcError.
    """
    if after is not None and after.count and boolean(bmc.root, "ProtocolFeaturesSupported", "TopSkipQuery") is True:
        try:
            found = await _read_tail(bmc, entries_uri, after)
        except (RequestRefused, ServerFault, Malformed):
            found = None  # a BMC that declares $skip, and does not support it
        if found is not None:
            return found
    return await _read_whole(bmc, entries_uri, after)


async def read_log_service_info(bmc: BmcClient, service_uri: str) -> LogServiceInfo:
    """Return the facts of a log service. Raises BmcError."""
    body = (await bmc.get(service_uri)).body
    moment = parse_timestamp(text(body, "DateTime"))
    ahead = moment - datetime.now(UTC) if moment is not None else None
    if ahead is not None and abs(ahead) <= CLOCK_TOLERANCE:
        ahead = timedelta()
    name = service_uri.rpartition("/")[2].casefold()
    return LogServiceInfo(
        entries_uri=link(body, "Entries"),
        ahead=ahead,
        has_events=text(body, "LogEntryType") != "OEM" and not any(word in name for word in NON_EVENT_LOGS),
    )


def parse_timestamp(value: str) -> datetime | None:
    """Return a time as services write it; one without an offset is taken as UTC, None if invalid."""
    try:
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


async def _read_tail(bmc: BmcClient, entries_uri: str, after: LogCursor) -> LogReadResult | None:
    """Return the entries after the cursor of a log that grows at its end; None where its entry is not found there."""
    place = max(0, after.count - TAIL_OVERLAP)
    events: list[RedfishEvent] = []
    found = False
    async for page in _read_pages(bmc, f"{entries_uri}?$skip={place}"):
        members = objects(page, "Members")
        read = [log_event(member) for member in members if is_embedded(member)]
        if not members or len(read) < len(members):
            return None
        place += len(read)
        if not found:
            index = _cursor_index(read, after)
            # A log in the opposite order has older entries after the cursor.
            if index is None or not _is_oldest_first(read):
                return None
            found, read = True, read[index + 1 :]
        events += read
        if len(events) > MAX_LOG_ENTRIES:
            return None
    if not found:
        return None
    newest = _cursor(events[-1], place) if events else msgspec.structs.replace(after, count=place)
    return LogReadResult(events=tuple(events), continuous=True, newest=newest)


async def _read_whole(bmc: BmcClient, entries_uri: str, after: LogCursor | None) -> LogReadResult:
    """Return the entries after the cursor of a log that is read from its start, which may be its newest entry."""
    events: list[RedfishEvent] = []
    linked: list[str] = []
    read = 0
    upwards: bool | None = None  # oldest first
    async for page in _read_pages(bmc, entries_uri):
        members = objects(page, "Members")
        read += len(members)
        whole = [log_event(member) for member in members if is_embedded(member)]
        linked += [uri for member in members if not is_embedded(member) and (uri := link({"at": member}, "at"))]
        if upwards is None and len(whole) > 1:
            upwards = _is_oldest_first(whole)
        events += whole
        if upwards is False and (
            len(events) > MAX_LOG_ENTRIES or (after is not None and _cursor_index(whole, after) is not None)
        ):
            break
        if upwards is not False:
            del events[: -2 * MAX_LOG_ENTRIES]
    if upwards is False:
        events.reverse()
    if linked:
        events += await _read_single_entries(bmc, linked, after)
        events.sort(key=lambda event: natural_key(event.entry_uri))
    newest = _cursor(events[-1], read) if events else None
    index = _cursor_index(events, after) if after is not None else None
    if index is not None:
        events = events[index + 1 :]
    cut = len(events) > MAX_LOG_ENTRIES or len(linked) > MAX_SINGLE_READS
    found = after is None or index is not None
    return LogReadResult(events=tuple(events[-MAX_LOG_ENTRIES:]), continuous=found and not cut, newest=newest, cut=cut)


async def _read_pages(bmc: BmcClient, uri: str) -> AsyncIterator[JsonObject]:
    seen: set[str] = set()
    begin = bmc.received
    while uri and uri not in seen and len(seen) < MAX_LOG_PAGES:
        seen.add(uri)
        page = (await bmc.get(uri)).body
        bmc.check_received(begin, MAX_LOG_BYTES)
        yield page
        uri = text(page, "Members@odata.nextLink")


async def _read_single_entries(bmc: BmcClient, uris: Sequence[str], after: LogCursor | None) -> list[RedfishEvent]:
    """Return the entries of a log that only links to them: those after the cursor, of many the newest."""
    ordered = sorted(set(uris), key=natural_key)
    if after is not None and after.entry_uri in ordered:
        ordered = ordered[ordered.index(after.entry_uri) :]
    found = [(uri, await bmc.get_or_none(uri)) for uri in ordered[-MAX_SINGLE_READS:]]
    return [log_event({"@odata.id": uri, **entry}) for uri, entry in found if entry]


def _is_oldest_first(events: Sequence[RedfishEvent]) -> bool:
    """Return whether entries are in ascending order: by their numbers, else by their times."""
    ends = [event.entry_uri.rpartition("/")[2] for event in (events[0], events[-1])]
    if all(end.isdecimal() for end in ends) and ends[0] != ends[1]:
        return natural_key(ends[0]) < natural_key(ends[1])
    return events[0].timestamp <= events[-1].timestamp


def _cursor_index(events: Sequence[RedfishEvent], mark: LogCursor) -> int | None:
    """Return the index of a cursor's entry, the last that matches it."""
    for index in range(len(events) - 1, -1, -1):
        if events[index].entry_uri == mark.entry_uri and events[index].timestamp == mark.timestamp:
            return index
    return None


def _cursor(event: RedfishEvent, count: int) -> LogCursor:
    return LogCursor(entry_uri=event.entry_uri, timestamp=event.timestamp, count=count)
