"""Fits the parameters to data: the most probable values (MAP), their covariance (Laplace), and the size of the misfit.

All is in logarithms, so that errors are relative. The derivatives are differences, all of them from one evaluation of
the formula over as many draws as there are parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.model.features import Features, columns
from benchmarks.model.parameters import Floats
from benchmarks.model.step import times, traffic

DIFFERENCE = 1e-4
TAILS = 4.0  # degrees of freedom of an error: heavier tails than a normal one, so that an outlier pulls less
ROUNDS = 3  # of weights and size of misfit
SMALLEST_MISFIT, LARGEST_MISFIT = 0.02, 0.6


@dataclass(frozen=True, kw_only=True)
class Datum:
    """One figure to fit: of a cell's features, the logarithm of its step's seconds or of its traffic in bytes a second.

    `spread` is the relative error of the figure itself; `effect` names what other data share its error with, whose size
    is `effect_spread`.
    """

    features: Features
    log_value: float
    spread: float
    is_traffic: bool = False
    effect: str = ""
    effect_spread: float = 0.0
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The outcome: `mean` and `covariance` of parameters first, then of the shared errors in the order of `effects`."""

    mean: Floats
    covariance: Floats
    effects: tuple[str, ...]
    misfit: float
    freedom: float


class Problem:
    """Data with what the formula says of them, as a function of parameters and shared errors."""

    def __init__(self, data: Sequence[Datum], size: int) -> None:
        """Take data, and how many parameters there are."""
        self.size = size
        self.values = np.array([datum.log_value for datum in data])
        self.spreads = np.array([datum.spread for datum in data])
        self.effects = tuple(sorted({datum.effect for datum in data if datum.effect}))
        self.effect_spreads = np.array(
            [next(datum.effect_spread for datum in data if datum.effect == name) for name in self.effects]
        )
        self._columns = columns([datum.features for datum in data])
        self._traffic = np.array([datum.is_traffic for datum in data])
        self._shared = np.zeros((len(data), len(self.effects)))
        for row, datum in enumerate(data):
            if datum.effect:
                self._shared[row, self.effects.index(datum.effect)] = 1.0

    def said(self, states: Floats) -> Floats:
        """Return the logarithms that the formula says, states by data."""
        logs = states[:, : self.size]
        step = times(logs, self._columns).step
        found = np.log(np.where(self._traffic, traffic(logs, self._columns, step), step))
        shared = states[:, self.size :] @ self._shared.T
        answer: Floats = found + np.where(self._traffic, -shared, shared)
        return answer

    def derivatives(self, state: Floats) -> Floats:
        """Return how what is said changes with the state: data by parameters."""
        moves = DIFFERENCE * np.eye(self.size, len(state))
        both = self.said(np.concatenate([state + moves, state - moves]))
        own = ((both[: self.size] - both[self.size :]) / (2 * DIFFERENCE)).T
        return np.concatenate([own, np.where(self._traffic[:, None], -self._shared, self._shared)], axis=1)


def fitted(
    data: Sequence[Datum], mean: Floats, covariance: Floats, *, misfit: float, freedom: float, learn: bool = True
) -> Fit:
    """Return the fit of data to a normal belief of the parameters.

    `misfit` with `freedom` degrees of freedom is what is believed of the formula's relative error, beyond each datum's
    own; with `learn` the residuals change it.
    """
    # It takes each process a third of a second to import, and few of them fit anything.
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import least_squares

    problem = Problem(data, len(mean))
    start = np.concatenate([mean, np.zeros(len(problem.effects))])
    prior = np.zeros((len(start), len(start)))
    prior[: len(mean), : len(mean)] = covariance
    prior[len(mean) :, len(mean) :] = np.diag(problem.effect_spreads**2)
    precision = cho_solve(cho_factor(prior + 1e-12 * np.eye(len(prior))), np.eye(len(prior)))
    root = np.linalg.cholesky(precision).T
    state, size, known = start, misfit, freedom
    weights = np.ones(len(data))
    jacobian = problem.derivatives(state)
    for _ in range(ROUNDS if learn else 1):
        scale = np.sqrt(weights) / np.sqrt(problem.spreads**2 + size**2)

        def residuals(at: Floats, scale: Floats = scale) -> Floats:
            return np.concatenate([(problem.said(at[None])[0] - problem.values) * scale, root @ (at - start)])

        def slopes(at: Floats, scale: Floats = scale) -> Floats:
            return np.concatenate([problem.derivatives(at) * scale[:, None], root])

        state = least_squares(residuals, state, jac=slopes, method="lm", xtol=1e-5, ftol=1e-6).x
        jacobian = problem.derivatives(state)
        left = problem.said(state[None])[0] - problem.values
        total = problem.spreads**2 + size**2
        if not learn:
            break
        weights = (TAILS + 1) / (TAILS + left**2 / total)
        away = jacobian @ (state - start) - left
        size, known = _misfit(away, jacobian, prior, problem.spreads**2 / weights, (misfit, freedom))
    scale = np.sqrt(weights) / np.sqrt(problem.spreads**2 + size**2)
    scaled = jacobian * scale[:, None]
    posterior = np.linalg.inv(precision + scaled.T @ scaled)
    return Fit(
        mean=state,
        covariance=(posterior + posterior.T) / 2,
        effects=problem.effects,
        misfit=size,
        freedom=known,
    )


def _misfit(
    away: Floats, jacobian: Floats, covariance: Floats, own: Floats, believed: tuple[float, float]
) -> tuple[float, float]:
    """Return the most probable size of the misfit and its degrees of freedom.

    `away` is how far data lie from what is said before any of them, in the straight line through the fit, and `own` the
    variances of the data themselves: parameters that the data bent hide nothing, since they are integrated out.
    """
    misfit, freedom = believed
    known = jacobian @ covariance @ jacobian.T
    sizes = np.geomspace(SMALLEST_MISFIT, LARGEST_MISFIT, 40)
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
