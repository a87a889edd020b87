"""A Redfish client that limits the load on one BMC: one session, four concurrent requests, no blind retry of writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from fabric.bmc.addresses import BmcAddress
from fabric.bmc.errors import (
    BmcError,
    ForeignLink,
    Malformed,
    NotRedfish,
    RequestRefused,
    ServerFault,
    SignInRefused,
    TaskFailed,
    TimedOut,
    Unreachable,
    ZoneChanged,
)
from fabric.bmc.kept_connection import RawResponse
from fabric.bmc.sign_in import BmcSignIn, SharedAccess
from fabric.bmc.transport import (
    MAX_CONNECTIONS,
    BmcResponse,
    Transport,
    error_sentence,
    etag_of,
    one_line,
    parse_counted,
    parse_json_object,
)
from fabric.bmc.values import JsonObject, text

ROOT = "/redfish/v1/"
MAX_ROOT_VALUES = 10_000  # it stays in memory
TASK_SECONDS = 120.0
MIN_TASK_POLL_SECONDS = 0.1
MAX_TASK_POLL_SECONDS = 2.0
TASK_FAILURES = frozenset({"Exception", "Killed", "Cancelled"})
FINAL_TASK_STATES = TASK_FAILURES | {"Completed", ""}
REFUSAL_MEMORY_SECONDS = 60.0
# A monitor may vanish with its finished task, be at another host only, or be no matter of this account; every other
# status is the outcome of the task.
UNREADABLE_MONITOR = frozenset({401, 403, 404, 405, 410})


class BmcClient:
    """The client of one BMC. Belongs to the event loop that started it, and signs in when a request first needs it.

    `timeout` bounds each request, in seconds; `at_a_time` is how many of the BMC's four connections this client may
    use, where it shares the BMC with others. `before_write` is awaited right before each write, once that waits for
    nothing any more, and may raise to prevent it. `settle_seconds` is how long this BMC takes to show a change, as
    fabric.bmc.settling learned it; None: unknown. `access` is what it shares with other clients of the BMC.
    Usable as an async context manager or with start() and close().
    """

    def __init__(
        self,
        address: BmcAddress,
        *,
        timeout: float = 10.0,
        at_a_time: int = MAX_CONNECTIONS,
        before_write: Callable[[], Awaitable[None]] | None = None,
        settle_seconds: float | None = None,
        access: SharedAccess | None = None,
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._before_write = before_write
        self.settle_seconds = settle_seconds
        self.at_a_time = min(at_a_time, MAX_CONNECTIONS)
        self._transport = Transport(address.url, address.trust, timeout=timeout)
        self.host = self._transport.host
        self.streams = 0  # open event streams
        self.received = 0  # bytes of responses so far, decompressed
        self._gate = asyncio.Semaphore(self.at_a_time)
        self._access = access or SharedAccess()
        self._signed_in = BmcSignIn(
            address,
            access=self._access,
            exchange=self._exchange,
            read_root=self._read_root,
            path=self.path,
            own_path=self.own_path,
            host=self.host,
        )
        # Resources that refused a new session, and until when no other session is created for them: that would only
        # fill the BMC's table. For a limited time, since a starting BMC may refuse what it permits later.
        self._refusing: dict[str, float] = {}
        self.root: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Create the connection pool; sends nothing."""
        self._transport.open()

    async def rest(self) -> None:
        """Hold nothing that other clients wait for, until the next request."""
        await self._access.rest()

    async def close(self) -> None:
        """Delete the session on the BMC, if it responds, and close the connections."""
        await self._signed_in.end()
        await self._access.close()
        await self._transport.close()

    @property
    def signs_in(self) -> bool:
        """Return whether there are credentials."""
        return bool(self._address.username)

    def path(self, uri: str) -> str:
        """Return a link as a path on this BMC; raises ForeignLink for one that leaves it."""
        return self._transport.locate(uri).raw_path_qs

    def own_path(self, uri: str) -> str:
        """Return the path on this BMC of a link that may name another host: nothing is requested there.

        A BMC that was entered by its address answers with its host name, or the other way round. Raises ForeignLink for
        a link that is none to a Redfish service, Malformed for no URI.
        """
        try:
            return self.path(uri)
        except ForeignLink:
            path = str(URL(uri).relative())
            if not path.startswith(ROOT):
                raise
            return path

    def check_received(self, before: int, most: int) -> None:
        """Raise Malformed where more than `most` bytes came since `received` was `before`."""
        if self.received - before > most:
            raise Malformed(f"{self.host} answers with more than {most >> 20} MB; reading was aborted.")

    async def service_root(self) -> BmcResponse:
        """Return the service root, read without credentials. Raises NotRedfish if it is not a service root."""
        try:
            answer = self._accept(ROOT, await self._exchange("GET", ROOT))
        except (Malformed, RequestRefused, ForeignLink) as error:
            if isinstance(error, RequestRefused) and error.answered == 401 and self._signed_in.headers:
                answer = self._accept(ROOT, await self._exchange("GET", ROOT, headers=self._signed_in.headers))
            else:
                raise NotRedfish(f"{self.host} answers, but not as a Redfish service: {error.sentence}") from error
        if answer.values > MAX_ROOT_VALUES:
            raise NotRedfish(f"{self.host} has a service root of more than {MAX_ROOT_VALUES} values.")
        kind = answer.body.get("@odata.type")
        looks_right = isinstance(kind, str) and "ServiceRoot" in kind
        if not looks_right and not {"RedfishVersion", "Chassis", "Systems"} & answer.body.keys():
            raise NotRedfish(f"{self.host} answers, but not as a Redfish service: /redfish/v1/ is not a service root.")
        self.root = answer.body
        return answer

    async def _read_root(self) -> dict[str, Any]:
        return (await self.service_root()).body

    async def get(self, uri: str, *, timeout: float | None = None, is_repeated: bool = False) -> BmcResponse:
        """Return a resource; raises the BmcError that explains the failure. `is_repeated` as in `fetch`."""
        return self._accept(uri, await self.fetch("GET", uri, timeout=timeout, is_repeated=is_repeated))

    async def get_or_none(self, uri: str) -> JsonObject | None:
        """Return the body of a resource, None where the BMC has none there (404, 410); raises as `get` does."""
        try:
            return (await self.get(uri)).body
        except RequestRefused as error:
            if error.answered in {404, 410}:
                return None
            raise

    async def options(self, uri: str) -> str:
        """Return the Allow header that OPTIONS of a resource, which GET has just read, is answered with; '' for none.

        A 405 has that header, too. What some services do in place of an answer, as to hang up, is none; raises BmcError
        where the BMC is unreachable.
        """
        try:
            return (await self.fetch("OPTIONS", uri)).headers.get("Allow", "")
        except (TimedOut, Unreachable):
            await self.get(uri)
            return ""

    async def get_bytes(self, uri: str, *, is_repeated: bool = False) -> bytes:
        """Return a resource undecoded, for readers that decode into types of their own; `is_repeated` as in `fetch`."""
        raw = await self.fetch("GET", uri, is_repeated=is_repeated)
        if raw.status != 200:
            self._accept(uri, raw)
        return raw.body

    async def patch(self, uri: str, body: dict[str, Any], *, etag: str = "") -> BmcResponse:
        """Change a resource, only if it still has `etag` where one is given (412 otherwise)."""
        return await self._write("PATCH", uri, body, etag)

    async def post(self, uri: str, body: dict[str, Any], *, etag: str = "") -> BmcResponse:
        """Create a member or run an action; answers of 200, 201, 202 and 204 are all success."""
        return await self._write("POST", uri, body, etag)

    async def delete(self, uri: str, *, etag: str = "") -> BmcResponse:
        """Delete a resource, only if it still has `etag` where one is given (412 otherwise)."""
        return await self._write("DELETE", uri, None, etag)

    async def push(self, uri: str, content: aiohttp.Payload, *, headers: dict[str, str], timeout: float) -> BmcResponse:
        """Send a file, once, as it is read; a request before it should have signed in."""
        await self._signed_in.ensure()
        own = {**headers, **self._signed_in.headers}
        raw = await self._exchange(
            "POST", self.own_path(uri), headers=own, content=content, timeout=timeout, before=self._before_write
        )
        return self._accept(uri, raw)

    async def download(self, uri: str, *, most: int, silence: float) -> AsyncIterator[bytes]:
        """Yield a file as it comes; raises Malformed for more than `most` bytes, TimedOut after `silence` s without."""
        await self._signed_in.ensure()
        headers = {**self._signed_in.headers, "Accept": "*/*"}
        size = 0
        async with self._gate, self._transport.stream(self.path(uri), headers=headers, silence=silence) as response:
            if response.status != 200:
                self._accept(uri, RawResponse(response.status, response.headers, await response.content.read(65536)))
                raise RequestRefused(f"{self.host} answered {response.status}.", answered=response.status)
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > most:
                    raise Malformed(f"{self.host} sent a file larger than {most >> 20} MB; reading was aborted.")
                yield chunk

    async def _write(self, method: str, uri: str, body: dict[str, Any] | None, etag: str) -> BmcResponse:
        headers = {"If-Match": etag} if etag else {}
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        return self._accept(
            uri, await self.fetch(method, uri, headers=headers, content=content, before=self._before_write)
        )

    async def fetch(
        self,
        method: str,
        uri: str,
        *,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        is_repeated: bool = False,
    ) -> RawResponse:
        """Send an authenticated request and return any response; signs in again, once, if the session is gone (401).

        A 401 means that nothing was changed, so a write may be repeated after it. `is_repeated`: one of many GETs, as
        a walk makes one after the other and a poller each second; they share a connection, and take half the CPU.
        """
        path = self.path(uri)
        known = await self._signed_in.ensure()
        own = {**(headers or {}), **self._signed_in.headers}
        more: dict[str, Any] = {
            "content": content, "timeout": timeout, "before": before, "is_repeated": is_repeated,
        }  # fmt: skip
        raw = await self._exchange(method, path, headers=own, **more)
        if raw.status != 401 or not self.signs_in or self._refusing.get(path, 0.0) > time.monotonic():
            return raw
        await self._signed_in.renew(known)
        own = {**(headers or {}), **self._signed_in.headers}
        raw = await self._exchange(method, path, headers=own, **more)
        if raw.status == 401:
            self._refusing[path] = time.monotonic() + REFUSAL_MEMORY_SECONDS
        return raw

    async def _exchange(
        self,
        method: str,
        uri: str,
        *,
        headers: dict[str, str] | None = None,
        content: bytes | aiohttp.Payload | None = None,
        timeout: float | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        is_repeated: bool = False,
    ) -> RawResponse:
        async with self._gate, self._access.request(self.host, timeout or self._timeout):
            if before is not None:
                await before()
            if is_repeated:
                raw = await self._transport.send_again(uri, headers=headers or {})
            else:
                raw = await self._transport.send(method, uri, headers=headers or {}, content=content, timeout=timeout)
            self.received += len(raw.body)
            return raw

    @asynccontextmanager
    async def stream(
        self, uri: str, *, last_event_id: str = "", silence: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open an event stream; it is no request that the BMC works on, and counts as none while it is open."""
        known = await self._signed_in.ensure()
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        for attempt in (1, 2):
            signed = {**headers, **self._signed_in.headers}
            async with self._transport.stream(self.own_path(uri), headers=signed, silence=silence) as response:
                if response.status == 200:
                    self.streams += 1
                    try:
                        yield response
                    finally:
                        self.streams -= 1
                    return
                raw = RawResponse(response.status, response.headers, await response.content.read(65536))
            if raw.status != 401 or attempt == 2 or not self.signs_in:
                self._accept(uri, raw)
                raise RequestRefused(f"{self.host} opens no event stream.", answered=raw.status)
            await self._signed_in.renew(known)

    def _accept(self, uri: str, raw: RawResponse) -> BmcResponse:
        """Return a decoded 2xx response; raises the error of any other status."""
        where = f"{self.host}{uri.split('?', 1)[0]}" if uri.startswith("/") else self.host
        if 200 <= raw.status < 300:
            body, values = parse_counted(raw.body, where=where)
            return BmcResponse(
                status=raw.status, headers=raw.headers, body=body, etag=etag_of(raw.headers, body),
                digest=hash(raw.body), size=len(raw.body), values=values,
            )  # fmt: skip
        try:
            body = parse_json_object(raw.body, where=where)
        except Malformed:
            body = {}
        reason = error_sentence(body)
        detail = f": {reason}" if reason else "."
        if raw.status >= 500:
            raise ServerFault(f"{where} answered {raw.status}{detail}", answered=raw.status, body=body)
        if raw.status == 401 and not self.signs_in:
            raise SignInRefused(f"{where} requires a name and password.", answered=401)
        raise RequestRefused(f"{where} answered {raw.status}{detail}", answered=raw.status, reason=reason)

    async def finish(
        self,
        answer: BmcResponse,
        *,
        timeout: float = TASK_SECONDS,
        progress: Callable[[JsonObject], Awaitable[None]] | None = None,
    ) -> BmcResponse:
        """Follow a 202 to the end of its task and return the last response; others are returned unchanged.

        So is a 202 whose task cannot be read here, such as one whose monitor is only at another host: what was to
        change shows the end of it then. Raises TaskFailed with the task's own message, TimedOut after `timeout` s. A
        BMC that is unreachable for a moment (as during a reboot) is retried until then. `progress` is awaited with each
        answer of the monitor, and may raise to give up.
        """
        if answer.status != 202:
            return answer
        if not (monitor := monitor_of(answer)):
            return answer
        deadline = time.monotonic() + timeout
        pause = MIN_TASK_POLL_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MAX_TASK_POLL_SECONDS)
            try:
                state = await self.get(self.own_path(monitor))
            except (ServerFault, Unreachable, TimedOut):
                state = answer
            except (ForeignLink, Malformed):
                return answer
            except RequestRefused as error:
                if error.answered in UNREADABLE_MONITOR:
                    return answer
                raise
            if progress is not None:
                await progress(state.body)
            # At its end, or no task at all.
            if text(state.body, "TaskState") in FINAL_TASK_STATES and (
                state.status != 202 or "TaskState" in state.body
            ):
                return self._outcome(state)
            if time.monotonic() > deadline:
                raise TimedOut(f"{self.host} did not finish its task within {timeout:.0f} s.")

    def _outcome(self, state: BmcResponse) -> BmcResponse:
        task_state = text(state.body, "TaskState")
        if task_state in TASK_FAILURES or state.body.get("error"):
            messages = state.body.get("Messages")
            reason = error_sentence({"@Message.ExtendedInfo": messages} if messages else state.body)
            raise TaskFailed(f"{self.host} did not complete its task: {reason or one_line(task_state)}")
        return state


def monitor_of(answer: BmcResponse) -> str:
    """Return the address of the monitor of an accepted task, '' where a response names none."""
    uri = answer.headers.get("Location") or answer.body.get("TaskMonitor") or answer.body.get("@odata.id")
    return uri if isinstance(uri, str) else ""


REQUEST_SECONDS = 10.0  # timeout of one request to the BMC
CONNECTIONS_PER_OPERATION = 1  # of the two of a BMC's four that all but the poller share (fabric.inventory.access)
OUTAGE_SECONDS = 60.0  # how long requests are retried while a BMC is unreachable
MIN_RETRY_PAUSE = 0.2
MAX_RETRY_PAUSE = 3.0

Result = TypeVar("Result")


async def retry_while_unreachable(
    request: Callable[[], Awaitable[Result]], *, pausing: Callable[[BmcError, float], Awaitable[None]] | None = None
) -> Result:
    """Return the result of `request`, called again while the BMC is unreachable or a zone changes concurrently.

    `pausing` is awaited with the error and a time in s before each retry: it waits that long, or raises to give up.
    Raises the last BmcError after OUTAGE_SECONDS.
    """
    end = time.monotonic() + OUTAGE_SECONDS
    pause = MIN_RETRY_PAUSE
    while True:
        try:
            return await request()
        except BmcError as error:
            why = error
            if not (error.retry_helps or isinstance(error, ZoneChanged)) or time.monotonic() + pause > end:
                raise
        await (asyncio.sleep(pause) if pausing is None else pausing(why, pause))
        pause = min(pause * 2, MAX_RETRY_PAUSE)
