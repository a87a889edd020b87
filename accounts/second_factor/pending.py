"""Sign-ins between password and second factor. Until both are given nobody is signed in: the session has no user."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare

from accounts.audit.actions import Action
from accounts.audit.context import complete_origin
from accounts.audit.services import audit_record, target_of
from accounts.models import User
from accounts.second_factor.selectors import has_second_factor
from accounts.sign_in.services import sign_in_complete

PENDING: Final = "pending_sign_in"  # key in the session
PENDING_SECONDS: Final = 300


@dataclass(frozen=True)
class PendingSignIn:
    """A person whose password was right, and where the sign-in leads."""

    person: User
    backend: str
    method: str
    next_url: str


def sign_in_continue(request: HttpRequest, person: User, *, backend: str, method: str, next_url: str) -> HttpResponse:
    """Sign a person in whose first factor was right, or ask for the second one where they have any."""
    complete_origin(credential=method)
    if not has_second_factor(person):
        sign_in_finish(request, person, backend=backend, method=method)
        return redirect(next_url)
    request.session.cycle_key()
    request.session[PENDING] = {
        "person": person.pk, "backend": backend, "method": method, "next": next_url,
        # A new password ends it, as it ends sessions.
        "hash": person.get_session_auth_hash(), "until": time.time() + PENDING_SECONDS,
    }  # fmt: skip
    audit_record(action=Action.SIGN_IN_FIRST_STEP, actor=person, target=target_of(person))
    return redirect("accounts:second_factor")


def sign_in_finish(request: HttpRequest, person: User, *, backend: str, method: str) -> None:
    """Sign in, whatever waited in this session."""
    request.session.pop(PENDING, None)
    sign_in_complete(request, person, backend=backend, method=method)


def pending_sign_in(request: HttpRequest) -> PendingSignIn | None:
    """Return the sign-in that waits for its second factor; None without one, and after five minutes."""
    kept: dict[str, Any] = request.session.get(PENDING, {})
    if kept.get("until", 0) < time.time():
        return None
    person = User.objects.filter(pk=kept["person"], is_active=True).first()
    if person is None or not constant_time_compare(kept["hash"], person.get_session_auth_hash()):
        return None
    if not has_second_factor(person):  # reset meanwhile
        return None
    return PendingSignIn(person, kept["backend"], kept["method"], kept["next"])
