"""Medians of runs and their ratios, with 90 % intervals by bootstrap: pure arithmetic."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.rows import Row

Floats = NDArray[np.float64]
DRAWS: Final = 2000
LOW, HIGH = 5.0, 95.0  # percentiles: between them lie 90 %
_Z: Final = 1.6448536269514722  # of a normal distribution, for the same 90 %
_MEDIAN: Final = math.sqrt(math.pi / 2)  # how much wider a median scatters than a mean


@dataclass(frozen=True)
class Estimate:
    """A figure, and draws of what it might as well be; None where nothing tells how far it scatters."""

    value: float
    draws: Floats | None
    count: int

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 90 % interval, which holds the value itself."""
        if self.draws is None:
            return None, None
        low, high = np.percentile(self.draws, [LOW, HIGH])
        return min(float(low), self.value), max(float(high), self.value)

    def scaled(self, factor: float) -> Estimate:
        """Return it times a factor."""
        return Estimate(self.value * factor, None if self.draws is None else self.draws * factor, self.count)

    def inverse(self) -> Estimate:
        """Return one over it."""
        return Estimate(1 / self.value, None if self.draws is None else 1 / self.draws, self.count)

    def over(self, other: Estimate) -> Estimate:
        """Return the ratio of two that were measured apart; it has an interval where both have one."""
        draws = None if self.draws is None or other.draws is None else self.draws / other.draws
        return Estimate(self.value / other.value, draws, min(self.count, other.count))


def seconds_a_step(row: Row) -> Estimate | None:
    """Return the median seconds of a run's steps; None where it has none.

    Of recorded steps the interval is that of a bootstrap of the median. Where only percentiles were kept it comes from
    those, as if steps were log-normal. Of a prediction it is the prediction's own.
    """
    rng = np.random.default_rng(zlib.crc32(row.id.encode()))
    steps = row.steps()
    if len(steps):
        return Estimate(float(np.median(steps)), _median_draws(steps, rng) if len(steps) > 1 else None, len(steps))
    kept = row.summary.step_seconds
    if kept is None or not kept.value > 0:
        return None
    if not 0 < kept.low < kept.high:
        return Estimate(kept.value, None, kept.count)
    spread = math.log(kept.high / kept.low) / (2 * _Z)
    if row.provenance != "predicted":
        if kept.count < 2:
            return Estimate(kept.value, None, kept.count)
        spread *= _MEDIAN / math.sqrt(kept.count)
    return Estimate(kept.value, kept.value * np.exp(spread * rng.standard_normal(DRAWS)), kept.count)


def _median_draws(values: Floats, rng: np.random.Generator) -> Floats:
    """Return medians of resamples: the middle one of n drawn is the Beta-th quantile of the n that there are."""
    middle = (len(values) + 1) / 2
    return np.asarray(np.quantile(values, rng.beta(middle, middle, DRAWS)))


def together(estimates: Sequence[Estimate], seed: str = "") -> Estimate:
    """Return the median of repetitions; their interval has both: which of them were run, and which steps they had."""
    if len(estimates) == 1:
        return estimates[0]
    value = float(np.median([one.value for one in estimates]))
    count = sum(one.count for one in estimates)
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    drawn = np.stack([one.draws if one.draws is not None else np.full(DRAWS, one.value) for one in estimates])
    chosen = rng.integers(0, len(estimates), (len(estimates), DRAWS))
    return Estimate(value, np.median(np.take_along_axis(drawn, chosen, axis=0), axis=0), count)
