"""One Redis subscriber a web process, which sends the same bytes to every socket with the same reading scope.

The queue of a socket has only the newest frame of a chassis: a slow reader skips frames and gets a key frame next, and
one that stops reading does not delay the others. This module uses no database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import redis.asyncio as redis
from django.conf import settings

from core.websockets import FrameWriter
from fabric.inventory.selectors import ReadingScope
from telemetry.instrumentation import metrics
from telemetry.live.catalogue import SeriesEntry, Values
from telemetry.live.frames import (
    ACCESS_CHANNEL,
    Frame,
    encode_delta,
    encode_key,
    stored_catalogue,
    stored_frame,
    websocket_message,
)
from telemetry.live.selectors import is_visible_series, series_baselines, subtract_baselines

logger = logging.getLogger(__name__)

RECONNECT_SECONDS = 1.0
GET_SECONDS = 3.0
# After a change, browsers fetch their pages at random moments, spread over this time for each of them.
PAGE_SECONDS = 0.03
MAX_SPREAD_SECONDS = 30.0


class SubscriberGroup:
    """The subscribers of this process with one reading scope of one chassis."""

    def __init__(self, indexes: list[int] | None, counted: Values | None = None) -> None:
        self.indexes = indexes  # of the visible series; None: all
        self.counted = counted  # baseline of each value, from before the lease; None: all zero
        self.frame: Frame | None = None
        self.before: Frame | None = None
        self._key: bytes | None = None
        self._delta: bytes | None = None
        self._message: tuple[bytes, bytes] = b"", b""
        # Browsers that have the newest frame and take the next one at once, with what writes to them; and the others.
        # Nothing of a current one is looked at for a frame: what no cache of the processor has takes most of the time.
        self.current: dict[SocketSubscriber, Callable[[bytes], object]] = {}
        self.behind: set[SocketSubscriber] = set()

    def take(self, frame: Frame) -> None:
        """Set the next frame, reduced to the reading scope."""
        self.before = self.frame
        values: Values = frame.values if self.indexes is None else frame.values[self.indexes]
        if self.counted is not None:
            values = subtract_baselines(values, self.counted)
        self.frame = Frame(frame.revision, frame.chassis, frame.sequence, frame.at, np.ascontiguousarray(values))
        self._key = self._delta = None

    def bytes_after(self, sequence: int | None) -> bytes:
        """Return the newest frame for a browser that has `sequence`: a delta if that is the previous, else a key."""
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

    def message_after(self, sequence: int | None) -> bytes:
        """Return the same as a whole websocket message, built once for all sockets that get it."""
        raw = self.bytes_after(sequence)
        if self._message[0] is not raw:
            self._message = raw, websocket_message(raw)
        return self._message[1]

    def deliver(self, chassis: int) -> None:
        """Give the frame that was just taken to all browsers."""
        behind = list(self.behind)
        if self.frame is not None and self.before is not None and self.current:
            message = self.message_after(self.before.sequence)
            fanout.frames += len(self.current)
            # One that blocks leaves meanwhile.
            for write in list(self.current.values()):
                write(message)
        for browser in behind:
            browser.notify(chassis)

    def leave_current(self, browser: SocketSubscriber) -> int | None:
        """Look at a browser again from the next frame on; returns the number of the frame that it has."""
        if self.current.pop(browser, None) is None:
            return None
        self.behind.add(browser)
        return None if self.frame is None else self.frame.sequence

    def remove(self, browser: SocketSubscriber) -> bool:
        """Take a browser out; returns whether none is left."""
        self.current.pop(browser, None)
        self.behind.discard(browser)
        return not self.current and not self.behind


NO_GROUP: tuple[Any, SubscriberGroup] = (None, SubscriberGroup(None))


@dataclass
class FanoutCounters:
    """Counters of this process: plain numbers, since a lock a frame would cost more than the frame."""

    frames: int = 0
    skipped: int = 0  # replaced by a newer one before the socket accepted it
    waiting: int = 0  # sockets that accept nothing at the moment


fanout = FanoutCounters()
metrics.register_counter("frames_sent", lambda: fanout.frames)
metrics.register_counter("frames_skipped", lambda: fanout.skipped)
metrics.register_gauge("sockets_slow", lambda: fanout.waiting)


class StartedCoroutine(Awaitable[None]):
    """The rest of a coroutine that was started outside a task and now waits for `future`."""

    def __init__(self, coroutine: Coroutine[Any, None, None], future: Any) -> None:
        self._coroutine, self._future = coroutine, future

    def __await__(self) -> Generator[Any, Any, None]:
        """Run it to its end, as a task does: it receives the future's result, error or cancellation."""
        future = self._future
        try:
            while True:
                try:
                    value = yield future
                except BaseException as error:  # noqa: BLE001 - passed on to the coroutine
                    future = self._coroutine.throw(error)
                else:
                    future = self._coroutine.send(value)
        except StopIteration:
            return


