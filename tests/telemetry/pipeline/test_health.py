"""The page of the pipeline and the API beside it: what is wrong, worst first."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, User
from fabric.inventory.models import Chassis
from telemetry.alerts.models import Delivery, Route
from telemetry.instrumentation.metrics import PROBLEMS, MetricKey
from telemetry.instrumentation.publisher import COUNTS_KEY
from telemetry.pipeline.rules import (
    CounterValue,
    HealthLevel,
    PipelineSnapshot,
    PolledChassis,
    PublishingProcess,
    StorageSizes,
    Undelivered,
    chassis_health,
    findings,
)
from telemetry.pipeline.selectors import pipeline_status

pytestmark = pytest.mark.django_db(databases="__all__")
NOW = datetime.fromtimestamp(1_800_000_000, UTC)
ROOMY = StorageSizes(database=1, readings=1, disk_free=500 * 2**30, disk=1000 * 2**30)


@pytest.fixture
def client() -> Client:
    """An administrator's."""
    client = Client()
    client.force_login(User.objects.create(username="ada", role=Role.ADMINISTRATOR, is_superuser=True))
    return client


def _ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def process(name: str = "worker@node:1", *, silent: float = 1.0, **gauges: float) -> PublishingProcess:
    return PublishingProcess(name, name.partition("@")[0], _ago(60), _ago(silent), gauges)


SCHEDULER = process("scheduler@node:9")


def pipeline(
    *processes: PublishingProcess, counts: Mapping[MetricKey, int] | None = None, queue: int = 0, redis_most: int = 0
) -> PipelineSnapshot:
    return PipelineSnapshot(
        at=NOW, since=_ago(3600), seconds=600.0, processes=processes or (process(), SCHEDULER),
        counts={name: CounterValue(n, n, NOW) for name, n in (counts or {}).items()},
        gauges={1: {"poll_lag_seconds": 0.2, "poll_period_seconds": 1.0}}, polled_by={1: "worker@node:1"},
        queue=queue, redis_bytes=95, redis_max_bytes=redis_most,
    )  # fmt: skip


def found(
    of: PipelineSnapshot, *, sizes: StorageSizes = ROOMY, waiting: tuple[Undelivered, ...] = (), error: str = ""
) -> list[str]:
    chassis = chassis_health(of, [PolledChassis(1, "falcon-1", error)])
    return [f"{one.level.name} {one.words}" for one in findings(of, sizes, chassis, waiting)]


def test_where_nothing_is_wrong_nothing_is_found() -> None:
    assert found(pipeline(counts={("polls_done", 1): 600})) == []


def test_a_site_without_a_worker_is_the_worst() -> None:
    assert found(pipeline(process("web@node:2"), SCHEDULER, counts={("frames_skipped", None): 4})) == [
        "BAD No worker is running",
        "NOTE Frames skipped by slow browsers: 4",
    ]
    assert "BAD No worker is running" in found(pipeline(process(silent=11.0)))


def test_a_site_without_a_scheduler_is_told_so() -> None:
    assert found(pipeline(process())) == ["BAD No scheduler is running"]


def test_a_process_whose_loop_hangs_is_silent_although_it_still_publishes() -> None:
    of = pipeline(process(silent_seconds=40.0), process("worker@node:2"), SCHEDULER)
    assert found(of) == ["WARNING Worker node:1 has sent no heartbeat for 41 s"]
    assert of.is_heard("worker")
    assert "BAD No worker is running" in found(pipeline(process(silent_seconds=40.0), SCHEDULER))


def test_an_agent_is_silent_when_reports_are_missing() -> None:
    agent = process("agent@gpu-host:0", silent=30.0)
    assert found(pipeline(process(), SCHEDULER, agent)) == []
    agent = process("agent@gpu-host:0", silent=40.0)
    assert found(pipeline(process(), SCHEDULER, agent)) == ["WARNING Agent gpu-host has sent no heartbeat for 40 s"]


@pytest.mark.parametrize(
    ("counts", "on_time", "level"),
    [
        ({}, None, HealthLevel.GOOD),
        ({"polls_done": 600}, 1.0, HealthLevel.GOOD),
        ({"polls_done": 600, "polls_late": 3}, 0.995, HealthLevel.GOOD),
        ({"polls_done": 590, "polls_skipped": 10}, 590 / 600, HealthLevel.WARNING),
        ({"polls_done": 600, "polls_late": 60}, 0.9, HealthLevel.WARNING),
        ({"polls_failed": 20}, 0.0, HealthLevel.WARNING),
    ],
)
def test_a_chassis_is_judged_by_the_share_of_its_beats_that_were_kept(
    counts: dict[str, int], on_time: float | None, level: HealthLevel
) -> None:
    of = pipeline(counts={(name, 1): n for name, n in counts.items()})
    (row,) = chassis_health(of, [PolledChassis(1, "falcon-1")])
    assert row.level == level
    assert row.on_time == (None if on_time is None else pytest.approx(on_time))


