"""What the web server and the websocket consumers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

# Extension in the scope of a websocket: its FrameWriter.
WRITE_FRAME: Final = "falconweb.shared"


class FrameWriter(Protocol):
    """Writes whole websocket frames to a socket, made once for many sockets; see falconweb.sockets."""

    # Called when the socket takes nothing more at once, or nothing at all: whoever writes by `writing` stops then.
    blocked: Callable[[], None]

    def write_frame(self, frame: bytes) -> bool:
        """Write a frame if the socket is open and not blocked; returns whether it was written."""

    def writing(self) -> Callable[[bytes], object]:
        """Return the function that writes to the socket without looking at it, until it is blocked."""
