"""Limits on recorded refusals: up to a limit each has an entry; beyond it, one entry gives their number.

Refused requests cannot be prevented: without a bound a stranger could fill the database, and delay all writers at the
end of the log. The limits apply per quarter of an hour: to each user, to each address without a sign-in, and to all
strangers together. Completed actions are always recorded. The counts are in Redis.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from typing import cast

import redis
from django.conf import settings

from core.redis_keys import delete_other_types

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 900  # s
PERSON_LIMIT = 300
ADDRESS_LIMIT = 60  # includes wrong passwords, which sign_in.security limits
ANONYMOUS_LIMIT = 300
MAX_COUNTED_SENDERS = 5_000  # users and addresses with separate counts beyond the limits
COUNTS_KEPT_SECONDS = 7 * 24 * 3600  # s, for the task that records them
OTHERS_KEY = "|"
NUMBER = re.compile("[0-9]{1,12}")
PERIODS_KEY = "falconweb:audit:periods"

_client = redis.Redis.from_url(
    settings.REDIS_URL, **settings.REDIS_TIMEOUTS, decode_responses=True, encoding_errors="replace"
)
# Without Redis, each process counts separately.
_lock = threading.Lock()
_local_counts: Counter[str] = Counter()


def refusal_admitted(person: int | None, address: str) -> bool:
    """Count a refused request; return whether it gets its own entry."""
    period = int(time.time() // PERIOD_SECONDS)
    limits = {f"person:{person}": PERSON_LIMIT}
    if person is None:
        limits = {f"address:{address}": ADDRESS_LIMIT, "strangers": ANONYMOUS_LIMIT}
    try:
        with _client.pipeline() as pipe:
            for name in limits:
                pipe.incr(f"falconweb:audit:{period}:{name}")
                pipe.expire(f"falconweb:audit:{period}:{name}", 2 * PERIOD_SECONDS)
            counts = pipe.execute()[::2]
        kept = all(count <= most for count, most in zip(counts, limits.values(), strict=True))
        if not kept:
            _count(period, f"{person or ''}|{address}")
    except (redis.RedisError, OSError) as error:
        logger.warning("refused requests are counted by this process alone: %r", error)
        return _admitted_locally(period, limits)
    return kept


def ended_period_counts(now: float) -> dict[int, dict[tuple[int | None, str], int]]:
    """Return the ended periods with their numbers of refusals, by user and address ('': others)."""
    found = {}
    delete_other_types(_client, "set", PERIODS_KEY)
    texts = cast("set[str]", _client.smembers(PERIODS_KEY))
    for period in sorted(int(text) for text in texts if NUMBER.fullmatch(text)):
        if now >= (period + 1) * PERIOD_SECONDS + 60:  # clocks differ
            counts = {}
            delete_other_types(_client, "hash", _hash(period))
            for name, count in cast("dict[str, str]", _client.hgetall(_hash(period))).items():
                person, _, address = name.partition("|")
                if (not person or NUMBER.fullmatch(person)) and NUMBER.fullmatch(count):
                    counts[int(person) if person else None, address] = int(count)
            found[period] = counts
    return found


def period_delete(period: int) -> None:
    """Delete the counts of a period after they are recorded."""
    _client.delete(_hash(period))
    _client.srem(PERIODS_KEY, str(period))


def _count(period: int, who: str) -> None:
    key = _hash(period)
    many = cast("int", _client.hlen(key))  # the stub joins two clients
    if many >= MAX_COUNTED_SENDERS and not _client.hexists(key, who):
        who = OTHERS_KEY
    with _client.pipeline() as pipe:
        pipe.hincrby(key, who, 1)
        pipe.expire(key, COUNTS_KEPT_SECONDS)
        pipe.sadd(PERIODS_KEY, str(period))
        pipe.execute()


def _hash(period: int) -> str:
    return f"falconweb:audit:{period}:more"


def _admitted_locally(period: int, limits: dict[str, int]) -> bool:
    with _lock:
        names = [f"{period}:{name}" for name in limits]
        if not any(name.startswith(f"{period}:") for name in _local_counts):
            _local_counts.clear()
        if len(_local_counts) > MAX_COUNTED_SENDERS:
            return False
        _local_counts.update(names)
        return all(_local_counts[name] <= most for name, most in zip(names, limits.values(), strict=True))
