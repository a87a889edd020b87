"""The cache in Redis, which others may write to: values are JSON, and what is none is absent."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.test import Client

KEY = "healthz"


class Command:
    """An object whose pickle runs a command where it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client
        client.delete(cache.make_key(KEY))


@pytest.mark.django_db
def test_a_pickle_in_redis_is_no_value_and_runs_nothing(client: redis.Redis, tmp_path: Path) -> None:
    made = tmp_path / "made"
    hostile = pickle.dumps(Command(made))
    client.set(cache.make_key(KEY), hostile)
    assert Client().get("/healthz").json()["redis"] == "ok"
    assert cache.get(KEY) is None
    assert client.get(cache.make_key(KEY)) is None, "what is malformed is deleted"
    pickle.loads(hostile)  # noqa: S301 - it would have run
    assert made.is_dir()
    assert not cache.get(KEY)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nan"])
def test_what_is_no_json_is_absent(client: redis.Redis, raw: bytes) -> None:
    client.set(cache.make_key(KEY), raw)
    assert cache.get(KEY, "none") == "none"


def test_values_and_counts_come_back_as_they_were() -> None:
    for value in (1, 1.5, "text", None, True, [1, "two"], {"a": {"b": None}}):
        cache.set(KEY, value)
        assert cache.get(KEY, "absent") == value
    cache.set(KEY, 41)
    assert cache.incr(KEY) == 42


def test_a_count_ends_so_long_after_the_first(client: redis.Redis) -> None:
    cache.delete(KEY)
    assert [cache.count(KEY, 60) for _ in range(3)] == [1, 2, 3]  # type: ignore[attr-defined]  # of this cache
    client.expire(cache.make_key(KEY), 30)
    assert cache.count(KEY, 60) == 4  # type: ignore[attr-defined]
    assert client.ttl(cache.make_key(KEY)) in range(1, 31)
