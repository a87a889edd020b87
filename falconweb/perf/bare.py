"""What fan-out costs at least from Python: a picows server that sends each message of a Redis channel to every socket.

No sign-in, no rights, no routing, and a socket that stops reading fills its memory: a measure, not a choice.
"""

from __future__ import annotations

import asyncio
import os
import sys

import redis.asyncio
import uvloop
from picows import WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

CHANNEL = "perf:bare"
sockets: set[WSTransport] = set()


class Listener(WSListener):  # type: ignore[misc, unused-ignore]
    """One socket."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Take it in."""
        sockets.add(transport)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Let it go."""
        sockets.discard(transport)


def accept(_: WSUpgradeRequest) -> WSListener:
    """Take everybody."""
    return Listener()


async def main(port: int) -> None:
    """Serve until ended."""
    bus = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"])
    async with bus.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        server = await ws_create_server(accept, "127.0.0.1", port)
        async with server:
            async for message in pubsub.listen():
                if message["type"] == "message":
                    for transport in sockets:
                        transport.send(WSMsgType.BINARY, message["data"])
                await asyncio.sleep(0)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
