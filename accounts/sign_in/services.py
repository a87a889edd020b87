"""The end of every sign-in, the check of a present password, and the record of refusals."""

from __future__ import annotations

from typing import Final

from django.contrib.auth import authenticate, login
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from accounts.audit.actions import Action, Outcome
from accounts.audit.context import complete_origin
from accounts.audit.services import Target, audit_record, target_of
from accounts.models import User
from accounts.sign_in.security import client_address, sign_in_refused
from core.errors import Invalid

SESSION_METHOD: Final = "sign_in_method"  # key in the session: how its person signed in
# Ways to sign in whose second factor is the provider's.
STRONG_METHODS: Final = frozenset({"OIDC"})


def sign_in_complete(request: HttpRequest, person: User, *, backend: str, method: str) -> None:
    """Sign a person in; `method` says how they proved who they are: 'password', 'passkey', 'password and TOTP'."""
    login(request, person, backend=backend)
    request.session[SESSION_METHOD] = method


@sensitive_variables("password")
def present_password_check(request: HttpRequest, person: User, password: str) -> None:
    """Raise Invalid unless this is the person's password: before changes that an open browser alone must not allow.

    It is checked as at a sign-in: wrong ones count towards the lock.
    """
    if authenticate(request, username=person.username, password=password) is None:
        sentence = "The current password is wrong."
        complete_origin(sentence=sentence)
        raise Invalid(sentence, errors={"current": "This is not your current password. Type it again."})


def refused_sign_in_record(
    request: HttpRequest, person: User | None, sentence: str, *, status: int | None = None, actor: User | None = None
) -> None:
    """Record a refused sign-in of a person, None for an unknown one; `actor` is whoever is signed in already."""
    audit_record(
        action=Action.SIGN_IN,
        actor=actor,
        target=target_of(person) if person else Target("person", name="(no person of that name)"),
        outcome=Outcome.REFUSED,
        sentence=sentence,
        status=status,
    )
    if actor is None:
        sign_in_refused.send(User, person=person, address=client_address(request), sentence=sentence)
