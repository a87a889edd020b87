"""How many wrong passwords come from one address, whatever the names: a list of names is no way around the lock.

The lock of one name at one address is django-axes'. This count lives in the cache; where that is away, nobody is kept
out by it.
"""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth.signals import user_login_failed
from django.core.cache import cache
from django.dispatch import receiver
from django.http import HttpRequest
from redis.exceptions import RedisError

from accounts.addresses import client_address

logger = logging.getLogger(__name__)

MOST_GUESSES = 50  # an office behind one address may mistype now and then
SECONDS = 900


def _key(request: HttpRequest) -> str:
    return f"guesses:{client_address(request)}"


@receiver(user_login_failed)
def count_guess(sender: Any, request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Count a wrong password; the count ends 15 minutes after the first."""
    if request is None:
        return
    try:
        cache.add(_key(request), 0, SECONDS)
        cache.incr(_key(request))
    except (RedisError, OSError, ValueError) as error:
        logger.warning("a wrong password was not counted: %r", error)


def too_many_guesses(request: HttpRequest) -> bool:
    """Tell whether nobody may try to sign in from this address for now."""
    try:
        return bool(cache.get(_key(request), 0) >= MOST_GUESSES)
    except (RedisError, OSError) as error:
        logger.warning("wrong passwords cannot be looked up: %r", error)
        return False
