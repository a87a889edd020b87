"""The store beside a plain list: whatever happens to it, it answers what the list does.

Any order of readings (late, repeated, out of order, with either clock set), deaths of recorders, take-overs, rollups,
clean-up, ranges and resolutions, and the time zone of the process.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from django.conf import settings as site
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from fabric.bmc.series import ChassisReading
from telemetry.store import selectors, services
from telemetry.store.chunks import clear_caches
from telemetry.store.models import Catalogue, Chunk, Due, Gap
from telemetry.store.rules import ROLLUPS, Tier
from telemetry.store.writer import StoreWriter
from tests.telemetry.store.feeding import COUNTERS, GAUGES, KEYS, Feed
from tests.turns import NIGHTLY

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]

LONG, SHORT = (24 * 3600, 7 * 86400, 92 * 86400, 731 * 86400), (2 * 3600, 7 * 86400, 92 * 86400, 731 * 86400)
ZONES = ("UTC", "Pacific/Kiritimati", "America/St_Johns")
REACH = 120.0
BEGIN = 96 * 3600.0 * 5194  # Unix s, in 2026; where windows of all tiers begin

values = st.one_of(
    st.decimals(-100, 1000, places=2).map(float), st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf),
)  # fmt: skip
steps = st.one_of(st.integers(0, 10**10), st.just(0), st.integers(-(2**53), -1), st.just(2**53))


@dataclass(frozen=True)
class Kept:
    """A reading as the list has it; those of one run follow each other."""

    at: int  # ms
    measured: int
    values: tuple[float, ...]
    run: int


class StoreBesideAList(RuleBasedStateMachine):
    """One chassis, its recorder, and the list.

    All that may decide what is found is drawn, the time of day too: an example fails again whenever it runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.writer = StoreWriter(gather=0.0)
        self.rows: list[Kept] = []
        self.pending: list[Kept] = []  # handed to the recorder, which still has them
        self.counted = [0.0, 0.0]
        self.runs = itertools.count(1)
        self.is_cleaned = False
        site.KEEP_SECONDS = LONG

    @initialize(chassis=st.integers(1, 60), moment=st.floats(0, 96 * 3600), bmc_tells=st.booleans())
    def begin(self, chassis: int, moment: float, *, bmc_tells: bool) -> None:
        """Have some old readings that are rolled up, then go on nearer to now."""
        # By its number a chassis has its own seconds at which chunks end: what an earlier example left of it goes.
        for model in (Chunk, Due, Gap, Catalogue):
            model.objects.filter(chassis=chassis).delete()
        clear_caches()
        self.now = BEGIN + moment
        self.patch.setattr(time, "time", lambda: self.now)
        self.bmc_tells, self.bmc_ahead = bmc_tells, 7.0
        self.feed = Feed(chassis, self.writer)
        self.run = next(self.runs)
        self.last: ChassisReading | None = None
        self.clock = self.now - 4 * 3600
        self.readings(count=130, first=20.5, moved=[5, 1], every=1.0, shake=0.0)
        self.stored()
        self.feed.roll()
        self.clock = self.now - 1.7 * 3600

    def teardown(self) -> None:
        """End the thread, and put clock and time zone back."""
        self.writer.stop()
        self.patch.undo()
        time.tzset()

    @property
    def oldest(self) -> float:
        """From when on everything is answered at any resolution."""
        return self.now - (2 * 3600 - 300 if self.is_cleaned else 5 * 3600)

    @rule(
        count=st.integers(1, 90), first=values, moved=st.lists(steps, min_size=2, max_size=2),
        every=st.sampled_from([1.0, 1.0, 2.5, 20.0]), shake=st.floats(0, 0.4),
    )  # fmt: skip
    def readings(self, *, count: int, first: float, moved: list[int], every: float, shake: float) -> None:
        """Take some readings, one after the other."""
        for number in range(count):
            self.counted = [math.fmod(one + more, 2.0**62) for one, more in zip(self.counted, moved, strict=True)]
            gauge = first + number % 3 / 4
            at = self.clock + shake * (number % 2)
            measured = at + self.bmc_ahead if self.bmc_tells else 0.0
            row = (gauge, self.counted[0], self.counted[1] // 1000, -gauge, 0.1 * number + 0.3)
            self.take(ChassisReading(at=at, measured_at=measured, values=row))
            self.clock += every
        self.clock = min(self.clock, self.now - 60)

    @rule()
    def the_same_once_more(self) -> None:
        """A BMC that has not renewed its report since: nothing is kept twice."""
        if self.last is not None:
            later = self.last.at + 1.0 if self.bmc_tells else self.last.at
            self.feed.take(ChassisReading(at=later, measured_at=self.last.measured_at, values=self.last.values))

    @rule(seconds=st.sampled_from([-1800.0, -61.0, -3.0, 30.0, 90.0, 600.0, 1500.0]))
    def our_clock_is_set(self, seconds: float) -> None:
        """Or nothing came for a while."""
        lowest, highest = self.now - 1.7 * 3600, self.now - 300
        self.clock = min(max(self.clock + seconds, lowest), highest)

    @rule(seconds=st.sampled_from([-86400.0, -30.0, 2.0, 3600.0]))
    def the_clock_of_the_bmc_is_set(self, seconds: float) -> None:
        """Its time stamps jump."""
        self.bmc_ahead += seconds

    @rule()
    def a_minute_ends(self) -> None:
        """What the recorder holds is handed over."""
        self.feed.recorder._submit_rows()
        self.settle()

    @rule()
    def the_worker_dies(self) -> None:
        """What was not handed over is lost."""
        self.settle()
        self.pending = []
        self.next_recorder()

    @rule()
    def the_worker_ends(self) -> None:
        """What was not handed over is handed over."""
        asyncio.run(self.feed.recorder.close())
        self.settle()
        self.next_recorder()

    @rule()
    def another_worker_takes_over_and_the_first_one_wakes_up_again(self) -> None:
        """Its last rows come after those of the other."""
        old, pending = self.feed.recorder, self.pending
        self.pending = []
        self.next_recorder()
        self.readings(count=3, first=1.0, moved=[1, 1], every=1.0, shake=0.0)
        self.feed.recorder._submit_rows()
        self.settle()
        asyncio.run(old.close())
        self.writer.stop(20.0)
        self.rows += pending

    @rule(tier=st.sampled_from(ROLLUPS), all_of_it=st.booleans())
    def readings_are_rolled_up(self, *, tier: Tier, all_of_it: bool) -> None:
        """Of one tier, whatever the others are at."""
        self.stored()
        services.chassis_roll_up(self.feed.chassis, tier, now=math.inf if all_of_it else self.now)

    @rule()
    def old_readings_go(self) -> None:
        """Raw ones, after all was rolled up; what is coarser stays."""
        site.KEEP_SECONDS = SHORT
        self.is_cleaned = True
        self.stored()
        services.chassis_roll_up(self.feed.chassis, Tier.TEN_SECONDS, now=math.inf)
        services._delete_in_batches(_old(self.feed.chassis, self.now), lambda: None, math.inf)

    @rule(zone=st.sampled_from(ZONES))
    def the_process_is_elsewhere(self, zone: str) -> None:
        """Its time zone is another."""
        self.patch.setenv("TZ", zone)
        time.tzset()

    @rule(
        begin=st.floats(0, 1), length=st.sampled_from([3.0, 61.0, 700.0, 4000.0, 30000.0]), points=st.integers(1, 900)
    )
    def somebody_asks(self, *, begin: float, length: float, points: int) -> None:
        """And is answered what the list says."""
        since = self.oldest + begin * (self.now - self.oldest)
        self.asks(since, since + length, points)

    @precondition(lambda self: self.is_cleaned)
    @rule(points=st.integers(1, 500))
    def somebody_asks_for_what_is_only_rolled_up(self, points: int) -> None:
        """In buckets of 10 s and more."""
        self.asks(self.now - 4.2 * 3600, self.now - 3.5 * 3600, points)

    # What the rules are made of.

    def take(self, one: ChassisReading) -> None:
        """Hand a reading to the recorder, and write it into the list."""
        before = self.last
        self.feed.take(one)
        if before is not None and not (before.at < one.at <= before.at + REACH):
            self.run = next(self.runs)
        self.pending.append(
            Kept(
                round(one.at * 1000),
                max(0, round(one.measured_at * 1000)),
                tuple(map(admitted, one.values, range(5))),
                self.run,
            )
        )
        self.last = one

    def settle(self) -> None:
        """Wait for the writer; what the recorder no longer holds is stored."""
        self.writer.stop(20.0)
        held = len(self.feed.recorder._rows)
        done = len(self.pending) - held
        self.rows += self.pending[:done]
        self.pending = self.pending[done:]

    def stored(self) -> None:
        """Store all."""
        self.feed.recorder._submit_rows()
        self.settle()
        assert not self.pending

    def next_recorder(self) -> None:
        """Let another recorder go on."""
        self.feed.begin()
        self.run, self.last = next(self.runs), None

    def asks(self, since: float, until: float, points: int) -> None:
        """Compare an answer with the list's."""
        self.settle()
        found = selectors.read_series(self.feed.chassis, KEYS, since=since, until=until, points=points)
        step = round(found.step * 1000)
        begins = np.rint(found.at * 1000).astype(int)
        assert 1 <= len(begins) <= points
        assert (np.diff(begins) == step).all()
        assert begins[0] <= since * 1000
        assert begins[-1] + step >= until * 1000
        assert [entry["key"] for entry in found.series] == list(KEYS)
        for number, key in enumerate(KEYS):
            wanted = in_buckets(series_of(self.rows, key), int(begins[0]), step, len(begins))
            for place, some in enumerate(wanted):
                assert found.count[number, place] == len(some), (key, begins[place], some)
                got = found.low[number, place], found.mean[number, place], found.high[number, place]
                if some:
                    want = min(some), sum(some) / len(some), max(some)
                    scale = max(abs(one) for one in some)
                    assert np.allclose(got, want, rtol=2e-6, atol=1e-6 * scale + 1e-9), (key, got, want)
                else:
                    assert np.isnan(got).all()


def admitted(value: float, column: int) -> float:
    """Return a value as it is kept: no number is none, nor is a counter below zero."""
    if not math.isfinite(value) or (column in COUNTERS.values() and value < 0):
        return math.nan
    return value


def series_of(rows: list[Kept], key: str) -> list[tuple[int, float]]:
    """Return moments and values of a series: rates since the reading of the same run before it that had a value."""
    if key in GAUGES:
        return [(row.at, row.values[GAUGES[key]]) for row in rows if not math.isnan(row.values[GAUGES[key]])]
    column, found, before = COUNTERS[key], [], dict[int, Kept]()
    for row in rows:
        now = row.values[column]
        if math.isnan(now):
            continue
        last, before[row.run] = before.get(row.run), row
        if last is not None and now >= last.values[column]:
            elapsed = row.at - last.at
            theirs = row.measured - last.measured
            if row.measured and last.measured and theirs > 0 and abs(theirs - elapsed) <= 5000:
                elapsed = theirs
            if elapsed > 0:
                found.append((row.at, (now - last.values[column]) / elapsed * 1000))
    return found


def in_buckets(series: list[tuple[int, float]], begin: int, step: int, count: int) -> list[list[float]]:
    """Return the values of each bucket."""
    buckets: list[list[float]] = [[] for _ in range(count)]
    for at, value in series:
        if 0 <= (place := (at - begin) // step) < count:
            buckets[place].append(value)
    return buckets


def _old(chassis: int, now: float) -> Any:
    return Chunk.objects.filter(chassis=chassis, tier=Tier.RAW, until__lt=now - SHORT[0])


@pytest.fixture(autouse=True)
def home(settings: Any) -> None:
    """Put the periods back."""
    settings.KEEP_SECONDS = LONG


def test_the_store_answers_what_a_plain_list_does(database: str) -> None:
    # PostgreSQL answers a third as fast; by day half as many will do.
    examples = settings().max_examples // (3 if database == "postgresql" else 1) // (1 if NIGHTLY else 2)
    run_state_machine_as_test(StoreBesideAList, settings=settings(max_examples=examples, stateful_step_count=25))
    assert Chunk.objects.exists()
