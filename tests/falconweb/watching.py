"""Browsers of a running site that only watch: real websockets, which come back as the page's own script does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import redis
import websockets
from websockets.asyncio.client import connect

from telemetry.frames import HEADER
from tests.falconweb.operating import Operator, parent_of
from tests.site import RunningSite, pids_naming

CHASSIS, SEQUENCE = 3, 4  # places among a frame header's fields
COMES_BACK = 0.3  # s; the page waits a little longer each time
Number = tuple[int, int]  # chassis, sequence


class Watcher:
    """One browser in a thread of its own; a context manager. `came` is each frame and when it came, Unix s."""

    def __init__(self, operator: Operator, chassis: list[int]) -> None:
        self.came: list[tuple[Number, float]] = []
        self.opened = 0
        self._address = operator.site.address.replace("http://", "ws://") + "/ws/live/"
        self._headers = {"Cookie": operator.cookies, "Origin": operator.site.address}
        self._greeting = json.dumps({"subscribe": chassis})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.watch()), daemon=True)

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
                header = HEADER.unpack_from(message)
                self.came.append(((header[CHASSIS], header[SEQUENCE]), time.time()))

    def times(self, chassis: int) -> list[float]:
        """Return when frames of a chassis came."""
        return [at for (of, _), at in self.came if of == chassis]

    def twice(self) -> list[Number]:
        """Return the frames that came more than once."""
        return [number for number, times in Counter(number for number, _ in self.came).items() if times > 1]

    def stop(self) -> None:
        """End at the next message, or within half a second."""
        self._ended.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(10)


def broker_of(site: RunningSite) -> tuple[int, redis.Redis]:
    """Return the process id of a site's own Valkey, and a client of it."""
    (pid,) = [pid for pid in pids_naming("server 127.0.0.1:") if parent_of(pid) == site.process.pid]
    port = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"127.0.0.1:")[1].split(b"\0")[0].split()[0]
    password = (site.data / "secrets" / "broker_password").read_text().strip()
    return pid, redis.Redis(port=int(port), password=password)


def poller_of(broker: redis.Redis, chassis: int) -> int:
    """Return the id of the worker process that has the lease of a chassis, 0 where nobody has."""
    holder = broker.get(f"polling:{chassis}")
    return int(holder.split(b":")[-2]) if isinstance(holder, bytes) else 0
