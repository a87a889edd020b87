"""Who is signed out meanwhile, or opens an address that only forms are sent to, is led back to a page."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from tests.access.lab import Lab, address, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
HERE = "http://testserver"


def led_to(client: Client, path: str, **headers: str) -> str:
    """Return where the sign-in page leads to after a form was sent without sign-in."""
    answer = client.post(path, headers=headers)
    assert answer.status_code == 302
    where = urlsplit(answer["Location"])
    assert where.path == "/sign-in/"
    return parse_qs(where.query)["next"][0]


@pytest.mark.parametrize(
    ("referrer", "expected"),
    [
        (f"{HERE}/plans/?state=draft#top", "/plans/?state=draft"),
        ("", "/"),
        ("https://evil.example/plans/", "/"),
        (f"{HERE}@evil.example/", "/"),
        (f"{HERE}//evil.example/", "/"),
        (f"{HERE}/\\evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("http://[", "/"),
    ],
)
def test_a_form_that_comes_too_late_leads_back_to_its_page(lab: Lab, referrer: str, expected: str) -> None:
    assert led_to(lab.clients["nobody"], address(lab, "fabric:plan_apply"), Referer=referrer) == expected


def test_the_sign_in_page_says_that_nothing_was_changed_and_leads_back(lab: Lab) -> None:
    client, plan = lab.clients["nobody"], reverse("fabric:plan", args=lab.arguments["plan"])
    answer = client.post(address(lab, "fabric:plan_apply"), headers={"Referer": f"{HERE}{plan}"}, follow=True)
    text = answer.content.decode()
    assert "You are not signed in, so nothing was changed. Sign in and do it again." in text
    assert f'name="next" value="{plan}"' in text
    # A page that is only looked at is where one goes on.
    assert client.get(plan)["Location"] == f"/sign-in/?next={plan}"


def test_an_address_that_only_takes_forms_leads_to_the_page_it_belongs_to(lab: Lab) -> None:
    path = address(lab, "fabric:plan_apply")
    text = page_text(lab.clients["administrator"].get(path))
    assert f'<a href="{path.removesuffix("application/")}">the page it belongs to</a>' in text
