"""People of a directory sign in: against OpenLDAP's own server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.identity_providers import directory as ldap
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider
from accounts.identity_providers.services import identity_link, provider_test
from accounts.models import Role, Tenant, Token, User
from core.errors import Unavailable
from tests.accounts.providers import directory_provider, rule, sign_in
from tests.accounts.slapd import BASE, NOT_INSTALLED, SLAPD, Directory

pytestmark = [pytest.mark.django_db, pytest.mark.process]
ADAS = "of-ada-in-the-directory"
VISION = f"cn=vision,ou=groups,{BASE}"


@pytest.fixture(scope="module")
def slapd() -> Iterator[Directory]:
    if SLAPD is None:
        pytest.skip(NOT_INSTALLED)
    with Directory() as running:
        yield running


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def provider(slapd: Directory, tenant: Tenant) -> IdentityProvider:
    row = directory_provider(slapd)
    rule(row, "vision", "user", tenant)
    return row


def test_a_person_of_the_directory_gets_role_and_tenant_of_their_group(
    provider: IdentityProvider, tenant: Tenant
) -> None:
    client = Client()
    answer = sign_in("ada", ADAS, client, next="/people/")
    assert (answer.status_code, answer["Location"]) == (302, "/people/")
    ada = User.objects.get(username="ada")
    assert (ada.role, ada.tenant, ada.get_full_name(), ada.email) == ("user", tenant, "Ada Lovelace", "ada@example.org")
    assert not ada.has_usable_password()
    assert client.get("/account/").status_code == 200
    entries = {entry.action: entry for entry in AuditEntry.objects.filter(actor_id=ada.pk)}
    assert set(entries) == {"person.add", "account.sign_in"}
    assert entries["account.sign_in"].credential == "LDAP"
    assert ADAS not in str([entry.record() for entry in entries.values()])


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ada", "wrong"), ("ada", ""), ("ada", " "), ("nobody", ADAS), ("", ADAS), ("*", ADAS), ("a*", ADAS),
        ("ada)(uid=*", ADAS), ("ada\0", ADAS), ("ada", ADAS + "\0"), ("bob", ADAS), ("x,y (*)\\z", "x"),
    ],
)  # fmt: skip
def test_nobody_else_gets_in(provider: IdentityProvider, name: str, password: str) -> None:
    assert ldap.directory_person(provider, name, password) is None
    assert sign_in(name, password).status_code == 200
    assert not User.objects.exists()


def test_a_name_full_of_special_characters_finds_its_own_entry_and_groups(provider: IdentityProvider) -> None:
    provider.user_filter, provider.group_base = "(cn={username})", f"ou=groups,{BASE}"
    found = ldap.directory_person(provider, "x,y (*)\\z", "of-odd-in-the-directory")
    assert found is not None
    assert found.username == "odd"
    assert found.groups == (VISION, "vision")


@pytest.mark.parametrize(
    "how",
    [{}, {"start_tls": False}, {"group_base": f"ou=groups,{BASE}"}, {"user_filter": "(mail={username}@example.org)"}],
)
def test_it_is_asked_in_each_way(provider: IdentityProvider, slapd: Directory, how: dict[str, Any]) -> None:
    for name, value in how.items():
        setattr(provider, name, value)
    for provider.address in (slapd.address, slapd.secure_address):
        found = ldap.directory_person(provider, "ada", ADAS)
        assert found is not None
        assert (found.username, found.groups) == ("ada", (VISION, "vision"))
        assert len(found.subject) == 36


def test_a_certificate_of_nobody_that_is_known_gets_no_password(provider: IdentityProvider, slapd: Directory) -> None:
    provider.ca = ""
    for provider.address in (slapd.address, slapd.secure_address):
        with pytest.raises(Unavailable, match="not trusted"):
            ldap.directory_person(provider, "ada", ADAS)


def test_whoever_loses_all_groups_is_refused_and_signed_out(provider: IdentityProvider, tenant: Tenant) -> None:
    client = Client()
    sign_in("ada", ADAS, client)
    ada = User.objects.get(username="ada")
    Token.objects.create(person=ada, name="job", digest="0" * 64, expires_at="2100-01-01T00:00Z")
    provider.rules.update(role=Role.VIEWER)
    sign_in("ada", ADAS)
    ada.refresh_from_db()
    assert ada.role == Role.VIEWER
    assert client.get("/account/").status_code == 200
    provider.rules.update(group="operators")
    answer = sign_in("ada", ADAS)
    assert answer.status_code == 403
    assert "None of your groups may sign in here." in answer.content.decode()
    assert client.get("/account/").status_code == 302
    assert not Token.objects.exists()


def test_a_local_account_is_never_that_of_the_directory_and_the_other_way_round(
    provider: IdentityProvider, tenant: Tenant
) -> None:
    """Nor by its e-mail, nor by its name in other letters."""
    local = User.objects.create_user("Ada", "ada@example.org", "a-long-password-1", role=Role.USER, tenant=tenant)
    for name, password in (("Ada", ADAS), ("ada", ADAS), ("ada", "a-long-password-1")):
        assert sign_in(name, password).status_code == 200
    assert sign_in("Ada", "a-long-password-1").status_code == 302
    assert not ExternalIdentity.objects.exists()
    User.objects.filter(pk=local.pk).update(username="lovelace")
    sign_in("ada", ADAS)
    assert User.objects.get(username="ada").pk != local.pk


def test_an_administrator_links_an_account_which_has_no_local_password_from_then_on(
    provider: IdentityProvider, tenant: Tenant
) -> None:
    boss = User.objects.create_superuser("boss", password="x")
    local = User.objects.create_user("ada", password="a-long-password-1", role=Role.VIEWER, tenant=tenant)
    found = ldap.directory_person(provider, "ada", ADAS)
    assert found is not None
    identity_link(by=boss, provider=provider, username="ada", subject=found.subject)
    assert sign_in("ada", "a-long-password-1").status_code == 200
    client = Client()
    assert sign_in("ada", ADAS, client).status_code == 302
    local.refresh_from_db()
    assert local.role == Role.USER
    text = client.get("/account/").content.decode()
    assert "You sign in through Company directory" in text
    typed = {"current": ADAS, "new": "another-long-one-2", "again": "another-long-one-2"}
    assert client.post("/account/password/", typed).status_code == 409
    office = Client()
    office.force_login(boss)
    answer = office.post(f"/people/{local.pk}/password/", follow=True)
    assert "signs in through an identity provider" in answer.content.decode()
    local.refresh_from_db()
    assert not local.has_usable_password()
    local.set_password("a-long-password-1")  # as a command may
    local.save()
    assert sign_in("ada", "a-long-password-1").status_code == 200


def test_another_person_of_the_same_name_later_does_not_get_the_account(
    provider: IdentityProvider, slapd: Directory
) -> None:
    sign_in("ada", ADAS)
    ExternalIdentity.objects.update(subject="the entry of an earlier ada")
    answer = sign_in("ada", ADAS)
    assert answer.status_code == 403
    assert "Somebody else here is called &#x27;ada&#x27;." in answer.content.decode()


def test_a_closed_account_stays_closed(provider: IdentityProvider) -> None:
    sign_in("ada", ADAS)
    User.objects.update(is_active=False)
    answer = sign_in("ada", ADAS)
    assert answer.status_code == 403
    assert "closed your account" in answer.content.decode()
    assert not User.objects.get().is_active


def test_sessions_end_with_the_provider_or_the_link(provider: IdentityProvider) -> None:
    client = Client()
    sign_in("ada", ADAS, client)
    assert client.get("/account/").status_code == 200
    IdentityProvider.objects.update(enabled=False)
    assert client.get("/account/").status_code == 302
    assert sign_in("ada", ADAS).status_code == 200
    IdentityProvider.objects.update(enabled=True)
    sign_in("ada", ADAS, client)
    ExternalIdentity.objects.all().delete()
    assert client.get("/account/").status_code == 302


def test_while_the_directory_is_away_the_page_says_so_and_local_accounts_sign_in(
    provider: IdentityProvider, slapd: Directory, tenant: Tenant
) -> None:
    User.objects.create_user("carol", password="a-long-password-1", role=Role.USER, tenant=tenant)
    slapd.stop()
    try:
        answer = sign_in("ada", ADAS)
        assert answer.status_code == 503
        text = answer.content.decode()
        assert "Company directory does not answer: Nothing listens at" in text
        assert 'value="ada"' in text
        assert sign_in("carol", "a-long-password-1").status_code == 302
    finally:
        slapd.start()


def test_while_another_directory_is_away_passwords_are_not_guessed_without_limit(provider: IdentityProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"ldap://127.0.0.1:{server.getsockname()[1]}"
    IdentityProvider.objects.create(kind="ldap", name="Another", enabled=True, address=nobody, user_base=BASE)
    assert [sign_in("ada", "wrong").status_code for _ in range(12)][-1] == 429
    assert sign_in("ada", ADAS).status_code == 429


@pytest.mark.parametrize(
    "spoken", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x30\x84\xff\xff\xff\xff", b"0\x03\x02\x01\x07" * 9]
)
def test_what_is_no_directory_is_given_up_in_time(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, spoken: bytes
) -> None:
    monkeypatch.setattr(ldap, "TIMEOUT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(spoken)
                while connection.recv(1024):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        provider.address, provider.start_tls = f"ldap://127.0.0.1:{server.getsockname()[1]}", False
        began = time.monotonic()
        with pytest.raises(Unavailable):
            ldap.directory_person(provider, "ada", ADAS)
        assert time.monotonic() - began < 5


def test_a_test_of_the_connection_says_what_the_site_sees(provider: IdentityProvider) -> None:
    boss = User.objects.create_superuser("boss", password="x")
    assert "shows the site several people" in provider_test(by=boss, provider=provider)
    provider.set_secret("wrong")
    with pytest.raises(Unavailable, match="does not accept the site's own bind DN"):
        provider_test(by=boss, provider=provider)
    provider.bind_dn = ""
    with pytest.raises(Unavailable, match="no such object"):
        provider_test(by=boss, provider=provider)


def test_with_local_accounts_off_people_of_the_directory_sign_in(
    provider: IdentityProvider, settings: Any, tenant: Tenant
) -> None:
    settings.CONFIG = replace(settings.CONFIG, break_glass="boss")
    User.objects.create_user("carol", password="a-long-password-1", role=Role.USER, tenant=tenant)
    assert sign_in("carol", "a-long-password-1").status_code == 200
    assert sign_in("ada", ADAS).status_code == 302
