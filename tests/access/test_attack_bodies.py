"""Attacks by what a request carries: bodies without end, JSON bombs, fields that nobody asked for, odd numbers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client
from django.urls import reverse

from accounts.models import Role, Token, User
from accounts.token_services import token_create
from core.threads import run_in_thread
from fabric.inventory.models import Device, HostPort
from fabric.operations.models import Operation
from falconweb import asgi_middleware
from falconweb.asgi import application
from falconweb.asgi_middleware import STRANGER_BYTES
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_matrix import GETS
from tests.turns import in_turn
from tests.waiting import eventually_in_loop

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
JSON = "application/json"
MEGABYTE = b"a" * 2**20
Headers = Sequence[tuple[bytes, bytes]]


async def post(path: str, *chunks: bytes, declared: int | None = None, headers: Headers = ()) -> int:
    """Send a body in chunks, as a stranger unless headers say who; return the status."""
    wire = sender(path, declared=declared, headers=headers)
    for place, chunk in enumerate(chunks):
        await wire.send_input({"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1})
    return await status_of(wire)


async def status_of(wire: Any) -> int:
    """Return the status of an answer."""
    status: int = (await wire.receive_output(timeout=60))["status"]
    return status


def sender(path: str, *, declared: int | None = None, headers: Headers = ()) -> Any:
    """Return a request whose body is still to be sent."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
    if declared is not None:
        headers.append((b"content-length", str(declared).encode()))
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }  # fmt: skip
    return ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/sign-in/", "/api/v1/operations/", "/nothing/"])
async def test_a_body_without_end_is_not_taken(path: str) -> None:
    assert await post(path, b"", declared=10**12) == 413
    # One that lies about its length, or tells none, is cut off where it grows too large.
    assert await post(path, *[MEGABYTE] * 4) == 413
    assert await post(path, *[MEGABYTE] * 4, declared=5) == 413
    assert await post(path, b"{}", declared=2) in {401, 403, 404}


def credentials() -> list[Headers]:
    """Return the headers of a session and of a token of an administrator."""
    boss = User.objects.create_user("boss", password="x", role=Role.ADMINISTRATOR)
    client = Client()
    client.force_login(boss)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    _, secret = token_create(person=boss, name="job", scope=Token.Scope.WRITE, days=1)
    return [[(b"cookie", cookie.encode())], [(b"authorization", f"Bearer {secret}".encode())]]


IMPORT = "/api/v1/benchmarks/records/"


@pytest.mark.django_db(transaction=True)
async def test_nothing_is_kept_of_the_large_body_of_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", lambda _, data: kept.append(len(data)))
    wrong = [
        [], [(b"cookie", f"{settings.SESSION_COOKIE_NAME}={'a' * 32}".encode())], [(b"authorization", b"Bearer fw_no")],
        [(b"authorization", b"Basic YTpi"), (b"cookie", b"\xff=\x00; =")],
    ]  # fmt: skip
    for headers in wrong:
        for path in (IMPORT, "/benchmarks/import/", "/api/v1/allocation/", "/sign-in/", "/metrics"):
            assert await post(path, b"", declared=2**20, headers=headers) == 413
            assert await post(path, *[b"a" * 2**14] * 9, headers=headers) == 413
    assert max(kept) <= STRANGER_BYTES
    # A request that is small, or whose sender is known, goes the usual way.
    assert await post(IMPORT, b"{}", declared=2) == 401


@pytest.mark.django_db(transaction=True)
async def test_who_is_signed_in_may_send_what_the_address_declares() -> None:
    for headers in await run_in_thread(credentials):
        # A session's request lacks the token of a form; neither is refused for its size.
        for path, size in ((IMPORT, 4), ("/api/v1/allocation/", 4), ("/api/v1/operations/", 2)):
            assert await post(path, *[MEGABYTE] * size, headers=headers) in {400, 403, 415}
        assert await post("/api/v1/operations/", *[MEGABYTE] * 4, headers=headers) == 413


