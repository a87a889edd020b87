"""Reads of identity providers: for the sign-in page, for administrators, and what a tenant has in rules."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet
from django.dispatch import receiver

from accounts.identity_providers.models import IdentityProvider, MappingRule
from accounts.identity_providers.rules import GroupRule
from accounts.models import MAX_NAME_LENGTH, User
from accounts.selectors import tenant_assets
from core.language import _n

Kind = IdentityProvider.Kind


def sign_in_providers() -> QuerySet[IdentityProvider]:
    """Return the providers that the sign-in page has a button for."""
    return IdentityProvider.objects.filter(enabled=True, kind=Kind.OIDC)


def directories_of(username: str) -> list[IdentityProvider]:
    """Return the directories that are asked about a typed name: none where it is that of a local account.

    A person of a directory is known by that one alone; a name that nobody has here is asked of each.
    """
    if len(username) > MAX_NAME_LENGTH:
        return []
    if User.objects.filter(username=username, external_identity__provider__kind=Kind.LDAP).exists():
        rows = IdentityProvider.objects.filter(identities__person__username=username)
    elif User.objects.named(username).exists():
        return []
    else:
        rows = IdentityProvider.objects.all()
    return list(rows.filter(enabled=True, kind=Kind.LDAP))


def external_users() -> QuerySet[User]:
    """Return the active people who sign in through a provider that is switched on."""
    rows = User.objects.select_related("external_identity")
    return rows.filter(is_active=True, external_identity__provider__enabled=True)


def find_providers() -> QuerySet[IdentityProvider]:
    """Return all providers with the numbers of their people and rules, and the rules."""
    counted = IdentityProvider.objects.annotate(
        people=Count("identities", distinct=True), rule_count=Count("rules", distinct=True)
    )
    return counted.prefetch_related("rules__tenant").order_by("name")


def group_rules(provider: IdentityProvider) -> list[GroupRule]:
    """Return the rules of a provider in their order."""
    rows = provider.rules.all()
    return [GroupRule(group=row.group, role=row.role, tenant_id=row.tenant_id) for row in rows]


@receiver(tenant_assets)
def tenant_rules(tenant_ids: list[int], **kwargs: Any) -> dict[int, list[str]]:
    """Return in how many rules a tenant is: it cannot be deleted before they are changed."""
    rows = MappingRule.objects.filter(tenant__in=tenant_ids).values_list("tenant").annotate(count=Count("pk"))
    return {pk: [_n("{count} sign-in rule", "{count} sign-in rules", count)] for pk, count in rows}
