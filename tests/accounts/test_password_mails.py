"""A new password by mail, sent to a mail server and opened in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.models import PersonKind, Role, Tenant, Token, User
from accounts.sign_in import password_mails
from accounts.sign_in.password_mails import (
    MAX_OF_ADDRESS,
    MAX_OF_NAME,
    address_count_key,
    name_count_key,
    password_mail_send,
)
from accounts.token_services import token_create
from tests.pages import page_text
from tests.smtp_sink import SmtpSink

pytestmark = pytest.mark.django_db
PASSWORD, NEW = "a-long-password-1", "four words of green"
FORGOTTEN = "/sign-in/forgotten/"


def forget_requests() -> None:
    """Forget what was counted of the requests for mails."""
    names = ("bob", "nobody", "bob@example.org", "carol", *(f"name-{number}" for number in range(MAX_OF_ADDRESS)))
    addresses = ("127.0.0.1", "198.51.100.7")
    cache.delete_many([*map(name_count_key, names), *map(address_count_key, addresses)])


@pytest.fixture
def bob(settings: Any, forget_refusals: Callable[[], None]) -> Iterator[User]:
    """A user with an e-mail address, on a site that sends mail."""
    settings.EMAIL_IS_SENT = True
    forget_requests()
    forget_refusals()  # of other tests: only so many have an entry of their own
    tenant = Tenant.objects.create(name="Vision group")
    yield User.objects.create_user("bob", "bob@example.org", PASSWORD, role=Role.USER, tenant=tenant)
    forget_requests()


@pytest.fixture
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are handed to a worker: the broker is the boundary."""
    names: list[str] = []
    monkeypatch.setattr(password_mails, "enqueue", lambda task, name, **_: names.append(name))
    return names


def link_for(person: User) -> str:
    password_mail_send(name=person.username)
    found = re.search(r"http://\S+?(/sign-in/password/\S+)", str(mail.outbox[-1].body))
    assert found is not None
    return found[1]


def opened(client: Client, link: str) -> Any:
    return client.get(link, follow=True)


def test_a_mail_leads_to_a_new_password_that_ends_sessions_and_tokens(bob: User, settings: Any) -> None:
    browser = Client()
    browser.post(reverse("accounts:sign_in"), {"username": "bob", "password": PASSWORD})
    token_create(person=bob, name="job", scope="read", days=1)
    with SmtpSink() as sink:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        password_mail_send(name="BOB@example.org")
        ((recipients, message),) = sink.got
    assert recipients == ("bob@example.org",)
    found = re.search(r"http://\S+?(/sign-in/password/\S+)", str(message.get_payload()))
    assert found is not None
    client = Client()
    page = opened(client, found[1])
    where = page.redirect_chain[-1][0]
    assert found[1].split("/")[-2] not in where  # the token leaves the address at once
    answer = client.post(where, {"new_password1": NEW, "new_password2": NEW})
    assert answer["Location"] == reverse("accounts:sign_in")
    assert browser.get("/account/").status_code == 302
    assert not Token.objects.exists()
    bob.refresh_from_db()
    assert bob.check_password(NEW)
    after: Any = AuditEntry.objects.get(action=Action.PASSWORD_SET).after
    assert after["revoked tokens"] == ["job"]
    # Once.
    assert "does not work" in page_text(opened(Client(), found[1]))
    assert "does not work" in page_text(client.post(where, {"new_password1": NEW, "new_password2": NEW}))


def test_a_signed_in_browser_is_signed_out_by_the_link_that_it_opens(bob: User) -> None:
    client = Client()
    client.force_login(bob)
    where = opened(client, link_for(bob)).redirect_chain[-1][0]
    assert client.post(where, {"new_password1": NEW, "new_password2": NEW})["Location"] == reverse("accounts:sign_in")
    assert client.get("/account/").status_code == 302


def test_a_mail_that_the_server_refuses_is_on_record_as_failed(bob: User, settings: Any) -> None:
    with SmtpSink() as sink:
        sink.mood = "refuses"
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        with pytest.raises(SMTPRecipientsRefused):
            password_mail_send(name="bob")
    assert AuditEntry.objects.get(action=Action.PASSWORD_MAIL).outcome == "failed"


