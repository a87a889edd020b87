"""Who is best, how sure that is, and which run would tell: on draws that are known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.recommend.ranking import (
    CellObservation,
    CellSignature,
    cell_covariance,
    find_deciding_run,
    median_interval,
    rank_candidates,
    residual_draws,
)


def test_probability_and_regret_are_those_of_the_draws() -> None:
    costs = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [3.0, 2.0]])
    ranking = rank_candidates(costs)
    assert ranking.order == (0, 1)
    assert list(ranking.probability) == [0.75, 0.25]
    assert ranking.regret == pytest.approx([0.125, 0.75])
    assert not ranking.is_decided
    with pytest.raises(ValueError, match="nothing"):
        rank_candidates(np.zeros((4, 0)))


def test_a_choice_is_made_where_the_doubt_does_not_matter() -> None:
    random = np.random.default_rng(1)
    close = np.exp(random.normal(0.0, 0.005, (200, 3)))
    assert rank_candidates(close).is_decided
    assert rank_candidates(close).probability.max() < 0.6
    assert not rank_candidates(np.exp(random.normal(0.0, 0.2, (200, 3)))).is_decided


def test_of_those_that_are_as_good_the_simplest_comes_first() -> None:
    costs = np.array([[1.0, 1.0003, 1.5]] * 10)
    assert rank_candidates(costs).first == 0
    assert rank_candidates(costs, [(8,), (4,), (1,)]).order == (1, 0, 2)


def test_a_small_gain_that_may_be_a_loss_is_no_reason_for_effort() -> None:
    random = np.random.default_rng(5)
    large = np.exp(random.normal(0.0, 0.01, 400))
    small = 1.003 * np.exp(random.normal(0.0, 0.01, 400))
    assert rank_candidates(np.stack([large, small], axis=1), [(8,), (4,)]).first == 1
    # The same gain, but sure.
    assert rank_candidates(np.stack([large, 1.003 * large], axis=1), [(8,), (4,)]).first == 0


def test_the_deciding_run_is_the_one_that_nobody_knows_anything_of() -> None:
    random = np.random.default_rng(2)
    known = np.full(400, 10.0)
    unknown = 10.0 * np.exp(random.normal(0.0, 0.3, 400))
    hopeless = np.full(400, 40.0) * np.exp(random.normal(0.0, 0.3, 400))
    costs = np.stack([known, unknown, hopeless], axis=1)
    ranking = rank_candidates(costs)
    found = find_deciding_run(costs, costs, ranking)
    assert found is not None
    assert found.candidate == 1
    assert found.after < 0.3 * found.before
    rest = find_deciding_run(costs, costs, ranking, skip=(1,))
    assert rest is not None
    assert rest.after > 0.8 * rest.before


def test_what_is_settled_asks_for_no_run() -> None:
    costs = np.array([[1.0, 2.0]] * 20)
    assert find_deciding_run(costs, costs, rank_candidates(costs)) is None


def test_an_interval_holds_nine_of_ten_draws() -> None:
    assert median_interval(np.arange(101.0)) == pytest.approx((50.0, 5.0, 95.0))


def cell(devices: float, precision: str = "fp16") -> CellSignature:
    return CellSignature(sorts=("resnet50", precision, "ddp", False, "V100", "disk", "nvlink", "one"),
                    sizes=(devices, 6.0, 0.0, 1.0, 7.0, 5.0))  # fmt: skip


def test_what_was_measured_is_believed_and_tells_of_its_neighbours() -> None:
    cells = [cell(3.0), cell(2.0), cell(3.0, "fp32")]
    alike = cell_covariance(cells, cells)
    assert alike[0, 0] == 1.0
    assert alike[0, 1] > alike[0, 2] > 0
    modelled = np.zeros((2000, 1))
    found = residual_draws(cells, [CellObservation(cell(3.0), 0.2, 0.01)], modelled, draws=2000, floor=0.1)
    means, spreads = found.mean(axis=0), found.std(axis=0)
    assert means[0] == pytest.approx(0.2, abs=0.01)
    assert spreads[0] < 0.015
    assert means[0] > means[1] > means[2] > 0.02
    assert spreads[0] < spreads[1] < spreads[2] < 0.1
    before = residual_draws(cells, [], np.zeros((2000, 0)), draws=2000, floor=0.1)
    assert before.mean(axis=0) == pytest.approx([0, 0, 0], abs=0.01)
    assert before.std(axis=0) == pytest.approx([0.1, 0.1, 0.1], rel=0.1)
