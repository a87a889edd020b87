"""How far the model is off on the published figures: each is left out, and predicted from the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.model.fitting import Datum, Fit, Problem
from benchmarks.model.parameters import NAMES
from benchmarks.model.prior import MISFIT, fit_public, public_data

NORMAL_90 = 1.645  # standard deviations to either side that hold 90 %


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A published figure beside its prediction from all others; seconds a step, or bytes a second of traffic.

    `error` is relative, `inside` says whether the 90 % interval holds the figure.
    """

    name: str
    published: float
    predicted: float
    low: float
    high: float
    is_traffic: bool

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.published <= self.high


@cache
def leave_one_out() -> tuple[LeftOut, ...]:
    """Return each published figure as predicted by a fit to all others."""
    data = public_data()
    return tuple(_left_out(datum, fit_public([other for other in data if other is not datum])) for datum in data)


def _left_out(datum: Datum, fit: Fit) -> LeftOut:
    problem, size = Problem([datum], len(NAMES)), len(NAMES)
    state, covariance = np.zeros(size + 1), np.zeros((size + 1, size + 1))
    chosen = [*range(size)]
    if datum.effect in fit.effects:  # others of its row are known, and say how that source differs
        chosen.append(size + fit.effects.index(datum.effect))
    else:
        covariance[size, size] = datum.effect_spread**2
    state[: len(chosen)] = fit.mean[chosen]
    covariance[: len(chosen), : len(chosen)] = fit.covariance[np.ix_(chosen, chosen)]
    slope = problem.derivatives(state)[0]
    spread = math.sqrt(float(slope @ covariance @ slope) + datum.spread**2 + MISFIT**2)
    said = float(problem.said(state[None])[0, 0])
    return LeftOut(
        name=datum.name,
        published=math.exp(datum.log_value),
        predicted=math.exp(said),
        low=math.exp(said - NORMAL_90 * spread),
        high=math.exp(said + NORMAL_90 * spread),
        is_traffic=datum.is_traffic,
    )


def median_error(found: tuple[LeftOut, ...]) -> float:
    """Return the median of the relative errors without sign."""
    return float(np.median([abs(one.error) for one in found]))
