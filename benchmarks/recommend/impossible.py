"""Why nothing keeps all constraints: the fewest of them that cannot hold together, and what there would be without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from benchmarks.model import Belief
from benchmarks.model.shapes import Observation
from benchmarks.recommend.amounts import duration, energy, share, short
from benchmarks.recommend.candidates import SURE, Candidates, candidates_of, job_seconds, joules_of, within
from benchmarks.recommend.pool import Pool
from benchmarks.recommend.request import Asked, Limits
from benchmarks.recommend.weighing import believed, promising
from fabric.rules import in_words

FEW_DRAWS: Final = 64
AMOUNTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "least_devices": lambda value: f"at least {value} GPUs",
    "most_devices": lambda value: f"at most {value} GPUs",
    "most_seconds": lambda value: f"at most {duration(value)}",
    "most_joules": lambda value: f"at most {energy(value)}",
    "most_watts": lambda value: f"at most {short(value)} W",
    "keep": lambda value: f"{len(value)} device{'' if len(value) == 1 else 's'} kept where attached",
}
WORDS: Final = {
    "storage": "data on a drive of a chassis",
    "same_mode": "no drawer changes its mode",
    "one_model": "GPUs of one model",
    "one_place": "all GPUs at one place",
}


@dataclass(frozen=True, kw_only=True)
class Impossible:
    """Why nothing is left: constraints by their names, that cannot hold together; () where it is for none of them.

    `relaxed` has for each of those what there would be without it.
    """

    constraints: tuple[str, ...]
    sentence: str
    relaxed: tuple[tuple[str, str], ...] = ()


def why_impossible(
    pool: Pool, asked: Asked, belief: Belief, alike: Sequence[Observation], found: Candidates
) -> Impossible:
    """Return which constraints cannot hold; of several that would do, the fewest that stand against each other."""
    if not pool.hosts:
        return Impossible(constraints=(), sentence="There is no host that you may use.")
    if not pool.gpus:
        return Impossible(constraints=(), sentence="No GPU is free: wait until one is, or ask for a lease.")

    def holds(limits: Limits) -> bool:
        return _is_possible(pool, replace(asked, limits=limits), belief, alike)

    given = tuple(asked.limits.given())
    if not holds(asked.limits.without(*given)):
        return _without_constraints(pool, asked, belief)
    guilty = _fewest(asked.limits, given, holds)
    words = [_in_words(name, asked.limits, pool) for name in guilty]
    relaxed = tuple((name, _without(name, pool, asked, belief, alike)) for name in guilty)
    if len(words) == 1:
        sentence = f"{words[0][0].upper()}{words[0][1:]}: that cannot hold. {relaxed[0][1]}"
    else:
        sentence = f"These cannot hold together: {in_words(words)}. Each of them could without the others."
    return Impossible(constraints=guilty, sentence=sentence, relaxed=relaxed)


def _fewest(limits: Limits, given: tuple[str, ...], holds: Callable[[Limits], bool]) -> tuple[str, ...]:
    """Return constraints that cannot hold together, none of which could be left out of them."""
    needed = list(given)
    for name in given:
        rest = [one for one in needed if one != name]
        if not holds(limits.only(*rest)):
            needed = rest
    return tuple(needed)


def _is_possible(pool: Pool, asked: Asked, belief: Belief, alike: Sequence[Observation]) -> bool:
    found = candidates_of(pool, asked, belief.centre())
    if not found.every:
        return False
    if asked.limits.most_seconds is None and asked.limits.most_joules is None:
        return True
    chosen = promising(found.every, asked, belief)
    return bool(within(chosen, asked, believed(chosen, belief, alike, draws=FEW_DRAWS)).any())


def _without_constraints(pool: Pool, asked: Asked, belief: Belief) -> Impossible:
    found = candidates_of(pool, replace(asked, limits=asked.limits.without(*asked.limits.given())), belief.centre())
    if found.unfit:
        return Impossible(
            constraints=("memory",), sentence=f"It fits into the memory of no free device. {found.unfit[0]}"
        )
    if found.undivided and asked.global_batch is not None:
        counts = in_words([str(one) for one in found.undivided[:12]])
        return Impossible(
            constraints=("global_batch",),
            sentence=f"A global batch of {asked.global_batch} cannot be divided among {counts} "
            f"device{'' if found.undivided == (1,) else 's'}, and other numbers are not free.",
        )
    if asked.spec.strategy == "single" and not asked.freedom.strategies:
        return Impossible(
            constraints=("strategy",), sentence="No host has a device free for a run on a single one. Free one first."
        )
    return Impossible(
        constraints=(),
        sentence="None of the free GPUs can be attached to a host as their drawers' modes and cables are.",
    )


def _in_words(name: str, limits: Limits, pool: Pool) -> str:
    value = getattr(limits, name)
    if name == "hosts":
        return f"on {in_words(sorted(pool.hosts[one].name for one in value if one in pool.hosts) or ['no host'])}"
    if name == "models":
        return f"only {in_words(sorted(value) or ['no model'])}"
    if name in AMOUNTS:
        return AMOUNTS[name](value)
    if name == "gpus":
        return "only the host's own GPUs" if value == "local" else "only GPUs of chassis"
    return WORDS[name]


def _without(name: str, pool: Pool, asked: Asked, belief: Belief, alike: Sequence[Observation]) -> str:
    """Return what there would be without a constraint, in a sentence with the number nearest to it."""
    rest = replace(asked, limits=asked.limits.without(name))
    found = candidates_of(pool, rest, belief.centre())
    if not found.every:
        return "Without it others could not hold either."
    if name in {"least_devices", "most_devices"}:
        counts = [one.layout.count for one in found.every]
        nearest = max(counts) if name == "least_devices" else min(counts)
        bound = "most" if name == "least_devices" else "fewest"
        return f"The {bound} that the rest allows is {nearest}."
    if name == "most_watts":
        least = min(one.watts for one in found.every)
        return f"The least that the rest allows is {short(least)} W, by data sheets."
    if name in {"most_seconds", "most_joules"}:
        wanted = replace(rest, objective="time" if name == "most_seconds" else "energy")
        chosen = promising(found.every, wanted, belief)
        seconds = believed(chosen, belief, alike, draws=FEW_DRAWS)
        amounts = (job_seconds if name == "most_seconds" else joules_of)(chosen, rest, seconds)
        sure = float(np.quantile(amounts, SURE, axis=0).min())
        told = duration(sure) if name == "most_seconds" else energy(sure)
        return f"The least that the rest allows is {told}, with a probability of {share(SURE)}."
    return f"Without it there would be {len(found.every)} way{'' if len(found.every) == 1 else 's'}."
