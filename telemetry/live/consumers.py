"""The live socket: who, which chassis, and how it ends (4401: sign in again)."""

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
from django.contrib.auth import HASH_SESSION_KEY
from django.urls import path
from django.utils.crypto import constant_time_compare
from redis import RedisError

from accounts.models import User
from core.websockets import WRITE_FRAME
from fabric.inventory.models import Chassis
from fabric.inventory.selectors import ReadingScope, reading_scope
from telemetry.instrumentation import metrics
from telemetry.live.hub import SocketSubscriber, hub

logger = logging.getLogger(__name__)

CLOSE_SIGN_IN = 4401
CLOSE_BROKEN = 1011  # RFC 6455: the server cannot go on
CLOSE_TOO_MANY = 4429
MAX_CHASSIS = 200
# Of one person in one process: whoever opens them without end takes the places of others. Administrators may.
MAX_SOCKETS_PER_PERSON = 50
MAX_MESSAGE_LENGTH = 10_000
# A change of access is announced; this often a socket looks by itself, in case the announcement was lost.
RECHECK_SECONDS = 30.0
# A socket that asks without pause waits this long between two answers: each costs the database some looks.
PAUSE_SECONDS = 0.2
SPREAD_SECONDS = 1.0  # a thousand sockets do not ask the database at the same moment


SessionStore: Any = import_module(settings.SESSION_ENGINE).SessionStore
_open_sockets: Counter[int] = Counter()
metrics.register_gauge("sockets_open", lambda: sum(_open_sockets.copy().values()))


class LiveConsumer(AsyncWebsocketConsumer):
    """Sends catalogue, key frame and deltas of the chassis that the browser asks for and the person may see."""

    person_id = 0
    group = ""
    answered_at = 0.0

    async def connect(self) -> None:
        """Accept; close with 4401 where nobody is signed in."""
        self.tasks: list[asyncio.Task[None]] = []
        # What falconweb.sockets offers; other servers do not.
        offered: Any = self.scope.get("extensions") or {}
        write = offered.get(WRITE_FRAME)
        self.browser = SocketSubscriber(self.base_send, self._broken, write)
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
        await self._join_sign_out_group()
        self.tasks = [asyncio.create_task(self._recheck_access())]

    async def _join_sign_out_group(self) -> None:
        try:
            await self.channel_layer.group_add(self.group, self.channel_name)
        except (RedisError, OSError) as error:
            # The connection died with a broker that is back by now. A sign-out is found out by the next look, too.
            logger.warning("a socket does not hear of sign-outs: %s", error)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Follow exactly the chassis of {"subscribe": [ids]}."""
        if not self.tasks:
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.answered_at + PAUSE_SECONDS - now)
        self.answered_at = asyncio.get_running_loop().time()
        wanted = _requested_chassis(text_data)
        if wanted is None:
            await self._send_text(json.dumps({"type": "error", "sentence": 'Send {"subscribe": [chassis ids]}.'}))
            return
        for chassis in set(self.browser.groups) - wanted:
            hub().leave(self.browser, chassis)
        person, sights = await self._sights(wanted)
        if person is None:
            await self.close(CLOSE_SIGN_IN)
            return
        for chassis in sorted(wanted):
            sight = sights.get(chassis)
            if sight is None:
                await self._send_text(_unknown_chassis(chassis))
            else:
                await hub().join(self.browser, chassis, sight)

    async def disconnect(self, code: int) -> None:
        """Leave everything."""
        for task in self.tasks:
            task.cancel()
        self.browser.end()
        _open_sockets[self.person_id] -= 1
        if _open_sockets[self.person_id] <= 0:
            del _open_sockets[self.person_id]
        for chassis in list(self.browser.groups):
            hub().leave(self.browser, chassis)
        if self.group:
            with contextlib.suppress(RedisError, OSError):
                await self.channel_layer.group_discard(self.group, self.channel_name)

    async def signed_out(self, event: dict[str, Any]) -> None:
        """End sockets of the session that signed out."""
        session = self.scope.get("session")
        if session is None or event.get("session") in {None, session.session_key}:
            await self.close(CLOSE_SIGN_IN)

    async def _recheck_access(self) -> None:
        again = self.browser.look_again
        while True:
            try:
                async with asyncio.timeout(RECHECK_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await again.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(random.uniform(0.0, SPREAD_SECONDS))  # noqa: S311 - no secret
            again.clear()
            person, sights = await self._sights(set(self.browser.groups))
            if person is None:
                await self.close(CLOSE_SIGN_IN)
                return
            for chassis, (known, _) in list(self.browser.groups.items()):
                sight = sights.get(chassis)
                if sight is None:
                    hub().leave(self.browser, chassis)
                    self.browser.tell(f"gone {chassis}", _unknown_chassis(chassis))
                elif sight != known:
                    await hub().join(self.browser, chassis, sight)

    @database_sync_to_async
    def _sights(self, wanted: set[int]) -> tuple[User | None, dict[int, ReadingScope | None]]:
        session: Any = self.scope.get("session")
        person = User.objects.filter(pk=self.person_id, is_active=True).first()
        if person is None or session is None:
            return None, {}
        # Read anew: it may have ended or run out since the socket opened. A new password ends those of the old one.
        kept = SessionStore(session.session_key).get(HASH_SESSION_KEY, "")
        if not constant_time_compare(kept, person.get_session_auth_hash()):
            return None, {}
        # In one look, so that two hundred made-up numbers cost no more than one.
        seen = set(Chassis.objects.visible_to(person).filter(pk__in=wanted).values_list("pk", flat=True))
        return person, {chassis: reading_scope(person, chassis) if chassis in seen else None for chassis in wanted}

    def _broken(self) -> None:
        """Close a socket that could not be sent to, where it still stands: the browser comes back by itself."""
        self.tasks.append(asyncio.create_task(self._close_broken()))

    async def _close_broken(self) -> None:
        with contextlib.suppress(Exception):
            await self.close(CLOSE_BROKEN)

    async def _send_text(self, text: str) -> None:
        await self.send(text_data=text)


def _unknown_chassis(chassis: int) -> str:
    return json.dumps({"type": "error", "chassis": chassis, "sentence": "There is no such chassis."})


def _requested_chassis(text: str | None) -> set[int] | None:
    if text is None or len(text) > MAX_MESSAGE_LENGTH:
        return None
    try:
        wanted = json.loads(text)["subscribe"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(wanted, list) or len(wanted) > MAX_CHASSIS:
        return None
    if any(type(one) is not int or not 0 < one < 2**31 for one in wanted):
        return None
    return set(wanted)


websocket_urlpatterns: list[Any] = [path("ws/live/", cast("Any", LiveConsumer.as_asgi()))]
