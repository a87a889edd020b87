"""Layouts with software options: what is compared, and the costs of each as draws of a belief have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.model import Draws, fits, memory_bytes
from benchmarks.model.belief import formula
from benchmarks.model.shapes import Accelerator, Topology
from benchmarks.recommend.layouts import Layout
from benchmarks.recommend.pool import Kind, Pool
from benchmarks.recommend.power import IDLE_SHARE, watts_of
from benchmarks.recommend.request import Asked, Objective
from benchmarks.recommend.searching import layouts_of
from hostwire.training import Precision, Spec, Strategy

Array = NDArray[np.float64]
MOST_CELLS: Final = 1000
# A limit on time or energy holds where it does in so many of the draws.
SURE: Final = 0.9


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A layout with a specification that fills it; `topology` is anonymous, as `Layout.topology` has it."""

    layout: Layout
    spec: Spec
    topology: Topology

    @cached_property
    def kinds(self) -> dict[Kind, int]:
        """How many GPUs of each kind it has."""
        return self.layout.kinds

    @cached_property
    def watts(self) -> float:
        """The most that its GPUs draw together."""
        return sum(count * watts_of(kind.model)[0] for kind, count in self.kinds.items())


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What can be compared. `exact` says that nothing was left out, `unfit` why devices' memory is too small."""

    every: tuple[Candidate, ...] = ()
    exact: bool = True
    layouts: int = 0
    unfit: tuple[str, ...] = ()
    undivided: tuple[int, ...] = ()  # numbers of devices that do not divide the global batch


