"""Who asks: the person behind a page's request, and the pages that are for administrators."""

from __future__ import annotations

from django.http import HttpRequest

from accounts.models import User
from falconweb.errors import Forbidden, NotFound


def person_of(request: HttpRequest) -> User:
    """Return the signed-in person (the middleware has seen to it that there is one)."""
    if not isinstance(request.user, User):
        raise NotFound("There is nobody signed in.")
    return request.user


def administrator_of(request: HttpRequest) -> User:
    """Return the signed-in administrator; raises Forbidden for everybody else."""
    person = person_of(request)
    administrator_required(person)
    return person


def administrator_required(person: User) -> None:
    """Raise Forbidden unless the person is an administrator."""
    if not person.is_administrator:
        raise Forbidden("This is for administrators. Ask one of them for what you need.")
