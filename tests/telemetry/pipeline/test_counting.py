"""What a process counts, and what becomes of it in Redis."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings

from telemetry.instrumentation import metrics
from telemetry.instrumentation.metrics import LAG_BOUNDS, PROBLEMS
from telemetry.instrumentation.publisher import LoopLagProbe, MetricsPublisher
from telemetry.pipeline.selectors import pipeline_snapshot
from telemetry.polling.chassis_poller import PollStatistics
from tests.processes import ROOT
from tests.waiting import eventually_in_loop

CHASSIS = 7
# Counters that are no problems.
HEALTHY_COUNTERS = {
    "polls_done", "readings_taken", "readings_stored", "frames_sent", "events_backfilled", "poll_lag_milliseconds",
}  # fmt: skip


@pytest.fixture
def counted() -> Iterator[dict[str, int]]:
    """What is counted of chassis 7 and of the site from here on."""
    before = metrics.counter_values()

    class Since(dict[str, int]):
        def __missing__(self, name: str) -> int:
            now = metrics.counter_values()
            return sum(now.get(key, 0) - before.get(key, 0) for key in ((name, CHASSIS), (name, None)))

    yield Since()
    metrics.drop_gauges(CHASSIS)


def test_a_poll_in_time_is_done_and_one_after_half_of_its_period_is_late_too(counted: dict[str, int]) -> None:
    beats = PollStatistics(CHASSIS)
    beats.plan(1.0)
    beats.begin(1000.4)  # the first comes at once
    beats.end(1000.48, 300)
    beats.begin(1001.0)
    beats.end(1001.04, 300)
    beats.begin(1001.999)  # a timer that ends a moment early
    beats.end(1002.7, 300)
    assert (counted["polls_done"], counted["polls_late"], counted["polls_skipped"]) == (3, 1, 0)
    assert counted["readings_taken"] == 900
    assert metrics.gauge_values()["poll_lag_seconds", CHASSIS] == pytest.approx(0.7)
    assert [counted[f"poll_lag_le_{bound}"] for bound in (0.05, 0.1, 1.0, "inf")] == [1, 1, 1, 0]


def test_beats_that_pass_while_one_is_waited_for_are_skipped_and_those_of_a_failure_are_not(
    counted: dict[str, int],
) -> None:
    beats = PollStatistics(CHASSIS)
    beats.plan(1.0)
    beats.begin(1000.0)
    beats.end(1003.5, 1)
    beats.begin(1004.0)  # 1001, 1002 and 1003 are over
    beats.end(1004.1, 1)
    beats.failed(1005.2)
    beats.failed(1010.5)  # 1006 to 1010: it is not asked at each beat any more
    beats.plan(1.0)
    beats.begin(1012.2)  # and 1011
    beats.end(1012.3, 1)
    assert (counted["polls_done"], counted["polls_skipped"], counted["polls_failed"]) == (3, 3, 7)
    assert counted["polls_late"] == 1


def test_each_lag_is_in_one_place(counted: dict[str, int]) -> None:
    beats = PollStatistics(CHASSIS)
    beats.plan(100.0)
    for number, lag in enumerate([0.0, *(bound - 0.001 for bound in LAG_BOUNDS), 11.0, 99.0], 1):
        beats.begin(number * 100.0)
        beats.end(number * 100.0 + lag, 0)
    assert counted["poll_lag_le_0.05"] == 2
    assert counted["poll_lag_le_inf"] == 2
    assert sum(counted[f"poll_lag_le_{bound}"] for bound in (*LAG_BOUNDS, "inf")) == len(LAG_BOUNDS) + 3


def test_a_chassis_that_is_followed_no_longer_leaves_no_gauge_behind() -> None:
    beats = PollStatistics(CHASSIS)
    beats.plan(2.0)
    assert ("poll_period_seconds", CHASSIS) in metrics.gauge_values()
    beats.close()
    assert not [name for name in metrics.gauge_values() if name[1] == CHASSIS]


def test_an_event_loop_that_does_something_else_is_found_out() -> None:
    async def work() -> float:
        pulse = LoopLagProbe(asyncio.get_running_loop())
        ended = threading.Event()

        def ask() -> None:
            while not ended.wait(0.02):
                pulse.schedule()

        thread = threading.Thread(target=ask)
        thread.start()

        async def lag() -> float:
            await asyncio.sleep(0.2)
            return pulse.take_worst()

        await eventually_in_loop(lag, lambda seconds: seconds < 0.25)
        time.sleep(0.5)  # noqa: ASYNC251 - this is what is to be found
        await asyncio.sleep(0.1)
        busy = pulse.take_worst()
        ended.set()
        await asyncio.to_thread(thread.join)
        return busy

    assert asyncio.run(work()) > 0.25


def test_a_loop_that_is_closed_is_watched_no_longer() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert not LoopLagProbe(loop).schedule()


def test_counts_of_two_processes_are_summed_and_outlive_them() -> None:
    first, second = MetricsPublisher("worker"), MetricsPublisher("web")
    first.publish()
    second.publish()
    before = pipeline_snapshot().count("publish_failures", CHASSIS).total
    metrics.increment("publish_failures", 3, chassis=CHASSIS)
    first.publish()
    second.publish()  # a process of its own would have counted them itself: here both tell of one tally
    found = pipeline_snapshot()
    assert {one.kind for one in found.processes} == {"worker", "web", "broker"}
    assert found.count("publish_failures", CHASSIS).total == before + 6
    assert found.count("publish_failures", CHASSIS).recent >= 6
    seen_at = found.count("publish_failures", CHASSIS).seen_at
    assert seen_at is not None
    assert time.time() - seen_at.timestamp() < 10
    second.publish()  # nothing is told twice
    assert pipeline_snapshot().count("publish_failures", CHASSIS).total == before + 6
    first.end()
    second.end()
    after = pipeline_snapshot()
    assert [one.kind for one in after.processes] == ["broker"]
    assert after.count("publish_failures", CHASSIS).total == before + 6


def test_what_could_not_be_told_is_told_later(empty_redis: Any) -> None:
    publisher = MetricsPublisher("worker")
    publisher.publish()
    there = publisher._redis
    publisher._redis = redis.Redis.from_url("redis://127.0.0.1:1/0")
    metrics.increment("tap_failures", 2, chassis=CHASSIS)
    publisher.publish()  # and raises nothing
    publisher._redis = there
    before = int(empty_redis.hget("pipeline:counts", f"tap_failures/{CHASSIS}") or 0)
    publisher.publish()
    assert int(empty_redis.hget("pipeline:counts", f"tap_failures/{CHASSIS}") or 0) == before + 2
    publisher.end()


def test_a_process_that_is_silent_is_gone_after_a_while_and_leaves_nothing_behind(empty_redis: Any) -> None:
    publisher = MetricsPublisher("worker")
    publisher.publish()
    assert 0 < empty_redis.ttl(f"pipeline:{publisher.process}") <= 15
    empty_redis.delete(f"pipeline:{publisher.process}")  # as Redis does when it runs out
    assert [one.kind for one in pipeline_snapshot().processes] == ["broker"]


def test_a_gauge_that_fails_ends_the_telling_of_no_other() -> None:
    def broken() -> float:
        raise ValueError("broken")

    metrics.register_gauge("broken", broken)
    try:
        assert "broken" not in {name for name, _ in metrics.gauge_values()}
    finally:
        metrics._gauge_sources.pop("broken")


def test_the_length_of_celerys_queue_and_redis_memory_are_told(empty_redis: Any) -> None:
    # Tests before this one may have handed over what no worker took.
    empty_redis.delete(settings.CELERY_TASK_DEFAULT_QUEUE)
    empty_redis.rpush(settings.CELERY_TASK_DEFAULT_QUEUE, b"{}", b"{}")
    try:
        found = pipeline_snapshot()
        assert found.queue == 2
        assert found.redis_bytes > 100_000
    finally:
        empty_redis.delete(settings.CELERY_TASK_DEFAULT_QUEUE)


def test_everything_that_rooms_count_has_a_meaning_or_is_no_trouble() -> None:
    names = set()
    for path in (ROOT / "telemetry").rglob("*.py"):
        names |= set(re.findall(r'(?:metrics\.)?\bincrement\(\s*"([a-z_]+)"', path.read_text()))
    assert len(names) > 5
    assert names - set(PROBLEMS) - HEALTHY_COUNTERS == set()
