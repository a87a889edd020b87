"""Making and revoking tokens; errors are those of `accounts.services`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_network

from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from accounts.audit.actions import Action
from accounts.audit.context import current_origin
from accounts.audit.services import Target, audited, target_of
from accounts.models import Area, Token, User
from accounts.sign_in.change_mails import change_mail_enqueue
from accounts.token_rules import WRITE, TokenRights, rights_within
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.language import _

logger = logging.getLogger(__name__)

TOKEN_PREFIX = "fw_"  # noqa: S105 - a prefix by which scanners find leaked tokens
MAX_TOKEN_DAYS = 365
MAX_TOKENS = 50
MAX_ADDRESSES = 50
TOKEN_SCOPES = [f"{area}:{action}" for area in Area.values for action in ("read", WRITE)]


@sensitive_variables("secret")
def token_create(
    *,
    person: User,
    name: str,
    scope: str,
    days: int,
    scopes: Sequence[str] = (),
    addresses: Sequence[str] = (),
    by: User | None = None,
) -> tuple[Token, str]:
    """Create an API token for a person; returns it and its secret, which is not available later.

    People make their own (`by` None), administrators those of service accounts. One that a token makes has at most its
    rights, ends when it does, and is revoked with it.
    """
    by = by or person
    with audited(Action.TOKEN_CREATE, actor=by, target=Target("token", name=name)) as act:
        if by.pk != person.pk and not (by.is_administrator and person.is_service):
            raise Forbidden(_("People make their own tokens; administrators make those of service accounts."))
        # Locked so that concurrent requests cannot exceed the limit or use the same name.
        User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)
        parent = _making_token()
        name = name.strip()
        rights, errors = _checked_rights(scope, scopes, addresses)
        if not errors:
            rights, errors = rights_within(rights, _rights_of(parent))
        if not name or len(name) > 100:
            errors["name"] = _("Give the token a name of at most 100 letters, such as the program that uses it.")
        elif person.tokens.filter(name__iexact=name).exists():
            errors["name"] = _("There is a token of this name. Take another name, or revoke that one.")
        if not 1 <= days <= MAX_TOKEN_DAYS:
            errors["days"] = _("Choose 1 to {most} days.", most=MAX_TOKEN_DAYS)
        if errors:
            raise Invalid(_("The token cannot be created."), errors=errors)
        if person.tokens.count() >= MAX_TOKENS:
            raise Conflict(
                _(
                    "There are {most} tokens, the most that anybody may have. Revoke one first.",
                    most=MAX_TOKENS,
                )
            )
        expires_at = timezone.now() + timedelta(days=days)
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        token = Token.objects.create(
            person=person,
            name=name,
            scope=rights.scope,
            scopes=list(rights.scopes),
            addresses=list(rights.addresses),
            parent=parent,
            digest=Token.digest_of(secret),
            expires_at=min(expires_at, parent.expires_at) if parent else expires_at,
        )
        act.target, act.after = target_of(token), _audit_values(token)
        change_mail_enqueue(person, f"The API token '{name}' of your account was made.")
        logger.info("%s made token %r (%s) of %s", by.username, name, scope, person.username)
        return token, secret


def token_revoke(*, by: User, token: Token) -> None:
    """Revoke a token and those that it made, immediately: one's own, or any for administrators."""
    with audited(Action.TOKEN_REVOKE, actor=by, target=target_of(token)) as act:
        if token.person_id != by.pk and not by.is_administrator:
            raise NotFound(_("There is no such token."))
        act.before = _audit_values(token)
        logger.info("%s revoked token %r of %s", by.username, token.name, token.person.username)
        deleted = token.delete()[1]
        if (made := deleted.get("accounts.Token", 1) - 1) > 0:
            act.sentence = f"{made} that it had made {'was' if made == 1 else 'were'} revoked with it."


def _making_token() -> Token | None:
    """Return the token of the present request, None for a browser; raises Forbidden for one that was revoked since."""
    origin = current_origin()
    if origin.token is None:
        return None
    token = Token.objects.select_for_update().filter(pk=origin.token.pk).first()
    if token is None:
        raise Forbidden(_("The token of this request was revoked."))
    return token


def _rights_of(token: Token | None) -> TokenRights | None:
    if token is None:
        return None
    return TokenRights(scope=token.scope, scopes=tuple(token.scopes), addresses=tuple(token.addresses))


def _checked_rights(scope: str, scopes: Sequence[str], addresses: Sequence[str]) -> tuple[TokenRights, dict[str, str]]:
    """Return rights in their stored form, and what is wrong with them by field."""
    errors: dict[str, str] = {}
    if scope not in Token.Scope.values:
        errors["scope"] = _("Choose what the token may do.")
    if unknown := [one for one in scopes if one not in TOKEN_SCOPES]:
        errors["scopes"] = _(
            "There is no area '{area}'. Choose among {names}.",
            area=unknown[0][:50],
            names=", ".join(TOKEN_SCOPES),
        )
    elif scopes and scope == Token.Scope.METRICS:
        errors["scopes"] = _("A token for /metrics has no areas. Choose none, or another permission.")
    elif scope == Token.Scope.READ and any(one.endswith(f":{WRITE}") for one in scopes):
        errors["scopes"] = _("This token may only read. Choose areas to read, or that it may write.")
    networks = []
    for text in addresses:
        try:
            # '10.1.2.3/8' means the network that the address is in.
            networks.append(str(ip_network(text.strip(), strict=False)))
        except ValueError:
            errors["addresses"] = _(
                "'{text}' is no address or network such as 10.0.0.0/8 or 2001:db8::/32.", text=text[:50]
            )
    if len(addresses) > MAX_ADDRESSES:
        errors["addresses"] = _("Give {most} networks at most.", most=MAX_ADDRESSES)
    return TokenRights(scope=scope, scopes=tuple(sorted(set(scopes))), addresses=tuple(dict.fromkeys(networks))), errors


def _audit_values(token: Token) -> dict[str, object]:
    """Return the audited values of a token."""
    return {
        "name": token.name, "person": token.person.username, "scope": token.scope, "areas": token.scopes,
        "addresses": token.addresses, "made by token": token.parent.name if token.parent else None,
        "expires": token.expires_at.isoformat(),
    }  # fmt: skip
