"""Who sends too many requests to the API is refused for a while, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Token, User
from accounts.token_services import token_create
from tests.access.lab import Lab
from tests.api.test_problems import checked
from tests.redis_keys import delete_keys

pytestmark = pytest.mark.django_db
NOW = 1_790_000_010.0  # the 30th second of a minute


@pytest.fixture(autouse=True)
def few(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three requests a minute with a sign-in, and two without."""
    settings.CONFIG = replace(settings.CONFIG, api_requests=3, api_stranger_requests=2)
    monkeypatch.setattr("falconweb.api.rate_limits.time.time", lambda: NOW)
    yield
    delete_keys("*:requests:*")


def bearer(name: str, scope: Token.Scope = Token.Scope.READ) -> dict[str, str]:
    token = f"job {Token.objects.count()}"
    _, secret = token_create(person=User.objects.get(username=name), name=token, scope=scope, days=1)
    return {"Authorization": f"Bearer {secret}"}


def statuses(client: Client, count: int, path: str = "api:me", **more: Any) -> list[int]:
    return [client.get(reverse(path), **more).status_code for _ in range(count)]


def test_each_token_and_each_session_has_its_own_limit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert statuses(lab.clients["owner"], 4) == [200, 200, 200, 429]
    answer = lab.clients["owner"].get(reverse("api:me"))
    assert checked(answer, 429)["code"] == "throttled"
    assert answer["Retry-After"] == "30"
    first, second = bearer("owner"), bearer("owner")
    assert statuses(Client(), 4, headers=first) == [200, 200, 200, 429]
    assert statuses(Client(), 3, headers=second) == [200] * 3
    assert statuses(lab.clients["member"], 3) == [200] * 3
    # What is forbidden or missing counts as well.
    assert statuses(lab.clients["stranger"], 4, "api:people") == [403, 403, 403, 429]
    monkeypatch.setattr("falconweb.api.rate_limits.time.time", lambda: NOW + 30)
    assert statuses(lab.clients["owner"], 1) == [200]


def test_strangers_are_counted_by_their_address_whatever_they_send(lab: Lab, settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, trusted_proxies=1)

    def stranger(address: str, **headers: str) -> int:
        return Client().get(reverse("api:me"), headers={"X-Forwarded-For": address, **headers}).status_code

    found = [stranger("192.0.2.1", Authorization=f"Bearer fw_{number}") for number in range(2)]
    assert [*found, stranger("192.0.2.1"), stranger("192.0.2.2")] == [401, 401, 429, 401]
    # The owner of a valid token behind the same address goes on.
    assert stranger("192.0.2.1", **bearer("owner")) == 200


def test_no_limit_is_a_setting_and_without_redis_there_is_none(lab: Lab, settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, api_requests=0, api_stranger_requests=0)
    assert statuses(lab.clients["owner"], 5) == [200] * 5
    assert statuses(Client(), 5) == [401] * 5
    settings.CONFIG = replace(settings.CONFIG, api_requests=1, api_stranger_requests=1)
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}}
    assert statuses(lab.clients["member"], 3) == [200] * 3
    assert statuses(Client(), 3) == [401] * 3
