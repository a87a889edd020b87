"""Every request that may change something leaves an entry, whoever sends it, and no entry holds a secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import translation

from accounts.audit.actions import Action, Outcome
from accounts.audit.context import request_id
from accounts.audit.models import AuditEntry
from accounts.models import Role, Token, User
from accounts.sign_in.security import MAX_FAILED_LOGINS
from accounts.token_services import token_create
from fabric.inventory.models import Device
from falconweb.asgi import application
from falconweb.audit_middleware import HEADER
from tests.access.lab import Lab, lab, made_lab
from tests.access.test_matrix_writes import (
    REFUSED,
    ROUTES,
    SECRET,
    SECRETS,
    action_of,
    bodies,
    latest,
    play,
    see_the_record,
)
from tests.turns import NIGHTLY, at_night

__all__ = ["bodies", "lab", "made_lab"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh_log")]
PASSWORD = "a-long-password-1"


def entries() -> list[AuditEntry]:
    return list(AuditEntry.objects.order_by("sequence"))


def newest() -> AuditEntry:
    return AuditEntry.objects.latest("sequence")


def test_every_route_that_may_change_something_has_its_action() -> None:
    assert [route for route in ROUTES if action_of(route) == Action.REQUEST] == [], (
        "Declare audited_as=Action.… where the view is; where none of the actions fits, write a new one"
    )


def test_the_log_is_in_english_whoever_reads_the_pages(
    admin_client: Client, admin_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "gettext", lambda message: f"auf Deutsch: {message}")
    User.objects.create_superuser("grace", password=PASSWORD)
    same = {"username": admin_user.username, "role": Role.ADMINISTRATOR.value}  # but not active
    page = admin_client.post(reverse("accounts:person", args=[admin_user.pk]), same)
    assert "auf Deutsch: You cannot deactivate yourself." in page.text
    assert newest().sentence == "You cannot deactivate yourself. Ask another administrator."
    page = admin_client.post(reverse("accounts:account_locale"), {"zone": "Nowhere"}, follow=True)  # kept by no service
    assert "auf Deutsch: There is no such time zone." in page.text
    assert newest().sentence == "There is no such time zone."


def test_a_refusal_of_the_framework_is_logged_in_english(admin_client: Client) -> None:
    answer = admin_client.delete(reverse("api:chassis_list"), headers={"accept-language": "de"})
    assert "nicht erlaubt" in answer.text
    assert newest().sentence == "This address has no such method."


def test_a_parameter_that_is_refused_is_logged_in_english(admin_client: Client) -> None:
    address = f"{reverse('api:sweep', args=[uuid4()])}?run=1"
    assert "ist hier nicht bekannt" in admin_client.delete(address, headers={"accept-language": "de"}).text
    assert newest().sentence == "'run' is not known here. Is 'runs' meant?"


def test_no_secret_that_an_administrator_sends_is_kept(
    lab: Lab, bodies: dict[str, dict[str, Any]], forget_refusals: Callable[[], None]
) -> None:
    """Where the request is refused; what is done, and what others send, is seen with what they change."""
    since = latest()
    for place, route in enumerate(ROUTES if NIGHTLY else [one for one in ROUTES if action_of(one) in REFUSED]):
        if not place % 20:
            forget_refusals()  # only so many are kept one by one
        body = bodies["api" if route[0].startswith("api:") else "page"]
        for sent in (*at_night({}, body), {**body, **SECRETS}):
            with transaction.atomic():
                see_the_record(since, "administrator", route, play(lab, "administrator", route, sent))
                transaction.set_rollback(True)


def test_what_an_administrator_does_is_told_with_its_action_and_target(
    lab: Lab, bodies: dict[str, dict[str, Any]]
) -> None:
    Device.objects.update(tenant=None)
    told = {}
    for name, method in (
        ("api:tenants", "POST"), ("api:tenant", "PATCH"), ("api:people", "POST"), ("api:person", "PATCH"),
        ("api:person_password", "POST"), ("api:my_tokens", "POST"), ("api:device_tenant", "PUT"),
        ("api:host_port_tenant", "PUT"),
    ):  # fmt: skip
        play(lab, "administrator", (name, method), {**bodies["api"], "name": name, "username": name.replace(":", "-")})
        entry = newest()
        assert (entry.outcome, entry.actor_name, entry.credential) == ("done", "administrator", "session"), name
        told[name] = (entry.action, entry.target_kind)
        assert entry.target_id, name
    assert told == {
        "api:tenants": ("tenant.add", "tenant"), "api:tenant": ("tenant.edit", "tenant"),
        "api:people": ("person.add", "person"), "api:person": ("person.edit", "person"),
        "api:person_password": ("person.password", "person"), "api:my_tokens": ("token.create", "token"),
        "api:device_tenant": ("grant.change", "device"), "api:host_port_tenant": ("grant.change", "host port"),
    }  # fmt: skip
    changed = AuditEntry.objects.get(target_kind="device", action=Action.GRANT_CHANGE)
    assert (changed.before, changed.after) == ({"tenant": None}, {"tenant": "Three"})


def test_each_thing_of_a_set_of_grants_has_its_entry(lab: Lab, bodies: dict[str, dict[str, Any]]) -> None:
    lab.arguments["tenant_grants"] = [User.objects.get(username="stranger").tenant_id]
    play(lab, "administrator", ("api:tenant_grants", "PUT"), bodies["api"])
    left = [entry for entry in entries() if entry.path.endswith("/grants/")]
    assert [(one.action, one.target_kind, one.before, one.after) for one in left] == [
        ("grant.change", "device", {"tenant": "One"}, {"tenant": "Three"}),
        ("grant.change", "host port", {"tenant": "One"}, {"tenant": "Three"}),
        ("grant.set", "tenant", {"devices": 0, "host ports": 0}, {"devices": 1, "host ports": 1}),
    ]
    assert len({one.request_id for one in left}) == 1


def test_looking_leaves_nothing(lab: Lab) -> None:
    before = AuditEntry.objects.count()
    answer = lab.clients["owner"].get(reverse("fabric:fabric"))
    lab.clients["nobody"].get(reverse("api:me"))
    assert AuditEntry.objects.count() == before
    assert len(answer[HEADER]) == 16
    assert request_id() == ""


def test_an_id_that_somebody_sends_is_not_taken(lab: Lab) -> None:
    answer = lab.clients["owner"].post(reverse("accounts:token_add"), headers={HEADER: "0123456789abcdef"})
    assert answer[HEADER] != "0123456789abcdef"
    assert newest().request_id == answer[HEADER]


def test_the_id_of_an_error_page_is_that_of_the_request_and_the_log(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    page = lab.clients["member"].post(reverse("accounts:person_add"))
    assert page[HEADER] in page.content.decode()
    assert page[HEADER] in caplog.text
    assert newest().request_id == page[HEADER]


def test_a_bug_shows_the_id_on_page_and_problem(lab: Lab, monkeypatch: pytest.MonkeyPatch,
                                                caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    def bug(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("accounts.services._tenant_name", bug)
    client = lab.clients["administrator"]
    client.raise_request_exception = False
    page = client.post(reverse("accounts:tenant_add"), {"name": "x"})
    assert page.status_code == 500
    assert page[HEADER] in page.content.decode()
    assert page[HEADER] in caplog.text
    problem = client.post(reverse("api:tenants"), {"name": "x"}, content_type="application/json")
    assert problem.json()["reference"] == problem[HEADER]
    assert [(one.action, one.outcome, one.sentence) for one in entries()[-2:]] == [
        ("tenant.add", "failed", "An error of the site stopped it.")
    ] * 2


def sign_in(name: str, password: str, **more: Any) -> Any:
    return Client().post(reverse("accounts:sign_in"), {"username": name, "password": password}, **more)


def test_signing_in_and_out(lab: Lab) -> None:
    bob = User.objects.create_user(
        "bob", password=PASSWORD, role=Role.USER, tenant=User.objects.get(username="owner").tenant
    )
    client = Client()
    client.post(reverse("accounts:sign_in"), {"username": "bob", "password": PASSWORD})
    entry = newest()
    assert (entry.action, entry.outcome, entry.actor_id, entry.credential) == (
        "account.sign_in", "done", bob.pk, "password",
    )  # fmt: skip
    client.post(reverse("accounts:sign_out"))
    assert (newest().action, newest().outcome, newest().actor_name) == ("account.sign_out", "done", "bob")
    sign_in("bob", "wrong")
    assert (newest().outcome, newest().actor_id, newest().target_name) == ("refused", None, "bob")
    assert PASSWORD not in json.dumps([one.record() for one in entries()])


def test_a_password_typed_as_a_name_is_not_kept(lab: Lab) -> None:
    sign_in(SECRET, "x")
    assert newest().target_name == "(no person of that name)"
    assert SECRET not in json.dumps([one.record() for one in entries()])


def test_a_lock_is_told_of(lab: Lab) -> None:
    for _ in range(10):
        sign_in("owner", "wrong")
    assert "closed after too many wrong passwords" in newest().sentence
    for number in range(MAX_FAILED_LOGINS - 10):
        sign_in(f"name-{number}", "wrong")
    assert sign_in("owner", "x").status_code == 429
    assert (newest().status, newest().outcome) == (429, "refused")
    assert newest().sentence.startswith("Sign-in from this address is closed")


def test_a_token_is_named_also_where_it_is_not_enough(lab: Lab) -> None:
    owner = User.objects.get(username="owner")
    token, secret = token_create(person=owner, name="night job", scope=Token.Scope.READ, days=1)
    where = reverse("api:my_tokens")
    answer = Client().post(where, {}, content_type="application/json", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 403
    entry = newest()
    assert (entry.actor_name, entry.credential) == ("owner", f"token {token.pk}, night job")
    assert (entry.outcome, entry.sentence, entry.action) == ("refused", "This token may only read.", "token.create")
    Client().post(where, {}, content_type="application/json", headers={"Authorization": "Bearer fw_made-up-made-up"})
    assert (newest().actor_id, newest().credential, newest().status) == (None, "", 401)


def test_a_forged_form_is_told_of_with_the_session_that_it_used(lab: Lab) -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies = lab.clients["owner"].cookies
    for where, kind in ((reverse("accounts:token_add"), "page"), (reverse("api:my_tokens"), "api")):
        answer = client.post(where, {"name": "x"}, content_type="application/json")
        assert answer.status_code == 403
        entry = newest()
        assert (entry.outcome, entry.actor_name, entry.via, entry.action) == ("refused", "owner", kind, "token.create")
        assert "form" in entry.sentence or "CSRF" in entry.sentence


def test_a_refusal_that_a_page_tells_after_a_redirect_is_none_that_was_done(lab: Lab) -> None:
    answer = lab.clients["administrator"].post(reverse("fabric:drawer", args=lab.arguments["drawer"]), {"mode": "x"})
    assert answer.status_code == 302
    assert newest().outcome == Outcome.REFUSED
    assert "is not a mode of a drawer" in newest().sentence


def test_the_address_behind_a_trusted_proxy(lab: Lab, settings: Any) -> None:
    import dataclasses

    settings.CONFIG = dataclasses.replace(settings.CONFIG, trusted_proxies=1)
    lab.clients["owner"].post(reverse("accounts:token_add"), headers={"X-Forwarded-For": "6.6.6.6, 203.0.113.9"})
    assert newest().address == "203.0.113.9"


def test_unknown_addresses_and_odd_methods(lab: Lab) -> None:
    client = lab.clients["owner"]
    for method, path, status in (
        ("POST", "/nothing/\x07here", 404), ("PURGE", "/", 405), ("POST", "/api/v1/none/", 404),
        ("DELETE", "/people", 301), ("POST", f"/{'x' * 2000}", 404),
    ):  # fmt: skip
        assert client.generic(method, path).status_code == status
        entry = newest()
        assert (entry.outcome, entry.status, entry.action, entry.actor_name) == ("refused", status, "request", "owner")
        assert len(entry.path) <= 300
        assert entry.path.isprintable()


def test_a_stranger_cannot_fill_the_log(lab: Lab) -> None:
    before = AuditEntry.objects.count()
    client = Client()
    for _ in range(100):
        assert client.post(reverse("api:operations"), {}, content_type="application/json").status_code == 401
    assert AuditEntry.objects.count() == before + 60


def test_health_is_no_matter_of_the_log(lab: Lab) -> None:
    before = AuditEntry.objects.count()
    assert Client().post("/healthz").status_code == 200
    assert AuditEntry.objects.count() == before


def test_a_log_that_cannot_be_written_stops_changes_and_no_refusals(lab: Lab) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_audithead RENAME TO elsewhere")
    client = lab.clients["administrator"]
    client.raise_request_exception = False
    try:
        with transaction.atomic():
            assert client.post(reverse("accounts:tenant_add"), {"name": ""}).status_code == 400
            transaction.set_rollback(True)
        with transaction.atomic():
            with pytest.raises(DatabaseError):
                User.objects.raw("SELECT * FROM accounts_audithead")[0]
            transaction.set_rollback(True)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO accounts_audithead")
    # What was refused meanwhile is kept once the log can be written.
    assert client.post(reverse("accounts:tenant_add"), {"name": "Another"}).status_code == 302
    done, refused = AuditEntry.objects.order_by("-sequence")[:2][::-1]
    assert [(one.outcome, one.status) for one in (done, refused)] == [("done", None), ("refused", 400)]


async def ask(path: str, *headers: tuple[bytes, bytes]) -> tuple[int, str]:
    """Send a POST over ASGI; return status and request id."""
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"secret=1", "headers": [(b"host", b"localhost"), *headers],
        "client": ("203.0.113.7", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    wire: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
    await wire.send_input({"type": "http.request", "body": b"", "more_body": False})
    begin = await wire.receive_output(timeout=60)
    await wire.receive_output(timeout=60)
    return begin["status"], {name.lower(): value.decode() for name, value in begin["headers"]}[b"x-request-id"]


@pytest.mark.django_db(transaction=True)
async def test_requests_over_asgi_are_told_apart() -> None:
    import asyncio

    person = await User.objects.acreate(username="ada", role=Role.ADMINISTRATOR)
    client = Client()
    await asyncio.to_thread(client.force_login, person)
    cookie = (b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode())
    before = [pk async for pk in AuditEntry.objects.values_list("pk", flat=True)]  # of the lab
    answers = await asyncio.gather(*(ask(path, cookie) for path in ("/none/1/", "/none/2/", "/none/3/", "/none/4/")))
    left = [entry async for entry in AuditEntry.objects.exclude(pk__in=before).order_by("path")]
    assert [(one.status, one.request_id) for one in left] == answers
    assert {(one.path[:6], one.address, one.actor_name) for one in left} == {("/none/", "203.0.113.7", "ada")}


@pytest.mark.django_db(transaction=True)
async def test_what_is_refused_at_the_gate_is_told_of_too() -> None:
    before = [pk async for pk in AuditEntry.objects.values_list("pk", flat=True)]
    status, number = await ask("/sign-in/", (b"content-length", b"1000000000000"))
    assert status == 413
    (entry,) = [one async for one in AuditEntry.objects.exclude(pk__in=before)]
    assert (entry.request_id, entry.status, entry.outcome, entry.address) == (number, 413, "refused", "203.0.113.7")
    assert "larger than" in entry.sentence
