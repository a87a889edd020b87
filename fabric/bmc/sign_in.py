"""Authentication of a client at a BMC: one session or, where it creates none, Basic; never more tries than are due."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from fabric.bmc.addresses import BmcAddress
from fabric.bmc.errors import BmcError, ForeignLink, SignInRefused
from fabric.bmc.kept_connection import RawResponse
from fabric.bmc.transport import parse_json_object
from fabric.bmc.values import text

END_SECONDS = 3.0
WITHOUT_SESSIONS = frozenset({400, 401, 403, 404, 405, 501})  # answers of services that create none
MAX_LEFT_SESSIONS = 8  # of one address
# Sessions that could not be deleted, by address: URI and token. A BMC that restarts may keep them.
_left_sessions: defaultdict[BmcAddress, list[tuple[str, str]]] = defaultdict(list)


class SharedAccess:
    """What all clients of one BMC have in common; this one has nothing, those of a site ask each other.

    A BMC may lock an account for everybody after a few refused passwords.
    """

    async def begin_sign_in(self, host: str) -> tuple[bool, bool]:
        """Return whether to try a session, and Basic; raises SignInRefused while no try is due."""
        return True, True

    async def end_sign_in(self, *, accepted: bool | None, by_basic: bool = False) -> None:
        """Take note of the result of a try; None: the BMC did not say."""

    def request(self, host: str, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold one of the BMC's concurrent requests for at most so many s; raises TimedOut where none gets free."""
        return nullcontext()

    async def rest(self) -> None:
        """Hold no concurrent request for the next one."""

    async def close(self) -> None:
        """Close the connections to other clients."""


class BmcSignIn:
    """The authentication of one client; `exchange` sends a request, `read_root` returns the service root."""

    def __init__(
        self,
        address: BmcAddress,
        *,
        access: SharedAccess,
        exchange: Callable[..., Awaitable[RawResponse]],
        read_root: Callable[[], Awaitable[dict[str, Any]]],
        path: Callable[[str], str],
        own_path: Callable[[str], str],
        host: str,
    ) -> None:
        self._address = address
        self._access = access
        self._exchange = exchange
        self._read_root = read_root
        self._path = path
        self._own_path = own_path
        self._host = host
        self._lock = asyncio.Lock()
        self._session_uri = ""
        self._count = 0
        self.headers: dict[str, str] = {}

    async def ensure(self) -> int:
        """Sign in if necessary, with a session that was left where there is one; return the number of the sign-in."""
        if self._address.username and not self.headers:
            if left := _left_sessions.get(self._address):
                self._session_uri, token = left.pop()
                self.headers, self._count = {"X-Auth-Token": token}, self._count + 1
            else:
                await self.renew(self._count)
        return self._count

    async def renew(self, known: int) -> None:
        """Sign in, unless another request did so since sign-in `known`."""
        async with self._lock:
            if self._count != known:
                return
            # Concurrent requests still use the old headers; they get a 401, and wait here.
            before = (self._session_uri, self.headers)
            self._session_uri = ""
            try:
                self.headers = await self._sign_in()
            except BmcError:
                self.headers = {}
                raise
            self._count += 1
            await self._delete(*before)

    async def end(self) -> None:
        """Delete the session on the BMC; one that cannot be deleted for now is used by the next client."""
        if self._session_uri and not await self._delete(self._session_uri, self.headers):
            left = _left_sessions[self._address]
            left.append((self._session_uri, self.headers["X-Auth-Token"]))
            del left[:-MAX_LEFT_SESSIONS]
        self._session_uri, self.headers, self._count = "", {}, 0

    async def _delete(self, session_uri: str, headers: dict[str, str]) -> bool:
        """Delete a session with its own token, so that it is never another client's; return whether it is gone.

        One that the BMC has refused for one resource may still be valid, and so is one that it fails to delete (5xx).
        """
        if not session_uri:
            return True
        try:
            answer = await self._exchange("DELETE", session_uri, headers=headers, timeout=END_SECONDS)
        except BmcError:
            return False
        return answer.status < 500

    async def _sign_in(self) -> dict[str, str]:
        """Return the authentication headers: of a session, or Basic where the BMC creates none.

        Real services answer the creation of a session with 401, 400, 404, 405 or 501 and yet accept Basic, so that only
        the response to Basic shows whether the credentials are correct.
        """
        root = await self._read_root()
        try_session, try_basic = await self._access.begin_sign_in(self._host)
        try:
            return await self._try(root, try_session=try_session, try_basic=try_basic)
        except SignInRefused:
            await self._access.end_sign_in(accepted=False)
            raise
        except BmcError:
            await self._access.end_sign_in(accepted=None)
            raise

    async def _try(self, root: dict[str, Any], *, try_session: bool, try_basic: bool) -> dict[str, str]:
        has_sessions = False
        if try_session:
            raw = await self._create_session(root)
            token = raw.headers.get("X-Auth-Token")
            if 200 <= raw.status < 300 and token:
                self._session_uri = self._session_of(raw)
                await self._access.end_sign_in(accepted=True)
                return {"X-Auth-Token": token}
            if raw.status == 401 and not try_basic:
                raise self._refusal()
            has_sessions = raw.status not in WITHOUT_SESSIONS  # but no more of them for now
        headers = await self._basic(root)
        await self._access.end_sign_in(accepted=True, by_basic=not has_sessions)
        return headers

    def _refusal(self) -> SignInRefused:
        return SignInRefused(f"{self._host} refuses this name and password.", answered=401)

    async def _create_session(self, root: dict[str, Any]) -> RawResponse:
        sessions = text(root, "Links", "Sessions", "@odata.id") or "/redfish/v1/SessionService/Sessions"
        credentials = {"UserName": self._address.username, "Password": self._address.password}
        try:
            return await self._exchange(
                "POST",
                self._path(sessions),
                headers={"Content-Type": "application/json"},
                content=msgspec.json.encode(credentials),
            )
        except ForeignLink:
            return RawResponse(404, {}, b"")

    def _session_of(self, raw: RawResponse) -> str:
        """Return the new session's path, from Location or from its body; '' where neither has it."""
        with contextlib.suppress(BmcError):
            body = parse_json_object(raw.body, where=self._host)
            uri = raw.headers.get("Location") or body.get("@odata.id")
            return self._own_path(uri) if isinstance(uri, str) else ""
        return ""

    async def _basic(self, root: dict[str, Any]) -> dict[str, str]:
        pair = f"{self._address.username}:{self._address.password}".encode()
        headers = {"Authorization": "Basic " + base64.b64encode(pair).decode()}
        for name in ("Managers", "Chassis", "Systems", "SessionService"):
            uri = text(root, name, "@odata.id")
            if not uri:
                continue
            with contextlib.suppress(ForeignLink):
                raw = await self._exchange("GET", self._path(uri), headers=headers)
                if raw.status == 401:
                    raise self._refusal()
                break
        return headers