def test_chassis_stand_worst_first() -> None:
    of = pipeline(counts={("polls_done", 1): 90, ("polls_late", 1): 9, ("polls_done", 4): 90, ("polls_late", 4): 80})
    of = PipelineSnapshot(**{**of.__dict__, "polled_by": {1: "w", 3: "w", 4: "w", 5: "w"}})
    rows = [
        PolledChassis(1, "b"),
        PolledChassis(2, "a"),
        PolledChassis(3, "z"),
        PolledChassis(4, "c"),
        PolledChassis(5, "y", "It is away."),
    ]
    assert [row.name for row in chassis_health(of, rows)] == ["a", "y", "c", "b", "z"]


@pytest.mark.parametrize(
    ("of", "sizes", "waiting", "words"),
    [
        (pipeline(process(loop_lag_seconds=0.4), SCHEDULER), ROOMY, (), "WARNING Worker node:1 is 0.40 s behind"),
        (
            pipeline(process(stretched_period_seconds=4.0), SCHEDULER), ROOMY, (),
            "WARNING Worker node:1 reads each chassis every 4 s",
        ),
        (pipeline(process(loop_lag_seconds=2.0), SCHEDULER), ROOMY, (), "BAD Worker node:1 is 2.00 s behind"),
        (pipeline(queue=500), ROOMY, (), "WARNING 500 tasks wait"),
        (pipeline(redis_most=100), ROOMY, (), "BAD Redis is nearly full"),
        (pipeline(), StorageSizes(1, 1, 2**30, 2**40), (), "WARNING The disk has 1.0 GB left"),
        (pipeline(), replace(ROOMY, damage="it is empty"), (), "BAD The database is damaged"),
        (pipeline(), replace(ROOMY, set_aside="readings"), (), "WARNING Damaged readings were set aside"),
        (
            pipeline(process(), SCHEDULER, process("web@node:2", silent=12.0)), ROOMY, (),
            "WARNING Web node:2 has sent no heartbeat for 12 s",
        ),
        (
            pipeline(), ROOMY, (Undelivered("notifications", 3, _ago(3600)),),
            "WARNING 3 notifications wait, the oldest for 60 min",
        ),
        (pipeline(counts={("readings_dropped_store_full", 1): 9}), ROOMY, (), "WARNING Readings dropped: 9"),
        (pipeline(counts={("readings_not_a_number", 1): 9}), ROOMY, (), "NOTE Readings that are not a number: 9"),
    ],
)  # fmt: skip
def test_each_trouble_is_found(
    of: PipelineSnapshot, sizes: StorageSizes, waiting: tuple[Undelivered, ...], words: str
) -> None:
    assert found(of, sizes=sizes, waiting=waiting) == [words]


def test_a_chassis_that_does_not_answer_is_told_of_once() -> None:
    said = found(pipeline(counts={("polls_failed", 1): 9}), error="It is away.")
    assert said == ["BAD falcon-1 cannot be read"]


def test_what_waits_for_a_moment_is_no_trouble() -> None:
    assert found(pipeline(), waiting=(Undelivered("exports", 2, _ago(30)), Undelivered("notifications", 0, None))) == []


def test_everything_that_is_no_good_says_what_it_means_and_what_to_do() -> None:
    for name, meaning in PROBLEMS.items():
        for sentence in (meaning.means, meaning.do):
            assert sentence[0].isupper(), name
            assert sentence.endswith("."), name
        assert len(meaning.words) < 45


def counted(client: Any, chassis: Chassis | None, name: str, n: int) -> None:
    field = name if chassis is None else f"{name}/{chassis.pk}"
    client.hincrby(COUNTS_KEY, field, n)
    client.hincrby(f"{COUNTS_KEY}:{int(time.time() // 60)}", field, n)
    client.hset("pipeline:seen", field, f"{time.time():.1f}")


