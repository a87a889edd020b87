"""Which second factors people have, and who must have one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase

from accounts.models import User
from accounts.second_factor.models import Passkey, TotpDevice
from accounts.sign_in.services import SESSION_METHOD
from core.language import gettext_noop

# Ways to sign in whose second factor is the provider's.
STRONG_METHODS: Final = frozenset({"OpenID Connect"})
ENROL_FIRST = gettext_noop(
    "Your role needs a second factor: set up a passkey or an authenticator app first, on a page of the site."
)


@dataclass(frozen=True)
class SecondFactors:
    """The second factors of a person, as pages show them."""

    passkeys: list[Passkey]
    totp_device: TotpDevice | None
    recovery_codes: int  # unused
    is_required: bool

    @property
    def is_any(self) -> bool:
        """Whether the person has one."""
        return bool(self.passkeys) or self.totp_device is not None


def second_factors_of(person: User) -> SecondFactors:
    """Return the second factors of a person."""
    return SecondFactors(
        passkeys=list(person.passkeys.all()),
        totp_device=TotpDevice.objects.filter(person=person).first(),
        recovery_codes=person.recovery_codes.filter(used_at=None).count(),
        is_required=is_required(person),
    )


def has_second_factor(person: User) -> bool:
    """Return whether a person's password alone does not sign them in."""
    return person.passkeys.exists() or TotpDevice.objects.filter(person=person).exists()


def is_required(person: User) -> bool:
    """Return whether the person's role must have a second factor."""
    return person.role in settings.CONFIG.second_factor_roles


def must_enrol(person: User, session: SessionBase) -> bool:
    """Return whether nothing but setting up a second factor is open to a person in a session."""
    return session.get(SESSION_METHOD) not in STRONG_METHODS and person.pk in without_required_factor([person])


def without_required_factor(people: Collection[User]) -> set[int]:
    """Return which of these people (ids) must have a second factor and have none, in two queries at most."""
    missing = {person.pk for person in people if is_required(person)}
    for factors in (Passkey, TotpDevice) if missing else ():
        missing -= set(factors.objects.filter(person__in=missing).values_list("person", flat=True))
    return missing
