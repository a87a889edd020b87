"""ASGI middleware: limits of request bodies, origin and session of websockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from channels.sessions import InstanceSessionWrapper, SessionMiddleware
from django.conf import settings
from django.urls import Resolver404, re_path, resolve

from accounts.declaration import declaration_of
from falconweb.middleware import TOO_LARGE

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[Any]]

NOT_FOUND_CLOSE_CODE = 4404
MAX_BODY_BYTES = 2_560 * 2**10
SITE_LIMIT = (MAX_BODY_BYTES, f"This request is larger than {MAX_BODY_BYTES // 2**10} KiB: send less at once.")
# A refused body is read and discarded up to this size, so that its sender gets the answer.
MAX_DRAINED_BYTES = 64 * 2**20
DRAIN_SECONDS, IDLE_SECONDS = 15.0, 2.0


async def _drain_body(receive: Receive) -> None:
    """Read the rest of a body for a while: some clients read the answer only after they have sent all."""
    dropped, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and dropped <= MAX_DRAINED_BYTES:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await receive()
                dropped += len(message.get("body", b""))
                more = message.get("more_body", False)


def _empty_receive() -> Receive:
    """Return the `receive` of an application whose request body was refused: an empty body, then nothing."""
    is_received = False

    async def receive() -> Message:
        nonlocal is_received
        if is_received:
            await asyncio.Event().wait()
        is_received = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


class _TooLargeError(Exception):
    """The body is larger than allowed."""


def _body_limit(scope: Scope) -> tuple[int, str]:
    """Return the limit of a request's body in bytes, and the sentence for more: those of its address, or the site's."""
    try:
        callback = resolve(scope["path"]).func
    except Resolver404:
        return SITE_LIMIT
    return declaration_of(callback, scope["method"]).body_limit or SITE_LIMIT


class BodyLimit:
    """Refuses requests larger than the site's limit, or than the limit that their view declares, before any sign-in.

    Django writes a body of any size to the disk before it handles the request, and the API reads it into memory. A
    refused body does not reach them: they get an empty one, and answer in their usual form.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413."""
        largest, sentence = SITE_LIMIT
        headers = dict(scope["headers"])
        text = headers.get(b"content-length", b"0")
        content_length = int(text[:19]) if text.isdigit() else 0
        if content_length > largest:
            # Resolved only here: most requests are small.
            largest, sentence = _body_limit(scope)
        if content_length > largest:
            # A client that expects '100 Continue' gets the answer before it sends the body.
            if content_length <= MAX_DRAINED_BYTES and b"expect" not in headers:
                await _drain_body(receive)
            await self._refuse(scope, send, sentence)
            return
        received, more = 0, True

        async def counted() -> Message:
            nonlocal received, more, largest, sentence
            message = await receive()
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > largest:
                largest, sentence = _body_limit(scope)
            if received > largest:
                raise _TooLargeError
            return message

        try:
            await self.application(scope, counted, send)
        except _TooLargeError:
            # Nothing was sent yet: applications read the whole body before they respond.
            if more:
                await _drain_body(receive)
            await self._refuse(scope, send, sentence)

    async def _refuse(self, scope: Scope, send: Send, sentence: str) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self.application({**scope, TOO_LARGE: sentence}, _empty_receive(), closing)


class SameOriginOnly:
    """Admits a websocket only from a page of this site, port included.

    Cookies do not distinguish ports: a page of another server on the same host could open a socket as its visitor.
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


async def close_unknown_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Close a websocket to an unknown address."""
    await receive()
    await send({"type": "websocket.close", "code": NOT_FOUND_CLOSE_CODE})


# The last of the addresses of websockets: without it an unknown one is an error with a traceback in the log.
UNKNOWN_SOCKET: Any = re_path("", cast("Any", close_unknown_socket))


class SocketSessionMiddleware(SessionMiddleware):
    """Channels' session middleware without its check of the session before each outgoing message.

    A websocket cannot set a cookie, so the check is useless; it costs more than the frame.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Put the session into the scope and pass the socket on."""
        wrapper = InstanceSessionWrapper(scope, send)
        await wrapper.resolve_session()
        inner: Any = self.inner
        return await inner(wrapper.scope, receive, send)
