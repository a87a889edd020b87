"""The websockets of the web processes: uvicorn's own protocol, and a way to give many sockets the very same bytes.

ASGI hands each message to each socket, which frames, copies and checks it anew: for a thousand browsers that get the
same frame this is most of what it costs. The scope therefore offers an extension of the site's own, `WRITE_FRAME`: a
function that takes a whole websocket frame, made once, and writes it to this socket. It returns False where the socket
takes nothing just now, or no more: then the message goes the usual way, which waits or says what is wrong.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from core.websockets import WRITE_FRAME


class Protocol(WebSocketsSansIOProtocol):
    """Uvicorn's protocol with that extension."""

    def handle_connect(self, event: Request) -> None:
        """Offer the extension to the application, which begins after this."""
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        # What an extension of the websocket itself would do to a frame, such as deflate it, is not done here.
        if scope is not None and not self.conn.extensions:
            scope["extensions"][WRITE_FRAME] = self.write_frame

    def write_frame(self, frame: bytes) -> bool:
        """Write a whole frame if the socket is open and takes it at once; returns whether it did."""
        if not self.writable.is_set() or self.close_sent or self.disconnected or not self.handshake_complete:
            return False
        if self.conn.state is not State.OPEN or self.transport.is_closing():
            return False
        self.transport.write(frame)
        return True
