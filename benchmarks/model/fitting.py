"""The fit of the parameters to data: steps, traffic, ratios of steps, and shares that meters read; also bounds of them.

All values are logarithms, so that errors are relative. Derivatives are differences from one evaluation of the formula
with a draw per parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from benchmarks.model.features import Features, feature_columns
from benchmarks.model.meter import meter_readings
from benchmarks.model.reference_data import Floats
from benchmarks.model.step_time import counted_traffic, step_times

FINITE_DIFFERENCE = 1e-4
STUDENT_T_FREEDOM = (
    4.0  # degrees of freedom of an error: heavier tails than a normal one, so that an outlier pulls less
)
FIT_ITERATIONS = 3  # of weights and size of misfit
MIN_MISFIT, MAX_MISFIT = 0.02, 0.6


# Seconds of a step, bytes a second of traffic, shares of a step.
Quantity = Literal["step", "traffic", "utilisation", "cpu"]
Bound = Literal["", "<", ">"]
MIN_SHARE = 1e-6
RATIO_SHARE = 0.5  # of the formula's error, in a ratio of two cells of one workload


@dataclass(frozen=True, kw_only=True)
class FitDatum:
    """One figure to fit: the logarithm of a quantity of a cell, or of its ratio to that of the cell `over`.

    `spread` is the relative error of the figure itself; `effect` names what other data share its error with, whose size
    is `effect_spread`. With a `bound` it is known only that the quantity is below ('<') or above ('>') the value, which
    itself is uncertain by `spread`.
    """

    features: Features
    log_value: float
    spread: float
    quantity: Quantity = "step"
    over: Features | None = None
    bound: Bound = ""
    effect: str = ""
    effect_spread: float = 0.0
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class ParameterFit:
    """The outcome: `mean` and `covariance` of parameters first, then of the shared errors in the order of `effects`."""

    mean: Floats
    covariance: Floats
    effects: tuple[str, ...]
    misfit: float
    freedom: float


class FitProblem:
    """Data with their values by the formula, as a function of parameters and shared errors."""

    def __init__(self, data: Sequence[FitDatum], size: int) -> None:
        self.size = size
        self.values = np.array([datum.log_value for datum in data])
        self.spreads = np.array([datum.spread for datum in data])
        self.effects = tuple(sorted({datum.effect for datum in data if datum.effect}))
        self.effect_spreads = np.array(
            [next(datum.effect_spread for datum in data if datum.effect == name) for name in self.effects]
        )
        self.sides = np.array([{"": 0.0, "<": 1.0, ">": -1.0}[datum.bound] for datum in data])
        ratios = [datum.over is not None for datum in data]
        self._columns = feature_columns([datum.features for datum in data])
        self._over = feature_columns([datum.over for datum in data if datum.over is not None])
        self._ratios = np.flatnonzero(ratios)
        self._of = {name: np.flatnonzero([datum.quantity == name for datum in data]) for name in get_args(Quantity)}
        self._shared = np.zeros((len(data), len(self.effects)))
        for row, datum in enumerate(data):
            if datum.effect:
                # What is slower by a source's software has less traffic, too.
                self._shared[row, self.effects.index(datum.effect)] = -1.0 if datum.quantity == "traffic" else 1.0

    def log_values(self, states: Floats) -> Floats:
        """Return the logarithms by the formula, states by data."""
        logs = states[:, : self.size]
        times = step_times(logs, self._columns)
        found = np.log(times.step)
        if len(chosen := self._of["traffic"]):
            found[:, chosen] = np.log(counted_traffic(logs, self._columns, times.step)[:, chosen])
        if len(self._of["utilisation"]) or len(self._of["cpu"]):
            read = meter_readings(times, self._columns)
            for name, share in (("utilisation", read.utilisation), ("cpu", read.cpu_share)):
                found[:, self._of[name]] = np.log(np.maximum(share, MIN_SHARE))[:, self._of[name]]
        if len(self._ratios):
            found[:, self._ratios] -= np.log(step_times(logs, self._over).step)
        answer: Floats = found + states[:, self.size :] @ self._shared.T
        return answer

    def misfits(self, size: float) -> Floats:
        """Return the formula's own error of each datum: a ratio has less, as cells share some; a bound has none."""
        found = np.where(self.sides, 0.0, size)
        found[self._ratios] *= RATIO_SHARE
        return found

    def misses(self, found: Floats, totals: Floats) -> tuple[Floats, Floats]:
        """Return the misfit of each datum in standard deviations, and its derivative by the found logarithm.

        A bound misses by the root of twice the negative logarithm of the probability that it holds.
        """
        from scipy.special import log_ndtr

        scaled = (found - self.values) / totals
        within = log_ndtr(-self.sides * scaled)
        missed = np.sqrt(-2 * within) + 1e-9
        slope = self.sides * np.exp(-(scaled**2) / 2 - math.log(2 * math.pi) / 2 - within) / missed
        bounded = self.sides != 0
        return np.where(bounded, missed, scaled), np.where(bounded, slope, 1.0) / totals

    def derivatives(self, state: Floats) -> Floats:
        """Return the derivatives by the state: data by parameters."""
        moves = FINITE_DIFFERENCE * np.eye(self.size, len(state))
        both = self.log_values(np.concatenate([state + moves, state - moves]))
        own = ((both[: self.size] - both[self.size :]) / (2 * FINITE_DIFFERENCE)).T
        return np.concatenate([own, self._shared], axis=1)