class SocketSubscriber:
    """One socket: its groups, and its queue.

    `send` sends an ASGI message; `broken` is called once if it raises, and nothing is sent after that. `writer`, if the
    server provides it, writes whole websocket messages beside that (falconweb.sockets).
    """

    def __init__(
        self,
        send: Callable[[Any], Awaitable[None]],
        broken: Callable[[], None],
        writer: FrameWriter | None = None,
    ) -> None:
        self._send, self._broken, self._writer = send, broken, writer
        if writer is not None:
            writer.blocked = self._leave_current
        self.groups: dict[int, tuple[Any, SubscriberGroup]] = {}
        self._sent: dict[int, int] = {}
        self._pending: set[int] = set()
        self._texts: dict[str, str] = {}  # the newest message of each kind
        self._sending: asyncio.Task[None] | None = None
        self._open = True

    def notify(self, chassis: int) -> None:
        """Announce a newer frame of a chassis."""
        is_idle = self._sending is None and self._open and not self._texts and not self._pending
        if self._writer is not None and is_idle and self._write_newest(chassis, self._writer):
            return
        if chassis in self._pending:
            fanout.skipped += 1
        self._pending.add(chassis)
        self._deliver()

    def _write_newest(self, chassis: int, writer: FrameWriter) -> bool:
        """Write the newest frame without an ASGI message, which is most of a frame's cost."""
        _, group = self.groups.get(chassis, NO_GROUP)
        frame, known = group.frame, self._sent.get(chassis)
        if frame is None or known == frame.sequence:
            return True
        try:
            group.current[self] = writer.writing()  # which it leaves where this frame blocks it
            if not writer.write_frame(group.message_after(known)):
                group.current.pop(self, None)
                return False
        except Exception as error:  # noqa: BLE001 - as in `_deliver`
            self._break(error)
            return True
        if self in group.current:
            group.behind.discard(self)
        self._sent[chassis] = frame.sequence
        fanout.frames += 1
        return True

    def _leave_current(self) -> None:
        for chassis, (_, group) in self.groups.items():
            if (sequence := group.leave_current(self)) is not None:
                self._sent[chassis] = sequence

    def send_text(self, kind: str, text: str) -> None:
        """Queue a message; it replaces one of the same kind."""
        self._texts[kind] = text
        self._deliver()

    def request_key_frame(self, chassis: int) -> None:
        """Send a key frame of a chassis next."""
        self._leave_current()
        self._sent.pop(chassis, None)

    def end(self) -> None:
        """Send nothing more."""
        self._open = False
        self._leave_current()
        if self._sending is not None:
            self._sending.cancel()

    def _deliver(self) -> None:
        """Send the queue: immediately where the socket accepts it, else as soon as it does.

        A socket nearly always accepts it, and scheduling a task costs more than sending. So the coroutine is started
        here, and becomes a task only when it has to wait (an eager task in Python 3.12).
        """
        if self._sending is not None or not self._open:
            return
        sending = self._send_pending()
        try:
            future = sending.send(None)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - each server has its own errors for this
            self._break(error)
            return
        self._leave_current()
        fanout.waiting += 1
        self._sending = asyncio.ensure_future(StartedCoroutine(sending, future))
        self._sending.add_done_callback(self._send_finished)

    def _send_finished(self, sending: asyncio.Task[None]) -> None:
        self._sending = None
        fanout.waiting -= 1
        if sending.cancelled():
            self._open = False
        elif error := sending.exception():
            self._break(error)
        else:
            self._deliver()

    def _break(self, error: BaseException) -> None:
        logger.debug("sending to a socket failed: %r", error)
        if self._open:
            self._open = False
            self._leave_current()
            self._broken()

    async def _send_pending(self) -> None:
        while self._texts or self._pending:
            texts, self._texts = self._texts, {}
            for text in texts.values():
                await self._send({"type": "websocket.send", "text": text})
            pending, self._pending = self._pending, set()
            for chassis in pending:
                if chassis not in self.groups:
                    continue
                group = self.groups[chassis][1]
                if group.frame is None or self._sent.get(chassis) == group.frame.sequence:
                    continue
                raw = group.bytes_after(self._sent.get(chassis))
                self._sent[chassis] = group.frame.sequence
                fanout.frames += 1
                await self._send({"type": "websocket.send", "bytes": raw})