@pytest.mark.django_db(transaction=True)
async def test_a_stranger_who_sends_slowly_is_ended_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi_middleware, "STRANGER_SECONDS", 0.0)
    looked_up: list[bool] = []
    look_up = asgi_middleware._is_signed_in

    def noted(asked: dict[bytes, bytes]) -> bool:
        looked_up.append(look_up(asked))
        return looked_up[-1]

    async def seen() -> list[bool]:
        return looked_up

    monkeypatch.setattr(asgi_middleware, "_is_signed_in", noted)
    for path in ("/sign-in/", "/api/v1/operations/", "/nothing/"):
        wire = sender(path)
        await wire.send_input({"type": "http.request", "body": b"{", "more_body": True})
        assert await status_of(wire) == 408
    for headers in await run_in_thread(credentials):
        looked_up.clear()
        wire = sender("/api/v1/operations/", headers=headers)
        await wire.send_input({"type": "http.request", "body": b"{", "more_body": True})
        await eventually_in_loop(seen, bool)
        await wire.send_input({"type": "http.request", "body": b"{", "more_body": False})
        assert (looked_up, await status_of(wire)) == ([True], 400 if headers[0][0] == b"authorization" else 403)


@pytest.mark.parametrize(
    ("turn", "body"),
    list(enumerate(["[" * 200_000, '{"device_id":' * 100_000, '{"device_id": ' + "9" * 100_000 + "}",
     '{"device_id": 1e999, "target_host_port_id": null}',
     '{"device_id": NaN}', '{"device_id": {"a": [1]}, "target_host_port_id": []}',
     '{"device_id": true, "target_host_port_id": false}',
     '{"device_id": "\\ud800", "target_host_port_id": "\\u0000"}', '"\\u0000"', b"\xff\xfe{".decode("latin-1")])),
)  # fmt: skip
def test_no_json_breaks_the_api(lab: Lab, turn: int, body: str) -> None:
    for name in ("api:operations", "api:my_tokens"):
        answer = lab.clients["owner"].post(address(lab, name), body, content_type=JSON)
        assert answer.status_code == 400, (name, answer.content)
    administrator = lab.clients["administrator"]
    routes = (
        ("api:people", "POST"), ("api:person", "PATCH"), ("api:tenants", "POST"), ("api:tenant", "PATCH"),
        ("api:tenant_grants", "PUT"), ("api:chassis_list", "POST"), ("api:drawer_mode", "POST"),
        ("api:device_tenant", "PUT"), ("api:host_port_tenant", "PUT"),
    )  # fmt: skip
    for name, method in in_turn(routes, turn, of=3):
        answer = administrator.generic(method, address(lab, name), body, content_type=JSON)
        assert answer.status_code in {200, 400}, (name, answer.content)


NASTY: tuple[Any, ...] = (
    "\x00", "\ud800", "x" * 100_000, "a\r\nX-Evil: 1", "\u202e", "", " ", -1, 0, 2**63, 1e308, True, None, [], {}, [[]],
    {"a": None},
)  # fmt: skip


def test_no_value_of_any_field_breaks_the_api(lab: Lab) -> None:
    administrator = lab.clients["administrator"]
    fields: dict[str, tuple[str, dict[str, Any]]] = {
        "api:people": ("POST", {"username": "new", "full_name": "N", "role": "viewer", "tenant_id": 1, "active": True}),
        "api:person": ("PATCH", {"username": "new", "full_name": "N", "email": "", "role": "user", "tenant_id": 1}),
        "api:tenants": ("POST", {"name": "Four"}),
        "api:tenant": ("PATCH", {"name": "Five"}),
        "api:my_tokens": ("POST", {"name": "job", "scope": "read", "days": 1}),
        "api:tenant_grants": ("PUT", {"device_ids": [], "host_port_ids": [], "take_device_ids": [], "revision": "x"}),
        "api:drawer_mode": ("POST", {"mode": "Advanced"}),
        "api:device_tenant": ("PUT", {"tenant_id": None, "take": False}),
        "api:operations": ("POST", {"device_id": 1, "target_host_port_id": None, "expected_host_port_id": None}),
    }  # fmt: skip
    for turn, (name, field) in enumerate((name, field) for name, (_, body) in fields.items() for field in body):
        method, body = fields[name]
        for value in in_turn(NASTY, turn, of=4):
            asked = json.dumps({**body, field: value})
            answer = administrator.generic(method, address(lab, name), asked, content_type=JSON)
            assert answer.status_code < 500, (name, field, value)


