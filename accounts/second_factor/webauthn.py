"""The ceremonies of WebAuthn: what a browser is asked, and the check of what it answers.

A challenge is signed by the site and names what it is for, so that none is stored; the use of a passkey ends all that
were issued before it.
"""

from __future__ import annotations

import json
import logging
import secrets
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from django.core.signing import BadSignature, Signer
from django.http import HttpRequest
from django.http.request import split_domain_port
from fido2.cose import CoseKey
from fido2.server import Fido2Server
from fido2.utils import websafe_encode
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    AuthenticatorData,
    AuthenticatorTransport,
    PublicKeyCredentialDescriptor,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialType,
    PublicKeyCredentialUserEntity,
    RegistrationResponse,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from accounts.access import SITE_NAME
from accounts.second_factor.models import Passkey
from core.errors import Invalid
from core.language import _, gettext_noop

logger = logging.getLogger(__name__)

CHALLENGE_SECONDS: Final = 300
MAX_ANSWER_LENGTH: Final = 20_000
REFUSED: Final = gettext_noop("This passkey was not accepted. Try again, or sign in another way.")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What parsing and checking raise for answers that no authenticator gives.
MALFORMED: Final = (
    ValueError, TypeError, LookupError, AttributeError, AssertionError, NotImplementedError, RecursionError,
    struct.error, UnsupportedAlgorithm,
)  # fmt: skip


@dataclass(frozen=True)
class RelyingParty:
    """The site as its passkeys know it: the host name that they are bound to, and the origin of its pages."""

    host: str
    origin: str

    @classmethod
    def of(cls, request: HttpRequest) -> RelyingParty:
        """Return the site of a request, whose host is one of FALCONWEB_ALLOWED_HOSTS."""
        host = request.get_host()
        return cls(host=split_domain_port(host)[0], origin=f"{request.scheme}://{host}")

    @property
    def server(self) -> Fido2Server:
        """The checks of the library, for exactly this origin: not for its subdomains, and over HTTP where it is."""
        entity = PublicKeyCredentialRpEntity(name=SITE_NAME, id=self.host)
        return Fido2Server(entity, verify_origin=lambda origin: origin == self.origin)


@dataclass(frozen=True)
class Registration:
    """A checked registration: what the authenticator says of itself, and how browsers reach it."""

    data: AuthenticatorData
    credential: AttestedCredentialData
    transports: list[str]


@dataclass(frozen=True)
class Assertion:
    """A checked sign-in: what the authenticator says, and when its challenge was issued."""

    data: AuthenticatorData
    issued_at: datetime


def credential_key(credential_id: bytes) -> str:
    """Return the id of a credential as it is stored."""
    return websafe_encode(credential_id)


def registration_options(
    party: RelyingParty, purpose: str, *, name: str, display_name: str, user_handle: bytes, known: Iterable[Passkey]
) -> dict[str, Any]:
    """Return the JSON of PublicKeyCredentialCreationOptions; authenticators with a `known` passkey refuse another."""
    options, _ = party.server.register_begin(
        PublicKeyCredentialUserEntity(id=user_handle, name=name, display_name=display_name or name),
        credentials=_descriptors(known),
        resident_key_requirement=ResidentKeyRequirement.REQUIRED,
        user_verification=UserVerificationRequirement.REQUIRED,
        challenge=challenge_issue(purpose),
    )
    return {**options.public_key, "timeout": CHALLENGE_SECONDS * 1000}


def request_options(party: RelyingParty, purpose: str, *, known: Iterable[Passkey] = ()) -> dict[str, Any]:
    """Return the JSON of PublicKeyCredentialRequestOptions; for any passkey of the site without `known` ones."""
    options, _ = party.server.authenticate_begin(
        credentials=_descriptors(known) or None,
        user_verification=UserVerificationRequirement.REQUIRED,
        challenge=challenge_issue(purpose),
    )
    return {**options.public_key, "timeout": CHALLENGE_SECONDS * 1000}


def registration_check(party: RelyingParty, purpose: str, answer: str) -> Registration:
    """Check the JSON of a RegistrationResponse; raises Invalid."""
    with _refusals():
        values = _parsed(answer)
        response = RegistrationResponse.from_dict(values)
        challenge_check(response.response.client_data.challenge, purpose)
        data = party.server.register_complete(_state(response.response.client_data.challenge), response)
        credential = data.credential_data
        if credential is None or credential.public_key.ALGORITHM not in CoseKey.supported_algorithms():
            raise ValueError("no key of an algorithm that was offered")
        told = values["response"].get("transports") or []
        return Registration(data, credential, [one.value for one in AuthenticatorTransport if one.value in told])


def assertion_parse(answer: str) -> AuthenticationResponse:
    """Return what the JSON of an AuthenticationResponse says, unchecked; raises Invalid."""
    with _refusals():
        return AuthenticationResponse.from_dict(_parsed(answer))


def assertion_check(party: RelyingParty, purpose: str, response: AuthenticationResponse, passkey: Passkey) -> Assertion:
    """Check challenge, origin, host, user verification and signature against a passkey; raises Invalid.

    Who it belongs to, its count and whether the challenge was used are the caller's to check, under a lock.
    """
    with _refusals():
        found = response.response
        issued_at = challenge_check(found.client_data.challenge, purpose)
        credential = AttestedCredentialData(bytes(passkey.credential))
        party.server.authenticate_complete(_state(found.client_data.challenge), [credential], response)
        if found.user_handle is not None and found.user_handle != bytes(passkey.user_handle):
            raise ValueError("the passkey names another person")
        return Assertion(found.authenticator_data, issued_at)


def challenge_issue(purpose: str) -> bytes:
    """Return a new challenge; it holds for five minutes."""
    return _signer(purpose).sign(f"{time.time_ns() // 1000}-{secrets.token_urlsafe(16)}").encode()


def challenge_check(challenge: bytes, purpose: str) -> datetime:
    """Return when a challenge was issued; raises ValueError for an expired one, or of another purpose."""
    try:
        text = _signer(purpose).unsign(challenge.decode())
    except BadSignature as error:
        raise ValueError("the challenge was not issued for this") from error
    issued_at = EPOCH + timedelta(microseconds=int(text.partition("-")[0]))
    if time.time() - issued_at.timestamp() > CHALLENGE_SECONDS:
        raise ValueError("the challenge has expired")
    return issued_at


def _signer(purpose: str) -> Signer:
    return Signer(salt=f"passkey: {purpose}")


def _state(challenge: bytes) -> dict[str, Any]:
    """Return the state that the library keeps between question and answer."""
    return {"challenge": websafe_encode(challenge), "user_verification": UserVerificationRequirement.REQUIRED}


def _parsed(answer: str) -> dict[str, Any]:
    if len(answer) > MAX_ANSWER_LENGTH:
        raise ValueError("the answer is too long")
    values = json.loads(answer)
    if not isinstance(values, dict):
        raise TypeError("the answer is no object")
    return values


def _descriptors(known: Iterable[Passkey]) -> list[PublicKeyCredentialDescriptor]:
    return [
        PublicKeyCredentialDescriptor(
            type=PublicKeyCredentialType.PUBLIC_KEY,
            id=AttestedCredentialData(bytes(one.credential)).credential_id,
            transports=one.transports or None,
        )
        for one in known
    ]


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise Invalid for any answer that is wrong; the log has the reason."""
    try:
        yield
    except MALFORMED as error:
        logger.warning("a passkey was not accepted: %s", error)
        raise Invalid(_(REFUSED)) from error