class Hub:
    """The only Redis subscriber of the process; `hub()` returns the one of the running loop."""

    def __init__(self) -> None:
        self._browsers: dict[int, set[SocketSubscriber]] = defaultdict(set)
        self._groups: dict[int, dict[Any, SubscriberGroup]] = defaultdict(dict)
        self._catalogues: dict[int, tuple[int, list[SeriesEntry]]] = {}
        # Health checks detect a dead connection; waiting for a frame has no time limit.
        self._redis = redis.Redis.from_url(settings.REDIS_URL, socket_keepalive=True, health_check_interval=15)
        self._task: asyncio.Task[None] | None = None
        self._announce: Callable[[Collection[SocketSubscriber] | None], None] = lambda _: None

    def listen(self, announce: Callable[[Collection[SocketSubscriber] | None], None]) -> None:
        """Call `announce` with the browsers whose people's access may have changed, None for all browsers."""
        self._announce = announce
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())

    async def subscribe(self, browser: SocketSubscriber, chassis: int, scope: ReadingScope) -> None:
        """Subscribe a browser to a chassis with a reading scope; sends catalogue and newest frame immediately."""
        self.listen(self._announce)
        if chassis not in self._catalogues:
            await self._load(chassis)
        self.unsubscribe(browser, chassis)
        group = self._groups[chassis].get(scope)
        if group is None:
            group = self._groups[chassis][scope] = self._create_group(chassis, scope)
        browser.groups[chassis] = (scope, group)
        group.behind.add(browser)
        self._browsers[chassis].add(browser)
        self._send_catalogue(browser, chassis, group)
        raw = await self._get(f"live:frame:{chassis}") if group.frame is None else None
        stored = stored_frame(raw)
        # A newer one may have been received meanwhile; with another catalogue, indices would refer to other series.
        if stored is not None and group.frame is None and stored.revision == self._revision(chassis):
            group.take(stored)
        browser.notify(chassis)

    def unsubscribe(self, browser: SocketSubscriber, chassis: int) -> None:
        browser.request_key_frame(chassis)
        scope, group = browser.groups.pop(chassis, NO_GROUP)
        self._browsers[chassis].discard(browser)
        if group.remove(browser):
            self._groups[chassis].pop(scope, None)

    def _create_group(self, chassis: int, scope: ReadingScope) -> SubscriberGroup:
        if scope.everything:
            return SubscriberGroup(None)
        entries = self._catalogues.get(chassis, (0, []))[1]
        indexes = [index for index, entry in enumerate(entries) if is_visible_series(scope, entry)]
        baselines = series_baselines(scope, [entries[index] for index in indexes])
        return SubscriberGroup(indexes, np.array(baselines) if any(baselines) else None)

    def _send_catalogue(self, browser: SocketSubscriber, chassis: int, group: SubscriberGroup) -> None:
        revision, entries = self._catalogues.get(chassis, (0, []))
        series = entries if group.indexes is None else [entries[index] for index in group.indexes]
        # With `now`, a browser with a wrong clock can compute the age of a frame.
        message = {"type": "catalogue", "chassis": chassis, "revision": revision, "series": series, "now": time.time()}
        browser.send_text(f"catalogue {chassis}", json.dumps(message))

    def _revision(self, chassis: int) -> int | None:
        return self._catalogues[chassis][0] if chassis in self._catalogues else None

    async def _load(self, chassis: int) -> None:
        if catalogue := stored_catalogue(await self._get(f"live:catalogue:{chassis}")):
            self._catalogues[chassis] = (catalogue.revision, catalogue.series)

    async def _get(self, key: str) -> bytes | None:
        try:
            async with asyncio.timeout(GET_SECONDS):
                return cast("bytes | None", await self._redis.get(key))
        except (redis.RedisError, OSError) as error:
            logger.warning("%s cannot be read: %s", key, error)
            return None

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.psubscribe("live:[0-9]*", "changed:[0-9]*", ACCESS_CHANNEL)
                    async for message in pubsub.listen():
                        if message["type"] == "pmessage":
                            await self._handle(message["channel"].decode(errors="replace"), message["data"])
            except (redis.RedisError, OSError) as error:
                logger.warning("Redis is unreachable: %s", error)
            except Exception:
                # One invalid message must not end the subscription of all browsers.
                logger.exception("a live message could not be handled")
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _handle(self, channel: str, data: bytes) -> None:
        if channel == ACCESS_CHANNEL:
            self._announce(None)
            return
        kind, _, number = channel.partition(":")
        if not number.isdecimal() or len(number) > 18:
            return  # a key with the same prefix, such as live:frame:7
        chassis = int(number)
        browsers = self._browsers.get(chassis, set())
        if not browsers:
            # A later subscriber must not get an outdated catalogue.
            self._catalogues.pop(chassis, None)
            return
        if kind == "changed":
            within = min(MAX_SPREAD_SECONDS, len(browsers) * PAGE_SECONDS)
            text = json.dumps({"type": "changed", "chassis": chassis, "within": round(within, 2)})
            for browser in browsers:
                browser.send_text(f"changed {chassis}", text)
            self._announce(browsers)
            return
        await self._take(chassis, data)

    async def _take(self, chassis: int, data: bytes) -> None:
        frame = stored_frame(data)
        if frame is None:
            return
        if self._revision(chassis) != frame.revision:
            await self._renew(chassis)
            if self._revision(chassis) != frame.revision:
                return  # without its catalogue the values cannot be assigned to series
        for group in list(self._groups[chassis].values()):
            if group.frame is not None and group.frame.sequence == frame.sequence:
                continue  # it came with a subscription, before its announcement
            if group.indexes is None or not group.indexes or group.indexes[-1] < len(frame.values):
                group.take(frame)
                group.deliver(chassis)

    async def _renew(self, chassis: int) -> None:
        """Load a new catalogue: the indices of all groups change."""
        await self._load(chassis)
        for scope, group in self._groups[chassis].items():
            fresh = self._create_group(chassis, scope)
            group.indexes, group.counted, group.frame, group.before = fresh.indexes, fresh.counted, None, None
        for browser in self._browsers[chassis]:
            browser.request_key_frame(chassis)
            self._send_catalogue(browser, chassis, browser.groups[chassis][1])


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    loop = asyncio.get_running_loop()
    for closed in [known for known in _hubs if known.is_closed()]:
        del _hubs[closed]
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
