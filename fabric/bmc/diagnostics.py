"""Logs of a BMC as a file: its diagnostic data (`CollectDiagnosticData`) where it offers them, else its log entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import CompositionRefused, Malformed, RequestRefused
from fabric.bmc.values import JsonObject, link, links, mapping, objects, text, texts

COLLECT = "#LogService.CollectDiagnosticData"
COLLECT_SECONDS = 900.0
MAX_ENTRY_PAGES = 1000  # of at most 1000 entries each
PREFERRED_TYPES = ("Manager", "OEM")


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """A log service of a manager: where its entries are, and how it collects diagnostic data, '' where it does not."""

    name: str
    entries_uri: str
    target: str = ""
    data_type: str = ""


async def find_log_sources(bmc: BmcClient, manager_uri: str) -> list[LogSource]:
    """Return the log services of a manager, those that collect diagnostic data first; raises as `get` does."""
    services = link((await bmc.get(manager_uri)).body, "LogServices")
    found = []
    for uri in links((await bmc.get(services)).body, "Members") if services else ():
        body = (await bmc.get(uri)).body
        action = mapping(body, "Actions", COLLECT)
        types = texts(action, "DiagnosticDataType@Redfish.AllowableValues")
        found.append(
            LogSource(
                name=text(body, "Id") or uri.rpartition("/")[2],
                entries_uri=link(body, "Entries"),
                target=text(action, "target"),
                data_type=next((one for one in PREFERRED_TYPES if one in types), next(iter(types), "Manager")),
            )
        )
    return sorted((one for one in found if one.entries_uri), key=lambda one: not one.target)


async def collect_diagnostics(
    bmc: BmcClient, source: LogSource, progress: Callable[[JsonObject], Awaitable[None]]
) -> str:
    """Have diagnostic data collected; returns the address of the file. Raises CompositionRefused, TaskFailed."""
    before = {uri async for uri, _ in _data_entries(bmc, source.entries_uri)}
    try:
        answer = await bmc.post(source.target, {"DiagnosticDataType": source.data_type})
        done = await bmc.finish(answer, timeout=COLLECT_SECONDS, progress=progress)
    except RequestRefused as error:
        raise CompositionRefused(error.reason or "Its service refused it.", answered=error.answered) from error
    named = done.headers.get("Location") or text(done.body, "@odata.id")
    if "/Entries/" in named and (data := text((await bmc.get(bmc.own_path(named))).body, "AdditionalDataURI")):
        return data
    async for uri, data in _data_entries(bmc, source.entries_uri):
        if uri not in before:
            return data
    raise CompositionRefused("It collected diagnostic data, and tells no address of them.")


async def _data_entries(bmc: BmcClient, entries_uri: str) -> AsyncIterator[tuple[str, str]]:
    """Yield the entries that have a file, as their own address and that of the file."""
    async for entry in log_entries(bmc, entries_uri):
        if data := text(entry, "AdditionalDataURI"):
            yield text(entry, "@odata.id"), data


async def log_entries(bmc: BmcClient, entries_uri: str) -> AsyncIterator[JsonObject]:
    """Yield all entries of a log; raises Malformed for one that does not end."""
    page, seen = entries_uri, set[str]()
    while page:
        if page in seen or len(seen) >= MAX_ENTRY_PAGES:
            raise Malformed(f"{bmc.host} has a log that does not end.")
        seen.add(page)
        body = (await bmc.get(page)).body
        for entry in objects(body, "Members"):
            yield entry if len(entry) > 1 else (await bmc.get(bmc.own_path(text(entry, "@odata.id")))).body
        following = text(body, "Members@odata.nextLink")
        page = bmc.own_path(following) if following else ""
