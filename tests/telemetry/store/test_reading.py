"""What is answered: resolution, the newest end, damage, and what a key is."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import redis
import redis.asyncio
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Invalid
from fabric.bmc.series import ChassisReading
from telemetry.live.frames import Frame, set_catalogue
from telemetry.store import live_tail, selectors
from telemetry.store.chunks import clear_caches
from telemetry.store.models import Chunk, Due
from telemetry.store.rules import ROLLUPS, TIER_SHAPES, Tier, bucket_grid, window_start
from tests.telemetry.live.publishing import put_frame
from tests.telemetry.store.feeding import (
    ERROR_RATE,
    ERRORS,
    HOUR,
    KEYS,
    LOAD,
    POWER,
    RECEIVED,
    SERIES,
    TEMPERATURE,
    Feed,
    hours_ago,
    same,
)  # fmt: skip
from tests.telemetry.store.feeding import reading as made

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]
NewFeed = Callable[..., Feed]
DAY = 86400.0
KEEP = (DAY, 7 * DAY, 92 * DAY, 731 * DAY)


@given(
    st.floats(-1e10, 1e10), st.floats(0.001, 1e9), st.integers(1, 5000), st.floats(0, 1e10),
)  # fmt: skip
def test_any_range_has_buckets_that_cover_it_and_are_no_finer_than_what_is_kept(
    since: float, length: float, points: int, now: float
) -> None:
    grid = bucket_grid(since, since + length, points, now=now, keep=[int(one) for one in KEEP])
    begin, end = grid.span
    assert 1 <= grid.rows <= points
    assert begin <= since * 1000
    assert end >= math.floor((since + length) * 1000)
    assert end - begin <= 4 * max(length * 1000, grid.step)
    finest = next((tier for tier in Tier if since >= now - KEEP[tier]), ROLLUPS[-1])
    assert grid.step % 1000 == 0
    assert grid.tier >= finest


@pytest.mark.parametrize(
    ("hours", "points", "step"), [(1 / 6, 601, 1), (1, 500, 10), (24, 500, 180), (24, 24, 7200), (30 * 24, 500, 7200)]
)
def test_steps_are_rounded(hours: float, points: int, step: float) -> None:
    now = 1_800_000_100.5
    assert bucket_grid(now - hours * HOUR, now, points, now=now, keep=[int(one) for one in KEEP]).step == step * 1000


def test_each_resolution_tells_the_same_before_and_after_it_is_rolled_up(database: str, feed: NewFeed) -> None:
    some = feed(since=hours_ago(12))
    span = 10_800
    some.run(range(0, span, 5))
    some.end()
    asked = [(10.0, 1080), (60.0, 180), (180.0, 60), (900.0, 12), (3600.0, 3)]
    before = [
        selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + span, points=n) for _, n in asked
    ]
    assert {one.tier for one in Chunk.objects.filter(chassis=some.chassis)} == {Tier.RAW}
    # What is to be rolled up lies in one window each.
    for due in Due.objects.filter(chassis=some.chassis):
        first, last = round(due.since * 1000), round(due.until * 1000) - 1
        assert window_start(ROLLUPS[0], first) == window_start(ROLLUPS[0], last)
    some.roll()
    assert {one.tier for one in Chunk.objects.filter(chassis=some.chassis)} == set(Tier)
    for (step, points), old in zip(asked, before, strict=True):
        new = selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + span, points=points)
        assert (new.step, old.step) == (step, step)
        assert (new.at == old.at).all()
        assert (new.count == old.count).all()
        assert new.count.sum() > 12_000
        assert same(new.mean, old.mean)
        assert same(new.low, old.low)
        assert same(new.high, old.high)
        asked_for = {"since": some.since, "until": some.since + span}
        bare = selectors.read_series(some.chassis, KEYS, **asked_for, points=points, band=False)
        for one, other in ((bare.mean, new.mean), (bare.low, new.mean), (bare.high, new.mean), (bare.count, new.count)):
            assert np.array_equal(one, other, equal_nan=True)


def test_rates_of_errors_and_bytes_start_anew_after_a_reset(feed: NewFeed) -> None:
    some = feed()
    for number in range(40):
        since_reset = number % 20
        some.take(ChassisReading(at=some.since + number, values=(1.0, 50.0 * since_reset, 2.0 * since_reset, 1.0, 1.0)))
    some.end()
    for _ in range(2):
        found = selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + 40, points=4)
        by_key = dict(zip([entry["key"] for entry in found.series], range(len(KEYS)), strict=True))
        assert found.mean[by_key[RECEIVED]].tolist() == [50.0] * 4
        assert found.mean[by_key[ERROR_RATE]].tolist() == [2.0] * 4
        assert found.count[by_key[ERROR_RATE]].tolist() == [9, 10, 9, 10]
        assert found.high[by_key[ERRORS]].tolist() == [18.0, 38.0, 18.0, 38.0]
        assert found.series[by_key[ERROR_RATE]]["unit"] == "1/s"
        some.roll()


def test_a_late_reading_makes_its_buckets_anew(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(1800))
    some.end()
    some.roll()
    late = Feed(some.chassis, some.writer, since=some.since)
    late.take(ChassisReading(at=some.since + 905.5, values=(99.0, 1.0, 0.0, 5.0, 0.5)))
    late.end()
    for _ in range(2):
        found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 1800, points=30)
        assert found.count[0].tolist() == [60] * 15 + [61] + [60] * 14
        assert found.high[0][15] == 99.0
        late.roll()


def test_a_wide_bucket_whose_end_is_not_rolled_up_has_what_is_only_rolled_up_too(database: str, feed: NewFeed) -> None:
    some = feed(since=hours_ago(12))
    some.run(range(600))
    some.flush()
    some.roll()
    Chunk.objects.filter(chassis=some.chassis, tier=Tier.RAW).delete()  # as the clean-up does in its time
    some.run(range(7200, 7260))
    some.flush()
    for _ in range(2):
        found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 7260, points=1)
        assert found.count.tolist() == [[660]]
        some.roll()


def test_buckets_of_a_window_that_is_begun_are_whole(feed: NewFeed) -> None:
    some = feed()
    for end in range(100, 4000, 700):
        some.run(range(end - 700 if end > 700 else 0, end))
        some.flush()
        some.roll()
        found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + end, points=500)
        assert found.count.sum() == end


async def _publish(some: Feed, rows: range) -> None:
    bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    try:
        revision = await set_catalogue(bus, some.chassis, some.catalogue.entries)
        for number in rows:
            sample = some.catalogue.sample(made(number, some.since + number))
            await put_frame(bus, Frame(revision, some.chassis, number, sample.at, sample.values))
    finally:
        await bus.aclose()


def test_the_newest_end_comes_from_redis_where_the_store_ends(database: str, feed: NewFeed) -> None:
    some = feed(since=math.floor(time.time()) - 150)
    some.run(range(100))
    some.flush()
    asyncio.run(_publish(some, range(150)))
    for points in (150, 15):
        found = selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + 149.9, points=points)
        # What Redis has of the time before the store's end is not counted twice.
        assert found.count[KEYS.index(TEMPERATURE)].sum() == 150
        assert found.count[KEYS.index(ERROR_RATE)].sum() in {148, 149}
        if found.step == 1.0:
            wanted = [made(number, 0.0).values for number in range(100, 150)]
            assert same(found.mean[KEYS.index(TEMPERATURE)][100:150], [values[0] for values in wanted])
            assert same(found.mean[KEYS.index(ERRORS)][100:150], [values[2] for values in wanted])
        some.roll()


def test_totals_of_counters_are_exact_however_large_they_are(database: str, feed: NewFeed) -> None:
    total = 9_007_199_254_000.0  # far more than a float of 32 bits tells apart
    some = feed()
    for number in range(30):
        values = (40.0, 1e6 * number, total + number, 250.25, 0.1)
        some.take(ChassisReading(at=some.since + number, values=values))
    some.end()
    for _ in range(2):
        fine = selectors.read_series(some.chassis, [ERRORS], since=some.since, until=some.since + 30, points=30)
        assert fine.mean[0].tolist() == [total + number for number in range(30)]
        wide = selectors.read_series(some.chassis, [ERRORS], since=some.since, until=some.since + 30, points=3)
        assert wide.low[0].tolist() == [total, total + 10, total + 20]
        assert wide.high[0].tolist() == [total + 9, total + 19, total + 29]
        some.roll()


def test_without_redis_what_is_stored_is_answered(feed: NewFeed, settings: object) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # type: ignore[attr-defined]
    some = feed(since=math.floor(time.time()) - 150)
    some.run(range(100))
    some.flush()
    found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 150, points=150)
    assert found.count.sum() == 100
    assert live_tail.live_tail_rows(some.chassis, [TEMPERATURE], 0, 1, seconds=10.0) is None


def test_a_damaged_raw_chunk_is_a_gap_and_no_error(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(300))
    some.end()
    second = Chunk.objects.filter(chassis=some.chassis).order_by("since")[1]
    Chunk.objects.filter(pk=second.pk).update(data=bytes(second.data)[:-1])
    found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 300, points=300)
    assert found.count.sum() == 300 - second.rows
    assert any(gap.reason == selectors.DAMAGED and gap.since == second.since for gap in found.gaps)
    some.roll()
    parts = selectors.read_raw(some.chassis, [POWER], since=some.since, until=some.since + 300)
    assert sum(len(part.at) for part in parts) == 300 - second.rows


def test_a_damaged_rollup_is_read_from_what_it_was_made_from(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(1800))
    some.end()
    some.roll()
    before = selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + 1800, points=2)
    for tier in reversed(ROLLUPS):
        Chunk.objects.filter(chassis=some.chassis, tier=tier).update(data=b"FW?")
        clear_caches()
        found = selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + 1800, points=2)
        assert (found.count == before.count).all()
        assert not [gap for gap in found.gaps if gap.reason == selectors.DAMAGED]
    # And it is made anew with the next reading of its window.
    some.begin()
    some.run(range(1800, 1870))
    some.end()
    some.roll()
    assert all(
        bytes(one.data)[:2] == b"FW" and one.size > 10 for one in Chunk.objects.filter(chassis=some.chassis, tier=1)
    )


def test_a_rollup_that_was_read_is_read_anew_once_it_is_made_anew(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(600))
    some.end()
    some.roll()

    def read() -> selectors.Extract:
        return selectors.read_series(some.chassis, KEYS, since=some.since, until=some.since + 1200, points=2)

    before = read()
    some.begin()
    some.run(range(600, 1200))
    some.end()
    some.roll()
    found = read()
    clear_caches()
    from_disk = read()
    assert found.count.sum() > before.count.sum()
    assert same(found.mean, from_disk.mean)
    assert (found.count == from_disk.count).all()


def test_what_was_measured_is_known_by_range(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(1000))
    some.end()
    for _ in range(2):
        known = selectors.known_series(some.chassis, since=some.since, until=some.since + 1000)
        assert sorted(entry["key"] for entry in known) == sorted(KEYS)
        assert selectors.known_series(some.chassis, since=some.since - 7200, until=some.since - 3600) == []
        some.roll()


def test_a_key_that_nobody_knows_is_left_out_and_one_without_readings_is_empty(feed: NewFeed) -> None:
    some = feed()
    some.run(range(100))
    some.end()
    asked = [POWER, "device/1/nothing", TEMPERATURE]
    found = selectors.read_series(some.chassis, asked, since=some.since - HOUR, until=some.since - 60, points=10)
    assert [entry["key"] for entry in found.series] == [POWER, TEMPERATURE]
    assert not found.count.any()
    assert np.isnan(found.mean).all()
    assert selectors.read_series(some.chassis, [], since=0, until=1, points=1).mean.shape == (0, 1)
    assert selectors.read_series(999_999, [POWER], since=0, until=1, points=1).series == []


@pytest.mark.parametrize(
    ("since", "until", "points"),
    [(1, 1, 5), (2, 1, 5), (0, math.nan, 5), (math.inf, 1, 5), (0, 1e15, 5), (0, 10, 0), (0, 10, 10**9)],
)
def test_a_range_that_is_none_is_refused(since: float, until: float, points: int) -> None:
    with pytest.raises(Invalid):
        selectors.read_series(1, [POWER], since=since, until=until, points=points)


def test_every_reading_can_be_had_in_portions(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(2000))
    some.end()
    parts = list(
        selectors.read_raw(some.chassis, [ERROR_RATE, TEMPERATURE], since=some.since + 50, until=some.since + 1900)
    )
    assert len(parts) >= 3
    at = np.concatenate([part.at for part in parts])
    assert at.tolist() == [some.since + number for number in range(50, 1900)]
    values = np.concatenate([part.values for part in parts], axis=1)
    assert [entry["key"] for entry in parts[0].series] == [ERROR_RATE, TEMPERATURE]
    assert values[0].sum() == 1900 // 50 - 50 // 50
    assert values[1].tolist() == [made(number, 0).values[0] for number in range(50, 1900)]


def test_windows_lie_in_windows() -> None:
    for finer, coarser in pairwise(ROLLUPS):
        assert TIER_SHAPES[coarser].window % TIER_SHAPES[finer].window == 0
        assert TIER_SHAPES[coarser].step % TIER_SHAPES[finer].step == 0
        assert TIER_SHAPES[finer].window % TIER_SHAPES[coarser].step == 0


def test_a_series_that_is_in_no_chunk_of_a_portion_is_left_out_of_it(feed: NewFeed) -> None:
    some = feed()
    some.run(range(30))
    some.tell(SERIES[:4])  # from here on one is not measured any more
    for number in range(2000, 2030):
        some.take(ChassisReading(at=some.since + number, values=(20.0, 0.0, 0.0, 0.0)))
    some.end()
    keys = [TEMPERATURE, LOAD]
    parts = list(selectors.read_raw(some.chassis, keys, since=some.since, until=some.since + 2100))
    assert [[entry["key"] for entry in part.series] for part in parts] == [keys, [TEMPERATURE]]
    assert [len(part.at) for part in parts] == [30, 30]
