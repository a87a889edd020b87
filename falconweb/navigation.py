"""The site's navigation, and the template context of every page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from falconweb import __version__


@dataclass(frozen=True)
class NavigationEntry:
    """An entry: the view that it leads to, and the views at which people are there, as patterns."""

    label: str
    view: str
    there: tuple[str, ...] = ()

    def is_at(self, view: str) -> bool:
        """Tell whether a view is this entry's."""
        return any(fnmatchcase(view, one) for one in (self.view, *self.there))


@dataclass(frozen=True)
class NavigationMenu:
    """Entries under one name; `there` are views of the menu that have no entry of their own."""

    label: str
    pages: tuple[NavigationEntry, ...]
    there: tuple[str, ...] = ()
    for_administrators: bool = False


@dataclass(frozen=True)
class NavigationLink:
    """An entry as a page shows it; `is_current` for the page itself, `is_here` also for what lies below it."""

    label: str
    address: str
    is_current: bool
    is_here: bool


@dataclass(frozen=True)
class NavigationGroup:
    """A menu as a page shows it."""

    label: str
    links: Sequence[NavigationLink]
    is_here: bool


NAVIGATION: tuple[NavigationEntry | NavigationMenu, ...] = (
    NavigationEntry("Overview", "fabric:overview"),
    NavigationEntry(
        "Fabric", "fabric:fabric", ("fabric:chassis", "fabric:drawer", "fabric:slot*", "fabric:dev*", "fabric:port")
    ),
    NavigationEntry("Hosts", "fabric:hosts", ("fabric:host_*", "fabric:host")),
    NavigationMenu(
        "Compose",
        (
            NavigationEntry("Plans", "fabric:plans", ("fabric:plan*", "fabric:draft")),
            NavigationEntry("Operations", "fabric:operations", ("fabric:operation*",)),
            NavigationEntry("Allocation file", "fabric:allocation", ("fabric:allocation*",)),
            NavigationEntry("Drift", "fabric:drifts", ("fabric:drift*",)),
            NavigationEntry("Leases", "fabric:leases", ("fabric:lease*",)),
        ),
    ),
    NavigationMenu(
        "Telemetry",
        (
            NavigationEntry("Charts", "history:telemetry"),
            NavigationEntry("Dashboards", "history:dashboards", ("history:dashboard_*",)),
            NavigationEntry("Throughput", "history:throughput", ("history:throughput_*",)),
            NavigationEntry("Heat map", "history:heat_map"),
            NavigationEntry("Link health", "links:links", ("links:*",)),
        ),
    ),
    NavigationMenu(
        "Benchmarks",
        (
            NavigationEntry("Workloads", "runs:catalogue"),
            NavigationEntry("Runs", "runs:runs", ("runs:run", "runs:run_*", "runs:runs_*", "records:run*")),
            NavigationEntry("Sweeps", "sweeps:sweeps", ("sweeps:*",)),
            NavigationEntry("Figures", "figures:figures", ("figures:*",)),
            NavigationEntry("Recommend", "recommend:recommend", ("recommend:*",)),
            NavigationEntry("Deploy", "deploy:deploy"),
            NavigationEntry("Import", "records:import"),
        ),
    ),
    NavigationEntry("Alerts", "alerts:alerts", ("alerts:*",)),
    NavigationEntry("Events", "events:events", ("events:*",)),
    NavigationMenu(
        "Administration",
        (
            NavigationEntry("People", "accounts:people", ("accounts:person*",)),
            NavigationEntry("Tenants", "accounts:tenants", ("accounts:tenant*", "fabric:tenant*", "fabric:quotas")),
            NavigationEntry("Audit", "accounts:audit", ("accounts:audit_*",)),
            NavigationEntry("Event exports", "exports:exports", ("exports:*",)),
            NavigationEntry("Pipeline", "pipeline:pipeline", ("pipeline:*",)),
            NavigationEntry("Add a chassis", "fabric:chassis_add"),
            NavigationEntry("System", "fabric:system"),
        ),
        there=("fabric:chassis_edit", "fabric:chassis_remove"),
        for_administrators=True,
    ),
)


@cache
def navigation(view: str, *, is_administrator: bool) -> list[NavigationLink | NavigationGroup]:
    """Return what to show a person at a view ('fabric:device'; '' for an address without one)."""
    shown: list[NavigationLink | NavigationGroup] = []
    for one in NAVIGATION:
        if isinstance(one, NavigationEntry):
            shown.append(_link(one, view))
        elif is_administrator or not one.for_administrators:
            links = [_link(page, view) for page in one.pages]
            is_here = any(link.is_here for link in links) or any(fnmatchcase(view, name) for name in one.there)
            shown.append(NavigationGroup(one.label, links, is_here))
    return shown


def _link(page: NavigationEntry, view: str) -> NavigationLink:
    return NavigationLink(page.label, reverse(page.view), is_current=view == page.view, is_here=page.is_at(view))


def site_context(request: HttpRequest) -> dict[str, Any]:
    """Give templates the version and the signed-in person's abilities and ways."""
    person = getattr(request, "user", None)
    signed_in = bool(person and person.is_authenticated)
    is_administrator = signed_in and bool(getattr(person, "is_administrator", False))
    match = request.resolver_match
    return {
        "falconweb_version": __version__,
        "is_administrator": is_administrator,
        "navigation": navigation(match.view_name if match else "", is_administrator=is_administrator)
        if signed_in
        else [],
        "may_compose": signed_in and getattr(person, "may_compose", False),
    }
