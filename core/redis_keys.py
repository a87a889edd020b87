"""Keys of Redis, which others may write to."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)


def delete_other_types(client: Any, kind: str, *keys: str) -> None:
    """Delete those of the keys that have a value of another type ('hash', 'list', ...); raises RedisError."""
    for key in keys:
        found = client.type(key)
        if (found.decode() if isinstance(found, bytes) else found) not in {kind, "none"}:
            logger.warning("%s of Redis is no %s: it is deleted", key, kind)
            client.delete(key)