def test_fields_that_nobody_asked_for_change_nothing(lab: Lab) -> None:
    owner, administrator = lab.clients["owner"], lab.clients["administrator"]
    me, boss = User.objects.get(username="owner"), User.objects.get(username="administrator")
    asked: dict[str, Any] = {
        "device_id": lab.device.pk, "target_host_port_id": None, "state": "done", "requested_by": boss.pk,
        "worker": "me", "id": "00000000-0000-4000-8000-000000000000", "summary": "forged", "steps": [],
    }  # fmt: skip
    before = Operation.objects.count()
    answer = owner.post(reverse("api:operations"), asked, content_type=JSON)
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {"state", "requested_by", "worker", "id", "summary", "steps"}
    assert Operation.objects.count() == before
    answer = owner.post(
        reverse("api:my_tokens"),
        {
            "name": "n",
            "days": 1,
            "person": boss.pk,
            "digest": "0" * 64,
            "secret": "x",
            "expires_at": "2999-01-01T00:00:00Z",
        },
        content_type=JSON,
    )
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {"person", "digest", "secret", "expires_at"}
    assert not Token.objects.filter(person__in=[me, boss]).exists()
    answer = administrator.patch(
        address(lab, "api:person"),
        {"is_superuser": True, "is_staff": True, "password": "x", "id": boss.pk, "last_login": None, "groups": [1]},
        content_type=JSON,
    )
    assert answer.status_code == 400
    me.refresh_from_db()
    assert not me.is_superuser
    assert not me.is_staff
    assert me.check_password("x")  # as the fixture made it
    assert me.role == Role.USER


@pytest.mark.nightly
def test_unknown_methods_are_refused_everywhere(lab: Lab) -> None:
    for turn, name in enumerate(sorted(set(GETS) - {"healthz"})):
        for method in in_turn(("TRACE", "CONNECT", "PROPFIND", "FOO"), turn, of=4):
            answer = lab.clients["administrator"].generic(method, address(lab, name))
            assert answer.status_code in {302, 400, 403, 404, 405}, (method, name)


def test_a_key_of_somebody_else_replays_nothing(lab: Lab) -> None:
    where, key = reverse("api:operations"), {"Idempotency-Key": "k"}
    body = {"device_id": lab.device.pk, "target_host_port_id": None}
    first = lab.clients["owner"].post(where, body, content_type=JSON, headers=key)
    assert first.status_code == 202
    for person, status in (("stranger", 404), ("member", 403), ("administrator", 409)):
        assert lab.clients[person].post(where, body, content_type=JSON, headers=key).status_code == status
    HostPort.objects.update(tenant=None)
    Device.objects.update(tenant=None)
    assert lab.clients["owner"].post(where, body, content_type=JSON, headers=key).status_code == 404


def test_a_token_opens_no_page_and_no_session(lab: Lab) -> None:
    made = lab.clients["owner"].post(
        reverse("api:my_tokens"), {"name": "n", "days": 1, "scope": "write"}, content_type=JSON
    )
    header = {"Authorization": f"Bearer {made.json()['secret']}"}
    client = Client()
    assert client.get(reverse("api:me"), headers=header).status_code == 200
    assert client.get("/", headers=header).status_code == 302
    assert client.get(reverse("api:me")).status_code == 401
    assert not client.cookies
