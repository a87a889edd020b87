"""Keys of the Redis of a test, which the next test must not find."""

from __future__ import annotations

import redis
from django.conf import settings


def delete_keys(*patterns: str) -> None:
    """Delete the keys of Redis that fit a pattern ('live:*')."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        for key in [key for pattern in patterns for key in client.scan_iter(pattern, 1000)]:
            client.delete(key)
