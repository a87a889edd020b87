"""Many sockets that count frames and record their latencies; a separate process, controlled by lines of JSON.

    {"do": "open", "count": 500}   answered {} once that many more sockets are open; "greetings": their first messages,
                                   assigned in rotation, instead of the usual one
    {"do": "begin"}                resets the counts
    {"do": "report"}               answered {"frames", "bytes", "fewest", "p50", "p99"}: frames in all, bytes of
                                   a frame, frames of the socket that got fewest, s from a frame's time to its arrival
    {"do": "stall"}                one more socket, which reads its first message only; answered {"port"}: its own
    {"do": "release"}              ends that one

The first line is [address, cookies, first message]: the cookies are those of sessions, which the sockets have in
rotation, and must not appear in a process list.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from telemetry.live.frames import HEADER

MAX_CONNECTING = 20
TIME_FIELD = 5  # the index of the time among a frame header's fields
SMALL_BUFFER = 4096


class LoadSocket(WSListener):  # type: ignore[misc, unused-ignore]
    """One socket."""

    def __init__(self, generator: LoadGenerator, greeting: bytes | None = None, *, stalls: bool = False) -> None:
        super().__init__()
        self.generator = generator
        self.greeting = generator.greeting if greeting is None else greeting
        self.stalls = stalls
        self.frames = 0

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Send the subscription."""
        if self.greeting:
            transport.send(WSMsgType.TEXT, self.greeting)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Record the arrival of a frame; nothing else, so that the reader is fast enough."""
        if self.stalls:
            transport.underlying_transport.pause_reading()
        elif frame.msg_type == WSMsgType.BINARY:
            now = time.time()
            self.frames += 1
            self.generator.lateness.append(now - HEADER.unpack_from(frame.get_payload_as_memoryview())[TIME_FIELD])
            self.generator.bytes += frame.payload_size


class LoadGenerator:
    """The sockets and their records."""

    def __init__(self, url: str, cookies: Sequence[str], greeting: str) -> None:
        self.url = url
        self.greeting = greeting.encode()
        self.headers = {"Origin": url.replace("ws://", "http://").rpartition("/ws/")[0]}
        self.cookies = cookies
        self.lateness: list[float] = []
        self.bytes = 0
        self.listeners: list[LoadSocket] = []
        self.stalled: WSTransport | None = None

    async def open(self, count: int, greetings: Sequence[str] = ()) -> dict[str, Any]:
        """Open more sockets, in batches."""
        gate = asyncio.Semaphore(MAX_CONNECTING)

        async def one(number: int) -> None:
            greeting = greetings[number % len(greetings)].encode() if greetings else None
            listener = LoadSocket(self, greeting)
            self.listeners.append(listener)
            headers = self.headers_of(number)
            async with gate:
                await ws_connect(lambda: listener, self.url, extra_headers=headers, websocket_handshake_timeout=30)

        await asyncio.gather(*(one(number) for number in range(count)))
        return {}

    def headers_of(self, number: int) -> dict[str, str]:
        """Return the headers of the request of a socket."""
        cookies = self.cookies
        return self.headers | ({"Cookie": cookies[number % len(cookies)]} if cookies else {})

    async def begin(self) -> dict[str, Any]:
        """Reset the records."""
        self.lateness, self.bytes = [], 0
        for listener in self.listeners:
            listener.frames = 0
        return {}

    async def report(self) -> dict[str, Any]:
        """Return the results since `begin`."""
        late = sorted(self.lateness)
        count = len(late)
        return {
            "frames": count,
            "bytes": self.bytes / count if count else 0.0,
            "fewest": min((listener.frames for listener in self.listeners), default=0),
            "p50": late[count // 2] if count else 0.0,
            "p99": late[count * 99 // 100] if count else 0.0,
        }

    async def stall(self) -> dict[str, Any]:
        """Open a socket that reads only its first message."""

        def small(_: object) -> socket.socket:
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            made.setblocking(False)
            return made

        self.stalled, _ = await ws_connect(
            lambda: LoadSocket(self, stalls=True), self.url, extra_headers=self.headers_of(0), socket_factory=small
        )
        return {"port": self.stalled.underlying_transport.get_extra_info("sockname")[1]}

    async def release(self) -> dict[str, Any]:
        """End the stalled socket."""
        if self.stalled is not None:
            self.stalled.disconnect(False)
        return {}

    async def run(self, commands: asyncio.StreamReader) -> None:
        """Execute the commands until the input ends."""
        while line := await commands.readline():
            command = json.loads(line)
            answer = await getattr(self, command.pop("do"))(**command)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


async def main() -> None:
    """Generate load at one address."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    url, cookies, greeting = json.loads(await lines.readline())
    await LoadGenerator(url, cookies, greeting).run(lines)


if __name__ == "__main__":
    uvloop.run(main())
