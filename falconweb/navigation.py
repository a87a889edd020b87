"""All addresses of the site, its navigation, and the template context of every page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.http import HttpRequest
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from accounts.approvals.selectors import waiting_count
from accounts.declaration import Declaration, MenuEntry, declaration_of
from accounts.models import User
from accounts.second_factor.selectors import must_enrol
from core.language import gettext_noop
from core.zones import zone_label, zone_name
from falconweb import __version__
from falconweb.texts import texts_version
from falconweb.tour import tour_step

# The bar from left to right: entries and menus. Views declare their entries in menus.
BAR: Final = (
    gettext_noop("Overview"), gettext_noop("Fabric"), gettext_noop("Devices"), gettext_noop("Hosts"),
    gettext_noop("Compose"), gettext_noop("Telemetry"), gettext_noop("Benchmarks"), gettext_noop("Alerts"),
    gettext_noop("Events"), gettext_noop("Administration"),
)  # fmt: skip
FOR_ADMINISTRATORS: Final = {"Administration"}


@dataclass(frozen=True)
class Address:
    """An address: its name ('fabric:plan'), its route from the root of the site ('plans/<uuid:pk>/'), its view."""

    name: str
    route: str
    callback: Any

    @property
    def is_page(self) -> bool:
        """Whether it is a page or a part of one, not an endpoint of the API or /metrics."""
        return not hasattr(self.callback, "cls")

    @property
    def declaration(self) -> Declaration:
        """The declaration of its view, for GET."""
        return declaration_of(self.callback)


@cache
def addresses() -> Mapping[str, Address]:
    """Return all addresses by their names."""
    return {one.name: one for one in _addresses_below(get_resolver().url_patterns)}


def _addresses_below(patterns: list[URLPattern | URLResolver], space: str = "", above: str = "") -> Iterator[Address]:
    for pattern in patterns:
        route = f"{above}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            inner = f"{pattern.namespace}:" if pattern.namespace else space
            yield from _addresses_below(pattern.url_patterns, inner, route)
        else:
            yield Address(f"{space}{pattern.name}", route, pattern.callback)


@dataclass(frozen=True)
class NavigationLink:
    """An entry of the navigation; `is_current` on its own page, `is_here` also on pages below it."""

    label: str
    address: str
    is_current: bool
    is_here: bool


@dataclass(frozen=True)
class NavigationGroup:
    """A menu of the navigation."""

    label: str
    links: Sequence[NavigationLink]
    is_here: bool


@cache
def navigation_entries() -> Sequence[tuple[Address, MenuEntry]]:
    """Return the addresses that have an entry, in the order of their menus."""
    found = [(one, entry) for one in addresses().values() if (entry := one.declaration.menu_entry) is not None]
    return sorted(found, key=lambda pair: pair[1].position)


def section_of(view: str) -> str:
    """Return the marked section of a view ('fabric:device'): the view of an entry, the label of a menu, or ''."""
    here = addresses().get(view)
    if here is None or here.declaration.section is None:
        return ""
    if here.declaration.section:
        return here.declaration.section
    # Every address begins with that of the overview, which is '', without being part of it.
    above = [one for one, _ in navigation_entries() if one == here or (one.route and here.route.startswith(one.route))]
    return max(above, key=lambda one: len(one.route)).name if above else ""


@cache
def navigation(view: str, *, is_administrator: bool) -> Sequence[NavigationLink | NavigationGroup]:
    """Return the navigation on the page of a view ('' for an address without one)."""
    section = section_of(view)
    shown: list[NavigationLink | NavigationGroup] = []
    for label in BAR:
        entries = [(one, entry) for one, entry in navigation_entries() if label == (entry.menu or entry.label)]
        links = [
            NavigationLink(entry.label, reverse(one.name), is_current=one.name == view, is_here=one.name == section)
            for one, entry in entries
        ]
        if not entries[0][1].menu:
            shown += links
        elif is_administrator or label not in FOR_ADMINISTRATORS:
            is_here = section == label or any(link.is_here for link in links)
            shown.append(NavigationGroup(label, links, is_here))
    return shown


def site_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context of all templates: version, navigation, and permissions of the signed-in person."""
    person = getattr(request, "user", None)
    # Who must set up a second factor first sees no navigation: nothing else is open.
    signed_in = isinstance(person, User) and not must_enrol(person, request.session)
    is_administrator = signed_in and bool(getattr(person, "is_administrator", False))
    view = request.resolver_match.view_name if request.resolver_match else ""
    return {
        "falconweb_version": __version__,
        "texts_version": texts_version(),
        "zone": zone_name(),
        "zone_label": zone_label(),
        "is_signed_in": signed_in,
        "is_administrator": is_administrator,
        "navigation": navigation(view, is_administrator=is_administrator) if signed_in else [],
        # Asked only where the page shows it.
        "approvals_waiting": waiting_count if is_administrator else 0,
        "tour": tour_step(person, view) if signed_in and isinstance(person, User) else None,
        "may_compose": signed_in and getattr(person, "may_compose", False),
    }
