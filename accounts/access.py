"""Who asks: the person behind a page's request, and the pages that are for administrators."""

from __future__ import annotations

from typing import Any, Protocol

from django.http import HttpRequest

from accounts.models import User
from falconweb.errors import Forbidden, NotFound


class Asked(Protocol):
    """A request of a page or of the API."""

    @property
    def user(self) -> Any:
        """Who is signed in, or nobody."""


def person_of(request: Asked) -> User:
    """Return the signed-in person (middleware or permission classes have seen to it that there is one)."""
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
