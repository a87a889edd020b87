"""Every address of the routers, with what its view declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from accounts.declaration import Declaration, declaration_of


@dataclass(frozen=True)
class Address:
    """An address: its name ('fabric:plan'), its route from the root of the site ('plans/<uuid:pk>/'), its view."""

    name: str
    route: str
    callback: Any

    @property
    def is_page(self) -> bool:
        """Whether it is one of the pages and their parts: all but the endpoints of the API, and /metrics."""
        return not hasattr(self.callback, "cls")

    @property
    def declaration(self) -> Declaration:
        """What its view declares, but for single methods."""
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
