"""What is let in before Django sees it: requests of a bearable size, and websockets of the site's own pages."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.urls import re_path

from falconweb.api.problems import CONTENT_TYPE, PREFIX, problem_document
from falconweb.audit import HEADER, refused_at_the_gate
from falconweb.threads import in_thread

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


class _TooLargeError(Exception):
    """More came than a request may carry."""


class BodyLimit:
    """Refuses requests that are larger than what `LARGEST` and `LARGEST_WITH_FILE` say, in bytes, from strangers too.

    Django writes a body of any size to the disk before it looks at the request, and the API reads it into memory.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413."""
        largest = LARGEST_WITH_FILE if str(scope["path"]).startswith(WITH_FILE) else LARGEST
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:19]) > largest:
            await self._refuse(scope, send, largest)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > largest:
                raise _TooLargeError
            return message

        try:
            await self.application(scope, counted, send)
        except _TooLargeError:
            # Bodies are read whole before anything is answered.
            await self._refuse(scope, send, largest)

    async def _refuse(self, scope: Scope, send: Send, largest: int) -> None:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        sentence = f"This request is larger than {largest // 2**10} KiB."
        if scope["path"].startswith(PREFIX):
            kind, text = CONTENT_TYPE, json.dumps(problem_document(status.value, sentence, "too_large"))
        else:
            kind, text = "text/plain; charset=utf-8", f"{sentence}\n"
        body = text.encode()
        reference: str = await in_thread(refused_at_the_gate, dict(scope), status.value, sentence)
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (HEADER.lower().encode(), reference.encode()),
        ]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})


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
