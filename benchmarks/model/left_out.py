"""Each published or measured figure as predicted from all others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.model.calibration import BUSY, PRIOR_MISFIT, fit_published, published_data, published_fit
from benchmarks.model.fitting import Bound, FitDatum, FitProblem, ParameterFit, Quantity
from benchmarks.model.measured_steps import MEASURED_STEPS
from benchmarks.model.reference_data import NORMAL_90, PARAMETER_NAMES


@dataclass(frozen=True, kw_only=True)
class HeldOutFigure:
    """A published or measured figure beside its prediction from all others.

    Of a step its seconds, of traffic bytes a second, a share, or a ratio of two steps. With a `bound` the published
    figure is one that the true one is below or above; `error` is relative.
    """

    name: str
    published: float
    predicted: float
    low: float
    high: float
    quantity: Quantity
    is_ratio: bool
    bound: Bound
    is_measured: bool  # by the project itself

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1

    @property
    def inside(self) -> bool:
        """Whether the 90 % interval holds the figure, or the prediction is on the stated side of a bound."""
        if self.bound:
            return self.predicted < self.published if self.bound == "<" else self.predicted > self.published
        return self.low <= self.published <= self.high

    @property
    def is_step(self) -> bool:
        return self.quantity == "step" and not self.is_ratio


@cache
def leave_one_out() -> tuple[HeldOutFigure, ...]:
    """Return each figure as predicted by a fit to all others; of a measured run both figures are left out together."""
    data = published_data()
    return tuple(
        _held_out_figure(datum, fit_published([other for other in data if _run(other) != _run(datum)], published_fit()))
        for datum in data
    )


def _run(datum: FitDatum) -> str:
    return datum.name.removesuffix(BUSY)


def _held_out_figure(datum: FitDatum, fit: ParameterFit) -> HeldOutFigure:
    problem, size = FitProblem([datum], len(PARAMETER_NAMES)), len(PARAMETER_NAMES)
    extra = len(problem.effects)
    state, covariance = np.zeros(size + extra), np.zeros((size + extra, size + extra))
    chosen = [*range(size)]
    if datum.effect in fit.effects:  # other rates of its row determine the deviation of that source
        chosen.append(size + fit.effects.index(datum.effect))
    elif extra:
        covariance[size, size] = datum.effect_spread**2
    state[: len(chosen)] = fit.mean[chosen]
    covariance[: len(chosen), : len(chosen)] = fit.covariance[np.ix_(chosen, chosen)]
    slope = problem.derivatives(state)[0]
    own = float(problem.misfits(PRIOR_MISFIT)[0])
    spread = math.sqrt(float(slope @ covariance @ slope) + datum.spread**2 + own**2)
    log_value = float(problem.log_values(state[None])[0, 0])
    return HeldOutFigure(
        name=datum.name,
        published=math.exp(datum.log_value),
        predicted=math.exp(log_value),
        low=math.exp(log_value - NORMAL_90 * spread),
        high=math.exp(log_value + NORMAL_90 * spread),
        quantity=datum.quantity,
        is_ratio=datum.over is not None,
        bound=datum.bound,
        is_measured=_run(datum) in {step.name for step in MEASURED_STEPS},
    )


def median_error(found: tuple[HeldOutFigure, ...], *, measured: bool = False) -> float:
    """Return the median of the relative errors of published step times, or `measured` ones, without sign."""
    return float(np.median([abs(one.error) for one in found if one.is_step and one.is_measured == measured]))


def scaling_errors(found: tuple[HeldOutFigure, ...]) -> dict[str, float]:
    """Return the relative errors of eight devices' rates against one's, by row; the rate of eight is left out."""
    by_name = {one.name: one for one in found}
    return {
        name.removesuffix(", 8 GPUs"): one.published / one.predicted - 1
        for name, one in by_name.items()
        if name.endswith(", 8 GPUs") and name.replace("8 GPUs", "1 GPU") in by_name
    }
