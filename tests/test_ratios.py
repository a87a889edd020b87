"""What `make perf SHORT=1` names as worse than on record."""

from __future__ import annotations

import pytest

from perf.figures import PerfFigure
from perf.ratios import FAILED, key, losses, missing


def figure(value: float, unit: str = "us", *, of: str = "a poll") -> PerfFigure:
    return PerfFigure(of, value, unit, name="poll", beside="bare", beside_value=10.0)


@pytest.mark.parametrize(
    ("measured", "told"),
    [([13.0], set()), ([15.0], {1.5}), ([25.0], {2.5}), ([25.0, 12.0], set()), ([25.0, 14.0], {1.4})],
    ids=["as before", "told", "fails", "by the machine, once", "told, the better of two"],
)
def test_a_ratio_that_is_a_third_worse_is_told(measured: list[float], told: set[float]) -> None:
    found = losses(map(figure, measured), {key(figure(10.0)): 1.0})
    assert {round(loss, 6) for loss in found.values()} == told
    assert any(loss > FAILED for loss in found.values()) == (told == {2.5})


def test_of_a_rate_less_is_worse() -> None:
    record = {key(figure(10.0, "1/s")): 1.0}
    assert not losses([figure(30.0, "1/s")], record)
    assert list(losses([figure(5.0, "1/s")], record).values()) == [2.0]


def test_what_is_not_measured_any_more_is_named() -> None:
    record = {key(figure(10.0)): 1.0, key(figure(10.0, of="a walk")): 1.0}
    assert missing([figure(10.0)], record) == ["poll: a walk, beside bare"]
    assert not losses([figure(99.0, of="a first look")], record)
