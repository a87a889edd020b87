"""What the recorder keeps, what it keeps out, and what it says of what is missing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.conf import settings

from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries
from telemetry.instrumentation import metrics
from telemetry.store import selectors
from telemetry.store.batches import WORKER_DIED
from telemetry.store.models import Catalogue, Chunk, Due, Gap
from telemetry.store.recorder import MAX_CHUNK_VALUES, NOT_READ
from telemetry.store.recorder import ReadingRecorder as StoreRecorder
from telemetry.store.rules import Tier
from tests.telemetry.store.feeding import ERRORS, LOAD, RECEIVED, SERIES, TEMPERATURE, Feed, hours_ago
from tests.telemetry.store.feeding import reading as made

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]
NewFeed = Callable[..., Feed]


def counted(name: str, chassis: int) -> int:
    """Return how often something was counted."""
    return metrics.counter_values().get((name, chassis), 0)


def raw(feed: Feed, key: str) -> list[tuple[float, float]]:
    """Return every stored reading of a series."""
    found = selectors.read_raw(feed.chassis, [key], since=feed.since - 7200, until=feed.since + 7200)
    return [(at, value) for part in found for at, value in zip(part.at.tolist(), part.values[0].tolist(), strict=True)]


def gaps(feed: Feed) -> list[tuple[float, float | None, str]]:
    """Return what is told to be missing, in s after the feed began."""
    rows = Gap.objects.filter(chassis=feed.chassis).order_by("since").values_list("since", "until", "reason")
    return [
        (round(since - feed.since, 3), None if until is None else round(until - feed.since, 3), reason)
        for since, until, reason in rows
    ]


def test_a_minute_is_one_chunk_and_every_reading_is_in_it(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(150))
    some.end()
    assert [value for _, value in raw(some, TEMPERATURE)] == [made(number, 0).values[0] for number in range(150)]
    assert Chunk.objects.filter(chassis=some.chassis).count() in {3, 4}
    assert Due.objects.filter(chassis=some.chassis, tier=Tier.TEN_SECONDS).count() >= 3
    assert Catalogue.objects.filter(chassis=some.chassis).count() == 1


def test_who_would_lose_less_has_shorter_chunks(feed: NewFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "CONFIG", replace(settings.CONFIG, store_seconds=10))
    some = feed()
    some.run(range(60))
    some.end()
    assert len(raw(some, TEMPERATURE)) == 60
    assert Chunk.objects.filter(chassis=some.chassis).count() in {6, 7}


def test_a_thousand_chassis_hand_over_at_different_seconds(feed: NewFeed) -> None:
    begins = set()
    for _ in range(30):
        some = feed(since=hours_ago(1))
        some.run(range(130))
        some.stored()
        begins |= {round(row.since) % 60 for row in Chunk.objects.filter(chassis=some.chassis).order_by("pk")[1:2]}
    assert len(begins) > 20


def test_counters_are_kept_as_the_bmc_counts_them(feed: NewFeed) -> None:
    some = feed()
    for number, value in enumerate((2**53 - 1, 2**53, 2**53 + 2, 2**60)):
        some.take(ChassisReading(at=some.since + number, values=(1.0, float(value), 0.0, 0.0, 0.0)))
    some.end()
    rates = [value for _, value in raw(some, RECEIVED)]
    assert math.isnan(rates[0])
    assert rates[1:] == [1.0, 2.0, float(2**60 - 2**53 - 2)]


def test_what_is_no_number_is_kept_out_and_counted(database: str, feed: NewFeed) -> None:
    some = feed()
    for number, value in enumerate((20.0, math.nan, math.inf, -math.inf, 24.0)):
        some.take(ChassisReading(at=some.since + number, values=(value, 1.0, 0.0, 5.0, 0.5)))
    some.end()
    assert [value for _, value in raw(some, TEMPERATURE)][::4] == [20.0, 24.0]
    assert all(math.isnan(value) for _, value in raw(some, TEMPERATURE)[1:4])
    assert counted("readings_not_a_number", some.chassis) == 3
    assert counted("readings_stored", some.chassis) == 22


def test_a_counter_below_zero_is_kept_out_and_counted_but_not_a_temperature(feed: NewFeed) -> None:
    some = feed()
    for number, value in enumerate((4.0, -5.0, 6.0)):
        some.take(ChassisReading(at=some.since + number, values=(-20.5, 10.0 * value, value, 5.0, 0.5)))
    some.end()
    assert [value for _, value in raw(some, TEMPERATURE)] == [-20.5] * 3
    errors = [value for _, value in raw(some, ERRORS)]
    assert (errors[0], errors[2]) == (4.0, 6.0)
    assert math.isnan(errors[1])
    assert counted("readings_negative_counter", some.chassis) == 2
    # Over what is missing the rate is that of both seconds.
    assert raw(some, RECEIVED)[2][1] == 10.0


def test_a_report_that_comes_again_is_kept_once_and_counted(feed: NewFeed) -> None:
    some = feed()
    for number in range(10):
        # The BMC renews it every other second.
        some.take(made(number // 2, some.since + number, measured_at=some.since + number // 2 * 2))
    some.end()
    assert [at - some.since for at, _ in raw(some, TEMPERATURE)] == [0, 2, 4, 6, 8]
    assert counted("readings_repeated", some.chassis) == 5 * len(SERIES)
    assert raw(some, RECEIVED)[2][1] == pytest.approx((made(2, 0).values[1] - made(1, 0).values[1]) / 2)


def test_a_bmc_whose_clock_stands_still_is_kept_as_long_as_its_values_move(feed: NewFeed) -> None:
    some = feed()
    some.run(range(20), measured_at=1.0)
    some.end()
    assert len(raw(some, TEMPERATURE)) == 20


def test_a_bmc_that_repeats_one_report_for_long_is_told_as_a_gap(feed: NewFeed) -> None:
    some = feed()
    some.run(range(5), measured_at=some.since)
    for number in range(5, 200):
        some.take(made(4, some.since + number, measured_at=some.since))
    some.stored()
    ((since, until, reason),) = gaps(some)
    assert (since, until) == (4.0, None)
    assert "repeats one report" in reason
    some.run(range(200, 210), measured_at=some.since + 200)
    some.end()
    assert gaps(some)[0][:2] == (4.0, 200.0)


def test_the_clock_of_a_bmc_that_jumps_changes_no_rate_and_is_counted(feed: NewFeed) -> None:
    some = feed()
    for number in range(60):
        jump = 3600 if number < 20 else -86400 if number < 40 else 0
        at = some.since + number
        some.take(ChassisReading(at=at, measured_at=at + jump, values=(20.0, 1000.0 * number, 0.0, 0.0, 0.0)))
    some.end()
    assert {value for _, value in raw(some, RECEIVED)[1:]} == {1000.0}
    assert counted("bmc_clock_jumps", some.chassis) == 2


def test_our_clock_that_is_set_back_loses_nothing_and_makes_no_false_rate(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(100))
    for number in range(100, 200):  # an hour earlier
        some.take(made(number, some.since - 3600 + number))
    some.end()
    rows = raw(some, TEMPERATURE)
    assert len(rows) == 200
    assert [at for at, _ in rows] == sorted(at for at, _ in rows)
    rates = [value for _, value in raw(some, RECEIVED) if not math.isnan(value)]
    assert len(rates) == 198
    assert max(rates) < 1.1e6
    assert counted("clock_set_back", some.chassis) == 1


def test_chunks_of_two_runs_that_end_at_the_same_moment_are_told_apart(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(150))
    for number in range(150, 300):  # our clock was set back to where the first run began
        some.take(made(number, some.since + number - 150))
    some.end()
    assert len(set(Chunk.objects.filter(chassis=some.chassis, before=None).values_list("until", flat=True))) == 1
    rates = [value for _, value in raw(some, RECEIVED) if not math.isnan(value)]
    assert len(rates) == 298
    assert max(rates) < 1.1e6
    some.roll()
    found = selectors.read_series(some.chassis, [RECEIVED], since=some.since, until=some.since + 150, points=15)
    assert found.count.sum() == 298


def test_five_thousand_readings_in_a_report_are_kept_in_shorter_chunks(feed: NewFeed) -> None:
    some = feed()
    many = [
        ReadingSeries(property=f"/s{number}#/Reading", owner_uri="/t", quantity=Quantity.OTHER, detail=f"Thing{number}")
        for number in range(20_000)
    ]
    some.tell(many)
    for number in range(60):
        some.take(ChassisReading(at=some.since + number, values=tuple(float(number + one) for one in range(20_000))))
    some.end()
    assert raw(some, "device/7/other/Thing19999")[59][1] == 20_058.0
    assert Chunk.objects.filter(chassis=some.chassis, rows__lte=MAX_CHUNK_VALUES // 20_000).count() >= 3


def test_a_series_that_changes_its_unit_is_another_one_from_then_on(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(30))
    in_kpa = [
        *SERIES[:4],
        ReadingSeries(property="/o#/Load", owner_uri="/p", quantity=Quantity.OTHER, unit="kPa", detail="Load"),
    ]
    some.tell(in_kpa)
    for number in range(30, 60):
        some.take(ChassisReading(at=some.since + number, values=(20.0, 0.0, 0.0, 0.0, 77.0)))
    some.end()
    for _ in range(2):
        found = selectors.read_series(some.chassis, [LOAD], since=some.since, until=some.since + 60, points=6)
        assert [entry["unit"] for entry in found.series] == ["kPa"]
        assert found.count[0].tolist() == [0, 0, 0, 10, 10, 10]
        assert set(found.mean[0][3:].tolist()) == {77.0}
        assert any("measured in Pa" in gap.reason for gap in found.gaps)
        some.roll()
    # Where there is nothing but the old unit, it is shown.
    before = selectors.read_series(some.chassis, [LOAD], since=some.since, until=some.since + 30, points=3)
    assert before.series[0]["unit"] in {"Pa", "kPa"}


def test_an_outage_is_told_while_it_lasts_and_ends_with_the_next_reading(database: str, feed: NewFeed) -> None:
    some = feed(since=time.time() - 100)
    some.run(range(50))
    some.recorder.lost("The BMC did not answer within 5 s.")
    some.stored()
    assert gaps(some) == [(49.0, None, "The BMC did not answer within 5 s.")]
    found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 200, points=200)
    (gap,) = found.gaps
    assert time.time() - 5 < gap.until <= time.time()
    some.recorder.lost("The BMC answers with 503.")
    some.run(range(90, 95))
    some.end()
    assert gaps(some)[0] == (49.0, 90.0, "The BMC did not answer within 5 s.")


def test_a_blip_is_no_gap(feed: NewFeed) -> None:
    some = feed(since=time.time() - 51)
    some.run(range(50))
    some.recorder.lost("The BMC did not answer within 5 s.")
    some.run(range(52, 60))
    some.run(range(62, 70))
    some.stored()
    assert gaps(some) == []


def test_seconds_that_nobody_read_are_a_gap(feed: NewFeed) -> None:
    some = feed()
    some.run([*range(30), *range(50, 70)])
    some.flush()
    assert gaps(some) == [(29.0, 50.0, "There were no readings.")]


def test_a_worker_that_ends_loses_nothing_and_the_next_one_tells_how_long_nobody_read(
    database: str, feed: NewFeed
) -> None:
    some = feed()
    some.run(range(100))
    some.end()
    assert gaps(some) == [(99.0, None, NOT_READ)]
    some.begin()
    some.run(range(400, 500))
    some.flush()
    assert gaps(some) == [(99.0, 400.0, NOT_READ)]
    assert len(raw(some, TEMPERATURE)) == 200


def test_a_chassis_that_is_handed_from_worker_to_worker_has_no_gap(feed: NewFeed) -> None:
    some = feed()
    some.run(range(100))
    some.end()
    some.begin()
    some.run(range(102, 200))
    some.flush()
    assert gaps(some) == []


def test_what_a_death_took_is_told_by_the_next_worker(database: str, feed: NewFeed) -> None:
    some = feed()
    some.run(range(100))
    some.die()
    stored = raw(some, TEMPERATURE)
    assert 40 <= len(stored) < 100
    some.run(range(110, 200))
    some.flush()
    assert gaps(some) == [(stored[-1][0] - some.since, 110.0, WORKER_DIED)]


def test_an_outage_that_a_dead_worker_told_goes_on_until_the_next_ones_first_reading(feed: NewFeed) -> None:
    some = feed(since=time.time() - 600)
    some.run(range(50))
    some.recorder.lost("The BMC did not answer within 5 s.")
    some.die()
    some.run(range(300, 400))
    some.flush()
    assert gaps(some) == [(49.0, 300.0, "The BMC did not answer within 5 s.")]


def test_a_recorder_that_never_had_a_reading_tells_nothing(feed: NewFeed) -> None:
    some = feed()
    some.end()
    assert gaps(some) == []
    assert not Chunk.objects.filter(chassis=some.chassis).exists()


def test_readings_from_before_what_is_kept_are_kept_out_and_counted(feed: NewFeed) -> None:
    some = feed(since=hours_ago(60))
    some.run(range(70))
    some.end()
    assert not Chunk.objects.filter(chassis=some.chassis).exists()
    assert counted("readings_too_late", some.chassis) == 70 * len(SERIES)


def test_the_poller_hands_readings_to_the_store() -> None:
    from telemetry.polling.chassis_poller import SUBSCRIBERS

    assert StoreRecorder in SUBSCRIBERS
