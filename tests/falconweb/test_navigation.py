"""The navigation leads everywhere, and says where somebody is."""

from __future__ import annotations

from fnmatch import filter as matching

import pytest
from django.test import Client
from django.urls import get_resolver

from accounts.models import Role, User
from falconweb.navigation import NAVIGATION, NavigationGroup, NavigationMenu, navigation
from tests.access.test_matrix import names

# What belongs to nobody's way: one's own account, what leads in and out, what programs read.
APART = {
    "accounts:account",
    "accounts:account_password",
    "accounts:sign_in",
    "accounts:sign_out",
    "accounts:token_*",
    "metrics",
}


def patterns() -> list[str]:
    found: list[str] = []
    for one in NAVIGATION:
        pages = one.pages if isinstance(one, NavigationMenu) else (one,)
        found += [pattern for page in pages for pattern in (page.view, *page.there)]
        found += one.there
    return found


def test_every_page_is_somewhere_and_every_pattern_means_a_page() -> None:
    views = [name for name in names(get_resolver().url_patterns) if not name.startswith("api:")]
    lost = {view for view in views if not any(matching([view], one) for one in (*patterns(), *APART))}
    assert lost == set()
    assert [one for one in patterns() if not matching(views, one)] == []


@pytest.mark.django_db
@pytest.mark.parametrize(("role", "offered"), [(Role.ADMINISTRATOR, True), (Role.USER, False), (Role.VIEWER, False)])
def test_administration_is_offered_to_administrators_alone(client: Client, role: Role, offered: bool) -> None:
    client.force_login(User.objects.create_user("ada", role=role))
    text = client.get("/").content.decode()
    assert ("<summary>Administration</summary>" in text) is offered
    assert ('href="/people/"' in text) is offered


def test_what_lies_below_an_entry_marks_it_and_its_menu_alone() -> None:
    shown = navigation("fabric:lease_usage", is_administrator=True)
    assert [one.label for one in shown if one.is_here] == ["Compose"]
    compose = next(one for one in shown if isinstance(one, NavigationGroup) and one.is_here)
    assert [(one.label, one.is_current) for one in compose.links if one.is_here] == [("Leases", False)]
