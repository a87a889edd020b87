"""Candidates evaluated and ranked, the covariance between alike cells, and the deciding run.

A matrix of costs has a row per draw and a column per candidate; less is better. Regret is the extra cost of a choice
over the best one of the same draw, as a share of the best one's cost.

A cell is a specification on a topology. The logarithm of the real step time over the model's is a Gaussian process
over cells whose covariance falls with their distance; draws of it, conditioned on measurements, are added to the draws
of the model. The posterior of a measured cell is its measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.model import Belief
from benchmarks.model.belief import SHARED_MISFIT, formula_seconds
from benchmarks.model.calibration import Observation
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.recommend.candidates import Array, RunCandidate, StepSeconds, ranking_costs, within_constraints
from benchmarks.recommend.request import RecommendationRequest
from hostwire.training import Spec

# The first is recommended if, with this probability, no other one saves more than TOLERATED_REGRET.
DECISION_CONFIDENCE: Final = 0.8
TOLERATED_REGRET: Final = 0.03
# Among candidates whose expected regret is within this of the least, the simplest comes first; so it does within
# UNCERTAIN_REGRET if it is not worse with a probability that leaves the sign of the difference open.
NEGLIGIBLE_REGRET: Final = 0.0005
UNCERTAIN_REGRET: Final = 0.005
# Candidate runs that are evaluated as deciding runs, and draws that are taken as the truth.
# A run is proposed if it is expected to leave at most this part of the regret.
MAX_REMAINING_REGRET: Final = 0.9
MAX_PROPOSED_RUNS: Final = 12
MAX_TRUTHS: Final = 256
# The relative spread that a run's median is expected to have.
RUN_SPREAD: Final = 0.02
TAIL: Final = (1.0 - 0.9) / 2  # on each side of a 90 % interval
DRAW_SEED: Final = 1


@dataclass(frozen=True)
class Ranking:
    """Candidates by position, best first; by candidate the `probability` of being best, that of being `near` the best
    (no other one saves more than TOLERATED_REGRET), and the expected `regret`.
    """

    order: tuple[int, ...]
    probability: Array
    near: Array
    regret: Array

    @property
    def first(self) -> int:
        """The candidate with the least expected regret."""
        return self.order[0]

    @property
    def is_decided(self) -> bool:
        """Whether the first is within TOLERATED_REGRET of the best with sufficient probability."""
        return bool(self.near[self.first] >= DECISION_CONFIDENCE)


@dataclass(frozen=True)
class DecidingCandidate:
    """The run that is expected to lower the regret of the choice most: from `before` to `after`."""

    candidate: int
    before: float
    after: float


def rank_candidates(costs: Array, effort: Sequence[tuple[float, ...]] = ()) -> Ranking:
    """Return the ranking of candidates, one column each; raises ValueError without any.

    `effort` is a sort key for each: among equally good candidates the one with the least effort comes first.
    """
    if costs.size == 0:
        raise ValueError("There is nothing to rank.")
    relative = costs / costs.min(axis=1, keepdims=True) - 1.0
    regret = relative.mean(axis=0)
    winners = np.bincount(costs.argmin(axis=1), minlength=costs.shape[1])
    probability = winners / costs.shape[0]
    # For equal regret, the one that is best more often comes first, then the earlier one.
    order = [int(one) for one in np.lexsort((-probability, regret))]
    if effort:
        as_good = [one for one in order if regret[one] <= regret[order[0]] + NEGLIGIBLE_REGRET]
        near = [one for one in order if regret[one] <= regret[order[0]] + UNCERTAIN_REGRET]
        gains = relative[:, near] - relative[:, order[:1]]
        as_good += [one for one, gain in zip(near, gains.T, strict=True) if np.quantile(gain, TAIL) < 0.0]
        simplest = min(as_good, key=lambda one: (effort[one], regret[one]))
        order.remove(simplest)
        order.insert(0, simplest)
    return Ranking(tuple(order), probability, (relative <= TOLERATED_REGRET).mean(axis=0), regret)


def find_deciding_run(
    costs: Array, steps: Array, ranking: Ranking, *, skip: Sequence[int] = ()
) -> DecidingCandidate | None:
    """Return the run that lowers the expected regret most; None if none is expected to improve the choice.

    `steps` are seconds of a step, by draw and candidate: the possible measurements. Each of a sample of draws is taken
    as the truth; the others are weighted by their agreement with the simulated measurement, and the choice is repeated.
    Candidates in `skip` were run already.
    """
    known = set(skip)
    # Evaluate candidates that are likely to be best, whatever their regret, and the first of the order.
    likely = sorted((one for one in ranking.order if one not in known), key=lambda one: -ranking.probability[one])
    first = [one for one in ranking.order if one not in known][: MAX_PROPOSED_RUNS // 3]
    proposed = list(dict.fromkeys([*first, *likely]))[:MAX_PROPOSED_RUNS]
    if not proposed or costs.shape[0] < 2 or ranking.regret[ranking.first] <= 0.0:
        return None
    # A candidate that is never best or near it in any draw cannot be chosen after a run.
    contenders = np.array(list(dict.fromkeys([*ranking.order[:100], *proposed])))
    relative = costs[:, contenders] / costs.min(axis=1, keepdims=True) - 1.0
    before = float(relative.mean(axis=0).min())
    logs = np.log(steps)
    truths = np.linspace(0, costs.shape[0] - 1, min(MAX_TRUTHS, costs.shape[0])).astype(int)
    noise = np.random.default_rng(7).normal(0.0, RUN_SPREAD, len(truths))
    found: DecidingCandidate | None = None
    for one in proposed:
        seen = logs[truths, one] + noise
        weights = np.exp(-0.5 * ((logs[:, one][None, :] - seen[:, None]) / RUN_SPREAD) ** 2)
        weights[np.arange(len(truths)), truths] = 0.0  # the choice must not use the true draw itself
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 1e-9, weights / np.maximum(total, 1e-300), 1.0 / costs.shape[0])
        choice = (weights @ relative).argmin(axis=1)
        after = float(relative[truths, choice].mean())
        # The same truths without the run: excludes the effect of sampling the truths.
        base = float(relative[truths, int(relative.mean(axis=0).argmin())].mean())
        after = before * after / base if base > 0.0 else before
        if after < before and (found is None or after < found.after):
            found = DecidingCandidate(one, before, after)
    # Ignore an improvement within the noise of few draws.
    if ranking.is_decided:
        return found if found is not None and found.after <= MAX_REMAINING_REGRET * found.before else None
    return found or DecidingCandidate(likely[0], before, before)


def median_interval(values: Array) -> tuple[float, float, float]:
    """Return the median of draws and the ends of their 90 % interval."""
    low, middle, high = np.quantile(values, (TAIL, 0.5, 1.0 - TAIL))
    return float(middle), float(low), float(high)


# Distance of cells that differ in a category, or by a doubling of a size; at 1 the covariance is down to 37 %.
CATEGORY_DISTANCES: Final = (1.5, 0.4, 0.4, 0.4, 0.6, 0.3, 0.2, 0.01)
SIZE_DISTANCES: Final = (0.15, 0.15, 0.1, 0.4, 0.1, 0.3)
MIN_SPREAD: Final = 0.005  # relative spread that a measured median is believed to have at least


@dataclass(frozen=True)
class CellSignature:
    """The features of a cell for comparison: categories and sizes."""

    sorts: tuple[object, ...]
    sizes: tuple[float, ...]


def cell_signature(spec: Spec, topology: Topology) -> CellSignature:
    """Return the features that distinguish a cell from others."""
    gpus = topology.accelerators
    shape: dict[str, dict[tuple[str, int, int], int]] = {}
    for gpu in gpus:
        key = (gpu.model, gpu.link.lanes, gpu.link.generation)
        shape.setdefault(gpu.place, {})[key] = shape.setdefault(gpu.place, {}).get(key, 0) + 1
    places = [place for place in shape if place != LOCAL]
    local = sum(shape.get(LOCAL, {}).values())
    uplinks = [topology.uplinks[place] for place in places if place in topology.uplinks]
    slowest = min((link.lanes * 2.0**link.generation for link in uplinks), default=128.0)
    exact = (
        tuple(sorted(
            (place == LOCAL, tuple(sorted(held.items())),
             (link.lanes, link.generation) if (link := topology.uplinks.get(place)) is not None else ())
            for place, held in shape.items()
        )),
        tuple(sorted(spec.options.items())),
        (spec.gradient, spec.bucket_bytes, spec.accumulation, spec.loader_workers, spec.threads),
    )  # fmt: skip
    storage = (topology.storage.model, topology.storage.place == LOCAL)
    return CellSignature(
        sorts=(
            spec.workload, spec.precision, spec.strategy, spec.compile, frozenset(gpu.model for gpu in gpus),
            storage, topology.local_fabric if local > 1 else "", exact,
        ),
        sizes=(
            math.log2(max(1, len(gpus))), math.log2(spec.batch), float(len(places)), local / max(1, len(gpus)),
            math.log2(slowest), math.log2(max(1, topology.cores)),
        ),
    )  # fmt: skip


def cell_covariance(some: Sequence[CellSignature], others: Sequence[CellSignature]) -> Array:
    """Return the covariance of cells, 1 for identical ones: a row per cell of `some`, a column per other cell."""
    distance = np.zeros((len(some), len(others)))
    for nth, weight in enumerate(CATEGORY_DISTANCES):
        numbers: dict[object, int] = {}
        left, right = (
            np.array([numbers.setdefault(one.sorts[nth], len(numbers)) for one in cells], dtype=int)
            for cells in (some, others)
        )
        distance += weight * (left[:, None] != right[None, :])
    for nth, weight in enumerate(SIZE_DISTANCES):
        left_sizes = np.array([one.sizes[nth] for one in some])
        right_sizes = np.array([one.sizes[nth] for one in others])
        distance += weight * np.abs(left_sizes[:, None] - right_sizes[None, :])
    found: Array = np.exp(-distance)
    return found


@dataclass(frozen=True)
class CellObservation:
    """The measurement of a cell: the logarithm of seconds a step, and its spread."""

    signature: CellSignature
    logarithm: float
    spread: float


def residual_draws(
    cells: Sequence[CellSignature],
    seen: Sequence[CellObservation],
    modelled: Array,
    *,
    draws: int,
    floor: float,
) -> Array:
    """Return draws of the model's error for cells (logarithms), by draw and cell, given the measurements.

    `floor` is its standard deviation before any run, `modelled` are logarithms of the model's step times of the
    measured cells, by draw and cell.
    """
    every = [*cells, *(one.signature for one in seen)]
    count = len(cells)
    whole = floor**2 * cell_covariance(every, every)
    root = np.linalg.cholesky(whole + 1e-8 * floor**2 * np.eye(len(every)))
    random = np.random.default_rng(DRAW_SEED)
    prior = random.standard_normal((draws, len(every))) @ root.T
    if not seen:
        return prior
    spreads = np.array([max(one.spread, MIN_SPREAD) for one in seen])
    measured = np.array([one.logarithm for one in seen])[None, :] + random.standard_normal((draws, len(seen))) * spreads
    residual = measured - modelled - prior[:, count:]
    gain = np.linalg.solve(whole[count:, count:] + np.diag(spreads**2), whole[count:, :count])
    found: Array = prior[:, :count] + residual @ gain
    return found


DRAW_COUNT: Final = 256
MAX_EVALUATED: Final = 200


@dataclass(frozen=True, kw_only=True)
class CandidateEvaluation:
    """Candidates within the limits: seconds and costs by draw and candidate, the ranking, and which were run."""

    candidates: tuple[RunCandidate, ...]
    seconds: StepSeconds
    costs: Array
    ranking: Ranking
    run: tuple[int, ...]
    deciding: DecidingCandidate | None


def evaluate_candidates(
    candidates: Sequence[RunCandidate],
    request: RecommendationRequest,
    belief: Belief,
    alike: Sequence[Observation],
) -> CandidateEvaluation | None:
    """Rank the most promising candidates within the limits; None without any."""
    chosen = promising_candidates(candidates, request, belief)
    seconds = posterior_seconds(chosen, belief, alike)
    kept = within_constraints(chosen, request, seconds)
    if not kept.any():
        return None
    chosen = [one for one, keeps in zip(chosen, kept, strict=True) if keeps]
    seconds = StepSeconds(seconds.step[:, kept], seconds.busy[:, kept])
    costs = ranking_costs(chosen, request, seconds)
    # The effort of a candidate: changes of modes and moved devices, its devices, its power.
    effort = [(*one.layout.changes, one.layout.count, len(one.layout.places), one.watts) for one in chosen]
    ranking = rank_candidates(costs, effort)
    measured = {cell_signature(one.spec, one.topology) for one in alike}
    run = tuple(place for place, one in enumerate(chosen) if cell_signature(one.spec, one.topology) in measured)
    return CandidateEvaluation(
        candidates=tuple(chosen),
        seconds=seconds,
        costs=costs,
        ranking=ranking,
        run=run,
        deciding=find_deciding_run(costs, seconds.step, ranking, skip=run),
    )


def promising_candidates(
    candidates: Sequence[RunCandidate], request: RecommendationRequest, belief: Belief
) -> list[RunCandidate]:
    """Return the candidates for full evaluation: all if they are few, else the best by the belief's centre."""
    every = list(candidates)
    if len(every) <= MAX_EVALUATED:
        return every
    seconds = StepSeconds.of(every, belief.centre())
    order = np.argsort(np.median(ranking_costs(every, request, seconds), axis=0), kind="stable")
    if request.limits.most_seconds is not None or request.limits.most_joules is not None:
        # The cheapest may exceed a limit: candidates within the limits come first.
        kept = within_constraints(every, request, seconds)[order]
        order = np.concatenate([order[kept], order[~kept]])
    # Many differ only in the location of the same devices: the best of each family first, so that none is missed.
    families: dict[object, int] = {}
    for place in order:
        families.setdefault(candidate_family(every[int(place)]), int(place))
    chosen = list(dict.fromkeys([*families.values(), *(int(place) for place in order)]))
    return [every[place] for place in chosen[:MAX_EVALUATED]]


