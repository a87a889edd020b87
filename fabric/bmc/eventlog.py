"""The log of a BMC as a list of events: what came behind a mark, in the log's own order, asking for little else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from fabric.bmc.answers import one_line
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import is_whole
from fabric.bmc.errors import BmcError, Malformed, RequestRefused, ServerFault
from fabric.bmc.events import address_of, originator_of
from fabric.bmc.types import Event
from fabric.bmc.values import Body, boolean, link, natural, objects, plain_uri, text, texts

MOST_PAGES = 1000
# Those that are kept of a log that was never read before; in memory they are some 20 MB.
MOST_ENTRIES = 20_000
# Of a log that only links to its entries each costs a request.
MOST_SINGLY = 500
# Entries before the mark that are read again: enough to find it in a log that drops its oldest ones meanwhile.
OVERLAP = 20
# Services tell whole seconds.
SAME_CLOCK = timedelta(seconds=1.5)
NO_EVENTS = ("journal", "dump", "postcode")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a log was read: its newest entry by address and time as told, and how many entries there were."""

    entry_uri: str
    told: str
    count: int = 0


class LogReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a reading of a log found, oldest first.

    `continuous` tells whether the mark was there: nothing is missing between it and the first of `events`. `newest` is
    the mark for the next reading, None where the log is empty. `cut` tells that there were more than are kept.
    """

    events: tuple[Event, ...]
    continuous: bool
    newest: Mark | None
    cut: bool = False


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a log service says of itself; `ahead` is how far the BMC's clock is before ours, None: it does not say."""

    entries_uri: str
    ahead: timedelta | None
    has_events: bool  # False for what a BMC writes for those who mend it: its journal, dumps, boot codes


async def read_log(bmc: BmcClient, entries_uri: str, *, after: Mark | None = None) -> LogReading:
    """Return the entries of a log behind a mark; all of them without one, or where the mark is there no more.

    The mark counts as found only with its time: after numbers began anew its address may be another entry's. Raises
    BmcError.
    """
    if after is not None and after.count and boolean(bmc.root, "ProtocolFeaturesSupported", "TopSkipQuery") is True:
        try:
            found = await _tail(bmc, entries_uri, after)
        except (RequestRefused, ServerFault, Malformed):
            found = None  # a BMC that says it can skip, and cannot
        if found is not None:
            return found
    return await _whole(bmc, entries_uri, after)


async def log_facts(bmc: BmcClient, service_uri: str) -> LogFacts:
    """Return what a log service says of itself. Raises BmcError."""
    body = (await bmc.get(service_uri)).body
    moment = instant(text(body, "DateTime"))
    ahead = moment - datetime.now(UTC) if moment is not None else None
    if ahead is not None and abs(ahead) <= SAME_CLOCK:
        ahead = timedelta()
    name = service_uri.rpartition("/")[2].casefold()
    return LogFacts(
        entries_uri=link(body, "Entries"),
        ahead=ahead,
        has_events=text(body, "LogEntryType") != "OEM" and not any(word in name for word in NO_EVENTS),
    )


def instant(told: str) -> datetime | None:
    """Return a time as services write it; one without an offset is taken as UTC, nonsense is None."""
    try:
        moment = datetime.fromisoformat(told)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def log_event(entry: Body) -> Event:
    """Return a log entry as the event it records."""
    return Event(
        event_id=text(entry, "EventId") or text(entry, "Id"),
        message_id=text(entry, "MessageId"),
        message=one_line(text(entry, "Message")),
        severity=text(entry, "Severity"),
        timestamp=text(entry, "EventTimestamp") or text(entry, "Created"),
        origin_uri=link(entry, "Links", "OriginOfCondition") or link(entry, "OriginOfCondition"),
        arguments=texts(entry, "MessageArgs"),
        originator=originator_of(entry),
        address=address_of(entry),
        entry_uri=plain_uri(text(entry, "@odata.id")),
    )


