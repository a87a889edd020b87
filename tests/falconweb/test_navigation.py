"""The navigation leads everywhere, and says where somebody is."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client

from accounts.models import Role, User
from falconweb.navigation import BAR, NavigationGroup, addresses, navigation, navigation_entries, section_of


def test_every_page_is_somewhere() -> None:
    known = {place for one, entry in navigation_entries() for place in (one.name, entry.menu)}
    for name, one in addresses().items():
        if one.is_page and one.declaration.section is not None:
            assert section_of(name) in known, f"{name}: its section is the view of no entry, and no menu"
            assert section_of(name), (
                f"{name} lies below no entry: declare section='the view of one', or section=None for what belongs to "
                "nobody's way, as one's own account, what leads in and out, and what programs read"
            )


def test_every_entry_is_shown() -> None:
    shown = {link.label for one in navigation("", is_administrator=True) for link in getattr(one, "links", [one])}
    assert shown == {entry.label for _, entry in navigation_entries()}, "A new menu has its place in navigation.BAR"


def test_every_menu_has_an_icon() -> None:
    symbols = (settings.BASE_DIR / "static/site/icons.svg").read_text()
    assert [label for label in BAR if f'<symbol id="{label.lower()}"' not in symbols] == []


@pytest.mark.django_db
@pytest.mark.parametrize(("role", "offered"), [(Role.ADMINISTRATOR, True), (Role.USER, False), (Role.VIEWER, False)])
def test_administration_is_offered_to_administrators_alone(client: Client, role: Role, offered: bool) -> None:
    client.force_login(User.objects.create_user("ada", role=role))
    text = client.get("/").content.decode()
    assert ('<span class="label">Administration</span>' in text) is offered
    assert ('href="/people/"' in text) is offered


def test_what_lies_below_an_entry_marks_it_and_its_menu_alone() -> None:
    shown = navigation("fabric:lease_usage", is_administrator=True)
    assert [one.label for one in shown if one.is_here] == ["Compose"]
    compose = next(one for one in shown if isinstance(one, NavigationGroup) and one.is_here)
    assert [(one.label, one.is_current) for one in compose.links if one.is_here] == [("Leases", False)]
