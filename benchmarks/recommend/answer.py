"""The recommendation: candidates ranked by the belief, with reasons, uncertainty and the deciding run.

Pure: it reads a pool, a request and observations of runs, and returns a frozen answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks.model import Belief, predict, refit
from benchmarks.model.calibration import Observation
from benchmarks.model.prediction import BASIS_LABELS, Basis, Prediction
from benchmarks.recommend.candidates import (
    RunCandidate,
    enumerate_candidates,
    objective_values,
)
from benchmarks.recommend.cost_reasons import cost_reasons, job_parts, saving_sentence, variant_label
from benchmarks.recommend.explanation import (
    Infeasibility,
    candidate_reasons,
    explain_infeasibility,
    format_objective,
    format_share,
)
from benchmarks.recommend.model_names import unknown_model_sentences
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.ranking import (
    DECISION_CONFIDENCE,
    TOLERATED_REGRET,
    CandidateEvaluation,
    evaluate_candidates,
    median_interval,
)
from benchmarks.recommend.request import OBJECTIVE_LABELS, RecommendationRequest
from core.language import _, joined

MAX_RANKED: Final = 10
TERM_DRAWS: Final = 16  # draws for the terms of a prediction; probabilities use more draws


@dataclass(frozen=True, kw_only=True)
class AmountInterval:
    """A median with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class RankedCandidate:
    """A candidate for display: `objective` in its own unit (seconds, GPU-hours, joules, devices).

    `basis` is measured (a run of exactly this), calibrated (runs of the same workload) or prior (published rates only).
    `variant` names the software options. `spent` and `energy` are the medians of the parts of time, s, and energy, J.
    """

    candidate: RunCandidate
    words: str
    variant: str
    objective: AmountInterval
    seconds: AmountInterval  # to the answer, until its devices are given back
    step: AmountInterval  # seconds
    gpu_hours: AmountInterval
    joules: AmountInterval
    probability: float  # of being best
    near: float  # that no other candidate saves more than ranking.TOLERATED_REGRET
    regret: float
    basis: Basis
    prediction: Prediction
    reasons: tuple[str, ...]
    steps: int
    spent: Mapping[str, float]
    energy: Mapping[str, float]

    @property
    def devices(self) -> int:
        return self.candidate.layout.count

    @property
    def basis_label(self) -> str:
        return _(BASIS_LABELS[self.basis])


