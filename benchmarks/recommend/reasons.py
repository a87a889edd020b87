"""Why a candidate takes what it takes, in sentences with their numbers."""

from __future__ import annotations

from typing import Final

from benchmarks.model.shapes import Basis, Prediction
from benchmarks.recommend.amounts import share, short
from benchmarks.recommend.candidates import Candidate
from benchmarks.recommend.pool import Pool

BASES: Final[dict[Basis, str]] = {"measured": "measured", "calibrated": "calibrated", "prior": "prior"}
ABOUT_BASES: Final[dict[Basis, str]] = {
    "measured": "A run of just this was measured; what is shown is its time, with the spread of its steps.",
    "calibrated": "Predicted by the model, fitted to runs of this workload that you see.",
    "prior": "Predicted from published rates and data sheets alone: no real run of this workload is known yet.",
}
BOUND: Final = {
    "compute": "Computing is most of a step",
    "communication": "Communication that nothing hides is most of a step",
    "input": "Waiting for input is most of a step",
    "optimiser": "The optimiser is most of a step",
}


def reasons(pool: Pool, candidate: Candidate, prediction: Prediction, basis: Basis) -> tuple[str, ...]:
    """Return what bounds it, what is exposed and over which link, and what it takes to compose, in sentences."""
    found = []
    terms = sorted(prediction.terms, key=lambda one: -one.seconds)
    total = sum(term.seconds for term in terms) or 1.0
    if terms and terms[0].seconds > 0:
        first = terms[0]
        about = BOUND.get(first.name, f"{first.name.capitalize()} is most of a step")
        found.append(f"{about}, {share(first.seconds / total)}. {first.why}")
    for term in terms[1:]:
        if term.name == "communication" and term.seconds > 0.005 * total:
            found.append(
                f"Communication that nothing hides takes {share(term.seconds / total)} of it"
                f"{_link(candidate)}. {term.why}"
            )
        elif term.name == "input" and term.seconds > 0.005 * total:
            found.append(f"Waiting for input takes {share(term.seconds / total)} of it. {term.why}")
    found.append(f"{_memory(candidate, prediction)} {ABOUT_BASES[basis]}")
    found.append(composing(pool, candidate))
    return tuple(found)


def _link(candidate: Candidate) -> str:
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


def _memory(candidate: Candidate, prediction: Prediction) -> str:
    least = min((kind.memory_bytes for kind in candidate.kinds), default=0.0)
    return f"Each GPU needs {short(prediction.memory_bytes / 2**30)} GiB of {short(least / 2**30)} GiB."


def composing(pool: Pool, candidate: Candidate) -> str:
    """Return what a plan would have to do, in a sentence."""
    wanted = candidate.layout.wanted(pool)
    if not wanted.attachments and not wanted.modes:
        return "All of it is composed already."
    moved = [one for one in wanted.attachments.values() if one is not None]
    out = len(wanted.attachments) - len(moved)
    parts = []
    if moved:
        parts.append(f"{len(moved)} device{'' if len(moved) == 1 else 's'} to attach")
    if out:
        parts.append(f"{out} that {'is' if out == 1 else 'are'} idle to detach, to make room")
    if wanted.modes:
        drawers = len(wanted.modes)
        parts.append(f"the mode of {drawers} drawer{'' if drawers == 1 else 's'} to change")
    return f"To compose it there {'is' if len(moved) == 1 and len(parts) == 1 else 'are'} {', '.join(parts)}."
