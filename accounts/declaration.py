"""What a page or an endpoint states about itself, once, where it is written.

The audit log, the gate of requests, the navigation, the access matrix and the tests of pages read it from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from django.contrib.auth.decorators import login_not_required

from accounts.audit.actions import Action

ATTRIBUTE: Final = "declaration"  # of a function, a method or a class, where `declare` leaves it


class Audience(Enum):
    """Who is answered at an address; whoever is signed out is asked to sign in, except where it is public."""

    PUBLIC = "public"
    EVERYBODY = "everybody"  # who is signed in; what is shown is what the person may see
    WHO_SEES_IT = "who sees it"  # whoever may see the object of the address; others are told that it does not exist
    COMPOSERS = "composers"  # who may change things: no viewers
    ADMINISTRATORS = "administrators"


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """An entry of the navigation: the menu that it is in ('' for the bar itself), its label, and its place there."""

    menu: str
    label: str
    position: int


@dataclass(frozen=True, slots=True)
class Declaration:
    """The facts of one page or endpoint."""

    audience: Audience = Audience.EVERYBODY
    # What the audit log calls a request that changes something, where no service has a word of its own for it.
    audited_as: Action = Action.REQUEST
    # The kind of thing that the number in the address is of; '' where it is what the action is about.
    target_kind: str = ""
    menu_entry: MenuEntry | None = None
    # The view whose menu entry is marked as current here: 'fabric:plans' on the page of one plan.
    section: str = ""
    # The most bytes of a body, and the sentence for more; None for the limit of the site.
    body_limit: tuple[int, str] | None = None
    # The query with which the tests of pages open it; None for what is no page (a file, a fragment, an answer to fetch).
    judged_with: str | None = ""


DEFAULT: Final = Declaration()


def declare(**facts: Any) -> Callable[[Any], Any]:
    """Return a decorator that states facts (fields of `Declaration`) of a view function, a method or a class.

    On a method of a view class they are those of requests with this method; what the class states holds for the rest.
    """
    declaration = replace(DEFAULT, **facts)

    def decorate(view: Any) -> Any:
        setattr(view, ATTRIBUTE, declaration)
        return login_not_required(view) if declaration.audience is Audience.PUBLIC else view

    return decorate


def declaration_of(callback: Any, method: str = "GET") -> Declaration:
    """Return what the view that a router leads to states of requests with a method."""
    view = getattr(callback, "view_class", None) or getattr(callback, "cls", None) or callback
    name = (getattr(callback, "actions", None) or {}).get(method.lower(), method.lower())
    handler = getattr(view, name, None) if isinstance(view, type) else None
    found: Declaration | None = getattr(handler, ATTRIBUTE, None) or getattr(view, ATTRIBUTE, None)
    return found or DEFAULT
