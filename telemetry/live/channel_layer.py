"""The channel layer of the live websocket: who may write to Redis can close sockets, and call nothing else."""

from __future__ import annotations

import logging
from typing import Any, Literal

import msgspec
from channels_redis.pubsub import RedisPubSubChannelLayer

logger = logging.getLogger(__name__)
REFUSED = {"type": "refused.message"}  # LiveConsumer does nothing with it


class SignedOutMessage(msgspec.Struct, forbid_unknown_fields=True):
    """The only message that is sent through the layer: a session has ended, None for all of the person."""

    type: Literal["signed.out"]
    session: str | None


_decoder = msgspec.msgpack.Decoder(SignedOutMessage)


class StrictChannelLayer(RedisPubSubChannelLayer):  # type: ignore[misc]  # it has no types
    """Accepts SignedOutMessage only: Channels calls the consumer's method that the type of a message names."""

    def deserialize(self, message: bytes) -> dict[str, Any]:
        """Return the message; one that does nothing for anything else."""
        try:
            return msgspec.structs.asdict(_decoder.decode(message))
        except msgspec.DecodeError as error:
            logger.warning("a message of the channel layer is refused: %s", error)
            return REFUSED
