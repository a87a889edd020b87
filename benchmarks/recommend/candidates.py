"""Candidates, which are layouts with software options, and their costs by draws of a belief.

The time of a job is that until its devices are given back; its power is described in `power`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.model import Draws, fits, memory_bytes
from benchmarks.model.features import feature_columns, features_of
from benchmarks.model.meter import meter_readings
from benchmarks.model.reference_data import device_datasheet
from benchmarks.model.step_time import step_times
from benchmarks.model.topology import Topology
from benchmarks.recommend.layouts import Layout
from benchmarks.recommend.pool import DeviceClass, RecommendationPool
from benchmarks.recommend.power import (
    CORE_WATTS,
    HOST_IDLE_WATTS,
    RESTING_SHARE,
    WAITING_SHARE,
    ChassisPower,
    PowerDraw,
)
from benchmarks.recommend.request import Objective, RecommendationRequest
from benchmarks.recommend.search import search_layouts
from benchmarks.recommend.times import TimesAround, drawers_seconds, start_seconds
from benchmarks.runs.topology import strategy_label
from core.language import _
from hostwire.training import Precision, Spec, Strategy

Array = NDArray[np.float64]
MAX_CANDIDATES: Final = 1000
# A limit on time or energy is kept if it is kept in this share of the draws.
CONSTRAINT_CONFIDENCE: Final = 0.9


@dataclass(frozen=True, kw_only=True)
class RunCandidate:
    """A layout with a specification for its devices; `topology` is anonymous, as in `Layout.topology`."""

    layout: Layout
    spec: Spec
    topology: Topology
    times: TimesAround
    power: PowerDraw

    @classmethod
    def of_layout(
        cls, pool: RecommendationPool, layout: Layout, topology: Topology, specs: Sequence[Spec]
    ) -> list[RunCandidate]:
        """Return the candidates of a layout, with the times and power of its pool; all are of one workload."""
        if not specs:
            return []
        host, slots, times = layout.host, layout.slots(pool), layout.times(pool, specs[0].workload)
        power = {chassis: pool.power.get(chassis, ChassisPower()) for chassis in slots}
        draw = partial(
            PowerDraw,
            gpus=sum(count * device_datasheet(kind.model).watts for kind, count in layout.kinds.items()),
            host_idle=HOST_IDLE_WATTS,
            chassis=sum(count * power[chassis].slot_watts for chassis, count in slots.items()),
            slots=sum(slots.values()),
            is_measured=bool(power) and all(one.is_measured for one in power.values()),
        )
        found = []
        for spec in specs:
            # A core is busy for each process and each loader.
            cores = min(spec.cores or host.cores, host.cores, spec.processes * (1 + spec.loader_workers))
            load = draw(host_load=cores * CORE_WATTS)
            found.append(cls(layout=layout, spec=spec, topology=topology, times=times, power=load))
        return found

    @cached_property
    def kinds(self) -> dict[DeviceClass, int]:
        """The number of its GPUs of each kind."""
        return self.layout.kinds

    @property
    def watts(self) -> float:
        """The maximum power of its GPUs together."""
        return self.power.gpus


@dataclass(frozen=True, kw_only=True)
class CandidateSet:
    """The candidates. `exact`: none was left out; `unfit` has the reasons why devices' memory is too small."""

    every: tuple[RunCandidate, ...] = ()
    exact: bool = True
    layouts: int = 0
    unfit: tuple[str, ...] = ()
    undivided: tuple[int, ...] = ()  # numbers of devices that do not divide the global batch


