"""The websockets of the web processes: uvicorn's protocol, extended to write the same bytes to many sockets.

With ASGI, each socket frames, copies and checks each message: for a thousand browsers with the same frame this is most
of the cost. The scope therefore has the extension `WRITE_FRAME`: a core.websockets.FrameWriter, which writes a complete
websocket frame, made once, to this socket. Where the socket is blocked or closed, the message is sent the usual way,
which waits or raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from core.websockets import WRITE_FRAME


class Protocol(WebSocketsSansIOProtocol):
    """Uvicorn's protocol with that extension."""

    blocked: Callable[[], None] = staticmethod(lambda: None)

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
