"""Figures in words."""

from __future__ import annotations

from benchmarks.figures.comparing import Against
from benchmarks.figures.shown import against


def test_a_ratio_is_told_with_digits_that_tell_something() -> None:
    told = against([Against(value=1.0, low=None, high=None, ratio=ratio) for ratio in (0.2464, 0.000187, 0)])
    assert [one.ratio for one in told if one is not None] == ["0.246", "0.0001870", "0"]
