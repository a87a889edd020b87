"""The database is locked or away while people ask: each is told so soon, and what they tried is kept afterwards."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from django.db import DEFAULT_DB_ALIAS, OperationalError, ProgrammingError, connection
from django.db.utils import ConnectionHandler
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from falconweb import middleware
from falconweb.api.errors import DATABASE_UNAVAILABLE, unavailable_part
from falconweb.launch.broker import free_port
from falconweb.sqlite.base import limit_lock_wait, remaining_lock_wait

SQLITE = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="SQLite is locked by whoever writes")
pytestmark = pytest.mark.django_db(transaction=True)
JSON = "application/json"


@contextmanager
def locked() -> Iterator[None]:
    """Keep everybody from writing to the database, as another process does."""
    with closing(sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.fixture
def browser(transactional_db: None) -> Client:
    """An administrator's browser, which shows errors as a browser does."""
    client = Client(raise_request_exception=False)
    # A number of its own: refusals of a person are counted past the end of a test.
    client.force_login(User.objects.create_user("ada", role=Role.ADMINISTRATOR, id=10**6 + secrets.randbelow(10**9)))
    return client


@SQLITE
def test_who_meets_a_locked_database_is_told_so_and_what_was_tried_is_kept_afterwards(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "REQUEST_LOCK_WAIT_SECONDS", 0.3)
    began = time.monotonic()
    with locked():
        api = browser.post(reverse("api:tenants"), {"name": "One"}, content_type=JSON)
        page = browser.post(reverse("accounts:tenant_add"), {"name": "Two"})
    # Far below what a writer waits otherwise, several times over.
    assert time.monotonic() - began < 15
    assert (api.status_code, api["Content-Type"], api["Retry-After"]) == (503, "application/problem+json", "5")
    assert {name: api.json()[name] for name in ("code", "detail")} == {
        "code": "unavailable",
        "detail": DATABASE_UNAVAILABLE,
    }
    assert (page.status_code, page["Retry-After"]) == (503, "5")
    assert f"{DATABASE_UNAVAILABLE} If you sent something, check first whether it was done." in page.content.decode()
    assert not Tenant.objects.exists()
    assert not AuditEntry.objects.exists()
    assert browser.post(reverse("accounts:tenant_add"), {"name": "Three"}).status_code == 302
    done, *late = AuditEntry.objects.order_by("sequence")
    assert (done.action, done.outcome, done.actor_name) == ("tenant.add", "done", "ada")
    assert [(one.request_id, one.action, one.outcome, one.status, one.path) for one in late] == [
        (answer["X-Request-ID"], "tenant.add", "failed", 503, answer.wsgi_request.path) for answer in (api, page)
    ]
    assert all(one.sentence.startswith(f"{DATABASE_UNAVAILABLE} It was at ") for one in late)


@SQLITE
def test_nothing_of_a_database_that_cannot_be_opened_is_a_bug_of_the_site(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "NAME", "/nowhere/at/all.sqlite3")
    try:
        for path in ("/", "/sign-in/", reverse("api:devices")):
            answer = browser.get(path)
            assert (answer.status_code, answer["Retry-After"]) == (503, "5"), path
            assert DATABASE_UNAVAILABLE in (
                answer.json()["detail"] if path.startswith("/api/") else answer.content.decode()
            )
        answer = browser.post("/sign-in/", {"username": "ada", "password": "x"})
        assert answer.status_code == 503
    finally:
        connection.close()


def test_a_server_that_is_away_is_told_of() -> None:
    settings = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": free_port(), "NAME": "none"}
    handler = ConnectionHandler({DEFAULT_DB_ALIAS: settings})
    with pytest.raises(OperationalError) as caught:
        handler[DEFAULT_DB_ALIAS].ensure_connection()
    away = unavailable_part(caught.value)
    assert away is not None
    assert (away.status, away.sentence) == (503, DATABASE_UNAVAILABLE)


def test_an_error_of_the_site_is_none_of_the_database() -> None:
    with pytest.raises((OperationalError, ProgrammingError)) as caught, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM what_there_is_not")
    assert unavailable_part(caught.value) is None
    assert unavailable_part(ValueError()) is None
    assert unavailable_part(None) is None


def test_patience_is_for_all_that_is_asked_together() -> None:
    assert remaining_lock_wait(20.0) == 20.0
    with limit_lock_wait(0.05):
        assert 0 < remaining_lock_wait(20.0) <= 0.05
        assert remaining_lock_wait(0.01) <= 0.01
        time.sleep(0.06)
        assert remaining_lock_wait(20.0) == 0.0
    assert remaining_lock_wait(20.0) == 20.0
