"""Intervals of medians and of their ratios."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.figures.charts import combine_estimates, seconds_a_step
from benchmarks.runs.results import Summary
from tests.benchmarks.figures.making import figure, row


def sample(median: float, spread: float, count: int, seed: int) -> np.ndarray:
    return median * np.exp(spread * np.random.default_rng(seed).standard_normal(count))


def test_the_interval_of_a_median_holds_the_truth_about_nine_times_of_ten() -> None:
    held = 0
    for seed in range(200):
        found = seconds_a_step(row(str(seed), steps=sample(0.2, 0.1, 25, seed)))
        assert found is not None
        low, high = found.interval
        assert low is not None
        assert high is not None
        held += low <= 0.2 <= high
    assert 165 <= held <= 197


def test_the_interval_of_a_ratio_holds_the_true_ratio_about_nine_times_of_ten() -> None:
    held = 0
    for seed in range(200):
        one, other = (
            seconds_a_step(row(f"{seed} {median}", steps=sample(median, 0.05, 30, seed + place)))
            for place, median in ((0, 0.3), (1000, 0.2))
        )
        assert one is not None
        assert other is not None
        low, high = one.over(other).interval
        assert low is not None
        assert high is not None
        held += low <= 1.5 <= high
    assert 165 <= held <= 197


def test_the_same_runs_have_the_same_interval_each_time() -> None:
    rows = [row("1", steps=sample(0.2, 0.1, 25, 1)) for _ in range(2)]
    one, other = (seconds_a_step(each) for each in rows)
    assert one is not None
    assert other is not None
    assert one.interval == other.interval


def test_one_step_alone_has_no_interval() -> None:
    found = seconds_a_step(row(steps=[0.2]))
    assert found is not None
    assert found.interval == (None, None)


def test_steps_of_no_time_and_of_none_are_left_out() -> None:
    found = seconds_a_step(row(steps=[0.2, float("nan"), 0.0, 0.2]))
    assert found is not None
    assert (found.value, found.count) == (0.2, 2)
    assert seconds_a_step(row(steps=[float("nan")])) is None
    assert seconds_a_step(row()) is None


def test_where_only_percentiles_were_kept_the_interval_of_the_median_is_much_narrower_than_these() -> None:
    found = seconds_a_step(row(provenance="imported", summary=Summary(step_seconds=figure(0.2, 0.15, 0.27, count=100))))
    assert found is not None
    low, high = found.interval
    assert low is not None
    assert high is not None
    assert 0.185 < low < 0.2 < high < 0.215


def test_a_prediction_has_its_own_interval() -> None:
    found = seconds_a_step(row(provenance="predicted", summary=Summary(step_seconds=figure(0.2, 0.1, 0.4, count=1))))
    assert found is not None
    assert found.interval == pytest.approx((0.1, 0.4), rel=0.1)


def test_repetitions_that_disagree_have_a_wider_interval_than_each_of_them() -> None:
    each = [seconds_a_step(row(str(one), steps=sample(one, 0.01, 40, 1))) for one in (0.2, 0.25, 0.3)]
    estimates = [one for one in each if one is not None]
    found = combine_estimates(estimates)
    low, high = found.interval
    assert low is not None
    assert high is not None
    assert found.value == pytest.approx(0.25, rel=0.02)
    assert low < 0.21
    assert high > 0.29
    assert found.count == 120