async def _tail(bmc: BmcClient, entries_uri: str, after: Mark) -> LogReading | None:
    """Return what is behind the mark of a log that grows at its end; None where the mark is not where it must be."""
    place = max(0, after.count - OVERLAP)
    events: list[Event] = []
    found = False
    async for page in _pages(bmc, f"{entries_uri}?$skip={place}"):
        members = objects(page, "Members")
        read = [log_event(member) for member in members if is_whole(member)]
        if not members or len(read) < len(members):
            return None
        place += len(read)
        if not found:
            index = _index(read, after)
            # One that stands the other way round has older entries behind the mark.
            if index is None or not _in_order(read):
                return None
            found, read = True, read[index + 1 :]
        events += read
        if len(events) > MOST_ENTRIES:
            return None
    if not found:
        return None
    newest = _mark(events[-1], place) if events else msgspec.structs.replace(after, count=place)
    return LogReading(events=tuple(events), continuous=True, newest=newest)


async def _whole(bmc: BmcClient, entries_uri: str, after: Mark | None) -> LogReading:
    """Return what is behind the mark of a log that is read from its beginning, which may be its newest entry."""
    events: list[Event] = []
    linked: list[str] = []
    read = 0
    upwards: bool | None = None  # oldest first
    async for page in _pages(bmc, entries_uri):
        members = objects(page, "Members")
        read += len(members)
        whole = [log_event(member) for member in members if is_whole(member)]
        linked += [uri for member in members if not is_whole(member) and (uri := link({"at": member}, "at"))]
        if upwards is None and len(whole) > 1:
            upwards = _in_order(whole)
        events += whole
        if upwards is False and (
            len(events) > MOST_ENTRIES or (after is not None and _index(whole, after) is not None)
        ):
            break
        if upwards is not False:
            del events[: -2 * MOST_ENTRIES]
    if upwards is False:
        events.reverse()
    if linked:
        events += await _singly(bmc, linked, after)
        events.sort(key=lambda event: natural(event.entry_uri))
    newest = _mark(events[-1], read) if events else None
    index = _index(events, after) if after is not None else None
    if index is not None:
        events = events[index + 1 :]
    cut = len(events) > MOST_ENTRIES or len(linked) > MOST_SINGLY
    found = after is None or index is not None
    return LogReading(events=tuple(events[-MOST_ENTRIES:]), continuous=found and not cut, newest=newest, cut=cut)


async def _pages(bmc: BmcClient, uri: str) -> AsyncIterator[Body]:
    seen: set[str] = set()
    while uri and uri not in seen and len(seen) < MOST_PAGES:
        seen.add(uri)
        page = (await bmc.get(uri)).body
        yield page
        uri = text(page, "Members@odata.nextLink")


async def _singly(bmc: BmcClient, uris: Sequence[str], after: Mark | None) -> list[Event]:
    """Return the entries that a log only links to: those behind the mark, the newest ones where there are many."""
    ordered = sorted(set(uris), key=natural)
    if after is not None and after.entry_uri in ordered:
        ordered = ordered[ordered.index(after.entry_uri) :]
    found = [await _entry(bmc, uri) for uri in ordered[-MOST_SINGLY:]]
    return [
        log_event({"@odata.id": uri, **entry})
        for uri, entry in zip(ordered[-MOST_SINGLY:], found, strict=True)
        if entry
    ]


async def _entry(bmc: BmcClient, uri: str) -> Body | None:
    """Return one entry, None where it has meanwhile been overwritten."""
    try:
        return (await bmc.get(uri)).body if uri else None
    except BmcError as error:
        if error.answered in {404, 410}:
            return None
        raise


def _in_order(events: Sequence[Event]) -> bool:
    """Tell whether entries stand oldest first: by their numbers, else by their times."""
    ends = [event.entry_uri.rpartition("/")[2] for event in (events[0], events[-1])]
    if all(end.isdecimal() for end in ends) and ends[0] != ends[1]:
        return int(ends[0]) < int(ends[1])
    return events[0].timestamp <= events[-1].timestamp


def _index(events: Sequence[Event], mark: Mark) -> int | None:
    """Return where the entry of a mark stands, the last one that is like it."""
    for index in range(len(events) - 1, -1, -1):
        if events[index].entry_uri == mark.entry_uri and events[index].timestamp == mark.told:
            return index
    return None


def _mark(event: Event, count: int) -> Mark:
    return Mark(entry_uri=event.entry_uri, told=event.timestamp, count=count)