@dataclass(frozen=True, kw_only=True)
class DecidingRun:
    """The run that is expected to lower the regret most: from `before` to `after`, shares of the best one's cost."""

    line: RankedCandidate
    before: float
    after: float

    @property
    def sentence(self) -> str:
        """Its expected effect on the regret."""
        before, after = format_share(self.before), format_share(self.after)
        if before == after:
            return _(
                "Run {candidate}, with {variant}, next: it is the most likely to be best among candidates without a "
                "run.",
                candidate=self.line.words,
                variant=self.line.variant,
            )
        return _(
            "Run {candidate}, with {variant}, next: the expected regret of the choice falls from {before} to {after}.",
            candidate=self.line.words,
            variant=self.line.variant,
            before=before,
            after=after,
        )


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Ranked lines, best first, or the reason for none.

    `abstains`: the first two overlap by a relevant amount; `deciding` is the most informative run. `considered`
    candidates are from distinct `layouts`; not `exact`: some were not evaluated. `runs` is the number of observations.
    """

    request: RecommendationRequest
    lines: tuple[RankedCandidate, ...] = ()
    abstains: bool = False
    deciding: DecidingRun | None = None
    impossible: Infeasibility | None = None
    exact: bool = True
    considered: int = 0
    layouts: int = 0
    runs: int = 0
    unfit: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # on GPU models without a data sheet
    undivided: tuple[int, ...] = ()

    @property
    def best(self) -> RankedCandidate | None:
        """The first line, None if the request is infeasible."""
        return self.lines[0] if self.lines else None

    @property
    def sentence(self) -> str:
        """The recommendation, or the reason for none."""
        if self.impossible is not None:
            return self.impossible.sentence
        first = self.lines[0]
        amount = format_objective(self.request.objective, first.objective.value)
        objective = _(OBJECTIVE_LABELS[self.request.objective])
        tolerated = format_share(TOLERATED_REGRET)
        certainty = _(
            "It is best with a probability of {probability}, and within {tolerated} of the best with {near}; the "
            "expected regret is {regret}.",
            probability=format_share(first.probability),
            tolerated=tolerated,
            near=format_share(first.near),
            regret=format_share(first.regret),
        )
        if not self.abstains:
            chosen = _(
                "{candidate}, with {variant}, for the {objective}: {amount}.",
                candidate=first.words,
                variant=first.variant,
                objective=objective,
                amount=amount,
            )
            return joined([chosen, certainty])
        leads = _(
            "Nothing is recommended yet. {candidate}, with {variant}, leads for the {objective} ({amount}), but others "
            "overlap with it.",
            candidate=first.words,
            variant=first.variant,
            objective=objective,
            amount=amount,
        )
        required = _(
            "A recommendation requires that it is within {tolerated} of the best with {confidence}.",
            tolerated=tolerated,
            confidence=format_share(DECISION_CONFIDENCE),
        )
        return joined([leads, certainty, required])

    @property
    def search_words(self) -> str:
        """The extent of the search."""
        if self.exact and self.considered == 1:
            return _("There is one way to run it.")
        if self.exact:
            return _(
                "All {ways:,} ways to run it, on {compositions:,} different compositions, were compared.",
                ways=self.considered,
                compositions=self.layouts,
            )
        return _(
            "The search was not exact: it compared {ways:,} ways to run it, on {compositions:,} different "
            "compositions, the most promising of more.",
            ways=self.considered,
            compositions=self.layouts,
        )


def recommend(
    pool: RecommendationPool, request: RecommendationRequest, observations: Sequence[Observation] = ()
) -> Recommendation:
    """Return the answer to a request; the same pool, request and runs give the same answer.

    `observations` are of any workload: rates of devices and links are learned from all.
    """
    belief = refit(observations)
    alike = tuple(one for one in observations if one.spec.workload == request.spec.workload)
    found = enumerate_candidates(pool, request, belief.centre())
    evaluation = evaluate_candidates(found.every, request, belief, alike) if found.every else None
    answer = Recommendation(
        request=request, exact=found.exact, considered=len(found.every), layouts=found.layouts, runs=len(observations),
        unfit=found.unfit, notes=unknown_model_sentences(pool), undivided=found.undivided,
    )  # fmt: skip
    if evaluation is None:
        return replace(answer, impossible=explain_infeasibility(pool, request, belief, alike))
    basis: Basis = "calibrated" if alike else "prior"
    deciding = evaluation.deciding
    shown = dict.fromkeys(
        [*evaluation.ranking.order[:MAX_RANKED], *([deciding.candidate] if deciding is not None else [])]
    )
    lines = {
        place: _ranked_candidate(
            pool, request, evaluation, place, belief=belief, basis="measured" if place in evaluation.run else basis
        )
        for place in shown
    }
    return replace(
        answer,
        lines=tuple(lines[place] for place in evaluation.ranking.order[:MAX_RANKED]),
        abstains=not evaluation.ranking.is_decided,
        deciding=DecidingRun(line=lines[deciding.candidate], before=deciding.before, after=deciding.after)
        if deciding is not None
        else None,
    )


def _ranked_candidate(
    pool: RecommendationPool,
    request: RecommendationRequest,
    evaluation: CandidateEvaluation,
    place: int,
    *,
    belief: Belief,
    basis: Basis,
) -> RankedCandidate:
    candidate, seconds = evaluation.candidates[place], evaluation.seconds.of_one(place)
    topology = candidate.layout.named_topology(pool)
    prediction = predict(candidate.spec, topology, belief, count=TERM_DRAWS)
    time, joules = job_parts([candidate], request, seconds)
    spent, energy = ({name: float(np.median(part)) for name, part in parts.items()} for parts in (time, joules))
    total = np.sum(list(time.values()), axis=0)
    amounts = {
        "objective": objective_values([candidate], request, seconds, request.objective),
        "seconds": total,
        "step": seconds.step,
        "gpu_hours": total * (candidate.layout.count / 3600),
        "joules": np.sum(list(joules.values()), axis=0),
    }
    reasons = [
        *cost_reasons(candidate, request, spent, energy),
        *candidate_reasons(pool, candidate, prediction, basis),
    ]
    if place == evaluation.ranking.first:
        saving = saving_sentence(evaluation.candidates, request, evaluation.seconds, place)
        reasons[:0] = [saving] if saving else []
    intervals = {name: median_interval(draws) for name, draws in amounts.items()}
    return RankedCandidate(
        candidate=candidate,
        words=topology.name,
        variant=variant_label(candidate.spec),
        probability=float(evaluation.ranking.probability[place]),
        near=float(evaluation.ranking.near[place]),
        regret=float(evaluation.ranking.regret[place]),
        basis=basis,
        prediction=prediction,
        reasons=tuple(reasons),
        steps=request.steps(candidate.spec),
        spent=spent,
        energy=energy,
        **{name: AmountInterval(value=middle, low=low, high=high) for name, (middle, low, high) in intervals.items()},
    )
