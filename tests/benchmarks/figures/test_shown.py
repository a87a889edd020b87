"""Figures in words."""

from __future__ import annotations

from benchmarks.figures.comparison import RelativeValue
from benchmarks.figures.presentation import display_relative_values


def test_a_ratio_is_told_with_digits_that_tell_something() -> None:
    told = display_relative_values(
        [RelativeValue(value=1.0, low=None, high=None, ratio=ratio) for ratio in (0.2464, 0.000187, 0)]
    )
    assert [one.ratio for one in told if one is not None] == ["0.246", "0.0001870", "0"]
