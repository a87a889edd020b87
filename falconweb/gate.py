"""What is let in before Django sees it: requests of a bearable size, and websockets of the site's own pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.urls import re_path

from benchmarks.records.content import LARGEST as LARGEST_RECORDS
from benchmarks.records.content import TOO_LARGE as TOO_LARGE_RECORDS
from fabric.allocation.reading import TOO_LARGE as TOO_LARGE_FILE
from falconweb.middleware import TOO_LARGE

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[Any]]

SIGN_OFF = 4404
LARGEST = 2_560 * 2**10
# Where a file of 5 MiB is taken, alone or in a form; a form without a file may be as large.
LARGEST_WITH_FILE: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
WITH_FILE = ("/allocation/", "/api/v1/allocation/")
# Where records of runs are taken, alone or in a form: with the rest of the form.
LARGEST_WITH_RECORDS = LARGEST_RECORDS + 2**20
WITH_RECORDS = ("/benchmarks/records/", "/api/v1/benchmarks/records/")
# What is read and thrown away of a body that is refused, so that its sender hears why.
MOST_DROPPED = 64 * 2**20
DROP_SECONDS, IDLE_SECONDS = 15.0, 2.0


async def _dropped(receive: Receive) -> None:
    """Read on for a while what a client sends: one that does not look for an answer before its end hears it then."""
    dropped, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(DROP_SECONDS):
            while more and dropped <= MOST_DROPPED:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await receive()
                dropped += len(message.get("body", b""))
                more = message.get("more_body", False)


def _without_body() -> Receive:
    """Return what an application receives in the place of a body that was refused: nothing, and then no word more."""
    is_told = False

    async def receive() -> Message:
        nonlocal is_told
        if is_told:
            await asyncio.Event().wait()
        is_told = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


class _TooLargeError(Exception):
    """More came than a request may carry."""


def _largest(path: str) -> int:
    """Return how many bytes a request to an address may have."""
    if path.startswith(WITH_RECORDS):
        return LARGEST_WITH_RECORDS
    return LARGEST_WITH_FILE if path.startswith(WITH_FILE) else LARGEST


class BodyLimit:
    """Refuses requests that are larger than what `LARGEST` and `LARGEST_WITH_FILE` say, in bytes, from strangers too.

    Django writes a body of any size to the disk before it looks at the request, and the API reads it into memory: here
    it sees none, and says so as it says everything else.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413."""
        largest = _largest(str(scope["path"]))
        headers = dict(scope["headers"])
        text = headers.get(b"content-length", b"0")
        declared = int(text[:19]) if text.isdigit() else 0
        if declared > largest:
            # Who asks before it sends is answered before it does.
            if declared <= MOST_DROPPED and b"expect" not in headers:
                await _dropped(receive)
            await self._refuse(scope, send, largest)
            return
        received, more = 0, True

        async def counted() -> Message:
            nonlocal received, more
            message = await receive()
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > largest:
                raise _TooLargeError
            return message

        try:
            await self.application(scope, counted, send)
        except _TooLargeError:
            # Bodies are read whole before anything is answered.
            if more:
                await _dropped(receive)
            await self._refuse(scope, send, largest)

    async def _refuse(self, scope: Scope, send: Send, largest: int) -> None:
        if largest == LARGEST_WITH_FILE:
            sentence = TOO_LARGE_FILE
        elif largest == LARGEST_WITH_RECORDS:
            sentence = TOO_LARGE_RECORDS
        else:
            sentence = f"This request is larger than {largest // 2**10} KiB: send less at once."

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self.application({**scope, TOO_LARGE: sentence}, _without_body(), closing)


class OwnPagesOnly:
    """Lets a websocket in only from a page of this very site, port included.

    Cookies know no ports, so that a page of another server on the same host would open a socket as its visitor.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the socket on, or deny it."""
        headers = {name: value.decode("latin-1").lower() for name, value in scope["headers"]}
        origin = headers.get(b"origin", "")
        own = [f"https://{headers.get(b'host', '')}"]
        if not settings.CONFIG.https:
            own.append(f"http://{headers.get(b'host', '')}")
        known = urlsplit(origin).netloc != "" and (origin in own or origin in settings.CSRF_TRUSTED_ORIGINS)
        inside: Any = self.application if known else WebsocketDenier.as_asgi()
        await inside(scope, receive, send)


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """Close a websocket to an address that is none."""
    await receive()
    await send({"type": "websocket.close", "code": SIGN_OFF})


# The last of the addresses of websockets: without it one that is none is an error, told at length in the log.
ELSEWHERE: Any = re_path("", cast("Any", nothing_here))
