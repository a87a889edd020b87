"""The recommendation: candidates ranked by what is believed, with reasons, doubts and the run that would decide.

Pure: it reads a pool, a request and what runs have shown, and returns a frozen answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.model import Belief, predict, refit
from benchmarks.model.shapes import Basis, Observation, Prediction
from benchmarks.recommend.amounts import in_words, share
from benchmarks.recommend.candidates import (
    Array,
    Candidate,
    Seconds,
    candidates_of,
    job_seconds,
    joules_of,
    objective_of,
)
from benchmarks.recommend.impossible import Impossible, why_impossible
from benchmarks.recommend.pool import Pool
from benchmarks.recommend.ranking import SURE, TOLERATED, interval
from benchmarks.recommend.reasons import reasons
from benchmarks.recommend.request import OBJECTIVES, Asked
from benchmarks.recommend.weighing import Weighed, weigh

SHOWN: Final = 10
FEW: Final = 16  # draws for the parts of a prediction; how sure it is was counted before


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A median, and between what it lies with a probability of 90 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """A candidate as it is shown: `objective` in its own unit (seconds, GPU-hours, joules, devices).

    `basis` is measured (a run of just this), calibrated (runs of the same workload) or prior (published rates alone).
    """

    candidate: Candidate
    words: str
    objective: Amount
    seconds: Amount  # of the job
    step: Amount  # seconds
    gpu_hours: Amount
    joules: Amount
    probability: float  # of being best
    near: float  # of no other one saving more than ranking.TOLERATED
    regret: float
    basis: Basis
    prediction: Prediction
    reasons: tuple[str, ...]

    @property
    def devices(self) -> int:
        """How many GPUs it has."""
        return self.candidate.layout.count


@dataclass(frozen=True, kw_only=True)
class DecidingRun:
    """The run that is expected to lower the regret most: from `before` to `after`, shares of the best one's cost."""

    line: Line
    before: float
    after: float

    @property
    def sentence(self) -> str:
        """What it is worth."""
        if self.after >= self.before:
            return f"Run {self.line.words} next: of those that were not run it is the likeliest to be best."
        return (
            f"Run {self.line.words} next: the expected regret of the choice falls from {share(self.before)} "
            f"to {share(self.after)}."
        )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Ranked lines, best first, or why there are none.

    `abstains`: the first two overlap, and it matters; `deciding` is the run that would tell. `considered` candidates
    came of `layouts` that differ; not `exact`: some were left out unlooked at. `runs` were learned from.
    """

    asked: Asked
    lines: tuple[Line, ...] = ()
    abstains: bool = False
    deciding: DecidingRun | None = None
    impossible: Impossible | None = None
    exact: bool = True
    considered: int = 0
    layouts: int = 0
    runs: int = 0
    unfit: tuple[str, ...] = ()
    undivided: tuple[int, ...] = ()

    @property
    def best(self) -> Line | None:
        """The first line, None where nothing is possible."""
        return self.lines[0] if self.lines else None

    @property
    def sentence(self) -> str:
        """What is recommended, or why nothing is."""
        if self.impossible is not None:
            return self.impossible.sentence
        first = self.lines[0]
        amount = in_words(self.asked.objective, first.objective.value)
        wish = OBJECTIVES[self.asked.objective]
        sure = (
            f"It is best with a probability of {share(first.probability)}, and within {share(TOLERATED)} of the best "
            f"with {share(first.near)}; the expected regret is {share(first.regret)}."
        )
        if self.abstains:
            return (
                f"Nothing is recommended yet. {first.words} leads for the {wish} ({amount}), but others overlap with "
                f"it. {sure} A choice is made once it is within {share(TOLERATED)} of the best with {share(SURE)}."
            )
        return f"{first.words}, for the {wish}: {amount}. {sure}"

    @property
    def search_words(self) -> str:
        """How far the search went."""
        if self.exact and self.considered == 1:
            return "There is one way to run it."
        what = f"{self.considered:,} ways to run it, on {self.layouts:,} compositions that differ"
        if self.exact:
            return f"All {what}, were compared."
        return f"The search was not exact: it compared {what}, the most promising of more."


def recommend(pool: Pool, asked: Asked, observations: Sequence[Observation] = (), *, seed: int = 1) -> Answer:
    """Return the answer to a request; the same pool, request, runs and seed give the same answer.

    `observations` are of any workload: rates of devices and links are learned from all.
    """
    belief = refit(observations)
    alike = tuple(one for one in observations if one.spec.workload == asked.spec.workload)
    found = candidates_of(pool, asked, belief.centre())
    weighed = weigh(found.every, asked, belief, alike, seed=seed) if found.every else None
    told = Answer(
        asked=asked, exact=found.exact, considered=len(found.every), layouts=found.layouts, runs=len(observations),
        unfit=found.unfit, undivided=found.undivided,
    )  # fmt: skip
    if weighed is None:
        return replace(told, impossible=why_impossible(pool, asked, belief, alike, found))
    amounts = _Amounts(asked, weighed)
    basis: Basis = "calibrated" if alike else "prior"
    deciding = weighed.deciding
    wanted = dict.fromkeys([*weighed.ranking.order[:SHOWN], *([deciding.candidate] if deciding is not None else [])])
    lines = {
        place: _line(pool, amounts, place, belief, "measured" if place in weighed.run else basis) for place in wanted
    }
    return replace(
        told,
        lines=tuple(lines[place] for place in weighed.ranking.order[:SHOWN]),
        abstains=not weighed.ranking.is_decided,
        deciding=DecidingRun(line=lines[deciding.candidate], before=deciding.before, after=deciding.after)
        if deciding is not None
        else None,
    )


class _Amounts:
    """Amounts of candidates, all of them counted at once."""

    def __init__(self, asked: Asked, weighed: Weighed) -> None:
        self.weighed = weighed
        every, seconds = weighed.candidates, weighed.seconds
        self.objective = objective_of(every, asked, seconds, asked.objective)
        self.time = job_seconds(every, asked, seconds)
        self.joules = joules_of(every, asked, seconds)

    def of(self, matrix: Array, place: int, *, times: float = 1.0) -> Amount:
        """Return the amount of a candidate."""
        middle, low, high = interval(matrix[:, place] * times)
        return Amount(value=middle, low=low, high=high)


def _line(pool: Pool, amounts: _Amounts, place: int, belief: Belief, basis: Basis) -> Line:
    weighed = amounts.weighed
    candidate = weighed.candidates[place]
    topology = candidate.layout.named(pool)
    prediction = predict(candidate.spec, topology, belief, count=FEW)
    return Line(
        candidate=candidate,
        words=topology.name,
        objective=amounts.of(amounts.objective, place),
        seconds=amounts.of(amounts.time, place),
        step=amounts.of(weighed.seconds.step, place),
        gpu_hours=amounts.of(amounts.time, place, times=candidate.layout.count / 3600),
        joules=amounts.of(amounts.joules, place),
        probability=float(weighed.ranking.probability[place]),
        near=float(weighed.ranking.near[place]),
        regret=float(weighed.ranking.regret[place]),
        basis=basis,
        prediction=prediction,
        reasons=reasons(pool, candidate, prediction, basis),
    )


__all__ = ["Amount", "Answer", "Candidate", "DecidingRun", "Impossible", "Line", "Seconds", "recommend"]
