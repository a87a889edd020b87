"""The cache in Redis, as JSON: who may write to Redis can have a value refused, and no code run."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.core.cache.backends.redis import RedisCache
from redis.exceptions import ResponseError

logger = logging.getLogger(__name__)


class JsonSerializer:
    """Serializes values that JSON has; integers are as Redis increments them."""

    def dumps(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


class JsonCache(RedisCache):
    """Django's cache in Redis without pickle. A malformed value is logged, deleted and not there."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        options = {**params.get("OPTIONS", {}), "serializer": JsonSerializer}
        super().__init__(server, {**params, "OPTIONS": options})

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        try:
            return super().get(key, default, version)
        except (ValueError, RecursionError, ResponseError) as error:
            logger.warning("the cached value of %s is refused: %s", key, error)
            self.delete(key, version)
            return default
