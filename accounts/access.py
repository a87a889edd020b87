"""Access: the person behind a request, and what is for administrators alone."""

from __future__ import annotations

from typing import Any, Final, Protocol

from accounts.models import User
from core.errors import Forbidden, NotFound


class RequestWithUser(Protocol):
    """A request of a page or of the API."""

    @property
    def user(self) -> Any:
        """Who is signed in, or nobody."""


def person_of(request: RequestWithUser) -> User:
    """Return the signed-in person (middleware or permission classes have seen to it that there is one)."""
    if not isinstance(request.user, User):
        raise NotFound("There is nobody signed in.")
    return request.user


def require_administrator(person: User) -> None:
    """Raise Forbidden unless the person is an administrator."""
    if not person.is_administrator:
        raise Forbidden("This is for administrators. Ask one of them for what you need.")


def require_composer(person: User, what: str = "change anything") -> None:
    """Raise Forbidden for those who may only look; `what` says what they may not."""
    if not person.may_compose:
        raise Forbidden(f"You may look, but not {what}. Ask an administrator for the role 'user'.")


SITE_NAME: Final = "FalconWeb"  # who asks where the site itself does


def actor_name(person: User | None) -> str:
    """Return who asks, as rows keep it; None is the site itself."""
    return person.get_username() if person is not None else SITE_NAME
