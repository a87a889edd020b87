"""The site's navigation: what it offers whom, and where somebody is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from django.urls import reverse


@dataclass(frozen=True)
class Page:
    """An entry: the view that it leads to, and the views at which people are there, as patterns."""

    label: str
    view: str
    there: tuple[str, ...] = ()

    def is_at(self, view: str) -> bool:
        """Tell whether a view is this entry's."""
        return any(fnmatchcase(view, one) for one in (self.view, *self.there))


@dataclass(frozen=True)
class Menu:
    """Entries under one name; `there` are views of the menu that have no entry of their own."""

    label: str
    pages: tuple[Page, ...]
    there: tuple[str, ...] = ()
    for_administrators: bool = False


@dataclass(frozen=True)
class Link:
    """An entry as a page shows it; `is_current` for the page itself, `is_here` also for what lies below it."""

    label: str
    address: str
    is_current: bool
    is_here: bool


@dataclass(frozen=True)
class Group:
    """A menu as a page shows it."""

    label: str
    links: Sequence[Link]
    is_here: bool


NAVIGATION: tuple[Page | Menu, ...] = (
    Page("Overview", "fabric:overview"),
    Page("Fabric", "fabric:fabric", ("fabric:chassis", "fabric:drawer", "fabric:slot*", "fabric:dev*", "fabric:port")),
    Page("Hosts", "fabric:hosts", ("fabric:host_*", "fabric:host")),
    Menu(
        "Compose",
        (
            Page("Plans", "fabric:plans", ("fabric:plan*", "fabric:draft")),
            Page("Operations", "fabric:operations", ("fabric:operation*",)),
            Page("Allocation file", "fabric:allocation", ("fabric:allocation*",)),
            Page("Drift", "fabric:drifts", ("fabric:drift*",)),
            Page("Leases", "fabric:leases", ("fabric:lease*",)),
        ),
    ),
    Menu(
        "Telemetry",
        (
            Page("Charts", "history:telemetry"),
            Page("Dashboards", "history:dashboards", ("history:dashboard_*",)),
            Page("Throughput", "history:throughput", ("history:throughput_*",)),
            Page("Heat map", "history:heat_map"),
            Page("Link health", "links:links", ("links:*",)),
        ),
    ),
    Menu(
        "Benchmarks",
        (
            Page("Workloads", "runs:catalogue"),
            Page("Runs", "runs:runs", ("runs:run", "runs:run_*", "runs:runs_*", "records:run*")),
            Page("Sweeps", "sweeps:sweeps", ("sweeps:*",)),
            Page("Figures", "figures:figures", ("figures:*",)),
            Page("Recommend", "recommend:recommend", ("recommend:*",)),
            Page("Deploy", "deploy:deploy"),
            Page("Import", "records:import"),
        ),
    ),
    Page("Alerts", "alerts:alerts", ("alerts:*",)),
    Page("Events", "events:events", ("events:*",)),
    Menu(
        "Administration",
        (
            Page("People", "accounts:people", ("accounts:person*",)),
            Page("Tenants", "accounts:tenants", ("accounts:tenant*", "fabric:tenant*", "fabric:quotas")),
            Page("Audit", "accounts:audit", ("accounts:audit_*",)),
            Page("Event exports", "exports:exports", ("exports:*",)),
            Page("Pipeline", "pipeline:pipeline", ("pipeline:*",)),
            Page("Add a chassis", "fabric:chassis_add"),
            Page("System", "fabric:system"),
        ),
        there=("fabric:chassis_edit", "fabric:chassis_remove"),
        for_administrators=True,
    ),
)


@cache
def navigation(view: str, *, is_administrator: bool) -> list[Link | Group]:
    """Return what to show a person at a view ('fabric:device'; '' for an address without one)."""
    shown: list[Link | Group] = []
    for one in NAVIGATION:
        if isinstance(one, Page):
            shown.append(_link(one, view))
        elif is_administrator or not one.for_administrators:
            links = [_link(page, view) for page in one.pages]
            is_here = any(link.is_here for link in links) or any(fnmatchcase(view, name) for name in one.there)
            shown.append(Group(one.label, links, is_here))
    return shown


def _link(page: Page, view: str) -> Link:
    return Link(page.label, reverse(page.view), is_current=view == page.view, is_here=page.is_at(view))
