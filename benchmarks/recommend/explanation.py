"""Reasons for a candidate, why no candidate is feasible, amounts as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from benchmarks.model import Belief
from benchmarks.model.calibration import Observation
from benchmarks.model.prediction import Basis, Prediction
from benchmarks.recommend.candidates import (
    CONSTRAINT_CONFIDENCE,
    RunCandidate,
    enumerate_candidates,
    job_joules,
    job_seconds,
    within_constraints,
)
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.ranking import posterior_seconds, promising_candidates
from benchmarks.recommend.request import Constraints, Objective, RecommendationRequest
from core.language import join_words

BASIS_SENTENCES: Final[dict[Basis, str]] = {
    "measured": "Measured by a run of exactly this configuration; the interval is the spread of its steps.",
    "calibrated": "Predicted by the model, fitted to runs of this workload that you see.",
    "prior": "Predicted from published rates and data sheets only: there is no real run of this workload yet.",
}
BOUND_SENTENCES: Final = {
    "compute": "Computing is most of a step",
    "communication": "Exposed communication is most of a step",
    "input": "Waiting for input is most of a step",
    "optimiser": "The optimiser is most of a step",
}


def candidate_reasons(
    pool: RecommendationPool, candidate: RunCandidate, prediction: Prediction, basis: Basis
) -> tuple[str, ...]:
    """Return sentences on the largest term, exposed communication and its link, memory, and changes to compose it."""
    found = []
    terms = sorted(prediction.terms, key=lambda one: -one.seconds)
    total = sum(term.seconds for term in terms) or 1.0
    if terms and terms[0].seconds > 0:
        first = terms[0]
        bound = BOUND_SENTENCES.get(first.name, f"{first.name.capitalize()} is most of a step")
        found.append(f"{bound}, {format_share(first.seconds / total)}. {first.why}")
    for term in terms[1:]:
        if term.name == "communication" and term.seconds > 0.005 * total:
            found.append(
                f"Exposed communication takes {format_share(term.seconds / total)} of it"
                f"{_link_phrase(candidate)}. {term.why}"
            )
        elif term.name == "input" and term.seconds > 0.005 * total:
            found.append(f"Waiting for input takes {format_share(term.seconds / total)} of it. {term.why}")
    needed, least = prediction.memory_bytes / 2**30, min((kind.memory_bytes for kind in candidate.kinds), default=0.0)
    found.append(
        f"Each GPU needs {format_short(needed)} GiB of {format_short(least / 2**30)} GiB. {BASIS_SENTENCES[basis]}"
    )
    found.append(composition_sentence(pool, candidate))
    return tuple(found)


def _link_phrase(candidate: RunCandidate) -> str:
    uplinks = [place.uplink for place in candidate.layout.places if place.count]
    if not uplinks:
        return f" over {'NVLink' if candidate.layout.host.local_fabric == 'nvlink' else 'PCIe'} of the host"
    slowest = min(uplinks, key=lambda one: one.lanes * 2**one.generation)
    alone = len(uplinks) == 1 and not candidate.layout.local
    way = (
        "below one switch"
        if alone
        else f"across the host, whose narrowest uplink is x{slowest.lanes} Gen {slowest.generation}"
    )
    return f" {way}"


def composition_sentence(pool: RecommendationPool, candidate: RunCandidate) -> str:
    """Return the changes of a plan as a sentence."""
    desired = candidate.layout.desired_state(pool)
    if not desired.attachments and not desired.modes:
        return "All of it is composed already."
    moved = [one for one in desired.attachments.values() if one is not None]
    out = len(desired.attachments) - len(moved)
    parts = []
    if moved:
        parts.append(f"{len(moved)} device{'' if len(moved) == 1 else 's'} to attach")
    if out:
        parts.append(f"{out} that {'is' if out == 1 else 'are'} idle to detach, to make room")
    if desired.modes:
        drawers = len(desired.modes)
        parts.append(f"the mode of {drawers} drawer{'' if drawers == 1 else 's'} to change")
    return f"To compose it there {'is' if len(moved) == 1 and len(parts) == 1 else 'are'} {', '.join(parts)}."


FEW_DRAWS: Final = 64
CONSTRAINT_LABELS: Final[Mapping[str, Callable[[Any], str]]] = {
    "least_devices": lambda value: f"at least {value} GPUs",
    "most_devices": lambda value: f"at most {value} GPUs",
    "models": lambda value: f"only {join_words(sorted(value) or ['no model'])}",
    "most_seconds": lambda value: f"at most {format_duration(value)}",
    "most_joules": lambda value: f"at most {format_energy(value)}",
    "most_watts": lambda value: f"at most {format_short(value)} W",
    "keep": lambda value: f"{len(value)} device{'' if len(value) == 1 else 's'} kept where attached",
    "gpus": lambda value: "only the host's own GPUs" if value == "local" else "only GPUs of chassis",
    "storage": lambda _: "data on a drive of a chassis",
    "same_mode": lambda _: "no drawer changes its mode",
    "one_model": lambda _: "GPUs of one model",
    "one_place": lambda _: "all GPUs at one place",
}


@dataclass(frozen=True, kw_only=True)
class Infeasibility:
    """The conflicting constraints, by name; () if another cause makes the request infeasible.

    `relaxed` has for each of them the result of leaving it out, as a sentence.
    """

    constraints: tuple[str, ...]
    sentence: str
    relaxed: tuple[tuple[str, str], ...] = ()


def explain_infeasibility(
    pool: RecommendationPool,
    request: RecommendationRequest,
    belief: Belief,
    alike: Sequence[Observation],
) -> Infeasibility:
    """Return a minimal set of conflicting constraints."""
    if not pool.hosts:
        return Infeasibility(constraints=(), sentence="You cannot use any host.")
    if not pool.gpus:
        return Infeasibility(constraints=(), sentence="No GPU is available: wait for one, or request a lease.")

    def feasible(limits: Constraints) -> bool:
        limited = replace(request, limits=limits)
        every = enumerate_candidates(pool, limited, belief.centre()).every
        if not every or (limits.most_seconds is None and limits.most_joules is None):
            return bool(every)
        chosen = promising_candidates(every, limited, belief)
        seconds = posterior_seconds(chosen, belief, alike, draws=FEW_DRAWS)
        return bool(within_constraints(chosen, limited, seconds).any())

    given = tuple(request.limits.given())
    if not feasible(request.limits.without(*given)):
        return _unconstrained_reason(pool, request, belief)
    conflict = _minimal_conflict(request.limits, given, feasible)
    words = [_constraint_label(name, request.limits, pool) for name in conflict]
    relaxed = tuple((name, _relaxation_sentence(name, pool, request, belief, alike)) for name in conflict)
    if len(words) == 1:
        sentence = f"{words[0][0].upper()}{words[0][1:]}: not possible. {relaxed[0][1]}"
    else:
        sentence = f"These constraints conflict: {join_words(words)}. Without any one of them the rest is possible."
    return Infeasibility(constraints=conflict, sentence=sentence, relaxed=relaxed)


def _minimal_conflict(
    limits: Constraints, given: tuple[str, ...], feasible: Callable[[Constraints], bool]
) -> tuple[str, ...]:
    """Return conflicting constraints of which no proper subset conflicts."""
    needed = list(given)
    for name in given:
        rest = [one for one in needed if one != name]
        if not feasible(limits.only(*rest)):
            needed = rest
    return tuple(needed)


def _unconstrained_reason(pool: RecommendationPool, request: RecommendationRequest, belief: Belief) -> Infeasibility:
    found = enumerate_candidates(
        pool, replace(request, limits=request.limits.without(*request.limits.given())), belief.centre()
    )
    if found.unfit:
        return Infeasibility(
            constraints=("memory",), sentence=f"It does not fit into the memory of any free device. {found.unfit[0]}"
        )
    if found.undivided and request.global_batch is not None:
        counts = join_words([str(one) for one in found.undivided[:12]])
        return Infeasibility(
            constraints=("global_batch",),
            sentence=f"A global batch of {request.global_batch} cannot be divided among {counts} "
            f"device{'' if found.undivided == (1,) else 's'}, and no other number of devices is available.",
        )
    if request.spec.strategy == "single" and not request.freedom.strategies:
        return Infeasibility(
            constraints=("strategy",),
            sentence="No host has a free device for a run on a single device. Free one first.",
        )
    return Infeasibility(
        constraints=(),
        sentence="The current modes and cables of the drawers allow no free GPU to be attached to a host.",
    )


def _constraint_label(name: str, limits: Constraints, pool: RecommendationPool) -> str:
    value = getattr(limits, name)
    if name == "hosts":
        return f"on {join_words(sorted(pool.hosts[one].name for one in value if one in pool.hosts) or ['no host'])}"
    return CONSTRAINT_LABELS[name](value)


def _relaxation_sentence(
    name: str, pool: RecommendationPool, request: RecommendationRequest, belief: Belief, alike: Sequence[Observation]
) -> str:
    """Return the result of leaving a constraint out, as a sentence with the nearest possible number."""
    rest = replace(request, limits=request.limits.without(name))
    found = enumerate_candidates(pool, rest, belief.centre())
    if not found.every:
        return "Without it the others are not possible either."
    if name in {"least_devices", "most_devices"}:
        counts = [one.layout.count for one in found.every]
        nearest = max(counts) if name == "least_devices" else min(counts)
        bound = "maximum" if name == "least_devices" else "minimum"
        return f"The {bound} under the rest is {nearest}."
    if name == "most_watts":
        least = min(one.watts for one in found.every)
        return f"The minimum under the rest is {format_short(least)} W, by data sheets."
    if name in {"most_seconds", "most_joules"}:
        fastest = replace(rest, objective="time" if name == "most_seconds" else "energy")
        chosen = promising_candidates(found.every, fastest, belief)
        seconds = posterior_seconds(chosen, belief, alike, draws=FEW_DRAWS)
        amounts = (job_seconds if name == "most_seconds" else job_joules)(chosen, rest, seconds)
        sure = float(np.quantile(amounts, CONSTRAINT_CONFIDENCE, axis=0).min())
        shown = format_duration(sure) if name == "most_seconds" else format_energy(sure)
        return f"The minimum under the rest is {shown}, with a probability of {format_share(CONSTRAINT_CONFIDENCE)}."
    return f"Without it there would be {len(found.every)} candidate{'' if len(found.every) == 1 else 's'}."


def format_short(value: float) -> str:
    """Return a number with three digits, and without a fraction if large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_duration(seconds: float) -> str:
    """Return '85 ms', '12.5 s', '14 min' or '3.2 h'."""
    if seconds < 1:
        return f"{format_short(seconds * 1000)} ms"
    if seconds < 120:
        return f"{format_short(seconds)} s"
    return f"{format_short(seconds / 60)} min" if seconds < 7200 else f"{format_short(seconds / 3600)} h"


def format_energy(joules: float) -> str:
    """Return '850 J', '120 Wh' or '3.2 kWh'."""
    if joules < 3600:
        return f"{format_short(joules)} J"
    return f"{format_short(joules / 3600)} Wh" if joules < 3.6e6 else f"{format_short(joules / 3.6e6)} kWh"


def format_objective(objective: Objective, value: float) -> str:
    """Return the value of an objective with its unit."""
    if objective == "time":
        return format_duration(value)
    if objective == "energy":
        return format_energy(value)
    return (
        f"{format_short(value)} GPU-h" if objective == "gpu_hours" else f"{value:.0f} {'GPU' if value == 1 else 'GPUs'}"
    )


def format_share(value: float) -> str:
    """Return a share in percent: '0.4 %', '12 %', 'under 0.1 %'."""
    if 0 < value < 0.001:
        return "under 0.1 %"
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{value * 100:.0f} %"
