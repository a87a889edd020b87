"""The recommendation: candidates ranked by the belief, with reasons, uncertainty and the deciding run.

Pure: it reads a pool, a request and observations of runs, and returns a frozen answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.model import Belief, predict, refit
from benchmarks.model.calibration import Observation
from benchmarks.model.prediction import BASIS_LABELS, Basis, Prediction
from benchmarks.recommend.candidates import (
    Array,
    RunCandidate,
    enumerate_candidates,
    job_joules,
    job_seconds,
    objective_values,
)
from benchmarks.recommend.explanation import (
    Infeasibility,
    candidate_reasons,
    explain_infeasibility,
    format_objective,
    format_share,
)
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.ranking import (
    DECISION_CONFIDENCE,
    TOLERATED_REGRET,
    CandidateEvaluation,
    evaluate_candidates,
    median_interval,
)
from benchmarks.recommend.request import OBJECTIVE_LABELS, OBJECTIVE_UNITS, RecommendationRequest
from benchmarks.runs.rules import Composition
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
    """

    candidate: RunCandidate
    words: str
    objective: AmountInterval
    seconds: AmountInterval  # of the job
    step: AmountInterval  # seconds
    gpu_hours: AmountInterval
    joules: AmountInterval
    probability: float  # of being best
    near: float  # that no other candidate saves more than ranking.TOLERATED_REGRET
    regret: float
    basis: Basis
    prediction: Prediction
    reasons: tuple[str, ...]

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
        if self.after >= self.before:
            return _(
                "Run {candidate} next: it is the most likely to be best among candidates without a run.",
                candidate=self.line.words,
            )
        return _(
            "Run {candidate} next: the expected regret of the choice falls from {before} to {after}.",
            candidate=self.line.words,
            before=format_share(self.before),
            after=format_share(self.after),
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
                "{candidate}, for the {objective}: {amount}.",
                candidate=first.words,
                objective=objective,
                amount=amount,
            )
            return joined([chosen, certainty])
        leads = _(
            "Nothing is recommended yet. {candidate} leads for the {objective} ({amount}), but others overlap with it.",
            candidate=first.words,
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
        unfit=found.unfit, undivided=found.undivided,
    )  # fmt: skip
    if evaluation is None:
        return replace(answer, impossible=explain_infeasibility(pool, request, belief, alike))
    basis: Basis = "calibrated" if alike else "prior"
    deciding = evaluation.deciding
    shown = dict.fromkeys(
        [*evaluation.ranking.order[:MAX_RANKED], *([deciding.candidate] if deciding is not None else [])]
    )
    amounts = _amounts(request, evaluation)
    lines = {
        place: _ranked_candidate(
            pool, evaluation, amounts, place, belief=belief, basis="measured" if place in evaluation.run else basis
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


def _amounts(request: RecommendationRequest, evaluation: CandidateEvaluation) -> dict[str, Array]:
    """Return the amounts of all candidates by their names in a RankedCandidate, by draw and candidate."""
    every, seconds = evaluation.candidates, evaluation.seconds
    time = job_seconds(every, request, seconds)
    return {
        "objective": objective_values(every, request, seconds, request.objective),
        "seconds": time,
        "step": seconds.step,
        "gpu_hours": time * np.array([candidate.layout.count / 3600 for candidate in every]),
        "joules": job_joules(every, request, seconds),
    }


def _ranked_candidate(
    pool: RecommendationPool,
    evaluation: CandidateEvaluation,
    amounts: dict[str, Array],
    place: int,
    *,
    belief: Belief,
    basis: Basis,
) -> RankedCandidate:
    candidate = evaluation.candidates[place]
    topology = candidate.layout.named_topology(pool)
    prediction = predict(candidate.spec, topology, belief, count=TERM_DRAWS)
    intervals = {name: median_interval(matrix[:, place]) for name, matrix in amounts.items()}
    return RankedCandidate(
        candidate=candidate,
        words=topology.name,
        probability=float(evaluation.ranking.probability[place]),
        near=float(evaluation.ranking.near[place]),
        regret=float(evaluation.ranking.regret[place]),
        basis=basis,
        prediction=prediction,
        reasons=candidate_reasons(pool, candidate, prediction, basis),
        **{name: AmountInterval(value=middle, low=low, high=high) for name, (middle, low, high) in intervals.items()},
    )


CSV_COLUMNS: Final = (
    "rank", "composition", "host", "gpus", "precision", "strategy", "batch", "objective", "low", "high", "unit",
    "step_seconds", "step_low", "step_high", "job_hours", "gpu_hours", "energy_kwh", "probability_of_being_best",
    "expected_regret", "basis", "provenance",
)  # fmt: skip


def candidate_composition(pool: RecommendationPool, line: RankedCandidate) -> Composition:
    """Return the composition of a candidate."""
    layout = line.candidate.layout
    drive = layout.storage(pool)
    return Composition(
        host=layout.host.id,
        local_gpus=layout.local,
        devices={**layout.attachments(pool), **({drive[0]: drive[1]} if drive is not None else {})},
        storage=drive[0] if drive is not None else None,
        own_drive=drive is None and layout.host.own_drive,
    )


def recommendation_json(pool: RecommendationPool, answer: Recommendation) -> dict[str, Any]:
    """Return an answer as JSON for the API and the command."""
    deciding = answer.deciding
    return {
        "sentence": answer.sentence,
        "objective": answer.request.objective,
        "unit": OBJECTIVE_UNITS[answer.request.objective][0],
        "abstains": answer.abstains,
        "exact": answer.exact,
        "search": answer.search_words,
        "considered": answer.considered,
        "compositions": answer.layouts,
        "runs_learned_from": answer.runs,
        "provenance": "predicted",
        "candidates": [_candidate_json(pool, answer, line, rank) for rank, line in enumerate(answer.lines, 1)],
        "deciding_run": {
            "sentence": deciding.sentence,
            "expected_regret_before": deciding.before,
            "expected_regret_after": deciding.after,
            "candidate": _candidate_json(pool, answer, deciding.line, None),
        }
        if deciding is not None
        else None,
        "impossible": {
            "constraints": list(answer.impossible.constraints),
            "sentence": answer.impossible.sentence,
            "without": [{"constraint": name, "sentence": words} for name, words in answer.impossible.relaxed],
        }
        if answer.impossible is not None
        else None,
        "does_not_fit": list(answer.unfit),
        "batch_not_divided_by": list(answer.undivided),
    }


def _candidate_json(
    pool: RecommendationPool, answer: Recommendation, line: RankedCandidate, rank: int | None
) -> dict[str, Any]:
    layout, factor = line.candidate.layout, OBJECTIVE_UNITS[answer.request.objective][1]
    desired = layout.desired_state(pool)
    return {
        "rank": rank,
        "composition_words": line.words,
        "composition": candidate_composition(pool, line).as_json(),
        "spec": msgspec.to_builtins(line.candidate.spec),
        "gpus": line.devices,
        "value": _amount_json(line.objective, factor),
        "step_seconds": _amount_json(line.step),
        "job_hours": _amount_json(line.seconds, 1 / 3600),
        "gpu_hours": _amount_json(line.gpu_hours),
        "energy_kwh": _amount_json(line.joules, 1 / 3.6e6),
        "probability_of_being_best": line.probability,
        "probability_of_being_near_the_best": line.near,
        "expected_regret": line.regret,
        "basis": line.basis,
        "reasons": list(line.reasons),
        "terms": msgspec.to_builtins(line.prediction.terms, enc_hook=str.__str__),
        "pcie_bytes_per_second": line.prediction.pcie_bytes_per_second,
        "memory_bytes": line.prediction.memory_bytes,
        "attachments": [{"device_id": device, "host_port_id": port} for device, port in desired.attachments.items()],
        "modes": [{"drawer_id": drawer, "mode": mode.value} for drawer, mode in desired.modes.items()],
    }


def _amount_json(amount: AmountInterval, factor: float = 1.0) -> dict[str, float]:
    return {"median": amount.value * factor, "low": amount.low * factor, "high": amount.high * factor}


def recommendation_rows(answer: Recommendation) -> Iterator[tuple[object, ...]]:
    """Yield a row of CSV_COLUMNS for each line; all values are predicted, except steps whose basis is measured."""
    unit, factor = OBJECTIVE_UNITS[answer.request.objective]
    for rank, line in enumerate(answer.lines, 1):
        spec = line.candidate.spec
        yield (
            rank, line.words, line.candidate.layout.host.name, line.devices, spec.precision, spec.strategy, spec.batch,
            line.objective.value * factor, line.objective.low * factor, line.objective.high * factor, unit,
            line.step.value, line.step.low, line.step.high, line.seconds.value / 3600, line.gpu_hours.value,
            line.joules.value / 3.6e6, line.probability, line.regret, line.basis, "predicted",
        )  # fmt: skip


def amount_text(answer: Recommendation, amount: AmountInterval) -> str:
    """Return an amount of the objective with its interval as text."""
    objective = answer.request.objective
    if amount.low == amount.high:
        return format_objective(objective, amount.value)
    value, low, high = (format_objective(objective, one) for one in (amount.value, amount.low, amount.high))
    return _("{value} ({low} to {high})", value=value, low=low, high=high)
