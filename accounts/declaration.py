"""Declarations: the facts of a page or endpoint, stated once, at its view.

The audit log, the body limit, the navigation, the access matrix and the tests of pages read them.
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
from accounts.freshness import require_fresh_sign_in
from accounts.models import Area

ATTRIBUTE: Final = "declared_facts"  # of a function, a method or a class: the facts that `declare` has set
View = TypeVar("View", bound=Callable[..., Any])


class Audience(Enum):
    """Who may open an address; all but public ones require a sign-in."""

    PUBLIC = "public"
    EVERYBODY = "everybody"  # who is signed in; the content depends on what the person may see
    OBJECT_VIEWERS = "who sees it"  # who may see the object of the address; others get 404
    COMPOSERS = "composers"  # who may change things: not viewers
    ADMINISTRATORS = "administrators"


GUARDED: Final = {Audience.COMPOSERS, Audience.ADMINISTRATORS}  # enforced by `declare` on functions
# Why the tests of all pages leave out an address.
NO_PAGE: Final = "It answers with a file, a part of a page, or data for a script."
NO_SAMPLE: Final = "The site of the tests has no object for it until a test creates one."


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """An entry of the navigation: its label, the menu that it is in ('' for the bar itself), and its place there."""

    label: str
    menu: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The facts of one page or endpoint."""

    # None for endpoints, which have permission classes.
    audience: Audience | None = None
    # The forbidden action in the sentence for viewers, where the audience is composers.
    what: str = "change anything"
    # The action in the audit log of a request that changes something, where no service records its own.
    audited_as: Action = Action.REQUEST
    # The kind of the object whose id is in the address; '' where the action names it.
    target_kind: str = ""
    menu_entry: MenuEntry | None = None
    # Whether it is open to people whose role needs a second factor, and who have none yet.
    is_open_without_factor: bool = False
    # The view, or the menu, that is marked in the navigation; '' for the entry above the address, None for none.
    section: str | None = ""
    # The maximum size of a body in bytes, and the sentence for more; None for the limit of the site.
    body_limit: tuple[int, str] | None = None
    # The queries with which the tests of all pages open it, and the argument of its address.
    tested_queries: tuple[str, ...] = ("",)
    tested_argument: str = "1"
    # Why they leave it out; see NO_PAGE and NO_SAMPLE.
    no_page_test: str = ""
    # Whether a browser's person must have signed in, or confirmed who they are, a few minutes ago at most; of functions
    # and methods. A form's page declares it together with what it sends to, so that nothing typed is lost.
    fresh_sign_in: bool = False
    # The area of an endpoint for tokens that are narrowed to some; '' for that of its module, see `area_of`.
    area: Area | str = ""


def declare(audience: Audience | None = None, **facts: Any) -> Callable[[View], View]:
    """Return a decorator that declares facts (fields of `Declaration`) of a view function, a method or a class.

    Facts of a method of a view class apply to requests with this method, those of the class to the others. A function
    for composers or administrators is not called for anybody else; others check visibility themselves. The decorator is
    the one next to the `def`, so that a method that is not allowed is refused first.
    """
    if audience is not None:
        facts["audience"] = audience
    stated = Declaration(**facts)

    def decorate(view: View) -> View:
        if isinstance(view, type) and audience in GUARDED:
            raise TypeError(f"{view.__name__} is a class, and only functions are guarded here: use permission_classes.")
        if isinstance(view, type) and stated.fresh_sign_in:
            raise TypeError(f"{view.__name__} is a class: declare `fresh_sign_in` at its methods.")
        declared = view if isinstance(view, type) else _guarded(view, stated)
        setattr(declared, ATTRIBUTE, {**getattr(view, ATTRIBUTE, {}), **facts})
        if stated.audience is not Audience.PUBLIC:
            return cast("View", declared)
        public = method_decorator(login_not_required, "dispatch") if isinstance(view, type) else login_not_required
        return cast("View", public(declared))

    return decorate


def declaration_of(callback: Any, method: str = "GET") -> Declaration:
    """Return the declaration of a routed view (None: unknown address) for requests with a method."""
    view = _view_of(callback)
    actions = getattr(callback, "actions", None)
    # Of a set of commands only those of the address: 'DESTROY' may be a made-up method of a request.
    name = method.lower() if actions is None else actions.get(method.lower(), "")
    handler = getattr(view, name, None) if isinstance(view, type) else None
    return Declaration(**{**getattr(view, ATTRIBUTE, {}), **getattr(handler, ATTRIBUTE, {})})


def area_of(callback: Any, method: str = "GET") -> str:
    """Return the area of a routed endpoint: what it declares, else its room, or the audit log; '' for none."""
    if declared := declaration_of(callback, method).area:
        return declared
    module: str = _view_of(callback).__module__
    if module.startswith("accounts.audit."):
        return Area.AUDIT
    room = module.partition(".")[0]
    return room if room in Area.values else ""


def _view_of(callback: Any) -> Any:
    """Return the class of a routed view, or its function."""
    return getattr(callback, "view_class", None) or getattr(callback, "cls", None) or callback


def _guarded(view: Callable[..., HttpResponseBase], stated: Declaration) -> Callable[..., HttpResponseBase]:
    """Return a view function that refuses users outside of its audience, and sign-ins that are too old for it.

    Of methods of view classes, which have their own permissions, only the sign-in is looked at.
    """
    if stated.audience not in GUARDED and not stated.fresh_sign_in:
        return view

    @wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = args[0] if isinstance(args[0], HttpRequest) else args[1]
        if stated.audience is Audience.ADMINISTRATORS:
            require_administrator(person_of(request))
        elif stated.audience is Audience.COMPOSERS:
            require_composer(person_of(request), stated.what)
        if stated.fresh_sign_in:
            require_fresh_sign_in(request)
        return view(*args, **kwargs)

    return guarded
