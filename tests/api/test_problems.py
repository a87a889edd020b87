"""Every way in which the API says no is a problem document, and an error of the site tells nothing but a reference."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.signals import got_request_exception
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from rest_framework.throttling import BaseThrottle

from accounts import api
from falconweb.api.openapi import PROBLEM_SCHEMA
from falconweb.asgi import application
from tests.access.lab import Lab
from tests.api.test_api import JSON, call, problem

SECRET = "a secret of the inside"


def no_user(*_: object) -> None:
    raise RuntimeError(SECRET)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """/me/ has a bug."""
    monkeypatch.setattr(api, "person_of", no_user)


@pytest.fixture
def signals() -> Iterator[list[Any]]:
    """What was told of exceptions that nobody caught."""
    told: list[Any] = []

    def listen(request: HttpRequest, **_: object) -> None:
        told.append(request)

    got_request_exception.connect(listen)
    yield told
    got_request_exception.disconnect(listen)


def checked(answer: Any, status: int) -> dict[str, Any]:
    """Return a problem that fits its schema."""
    found = problem(answer, status)
    jsonschema.validate(found, PROBLEM_SCHEMA)
    assert set(found) <= set(PROBLEM_SCHEMA["properties"])
    return found


def test_a_bug_is_a_problem_with_a_reference_that_the_log_has(
    lab: Lab, broken: None, signals: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.clients["owner"]
    client.raise_request_exception = False
    answer = client.get(reverse("api:me"))
    found = checked(answer, 500)
    assert found["code"] == "internal"
    assert SECRET not in answer.content.decode()
    (line,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert line.name == "django.request"
    assert found["reference"] in line.getMessage()
    assert line.exc_info
    assert SECRET in str(line.exc_info[1])
    (request,) = signals
    assert request.path == reverse("api:me")


def test_the_test_client_raises_what_a_view_raised(lab: Lab, broken: None) -> None:
    with pytest.raises(RuntimeError, match=SECRET):
        lab.clients["owner"].get(reverse("api:me"))


def test_a_bug_outside_of_views_is_a_problem_too(
    lab: Lab,
    signals: list[Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    monkeypatch.setattr("falconweb.middleware.SignInRequiredMiddleware.process_view", no_user)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE]  # a chain with it
    client = lab.clients["owner"]
    client.raise_request_exception = False
    found = checked(client.get(reverse("api:me")), 500)
    assert SECRET not in json.dumps(found)
    assert found["reference"] in caplog.text
    assert SECRET in caplog.text
    assert len(signals) == 1
    # Pages stay pages.
    assert client.get("/")["Content-Type"].startswith("text/html")


@pytest.mark.parametrize(
    "path", ["/api/", "/api/v2/devices/", "/api/v1/none/", "/api/v1/none%0A", "/api/v1/devices/x/"]
)
@pytest.mark.parametrize("person", ["owner", "nobody"])
def test_unknown_addresses(lab: Lab, path: str, person: str) -> None:
    answer = lab.clients[person].get(path)
    checked(answer, 401 if person == "nobody" and path.startswith("/api/v1/") and path.endswith("/") else 404)


def test_an_address_without_its_slash_takes_no_body_along(lab: Lab) -> None:
    owner = lab.clients["owner"]
    found = checked(call(owner, "post", "/api/v1/operations"), 404)
    assert "slash" in found["detail"]
    assert owner.get("/api/v1/operations")["Location"] == "/api/v1/operations/"


def test_what_django_refuses_itself(lab: Lab) -> None:
    owner = lab.clients["owner"]
    assert checked(owner.get("/api/v1/me/", headers={"Host": "evil.example"}), 400)["code"] == "invalid"
    answer = call(owner, "post", reverse("api:docs"))
    assert checked(answer, 405)["code"] == "method_not_allowed"
    assert answer["Allow"] == "GET"
    answer = call(owner, "delete", reverse("api:me"))
    assert checked(answer, 405)["code"] == "method_not_allowed"
    assert "GET" in answer["Allow"]
    assert checked(owner.get(reverse("api:me"), headers={"Accept": "text/html"}), 406)["code"] == "not_acceptable"
    found = checked(owner.post(reverse("api:operations"), "x", content_type="text/plain"), 415)
    assert found["code"] == "unsupported_media_type"


def test_too_many_requests(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(BaseThrottle):
        def allow_request(self, *_: object) -> bool:
            return False

        def wait(self) -> float:
            return 7.0

    monkeypatch.setattr(api.Me, "throttle_classes", [Never])
    answer = lab.clients["owner"].get(reverse("api:me"))
    assert checked(answer, 429)["code"] == "throttled"
    assert answer["Retry-After"] == "7"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("path", "kind"), [("/api/v1/operations/", "application/problem+json"), ("/x/", "text/html")])
async def test_a_request_that_is_too_large(path: str, kind: str) -> None:
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path, "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", b"1000000000000")],
    }  # fmt: skip
    wire: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
    begin, body = await wire.receive_output(timeout=60), await wire.receive_output(timeout=60)
    headers = {name.lower(): value for name, value in begin["headers"]}
    assert begin["status"] == 413
    assert headers[b"content-type"].decode().startswith(kind)
    assert int(headers[b"content-length"]) == len(body["body"])
    assert headers[b"connection"] == b"close"
    if kind == "text/html":
        assert b"<h1>" in body["body"]
        assert b"larger than 2560 KiB: send less at once." in body["body"]
    else:
        found = json.loads(body["body"])
        jsonschema.validate(found, PROBLEM_SCHEMA)
        assert (found["status"], found["code"]) == (413, "too_large")


def test_each_other_kind_fits_the_schema(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, administrator = lab.clients["owner"], lab.clients["administrator"]
    where = reverse("api:operations")
    detach = {"device_id": lab.device.pk, "target_host_port_id": None}
    assert checked(call(owner, "post", where, {}), 400)["errors"] == {
        "device_id": "This field is required.", "target_host_port_id": "This field is required."
    }  # fmt: skip
    assert "errors" not in checked(call(owner, "post", where, []), 400)
    found = checked(call(administrator, "put", reverse("api:tenant_grants", args=lab.arguments["tenant"]),
                         {"device_ids": [1, "x"], "host_port_ids": []}), 400)  # fmt: skip
    assert list(found["errors"]) == ["device_ids.1"]
    checked(owner.post(where, "{", content_type=JSON), 400)
    assert checked(Client().get(where), 401)["code"] == "not_authenticated"
    assert checked(owner.get(reverse("api:people")), 403)["code"] == "forbidden"
    careful = Client(enforce_csrf_checks=True)
    careful.cookies = owner.cookies
    assert checked(call(careful, "post", where, detach), 403)["code"] == "forbidden"
    assert checked(call(owner, "post", where, {**detach, "device_id": 10**6}), 404)["code"] == "not_found"
    first = call(owner, "post", where, detach, **{"Idempotency-Key": "k"})
    assert checked(call(owner, "post", where, detach), 409)["operation_id"] == first.json()["id"]
    other = {**detach, "expected_host_port_id": lab.host_port.pk}
    assert checked(call(owner, "post", where, other, **{"Idempotency-Key": "k"}), 422)["code"] == "key_reused"
    monkeypatch.setattr("telemetry.live.frames.current_catalogue", _no_redis)
    checked(owner.get(reverse("api:series", args=lab.arguments["chassis"])), 503)


def _no_redis(*_: object) -> None:
    raise ConnectionError("no Redis")


@pytest.mark.parametrize(
    ("method", "where", "body", "new"),
    [
        ("post", "/api/v1/operations/", {"device": 1, "target_host_port_id": None}, "device_id"),
        ("post", "/api/v1/operations/", {"device_id": 1, "target": None}, "target_host_port_id"),
        ("post", "/api/v1/operations/", {"device_id": 1, "target_host_port_id": None, "expected": 1},
         "expected_host_port_id"),
        ("get", "/api/v1/operations/?device=1", None, "device_id"),
        ("get", "/api/v1/operations/?chassis=1", None, "chassis_id"),
        ("get", "/api/v1/devices/?chassis=1", None, "chassis_id"),
        ("put", "/api/v1/devices/{device}/tenant/", {"tenant": None}, "tenant_id"),
        ("put", "/api/v1/tenants/{tenant}/grants/", {"devices": [], "host_port_ids": []}, "device_ids"),
        ("put", "/api/v1/tenants/{tenant}/grants/", {"device_ids": [], "host_ports": []}, "host_port_ids"),
        ("put", "/api/v1/tenants/{tenant}/grants/", {"device_ids": [], "host_port_ids": [], "take_devices": [1]},
         "take_device_ids"),
    ],
)  # fmt: skip
def test_a_name_of_before_is_refused_with_the_new_one(lab: Lab, method: str, where: str, body: Any, new: str) -> None:
    path = where.format(device=lab.device.pk, tenant=lab.arguments["tenant"][0])
    administrator = lab.clients["administrator"]
    answer = administrator.get(path) if method == "get" else call(administrator, method, path, body)
    found = checked(answer, 400)
    assert f"is called '{new}'" in found["detail"]
    assert list(found["errors"].values()) == [found["detail"]]
