"""Which candidate is best, how sure that is, and which run would tell: pure arithmetic on draws.

A matrix of costs has a row a draw and a column a candidate; less is better. Regret is what a choice costs more than
the best one of the same draw, as a share of the best one's cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# The first is recommended where with this probability no other one would save more than that.
SURE: Final = 0.8
TOLERATED: Final = 0.03
# Of those whose expected regret is within this of the least, the simplest comes first.
NEGLIGIBLE: Final = 0.0005
# Runs that are weighed as deciding ones, and draws that are taken for the truth then.
# A run is proposed where it is expected to leave at most this part of the regret.
WORTH: Final = 0.9
WEIGHED: Final = 12
TRUTHS: Final = 256
# The relative spread that a run's median is expected to have.
SPREAD: Final = 0.02


@dataclass(frozen=True)
class Ranking:
    """Candidates by position, best first; by candidate the `probability` of being best, that of being `near` the best
    (no other one saves more than TOLERATED), and the expected `regret`.
    """

    order: tuple[int, ...]
    probability: Array
    near: Array
    regret: Array

    @property
    def first(self) -> int:
        """The candidate whose regret is expected to be least."""
        return self.order[0]

    @property
    def is_decided(self) -> bool:
        """Whether the first is best beyond doubt, or what the doubt is about does not matter."""
        return bool(self.near[self.first] >= SURE)


@dataclass(frozen=True)
class Deciding:
    """The run that is expected to lower the regret of the choice most: from `before` to `after`."""

    candidate: int
    before: float
    after: float


def ranked(costs: Array, effort: Sequence[tuple[int, ...]] = ()) -> Ranking:
    """Return the ranking of candidates, one column each; raises ValueError where there is none.

    `effort` of each is what it takes besides: of those that are as good the one that takes least comes first.
    """
    if costs.size == 0:
        raise ValueError("There is nothing to rank.")
    relative = costs / costs.min(axis=1, keepdims=True) - 1.0
    regret = relative.mean(axis=0)
    winners = np.bincount(costs.argmin(axis=1), minlength=costs.shape[1])
    probability = winners / costs.shape[0]
    # Of two with the same regret the one that is best more often, then the one that came first.
    order = [int(one) for one in np.lexsort((-probability, regret))]
    if effort:
        as_good = [one for one in order if regret[one] <= regret[order[0]] + NEGLIGIBLE]
        simplest = min(as_good, key=lambda one: (effort[one], regret[one]))
        order.remove(simplest)
        order.insert(0, simplest)
    return Ranking(tuple(order), probability, (relative <= TOLERATED).mean(axis=0), regret)


def deciding_run(costs: Array, steps: Array, ranking: Ranking, *, skip: Sequence[int] = ()) -> Deciding | None:
    """Return the run worth most; None where the choice is made, and none is expected to change it for the better.

    `steps` are seconds of a step, by draw and candidate: what the run would measure. Each of some draws is taken for
    the truth; the others are weighed by how well they agree with what would be measured then, and the choice is made
    anew. Candidates in `skip` were run already.
    """
    known = set(skip)
    # Whoever may well be best is worth a look, however bad it may turn out; the first of the order besides.
    likely = sorted((one for one in ranking.order if one not in known), key=lambda one: -ranking.probability[one])
    first = [one for one in ranking.order if one not in known][: WEIGHED // 3]
    asked = list(dict.fromkeys([*first, *likely]))[:WEIGHED]
    if not asked or costs.shape[0] < 2 or ranking.regret[ranking.first] <= 0.0:
        return None
    # Who is never best in any draw, and not near it, is chosen after no run.
    contenders = np.array(list(dict.fromkeys([*ranking.order[:100], *asked])))
    relative = costs[:, contenders] / costs.min(axis=1, keepdims=True) - 1.0
    before = float(relative.mean(axis=0).min())
    logs = np.log(steps)
    truths = np.linspace(0, costs.shape[0] - 1, min(TRUTHS, costs.shape[0])).astype(int)
    noise = np.random.default_rng(7).normal(0.0, SPREAD, len(truths))
    found: Deciding | None = None
    for one in asked:
        seen = logs[truths, one] + noise
        weights = np.exp(-0.5 * ((logs[:, one][None, :] - seen[:, None]) / SPREAD) ** 2)
        weights[np.arange(len(truths)), truths] = 0.0  # the truth itself is not known to who chooses
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 1e-9, weights / np.maximum(total, 1e-300), 1.0 / costs.shape[0])
        choice = (weights @ relative).argmin(axis=1)
        after = float(relative[truths, choice].mean())
        # The same truths without the run: what the sample of truths is worth by itself must not count.
        base = float(relative[truths, int(relative.mean(axis=0).argmin())].mean())
        after = before * after / base if base > 0.0 else before
        if after < before and (found is None or after < found.after):
            found = Deciding(one, before, after)
    # What a handful of draws makes of noise is no reason to run anything.
    if ranking.is_decided:
        return found if found is not None and found.after <= WORTH * found.before else None
    return found or Deciding(likely[0], before, before)


def interval(values: Array, *, probability: float = 0.9) -> tuple[float, float, float]:
    """Return the median of draws, and between what ends it lies with the probability."""
    tail = (1.0 - probability) / 2
    low, middle, high = np.quantile(values, (tail, 0.5, 1.0 - tail))
    return float(middle), float(low), float(high)
