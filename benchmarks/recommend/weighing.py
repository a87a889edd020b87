"""Candidates in numbers: what is believed of each after the runs, and how they rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.model import Belief
from benchmarks.model.belief import SHARED_MISFIT, formula
from benchmarks.model.shapes import Observation
from benchmarks.recommend.candidates import Array, Candidate, Seconds, costs_of, within
from benchmarks.recommend.likeness import Seen, left_out, likeness_of
from benchmarks.recommend.ranking import Deciding, Ranking, deciding_run, ranked
from benchmarks.recommend.request import Asked

DRAWS: Final = 256
CLOSELY: Final = 200


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Candidates that keep the limits: seconds and costs by draw and candidate, the ranking, and which were run."""

    candidates: tuple[Candidate, ...]
    seconds: Seconds
    costs: Array
    ranking: Ranking
    run: tuple[int, ...]
    deciding: Deciding | None


def weigh(
    candidates: Sequence[Candidate],
    asked: Asked,
    belief: Belief,
    alike: Sequence[Observation],
    *,
    seed: int = 1,
    draws: int = DRAWS,
) -> Weighed | None:
    """Return candidates that keep the limits, ranked; None where none does. The most promising are looked at."""
    chosen = promising(candidates, asked, belief)
    seconds = believed(chosen, belief, alike, seed=seed, draws=draws)
    kept = within(chosen, asked, seconds)
    if not kept.any():
        return None
    chosen = [one for one, keeps in zip(chosen, kept, strict=True) if keeps]
    seconds = Seconds(seconds.step[:, kept], seconds.alone[:, kept])
    costs = costs_of(chosen, asked, seconds)
    ranking = ranked(costs, [effort_of(one) for one in chosen])
    measured = {likeness_of(one.spec, one.topology) for one in alike}
    run = tuple(place for place, one in enumerate(chosen) if likeness_of(one.spec, one.topology) in measured)
    return Weighed(
        candidates=tuple(chosen),
        seconds=seconds,
        costs=costs,
        ranking=ranking,
        run=run,
        deciding=deciding_run(costs, seconds.step, ranking, skip=run),
    )


def effort_of(candidate: Candidate) -> tuple[int, ...]:
    """Return what a candidate takes besides its objective: devices, places, modes and steps of a plan to change."""
    layout = candidate.layout
    return (layout.count, len(layout.places), *layout.changes)


def promising(candidates: Sequence[Candidate], asked: Asked, belief: Belief) -> list[Candidate]:
    """Return those that are looked at closely: all where they are few, else the best by the belief's middle."""
    every = list(candidates)
    if len(every) <= CLOSELY:
        return every
    seconds = Seconds.of(every, belief.centre())
    order = np.argsort(np.median(costs_of(every, asked, seconds), axis=0), kind="stable")
    if asked.limits.most_seconds is not None or asked.limits.most_joules is not None:
        # The cheapest may be over the limit: those that keep it come first.
        kept = within(every, asked, seconds)[order]
        order = np.concatenate([order[kept], order[~kept]])
    # Many differ in little but where the same devices are: the best of each family first, so that none is missed.
    families: dict[object, int] = {}
    for place in order:
        families.setdefault(family_of(every[int(place)]), int(place))
    chosen = list(dict.fromkeys([*families.values(), *(int(place) for place in order)]))
    return [every[place] for place in chosen[:CLOSELY]]


def family_of(candidate: Candidate) -> object:
    """Return what candidates share that use as many devices of the same kinds, in as many places, with one software."""
    layout, spec = candidate.layout, candidate.spec
    places = sum(place.count > 0 for place in layout.places)
    return (frozenset(layout.kinds.items()), layout.local, places, spec.precision, spec.strategy, spec.batch)


def believed(
    candidates: Sequence[Candidate],
    belief: Belief,
    alike: Sequence[Observation],
    *,
    seed: int = 1,
    draws: int = DRAWS,
) -> Seconds:
    """Return seconds of steps by draws: what the model says, times what it leaves out as far as runs tell."""
    drawn = belief.draws(draws, seed)
    seconds = Seconds.of(candidates, drawn)
    modelled: NDArray[Any] = np.zeros((draws, 0))
    if alike:
        modelled = np.log(formula(drawn, [(one.spec, one.topology) for one in alike]))
    rest = left_out(
        [likeness_of(one.spec, one.topology) for one in candidates],
        [Seen(likeness_of(one.spec, one.topology), float(np.log(one.step_seconds)), one.spread) for one in alike],
        modelled,
        draws=draws,
        floor=float(np.hypot(belief.misfit, SHARED_MISFIT)),
        seed=seed,
    )
    return Seconds(seconds.step * np.exp(rest), seconds.alone)
