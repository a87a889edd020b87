"""The time around training: measured or assumed, drawers at once, the operations of one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.recommend.times import (
    ASSUMED_START,
    ASSUMED_TIMES,
    SiteTimes,
    StepSample,
    TimesAround,
    drawers_seconds,
    usual_time,
)
from fabric.plans.rules import StepKind


def median(times: SiteTimes, *drawers: tuple[int, Sequence[StepKind]]) -> tuple[float, float]:
    around = TimesAround.of(times, drawers, "resnet50")
    return float(drawers_seconds(around.compose, 1)[0]), float(drawers_seconds(around.give_back, 1)[0])


def test_operations_of_a_drawer_follow_each_other_and_drawers_go_on_at_once() -> None:
    times = SiteTimes()
    attach, detach, move = (ASSUMED_TIMES[kind].seconds for kind in ("attach", "detach", "move"))
    assert median(times) == (0.0, 0.0)
    assert median(times, (1, ())) == (0.0, 0.0)
    assert median(times, (1, ("attach",) * 3)) == (3 * attach, 3 * detach)
    assert median(times, (1, ("attach",) * 3), (1, ("detach", "move")), (2, ("attach",))) == (3 * attach, attach + move)


def test_the_history_of_the_chassis_comes_before_that_of_others_and_assumptions() -> None:
    def samples(chassis: int, among: int, seconds: float) -> list[StepSample]:
        return [StepSample("attach", chassis, among, seconds * factor) for factor in (0.9, 1.0, 1.1)]

    times = SiteTimes.measured([*samples(1, 1, 4.0), *samples(1, 8, 2.0), *samples(1, 8, 2.0), *samples(2, 1, 30.0)])
    assert times.step("attach", 1, 8).seconds == pytest.approx(2.0)
    assert times.step("attach", 1, 1).seconds == pytest.approx(4.0)
    assert times.step("attach", 1, 5).count == 9  # no plan of five: what is known of that chassis
    assert times.step("attach", 7, 1).count == 12
    assert times.step("detach", 1, 1) is ASSUMED_TIMES["detach"]
    assert times.start("resnet50") is ASSUMED_START
    assert SiteTimes.measured([StepSample("attach", 1, 1, 3.0)] * 2).step("attach", 1, 1) is ASSUMED_TIMES["attach"]
    started = SiteTimes.measured([], [("resnet50", 40.0)] * 3 + [("bert_base", 90.0)])
    assert started.start("resnet50").seconds == started.start("bert_base").seconds == 40.0
    assert usual_time([0.0, 0.0, 0.0]).seconds > 0  # a clock that was set back


def test_more_operations_take_longer_in_every_draw() -> None:
    attach: list[StepKind] = ["attach"]
    few, many = (TimesAround.of(SiteTimes(), [(1, attach * count)], "") for count in (2, 3))
    drawn = drawers_seconds(few.compose, 200)
    assert np.all(drawers_seconds(many.compose, 200) > drawn)
    assert np.quantile(drawn, 0.95) / np.quantile(drawn, 0.05) > 2
