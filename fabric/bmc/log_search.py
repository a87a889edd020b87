"""Search of a BMC's logs for the account behind a change: in all logs of a service, newest first."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import msgspec

from core.text import natural_key
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError, ForeignLink, Malformed, RequestRefused, ServerFault
from fabric.bmc.events import RedfishEvent, log_event, parse_timestamp
from fabric.bmc.expansion import expand_query, is_embedded
from fabric.bmc.values import JsonObject, boolean, integer, link, links, objects, text

LOG_OWNERS = ("Managers", "Systems", "Chassis")
MAX_ENTRIES = 200
# Bounds on the requests of one search.
MAX_LOGS = 12
MAX_PAGES = 10
MAX_SINGLE_READS = 50  # entries of a log that only links to them
MAX_BYTES = 64 * 2**20  # of the pages of one log together, which are in memory at once
# Clocks that differ by less count as equal: services report whole seconds.
CLOCK_TOLERANCE = timedelta(seconds=3)


class LogEntry(RedfishEvent, frozen=True, kw_only=True):
    """One entry of a BMC's log, with its time by the BMC's clock, and `at` by ours where the log reports the BMC's."""

    reported_at: datetime
    at: datetime

    def is_since(self, moment: datetime) -> bool:
        """Return whether it may have happened since a moment: by the BMC's clock, or by ours."""
        return max(self.reported_at, self.at) >= moment - CLOCK_TOLERANCE


async def read_log_entries(bmc: BmcClient, since: datetime, *, most: int = MAX_ENTRIES) -> list[LogEntry]:
    """Return the entries in the logs of managers, systems and chassis since a moment (aware), newest first.

    At most `most`. An entry is included if it is later by the BMC's clock or by ours. Entries without a valid time are
    left out, and logs that cannot be read too; raises BmcError only where no log can be read.
    """
    if not bmc.root:
        await bmc.service_root()
    found: list[LogEntry] = []
    failure: BmcError | None = None
    read = 0
    for service in await _log_services(bmc):
        ahead = _clock_offset(text(service, "DateTime"))
        try:
            found += await _entries(bmc, link(service, "Entries"), since, ahead, most)
            read += 1
        except BmcError as error:
            failure = error
    if failure is not None and not read:
        raise failure
    return sorted(found, key=lambda record: (record.at, natural_key(record.entry_uri)), reverse=True)[:most]


async def _log_services(bmc: BmcClient) -> list[JsonObject]:
    """Return the log services of a service, those of managers first; raises BmcError where none can be read."""
    services: dict[str, JsonObject] = {}
    failure: BmcError | None = None
    waiting = [uri for name in reversed(LOG_OWNERS) if (uri := link(bmc.root, name))]
    seen: set[str] = set()
    while waiting and len(services) < MAX_LOGS:
        collection = waiting.pop()
        if collection in seen:
            continue
        seen.add(collection)
        try:
            members = await _members(bmc, collection)
        except BmcError as error:
            failure = error
            continue
        services |= {uri: member for uri, member in members.items() if link(member, "Entries")}
        waiting += reversed([below for member in members.values() if (below := link(member, "LogServices"))])
    if failure is not None and not services:
        raise failure
    return list(services.values())[:MAX_LOGS]


async def _members(bmc: BmcClient, collection: str) -> dict[str, JsonObject]:
    """Return the members of a collection by URI, expanded where the service supports it, at most as many as logs."""
    query = expand_query(bmc.root)
    try:
        body = (await bmc.get(f"{collection}?{query}" if query else collection)).body
    except (RequestRefused, ServerFault, Malformed):
        if not query:
            raise
        body = (await bmc.get(collection)).body
    whole = [member for member in objects(body, "Members") if is_embedded(member)]
    if whole:
        return {link({"at": member}, "at"): member for member in whole[:MAX_LOGS]}
    singly = {uri: await _read_or_empty(bmc, uri) for uri in links(body, "Members")[:MAX_LOGS]}
    return {uri: member for uri, member in singly.items() if member}


async def _read_or_empty(bmc: BmcClient, uri: str) -> JsonObject:
    """Return a resource, {} for one that is refused or malformed; raises where the BMC is unreachable."""
    try:
        return (await bmc.get(uri)).body
    except (RequestRefused, ServerFault, Malformed, ForeignLink):
        return {}


async def _entries(bmc: BmcClient, uri: str, since: datetime, ahead: timedelta | None, most: int) -> list[LogEntry]:
    """Return the entries of one log since a moment, unordered."""
    begin = bmc.received
    page = await bmc.get_or_none(uri)
    if page is None:
        return []
    total = integer(page, "Members@odata.count") or 0
    pages = [page]
    if text(page, "Members@odata.nextLink"):
        if _is_oldest_first(page) and boolean(bmc.root, "ProtocolFeaturesSupported", "TopSkipQuery") is True:
            # The newest are at the end: earlier ones are not requested.
            pages = [(await bmc.get(f"{uri}?$skip={max(0, total - most)}&$top={most}")).body]
        seen = {uri}
        while (further := text(pages[-1], "Members@odata.nextLink")) and len(seen) < MAX_PAGES:
            if further in seen:
                break
            seen.add(further)
            pages.append((await bmc.get(further)).body)
            bmc.check_received(begin, MAX_BYTES)
    whole = [member for one in pages for member in objects(one, "Members") if is_embedded(member)]
    if not whole:
        # A log that only links to its entries: those with the greatest numbers are the newest.
        singly = sorted({uri for one in pages for uri in links(one, "Members")}, key=natural_key, reverse=True)
        whole = [await _read_or_empty(bmc, uri) for uri in singly[:MAX_SINGLE_READS]]
    return [record for entry in whole if (record := _record(entry, since, ahead)) is not None]


def _is_oldest_first(page: JsonObject) -> bool:
    times = (parse_timestamp(log_event(member).timestamp) for member in objects(page, "Members"))
    known = [time for time in times if time is not None]
    return len(known) > 1 and known[0] <= known[-1]


def _record(entry: JsonObject, since: datetime, ahead: timedelta | None) -> LogEntry | None:
    """Return an entry that is later than a moment, else None; `ahead` is the offset of the BMC's clock."""
    event = log_event(entry)
    reported_at = parse_timestamp(event.timestamp)
    if reported_at is None:
        return None
    at = reported_at
    with contextlib.suppress(OverflowError):
        at = reported_at - (ahead or timedelta())
    record = LogEntry(**msgspec.structs.asdict(event), reported_at=reported_at, at=at)
    return record if record.is_since(since) else None


def _clock_offset(now: str) -> timedelta | None:
    """Return how far a BMC's clock is ahead of ours, None where it is unknown or not ahead."""
    moment = parse_timestamp(now)
    if moment is None:
        return None
    difference = moment - datetime.now(UTC)
    return difference if abs(difference) > CLOCK_TOLERANCE else None
