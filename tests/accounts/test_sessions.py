"""Sessions: listed, ended, limited; what needs a recent sign-in; signing out everywhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.declaration import declaration_of
from accounts.models import BrowserSession, Role, Tenant, Token, User
from accounts.sign_in.devices import device_words
from accounts.sign_in.security import MAX_FAILED_LOGINS, SessionStore
from accounts.tasks import forget
from accounts.token_services import token_create
from falconweb.navigation import addresses
from tests.pages import page_text

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-password-1"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PAGE: dict[str, Any] = {"HTTP_ACCEPT": "text/html,application/xhtml+xml"}
ACCOUNT = "/account/"


@pytest.fixture
def ada() -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def bob() -> User:
    """A user of a tenant."""
    tenant = Tenant.objects.create(name="Vision group")
    return User.objects.create_user("bob", password=PASSWORD, role=Role.USER, tenant=tenant)


def signed_in(person: User, **meta: str) -> Client:
    client = Client(**meta)  # type: ignore[arg-type]
    answer = client.post(reverse("accounts:sign_in"), {"username": person.username, "password": PASSWORD})
    assert answer.status_code == 302
    return client


def row_of(client: Client) -> BrowserSession:
    return BrowserSession.objects.get(pk=client.session.session_key)


def is_in(client: Client) -> bool:
    return client.get(ACCOUNT).status_code == 200


def prove_long_ago(client: Client) -> None:
    session = client.session
    session["proved_at"] = (timezone.now() - timedelta(minutes=11)).timestamp()
    session.save()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"), ("curl/8.14.1", "curl"), ("", ""), ("<script>", ""),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Version/18.1 Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Chrome/142.0.0.0 Safari/537.36", "Chrome on macOS"),
    ],
)  # fmt: skip
def test_devices_are_named_in_plain_words(agent: str, words: str) -> None:
    assert device_words(agent) == words


def test_a_session_is_listed_with_its_device_and_place_but_never_with_its_key(bob: User) -> None:
    client = signed_in(bob, HTTP_USER_AGENT=FIREFOX, REMOTE_ADDR="2001:db8:1:2:3::4")
    row = row_of(client)
    assert (row.person, row.device, row.address) == (bob, "Firefox on Linux", "2001:db8:1:2::")
    text = page_text(client.get(ACCOUNT))
    assert "Firefox on Linux" in text
    assert "this session" in text
    assert row.session_key not in text


def test_one_session_is_ended_by_its_person_or_an_administrator_and_nobody_else(ada: User, bob: User) -> None:
    first, second, third = signed_in(bob), signed_in(bob), signed_in(bob)
    eve = User.objects.create_user("eve", password=PASSWORD, role=Role.VIEWER, tenant=bob.tenant)
    where = reverse("accounts:session_end", args=[row_of(second).number])
    assert signed_in(eve).post(where).status_code == 404
    assert is_in(second)
    assert first.post(where)["Location"] == ACCOUNT
    assert [is_in(one) for one in (first, second, third)] == [True, False, True]
    assert first.post(where).status_code == 404
    administrator = signed_in(ada)
    assert str(row_of(third).number) in page_text(administrator.get(reverse("accounts:person", args=[bob.pk])))
    administrator.post(reverse("accounts:session_end", args=[row_of(third).number]))
    assert [is_in(one) for one in (first, third)] == [True, False]
    assert AuditEntry.objects.filter(action=Action.SESSION_END, outcome="done").count() == 2


def test_all_other_sessions_end_at_once(ada: User, bob: User) -> None:
    first, second, other = signed_in(bob), signed_in(bob), signed_in(ada)
    first.post(reverse("accounts:sessions_end"))
    assert [is_in(one) for one in (first, second, other)] == [True, False, True]
    assert AuditEntry.objects.latest("sequence").after == {"browsers signed out": 1}
    where = reverse("accounts:person_sessions_end", args=[bob.pk])
    assert first.post(where).status_code == 403
    other.post(where)
    other.post(reverse("accounts:person_sessions_end", args=[ada.pk]))
    assert [is_in(one) for one in (first, other)] == [False, True]


def test_signing_out_everywhere_ends_sessions_and_tokens(bob: User) -> None:
    first, second = signed_in(bob), signed_in(bob)
    token_create(person=bob, name="job", scope="read", days=1)
    assert first.post(reverse("accounts:access_end"))["Location"] == reverse("accounts:sign_in")
    assert [is_in(one) for one in (first, second)] == [False, False]
    assert not Token.objects.exists()
    entry = AuditEntry.objects.get(action=Action.ACCESS_END)
    assert entry.after == {"browsers signed out": 2, "revoked tokens": ["job"]}


def test_a_changed_password_ends_tokens_and_all_sessions_but_the_present_one(bob: User) -> None:
    first, second = signed_in(bob, HTTP_USER_AGENT=FIREFOX), signed_in(bob)
    token_create(person=bob, name="job", scope="read", days=1)
    form = {"current": PASSWORD, "new": "four words of green", "again": "four words of green"}
    assert first.post(reverse("accounts:account_password"), form).status_code == 302
    assert [is_in(one) for one in (first, second)] == [True, False]
    assert row_of(first).device == "Firefox on Linux"
    assert not Token.objects.exists()


def test_a_session_ends_when_it_is_idle_or_old(bob: User) -> None:
    for changes in ({"seen_at": timedelta(minutes=61)}, {"created_at": timedelta(hours=12, seconds=1)}):
        client = signed_in(bob)
        key = row_of(client).pk
        BrowserSession.objects.update(**{name: timezone.now() - ago for name, ago in changes.items()})
        # What a websocket reads, too.
        assert SessionStore(key).get("_auth_user_id") is None
        assert not is_in(client)
        assert client.get("/api/v1/me/").status_code == 401
        forget()
        assert not BrowserSession.objects.filter(pk=key).exists()


def test_no_idle_limit_leaves_the_absolute_one(bob: User, settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, session_idle_minutes=0, session_hours=2)
    client = signed_in(bob)
    BrowserSession.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    assert is_in(client)
    BrowserSession.objects.update(created_at=timezone.now() - timedelta(hours=3))
    assert not is_in(client)


def test_pages_that_are_opened_and_what_is_sent_count_as_use_and_refreshes_do_not(bob: User) -> None:
    client = signed_in(bob)

    def is_use(method: str, where: str, **meta: str) -> bool:
        before = timezone.now() - timedelta(minutes=5)
        BrowserSession.objects.update(seen_at=before)
        getattr(client, method)(where, **meta)
        return row_of(client).seen_at > before

    assert is_use("get", ACCOUNT, **PAGE)
    assert is_use("post", reverse("accounts:sessions_end"))
    assert is_use("post", "/api/v1/plans/")
    assert not is_use("get", ACCOUNT, HTTP_ACCEPT="*/*")
    assert not is_use("get", "/api/v1/me/", HTTP_ACCEPT="application/json")


def test_use_is_written_once_a_minute_and_moves_nothing_else(bob: User) -> None:
    client = signed_in(bob)
    before = row_of(client)
    client.get(ACCOUNT, **PAGE)
    assert row_of(client).seen_at == before.seen_at
    session = client.session
    session["anything"] = 1
    session.save()
    after = row_of(client)
    assert (after.created_at, after.number) == (before.created_at, before.number)


# What needs a recent sign-in, said a second time: a declaration that goes missing opens nothing.
GUARDED = """
    accounts:authenticator accounts:authenticator_remove accounts:identity_link accounts:identity_provider
    accounts:identity_provider_add accounts:identity_provider_remove accounts:identity_provider_rules
    accounts:identity_unlink accounts:passkey_add accounts:passkey_remove accounts:passkey_save accounts:person
    accounts:person_add accounts:person_password accounts:person_second_factor accounts:recovery_codes
    accounts:service_add accounts:service_token_add accounts:token_add api:approval_approve api:chassis api:chassis_list
    api:my_tokens api:people api:person api:person_password api:person_tokens api:service_accounts
    api:chassis_dialect api:firmware_update api:part_reset fabric:chassis_add fabric:chassis_dialect fabric:chassis_edit
    fabric:dialect_trial fabric:host_agent fabric:managed_part
