"""OpenID Connect: the authorization code flow with PKCE, and the checks of what a provider answers.

Requests go over the site's own connections, which check each address and have one time limit; JOSE is joserfc's.
Every function raises Unavailable where the provider does not answer as it should, Forbidden where it, or whoever sends
its answer, is not to be believed; both with a sentence for people.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from accounts.identity_providers.models import IdentityProvider
from core.connections import http_request
from core.endpoints import DeliveryFailed, webhook_endpoint
from core.errors import FalconWebError, Forbidden, Invalid, Unavailable
from core.language import _, gettext_noop

TIMEOUT_SECONDS: Final = 5.0  # of one request
METADATA_SECONDS: Final = 60.0  # a page that anybody may open asks the provider no more often than that
FAILURE_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 600  # to type a password and a second factor at the provider
LEEWAY_SECONDS: Final = 60  # by which clocks may differ
MAX_TOKEN_LENGTH: Final = 32_000
# Signatures by a key that only the provider has: with 'none' or HS256 anybody could sign.
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ProviderMetadata:
    """What a provider publishes of itself (OpenID Connect Discovery 1.0), as far as it is used."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str
    sends_issuer: bool  # with the code (RFC 9207)
    posts_secret: bool  # it takes the secret of a client in the form only


@dataclass(frozen=True, kw_only=True)
class AuthenticationRequest:
    """A sign-in that was begun in a browser: what only it knows until the provider has answered."""

    provider_id: int
    next: str
    confirms: int = 0  # the id of the person who is signed in here, and proves anew who they are
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    def as_json(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


_known: dict[tuple[int, str, str], tuple[float, ProviderMetadata | Unavailable]] = {}
_known_lock = Lock()


def check_address(url: str, what: str) -> None:
    """Raise Invalid unless an address is one of HTTPS, or of this machine, that the site may send to."""
    endpoint = webhook_endpoint(url)
    if endpoint.scheme != "https" and not endpoint.is_loopback:
        sentence = _("The {what} begins with https://: names and tokens are sent there.", what=_(what))
        raise Invalid(sentence, errors={"address": sentence})


def metadata_of(provider: IdentityProvider, *, anew: bool = False) -> ProviderMetadata:
    """Return what a provider publishes, at most a minute old, or read `anew`."""
    key = (provider.pk or 0, provider.address, provider.ca)
    now = time.monotonic()
    with _known_lock:
        until, found = _known.get(key, (0.0, None))
    if anew or found is None or now > until:
        try:
            found = _read_metadata(provider)
        except Unavailable as error:
            found = error
        with _known_lock:
            if len(_known) > 100:
                _known.clear()
            _known[key] = now + (FAILURE_SECONDS if isinstance(found, Unavailable) else METADATA_SECONDS), found
    if isinstance(found, Unavailable):
        raise Unavailable(found.sentence)
    return found


def keys_of(provider: IdentityProvider, metadata: ProviderMetadata) -> KeySet:
    """Return the keys by which a provider signs; they are read each time, since it may change them at any time."""
    found = _json(provider, "GET", metadata.jwks_uri)
    usable = [one for one in found.get("keys", []) if isinstance(one, dict) and one.get("kty") != "oct"]
    try:
        return KeySet.import_key_set({"keys": usable})
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise Unavailable(_("{name} publishes keys that cannot be read.", name=provider.name)) from error


def authorization_address(provider: IdentityProvider, pending: AuthenticationRequest, redirect_uri: str) -> str:
    """Return the address of the provider's sign-in page for a browser."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
    where = metadata_of(provider).authorization_endpoint
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": redirect_uri,
        "scope": provider.scopes,
        "state": pending.state,
        "nonce": pending.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if pending.confirms:
        query |= {"prompt": "login", "max_age": "0"}
    return f"{where}{'&' if urlsplit(where).query else '?'}{urlencode(query)}"


def claims_of_answer(
    provider: IdentityProvider, pending: AuthenticationRequest, answer: Mapping[str, str], redirect_uri: str
) -> dict[str, Any]:
    """Return the claims of a person for the provider's answer in a browser: of the ID token, then of UserInfo."""
    metadata = metadata_of(provider)
    if not secrets.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
        raise Forbidden(_("The answer is of another sign-in. Start again."))
    issuer = answer.get("iss")
    # An answer of another provider (mix-up, RFC 9207); its code would be sent to this one.
    if issuer != provider.address and (issuer is not None or metadata.sends_issuer):
        raise Forbidden(_("The answer is of another identity provider. Start again."))
    if "error" in answer or not answer.get("code"):
        why = "".join(letter for letter in answer.get("error", "no code") if letter.isprintable())[:80]
        raise Forbidden(_("{name} did not sign you in ({why}).", name=provider.name, why=why))
    tokens = _tokens(provider, metadata, answer["code"], redirect_uri, pending.verifier)
    claims = checked_claims(provider, metadata, tokens.get("id_token"), pending.nonce)
    if pending.confirms:
        _check_recent(provider, claims)
    wanted = {provider.username_claim, provider.groups_claim.partition(".")[0]}
    if metadata.userinfo_endpoint and not wanted <= set(claims):
        claims = {**_user_info(provider, metadata, tokens, str(claims["sub"])), **claims}
    return claims


def checked_claims(provider: IdentityProvider, metadata: ProviderMetadata, token: object, nonce: str) -> dict[str, Any]:
    """Return the claims of an ID token that the provider signed, for this site, now, and for this sign-in."""
    if not isinstance(token, str) or len(token) > MAX_TOKEN_LENGTH:
        raise Unavailable(_("{name} answered without an ID token.", name=provider.name))
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": provider.address},
        aud={"essential": True, "value": provider.client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        claims = jwt.decode(token, keys_of(provider, metadata), algorithms=ALGORITHMS).claims
        registry.validate(claims)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        why = getattr(error, "error", "") or type(error).__name__
        raise Forbidden(
            _("The ID token of {name} was refused ({why}). Start again.", name=provider.name, why=why)
        ) from error
    audience = claims["aud"]
    if claims.get("azp", provider.client_id) != provider.client_id or (
        isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
    ):
        raise Forbidden(_("The ID token of {name} is for another site. Start again.", name=provider.name))
    if claims.get("nonce") != nonce:
        raise Forbidden(_("The ID token of {name} is of another sign-in. Start again.", name=provider.name))
    return claims


def _check_recent(provider: IdentityProvider, claims: Mapping[str, Any]) -> None:
    """Raise Forbidden where the person did not prove who they are there just now (OpenID Connect, 3.1.2.1)."""
    at = claims.get("auth_time")
    if not isinstance(at, int | float) or time.time() - at > REQUEST_SECONDS + LEEWAY_SECONDS:
        raise Forbidden(_("{name} did not ask you again who you are.", name=provider.name))


def _tokens(
    provider: IdentityProvider, metadata: ProviderMetadata, code: str, redirect_uri: str, verifier: str
) -> dict[str, Any]:
    """Exchange a code for tokens."""
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier,
    }  # fmt: skip
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    secret = provider.secret()
    if secret and not metadata.posts_secret:
        pair = f"{quote(provider.client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = provider.client_id
        if secret:
            form["client_secret"] = secret
    return _json(provider, "POST", metadata.token_endpoint, headers=headers, body=urlencode(form).encode())


def _user_info(
    provider: IdentityProvider, metadata: ProviderMetadata, tokens: Mapping[str, Any], subject: str
) -> dict[str, Any]:
    """Return the claims of UserInfo, which must be of the person of the ID token."""
    headers = {"Authorization": f"Bearer {tokens.get('access_token', '')}"}
    found = _json(provider, "GET", metadata.userinfo_endpoint, headers=headers)
    if found.get("sub") != subject:
        raise Forbidden(_("{name} answered with another person's details. Start again.", name=provider.name))
    return found


def _read_metadata(provider: IdentityProvider) -> ProviderMetadata:
    found = _json(provider, "GET", f"{provider.address.rstrip('/')}/.well-known/openid-configuration")
    if found.get("issuer") != provider.address:
        raise Unavailable(
            _(
                "{name} calls itself '{called}', not '{issuer}': the issuer is written exactly as it publishes it.",
                name=provider.name,
                called=str(found.get("issuer"))[:200],
                issuer=provider.address,
            )
        )
    ends = {name: found.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
    user_info = found.get("userinfo_endpoint") or ""
    for name, where in {**ends, **({"userinfo_endpoint": user_info} if user_info else {})}.items():
        try:
            check_address(where if isinstance(where, str) else "", name)
        except Invalid as error:
            raise Unavailable(
                _(
                    "{name} publishes a {endpoint} that cannot be used. {reason}",
                    name=provider.name,
                    endpoint=name,
                    reason=error.sentence,
                )
            ) from error
    methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return ProviderMetadata(
        **{name: str(where) for name, where in ends.items()},
        userinfo_endpoint=str(user_info),
        sends_issuer=found.get("authorization_response_iss_parameter_supported") is True,
        posts_secret="client_secret_basic" not in methods,
    )


def _json(
    provider: IdentityProvider, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> dict[str, Any]:
    """Return the object that a provider answers with; raises Unavailable for anything else."""
    try:
        check_address(url, gettext_noop("address"))
        status, content = http_request(
            method, url, headers={"Accept": "application/json", **(headers or {})}, body=body, ca=provider.ca,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except (DeliveryFailed, Invalid) as error:
        raise _away(provider, error) from error
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if status != 200 or not isinstance(found, dict):
        code = found.get("error") if isinstance(found, dict) else None
        why = f"{status} {code}" if isinstance(code, str) and code.isprintable() else str(status)
        where = urlsplit(url).path[:100] or "/"
        raise Unavailable(_("{name} answered {what} at {where}.", name=provider.name, what=why[:80], where=where))
    return found


def _away(provider: IdentityProvider, error: FalconWebError) -> Unavailable:
    return Unavailable(_("{name} does not answer: {reason}", name=provider.name, reason=error.sentence))