def test_two_browsers_with_one_link_set_one_password(bob: User) -> None:
    link = link_for(bob)
    first, second = Client(), Client()
    addresses = [opened(client, link).redirect_chain[-1][0] for client in (first, second)]
    assert first.post(addresses[0], {"new_password1": NEW, "new_password2": NEW}).status_code == 302
    late = second.post(addresses[1], {"new_password1": f"{NEW} too", "new_password2": f"{NEW} too"})
    assert late.status_code == 400
    bob.refresh_from_db()
    assert bob.check_password(NEW)


@pytest.mark.parametrize(("new", "again"), [("short", "short"), ("password12345", "password12345"), (NEW, NEW + "!")])
def test_a_weak_or_mistyped_password_is_refused_beside_its_field(bob: User, new: str, again: str) -> None:
    client = Client()
    where = opened(client, link_for(bob)).redirect_chain[-1][0]
    answer = client.post(where, {"new_password1": new, "new_password2": again})
    assert answer.status_code == 400
    assert len(answer.context["form"].errors) == 1
    bob.refresh_from_db()
    assert bob.check_password(PASSWORD)


def test_a_link_ends_after_an_hour_and_with_the_password(bob: User, settings: Any) -> None:
    assert settings.PASSWORD_RESET_TIMEOUT == 3600
    link = link_for(bob)
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert "does not work" in page_text(opened(Client(), link))
    settings.PASSWORD_RESET_TIMEOUT = 3600
    bob.set_password(NEW)
    bob.save()
    assert "does not work" in page_text(opened(Client(), link))


def test_whoever_may_not_sign_in_gets_no_mail_and_no_use_of_an_old_one(bob: User) -> None:
    link = link_for(bob)
    mail.outbox.clear()
    for changes in ({"is_active": False}, {"kind": PersonKind.SERVICE}, {"password": "!"}, {"email": ""}):
        before = {name: getattr(bob, name) for name in changes}
        User.objects.filter(pk=bob.pk).update(**changes)
        password_mail_send(name="bob")
        if "email" not in changes:
            assert "does not work" in page_text(opened(Client(), link)), changes
        User.objects.filter(pk=bob.pk).update(**before)
    password_mail_send(name="nobody")
    password_mail_send(name="")
    assert mail.outbox == []


def test_the_answer_is_the_same_for_every_name_and_looks_none_up(bob: User, enqueued: list[str]) -> None:
    texts = []
    for name in ("bob", "nobody", "bob@example.org"):
        client = Client()
        answer = client.post(FORGOTTEN, {"name": name})
        texts.append((answer.status_code, re.sub(r'name="csrf\w+" value="\w+"', "", page_text(answer))))
    assert len(set(texts)) == 1
    assert enqueued == ["bob", "nobody", "bob@example.org"]
    assert mail.outbox == []
    entries = AuditEntry.objects.filter(action=Action.PASSWORD_FORGOTTEN)
    assert {entry.target_name for entry in entries} == {""}


def test_mails_are_limited_by_name_and_by_address(bob: User, enqueued: list[str]) -> None:
    for _ in range(MAX_OF_NAME + 2):
        assert Client().post(FORGOTTEN, {"name": " Bob"}).status_code == 200
    assert len(enqueued) == MAX_OF_NAME
    for number in range(MAX_OF_ADDRESS):
        Client().post(FORGOTTEN, {"name": f"name-{number}"})
    assert len(enqueued) == MAX_OF_ADDRESS - 2
    Client().post(FORGOTTEN, {"name": "carol"}, REMOTE_ADDR="198.51.100.7")
    assert enqueued[-1] == "carol"


def test_a_link_names_the_site_and_not_the_host_of_the_request(bob: User) -> None:
    password_mail_send(name="bob")
    assert "http://localhost:" in str(mail.outbox[-1].body)


def test_a_site_without_mail_offers_none(bob: User, settings: Any) -> None:
    assert "Forgotten password" in page_text(Client().get("/sign-in/"))
    settings.EMAIL_IS_SENT = False
    assert "Forgotten password" not in page_text(Client().get("/sign-in/"))
    assert Client().get(FORGOTTEN).status_code == 404
