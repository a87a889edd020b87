"""The end of every sign-in, however the person has proved who they are."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest

from accounts.audit.actions import Action
from accounts.audit.context import complete_origin
from accounts.audit.services import audited, target_of
from accounts.models import User


def sign_in_complete(request: HttpRequest, person: User, *, backend: str, method: str) -> None:
    """Begin the session of a person and record it; `method` is what the audit log calls their proof."""
    complete_origin(credential=method)
    with audited(Action.SIGN_IN, actor=person, target=target_of(person)):
        login(request, person, backend=backend)
