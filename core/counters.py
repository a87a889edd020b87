"""Counts of events in a period, in the cache: for limits of what anybody may send."""

from __future__ import annotations

import logging

from django.core.cache import cache
from redis.exceptions import RedisError, ResponseError

logger = logging.getLogger(__name__)


def count_in_period(key: str, seconds: float, what: str, *, level: int = logging.WARNING) -> int | None:
    """Count an event and return how many there were; the count ends `seconds` after the first.

    Returns None without the cache, and logs at `level` that `what` was not counted.
    """
    try:
        count: int = cache.count(key, seconds)  # type: ignore[attr-defined]  # falconweb.cache has it
        return count
    except (RedisError, OSError, ValueError) as error:
        if isinstance(error, ResponseError):
            cache.delete(key)  # it is no number
        logger.log(level, "%s was not counted: %r", what, error)
        return None


def is_count_reached(key: str, most: int) -> bool:
    """Return whether `most` events or more were counted in the running period; False without the cache."""
    try:
        count = cache.get(key)
    except (RedisError, OSError) as error:
        logger.warning("a count cannot be looked up: %r", error)
        return False
    return isinstance(count, int) and count >= most  # it may be anything: the cache is not trusted
