"""One Redis listener a web process that hands the same bytes to every browser with the same sight.

A browser's mailbox keeps only the newest frame: one that reads slowly skips frames and gets a key frame next, and one
that stops reading costs the others nothing. No database is touched here.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import redis.asyncio as redis
from django.conf import settings

from fabric.selectors import Sight
from telemetry.catalogue import Entry
from telemetry.frames import Frame, Values, decode_key, encode_delta, encode_key

logger = logging.getLogger(__name__)

RECONNECT_SECONDS = 1.0


class Group:
    """All browsers of this process with one sight of one chassis."""

    def __init__(self, indexes: list[int] | None) -> None:
        self.indexes = indexes  # None: everything
        self.frame: Frame | None = None
        self.before: Frame | None = None
        self._key: bytes | None = None
        self._delta: bytes | None = None

    def take(self, frame: Frame) -> None:
        """Take the next frame, projected to the sight."""
        self.before = self.frame
        values: Values = frame.values if self.indexes is None else frame.values[self.indexes]
        self.frame = Frame(frame.revision, frame.chassis, frame.sequence, frame.at, np.ascontiguousarray(values))
        self._key = self._delta = None

    def bytes_after(self, sequence: int | None) -> bytes:
        """Return the newest frame for a browser that has `sequence`: a delta if that is the one before, else all."""
        frame, before = self.frame, self.before
        if frame is None:
            return b""
        fits = before is not None and before.sequence == sequence and before.revision == frame.revision
        if fits and before is not None and len(before.values) == len(frame.values):
            if self._delta is None:
                self._delta = encode_delta(before.values, frame)
            return self._delta
        if self._key is None:
            self._key = encode_key(frame)
        return self._key


class Browser:
    """One socket: which groups it is in, and its mailbox."""

    def __init__(
        self, send_bytes: Callable[[bytes], Awaitable[None]], send_text: Callable[[str], Awaitable[None]]
    ) -> None:
        self._send_bytes, self._send_text = send_bytes, send_text
        self.groups: dict[int, tuple[Any, Group]] = {}
        self._sent: dict[int, int] = {}
        self._pending: set[int] = set()
        self._texts: dict[str, str] = {}  # the newest of each kind: what counts is that something changed
        self._wake = asyncio.Event()

    def notify(self, chassis: int) -> None:
        """Say that a newer frame of a chassis is there."""
        self._pending.add(chassis)
        self._wake.set()

    def tell(self, kind: str, text: str) -> None:
        """Put a message into the mailbox."""
        self._texts[kind] = text
        self._wake.set()

    def forget(self, chassis: int) -> None:
        """Start from a key frame at the next one."""
        self._sent.pop(chassis, None)

    async def run(self) -> None:
        """Send what is newest, as fast as this browser reads, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            texts, self._texts = self._texts, {}
            for text in texts.values():
                await self._send_text(text)
            pending, self._pending = self._pending, set()
            for chassis in pending:
                if chassis not in self.groups:
                    continue
                group = self.groups[chassis][1]
                if group.frame is None or self._sent.get(chassis) == group.frame.sequence:
                    continue
                sequence = group.frame.sequence
                raw = group.bytes_after(self._sent.get(chassis))
                self._sent[chassis] = sequence
                await self._send_bytes(raw)


class Hub:
    """The process' only listener; `hub()` gives the one of the running loop."""

    def __init__(self) -> None:
        self._browsers: dict[int, set[Browser]] = defaultdict(set)
        self._groups: dict[int, dict[Any, Group]] = defaultdict(dict)
        self._catalogues: dict[int, tuple[int, list[Entry]]] = {}
        self._redis = redis.Redis.from_url(settings.REDIS_URL)
        self._task: asyncio.Task[None] | None = None

    async def join(self, browser: Browser, chassis: int, sight: Sight) -> None:
        """Let a browser follow a chassis with a sight: its catalogue and newest frame come at once."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        if chassis not in self._catalogues:
            await self._load(chassis)
        self.leave(browser, chassis)
        group = self._groups[chassis].setdefault(sight, self._make(chassis, sight))
        browser.groups[chassis] = (sight, group)
        self._browsers[chassis].add(browser)
        if group.frame is None and (raw := await self._redis.get(f"live:frame:{chassis}")):
            group.take(decode_key(raw))
        self._tell_catalogue(browser, chassis, group)
        browser.notify(chassis)

    def leave(self, browser: Browser, chassis: int) -> None:
        """Let a browser stop following a chassis."""
        browser.forget(chassis)
        left = browser.groups.pop(chassis, None)
        self._browsers[chassis].discard(browser)
        if left is not None and not any(left[0] in (b.groups.get(chassis) or ()) for b in self._browsers[chassis]):
            self._groups[chassis].pop(left[0], None)

    def _make(self, chassis: int, sight: Sight) -> Group:
        if sight.everything:
            return Group(None)
        seen = {"device": sight.devices, "port": sight.ports}
        entries = self._catalogues.get(chassis, (0, []))[1]
        return Group([index for index, one in enumerate(entries) if one["id"] in seen.get(one["object"], ())])

    def _tell_catalogue(self, browser: Browser, chassis: int, group: Group) -> None:
        revision, entries = self._catalogues.get(chassis, (0, []))
        series = entries if group.indexes is None else [entries[index] for index in group.indexes]
        message = {"type": "catalogue", "chassis": chassis, "revision": revision, "series": series}
        browser.tell(f"catalogue {chassis}", json.dumps(message))

    async def _load(self, chassis: int) -> None:
        if raw := await self._redis.get(f"live:catalogue:{chassis}"):
            kept = json.loads(raw)
            self._catalogues[chassis] = (kept["revision"], kept["series"])

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.psubscribe("live:[0-9]*", "changed:[0-9]*")
                    async for message in pubsub.listen():
                        if message["type"] == "pmessage":
                            await self._hear(message["channel"].decode(), message["data"])
            except (redis.RedisError, OSError) as error:
                logger.warning("Redis is away: %s", error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _hear(self, channel: str, data: bytes) -> None:
        kind, _, number = channel.partition(":")
        chassis = int(number)
        browsers = self._browsers.get(chassis)
        if not browsers:
            return
        if kind == "changed":
            for browser in browsers:
                browser.tell(f"changed {chassis}", json.dumps({"type": "changed", "chassis": chassis}))
            return
        try:
            frame = decode_key(data)
        except ValueError as error:
            logger.warning("frame of chassis %s: %s", chassis, error)
            return
        if self._catalogues.get(chassis, (None,))[0] != frame.revision:
            await self._renew(chassis)
        for group in self._groups[chassis].values():
            if group.indexes is None or not group.indexes or group.indexes[-1] < len(frame.values):
                group.take(frame)
        for browser in browsers:
            browser.notify(chassis)

    async def _renew(self, chassis: int) -> None:
        """Take a new catalogue over: indexes of sights move."""
        await self._load(chassis)
        for sight, group in self._groups[chassis].items():
            fresh = self._make(chassis, sight)
            group.indexes, group.frame, group.before = fresh.indexes, None, None
        for browser in self._browsers[chassis]:
            browser.forget(chassis)
            self._tell_catalogue(browser, chassis, browser.groups[chassis][1])


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """Return the hub of the running loop."""
    loop = asyncio.get_running_loop()
    for closed in [known for known in _hubs if known.is_closed()]:
        del _hubs[closed]
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
