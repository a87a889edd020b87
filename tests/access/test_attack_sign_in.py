"""Attacks on signing in and on sessions: guessing, locking others out, forged addresses and requests, what is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from axes.models import AccessAttempt
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from accounts.sign_in.security import SessionStore
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_matrix import GETS
from tests.access.test_matrix_writes import ROUTES, WRITES
from tests.turns import at_night, in_turn

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
PASSWORD = "a-long-password-1"
SIGN_IN = "/sign-in/"


@pytest.fixture
def bob(db: None) -> User:
    """A user of a tenant."""
    tenant = Tenant.objects.create(name="Vision group")
    return User.objects.create_user("bob", password=PASSWORD, role=Role.USER, tenant=tenant)


def guess(client: Client, username: str = "bob", password: str = "wrong", **more: str) -> int:
    return client.post(SIGN_IN, {"username": username, "password": password}, **more).status_code  # type: ignore[arg-type]


def test_wrong_passwords_of_the_account_page_are_kept_nowhere(bob: User) -> None:
    client = Client()
    client.force_login(bob)
    typed = {"current": "nearly-my-password", "new": "another-long-one-2", "again": "another-long-one-2"}
    client.post(reverse("accounts:account_password"), typed)
    kept = " ".join(f"{one.get_data} {one.post_data}" for one in AccessAttempt.objects.all())
    assert kept
    assert not [secret for secret in typed.values() if secret in kept]


@pytest.mark.parametrize("written", ["ｂｏｂ", *at_night("bob", " bob ", "bob\t")])
def test_another_spelling_of_a_name_gives_no_more_guesses(bob: User, written: str) -> None:
    client = Client()
    for _ in range(9):
        guess(client)
    guess(client, written)
    assert guess(client, written, PASSWORD) == 429


@pytest.mark.parametrize(
    ("proxies", "written"), [(1, "10.0.0.{}, 203.0.113.9"), (2, "10.0.0.9"), *at_night((0, "10.0.0.{}"), (1, "{}"))]
)
def test_a_made_up_address_gives_no_more_guesses(bob: User, settings: Any, proxies: int, written: str) -> None:
    """What a trusted proxy adds stands at the end; all before it was written by whoever asks."""
    settings.CONFIG = replace(settings.CONFIG, trusted_proxies=proxies)
    client = Client()
    codes = [guess(client, HTTP_X_FORWARDED_FOR=written.format(number)) for number in range(12)]
    assert codes[-1] == 429


def test_behind_a_trusted_proxy_strangers_lock_nobody_out(bob: User, settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, trusted_proxies=1)
    client = Client()
    for _ in range(12):
        guess(client, HTTP_X_FORWARDED_FOR="198.51.100.7")
    assert guess(client, password=PASSWORD, HTTP_X_FORWARDED_FOR="198.51.100.7, 203.0.113.9") == 302


def test_one_network_of_ipv6_gives_no_more_guesses(bob: User) -> None:
    """Whoever has one such address has 2^64 of them."""
    client = Client()
    codes = [guess(client, REMOTE_ADDR=f"2001:db8:1:2::{number:x}") for number in range(12)]
    assert codes[-1] == 429
    assert guess(client, password=PASSWORD, REMOTE_ADDR="2001:db8:1:3::1") == 302


def test_strangers_elsewhere_lock_nobody_out(bob: User) -> None:
    for _ in range(12):
        guess(Client(), REMOTE_ADDR="198.51.100.7")
    assert guess(Client(), password=PASSWORD, REMOTE_ADDR="203.0.113.9") == 302


def test_a_name_that_nobody_has_is_answered_like_a_wrong_password(bob: User) -> None:
    User.objects.create_user("gone", password=PASSWORD, role=Role.VIEWER, tenant=bob.tenant, is_active=False)
    pages = {
        Client()
        .post(SIGN_IN, {"username": name, "password": password})
        .content.replace(name.encode(), b"")
        .split(b"csrf")[0]
        for name, password in (("bob", "wrong"), ("ghost", "wrong"), ("gone", PASSWORD))
    }
    assert len(pages) == 1


@pytest.mark.parametrize("bad", ["a\x00b", "x" * 100_000, "\ud800", "\u202ebob", "a\nb"])
def test_nonsense_signs_nobody_in_and_breaks_nothing(bob: User, bad: str) -> None:
    raw = bad.encode("utf-8", "surrogatepass")
    form = urlencode({"username": raw, "password": raw})
    answer = Client().post(SIGN_IN, form, content_type="application/x-www-form-urlencoded")
    assert answer.status_code in {200, 400}
    assert "_auth_user_id" not in answer.wsgi_request.session


@pytest.mark.parametrize(
    "where",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "https:evil",
        "\x00//e",
        "http:///evil.example",
        "/%09/evil.example",
        "\t//evil.example",
    ],
)
def test_nobody_is_sent_to_another_site(bob: User, where: str) -> None:
    for client, answer in (
        (one, one.post(f"{SIGN_IN}?next={where}", {"username": "bob", "password": PASSWORD, "next": where}))
        for one in (Client(),)
    ):
        assert answer.status_code == 302
        assert answer["Location"] == "/" or answer["Location"].startswith("/%09/")
        assert client.get(SIGN_IN, {"next": where})["Location"] == answer["Location"]


def test_signing_in_again_leads_nowhere_in_a_circle(bob: User) -> None:
    client = Client()
    client.force_login(bob)
    answer = client.get(SIGN_IN, {"next": SIGN_IN})
    assert (answer.status_code, answer["Location"]) == (302, "/")


def test_a_session_that_was_planted_is_not_the_one_after_signing_in(bob: User) -> None:
    client = Client()
    client.cookies["sessionid"] = planted = "a" * 32
    assert guess(client, password=PASSWORD) == 302
    cookie = client.cookies["sessionid"]
    assert cookie.value != planted
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_a_forged_request_changes_nothing_anywhere(lab: Lab) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="administrator"))
    for name, method in dict.fromkeys((*ROUTES, *at_night(*product(GETS, WRITES)))):
        answer = client.generic(method, address(lab, name), "{}", content_type="application/json")
        assert answer.status_code == 403, (method, name)


def test_pages_and_answers_are_kept_by_no_cache(lab: Lab) -> None:
    client = lab.clients["owner"]
    for name in ("fabric:overview", "fabric:device", "fabric:devices_csv", "accounts:account", "api:devices", "api:me",
                 "api:operations", "fabric:chassis"):  # fmt: skip
        assert "no-store" in client.get(address(lab, name)).get("Cache-Control", ""), name
    answer = client.get("/devices/999999/")
    assert "no-store" in answer["Cache-Control"]


def test_no_query_breaks_a_page(lab: Lab) -> None:
    queries = ("q=" + "a+" * 3000, "q=%00", "q=%ff%fe", "page=" + "9" * 5000, "page=%00", "q=" + "%E2%80%AE" * 500)
    names = ("accounts:people", "accounts:tenants", "fabric:fabric", "fabric:devices_csv", "fabric:operations")
    for turn, name in enumerate(names):
        for query in in_turn(queries, turn, of=2):
            answer = lab.clients["administrator"].get(f"{address(lab, name)}?{query}")
            assert answer.status_code in {200, 400}, (name, query)
            if answer.streaming:
                answer.getvalue()


def test_an_expired_session_is_none(bob: User) -> None:
    from accounts.models import BrowserSession

    client = Client()
    client.force_login(bob)
    BrowserSession.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert client.get("/").status_code == 302


@pytest.mark.parametrize(
    "cookie",
    [r'sessionid="aaaaaaaa\000aaaa"', "sessionid=" + "x" * 5000, "sessionid=\xff" * 9, r'messages="\000"',
     r'csrftoken="\000"', "sessionid=' OR 1=1 --"],
)  # fmt: skip
def test_no_cookie_breaks_a_page(bob: User, cookie: str) -> None:
    client = Client(headers={"Cookie": cookie})
    for where, status in (("/", 302), ("/api/v1/me/", 401), (SIGN_IN, 200)):
        assert client.get(where).status_code == status
    assert SessionStore("aaaaaaaa\x00aaaa").session_key is None