@dataclass
class _Specs:
    """The specifications for so many devices, each made once; and whether they fit into memory."""

    asked: Asked
    known: dict[int, list[Spec]] = field(default_factory=dict)
    fit: dict[tuple[int, frozenset[Kind]], str] = field(default_factory=dict)  # by the specification's identity

    def of(self, count: int) -> list[Spec]:
        """Return those for `count` devices; none where they do not divide the global batch."""
        if count not in self.known:
            self.known[count] = list(self._made(count))
        return self.known[count]

    def _made(self, count: int) -> Sequence[Spec]:
        template, freedom, whole = self.asked.spec, self.asked.freedom, self.asked.global_batch
        if whole is not None and whole % (count * template.accumulation):
            return []
        strategies: tuple[Strategy, ...] = tuple(
            dict.fromkeys(one for one in freedom.strategies or (template.strategy,) if one != "single")
        )
        if count == 1:
            strategies = ("single",)
        precisions: tuple[Precision, ...] = freedom.precisions or (template.precision,)
        batches = (
            (whole // (count * template.accumulation),) if whole is not None else freedom.batches or (template.batch,)
        )
        return [
            msgspec.structs.replace(template, devices=count, strategy=strategy, precision=precision, batch=batch)
            for precision, strategy, batch in product(dict.fromkeys(precisions), strategies, dict.fromkeys(batches))
        ]

    def unfit(self, spec: Spec, layout: Layout, topology: Topology) -> str:
        """Return why a device's memory is too small, '' if it is not; asked once a kind."""
        key = (id(spec), frozenset(layout.kinds))
        if key not in self.fit:
            self.fit[key] = _too_large(spec, layout) if fits(spec, topology) else ""
        return self.fit[key]


def _too_large(spec: Spec, layout: Layout) -> str:
    kind = min(layout.kinds, key=lambda one: one.memory_bytes)
    return (
        f"{kind.model} has {kind.memory_bytes / 1e9:.1f} GB, and a batch of {spec.batch} in {spec.precision} needs "
        f"{memory_bytes(spec) / 1e9:.1f} GB on each device{'' if spec.devices == 1 else f' ({spec.strategy})'}."
    )


def _one_of_each(topology: Topology) -> tuple[Accelerator, ...]:
    kinds = {(one.model, one.memory_bytes): one for one in topology.accelerators}
    return tuple(kinds.values())


def candidates_of(pool: Pool, asked: Asked, draws: Draws, *, most: int = MOST_CELLS) -> Candidates:
    """Return what can be compared: all of it up to `most`, else those that few `draws`, such as the centre, find best.

    The limit on power is applied, those on time and energy are not.
    """
    found = layouts_of(pool, asked.limits)
    specs = _Specs(asked)
    unfit: dict[str, None] = {}
    undivided: set[int] = set()
    groups: list[list[Candidate]] = []
    for layout in found.layouts:
        made = specs.of(layout.count)
        if not made:
            if asked.global_batch is not None:
                undivided.add(layout.count)
            continue
        topology = layout.topology()
        group = []
        for spec in made:
            if reason := specs.unfit(spec, layout, topology):
                unfit[reason] = None
                continue
            one = Candidate(layout=layout, spec=spec, topology=topology)
            if asked.limits.most_watts is None or one.watts <= asked.limits.most_watts:
                group.append(one)
        if group:
            groups.append(group)
    every = [one for group in groups for one in group]
    exact = found.exact
    if len(every) > most:
        exact = False
        every = _best_first(groups, asked, draws, most)
    return Candidates(
        every=tuple(every),
        exact=exact,
        layouts=len(found.layouts),
        unfit=tuple(unfit),
        undivided=tuple(sorted(undivided)),
    )


def _best_first(groups: list[list[Candidate]], asked: Asked, draws: Draws, most: int) -> list[Candidate]:
    """Return the most promising: layouts by their first option, the best of each number of devices among them."""
    heads = [group[0] for group in groups]
    cost = np.median(costs_of(heads, asked, Seconds.of(heads, draws)), axis=0)
    order = np.argsort(cost, kind="stable")
    best: dict[int, int] = {}
    for position in order:
        best.setdefault(heads[position].layout.count, int(position))
    chosen = dict.fromkeys([*best.values(), *(int(one) for one in order)])
    kept: list[Candidate] = []
    for position in chosen:
        kept += groups[position]
        if len(kept) >= most:
            break
    return kept[:most]


@dataclass(frozen=True)
class Seconds:
    """Of each draw (rows) and candidate (columns): seconds of a step, and how long its devices compute in it."""

    step: Array
    alone: Array

    @classmethod
    def of(cls, candidates: Sequence[Candidate], draws: Draws) -> Seconds:
        """Return what the formula says. How long a device computes is how long it takes alone, input included."""
        cells = [(one.spec, one.topology) for one in candidates]
        alone: dict[tuple[object, ...], int] = {}
        positions = []
        singles: list[tuple[Spec, Topology]] = []
        for one in candidates:
            accelerators = _one_of_each(one.topology)
            spec = msgspec.structs.replace(one.spec, devices=1, strategy="single")
            key = (
                spec.precision,
                spec.batch,
                spec.accumulation,
                *((gpu.model, gpu.place == "local") for gpu in accelerators),
            )
            if key not in alone:
                alone[key] = len(singles)
                singles.append((spec, replace(one.topology, accelerators=accelerators[:1])))
            positions.append(alone[key])
        both = formula(draws, [*cells, *singles])
        return cls(both[:, : len(cells)], both[:, [len(cells) + position for position in positions]])


def job_seconds(candidates: Sequence[Candidate], asked: Asked, seconds: Seconds) -> Array:
    """Return seconds of the whole job, by draw and candidate."""
    steps = np.array([asked.samples / one.spec.global_batch for one in candidates])
    found: Array = seconds.step * steps
    return found


def joules_of(candidates: Sequence[Candidate], asked: Asked, seconds: Seconds) -> Array:
    """Return the energy of the job's GPUs, J, by draw and candidate."""
    watts = np.array([one.watts for one in candidates])
    busy = np.minimum(1.0, seconds.alone / seconds.step)
    found: Array = job_seconds(candidates, asked, seconds) * watts * (IDLE_SHARE + (1.0 - IDLE_SHARE) * busy)
    return found


def objective_of(candidates: Sequence[Candidate], asked: Asked, seconds: Seconds, objective: Objective) -> Array:
    """Return what is to be least: seconds, GPU-hours, joules or devices, by draw and candidate."""
    devices = np.array([float(one.layout.count) for one in candidates])
    if objective == "energy":
        return joules_of(candidates, asked, seconds)
    time = job_seconds(candidates, asked, seconds)
    if objective == "gpu_hours":
        hours: Array = time * devices / 3600.0
        return hours
    if objective == "devices":
        return np.broadcast_to(devices, time.shape).copy()
    return time


def costs_of(candidates: Sequence[Candidate], asked: Asked, seconds: Seconds) -> Array:
    """Return what candidates are ranked by: the objective, and of as many devices the quicker."""
    cost = objective_of(candidates, asked, seconds, asked.objective)
    if asked.objective == "devices":
        time = job_seconds(candidates, asked, seconds)
        cost = cost + 1e-3 * time / time.max(axis=1, keepdims=True)
    return cost


def within(candidates: Sequence[Candidate], asked: Asked, seconds: Seconds) -> NDArray[np.bool_]:
    """Return which candidates keep the limits on time and energy in nine of ten draws."""
    kept = np.ones(len(candidates), dtype=bool)
    limits = asked.limits
    if limits.most_seconds is not None:
        kept &= (job_seconds(candidates, asked, seconds) <= limits.most_seconds).mean(axis=0) >= SURE
    if limits.most_joules is not None:
        kept &= (joules_of(candidates, asked, seconds) <= limits.most_joules).mean(axis=0) >= SURE
    return kept
