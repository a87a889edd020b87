"""Security of the sign-in: client addresses, failed logins by address, password hashes, sessions.

django-axes locks one name at one address. The count by address is in the cache; without the cache it locks nobody.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.signals import user_login_failed
from django.contrib.sessions.backends import db
from django.core.cache import cache
from django.dispatch import Signal, receiver
from django.http import HttpRequest
from redis.exceptions import RedisError

from accounts.models import User

logger = logging.getLogger(__name__)

MAX_FAILED_LOGINS = 50  # many users may share one address
FAILURE_WINDOW_SECONDS = 900


def _cache_key(request: HttpRequest) -> str:
    return f"guesses:{client_address(request)}"


@receiver(user_login_failed)
def count_failed_login(sender: Any, request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Count a wrong password; the count ends 15 minutes after the first."""
    if request is None:
        return
    try:
        cache.add(_cache_key(request), 0, FAILURE_WINDOW_SECONDS)
        cache.incr(_cache_key(request))
    except (RedisError, OSError, ValueError) as error:
        logger.warning("a wrong password was not counted: %r", error)


def too_many_failed_logins(request: HttpRequest) -> bool:
    """Return whether sign-ins from this address are locked."""
    try:
        return bool(cache.get(_cache_key(request), 0) >= MAX_FAILED_LOGINS)
    except (RedisError, OSError) as error:
        logger.warning("wrong passwords cannot be looked up: %r", error)
        return False


NETWORK_BITS = 64  # the IPv6 prefix of one subscriber


def client_address(request: HttpRequest) -> str:
    """Return the address of the client; for IPv6 the network, since its owner can use all of it.

    Each trusted proxy appends the address that it saw to X-Forwarded-For. Earlier entries, and the whole header without
    a trusted proxy, are from the client and are ignored.
    """
    seen: str = request.META.get("REMOTE_ADDR", "")
    proxies: int = settings.CONFIG.trusted_proxies
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if 0 < proxies <= len(forwarded):
        seen = _normalised_address(forwarded[-proxies]) or seen
    return _normalised_address(seen)


def _normalised_address(text: str) -> str:
    """Return an address in its canonical form, '' for an invalid one."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False).network_address)


MAX_CONCURRENT_HASHES = 4
_hash_slots = threading.BoundedSemaphore(MAX_CONCURRENT_HASHES)


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """Argon2 with at most four concurrent hashes per process: each takes 100 MB, and anybody may try to sign in."""

    def encode(self, password: str, salt: str) -> str:
        """Hash a password."""
        with _hash_slots:
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Return whether a password matches its hash."""
        with _hash_slots:
            return super().verify(password, encoded)


class SessionStore(db.SessionStore):
    """Refuses malformed session keys: PostgreSQL fails on a NUL, which would be an internal error."""

    def _validate_session_key(self, key: str) -> bool:
        return bool(key) and len(key) >= 8 and key.isascii() and key.isalnum()


# person: User | None (None: an unknown name), address: str, sentence: str, the reason.
sign_in_refused = Signal()
# person: User, address: str: the administrator for emergencies has signed in with the local password.
break_glass_used = Signal()


def is_break_glass(person: User) -> bool:
    """Return whether a person is the administrator who may sign in where no identity provider answers."""
    return person.is_administrator and person.username == settings.CONFIG.break_glass
