"""Reference servers for the fan-out: the channel layer of Channels, and bare picows.

No sign-in, no permissions, no routing, and a stalled socket fills their memory: a reference, not an alternative.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, cast

import redis.asyncio
import uvloop
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter
from picows import WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

GROUP = "everyone"


class GroupConsumer(AsyncWebsocketConsumer):
    """Sends each frame of the group, without authentication."""

    async def connect(self) -> None:
        """Accept any connection."""
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()

    async def frame_now(self, event: dict[str, Any]) -> None:
        """Send the frame."""
        await self.send(bytes_data=event["raw"])


def layers() -> dict[str, Any]:
    """Return the setting CHANNEL_LAYERS."""
    return {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [os.environ["REDIS_URL"]], "prefix": "perf"},
        }
    }


def application() -> ProtocolTypeRouter:
    """Return the ASGI application, with its own settings: for uvicorn's --factory."""
    from django.conf import settings

    # The address of Redis is for the heartbeat of the web process.
    settings.configure(CHANNEL_LAYERS=layers(), REDIS_URL=os.environ["REDIS_URL"])
    return ProtocolTypeRouter({"websocket": cast("Any", GroupConsumer.as_asgi())})


CHANNEL = "perf:bare"
bare_sockets: set[WSTransport] = set()


class BareSocket(WSListener):  # type: ignore[misc, unused-ignore]
    """One socket."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Add the socket."""
        bare_sockets.add(transport)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Remove the socket."""
        bare_sockets.discard(transport)


def accept_bare(_: WSUpgradeRequest) -> WSListener:
    """Accept any connection."""
    return BareSocket()


async def serve_bare(port: int) -> None:
    """Serve until ended."""
    bus = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"])
    async with bus.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        server = await ws_create_server(accept_bare, "127.0.0.1", port)
        async with server:
            async for message in pubsub.listen():
                if message["type"] == "message":
                    for transport in bare_sockets:
                        transport.send(WSMsgType.BINARY, message["data"])
                await asyncio.sleep(0)


if __name__ == "__main__":
    uvloop.run(serve_bare(int(sys.argv[1])))
