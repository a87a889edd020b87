"""Beliefs about the parameters: draws of them, and their fit to data.

All values are logarithms, so that errors are relative. Derivatives are differences from one evaluation of the formula
with a draw per parameter.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from benchmarks.model.features import Features, ModelError, feature_columns, features_of, is_link_workload
from benchmarks.model.reference_data import Floats
from benchmarks.model.step_time import counted_traffic, link_seconds, step_times
from benchmarks.model.topology import LOCAL, Topology
from core.language import _
from hostwire.training import Spec

Cell = tuple[Spec, Topology]
MIN_STEP_SECONDS = 1e-9  # s, of a step
# The formula's error that all topologies of one spec share; the error of each cell is Belief.misfit.
SHARED_MISFIT = 0.06
# The share of the variance of a cell's own error that is common to topologies that differ in storage alone.
STORAGE_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class CellMeasurement:
    """A cell's measurement: the logarithm of its step in seconds, its standard deviation, and its number of runs."""

    log_seconds: float
    spread: float
    runs: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """Mean and covariance of the logarithms of PARAMETERS after `runs` (observations by workload).

    The parameters are followed by the formula's errors for the measured `specs` (by hash). `misfit` is the remaining
    relative error of a cell, known with `freedom` degrees of freedom; `measured` has the measured cells, by `cell_key`.
    """

    mean: Floats
    covariance: Floats
    misfit: float
    freedom: float
    specs: Mapping[str, int] = field(default_factory=dict)  # hash to column
    runs: Mapping[str, int] = field(default_factory=dict)
    measured: Mapping[str, CellMeasurement] = field(default_factory=dict)

    def draws(self, count: int = 400, seed: int = 0) -> Draws:
        """Return draws of the parameters and of the misfit's size; the same seed gives the same."""
        return _draws(self, count, seed)

    def centre(self) -> Draws:
        """Return the mean as the only draw, its misfit zero: for a quick look at many cells."""
        return Draws(belief=self, logs=self.mean[None], misfit=np.zeros(1), seed=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Draws of a belief: logarithms of parameters, one draw a row, and the size of the misfit of each."""

    belief: Belief
    logs: Floats
    misfit: Floats
    seed: int


@lru_cache(maxsize=16)
def _draws(belief: Belief, count: int, seed: int) -> Draws:
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(belief.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    logs = belief.mean + random.standard_normal((count, len(belief.mean))) @ root.T
    sizes = belief.misfit * np.sqrt(belief.freedom / random.chisquare(belief.freedom, count))
    return Draws(belief=belief, logs=logs, misfit=sizes, seed=seed)


def topology_key(topology: Topology, *, storage: bool = True) -> str:
    """Return the key of a topology, independent of hosts, devices and the names of places.

    Without `storage`, the key is also independent of the drive.
    """
    places = {device.place for device in topology.accelerators} | ({topology.storage.place} if storage else set())
    kinds = []
    for place in sorted(places):
        inside = Counter((device.model, device.link) for device in topology.accelerators if device.place == place)
        uplink = topology.uplinks.get(place) if place != LOCAL else None
        drive = (topology.storage.model, topology.storage.link) if storage and topology.storage.place == place else None
        members = sorted((model, link.lanes, link.generation, count) for (model, link), count in inside.items())
        kinds.append(repr((place == LOCAL, members, uplink, drive)))
    order = [device.place == LOCAL for device in topology.accelerators]
    return repr((sorted(kinds), order, topology.cores, topology.memory_bytes, topology.local_fabric))


def cell_key(spec: Spec, topology: Topology) -> str:
    """Return the key that is shared by repetitions of a run: a digest of the spec's hash and the topology's key."""
    return hashlib.sha256((spec.hash + topology_key(topology)).encode()).hexdigest()


def step_seconds(draws: Draws, cells: Sequence[Cell], *, misfit: bool = True) -> Floats:
    """Return the seconds of a step, draws by cells. Raises ModelError for an impossible cell.

    With `misfit` each cell has its own error of the formula, deterministic for a cell and seed. Without it that error
    is zero, or known from runs, so that medians do not scatter between cells. A measured cell is drawn towards its
    measurement.
    """
    if not cells:
        return np.zeros((len(draws.logs), 0))
    return apply_misfit(draws, cells, formula_seconds(draws, cells), scatter=misfit)


def formula_seconds(draws: Draws, cells: Sequence[Cell]) -> Floats:
    """Return the seconds of a step by the formula alone, draws by cells."""
    if any(spec.hosts > 1 for spec, _topology in cells):
        raise ModelError(_("There is no model of the network between hosts: a run over several has no prediction."))
    found = np.zeros((len(draws.logs), len(cells)))
    training = [index for index, (spec, _topology) in enumerate(cells) if not is_link_workload(spec)]
    if training:
        found[:, training] = step_times(
            draws.logs, feature_columns([features_of(*cells[index]) for index in training])
        ).step
    for index, (spec, topology) in enumerate(cells):
        if is_link_workload(spec):
            found[:, index] = link_seconds(draws.logs, spec, topology)
    return found


def apply_misfit(draws: Draws, cells: Sequence[Cell], found: Floats, *, scatter: bool = True) -> Floats:
    """Return steps of the formula with the misfit of each cell, given its measurements."""
    logs = np.log(np.maximum(found, MIN_STEP_SECONDS))
    belief = draws.belief
    for column, (spec, topology) in enumerate(cells):
        if not scatter and not belief.measured:
            break
        identity, key = spec.hash, cell_key(spec, topology)
        shared, measured = belief.specs.get(identity), belief.measured.get(key)
        if shared is not None:
            logs[:, column] += draws.logs[:, shared]
        elif scatter:
            logs[:, column] += SHARED_MISFIT * _normal_draws(draws, identity)
        if measured is not None:
            weight = belief.misfit**2 / (belief.misfit**2 + measured.spread**2)
            logs[:, column] += weight * (measured.log_seconds - logs[:, column])
            if scatter:
                logs[:, column] += np.sqrt(weight) * measured.spread * _normal_draws(draws, key)
        elif scatter:
            elsewhere = identity + topology_key(topology, storage=False)
            own = STORAGE_SHARE**0.5 * _normal_draws(draws, elsewhere) + (1 - STORAGE_SHARE) ** 0.5 * _normal_draws(
                draws, key
            )
            logs[:, column] += draws.misfit * own
    found_again: Floats = np.exp(logs)
    return found_again


def _normal_draws(draws: Draws, name: str) -> Floats:
    """Return normal draws that are the same for the same name and seed."""
    random = np.random.Generator(np.random.Philox(key=[draws.seed, zlib.crc32(name.encode())]))
    return random.standard_normal(len(draws.logs))


FINITE_DIFFERENCE = 1e-4
STUDENT_T_FREEDOM = (
    4.0  # degrees of freedom of an error: heavier tails than a normal one, so that an outlier pulls less
)
FIT_ITERATIONS = 3  # of weights and size of misfit
MIN_MISFIT, MAX_MISFIT = 0.02, 0.6


@dataclass(frozen=True, kw_only=True)
class FitDatum:
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
        self._columns = feature_columns([datum.features for datum in data])
        self._traffic = np.array([datum.is_traffic for datum in data])
        self._shared = np.zeros((len(data), len(self.effects)))
        for row, datum in enumerate(data):
            if datum.effect:
                self._shared[row, self.effects.index(datum.effect)] = 1.0

    def log_values(self, states: Floats) -> Floats:
        """Return the logarithms by the formula, states by data."""
        logs = states[:, : self.size]
        step = step_times(logs, self._columns).step
        found = np.log(np.where(self._traffic, counted_traffic(logs, self._columns, step), step))
        shared = states[:, self.size :] @ self._shared.T
        answer: Floats = found + np.where(self._traffic, -shared, shared)
        return answer

    def derivatives(self, state: Floats) -> Floats:
        """Return the derivatives by the state: data by parameters."""
        moves = FINITE_DIFFERENCE * np.eye(self.size, len(state))
        both = self.log_values(np.concatenate([state + moves, state - moves]))
        own = ((both[: self.size] - both[self.size :]) / (2 * FINITE_DIFFERENCE)).T
        return np.concatenate([own, np.where(self._traffic[:, None], -self._shared, self._shared)], axis=1)


def fit_parameters(
    data: Sequence[FitDatum], mean: Floats, covariance: Floats, *, misfit: float, freedom: float, learn: bool = True
) -> ParameterFit:
    """Return the fit of data to a normal belief of the parameters.

    `misfit` with `freedom` degrees of freedom is the prior of the formula's relative error, beyond each datum's own;
    with `learn` the residuals update it.
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
    weights = np.ones(len(data))
    jacobian = problem.derivatives(state)
    for _round in range(FIT_ITERATIONS if learn else 1):
        scale = np.sqrt(weights) / np.sqrt(problem.spreads**2 + size**2)

        def residuals(at: Floats, scale: Floats = scale) -> Floats:
            return np.concatenate([(problem.log_values(at[None])[0] - problem.values) * scale, root @ (at - start)])

        def slopes(at: Floats, scale: Floats = scale) -> Floats:
            return np.concatenate([problem.derivatives(at) * scale[:, None], root])

        state = least_squares(residuals, state, jac=slopes, method="lm", xtol=1e-5, ftol=1e-6).x
        jacobian = problem.derivatives(state)
        left = problem.log_values(state[None])[0] - problem.values
        total = problem.spreads**2 + size**2
        if not learn:
            break
        weights = (STUDENT_T_FREEDOM + 1) / (STUDENT_T_FREEDOM + left**2 / total)
        away = jacobian @ (state - start) - left
        size, known = _estimate_misfit(away, jacobian, prior, problem.spreads**2 / weights, (misfit, freedom))
    scale = np.sqrt(weights) / np.sqrt(problem.spreads**2 + size**2)
    scaled = jacobian * scale[:, None]
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
