"""What is old goes, what is not yet rolled up stays, and nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import redis
from django.conf import settings as site
from django.core.cache import cache
from django.db import connections

from fabric.inventory.models import Chassis
from telemetry.instrumentation import metrics
from telemetry.store import selectors, services, tasks
from telemetry.store.models import Catalogue, Chunk, Due, Gap
from telemetry.store.rules import Tier
from tests.telemetry.store.feeding import KEYS, TEMPERATURE, Feed, hours_ago

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]
NewFeed = Callable[..., Feed]
DAY = 86400


@pytest.fixture
def chassis() -> Chassis:
    """A chassis that the site has."""
    row = Chassis(name="kept", url="https://127.0.0.1:1", username="administrator", enabled=False)
    row.set_password("Falcon-kept-1")
    row.save()
    return row


def of_tiers(chassis: int) -> list[int]:
    """Return how many chunks there are of each tier."""
    return [Chunk.objects.filter(chassis=chassis, tier=tier).count() for tier in Tier]


def clean() -> int:
    return services.delete_expired(pause=lambda: None)


def test_each_tier_goes_in_its_time(database: str, feed: NewFeed, chassis: Chassis, settings: Any) -> None:
    some = feed(since=hours_ago(20))
    some.chassis = chassis.pk
    some.begin()
    some.run(range(0, 7200, 4))
    some.end()
    some.roll()
    assert clean() == 0
    for place, tier in enumerate(Tier):
        before = of_tiers(chassis.pk)
        settings.KEEP_SECONDS = (*(3600 for _ in range(place + 1)), *(731 * DAY for _ in range(3 - place)))
        assert clean() == before[tier] > 0
        assert of_tiers(chassis.pk) == [*(0 for _ in range(place + 1)), *before[place + 1 :]]
        if tier is not Tier.QUARTER:
            found = selectors.read_series(chassis.pk, KEYS, since=some.since, until=some.since + 7200, points=8)
            assert found.count[0].sum() == 1800
    assert clean() == 0


def test_raw_readings_stay_until_they_are_rolled_up_but_not_for_ever(
    feed: NewFeed, chassis: Chassis, settings: Any
) -> None:
    some = feed(since=hours_ago(20))
    some.chassis = chassis.pk
    some.begin()
    some.run(range(0, 3600, 4))
    some.end()
    settings.KEEP_SECONDS = (15 * 3600, 7 * DAY, 92 * DAY, 731 * DAY)
    assert clean() == 0
    settings.KEEP_SECONDS = (6 * 3600, 7 * DAY, 92 * DAY, 731 * DAY)
    assert clean() > 0
    assert of_tiers(chassis.pk) == [0, 0, 0, 0]


def test_what_was_rolled_up_stays_where_there_is_nothing_left_to_make_it_anew_from(
    database: str, feed: NewFeed, chassis: Chassis
) -> None:
    some = feed(since=hours_ago(5))
    some.run(range(1800))
    some.end()
    some.roll()
    Chunk.objects.filter(chassis=some.chassis, tier=Tier.RAW).delete()
    Due.objects.create(chassis=some.chassis, tier=Tier.TEN_SECONDS, since=some.since, until=some.since + 600)
    some.roll()
    assert not Due.objects.filter(chassis=some.chassis).exists()
    found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 1800, points=180)
    assert found.count.sum() == 1800


def test_the_readings_of_a_chassis_that_was_removed_go_and_no_others(
    database: str, feed: NewFeed, chassis: Chassis
) -> None:
    gone, kept = feed(), feed()
    kept.chassis = chassis.pk
    kept.begin()
    for some in (gone, kept):
        some.run(range(200))
        some.end()
        some.roll()
    before = of_tiers(chassis.pk)
    clean()
    for model in (Chunk, Due, Gap, Catalogue):
        assert not model.objects.filter(chassis=gone.chassis).exists()
    assert of_tiers(chassis.pk) == before
    assert Catalogue.objects.filter(chassis=chassis.pk).count() == 2
    # What a worker writes of it after that goes as well.
    gone.begin()
    gone.run(range(300, 400))
    gone.end()
    assert Chunk.objects.filter(chassis=gone.chassis).exists()
    clean()
    assert not Chunk.objects.filter(chassis=gone.chassis).exists()


def test_what_was_stored_while_our_clock_was_wrong_goes(feed: NewFeed, chassis: Chassis) -> None:
    some = feed(since=hours_ago(-30 * 24))
    some.chassis = chassis.pk
    some.begin()
    some.run(range(130))
    some.end()
    right = Feed(chassis.pk, some.writer, since=hours_ago(1))
    right.run(range(100))
    right.end()
    # How many there are depends on the second of the minute at which this chassis' chunks are cut.
    ahead = Chunk.objects.filter(chassis=chassis.pk, since__gt=time.time() + DAY).count()
    assert ahead >= 3
    before = metrics.counter_values().get(("chunks_from_the_future", None), 0)
    clean()
    assert metrics.counter_values()["chunks_from_the_future", None] - before == ahead
    found = selectors.read_series(chassis.pk, [TEMPERATURE], since=right.since, until=right.since + 100, points=100)
    assert found.count.sum() == 100


def test_catalogues_that_no_chunk_has_go_but_for_the_newest(feed: NewFeed, chassis: Chassis) -> None:
    for label in ("old", "older", "newest"):
        Catalogue.objects.create(chassis=chassis.pk, digest=label, data=Catalogue.packed([]))
    clean()
    assert [row.digest for row in Catalogue.objects.all()] == ["newest"]


def test_a_writer_goes_on_while_a_lot_is_removed(feed: NewFeed, chassis: Chassis, settings: Any) -> None:
    """Between two portions it gets its turn."""
    old = feed(since=hours_ago(10))
    old.chassis = chassis.pk
    old.begin()
    for hour in range(0, 6 * 3600, 3600):
        old.run(range(hour, hour + 3600, 10))
    old.end()
    old.roll()
    settings.KEEP_SECONDS = (3 * 3600, 731 * DAY, 731 * DAY, 731 * DAY)
    new = feed(since=hours_ago(1))
    pauses: list[int] = []

    def write() -> None:
        begin = len(pauses) * 70
        new.run(range(begin, begin + 70))
        new.flush()
        pauses.append(Chunk.objects.filter(chassis=new.chassis).count())

    gone = services._delete_in_batches(
        Chunk.objects.filter(chassis=chassis.pk, tier=Tier.RAW), write, time.monotonic() + 60
    )
    assert gone > services.DELETE_BATCH
    assert pauses == sorted(set(pauses))
    assert len(pauses) >= 2


def test_the_size_of_the_store_is_told(database: str, feed: NewFeed) -> None:
    cache.delete(services.SIZE_KEY)
    some = feed()
    some.run(range(1800))
    some.end()
    some.roll()
    size = services.store_size()
    assert [tier.tier for tier in size.tiers] == ["raw", "10 s", "1 min", "15 min"]
    assert [tier.rows for tier in size.tiers] == [1800, 180, 30, 2]
    assert size.tiers[0].newest == some.since + 1799
    assert size.on_disk > sum(tier.bytes for tier in size.tiers) > 1000
    # It is kept for a while: pages ask often.
    Chunk.objects.all().delete()
    assert services.store_size() == size
    cache.delete(services.SIZE_KEY)


def test_rolling_is_done_by_one_at_a_time(feed: NewFeed) -> None:
    some = feed(since=hours_ago(3))
    some.run(range(3600))
    some.end()
    with redis.Redis.from_url(site.REDIS_URL) as client:
        client.set("store:rolling", "another", ex=30)
        tasks.roll_up()
        assert of_tiers(some.chassis)[1:] == [0, 0, 0]
        client.delete("store:rolling")
        tasks.roll_up()
        assert of_tiers(some.chassis)[1:3] == [4, 1]
        assert not client.exists("store:rolling")
        client.set("store:cleaning", "another", ex=30)
        tasks.clean()
        assert Chunk.objects.filter(chassis=some.chassis).exists()
        client.delete("store:cleaning")
        tasks.clean()
        assert not Chunk.objects.filter(chassis=some.chassis).exists()


def test_rollups_of_a_thousand_chassis_are_spread_over_time() -> None:
    now = 1_800_000_000.0
    at = [
        {services.due_until(chassis, Tier.TEN_SECONDS, now=now + second) for chassis in range(1000)}
        for second in range(0, 900, 10)
    ]
    ripe = [
        sum(services.due_until(chassis, Tier.TEN_SECONDS, now=now + second) == max(at[-1]) for chassis in range(1000))
        for second in range(0, 900, 10)
    ]
    steps = [later - earlier for earlier, later in pairwise(ripe)]
    assert ripe[0] == 0
    assert ripe[-1] == 1000
    assert max(steps) <= 60


def test_the_schedule_names_tasks_that_workers_know() -> None:
    from falconweb.celery import application

    application.loader.import_default_modules()  # as a worker does
    names = {entry["task"] for entry in site.CELERY_BEAT_SCHEDULE.values()}
    assert {"telemetry.store.roll_up", "telemetry.store.clean"} <= names <= set(application.tasks)


def test_a_database_that_is_away_breaks_no_task_off_loudly(feed: NewFeed, caplog: pytest.LogCaptureFixture) -> None:
    settings = connections.settings["readings"]
    name = settings["NAME"]
    connections["readings"].close()
    connections["readings"].settings_dict["NAME"] = "/nowhere/readings.sqlite3"
    try:
        tasks.roll_up()
        tasks.clean()
    finally:
        connections["readings"].settings_dict["NAME"] = name
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "rolling of stored readings was aborted", "cleaning of stored readings was aborted",
    ]  # fmt: skip
