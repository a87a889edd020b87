"""The part of the control address that is about events: make them, lose them, and say which there were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from simulator.service import Falcon

MOST_AT_ONCE = 20_000


class EventRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Events to make; `{n}` in the message is the number of each, from 1."""

    count: int = 1
    message_id: str = "ResourceEvent.1.3.ResourceChanged"
    message: str = "Test event {n}."
    severity: str = "OK"
    origin: str | None = None


class LogRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of the log: emptied, begun anew with number 1, or made to hold so many entries at most."""

    clear: bool = False
    begin_anew: bool = False
    limit: int | None = None


class EventControl:
    """The handlers; `chassis` finds the chassis that a request is about, at the present."""

    def __init__(self, chassis: Callable[[web.Request], Falcon]) -> None:
        self._chassis = chassis

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/events", self.events)
        application.router.add_post("/events", self.add_events)
        application.router.add_post("/events/log", self.change_log)

    async def events(self, request: web.Request) -> web.Response:
        """Answer every event that there was, in order, also those that stand in no log any more."""
        return _json([entry.event_record() for entry in self._chassis(request).events.told])

    async def add_events(self, request: web.Request) -> web.Response:
        """Make events, all at once; answers how many there were by then."""
        events = self._chassis(request).events
        wanted = msgspec.json.decode(await request.read(), type=EventRequest)
        if not 1 <= wanted.count <= MOST_AT_ONCE:
            raise ValueError(f"the count must lie between 1 and {MOST_AT_ONCE}")
        for number in range(1, wanted.count + 1):
            text = wanted.message.replace("{n}", str(number))
            events.emit(wanted.message_id, text, str(number), severity=wanted.severity, origin=wanted.origin)
        return _json({"events": len(events.told)}, status=201)

    async def change_log(self, request: web.Request) -> web.Response:
        """Change the log; answers how many entries it has."""
        events = self._chassis(request).events
        wanted = msgspec.json.decode(await request.read(), type=LogRequest)
        if wanted.limit is not None:
            events.resize(wanted.limit)
        if wanted.clear:
            events.clear()
        if wanted.begin_anew:
            events.begin_anew()
        return _json({"entries": len(events.entries)})


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
