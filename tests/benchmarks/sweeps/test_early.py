"""Points that are not worth running."""

from __future__ import annotations

from typing import Any

from benchmarks.sweeps.early_stopping import PointEstimate, dominating_point, skip_reason
from benchmarks.sweeps.grid import EarlyStopping

TIME = EarlyStopping(objectives=("time",))
BOTH = EarlyStopping(objectives=("time", "devices"))


def standing(position: int = 0, **more: Any) -> PointEstimate:
    """Return an estimate of a point: measured, a device, 10 to 11 ms a sample."""
    told = {"name": "batch 64", "family": "resnet50", "devices": 1, "low": 0.010, "high": 0.011, "source": "measured"}
    return PointEstimate(position=position, **{**told, **more})


def test_a_point_whose_interval_lies_beyond_another_is_beaten() -> None:
    slow = standing(1, low=0.020, high=0.022)
    assert dominating_point(slow, [slow, standing()], TIME) == standing()


def test_intervals_that_overlap_decide_nothing() -> None:
    assert dominating_point(standing(1, low=0.0109, high=0.02), [standing()], TIME) is None


def test_a_point_with_fewer_devices_is_kept_where_devices_count() -> None:
    small, large = standing(1, low=0.030, high=0.031), standing(devices=4)
    assert dominating_point(small, [large], BOTH) is None
    assert dominating_point(small, [large], TIME) == large
    assert dominating_point(standing(1, low=0.030, high=0.031, devices=4), [large], BOTH) == large


def test_device_seconds_weigh_time_by_devices() -> None:
    early = EarlyStopping(objectives=("device_time",))
    assert dominating_point(standing(1, low=0.008, high=0.009, devices=2), [standing()], early) == standing()


def test_what_is_only_predicted_beats_nobody_and_is_beaten_only_where_that_is_wanted() -> None:
    guess = standing(1, low=0.020, high=0.030, source="predicted")
    assert dominating_point(guess, [standing()], TIME) == standing()
    assert dominating_point(guess, [standing()], EarlyStopping(objectives=("time",), predicted=False)) is None
    assert dominating_point(standing(1, low=0.020, high=0.030), [standing(source="predicted")], TIME) is None


def test_other_work_is_not_held_against_each_other() -> None:
    assert dominating_point(standing(1, low=0.5, high=0.6, family="bert_large"), [standing()], TIME) is None


def test_the_sentence_has_both_intervals_and_where_they_come_from() -> None:
    slow = standing(1, low=0.020, high=0.022, source="predicted", devices=2)
    assert skip_reason(slow, standing(), BOTH) == (
        "Skipped: worse than point 1 (batch 64) in time a sample and devices. Predicted: 20 to 22 ms a sample on "
        "2 devices; that one took 10 to 11 ms on 1 device, measured."
    )
