"""Signing in through OpenID Connect: to the provider, and back with its answer.

What a browser has to keep meanwhile is in a signed cookie of ten minutes: a page that anybody may open stores nothing.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.core import signing
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, resolve_url
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET
from redis.exceptions import RedisError

from accounts.access import person_of
from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record, target_of
from accounts.declaration import NO_PAGE, Audience, declare
from accounts.identity_providers import oidc
from accounts.identity_providers.models import IdentityProvider
from accounts.identity_providers.rules import ExternalPerson, person_of_claims
from accounts.identity_providers.selectors import sign_in_providers
from accounts.identity_providers.services import identity_sign_in
from accounts.models import User
from accounts.sign_in.security import client_address, sign_in_refused, too_many_failed_logins
from accounts.sign_in.services import sign_in_complete, sign_in_confirmed
from accounts.visibility import row_or_404
from core.errors import FalconWebError, Forbidden, Unavailable
from core.language import _, english
from core.local_pages import local_page

logger = logging.getLogger(__name__)

SALT: Final = "accounts.sign_in.pending"
MAX_PARAMETER: Final = 4000  # characters
MAX_NEXT: Final = 1000  # characters; it is in a cookie
BACKEND: Final = "accounts.sign_in.backends.OpenIdBackend"


@never_cache
@require_GET
@declare(Audience.PUBLIC, section=None, no_page_test=NO_PAGE)
def provider_start(request: HttpRequest, pk: int) -> HttpResponse:
    """Send a browser to a provider's sign-in page; with `confirm` also that of somebody who is signed in."""
    provider: IdentityProvider = row_or_404(sign_in_providers(), pk, "identity provider")
    where = local_page(request.GET.get("next", ""))
    if len(where) > MAX_NEXT or where.partition("?")[0] == reverse("accounts:sign_in"):
        where = ""
    confirms = request.user.pk if isinstance(request.user, User) and "confirm" in request.GET else 0
    if isinstance(request.user, User) and not confirms:
        return redirect(where or resolve_url(settings.LOGIN_REDIRECT_URL))
    pending = oidc.AuthenticationRequest(provider_id=provider.pk, next=where, confirms=confirms)
    try:
        address = oidc.authorization_address(provider, pending, _callback(request, provider))
    except Unavailable as error:
        return _back(request, provider, error, where)
    response = HttpResponseRedirect(address)
    response.set_cookie(
        _cookie_name(), signing.dumps(pending.as_json(), salt=SALT), max_age=oidc.REQUEST_SECONDS, httponly=True,
        secure=settings.SESSION_COOKIE_SECURE, samesite="Lax",
    )  # fmt: skip
    return response


@never_cache
@sensitive_variables("answer", "claims", "pending")
@require_GET
@declare(Audience.PUBLIC, section=None, no_page_test=NO_PAGE)
def provider_callback(request: HttpRequest, pk: int) -> HttpResponse:
    """Sign in whom the provider vouches for, or confirm the sign-in of who is signed in."""
    provider: IdentityProvider = row_or_404(sign_in_providers(), pk, "identity provider")
    pending: oidc.AuthenticationRequest | None = None
    try:
        if too_many_failed_logins(request):
            raise Forbidden(_("Sign-in from this address is closed after too many wrong passwords."))
        pending = _pending(request, provider)
        answer = {name: str(value) for name, value in request.GET.items() if len(value) <= MAX_PARAMETER}
        claims = oidc.claims_of_answer(provider, pending, answer, _callback(request, provider))
        external = person_of_claims(claims, username_claim=provider.username_claim, groups_claim=provider.groups_claim)
        if pending.confirms:
            _confirm(request, provider, external)
        else:
            person = identity_sign_in(provider=provider, external=external)
            sign_in_complete(request, person, backend=BACKEND, method="OpenID Connect")
    except FalconWebError as error:
        return _back(request, provider, error, pending.next if pending else "")
    response = redirect(pending.next or resolve_url(settings.LOGIN_REDIRECT_URL))
    response.delete_cookie(_cookie_name(), samesite="Lax")
    return response


def _pending(request: HttpRequest, provider: IdentityProvider) -> oidc.AuthenticationRequest:
    """Return the sign-in that was begun in this browser with this provider, once; raises Forbidden, Unavailable."""
    try:
        kept: dict[str, Any] = signing.loads(
            request.COOKIES.get(_cookie_name(), ""), salt=SALT, max_age=oidc.REQUEST_SECONDS
        )
        pending = oidc.AuthenticationRequest(**kept)
    except (signing.BadSignature, TypeError) as error:
        raise Forbidden(_("No sign-in was begun in this browser within ten minutes. Start again.")) from error
    if pending.provider_id != provider.pk or pending.state != request.GET.get("state"):
        raise Forbidden(_("The answer is of another sign-in. Start again."))
    if pending.confirms != (request.user.pk or 0):
        raise Forbidden(_("This browser was signed in or out meanwhile. Start again."))
    try:
        is_first = cache.add(f"sign-in:{pending.state}", 1, oidc.REQUEST_SECONDS)
    except (RedisError, OSError) as error:
        # Without a note of what was used before, an answer that was seen could be used again.
        logger.warning("an answer of %s could not be noted as used: %r", provider.name, error)
        raise Unavailable(
            _("Sign-in through an identity provider is not possible right now. Try again soon.")
        ) from error
    if not is_first:
        raise Forbidden(_("This answer was used before. Start again."))
    return pending


def _confirm(request: HttpRequest, provider: IdentityProvider, external: ExternalPerson) -> None:
    person = person_of(request)
    if not provider.identities.filter(person=person, subject=external.subject).exists():
        raise Forbidden(_("At {name} you are somebody else than here.", name=provider.name))  # `_back` records it
    with sign_in_confirmed(request, person):
        pass


def _back(request: HttpRequest, provider: IdentityProvider, error: FalconWebError, where: str) -> HttpResponse:
    """Record a refusal, and lead to the sign-in page, or to the confirmation of who is signed in; both say why."""
    actor = request.user if isinstance(request.user, User) else None
    audit_record(
        action=Action.SIGN_IN_CONFIRM if actor else Action.SIGN_IN,
        actor=actor,
        target=target_of(provider),
        outcome=Outcome.FAILED if isinstance(error, Unavailable) else Outcome.REFUSED,
        sentence=error.sentence,
        status=error.status,
    )
    if actor is None and not isinstance(error, Unavailable):
        sign_in_refused.send(
            provider_callback, person=None, address=client_address(request), sentence=english(error.sentence)
        )
    messages.error(request, error.sentence)
    query = f"?{urlencode({'next': where})}" if where else ""
    response = redirect(f"{reverse('accounts:confirmation' if actor else 'accounts:sign_in')}{query}")
    response.delete_cookie(_cookie_name(), samesite="Lax")
    return response


def _callback(request: HttpRequest, provider: IdentityProvider) -> str:
    """Return the address to which the provider sends its answers: one a provider, so that none answers for another."""
    return request.build_absolute_uri(reverse("accounts:provider_callback", args=[provider.pk]))


def _cookie_name() -> str:
    # With this prefix no other name of the domain can set it (see SESSION_COOKIE_NAME).
    return "__Host-falconweb-sign-in" if settings.SESSION_COOKIE_SECURE else "falconweb-sign-in"
