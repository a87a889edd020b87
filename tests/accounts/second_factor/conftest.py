"""People with and without second factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyotp
import pytest

from accounts.models import Role, Tenant, User
from accounts.second_factor.services import passkey_add, passkey_options, totp_add
from accounts.second_factor.webauthn import RelyingParty
from tests.accounts.second_factor.soft_authenticator import SoftAuthenticator
from tests.redis_keys import delete_keys

PASSWORD = "a-long-password-1"
PARTY = RelyingParty(host="testserver", origin="http://testserver")
SECRET = pyotp.random_base32()
CONFIRMED_AT = 1_000_000_020.0  # some time ago, so that the codes of now are new


@pytest.fixture
def bob(db: None) -> User:
    """A user of a tenant, with an e-mail address."""
    tenant = Tenant.objects.create(name="Vision group")
    return User.objects.create_user("bob", "bob@example.org", PASSWORD, role=Role.USER, tenant=tenant)


@pytest.fixture
def eve(bob: User) -> User:
    """Another user of the tenant."""
    return User.objects.create_user("eve", password=PASSWORD, role=Role.USER, tenant=bob.tenant)


@pytest.fixture
def ada(db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture(autouse=True)
def no_wrong_codes(forget_refusals: Callable[[], None]) -> None:
    """Forget wrong codes, since the numbers of people come again, and refusals, so that each gets an entry."""
    forget_refusals()
    delete_keys("*codes:*")


@pytest.fixture
def required_of_users(settings: Any) -> None:
    """The role 'user' needs a second factor."""
    settings.CONFIG = replace(settings.CONFIG, second_factor_roles=("user",))


def with_passkey(person: User, name: str = "laptop", **facts: Any) -> SoftAuthenticator:
    """Return an authenticator that keeps a new passkey of a person."""
    made = SoftAuthenticator(**facts)
    options = passkey_options(person=person, party=PARTY, purpose="enrol")
    passkey_add(person=person, party=PARTY, purpose="enrol", name=name, answer=made.create(options))
    return made


def with_totp(person: User) -> list[str]:
    """Give a person an authenticator app with SECRET; return the recovery codes."""
    code = pyotp.TOTP(SECRET).at(int(CONFIRMED_AT))
    return totp_add(person=person, secret=SECRET, code=code, now=CONFIRMED_AT)
