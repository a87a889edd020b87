"""Limits of requests to the API: of each token, of each person's browser, and of each address without a sign-in.

The counts are in the cache, by minute; without it nobody is refused.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from django.conf import settings
from django.http import HttpRequest
from rest_framework.exceptions import Throttled

from accounts.models import Token, User
from accounts.sign_in.security import client_address
from core.counters import count_in_period
from core.language import _

WINDOW_SECONDS: Final = 60


def limit_person(person: User, token: Token | None = None) -> None:
    """Count a request with a token, or with a person's session; raises Throttled beyond the limit."""
    _limit(f"person:{person.pk}" if token is None else f"token:{token.pk}", settings.CONFIG.api_requests)


def limit_stranger(request: HttpRequest) -> None:
    """Count a request without a valid session or token by its address; raises Throttled beyond the limit."""
    # None came from anywhere where the document of the API is generated.
    if address := client_address(request):
        _limit(f"address:{address}", settings.CONFIG.api_stranger_requests)


def _limit(sender: str, most: int) -> None:
    if not most:
        return
    window, passed = divmod(time.time(), WINDOW_SECONDS)
    key = f"requests:{sender}:{window:.0f}"
    # /healthz says that Redis is away: no line of the log for each request.
    count = count_in_period(key, 2 * WINDOW_SECONDS, "a request", level=logging.DEBUG)
    if count is not None and count > most:
        raise Throttled(wait=WINDOW_SECONDS - passed, detail=_("These are too many requests."))
