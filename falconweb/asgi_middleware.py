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
from django.contrib.auth import get_user
from django.db import DatabaseError
from django.http import HttpRequest, parse_cookie
from django.urls import Resolver404, re_path, resolve

from accounts.declaration import declaration_of
from accounts.sign_in.security import SessionStore
from core.errors import FalconWebError, TooLarge, TooSlow
from core.language import gettext_noop
from core.threads import run_in_thread
from falconweb.api.authentication import find_token
from falconweb.middleware import BODY_REFUSED

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[Any]]

NOT_FOUND_CLOSE_CODE = 4404
MAX_BODY_BYTES = 2_560 * 2**10
# Sentences without values: the language of the person is known once they are handled, see refused_body_middleware.
SITE_LIMIT = (MAX_BODY_BYTES, gettext_noop("This request is larger than 2560 KiB: send less at once."))
STRANGER_BYTES, STRANGER_SECONDS = 64 * 2**10, 20.0  # of a whole body without a sign-in
STRANGER_LIMIT = (
    STRANGER_BYTES,
    gettext_noop("Nobody is signed in, and such a request has 64 KiB at most. Sign in and do it again."),
)
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


class _BodyRefusedError(Exception):
    """The body is not read any further; `reason` is the error for its sender."""

    def __init__(self, reason: FalconWebError) -> None:
        super().__init__(reason.sentence)
        self.reason = reason


def _body_limit(scope: Scope) -> tuple[int, str]:
    """Return the limit of a request's body in bytes, and the sentence for more: those of its address, or the site's."""
    try:
        callback = resolve(scope["path"]).func
    except Resolver404:
        return SITE_LIMIT
    return declaration_of(callback, scope["method"]).body_limit or SITE_LIMIT


def _is_signed_in(headers: dict[bytes, bytes]) -> bool:
    """Return whether a request has a valid session or token; True where the database does not answer."""
    request = HttpRequest()
    cookies = parse_cookie(headers.get(b"cookie", b"").decode("latin-1"))
    try:
        if find_token(headers.get(b"authorization", b"").decode("latin-1")) is not None:
            return True
        request.session = SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
        return get_user(request).is_authenticated
    except DatabaseError:
        # The request itself reports it.
        return True


class _BodyReader:
    """The `receive` of an application that reads a body up to its limits; raises _BodyRefusedError beyond them.

    A stranger's body is small and arrives soon. Session and token are looked up only for others.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope, self._receive = scope, receive
        self._headers = dict(scope["headers"])
        self._received = 0
        self._largest, self._sentence = STRANGER_LIMIT
        self._deadline: float | None = asyncio.get_running_loop().time() + STRANGER_SECONDS
        self.more = True  # whether there is more of the body

    async def __call__(self) -> Message:
        """Return the next message."""
        if not self.more:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            await self._admit(TooSlow(gettext_noop("This request did not arrive within 20 s: send it again.")))
            message = await self._receive()
        self.more = message.get("more_body", False)
        self._received += len(message.get("body", b""))
        await self.check_size(self._received)
        return message

    async def check_size(self, size: int) -> None:
        """Check a number of bytes."""
        if size <= self._largest:
            return
        allowed, sentence = _body_limit(self._scope)
        if size > allowed:
            raise _BodyRefusedError(TooLarge(sentence))
        await self._admit(TooLarge(self._sentence))

    async def _admit(self, otherwise: FalconWebError) -> None:
        """Allow what the address does to who is signed in; others are refused with an error."""
        if self._deadline is not None and not await run_in_thread(_is_signed_in, self._headers):
            raise _BodyRefusedError(otherwise)
        self._deadline = None
        self._largest, self._sentence = _body_limit(self._scope)


class BodyLimit:
    """Refuses requests larger than the site's limit, or than the limit that their view declares, before any sign-in.

    Django writes a body of any size to the disk before it handles the request, and the API reads it into memory. A
    refused body does not reach them: they get an empty one, and answer in their usual form.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413, or 408 to a stranger who sends slowly."""
        headers = dict(scope["headers"])
        text = headers.get(b"content-length", b"0")
        content_length = int(text[:19]) if text.isdigit() else 0
        reader = _BodyReader(scope, receive)
        try:
            await reader.check_size(content_length)
        except _BodyRefusedError as refused:
            # A client that expects '100 Continue' gets the answer before it sends the body.
            if content_length <= MAX_DRAINED_BYTES and b"expect" not in headers:
                await _drain_body(receive)
            await self._refuse(scope, send, refused.reason)
            return
        try:
            await self.application(scope, reader, send)
        except _BodyRefusedError as refused:
            # Nothing was sent yet: applications read the whole body before they respond.
            if reader.more and isinstance(refused.reason, TooLarge):
                await _drain_body(receive)
            await self._refuse(scope, send, refused.reason)

    async def _refuse(self, scope: Scope, send: Send, reason: FalconWebError) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self.application({**scope, BODY_REFUSED: reason}, _empty_receive(), closing)


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
