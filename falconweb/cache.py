"""The cache in Redis, as JSON: who may write to Redis can have a value refused, and no code run."""

from __future__ import annotations

import json
import logging
from functools import cached_property, lru_cache
from typing import Any

import redis
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis.exceptions import ResponseError

logger = logging.getLogger(__name__)


# A key counts up; its count ends so many seconds after the first. In one step, so that no count stays without an end.
COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return count
"""


class JsonSerializer:
    """Serializes values that JSON has; integers are as Redis increments them."""

    def dumps(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


class SharedClient(RedisCacheClient):
    """A client that keeps its client of Redis: Django makes one for each call, which takes longer than the call."""

    def get_client(self, key: Any = None, *, write: bool = False) -> redis.Redis:
        return self._redis

    def count(self, key: str, seconds: int) -> int:
        """Return how often a key was counted, which ends `seconds` after the first."""
        return int(self._redis.eval(COUNT, 1, key, seconds))  # type: ignore[arg-type]  # the stub's is of a cluster, too

    @cached_property
    def _redis(self) -> redis.Redis:
        return redis.Redis(connection_pool=self._get_connection_pool(write=True))  # type: ignore[attr-defined]


@lru_cache(maxsize=4)
def _shared_client(server: str, options: tuple[tuple[str, Any], ...]) -> SharedClient:
    """Return the client of a process: Django has one a context, and each request is a context of its own."""
    return SharedClient([server], serializer=JsonSerializer, **dict(options))  # type: ignore[arg-type]  # of a module alone


class JsonCache(RedisCache):
    """Django's cache in Redis without pickle. A malformed value is logged, deleted and not there."""

    _cache: SharedClient

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._cache = _shared_client(server, tuple(params.get("OPTIONS", {}).items()))

    def count(self, key: str, seconds: float) -> int:
        """Count a key and return how often it was, in one call; the count ends `seconds` after the first."""
        count: int = self._cache.count(self.make_and_validate_key(key), int(seconds))
        return count

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        try:
            return super().get(key, default, version)
        except (ValueError, RecursionError, ResponseError) as error:
            logger.warning("the cached value of %s is refused: %s", key, error)
            self.delete(key, version)
            return default
