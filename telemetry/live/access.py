"""What the people of open sockets may see: of all together, after an announcement and each SWEEP_SECONDS anyway.

Announcements come by Redis, which may lose them, and a session ends by itself, too. A look at a thousand sockets takes
a few queries; one look for each of them took a tenth of a core.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, load_backend
from django.utils.crypto import constant_time_compare

from accounts.models import BrowserSession, User
from accounts.second_factor.selectors import STRONG_METHODS, without_required_factor
from accounts.sign_in.security import SessionStore
from accounts.sign_in.services import SESSION_METHOD
from fabric.inventory.selectors import ReadingScope, reading_scopes
from telemetry.live.hub import SocketSubscriber, hub

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 30.0  # what nobody announced is found within this time
COLLECT_SECONDS = 0.5  # announcements come in bursts, and to all web processes at once
BATCH_SOCKETS, PAUSE_SECONDS = 200, 0.05  # between batches, browsers that subscribe get their turn
RETRY_SECONDS = 5.0  # where the database does not answer

Scopes = dict[int, ReadingScope]


@dataclass(frozen=True)
class ShownChassis:
    """The chassis (ids) that a socket shows or is to show, its session, and that one's person (id)."""

    session: str
    person: int
    chassis: frozenset[int]


def current_scopes(sockets: Sequence[ShownChassis]) -> list[Scopes | None]:
    """Return what each socket's person may see of its chassis; None where the session is no longer valid.

    The number of queries does not grow with that of the sockets, only with that of the tenants that they are of.
    """
    people = _signed_in({one.session: one.person for one in sockets})
    wanted: dict[tuple[bool, int | None], set[int]] = defaultdict(set)
    for one in sockets:
        if (person := people.get(one.session)) is not None:
            wanted[_sight(person)] |= one.chassis
    anybody = {_sight(person): person for person in people.values()}
    found = {sight: reading_scopes(anybody[sight], chassis) for sight, chassis in wanted.items()}
    return [
        None
        if (person := people.get(one.session)) is None
        else {pk: scope for pk, scope in found[_sight(person)].items() if pk in one.chassis}
        for one in sockets
    ]


def _sight(person: User) -> tuple[bool, int | None]:
    """Return what people have in common who see the same."""
    return person.is_administrator, person.tenant_id


def _signed_in(persons: dict[str, int]) -> dict[str, User]:
    """Return the person of each session (keys) that is valid; `persons` are the ids of those who opened it."""
    # A new password ends sessions of the old one, and an identity provider that was switched off those of its people.
    rows = BrowserSession.live().filter(pk__in=persons).values_list("session_key", "session_data")
    stored: dict[str, dict[str, Any]] = {key: SessionStore().decode(data) for key, data in rows}
    of_backend: dict[str, set[int]] = defaultdict(set)
    for key, session in stored.items():
        of_backend[session.get(BACKEND_SESSION_KEY, "")].add(persons[key])
    known = {name: _backend_users(name, ids) for name, ids in of_backend.items()}
    found = {
        key: person
        for key, session in stored.items()
        if (person := known[session.get(BACKEND_SESSION_KEY, "")].get(persons[key])) is not None
    }
    hashes = {person.pk: person.get_session_auth_hash() for person in found.values()}
    unequipped = without_required_factor(list({person.pk: person for person in found.values()}.values()))
    return {
        key: person
        for key, person in found.items()
        if constant_time_compare(stored[key].get(HASH_SESSION_KEY, ""), hashes[person.pk])
        and (stored[key].get(SESSION_METHOD) in STRONG_METHODS or person.pk not in unequipped)
    }


def _backend_users(name: str, ids: Collection[int]) -> dict[int, User]:
    """Return the people of these ids whose sessions are valid by the backend that their session names."""
    backend: Any = load_backend(name) if name in settings.AUTHENTICATION_BACKENDS else None
    return backend.get_users(ids) if hasattr(backend, "get_users") else {}


class WatchedSocket(Protocol):
    """A socket, as the watch knows it."""

    browser: SocketSubscriber
    person_id: int

    def shown_chassis(self) -> ShownChassis:
        """Return what it shows."""

    def access_checked(self, shown: ShownChassis, scopes: Scopes | None) -> None:
        """Go on with what its person may see of that, or end without a valid session. Waits for nothing."""


class AccessWatch:
    """Looks at the sockets of this process; `access_watch()` returns the one of the running loop."""

    def __init__(self) -> None:
        self._sockets: dict[SocketSubscriber, WatchedSocket] = {}
        self._due: set[SocketSubscriber] = set()
        self._announced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, socket: WatchedSocket) -> None:
        """Look at a socket from now on."""
        self._sockets[socket.browser] = socket
        hub().listen(self.announce)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def remove(self, socket: WatchedSocket) -> None:
        """Look at a socket no more."""
        self._sockets.pop(socket.browser, None)

    def announce(self, browsers: Collection[SocketSubscriber] | None) -> None:
        """Look at these soon, None for all: what their people may see may have changed."""
        self._due.update(self._sockets if browsers is None else browsers)
        self._announced.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        sweep_at = loop.time() + SWEEP_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(sweep_at):
                    await self._announced.wait()
            await asyncio.sleep(random.uniform(0.0, COLLECT_SECONDS))  # noqa: S311 - no secret
            self._announced.clear()
            if loop.time() >= sweep_at:
                self._due.update(self._sockets)
                sweep_at = loop.time() + SWEEP_SECONDS
            try:
                await self._look_at_due()
            except Exception:
                # Without an answer of the database nothing is known, and those that are left are asked about again.
                logger.exception("the access of %d sockets could not be checked", len(self._due))
                await asyncio.sleep(RETRY_SECONDS)
                self._announced.set()

    async def _look_at_due(self) -> None:
        due = [socket for browser in self._due if (socket := self._sockets.get(browser)) is not None]
        # Those of a session are looked at together: it is read once.
        due.sort(key=lambda socket: socket.person_id)
        self._due.clear()
        for first in range(0, len(due), BATCH_SOCKETS):
            sockets = due[first : first + BATCH_SOCKETS]
            shown = [socket.shown_chassis() for socket in sockets]
            try:
                found = await database_sync_to_async(current_scopes)(shown)
            except BaseException:
                self._due.update(socket.browser for socket in due[first:])
                raise
            for socket, looked_at, scopes in zip(sockets, shown, found, strict=True):
                if socket.browser in self._sockets:
                    _tell(socket, looked_at, scopes)
            await asyncio.sleep(PAUSE_SECONDS)


def _tell(socket: WatchedSocket, shown: ShownChassis, scopes: Scopes | None) -> None:
    try:
        socket.access_checked(shown, scopes)
    except Exception:
        logger.exception("a socket could not be told what it may show")  # the others are


_watches: dict[asyncio.AbstractEventLoop, AccessWatch] = {}


def access_watch() -> AccessWatch:
    loop = asyncio.get_running_loop()
    for closed in [known for known in _watches if known.is_closed()]:
        del _watches[closed]
    return _watches.setdefault(loop, AccessWatch())
