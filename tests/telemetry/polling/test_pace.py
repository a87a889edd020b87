from __future__ import annotations

import pytest

from fabric.bmc.walk_turns import WalkTurns
from telemetry.polling.pace import FEW_READINGS, LATE_SECONDS, MAX_PATIENCE, MIN_PATIENCE, ReadingPace

EASY = 0.001  # s


@pytest.fixture
def pace() -> ReadingPace:
    return ReadingPace(WalkTurns(), lambda: 5000)


def test_a_late_worker_reads_half_as_often_until_it_is_on_time(pace: ReadingPace) -> None:
    for period in (2.0, 4.0, 8.0):
        pace.judge(LATE_SECONDS * 2)
        assert pace.period == period
    for period in (*[8.0] * (MIN_PATIENCE - 1), 4.0, 2.0, 1.0):
        pace.judge(EASY)
        assert pace.period == period
    assert not pace.is_stretched


def test_a_worker_that_bore_no_more_waits_ever_longer_before_it_tries_again(pace: ReadingPace) -> None:
    waits = []
    pace.judge(1.0)
    for _ in range(4):
        waits.append(0)
        while pace.is_stretched:
            pace.judge(EASY)
            waits[-1] += 1
        pace.judge(1.0)
    assert waits == [MIN_PATIENCE * 2**n for n in range(4)]
    assert max(waits) < MAX_PATIENCE


def test_no_period_is_longer_than_a_minute(pace: ReadingPace) -> None:
    for _ in range(20):
        pace.judge(5.0)
    assert pace.period == 60.0


def test_readings_give_way_to_walks_that_wait_for_as_long_as_they_do() -> None:
    counts = [0]
    pace = ReadingPace(WalkTurns(), lambda: counts[-1])
    pace._turns.waiting = 1
    pace.judge(EASY)
    for count, period in ((FEW_READINGS, 1.0), (FEW_READINGS + 1, 2.0), (100, 8.0), (333, 32.0), (5000, 60.0)):
        counts.append(count)
        pace.judge(LATE_SECONDS * 2)
        assert pace.period == period
        assert pace.is_stretched is (period > 1)
    pace._turns.waiting = 0
    pace.judge(EASY)
    assert pace.period == 1.0


def test_a_single_walk_that_waits_changes_nothing(pace: ReadingPace) -> None:
    for waiting in (1, 0, 1, 0):
        pace._turns.waiting = waiting
        pace.judge(EASY)
        assert pace.period == 1.0


@pytest.mark.parametrize(("chassis", "period"), [(2, 1.0), (20, 1.0), (75, 4.0)])
def test_a_few_readings_are_not_what_makes_a_worker_late(chassis: int, period: float) -> None:
    pace = ReadingPace(WalkTurns(), lambda: chassis)
    for _ in range(20):
        pace.judge(5.0)
    assert pace.period == period