def fit_parameters(
    data: Sequence[FitDatum],
    mean: Floats,
    covariance: Floats,
    *,
    misfit: float,
    freedom: float,
    learn: bool = True,
    near: ParameterFit | None = None,
) -> ParameterFit:
    """Return the fit of data to a normal belief of the parameters.

    `misfit` with `freedom` degrees of freedom is the prior of the formula's relative error, beyond each datum's own;
    with `learn` the residuals update it. `near` is a fit to almost the same data, where the search begins.
    """
    # It takes each process a third of a second to import, and few of them fit anything.
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import least_squares

    problem = FitProblem(data, len(mean))
    start = np.concatenate([mean, np.zeros(len(problem.effects))])
    prior = np.zeros((len(start), len(start)))
    prior[: len(mean), : len(mean)] = covariance
    prior[len(mean) :, len(mean) :] = np.diag(problem.effect_spreads**2)
    precision = cho_solve(cho_factor(prior + 1e-12 * np.eye(len(prior))), np.eye(len(prior)))
    root = np.linalg.cholesky(precision).T
    state, size, known = start, misfit, freedom
    if near is not None:
        shared = dict(zip(near.effects, near.mean[len(mean) :], strict=True))
        state = np.concatenate([near.mean[: len(mean)], [shared.get(name, 0.0) for name in problem.effects]])
    weights = np.ones(len(data))
    jacobian = problem.derivatives(state)
    for _round in range(FIT_ITERATIONS if learn else 1):
        totals = np.sqrt((problem.spreads**2 + problem.misfits(size) ** 2) / weights)

        def residuals(at: Floats, totals: Floats = totals) -> Floats:
            missed, _slope = problem.misses(problem.log_values(at[None])[0], totals)
            return np.concatenate([missed, root @ (at - start)])

        def slopes(at: Floats, totals: Floats = totals) -> Floats:
            _missed, slope = problem.misses(problem.log_values(at[None])[0], totals)
            return np.concatenate([problem.derivatives(at) * slope[:, None], root])

        state = least_squares(residuals, state, jac=slopes, method="lm", xtol=1e-5, ftol=1e-6).x
        jacobian = problem.derivatives(state)
        left = problem.log_values(state[None])[0] - problem.values
        total = problem.spreads**2 + size**2
        if not learn:
            break
        weights = (STUDENT_T_FREEDOM + 1) / (STUDENT_T_FREEDOM + left**2 / total)
        away = jacobian @ (state - start) - left
        size, known = _estimate_misfit(away, jacobian, prior, problem.spreads**2 / weights, (misfit, freedom))
    totals = np.sqrt((problem.spreads**2 + problem.misfits(size) ** 2) / weights)
    scaled = jacobian * problem.misses(problem.log_values(state[None])[0], totals)[1][:, None]
    posterior = np.linalg.inv(precision + scaled.T @ scaled)
    return ParameterFit(
        mean=state,
        covariance=(posterior + posterior.T) / 2,
        effects=problem.effects,
        misfit=size,
        freedom=known,
    )


def _estimate_misfit(
    away: Floats, jacobian: Floats, covariance: Floats, own: Floats, believed: tuple[float, float]
) -> tuple[float, float]:
    """Return the most probable size of the misfit and its degrees of freedom.

    `away` is the distance of data from the prior's values, linearised at the fit, and `own` the variances of the data
    themselves. The parameters are integrated out, so that fitting them to the data does not hide the misfit.
    """
    misfit, freedom = believed
    known = jacobian @ covariance @ jacobian.T
    sizes = np.geomspace(MIN_MISFIT, MAX_MISFIT, 40)
    chances = np.zeros(len(sizes))
    for index, size in enumerate(sizes):
        factor = np.linalg.cholesky(known + np.diag(own + size**2))
        scaled = np.linalg.solve(factor, away)
        chances[index] = -np.log(np.diag(factor)).sum() - scaled @ scaled / 2
        chances[index] -= freedom * (math.log(size) + misfit**2 / size**2 / 2)
    best = float(sizes[np.argmax(chances)])
    total = own + best**2
    taken = np.diag(known @ np.linalg.inv(known + np.diag(total)))
    return best, freedom + float(np.sum(np.clip(1 - taken, 0.0, 1.0) * best**2 / total))
