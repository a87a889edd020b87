"""How long ago a person proved who they are, and the check of it before what needs a recent proof."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.utils import timezone

from accounts.models import Token
from core.errors import SignInTooOld
from core.language import _

if TYPE_CHECKING:
    from django.http import HttpRequest
    from rest_framework.request import Request

PROVED_AT: Final = "proved_at"  # key of a session's data: Unix seconds


def sign_in_finished_at(request: HttpRequest | Request) -> datetime | None:
    """Return when the person of this session last signed in or confirmed who they are; None without a session."""
    session = getattr(request, "session", None)
    proved_at = session.get(PROVED_AT) if session is not None else None
    return None if proved_at is None else datetime.fromtimestamp(proved_at, UTC)


def sign_in_renew(request: HttpRequest) -> None:
    """Record that the person of this session has just proved who they are, by whatever way the site accepts."""
    request.session[PROVED_AT] = timezone.now().timestamp()


def is_sign_in_fresh(request: HttpRequest | Request) -> bool:
    """Return whether the last proof is recent enough for what needs one; requests with a token need none."""
    if isinstance(getattr(request, "auth", None), Token):
        return True
    at = sign_in_finished_at(request)
    return at is not None and timezone.now() - at < timedelta(minutes=settings.CONFIG.fresh_sign_in_minutes)


def require_fresh_sign_in(request: HttpRequest | Request) -> None:
    """Raise SignInTooOld where the person has to confirm first: pages then lead to the form for it, and back."""
    if not is_sign_in_fresh(request):
        raise SignInTooOld(
            _("Nothing was changed: enter your password on the page /account/confirmation/ first, then do it again.")
        )
