"""The tour of a person's first minutes."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Role, User
from falconweb.tour import TOUR

pytestmark = pytest.mark.django_db
SHOWN = 'aria-label="Tour"'


@pytest.fixture
def ada(client: Client) -> User:
    """A new person, who has signed in."""
    person = User.objects.create_user("ada", role=Role.VIEWER)
    client.force_login(person)
    return person


def test_the_tour_is_offered_on_the_overview_alone_and_then_goes_along(client: Client, ada: User) -> None:
    assert SHOWN in client.get("/").content.decode()
    assert SHOWN not in client.get("/hosts/").content.decode()
    for number, page in enumerate(TOUR[1:], 2):
        answer = client.post(reverse("tour"), {"step": number}, follow=True)
        assert answer.request["PATH_INFO"] == reverse(page.view)
        assert f"{number} of {len(TOUR)}: {page.title}" in answer.content.decode()
    assert "Go there" in client.get("/hosts/").content.decode()
    assert 'value="6"' not in client.get("/").content.decode()


def test_who_has_ended_it_is_not_offered_it_again_and_may_begin_anew(client: Client, ada: User) -> None:
    answer = client.post(reverse("tour"), {"step": "0", "next": "/hosts/?q=a"})
    assert answer["Location"] == "/hosts/?q=a"
    client.logout()
    client.force_login(User.objects.get(pk=ada.pk))
    assert SHOWN not in client.get("/").content.decode()
    assert client.post(reverse("tour"), {"step": "1"})["Location"] == "/"
    assert SHOWN in client.get("/").content.decode()


@pytest.mark.parametrize("step", ["6", "-1", "x", "", "\u0663", "9" * 19])
def test_there_are_no_other_steps(client: Client, ada: User, step: str) -> None:
    assert client.post(reverse("tour"), {"step": step}).status_code == 400
    assert User.objects.get().tour_step == 1


def test_it_leads_to_no_other_site(client: Client, ada: User) -> None:
    assert client.post(reverse("tour"), {"step": "0", "next": "https://evil.example/"})["Location"] == "/"
