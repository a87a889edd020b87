"""The scheduler of periodic tasks in a real Valkey: one of several is at work, by the monotonic clock."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from django.conf import settings

from falconweb.scheduler import MAX_QUEUED, STANDSTILL_SECONDS, TURN_KEY, MonotonicScheduler, SchedulerTurn
from hostwire.heartbeat import pause

QUEUE = "falconweb-scheduler-tests"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    monkeypatch.setattr(settings, "CELERY_TASK_DEFAULT_QUEUE", QUEUE)
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.delete(TURN_KEY, QUEUE)
        yield client
        client.delete(TURN_KEY, QUEUE)
    pause("scheduler")  # other tests of this process have none


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be set."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def application(client: redis.Redis) -> Celery:
    """An application with three tasks of different periods, and a queue of its own."""
    app = Celery("scheduled", broker=settings.REDIS_URL, set_as_current=False)
    app.conf.task_default_queue = QUEUE
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": period}
        for name, period in (("often", 2.0), ("seldom", 45.0), ("daily", 86400.0))
    }
    return app


def sent(client: redis.Redis) -> Counter[str]:
    """Return how many messages of each task are there, and take them."""
    names = Counter[str]()
    taken: Any = client.rpop
    while raw := taken(QUEUE):
        names.update(name for name in ("often", "seldom", "daily") if f'"task": "{name}"'.encode() in raw)
    return names


def run(scheduler: MonotonicScheduler, clock: list[float], length: float) -> None:
    """Let time pass for a scheduler alone."""
    end = clock[0] + length
    while clock[0] < end:
        clock[0] += max(0.1, scheduler.tick())


def test_each_task_is_sent_in_its_period_whatever_the_clock_says(
    client: redis.Redis, application: Celery, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = MonotonicScheduler(application)
    run(scheduler, seconds, 100.0)
    assert sent(client) == {"often": 49, "seldom": 2, "daily": 1}
    real = time.time
    for jump in (-3600.0, 3600.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        run(scheduler, seconds, 100.0)
        found = sent(client)
        assert (found["daily"], found["seldom"]) == (0, 2)
        assert 49 <= found["often"] <= 51


def test_of_two_schedulers_one_is_at_work_and_the_other_takes_its_place(
    client: redis.Redis, application: Celery, seconds: list[float]
) -> None:
    first, second = MonotonicScheduler(application), MonotonicScheduler(application)
    for _ in range(30):
        first.tick()
        second.tick()
        seconds[0] += 1.0
    assert sent(client)["often"] == 14
    # The first one is suspended, and the second sees the same value for a while.
    run(second, seconds, STANDSTILL_SECONDS - 2.0)
    assert sent(client) == {}
    run(second, seconds, 30.0)
    assert sent(client)["often"] >= 10
    # It goes on, and finds that another one is at work.
    first.tick()
    assert sent(client) == {}
    run(second, seconds, 10.0)
    assert sent(client)["often"] == 5


@pytest.mark.parametrize("hostile", [b"", b"\x80\x04\x95garbage", b"x" * 10**6, b"a b c\n", {"a": "hash"}])
def test_what_somebody_else_writes_there_is_waited_for_once_and_replaced(
    client: redis.Redis, seconds: list[float], hostile: bytes | dict[str, str]
) -> None:
    turn = SchedulerTurn(client, "mine")
    assert turn.take()
    client.delete(TURN_KEY)
    if isinstance(hostile, dict):
        client.hset(TURN_KEY, mapping=hostile)
    else:
        client.set(TURN_KEY, hostile)
    assert not turn.take()
    seconds[0] += STANDSTILL_SECONDS
    assert turn.take()
    assert client.get(TURN_KEY) == b"mine 2"


def test_data_that_valkey_has_lost_let_one_begin_again_at_once(client: redis.Redis, seconds: list[float]) -> None:
    turns = [SchedulerTurn(client, name) for name in ("one", "two")]
    assert [turn.take() for turn in turns] == [True, False]
    client.delete(TURN_KEY)
    taken = [turn.take() for _ in range(2) for turn in turns]
    assert taken.count(True) == 1


def test_without_a_worker_messages_do_not_pile_up(
    client: redis.Redis, application: Celery, seconds: list[float]
) -> None:
    run(MonotonicScheduler(application), seconds, 1000.0)
    assert client.llen(QUEUE) == MAX_QUEUED


def test_an_unreachable_valkey_is_asked_again(
    client: redis.Redis, application: Celery, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "redis://127.0.0.1:1/0")
    scheduler = MonotonicScheduler(application)
    assert scheduler.tick() == 1.0
