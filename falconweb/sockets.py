"""The websockets of the web processes: uvicorn's protocol, extended to write the same bytes to many sockets.

With ASGI, each socket frames, copies and checks each message: for a thousand browsers with the same frame this is most
of the cost. The scope therefore has the extension `WRITE_FRAME`: a core.websockets.FrameWriter, which writes a complete
websocket frame, made once, to this socket. Where the socket is blocked or closed, the message is sent the usual way,
which waits or raises an error.

Pings come from one timer for all sockets, some in each second: with a timer for each socket the process woke for each
ping and for each answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from core.websockets import WRITE_FRAME

PING: Final = b"\x89\x00"  # RFC 6455, 5.5.2: without data
TURNS: Final = 20  # in one interval between the pings of a socket


class PingWheel:
    """Pings the sockets of a loop: each of them in one of TURNS turns, which come one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns: list[set[Protocol]] = [set() for _ in range(TURNS)]
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, socket: Protocol, interval: float) -> set[Protocol]:
        """Ping a socket every `interval` s, the same for all; it ends by leaving the set that is returned."""
        turn = min(self._turns, key=len)
        turn.add(socket)
        if self._timer is None:
            self._timer = self._loop.call_later(interval / TURNS, self._turn, interval / TURNS)
        return turn

    def _turn(self, pause: float) -> None:
        # First of all: the error of one socket ends no pings of others.
        self._timer = self._loop.call_later(pause, self._turn, pause) if any(self._turns) else None
        self._next = (self._next + 1) % TURNS
        for socket in list(self._turns[self._next]):
            socket.ping()


_wheels: dict[asyncio.AbstractEventLoop, PingWheel] = {}


def ping_wheel(loop: asyncio.AbstractEventLoop) -> PingWheel:
    for closed in [known for known in _wheels if known.is_closed()]:
        del _wheels[closed]
    if loop not in _wheels:
        _wheels[loop] = PingWheel(loop)
    return _wheels[loop]


class Protocol(WebSocketsSansIOProtocol):
    """Uvicorn's protocol with that extension, and with these pings."""

    blocked: Callable[[], None] = staticmethod(lambda: None)
    is_awaited = False  # nothing was received since the last ping
    turn: set[Protocol] | None = None

    def handle_connect(self, event: Request) -> None:
        """Add the extension to the scope before the application starts."""
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        # Websocket extensions, such as deflate, do not apply to these frames.
        if scope is not None and not self.conn.extensions:
            scope["extensions"][WRITE_FRAME] = self

    def write_frame(self, frame: bytes) -> bool:
        """Write a complete frame if the socket is open and not blocked; returns whether it was written."""
        if not self.writable.is_set() or self.close_sent or self.disconnected or not self.handshake_complete:
            return False
        if self.conn.state is not State.OPEN or self.transport.is_closing():
            return False
        self.transport.write(frame)
        return True

    def writing(self) -> Callable[[bytes], object]:
        """Return the transport's own `write`: after its end it does nothing."""
        return self.transport.write

    def pause_writing(self) -> None:
        """Tell that the kernel takes nothing more at once."""
        super().pause_writing()
        self.blocked()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the socket is closed."""
        self.blocked()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        """Send a message of ASGI; tell that nothing follows a close."""
        if message["type"] == "websocket.close":
            self.blocked()
        await super().send(message)

    def start_keepalive(self) -> None:
        """Ping the socket from now on."""
        if self.ping_interval:
            self.turn = ping_wheel(self.loop).add(self, self.ping_interval)

    def stop_keepalive(self) -> None:
        """Ping it no more."""
        if self.turn is not None:
            self.turn.discard(self)

    def ping(self) -> None:
        """Send a ping; close the socket where nothing came since the one before, as uvicorn does."""
        if self.close_sent or self.transport.is_closing():
            return
        if self.is_awaited:
            self.keepalive_timeout()
            return
        self.is_awaited = True
        self.transport.write(PING)

    def data_received(self, data: bytes) -> None:
        """Note that the browser is there."""
        self.is_awaited = False
        super().data_received(data)
