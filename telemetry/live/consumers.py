"""The live websocket: authentication, subscriptions, and close codes (4401: sign in again)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections import Counter
from importlib import import_module
from typing import Any, cast

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, load_backend
from django.urls import path
from django.utils.crypto import constant_time_compare
from redis import RedisError

from accounts.models import User
from accounts.second_factor.selectors import must_enrol
from core.websockets import WRITE_FRAME
from fabric.inventory.models import Chassis
from fabric.inventory.selectors import ReadingScope, reading_scope
from telemetry.instrumentation import metrics
from telemetry.live.hub import SocketSubscriber, hub

logger = logging.getLogger(__name__)

CLOSE_SIGN_IN = 4401
CLOSE_BROKEN = 1011  # RFC 6455: the server cannot continue
CLOSE_TOO_MANY = 4429
MAX_CHASSIS = 200
# Limit of one person in one process, so that others get connections too. Administrators are exempt.
MAX_SOCKETS_PER_PERSON = 50
MAX_MESSAGE_LENGTH = 10_000
# A change of access is announced; a socket rechecks at this interval in case the announcement was lost.
RECHECK_SECONDS = 30.0
# Minimum time between two responses to one socket: each costs some database queries.
PAUSE_SECONDS = 0.2
SPREAD_SECONDS = 1.0  # spreads the queries of a thousand sockets


SessionStore: Any = import_module(settings.SESSION_ENGINE).SessionStore
_open_sockets: Counter[int] = Counter()
metrics.register_gauge("sockets_open", lambda: sum(_open_sockets.copy().values()))


class LiveConsumer(AsyncWebsocketConsumer):
    """Sends catalogue, key frame and deltas of the chassis that the browser subscribes to and the person may see."""

    person_id = 0
    group = ""
    responded_at = 0.0

    async def connect(self) -> None:
        """Accept; close with 4401 without a signed-in person."""
        self.tasks: list[asyncio.Task[None]] = []
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
        self.tasks = [asyncio.create_task(self._recheck_access())]

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Subscribe to exactly the chassis of {"subscribe": [ids]}."""
        if not self.tasks:
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
        person, scopes = await self._reading_scopes(requested)
        if person is None:
            await self.close(CLOSE_SIGN_IN)
            return
        for chassis in sorted(requested):
            scope = scopes.get(chassis)
            if scope is None:
                await self.send(text_data=_unknown_chassis(chassis))
            else:
                await hub().subscribe(self.browser, chassis, scope)

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
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

    async def _recheck_access(self) -> None:
        recheck = self.browser.recheck
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await recheck.wait()
            await asyncio.sleep(random.uniform(0.0, SPREAD_SECONDS))  # noqa: S311 - no secret
            recheck.clear()
            person, scopes = await self._reading_scopes(set(self.browser.groups))
            if person is None:
                await self.close(CLOSE_SIGN_IN)
                return
            for chassis, (known, _) in list(self.browser.groups.items()):
                scope = scopes.get(chassis)
                if scope is None:
                    hub().unsubscribe(self.browser, chassis)
                    self.browser.send_text(f"gone {chassis}", _unknown_chassis(chassis))
                elif scope != known:
                    await hub().subscribe(self.browser, chassis, scope)

    @database_sync_to_async
    def _reading_scopes(self, chassis_ids: set[int]) -> tuple[User | None, dict[int, ReadingScope | None]]:
        session: Any = self.scope.get("session")
        if session is None:
            return None, {}
        # Read again: the session may have ended or expired meanwhile. A new password ends sessions of the old one, and
        # an identity provider that was switched off those of its people.
        stored = SessionStore(session.session_key)
        backend = stored.get(BACKEND_SESSION_KEY, "")
        known = backend in settings.AUTHENTICATION_BACKENDS
        person = load_backend(backend).get_user(self.person_id) if known else None
        if not isinstance(person, User):
            return None, {}
        if not constant_time_compare(stored.get(HASH_SESSION_KEY, ""), person.get_session_auth_hash()):
            return None, {}
        if must_enrol(person, stored):
            return None, {}
        # One query, so that two hundred invalid ids cost no more than one.
        visible = set(Chassis.objects.visible_to(person).filter(pk__in=chassis_ids).values_list("pk", flat=True))
        return person, {pk: reading_scope(person, pk) if pk in visible else None for pk in chassis_ids}

    def _broken(self) -> None:
        """Close a socket after a send error; the browser reconnects by itself."""
        self.tasks.append(asyncio.create_task(self._close_broken()))

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
