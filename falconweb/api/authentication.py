"""Authentication of the API: the session of a browser, or a token in the Authorization header."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from accounts.audit.context import complete_origin
from accounts.models import Token, User
from accounts.second_factor.selectors import ENROL_FIRST, must_enrol

SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
# `last_used_at` is informative only, so it is not written at every request.
LAST_USED_PRECISION = timedelta(minutes=1)


class SessionAuthentication(authentication.SessionAuthentication):
    """Django's session, with a 401 (not 403) without one."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        """Return the user, None without a session."""
        found = super().authenticate(request)
        if found is not None:
            complete_origin(person_id=found[0].pk)
            if must_enrol(found[0], request.session):
                raise exceptions.PermissionDenied(ENROL_FIRST)
        return found

    def authenticate_header(self, request: Request) -> str:
        """Return the scheme for scripts."""
        return "Bearer"


class TokenAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer <token>`; a token that only reads is refused on writes, one for /metrics everywhere else.

    `scopes` are the scopes that the view accepts.
    """

    scopes: frozenset[str] = frozenset({Token.Scope.READ, Token.Scope.WRITE})

    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        """Return the user and the token, None without one; raises 401 for a wrong or expired one."""
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        now = timezone.now()
        token = (
            Token.objects.select_related("person")
            .filter(digest=Token.digest_of(secret.strip()), expires_at__gt=now, person__is_active=True)
            .first()
        )
        if token is None:
            raise exceptions.AuthenticationFailed("The token is unknown, expired, or its person is no longer active.")
        # Recorded even if its scope is not sufficient.
        complete_origin(token=token, credential=f"token {token.pk}, {token.name}", person_id=token.person_id)
        if token.scope not in self.scopes:
            raise exceptions.PermissionDenied("This token opens /metrics, nothing else.")
        if token.scope != Token.Scope.WRITE and request.method not in SAFE_METHODS:
            raise exceptions.PermissionDenied("This token may only read.")
        if token.last_used_at is None or now - token.last_used_at > LAST_USED_PRECISION:
            Token.objects.filter(pk=token.pk).update(last_used_at=now)
        return token.person, token

    def authenticate_header(self, request: Request) -> str:
        """Return the name of the scheme."""
        return "Bearer"


class MetricsAuthentication(TokenAuthentication):
    """Authentication of /metrics: its own tokens, and those that may read the same through the API."""

    scopes = frozenset(Token.Scope.values)


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The OpenAPI security scheme of tokens."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the security scheme."""
        return {"type": "http", "scheme": "bearer"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The OpenAPI security scheme of sessions."""

    target_class = SessionAuthentication
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the security scheme."""
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