def test_the_page_says_what_was_lost_and_of_which_chassis(client: Client, empty_redis: Any) -> None:
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", last_error="It is <away>.")
    counted(empty_redis, chassis, "readings_not_a_number", 1234)
    counted(empty_redis, chassis, "polls_done", 5)
    counted(empty_redis, None, "frames_skipped", 2)
    empty_redis.hset(COUNTS_KEY, "readings_not_a_number/99999", 5)  # of a chassis that was removed
    text = client.get(reverse("pipeline:pipeline")).content.decode()
    assert "Data is lost, or a part fails" in text
    assert "It is &lt;away&gt;." in text
    assert "1,234" in text
    assert PROBLEMS["readings_not_a_number"].means in text
    assert "No worker is running" in text
    answer = client.get(reverse("api:pipeline")).json()
    assert answer["level"] == "bad"
    assert answer["findings"][0]["words"] == "No worker is running"
    assert [(one["name"], one["chassis_id"], one["recent"]) for one in answer["counts"]] == [
        ("readings_not_a_number", chassis.pk, 1234),
        ("frames_skipped", None, 2),
    ]
    assert answer["chassis"][0]["sentence"] == "It is <away>."
    rows = list(csv.DictReader(io.StringIO(client.get(reverse("pipeline:counts_csv")).getvalue().decode())))
    assert [(row["chassis"], row["total"]) for row in rows] == [("falcon-1", "1234"), ("", "2")]


def test_a_site_without_chassis_says_what_to_do(client: Client) -> None:
    text = client.get(reverse("pipeline:pipeline")).content.decode()
    assert "No chassis is polled." in text
    assert reverse("fabric:chassis_add") in text
    assert "No input was rejected, late or lost since counting started." in text


def test_chassis_are_found_sorted_and_paged_by_the_url_and_the_csv_has_all_that_is_found(client: Client) -> None:
    Chassis.objects.bulk_create(
        Chassis(name=f"{'east' if number % 2 else 'west'}-{number:03}", url=f"https://127.0.0.1:{number}")
        for number in range(130)
    )
    page = client.get(reverse("pipeline:pipeline"), {"q": "EAST", "sort": "name", "page": "3"}).content.decode()
    assert "65 chassis found." in page
    assert "east-101" in page
    assert "east-099" not in page
    assert "west-" not in page
    for query in ({"sort": "nonsense"}, {"page": "zero"}, {"page": "999"}, {"q": "=" * 1000}):
        assert client.get(reverse("pipeline:pipeline"), query).status_code == 200
    text = client.get(reverse("pipeline:chassis_csv"), {"q": "west", "sort": "name"}).getvalue().decode()
    assert len(text.splitlines()) == 66


def test_what_two_hundred_chassis_lose_is_paged(client: Client, empty_redis: Any) -> None:
    rows = Chassis.objects.bulk_create(
        Chassis(name=f"big-{number}", url=f"https://127.0.0.1:{number}", last_error="It does not answer.")
        for number in range(200)
    )
    for row in rows:
        counted(empty_redis, row, "readings_not_a_number", 5)
        counted(empty_redis, row, "polls_late", 5)
    answer = client.get(reverse("pipeline:pipeline"), {"counts": "2"})
    assert len(answer.content) < 150_000
    assert (len(answer.context["page"]), len(answer.context["counts"])) == (25, 10)
    assert "?counts=3" in answer.content.decode()


def test_without_redis_the_page_says_so(client: Client) -> None:
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    try:
        answer = client.get(reverse("pipeline:pipeline"))
        assert answer.status_code == 503
        assert "Redis does not answer" in answer.content.decode()
        assert client.get(reverse("api:pipeline")).json()["code"] == "unavailable"
    finally:
        settings.REDIS_URL = there


def test_what_is_not_delivered_is_told_with_its_age(client: Client) -> None:
    route = Route.objects.create(name="hook", kind="webhook", address="https://127.0.0.1:1")
    made = timezone.now() - timedelta(hours=1)
    Delivery.objects.create(number=1, route=route, summary="x", content={}, made_at=made)
    answer = client.get(reverse("api:pipeline")).json()
    (waiting,) = [one for one in answer["waiting"] if one["what"] == "notifications"]
    assert waiting["count"] == 1
    assert waiting["oldest_at"][:16] == made.isoformat()[:16]
    assert any("1 notifications wait" in one["words"] for one in answer["findings"])


def test_the_health_is_for_administrators_alone() -> None:
    from core.errors import Forbidden

    with pytest.raises(Forbidden):
        pipeline_status(User.objects.create(username="bob", role=Role.VIEWER))
