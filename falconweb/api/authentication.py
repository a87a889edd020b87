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
from accounts.declaration import area_of
from accounts.models import Area, Token, User
from accounts.second_factor.selectors import ENROL_FIRST, must_enrol
from accounts.sign_in.security import exact_client_address
from accounts.sign_in.services import session_touch
from accounts.token_rules import covers, is_admitted
from core.database import CompiledQuery
from falconweb.api.rate_limits import limit_person, limit_stranger

SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
# `last_used_at` is informative only, so it is not written at every request.
LAST_USED_PRECISION = timedelta(minutes=1)
# Looked up by each request of a program.
TOKEN_WITH_PERSON = CompiledQuery(
    lambda digest: Token.objects.filter(digest=digest).order_by().select_related("person")
)


def find_token(header: str) -> Token | None:
    """Return the token of an Authorization header, with its person; None without one that is valid now."""
    if not _is_bearer(header):
        return None
    found = TOKEN_WITH_PERSON.first(Token.digest_of(header.partition(" ")[2].strip()))
    is_valid = found is not None and found.expires_at > timezone.now() and found.person.is_active
    return found if is_valid else None


def _is_bearer(header: str) -> bool:
    return header.partition(" ")[0].lower() == "bearer"


class SessionAuthentication(authentication.SessionAuthentication):
    """Django's session, with a 401 (not 403) without one."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        """Return the user, None without a session."""
        found = super().authenticate(request)
        if found is not None:
            complete_origin(person_id=found[0].pk)
            limit_person(found[0])
            session_touch(request._request)  # noqa: SLF001 - its documented name is in newer versions
            if must_enrol(found[0], request.session):
                raise exceptions.PermissionDenied(ENROL_FIRST)
        return found

    def authenticate_header(self, request: Request) -> str:
        """Return the scheme for scripts."""
        return "Bearer"


class TokenAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer <token>`; refused where its scope, areas or addresses do not admit it.

    `scopes` are the scopes that the view accepts. It is the last that is tried: without a token nobody is signed in.
    """

    scopes: frozenset[str] = frozenset({Token.Scope.READ, Token.Scope.WRITE})

    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        """Return the user and the token, None without one; raises 401 for a wrong or expired one."""
        header = request.headers.get("Authorization", "")
        token = find_token(header)
        if token is None:
            limit_stranger(request)
            if not _is_bearer(header):
                return None
            raise exceptions.AuthenticationFailed("The token is unknown, expired, or its person is no longer active.")
        now = timezone.now()
        # Recorded even if its scope is not sufficient.
        complete_origin(token=token, credential=f"token {token.pk}, {token.name}", person_id=token.person_id)
        limit_person(token.person, token)
        if token.scope not in self.scopes:
            raise exceptions.PermissionDenied("This token opens /metrics, nothing else.")
        if token.scope != Token.Scope.WRITE and request.method not in SAFE_METHODS:
            raise exceptions.PermissionDenied("This token may only read.")
        _check_area(token, request)
        if not is_admitted(token.addresses, exact_client_address(request)):
            raise exceptions.PermissionDenied("This token may not be used from this address.")
        if token.last_used_at is None or now - token.last_used_at > LAST_USED_PRECISION:
            Token.objects.filter(pk=token.pk).update(last_used_at=now)
        return token.person, token

    def authenticate_header(self, request: Request) -> str:
        """Return the name of the scheme."""
        return "Bearer"


def _check_area(token: Token, request: Request) -> None:
    """Raise 403 where a token is narrowed to areas that the endpoint is not in; one without an area is in none."""
    match, method = request.resolver_match, request.method or ""
    action = "read" if method in SAFE_METHODS else "write"
    area = area_of(match.func, method) if match else ""
    if not covers(token.scopes, area, action):
        raise exceptions.PermissionDenied(
            f"This token may not {action} {Area(area).label if area else 'this'}: it has {', '.join(token.scopes)}."
        )


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
