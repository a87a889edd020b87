"""The live websocket: authentication, subscriptions, and close codes (4401: sign in again)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Coroutine
from typing import Any, cast

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path
from redis import RedisError

from accounts.models import User
from core.websockets import WRITE_FRAME
from fabric.inventory.selectors import ReadingScope
from telemetry.instrumentation import metrics
from telemetry.live.access import Scopes, ShownChassis, access_watch, current_scopes
from telemetry.live.hub import SocketSubscriber, hub

logger = logging.getLogger(__name__)

CLOSE_SIGN_IN = 4401
CLOSE_BROKEN = 1011  # RFC 6455: the server cannot continue
CLOSE_TOO_MANY = 4429
MAX_CHASSIS = 200
# Limit of one person in one process, so that others get connections too. Administrators are exempt.
MAX_SOCKETS_PER_PERSON = 50
MAX_MESSAGE_LENGTH = 10_000
# Minimum time between two responses to one socket: each costs some database queries.
PAUSE_SECONDS = 0.2


_open_sockets: Counter[int] = Counter()
metrics.register_gauge("sockets_open", lambda: sum(_open_sockets.copy().values()))


class LiveConsumer(AsyncWebsocketConsumer):
    """Sends catalogue, key frame and deltas of the chassis that the browser subscribes to and the person may see."""

    person_id = 0
    group = ""
    responded_at = 0.0

    async def connect(self) -> None:
        """Accept; close with 4401 without a signed-in person."""
        self.tasks: set[asyncio.Task[None]] = set()
        # An extension of falconweb.sockets; other servers do not have it.
        extensions: Any = self.scope.get("extensions") or {}
        self.browser = SocketSubscriber(self.base_send, self._broken, extensions.get(WRITE_FRAME))
        await self.accept()
        person: object = self.scope.get("user")
        if not isinstance(person, User) or not person.is_active:
            await self.close(CLOSE_SIGN_IN)
            return
        if _open_sockets[person.pk] >= MAX_SOCKETS_PER_PERSON and not person.is_administrator:
            await self.close(CLOSE_TOO_MANY)
            return
        self.person_id = person.pk
        _open_sockets[person.pk] += 1
        self.group = f"person-{person.pk}"
        try:
            await self.channel_layer.group_add(self.group, self.channel_name)
        except (RedisError, OSError) as error:
            # The connection to the broker broke. The next recheck detects a sign-out, too.
            logger.warning("a socket is not notified of sign-outs: %s", error)
        access_watch().add(self)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Subscribe to exactly the chassis of {"subscribe": [ids]}."""
        if not self.person_id:
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.responded_at + PAUSE_SECONDS - now)
        self.responded_at = asyncio.get_running_loop().time()
        requested = _requested_chassis(text_data)
        if requested is None:
            error = {"type": "error", "sentence": 'Send {"subscribe": [chassis ids]}.'}
            await self.send(text_data=json.dumps(error))
            return
        for chassis in set(self.browser.groups) - requested:
            hub().unsubscribe(self.browser, chassis)
        (scopes,) = await database_sync_to_async(current_scopes)([self.shown_chassis(requested)])
        if scopes is None:
            await self.close(CLOSE_SIGN_IN)
            return
        for chassis in sorted(requested):
            scope = scopes.get(chassis)
            if scope is None:
                await self.send(text_data=_unknown_chassis(chassis))
            else:
                await hub().subscribe(self.browser, chassis, scope)

    async def disconnect(self, code: int) -> None:
        access_watch().remove(self)
        for task in list(self.tasks):
            task.cancel()
        self.browser.end()
        _open_sockets[self.person_id] -= 1
        if _open_sockets[self.person_id] <= 0:
            del _open_sockets[self.person_id]
        for chassis in list(self.browser.groups):
            hub().unsubscribe(self.browser, chassis)
        if self.group:
            with contextlib.suppress(RedisError, OSError):
                await self.channel_layer.group_discard(self.group, self.channel_name)

    async def signed_out(self, event: dict[str, Any]) -> None:
        """Close sockets of the session that signed out."""
        session = self.scope.get("session")
        if session is None or event.get("session") in {None, session.session_key}:
            await self.close(CLOSE_SIGN_IN)

    async def refused_message(self, event: dict[str, Any]) -> None:
        """Ignore what telemetry.live.channel_layer has refused."""

    def shown_chassis(self, requested: Collection[int] | None = None) -> ShownChassis:
        """Return what it shows, or is requested to show."""
        session: Any = self.scope.get("session")
        key = "" if session is None else session.session_key or ""
        return ShownChassis(key, self.person_id, frozenset(self.browser.groups if requested is None else requested))

    def access_checked(self, shown: ShownChassis, scopes: Scopes | None) -> None:
        """Go on with what the person may see of that, or end without a valid session."""
        groups = self.browser.groups
        if scopes is None:
            access_watch().remove(self)
            for chassis in list(groups):
                hub().unsubscribe(self.browser, chassis)
            self._start(self.close(CLOSE_SIGN_IN))
            return
        changed = {pk for pk in shown.chassis & groups.keys() if scopes.get(pk) != groups[pk][0]}
        if changed:
            self._start(self._change_scopes({pk: scopes.get(pk) for pk in changed}))

    async def _change_scopes(self, scopes: dict[int, ReadingScope | None]) -> None:
        for chassis, scope in scopes.items():
            if chassis not in self.browser.groups:
                continue
            if scope is None:
                hub().unsubscribe(self.browser, chassis)
                self.browser.send_text(f"gone {chassis}", _unknown_chassis(chassis))
            else:
                await hub().subscribe(self.browser, chassis, scope)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _broken(self) -> None:
        """Close a socket after a send error; the browser reconnects by itself."""
        self._start(self._close_broken())

    async def _close_broken(self) -> None:
        with contextlib.suppress(Exception):
            await self.close(CLOSE_BROKEN)


def _unknown_chassis(chassis: int) -> str:
    return json.dumps({"type": "error", "chassis": chassis, "sentence": "There is no such chassis."})


def _requested_chassis(text: str | None) -> set[int] | None:
    if text is None or len(text) > MAX_MESSAGE_LENGTH:
        return None
    try:
        ids = json.loads(text)["subscribe"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(ids, list) or len(ids) > MAX_CHASSIS:
        return None
    if any(type(one) is not int or not 0 < one < 2**31 for one in ids):
        return None
    return set(ids)


websocket_urlpatterns: list[Any] = [path("ws/live/", cast("Any", LiveConsumer.as_asgi()))]