"""
# Of these, forms with a page of their own.
GUARDED_PAGES = ("accounts:token_add", "accounts:person_add", "accounts:service_add", "fabric:chassis_add")


def test_keys_people_and_tokens_are_declared_to_need_a_recent_sign_in() -> None:
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    declared = {
        name
        for name, one in addresses().items()
        if any(declaration_of(one.callback, method).fresh_sign_in for method in methods)
    }
    assert declared == set(GUARDED.split())


@pytest.mark.parametrize("name", GUARDED_PAGES)
def test_a_form_that_needs_a_recent_sign_in_asks_before_it_is_shown(ada: User, name: str) -> None:
    client, where = signed_in(ada), reverse(name)
    assert client.get(where).status_code == 200
    prove_long_ago(client)
    asked = client.get(where + "?a=b")["Location"]
    assert asked == f"/account/confirmation/?next={where.replace('/', '%2F')}%3Fa%3Db"
    assert client.get(asked).status_code == 200
    wrong = client.post(asked, {"password": "wrong"})
    assert (wrong.status_code, list(wrong.context["form"].errors)) == (400, ["password"])
    assert client.get(where).status_code == 302
    assert client.post(asked, {"password": PASSWORD})["Location"] == where + "?a=b"
    assert client.get(where).status_code == 200
    assert set(AuditEntry.objects.filter(action=Action.SIGN_IN_CONFIRM).values_list("outcome", flat=True)) == {
        "done", "refused",
    }  # fmt: skip


def test_what_was_sent_too_late_changes_nothing_and_leads_back_to_its_form(ada: User, bob: User) -> None:
    client, where = signed_in(ada), reverse("accounts:person", args=[bob.pk])
    prove_long_ago(client)
    form = {"username": "robert", "role": "user", "tenant": bob.tenant_id, "active": "on"}
    asked = client.post(where, form, HTTP_REFERER=f"http://testserver{where}")
    assert asked["Location"] == f"/account/confirmation/?next={where.replace('/', '%2F')}"
    assert "Nothing was changed" in page_text(client.get(asked["Location"]))
    bob.refresh_from_db()
    assert bob.username == "bob"
    entry = AuditEntry.objects.latest("sequence")
    assert (entry.action, entry.outcome) == (Action.PERSON_EDIT, "refused")


@pytest.mark.parametrize("where", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "", "\\\\evil"])
def test_the_confirmation_leads_to_no_other_site(bob: User, where: str) -> None:
    answer = signed_in(bob).post(reverse("accounts:confirmation"), {"password": PASSWORD, "next": where})
    assert answer["Location"] == ACCOUNT


def test_the_confirmation_is_no_place_to_guess_passwords(bob: User) -> None:
    client, where = signed_in(bob), reverse("accounts:confirmation")
    prove_long_ago(client)
    codes = [client.post(where, {"password": f"guess {number}"}).status_code for number in range(10)]
    assert codes[-1] == 429
    assert client.post(where, {"password": PASSWORD}).status_code != 302
    assert MAX_FAILED_LOGINS > 10


def test_a_session_gets_a_problem_from_the_api_and_a_token_is_not_asked(ada: User) -> None:
    client = signed_in(ada)
    prove_long_ago(client)
    body = {"username": "new", "role": "administrator"}
    answer = client.post(reverse("api:people"), body, "application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "sign_in_too_old")
    assert "/account/confirmation/" in answer.json()["detail"]
    _, secret = token_create(person=ada, name="job", scope="write", days=1)
    headers = {"Authorization": f"Bearer {secret}"}
    assert Client().post(reverse("api:people"), body, "application/json", headers=headers).status_code == 201


def test_a_forced_change_needs_a_recent_sign_in_and_another_does_not(bob: User) -> None:
    client = signed_in(bob)
    prove_long_ago(client)
    where, body = reverse("api:operations"), {"device_id": 1, "target_host_port_id": None}
    assert client.post(where, body, "application/json").status_code == 404
    forced = client.post(where, body | {"force": True, "confirmation": "GPU 1"}, "application/json")
    assert (forced.status_code, forced.json()["code"]) == (403, "sign_in_too_old")
