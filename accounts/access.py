"""Access: the user of a request, and checks for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from accounts.models import User
from core.errors import Forbidden, NotFound
from core.language import _, gettext_noop

if TYPE_CHECKING:
    from django.http import HttpRequest
    from rest_framework.request import Request


# What viewers may not, as the sentence about it names it.
COMPOSING: Final = (
    gettext_noop("change anything"), gettext_noop("attach or detach"), gettext_noop("accept or re-apply"),
    gettext_noop("change leases"), gettext_noop("import runs"), gettext_noop("reset counters"),
    gettext_noop("run anything"),
)  # fmt: skip


def person_of(request: HttpRequest | Request) -> User:
    """Return the signed-in user (middleware or permission classes guarantee that there is one)."""
    if not isinstance(request.user, User):
        raise NotFound(_("Nobody is signed in."))
    return request.user


def require_administrator(person: User) -> None:
    """Raise Forbidden unless the user is an administrator."""
    if not person.is_administrator:
        raise Forbidden(_("This is for administrators. Ask one of them for what you need."))


def require_composer(person: User, what: str = "change anything") -> None:
    """Raise Forbidden for users with read-only access; `what` names the forbidden action, one of COMPOSING."""
    if not person.may_compose:
        raise Forbidden(_("You may look, but not {what}. Ask an administrator for the role 'user'.", what=_(what)))


SITE_NAME: Final = "FalconWeb"  # stands for the site itself


def actor_name(person: User | None) -> str:
    """Return the user as stored in rows; None for the site itself."""
    return person.get_username() if person is not None else SITE_NAME
