"""Intervals are honest in worlds that do not follow the model."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.model import prior, refit, step_seconds
from tests.benchmarks.model.cells import study_cells
from tests.benchmarks.model.truth import World

RUNS = (0, 1, 5, 20)  # that were learnt from
NEW, LEAST, MOST = 25, 0.85, 0.97


class Study:
    """Over many worlds: how often intervals of cells hold the truth, and how far medians are off, by runs learnt from.

    `new` are cells that were not run, `own` those that were.
    """

    def __init__(self, worlds: range) -> None:
        self.new: dict[int, list[bool]] = {count: [] for count in RUNS}
        self.own: dict[int, list[bool]] = {count: [] for count in RUNS}
        self.errors: dict[int, list[float]] = {count: [] for count in RUNS}
        cells = study_cells()
        for seed in worlds:
            world = World(seed)
            order = np.random.default_rng(seed).permutation(len(cells))
            new = [cells[index] for index in order[:NEW]]
            run = [cells[index] for index in order[NEW : NEW + max(RUNS)]]
            truth = np.array([world.step(*cell) for cell in [*new, *run]])
            for count in RUNS:
                belief = refit([world.observe(*cell) for cell in run[:count]]) if count else prior()
                drawn = step_seconds(belief.draws(400, seed), [*new, *run])
                low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=0)
                inside = (low <= truth) & (truth <= high)
                self.new[count] += list(inside[:NEW])
                self.own[count] += list(inside[NEW : NEW + count])
                self.errors[count] += list(np.abs(middle / truth - 1)[:NEW])


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(range(30))


@pytest.mark.nightly
@pytest.mark.parametrize("count", RUNS)
def test_nine_tenths_intervals_of_cells_that_were_not_run_hold_the_truth_nine_times_in_ten(
    study: Study, count: int
) -> None:
    assert LEAST <= np.mean(study.new[count]) <= MOST


@pytest.mark.nightly
@pytest.mark.parametrize("count", RUNS[1:])
def test_intervals_of_cells_that_were_run_hold_the_truth(study: Study, count: int) -> None:
    assert LEAST - 0.05 <= np.mean(study.own[count]) <= 1  # few of them: 30 worlds with one run


@pytest.mark.nightly
def test_runs_make_predictions_of_other_cells_better(study: Study) -> None:
    errors = [float(np.median(study.errors[count])) for count in RUNS]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 2


@pytest.mark.nightly
@pytest.mark.parametrize("count", RUNS)
def test_intervals_hold_the_truth_in_many_more_worlds(count: int) -> None:
    study = Study(range(1000, 1400))
    assert LEAST <= np.mean(study.new[count]) <= MOST
