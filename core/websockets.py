"""Names that the web server and the websocket consumers share."""

from __future__ import annotations

from typing import Final

# Extension in the scope of a websocket: a function that writes a whole frame to the socket; see falconweb.sockets.
WRITE_FRAME: Final = "falconweb.shared"
