"""Queries for users and tenants, and the signals by which other features report a tenant's assets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import Count, Q, QuerySet
from django.dispatch import Signal
from django.http import QueryDict
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from accounts.models import Tenant, Token, User
from core.database import natural

MAX_WORDS = 20
UNUSED_DAYS = 90


@dataclass(frozen=True)
class TenantRow:
    """A tenant in a list: its number of users, and its assets in words ('3 devices')."""

    tenant: Tenant
    people: int
    assets: tuple[str, ...]


@dataclass(frozen=True)
class TokenFilter:
    """Which tokens are listed: words of person or name, a scope, a state; '' for any."""

    STATES: ClassVar = {
        "valid": gettext_lazy("valid"),
        "expired": gettext_lazy("expired"),
        "unused": format_lazy(gettext_lazy("unused for {days} days"), days=UNUSED_DAYS),
    }

    search: str = ""
    scope: str = ""
    state: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> TokenFilter:
        """Return the filter of a URL; what it does not know is ignored."""
        scope, state = query.get("scope", ""), query.get("state", "")
        return cls(
            search=query.get("q", query.get("search", "")).strip(),
            scope=scope if scope in Token.Scope.values else "",
            state=state if state in cls.STATES else "",
        )

    @property
    def is_active(self) -> bool:
        """Whether it leaves anything out."""
        return self != TokenFilter()


def find_tokens(kept: TokenFilter) -> QuerySet[Token]:
    """Return the tokens of everybody that a filter keeps, the newest first."""
    now = timezone.now()
    tokens = Token.objects.select_related("person", "person__tenant", "parent").order_by("-created_at", "-pk")
    for word in _words(kept.search):
        tokens = tokens.filter(
            Q(name__icontains=word) | Q(person__username__icontains=word) | Q(person__tenant__name__icontains=word)
        )
    if kept.scope:
        tokens = tokens.filter(scope=kept.scope)
    if kept.state == "unused":
        before = now - timedelta(days=UNUSED_DAYS)
        never = Q(last_used_at=None, created_at__lt=before)
        return tokens.filter(never | Q(last_used_at__lt=before), expires_at__gt=now)
    states = {"valid": Q(expires_at__gt=now), "expired": Q(expires_at__lte=now)}
    return tokens.filter(states.get(kept.state, Q()))


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
            | Q(kind__icontains=word)
            | Q(tenant__name__icontains=word)
        )
    return people


def find_tenants(search: str) -> list[TenantRow]:
    """Return tenants whose name contains every word of `search`."""
    tenants = Tenant.objects.annotate(people_count=Count("people")).order_by(natural("name"))
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
