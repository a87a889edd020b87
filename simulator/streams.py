"""Event streams: server-sent events over HTTP/1.1."""

from __future__ import annotations

import asyncio

from aiohttp import web

from simulator.errors import RedfishError
from simulator.events import MAX_STREAMS
from simulator.service import Falcon

KEEP_ALIVE_SECONDS = 15.0


async def stream_events(falcon: Falcon, request: web.BaseRequest) -> web.StreamResponse:
    """Send every event from now on until the client leaves, or the subscription is deleted.

    Refuses a client that does not take text/event-stream (406) and one stream too many (503).
    """
    accept = request.headers.get("Accept", "*/*")
    if not any(kind in accept for kind in ("text/event-stream", "text/*", "*/*")):
        raise RedfishError(406, "HeaderInvalid", "The event stream is sent as text/event-stream alone.")
    if falcon.faults.is_active("event_stream_missing"):
        raise RedfishError(404, "ResourceMissingAtURI", "There is no event stream.")
    if falcon.events.streams >= MAX_STREAMS:
        raise RedfishError(503, "EventSubscriptionLimitExceeded", "There are too many event streams.")
    if any(name.startswith("$") for name in request.rel_url.query):
        raise RedfishError(501, "QueryParameterNotSupported", "The event stream takes no filter.")
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream;charset=utf-8", "Cache-Control": "no-cache", "OData-Version": "4.0"}
    )
    subscription = falcon.events.subscribe(destination=None)
    subscription.is_connected = lambda: request.transport is not None and not request.transport.is_closing()
    try:
        await response.prepare(request)
        await response.write(b": the stream is open\n\n")
        while True:
            try:
                entry = await asyncio.wait_for(subscription.queue.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                await response.write(b": still here\n\n")
                continue
            if entry is None:
                break
            named = not falcon.faults.is_active("events_without_id")
            data = entry.payload(subscription.context, named=named)
            line = b"id: %d\n" % entry.number if named else b""
            message = b"%bdata: %b\n\n" % (line, data)
            if falcon.faults.take("event_stream_cut") is not None:
                await response.write(message[: len(message) // 2])
                break
            await response.write(message)
        response.force_close()
    except (ConnectionError, OSError):
        pass
    finally:
        falcon.events.unsubscribe(subscription.id)
    return response
