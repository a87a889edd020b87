"""The way that Channels itself offers: a consumer in a group, frames by `group_send`, the core layer over Redis."""

from __future__ import annotations

import os
from typing import Any, cast

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter

GROUP = "everyone"


class Consumer(AsyncWebsocketConsumer):
    """Sends each frame of the group, and is asked by nobody who it is."""

    async def connect(self) -> None:
        """Take everybody."""
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
    """Return the ASGI application, with settings of its own: for uvicorn's --factory."""
    from django.conf import settings

    settings.configure(CHANNEL_LAYERS=layers())
    return ProtocolTypeRouter({"websocket": cast("Any", Consumer.as_asgi())})
