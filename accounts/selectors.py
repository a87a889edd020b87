"""Queries for users and tenants, and the signals by which other features report a tenant's assets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.dispatch import Signal

from accounts.models import Tenant, User

MAX_WORDS = 20


@dataclass(frozen=True)
class TenantRow:
    """A tenant in a list: its number of users, and its assets in words ('3 devices')."""

    tenant: Tenant
    people: int
    assets: tuple[str, ...]


def find_people(search: str) -> QuerySet[User]:
    """Return users whose name, e-mail, role or tenant contains every word of `search`."""
    people = User.objects.select_related("tenant").order_by("username")
    for word in _words(search):
        people = people.filter(
            Q(username__icontains=word)
            | Q(first_name__icontains=word)
            | Q(last_name__icontains=word)
            | Q(email__icontains=word)
            | Q(role__icontains=word)
            | Q(tenant__name__icontains=word)
        )
    return people


def find_tenants(search: str) -> list[TenantRow]:
    """Return tenants whose name contains every word of `search`."""
    tenants = Tenant.objects.annotate(people_count=Count("people")).order_by("name")
    for word in _words(search):
        tenants = tenants.filter(name__icontains=word)
    rows = list(tenants)
    assets = tenant_asset_labels([row.pk for row in rows])
    return [TenantRow(tenant=row, people=row.people_count, assets=tuple(assets.get(row.pk, ()))) for row in rows]


def _words(search: str) -> list[str]:
    """Return the search words: at most as many as a query supports, without invalid ones."""
    return search.replace("\0", " ").split()[:MAX_WORDS]


def tenant_asset_labels(tenant_ids: list[int]) -> dict[int, list[str]]:
    """Return the tenants' assets in other features, in words; tenants without any are omitted."""
    found: dict[int, list[str]] = {}
    answers: list[tuple[Any, Any]] = tenant_assets.send(Tenant, tenant_ids=tenant_ids)
    for _, answer in answers:
        for tenant_id, words in answer.items():
            found.setdefault(tenant_id, []).extend(words)
    return found


# tenant_ids: list[int]. Each receiver returns {tenant id: ["3 devices", ...]}, without tenants that have no assets.
tenant_assets = Signal()
