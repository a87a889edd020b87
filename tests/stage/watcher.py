"""Who watches a running site: browsers, which come back as the page's own script does, and a listener to Redis."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from typing import Any, Self

import redis
import websockets
from websockets.asyncio.client import connect

from telemetry.live.frames import HEADER
from tests.stage.operator import Operator

CHASSIS, SEQUENCE = 3, 4  # places among a frame header's fields
COMES_BACK = 0.3  # s; the page waits a little longer each time
Number = tuple[int, int]  # chassis, sequence


class Frames:
    """Frames, each with when it came (Unix s), taken in a thread of its own; a context manager.

    `opened` is how often a socket was opened for them.
    """

    def __init__(self) -> None:
        self.came: list[tuple[Number, float]] = []
        self.opened = 0
        self._by: defaultdict[int, Counter[Number]] = defaultdict(Counter)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def _note(self, frame: bytes) -> None:
        header = HEADER.unpack_from(frame)
        number = header[CHASSIS], header[SEQUENCE]
        self.came.append((number, time.time()))
        self._by[self.opened].update([number])

    @property
    def numbers(self) -> set[Number]:
        """The frames that came."""
        return {number for number, _ in self.came}

    def times(self, chassis: int) -> list[float]:
        """Return when frames of a chassis came."""
        return [at for (of, _), at in self.came if of == chassis]

    def longest_gap(self, chassis: int, since: float, until: float) -> float:
        """Return the longest time without a frame of a chassis from one moment to another, in s."""
        times = [since, *(at for at in self.times(chassis) if since < at < until)]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def twice(self) -> list[Number]:
        """Return the frames that came more than once since a socket was opened, which begins with the newest."""
        return [number for came in self._by.values() for number, times in came.items() if times > 1]

    def stop(self) -> None:
        """End at the next message, or within half a second."""
        self._ended.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(60)


class Watcher(Frames):
    """One browser that watches chassis."""

    def __init__(self, operator: Operator, chassis: list[int]) -> None:
        super().__init__()
        self._address = operator.site.address.replace("http://", "ws://") + "/ws/live/"
        self._headers = {"Cookie": operator.cookies, "Origin": operator.site.address}
        self._greeting = json.dumps({"subscribe": chassis})

    def _run(self) -> None:
        asyncio.run(self.watch())

    async def watch(self) -> None:
        """Watch until `stop`; a socket that is lost is opened again."""
        while not self._ended.is_set():
            with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
                # As browsers have it, which take messages of any size.
                options: dict[str, Any] = {"additional_headers": self._headers, "proxy": None, "max_size": None}
                async with connect(self._address, **options) as socket:
                    self.opened += 1
                    await socket.send(self._greeting)
                    await self._read(socket)
            await asyncio.sleep(COMES_BACK)

    async def _read(self, socket: websockets.ClientConnection) -> None:
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(0.5):
                    message = await socket.recv()
            except TimeoutError:
                continue
            if isinstance(message, bytes):
                self._note(message)


class Listener(Frames):
    """Takes each frame that Redis is given, of one chassis or of all."""

    def __init__(self, broker: redis.Redis, chassis: int | str = "[0-9]*") -> None:
        super().__init__()
        self._pubsub = broker.pubsub()  # type: ignore[no-untyped-call]
        self._pubsub.psubscribe(f"live:{chassis}")

    def _run(self) -> None:
        with self._pubsub:
            while not self._ended.is_set():
                if message := self._pubsub.get_message(ignore_subscribe_messages=True, timeout=0.5):
                    self._note(message["data"])
