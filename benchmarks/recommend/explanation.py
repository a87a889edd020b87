"""Reasons for a candidate, why no candidate is feasible, amounts as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
from core.language import _, _n, gettext_noop, join_words, joined

BASIS_SENTENCES: Final[dict[Basis, str]] = {
    "measured": gettext_noop(
        "Measured by a run of exactly this configuration; the interval is the spread of its steps."
    ),
    "calibrated": gettext_noop("Predicted by the model, fitted to runs of this workload that you see."),
    "prior": gettext_noop(
        "Predicted from published rates and data sheets only: there is no real run of this workload yet."
    ),
}
BOUND_SENTENCES: Final = {
    "compute": gettext_noop("Computing is most of a step, {share}."),
    "communication": gettext_noop("Exposed communication is most of a step, {share}."),
    "input": gettext_noop("Waiting for input is most of a step, {share}."),
    "optimiser": gettext_noop("The optimiser is most of a step, {share}."),
}


def candidate_reasons(
    pool: RecommendationPool, candidate: RunCandidate, prediction: Prediction, basis: Basis
) -> tuple[str, ...]:
    """Return sentences on the largest term, exposed communication and its link, memory, and changes to compose it."""
    found: list[str] = []
    terms = sorted(prediction.terms, key=lambda one: -one.seconds)
    total = sum(term.seconds for term in terms) or 1.0
    if terms and terms[0].seconds > 0:
        first = terms[0]
        found.append(joined([_(BOUND_SENTENCES[first.name], share=format_share(first.seconds / total)), first.why]))
    for term in terms[1:]:
        if term.name == "communication" and term.seconds > 0.005 * total:
            found.append(joined([_exposed_sentence(candidate, format_share(term.seconds / total)), term.why]))
        elif term.name == "input" and term.seconds > 0.005 * total:
            share = format_share(term.seconds / total)
            found.append(joined([_("Waiting for input takes {share} of it.", share=share), term.why]))
    needed, least = prediction.memory_bytes / 2**30, min((kind.memory_bytes for kind in candidate.kinds), default=0.0)
    memory = _(
        "Each GPU needs {needed} GiB of {available} GiB.",
        needed=format_short(needed),
        available=format_short(least / 2**30),
    )
    found.append(joined([memory, _(BASIS_SENTENCES[basis])]))
    found.append(composition_sentence(pool, candidate))
    return tuple(found)


def _exposed_sentence(candidate: RunCandidate, share: str) -> str:
    """Return the share of exposed communication with the link that it takes."""
    uplinks = [place.uplink for place in candidate.layout.places if place.count]
    if not uplinks:
        link = "NVLink" if candidate.layout.host.local_fabric == "nvlink" else "PCIe"
        return _("Exposed communication takes {share} of it over {link} of the host.", share=share, link=link)
    slowest = min(uplinks, key=lambda one: one.lanes * 2**one.generation)
    alone = len(uplinks) == 1 and not candidate.layout.local
    if alone:
        return _("Exposed communication takes {share} of it below one switch.", share=share)
    return _(
        "Exposed communication takes {share} of it across the host, whose narrowest uplink is x{lanes} Gen {gen}.",
        share=share,
        lanes=slowest.lanes,
        gen=slowest.generation,
    )


def composition_sentence(pool: RecommendationPool, candidate: RunCandidate) -> str:
    """Return the changes of a plan as a sentence."""
    desired = candidate.layout.desired_state(pool)
    if not desired.attachments and not desired.modes:
        return _("All of it is composed already.")
    moved = [one for one in desired.attachments.values() if one is not None]
    out = len(desired.attachments) - len(moved)
    parts: list[str] = []
    if moved:
        parts.append(_n("{count} device to attach", "{count} devices to attach", len(moved)))
    if out:
        parts.append(
            _n(
                "{count} that is idle to detach, to make room",
                "{count} that are idle to detach, to make room",
                out,
            )
        )
    if desired.modes:
        parts.append(
            _n("the mode of {count} drawer to change", "the mode of {count} drawers to change", len(desired.modes))
        )
    if len(moved) == 1 and len(parts) == 1:
        return _("To compose it there is {changes}.", changes=parts[0])
    return _("To compose it there are {changes}.", changes=joined(parts, ", "))


def _models_label(models: Collection[str]) -> str:
    words = sorted(models) or [_("no model")]
    return _("only {models}", models=join_words(words))


FEW_DRAWS: Final = 64
CONSTRAINT_LABELS: Final[Mapping[str, Callable[[Any], str]]] = {
    "least_devices": lambda value: _("at least {count} GPUs", count=value),
    "most_devices": lambda value: _("at most {count} GPUs", count=value),
    "models": _models_label,
    "most_seconds": lambda value: _("at most {amount}", amount=format_duration(value)),
    "most_joules": lambda value: _("at most {amount}", amount=format_energy(value)),
    "most_watts": lambda value: _("at most {watts} W", watts=format_short(value)),
    "keep": lambda value: _n("{count} device kept where attached", "{count} devices kept where attached", len(value)),
    "gpus": lambda value: _("only the host's own GPUs") if value == "local" else _("only GPUs of chassis"),
    "storage": lambda value: _("data on a drive of a chassis"),
    "same_mode": lambda value: _("no drawer changes its mode"),
    "one_model": lambda value: _("GPUs of one model"),
    "one_place": lambda value: _("all GPUs at one place"),
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
        return Infeasibility(constraints=(), sentence=_("You cannot use any host."))
    if not pool.gpus:
        return Infeasibility(constraints=(), sentence=_("No GPU is available: wait for one, or request a lease."))

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
        constraint = words[0][0].upper() + words[0][1:]
        sentence = joined([_("{constraint}: not possible.", constraint=constraint), relaxed[0][1]])
    else:
        sentence = _(
            "These constraints conflict: {constraints}. Without any one of them the rest is possible.",
            constraints=join_words(words),
        )
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
            constraints=("memory",),
            sentence=joined([_("It does not fit into the memory of any free device."), found.unfit[0]]),
        )
    if found.undivided and request.global_batch is not None:
        counts = join_words([str(one) for one in found.undivided[:12]])
        return Infeasibility(
            constraints=("global_batch",),
            sentence=_(
                "A global batch of {batch} cannot be divided among {counts} device, and no other number of devices is "
                "available.",
                batch=request.global_batch,
                counts=counts,
            )
            if found.undivided == (1,)
            else _(
                "A global batch of {batch} cannot be divided among {counts} devices, and no other number of devices "
                "is available.",
                batch=request.global_batch,
                counts=counts,
            ),
        )
    if request.spec.strategy == "single" and not request.freedom.strategies:
        return Infeasibility(
            constraints=("strategy",),
            sentence=_("No host has a free device for a run on a single device. Free one first."),
        )
    return Infeasibility(
        constraints=(),
        sentence=_("The current modes and cables of the drawers allow no free GPU to be attached to a host."),
    )


def _constraint_label(name: str, limits: Constraints, pool: RecommendationPool) -> str:
    value = getattr(limits, name)
    if name == "hosts":
        names = sorted(pool.hosts[one].name for one in value if one in pool.hosts)
        return _("on {hosts}", hosts=join_words(names or [_("no host")]))
    return CONSTRAINT_LABELS[name](value)


def _relaxation_sentence(
    name: str, pool: RecommendationPool, request: RecommendationRequest, belief: Belief, alike: Sequence[Observation]
) -> str:
    """Return the result of leaving a constraint out, as a sentence with the nearest possible number."""
    rest = replace(request, limits=request.limits.without(name))
    found = enumerate_candidates(pool, rest, belief.centre())
    if not found.every:
        return _("Without it the others are not possible either.")
    if name in {"least_devices", "most_devices"}:
        counts = [one.layout.count for one in found.every]
        if name == "least_devices":
            return _("The maximum under the rest is {amount}.", amount=max(counts))
        return _("The minimum under the rest is {amount}.", amount=min(counts))
    if name == "most_watts":
        least = min(one.watts for one in found.every)
        return _("The minimum under the rest is {amount} W, by data sheets.", amount=format_short(least))
    if name in {"most_seconds", "most_joules"}:
        fastest = replace(rest, objective="time" if name == "most_seconds" else "energy")
        chosen = promising_candidates(found.every, fastest, belief)
        seconds = posterior_seconds(chosen, belief, alike, draws=FEW_DRAWS)
        amounts = (job_seconds if name == "most_seconds" else job_joules)(chosen, rest, seconds)
        sure = float(np.quantile(amounts, CONSTRAINT_CONFIDENCE, axis=0).min())
        shown = format_duration(sure) if name == "most_seconds" else format_energy(sure)
        return _(
            "The minimum under the rest is {amount}, with a probability of {share}.",
            amount=shown,
            share=format_share(CONSTRAINT_CONFIDENCE),
        )
    return _n(
        "Without it there would be {count} candidate.",
        "Without it there would be {count} candidates.",
        len(found.every),
    )


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


def format_energy(joules: float, whole: float | None = None) -> str:
    """Return '850 J', '120 Wh' or '3.2 kWh', in the unit of the `whole` that it is a part of."""
    scale = joules if whole is None else whole
    if scale < 3600:
        return f"{format_short(joules)} J"
    return f"{format_short(joules / 3600)} Wh" if scale < 3.6e6 else f"{format_short(joules / 3.6e6)} kWh"


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
        return _("under {share}", share="0.1 %")
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{value * 100:.0f} %"
