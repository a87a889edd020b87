"""/metrics over HTTP: who gets in, and how it answers."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from accounts.models import Role, Tenant, Token, User
from accounts.token_services import token_create
from fabric.inventory.models import Chassis
from falconweb import metrics
from tests.telemetry.pipeline.conftest import entry, read

pytestmark = pytest.mark.django_db(databases="__all__")


@pytest.fixture
def administrator() -> User:
    return User.objects.create_superuser("ada", password="x")


@pytest.fixture
def secret(administrator: User) -> str:
    """The secret of a token for /metrics."""
    _, secret = token_create(person=administrator, name="Prometheus", scope=Token.Scope.METRICS, days=1)
    return secret


@pytest.fixture
def chassis() -> Chassis:
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    read(chassis, [(entry("chassis", 0, "temperature_celsius", "Inlet"), 20.0)])
    return chassis


@pytest.fixture
def away() -> Iterator[None]:
    """A Redis that does not answer."""
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    yield
    settings.REDIS_URL = there


def bearer(secret: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}", **more}


def test_a_token_for_metrics_opens_metrics_and_nothing_else(secret: str, chassis: Chassis) -> None:
    answer = Client().get("/metrics", headers=bearer(secret))
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer["Cache-Control"] == "no-store, private"
    assert b'falconweb_chassis_temperature_celsius{chassis="falcon-1",sensor="Inlet"} 20.0\n' in answer.getvalue()
    for name in ("api:chassis_list", "api:me", "api:pipeline"):
        refused = Client().get(reverse(name), headers=bearer(secret))
        assert (refused.status_code, refused.json()["detail"]) == (403, "This token opens /metrics, nothing else.")
    made = Client().post(reverse("api:my_tokens"), {"name": "x", "days": 1}, "application/json", headers=bearer(secret))
    assert made.status_code == 403
    # And no page: these know no tokens.
    assert Client().get("/telemetry/pipeline/", headers=bearer(secret)).status_code == 302


@pytest.mark.parametrize("scope", [Token.Scope.READ, Token.Scope.WRITE])
def test_who_may_read_the_api_may_read_metrics_too(administrator: User, scope: str) -> None:
    _, secret = token_create(person=administrator, name="job", scope=scope, days=1)
    assert Client().get("/metrics", headers=bearer(secret)).status_code == 200


def test_nobody_else_gets_in(administrator: User, secret: str) -> None:
    for headers in ({}, bearer("fw_wrong"), bearer(""), {"Authorization": f"Basic {secret}"}):
        answer = Client().get("/metrics", headers=headers)
        assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
        assert answer["Content-Type"] == "application/problem+json"
    User.objects.update(is_active=False)
    assert Client().get("/metrics", headers=bearer(secret)).status_code == 401


def test_a_signed_in_person_sees_what_is_theirs(administrator: User, chassis: Chassis) -> None:
    client = Client()
    client.force_login(administrator)
    assert b"falconweb_task_queue_length" in client.get("/metrics").getvalue()
    stranger = User.objects.create_user("eve", password="x", role=Role.USER, tenant=Tenant.objects.create(name="T"))
    client.force_login(stranger)
    text = client.get("/metrics").getvalue()
    assert b"falcon-1" not in text
    assert b"falconweb_task_queue_length" not in text


def test_the_sites_own_metrics_of_a_chassis_are_refused_as_there_are_none(secret: str, chassis: Chassis) -> None:
    answer = Client().get("/metrics?chassis=falcon-1&only=site", headers=bearer(secret))
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert "leave out 'chassis'" in answer.json()["errors"]["only"]
    assert b"falcon-1" in Client().get("/metrics?chassis=falcon-1&only=chassis", headers=bearer(secret)).getvalue()


def test_metrics_are_only_read(secret: str) -> None:
    for method in ("post", "put", "delete"):
        answer = getattr(Client(), method)("/metrics", headers=bearer(secret))
        assert answer.status_code == 403
    assert Client().head("/metrics", headers=bearer(secret)).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("deflate, gzip;q=0.8", True), ("gzip;q=0", False), ("identity", False), ("", False)],
)
def test_it_is_packed_for_who_takes_that(secret: str, chassis: Chassis, accepted: str, packed: bool) -> None:
    answer = Client().get("/metrics", headers=bearer(secret, **{"Accept-Encoding": accepted}))
    assert (answer.get("Content-Encoding") == "gzip") is packed
    assert "Accept-Encoding" in answer["Vary"]
    text = gzip.decompress(answer.getvalue()) if packed else answer.getvalue()
    assert text.endswith(b"\n")
    assert b"falconweb_chassis_up" in text


@pytest.mark.parametrize("accept", ["application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1", "text/html", ""])
def test_there_is_one_format_whatever_is_asked_for(secret: str, accept: str) -> None:
    assert Client().get("/metrics", headers=bearer(secret, Accept=accept)).status_code == 200


def test_what_is_asked_for_and_is_not_there_is_a_problem(secret: str, chassis: Chassis) -> None:
    assert Client().get("/metrics", {"chassis": "falcon-2"}, headers=bearer(secret)).status_code == 404
    answer = Client().get("/metrics", {"only": "x"}, headers=bearer(secret))
    assert (answer.status_code, answer.json()["errors"]) == (400, {"only": "site or chassis, or leave it out."})
    assert Client().get("/metrics", {"chassis": "falcon-1"}, headers=bearer(secret)).status_code == 200


def test_without_redis_it_says_so(secret: str, chassis: Chassis, away: None) -> None:
    answer = Client().get("/metrics", headers=bearer(secret))
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("is_administrator", [True, False])
def test_many_who_ask_at_once_are_asked_to_come_again(secret: str, is_administrator: bool) -> None:
    """The secret is an administrator's: what tenants ask for takes no place of theirs."""
    places = metrics._read_slots[is_administrator]
    for _ in range(metrics.MAX_CONCURRENT_READS):
        assert places.acquire(blocking=False)
    try:
        assert Client().get("/metrics", headers=bearer(secret)).status_code == (503 if is_administrator else 200)
    finally:
        for _ in range(metrics.MAX_CONCURRENT_READS):
            places.release()
    assert Client().get("/metrics", headers=bearer(secret)).status_code == 200
    assert Client().get("/metrics", {"only": "x"}, headers=bearer(secret)).status_code == 400
    assert Client().get("/metrics", headers=bearer(secret)).status_code == 200


def test_the_page_that_shows_a_token_says_what_it_opens(administrator: User) -> None:
    client = Client()
    client.force_login(administrator)
    shown = client.post(reverse("accounts:token_add"), {"name": "p", "scope": "metrics", "days": 3}, follow=True)
    assert "and nothing else" in shown.content.decode()
    assert "http://testserver/metrics" in shown.content.decode()
    assert "Read /metrics, nothing else" in client.get(reverse("accounts:account")).content.decode()
