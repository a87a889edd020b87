"""What a page or an endpoint states about itself, once, where it is written.

The audit log, the gate of requests, the navigation, the access matrix and the tests of pages read it from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any, Final, TypeVar, cast

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator

from accounts.access import person_of, require_administrator, require_composer
from accounts.audit.actions import Action

ATTRIBUTE: Final = "declared_facts"  # of a function, a method or a class, where `declare` leaves them
View = TypeVar("View", bound=Callable[..., Any])


class Audience(Enum):
    """Who is answered at an address; whoever is signed out is asked to sign in, except where it is public."""

    PUBLIC = "public"
    EVERYBODY = "everybody"  # who is signed in; what is shown is what the person may see
    OBJECT_VIEWERS = "who sees it"  # whoever may see the object of the address; others are told that it does not exist
    COMPOSERS = "composers"  # who may change things: no viewers
    ADMINISTRATORS = "administrators"


GUARDED: Final = {Audience.COMPOSERS, Audience.ADMINISTRATORS}  # of functions `declare` lets nobody else in
# Why the tests of pages do not open an address by themselves.
NO_PAGE: Final = "It answers with a file, a part of a page, or data for a script."
NO_SAMPLE: Final = "The site of the tests has nothing to show there before a test makes it."


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """An entry of the navigation: its label, the menu that it is in ('' for the bar itself), and its place there."""

    label: str
    menu: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The facts of one page or endpoint."""

    # None where permission classes say it: of endpoints.
    audience: Audience | None = None
    # What those who may only look hear that they may not do, where the audience is composers.
    what: str = "change anything"
    # What the audit log calls a request that changes something, where no service has a word of its own for it.
    audited_as: Action = Action.REQUEST
    # The kind of thing that the number in the address is of; '' where it is what the action is about.
    target_kind: str = ""
    menu_entry: MenuEntry | None = None
    # The view whose entry is marked in the navigation, or the menu that is; '' for the entry that the address lies
    # below, None for no place in the navigation.
    section: str | None = ""
    # The most bytes of a body, and the sentence for more; None for the limit of the site.
    body_limit: tuple[int, str] | None = None
    # How the tests of pages open it: with each of these queries, and with this in the place of an argument.
    tested_queries: tuple[str, ...] = ("",)
    tested_argument: str = "1"
    # Why they do not, one of the sentences above where it fits.
    no_page_test: str = ""


def declare(audience: Audience | None = None, **facts: Any) -> Callable[[View], View]:
    """Return a decorator that states facts (fields of `Declaration`) of a view function, a method or a class.

    On a method of a view class they are those of requests with this method; what the class states holds for the rest.
    A function for composers or administrators is not called for anybody else; any other asks itself who may see what.
    The decorator stands right above its `def`, so that who asks by a method that an address does not take hears that
    first.
    """
    if audience is not None:
        facts["audience"] = audience
    stated = Declaration(**facts)

    def decorate(view: View) -> View:
        if isinstance(view, type) and audience in GUARDED:
            raise TypeError(f"{view.__name__} is a class, and only functions are guarded here: use permission_classes.")
        declared = view if isinstance(view, type) else _guarded(view, stated)
        setattr(declared, ATTRIBUTE, {**getattr(view, ATTRIBUTE, {}), **facts})
        if stated.audience is not Audience.PUBLIC:
            return cast("View", declared)
        public = method_decorator(login_not_required, "dispatch") if isinstance(view, type) else login_not_required
        return cast("View", public(declared))

    return decorate


def declaration_of(callback: Any, method: str = "GET") -> Declaration:
    """Return what the view that a router leads to (None: no address) states of requests with a method."""
    view = getattr(callback, "view_class", None) or getattr(callback, "cls", None) or callback
    actions = getattr(callback, "actions", None)
    # Of a set of commands only those that the address leads to: 'DESTROY' is a method that anybody may make up.
    name = method.lower() if actions is None else actions.get(method.lower(), "")
    handler = getattr(view, name, None) if isinstance(view, type) else None
    return Declaration(**{**getattr(view, ATTRIBUTE, {}), **getattr(handler, ATTRIBUTE, {})})


def _guarded(view: Callable[..., HttpResponseBase], stated: Declaration) -> Callable[..., HttpResponseBase]:
    """Return a view function that refuses whoever is not of its audience."""
    if stated.audience not in GUARDED:
        return view

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if stated.audience is Audience.ADMINISTRATORS:
            require_administrator(person_of(request))
        else:
            require_composer(person_of(request), stated.what)
        return view(request, *args, **kwargs)

    return guarded
