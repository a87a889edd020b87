"""Security of the sign-in: client addresses, failed logins by address, password hashes, sessions.

django-axes locks one name at one address. The count by address is in the cache; without the cache it locks nobody.
"""

from __future__ import annotations

import ipaddress
import threading
import unicodedata
from typing import Any, cast

from asgiref.sync import sync_to_async
from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.signals import user_login_failed
from django.contrib.sessions.backends import db
from django.dispatch import Signal, receiver
from django.http import HttpRequest

from accounts.models import BrowserSession, User
from core.counters import count_in_period, is_count_reached

DEVICE, ADDRESS = "device", "address"  # keys of a session's data that have columns
MAX_FAILED_LOGINS = 50  # many users may share one address
FAILURE_WINDOW_SECONDS = 900


def _cache_key(request: HttpRequest) -> str:
    return f"guesses:{client_address(request)}"


@receiver(user_login_failed)
def count_failed_login(sender: Any, request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Count a wrong password; the count ends 15 minutes after the first."""
    if request is not None:
        count_in_period(_cache_key(request), FAILURE_WINDOW_SECONDS, "a wrong password")


def too_many_failed_logins(request: HttpRequest) -> bool:
    """Return whether sign-ins from this address are locked."""
    return is_count_reached(_cache_key(request), MAX_FAILED_LOGINS)


def is_locked(request: HttpRequest, person: User) -> bool:
    """Return whether sign-ins from this address, or of this person from it, are locked."""
    return too_many_failed_logins(request) or not AxesProxyHandler.is_allowed(request, {"username": person.username})


NETWORK_BITS = 64  # the IPv6 prefix of one subscriber


def client_address(request: HttpRequest) -> str:
    """Return the address of the client; for IPv6 the network, since its owner can use all of it."""
    address = exact_client_address(request)
    if not isinstance(address, ipaddress.IPv6Address):
        return str(address or "")
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False).network_address)


def exact_client_address(request: HttpRequest) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of the client, None for an unknown one.

    Each trusted proxy appends the address that it saw to X-Forwarded-For. Earlier entries, and the whole header without
    a trusted proxy, are from the client and are ignored.
    """
    seen = _parsed_address(request.META.get("REMOTE_ADDR", ""))
    proxies: int = settings.CONFIG.trusted_proxies
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if 0 < proxies <= len(forwarded):
        seen = _parsed_address(forwarded[-proxies]) or seen
    return seen


def _parsed_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, IPv4 in its own form; None for an invalid one."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


MAX_CONCURRENT_HASHES = 4
_hash_slots = threading.BoundedSemaphore(MAX_CONCURRENT_HASHES)


def normalised_password(password: str) -> str:
    """Return a password in the normal form NFKC, as NIST SP 800-63B has it."""
    return unicodedata.normalize("NFKC", password)


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """Argon2 with at most four concurrent hashes per process: each takes 100 MB, and anybody may try to sign in."""

    def encode(self, password: str, salt: str) -> str:
        """Hash a password; the same letters typed in different ways of Unicode are the same password."""
        with _hash_slots:
            return super().encode(normalised_password(password), salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Return whether a password matches its hash, also one made before passwords were normalised."""
        with _hash_slots:
            normalised = normalised_password(password)
            return super().verify(normalised, encoded) or (normalised != password and super().verify(password, encoded))


class SessionStore(db.SessionStore):
    """Sessions as rows with their person, which end by their limits wherever they are read: requests and websockets.

    Malformed keys are refused: PostgreSQL fails on a NUL, which would be an internal error.
    """

    row: BrowserSession | None = None  # as it was loaded

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        """Return the model of the rows."""
        return BrowserSession

    def create_model_instance(self, data: Any) -> BrowserSession:
        """Return the row for the data of a session, with what of them has columns."""
        row = cast("BrowserSession", super().create_model_instance(data))
        row.person_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        row.device, row.address = data.get(DEVICE, ""), data.get(ADDRESS, "")
        return row

    def _validate_session_key(self, key: str) -> bool:
        return bool(key) and len(key) >= 8 and key.isascii() and key.isalnum()

    def _get_session_from_db(self) -> BrowserSession | None:
        self.row = BrowserSession.live().filter(session_key=self.session_key).first()
        if self.row is None:
            self._session_key = None
        return self.row

    async def _aget_session_from_db(self) -> BrowserSession | None:
        return await sync_to_async(self._get_session_from_db)()


# person: User | None (None: an unknown name), address: str, sentence: str, the reason.
sign_in_refused = Signal()
# person: User, address: str: the administrator for emergencies has signed in with the local password.
break_glass_used = Signal()


def is_break_glass(person: User) -> bool:
    """Return whether a person is the administrator who may sign in where no identity provider answers."""
    return person.is_administrator and person.username == settings.CONFIG.break_glass


def may_sign_in_locally(person: User) -> bool:
    """Return whether what this site stores may sign a person in: a password or a passkey, no provider's word."""
    # Without a password: whoever was linked to a provider once, and stays out when that link ends.
    return (
        person.has_usable_password()
        and not hasattr(person, "external_identity")
        and (not settings.CONFIG.break_glass or is_break_glass(person))
    )