def candidate_family(candidate: RunCandidate) -> object:
    """Return the key of a family: the same numbers of devices by kind, of places, and the same software."""
    layout, spec = candidate.layout, candidate.spec
    places = sum(place.count > 0 for place in layout.places)
    return (frozenset(layout.kinds.items()), layout.local, places, spec.precision, spec.strategy, spec.batch)


def posterior_seconds(
    candidates: Sequence[RunCandidate],
    belief: Belief,
    alike: Sequence[Observation],
    *,
    draws: int = DRAW_COUNT,
) -> StepSeconds:
    """Return seconds of steps by draw and candidate: the model's, corrected by its error learned from runs."""
    drawn = belief.draws(draws, DRAW_SEED)
    seconds = StepSeconds.of(candidates, drawn)
    modelled: NDArray[Any] = np.zeros((draws, 0))
    if alike:
        modelled = np.log(formula_seconds(drawn, [(one.spec, one.topology) for one in alike]))
    rest = residual_draws(
        [cell_signature(one.spec, one.topology) for one in candidates],
        [
            CellObservation(cell_signature(one.spec, one.topology), float(np.log(one.step_seconds)), one.spread)
            for one in alike
        ],
        modelled,
        draws=draws,
        floor=float(np.hypot(belief.misfit, SHARED_MISFIT)),
    )
    return StepSeconds(seconds.step * np.exp(rest), seconds.busy)