def _specs(request: RecommendationRequest, count: int) -> list[Spec]:
    """Return the specifications for `count` devices; none if it does not divide the global batch."""
    template, freedom, whole = request.spec, request.freedom, request.global_batch
    if whole is not None and whole % (count * template.accumulation):
        return []
    strategies: tuple[Strategy, ...] = tuple(
        dict.fromkeys(one for one in freedom.strategies or (template.strategy,) if one != "single")
    )
    if count == 1:
        strategies = ("single",)
    precisions: tuple[Precision, ...] = freedom.precisions or (template.precision,)
    batches = (whole // (count * template.accumulation),) if whole is not None else freedom.batches or (template.batch,)
    return [
        msgspec.structs.replace(template, devices=count, strategy=strategy, precision=precision, batch=batch)
        for precision, strategy, batch in product(dict.fromkeys(precisions), strategies, dict.fromkeys(batches))
    ]


def _memory_sentence(spec: Spec, layout: Layout) -> str:
    kind = min(layout.kinds, key=lambda one: one.memory_bytes)
    return _(
        "{model} has {available:.1f} GB, and a batch of {batch} in {precision} needs {needed:.1f} GB on each {device}.",
        model=kind.model,
        available=kind.memory_bytes / 1e9,
        batch=spec.batch,
        precision=spec.precision.upper(),
        needed=memory_bytes(spec) / 1e9,
        device=_("device")
        if spec.devices == 1
        else _("device ({strategy})", strategy=_(strategy_label(spec.strategy))),
    )


def enumerate_candidates(
    pool: RecommendationPool, request: RecommendationRequest, draws: Draws, *, most: int = MAX_CANDIDATES
) -> CandidateSet:
    """Return the candidates: all up to `most`, else those that are best by a few `draws`, such as the centre.

    The limit on power is applied, those on time and energy are not.
    """
    found = search_layouts(pool, request.limits)
    specs: dict[int, list[Spec]] = {}  # by number of devices
    too_small: dict[tuple[int, frozenset[DeviceClass]], str] = {}  # reasons by the identity of a specification
    unfit: dict[str, None] = {}
    undivided: set[int] = set()
    groups: list[list[RunCandidate]] = []
    for layout in found.layouts:
        if layout.count not in specs:
            specs[layout.count] = _specs(request, layout.count)
        made = specs[layout.count]
        if not made:
            if request.global_batch is not None:
                undivided.add(layout.count)
            continue
        topology, kinds = layout.topology(), frozenset(layout.kinds)
        fitting = []
        for spec in made:
            key = (id(spec), kinds)
            if key not in too_small:
                too_small[key] = _memory_sentence(spec, layout) if fits(spec, topology) else ""
            if reason := too_small[key]:
                unfit[reason] = None
            else:
                fitting.append(spec)
        most_watts = request.limits.most_watts
        group = [
            one
            for one in RunCandidate.of_layout(pool, layout, topology, fitting)
            if most_watts is None or one.watts <= most_watts
        ]
        if group:
            groups.append(group)
    every = [one for group in groups for one in group]
    exact = found.exact
    if len(every) > most:
        exact = False
        every = _most_promising(groups, request, draws, most)
    return CandidateSet(
        every=tuple(every),
        exact=exact,
        layouts=len(found.layouts),
        unfit=tuple(unfit),
        undivided=tuple(sorted(undivided)),
    )


def _most_promising(
    groups: list[list[RunCandidate]], request: RecommendationRequest, draws: Draws, most: int
) -> list[RunCandidate]:
    """Return the most promising: layouts by their first option, the best of each number of devices among them."""
    heads = [group[0] for group in groups]
    cost = np.median(ranking_costs(heads, request, StepSeconds.of(heads, draws)), axis=0)
    order = np.argsort(cost, kind="stable")
    best: dict[int, int] = {}
    for position in order:
        best.setdefault(heads[position].layout.count, int(position))
    chosen = dict.fromkeys([*best.values(), *(int(one) for one in order)])
    kept: list[RunCandidate] = []
    for position in chosen:
        kept += groups[position]
        if len(kept) >= most:
            break
    return kept[:most]


@dataclass(frozen=True)
class StepSeconds:
    """By draw (rows) and candidate (columns): seconds of a step, and the share of it in which its devices compute."""

    step: Array
    busy: Array

    def of_one(self, place: int) -> StepSeconds:
        """Return those of one candidate."""
        return StepSeconds(self.step[:, [place]], self.busy[:, [place]])

    @classmethod
    def of(cls, candidates: Sequence[RunCandidate], draws: Draws) -> StepSeconds:
        """Return those of the model."""
        cells = feature_columns([features_of(one.spec, one.topology) for one in candidates])
        found = step_times(draws.logs, cells)
        return cls(found.step, meter_readings(found, cells).compute_share)


@dataclass(frozen=True)
class JobSeconds:
    """The parts of the time to the answer, s, by draw and candidate."""

    compose: Array
    start: Array
    train: Array
    give_back: Array

    @classmethod
    def of(cls, candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds) -> JobSeconds:
        """Return the parts: whole steps between the times around them."""
        rows = len(seconds.step)
        drawn: dict[object, Array] = {}

        def columns(name: Callable[[TimesAround], Any], draw: Callable[[Any, int], Array]) -> Array:
            keys = [name(one.times) for one in candidates]
            for key in keys:
                if key not in drawn:
                    drawn[key] = draw(key, rows)
            return np.stack([drawn[key] for key in keys], axis=1)

        steps = np.array([request.steps(one.spec) for one in candidates])
        return cls(
            compose=columns(lambda one: one.compose, drawers_seconds),
            start=columns(lambda one: one.start, start_seconds),
            train=seconds.step * steps,
            give_back=columns(lambda one: one.give_back, drawers_seconds),
        )

    @property
    def around(self) -> Array:
        """The time without training."""
        return self.compose + self.start + self.give_back

    @property
    def total(self) -> Array:
        return self.around + self.train


def job_seconds(candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds) -> Array:
    """Return seconds from the decision to the end of giving back, by draw and candidate."""
    return JobSeconds.of(candidates, request, seconds).total


@dataclass(frozen=True)
class JobJoules:
    """The parts of the energy of a job, J, by draw and candidate."""

    gpus: Array
    host: Array
    chassis: Array

    @classmethod
    def of(cls, candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds) -> JobJoules:
        """Return the energy of its devices, host and share of the chassis for the whole time."""
        spent = JobSeconds.of(candidates, request, seconds)
        working = spent.train * (WAITING_SHARE + (1.0 - WAITING_SHARE) * seconds.busy)
        gpus, idle, load, chassis = (
            np.array([getattr(one.power, name) for one in candidates])
            for name in ("gpus", "host_idle", "host_load", "chassis")
        )
        return cls(
            gpus=gpus * (working + RESTING_SHARE * spent.around),
            host=idle * spent.total + load * spent.train,
            chassis=chassis * spent.total,
        )

    @property
    def total(self) -> Array:
        return self.gpus + self.host + self.chassis


def job_joules(candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds) -> Array:
    """Return the energy of the job, J, by draw and candidate."""
    return JobJoules.of(candidates, request, seconds).total


def objective_values(
    candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds, objective: Objective
) -> Array:
    """Return the values to minimise: seconds, GPU-hours, joules or devices, by draw and candidate."""
    devices = np.array([float(one.layout.count) for one in candidates])
    if objective == "energy":
        return job_joules(candidates, request, seconds)
    time = job_seconds(candidates, request, seconds)
    if objective == "gpu_hours":
        hours: Array = time * devices / 3600.0
        return hours
    if objective == "devices":
        return np.broadcast_to(devices, time.shape).copy()
    return time


def ranking_costs(candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds) -> Array:
    """Return the costs for ranking: the objective; for devices, equal numbers are ordered by time."""
    cost = objective_values(candidates, request, seconds, request.objective)
    if request.objective == "devices":
        time = job_seconds(candidates, request, seconds)
        cost = cost + 1e-3 * time / time.max(axis=1, keepdims=True)
    return cost


def within_constraints(
    candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds
) -> NDArray[np.bool_]:
    """Return the candidates that keep the limits on time and energy in nine of ten draws."""
    kept = np.ones(len(candidates), dtype=bool)
    limits = request.limits
    if limits.most_seconds is not None:
        kept &= (job_seconds(candidates, request, seconds) <= limits.most_seconds).mean(axis=0) >= CONSTRAINT_CONFIDENCE
    if limits.most_joules is not None:
        kept &= (job_joules(candidates, request, seconds) <= limits.most_joules).mean(axis=0) >= CONSTRAINT_CONFIDENCE
    return kept
