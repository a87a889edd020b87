"""A study of the quality of recommendations: random pools, workloads and truths, five runs each, against brute force.

A truth is not of the model's form: it is the event simulation of each candidate, or it is drawn. A drawn one combines
by a soft maximum where the model takes the maximum; devices slow each other down by a power law; links are shared by
the devices below them; and each cell has a deviation of its own. What operations take is drawn around what is assumed.

The recommender observes its runs alone: their steps, and the operations that composed them and gave them back. It runs
the deciding run, else the first candidate without a run.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
import numpy as np

from benchmarks.model import refit
from benchmarks.model.belief import topology_key
from benchmarks.model.calibration import Observation
from benchmarks.model.features import costs_of as costs_of_a_sample
from benchmarks.model.reference_data import LANE_RATES, device_datasheet
from benchmarks.model.topology import LOCAL, PcieLink, Topology
from benchmarks.recommend.candidates import RunCandidate, StepSeconds, enumerate_candidates, ranking_costs
from benchmarks.recommend.pool import DeviceClass, FreeDevice, HostPool, RecommendationPool
from benchmarks.recommend.ranking import CandidateEvaluation, evaluate_candidates
from benchmarks.recommend.request import Objective, RecommendationRequest, SoftwareChoices
from benchmarks.recommend.times import ASSUMED_START, ASSUMED_TIMES, SiteTimes, StepSample, UsualTime
from benchmarks.simulation import simulate_step
from benchmarks.workloads.catalogue import spec_of
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DeviceSnapshot, DrawerSnapshot, PortSnapshot
from hostwire.training import Spec

RUNS_A_TRIAL: Final = 5
# Samples a second of one V100 in mixed precision, between the published rates.
TRUE_RATES: Final = {"resnet50": 950.0, "mobilenet_v2": 1300.0, "yolov5l": 68.0, "bert_base": 168.0, "bert_large": 53.0}
UNEVENNESS: Final = 0.007  # relative, of each cell by itself
OBJECTIVES: Final[tuple[Objective, ...]] = ("time", "gpu_hours", "energy")
NOISE: Final = 0.01  # relative, of a run's median
TIME_NOISE: Final = 0.1  # relative, of the time of an operation
ATTACHED_SHARE: Final = 0.3  # of the devices of a chassis, at the start
SIMULATED_STEPS: Final = 4
DEVICE_CLASSES: Final = (
    DeviceClass(model="V100-PCIE-16GB", memory_bytes=16e9),
    DeviceClass(model="P100-PCIE-16GB", memory_bytes=16e9),
    DeviceClass(model="A100-PCIE-40GB", memory_bytes=40e9),
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a trial: true regrets (shares of the best cost) of the first choice and after each run."""

    workload: str
    objective: Objective
    candidates: int
    regrets: tuple[float, ...]


class TrueCell(NamedTuple):
    """Seconds of a step, and the share of it in which its devices compute."""

    seconds: float
    busy: float


@dataclass(frozen=True)
class GroundTruth:
    """The true step times of a trial, drawn around the published rates."""

    seed: int
    rate: float  # samples a second of one V100-SXM2 in mixed precision
    single: float  # times as long in fp32
    bound: float  # share of the time that scales with arithmetic; the rest scales with the memory's rate
    slowdown: float  # power of the number of devices
    softness: float  # of the soft maximum
    ring: float
    shared: float  # contention of devices below one uplink
    core: float  # bytes a second that a core prepares

    @classmethod
    def drawn(cls, random: np.random.Generator, seed: int, workload: str) -> GroundTruth:
        """Return a truth that is plausible for a workload."""

        def about(centre: float, spread: float) -> float:
            return float(centre * np.exp(spread * random.standard_normal()))

        return cls(
            seed=seed,
            rate=about(TRUE_RATES[workload], 0.15),
            single=float(random.uniform(2.0, 5.0)),
            bound=float(random.uniform(0.3, 0.9)),
            slowdown=about(0.02, 0.4),
            softness=float(random.uniform(3.0, 8.0)),
            ring=about(0.85, 0.15),
            shared=float(random.uniform(0.0, 0.3)),
            core=about(5e7, 0.3),
        )

    def cell(self, spec: Spec, topology: Topology) -> TrueCell:
        alone = msgspec.structs.replace(spec, devices=1, strategy="single")
        seconds = self._step(spec, topology)
        single = self._step(alone, replace(topology, accelerators=topology.accelerators[:1]))
        return TrueCell(seconds, min(1.0, single / seconds))

    def _step(self, spec: Spec, topology: Topology) -> float:
        costs, gpus = costs_of_a_sample(spec), topology.accelerators
        count, samples = len(gpus), spec.batch * spec.accumulation
        own = max(self._against_v100(gpu.model, spec.precision) for gpu in gpus)
        compute = samples / self.rate * own * count**self.slowdown
        exchange = self._exchange(spec, topology, 4.0 * costs.parameters)
        # Exchange overlaps with two thirds of computing, and proportionally less of a longer exchange.
        p = self.softness
        body = compute / 3 + ((2 * compute / 3) ** p + exchange**p) ** (1 / p) + 0.05 * exchange
        workers = max(1, min(spec.loader_workers or 4, topology.cores // count))
        feed = samples * max(costs.device_bytes, 1.0) / (self.core * workers)
        step = (body**p + feed**p) ** (1 / p) + 2e-4 * count
        key = zlib.crc32(f"{self.seed} {spec.hash} {topology_key(topology)}".encode())
        return float(step * np.exp(UNEVENNESS * np.random.default_rng(key).standard_normal()))

    def _against_v100(self, model: str, precision: str) -> float:
        """Return the time of a device relative to a V100-SXM2 in mixed precision: a mean of powers of its rates."""
        sheet, v100 = device_datasheet(model), device_datasheet("V100-SXM2")
        if precision == "fp32":
            rates, times = v100.single / sheet.single, self.single
        else:
            rates, times = v100.half / sheet.half, 1.0
        return float(times * rates**self.bound * (v100.memory_rate / sheet.memory_rate) ** (1 - self.bound))

    def _exchange(self, spec: Spec, topology: Topology, size: float) -> float:
        gpus = topology.accelerators
        count = len(gpus)
        if count == 1:
            return 0.0
        places = {gpu.place for gpu in gpus}
        if places == {LOCAL}:
            rate = self.ring * (36e9 + (count - 2) / 6 * 94e9 if topology.local_fabric == "nvlink" else 9.8e9)
        elif len(places) == 1:
            rate = self.ring * 12.2e9 * min(_relative_link_rate(gpu.link) for gpu in gpus)
        else:
            rate = self.ring * 9.8e9 * min(_relative_link_rate(gpu.link) for gpu in gpus)
            for place in places - {LOCAL}:
                below = sum(gpu.place == place for gpu in gpus)
                uplink = _relative_link_rate(topology.uplinks[place]) / (1 + self.shared * (below - 1) / 4)
                rate = min(rate, self.ring * 9.8e9 * uplink)
        ways = {"dp": 2.0, "sharded": 1.3}.get(spec.strategy, 1.0)
        return ways * (2 * (count - 1) / count * size / rate + 2e-5 * count)


def _relative_link_rate(link: PcieLink) -> float:
    """Return a link's rate relative to x16 Gen 3."""
    return LANE_RATES[link.generation] * link.lanes / (LANE_RATES[3] * 16)


@dataclass(frozen=True)
class EventTruth:
    """The steps of the event simulation, with the devices of a seed."""

    seed: int

    def cell(self, spec: Spec, topology: Topology) -> TrueCell:
        found = simulate_step(spec, topology, seed=self.seed, steps=SIMULATED_STEPS)
        return TrueCell(found.step_seconds, min(1.0, found.compute_busy))


TRUTHS: Final = ("events", "drawn")


def run_study(trials: int, *, seed: int = 1, truth: str = "events") -> list[Trial]:
    """Return the results of trials; deterministic for a seed."""
    return [run_trial(seed * 10_000 + number, truth=truth) for number in range(trials)]


def run_trial(seed: int, *, truth: str = "events") -> Trial:
    random = np.random.default_rng(seed)
    pool, request = random_pool(random), random_request(random)
    world = GroundTruth.drawn(random, seed, request.spec.workload) if truth == "drawn" else EventTruth(seed)
    every = enumerate_candidates(pool, request, refit([]).centre(), most=10**9).every
    if not every:
        raise ValueError("The pool has no room for the workload.")
    cells = [world.cell(one.spec, one.topology) for one in every]
    true = np.array([cell.seconds for cell in cells])
    steps = StepSeconds(true[None, :], np.array([[cell.busy for cell in cells]]))
    takes = true_times(random, pool)
    cost = ranking_costs(_timed(every, replace(pool, times=takes)), request, steps)[0]
    places = {(id(one.topology), id(one.spec)): place for place, one in enumerate(every)}
    seen: list[Observation] = []
    composed: list[StepSample] = []
    regrets: list[float] = []
    for number in range(RUNS_A_TRIAL + 1):
        known = _timed(every, replace(pool, times=SiteTimes.measured(composed)))
        evaluation = evaluate_candidates(known, request, refit(seen), tuple(seen))
        if evaluation is None:
            raise ValueError("Without limits there is always something.")
        first = evaluation.candidates[evaluation.ranking.first]
        regrets.append(float(cost[places[id(first.topology), id(first.spec)]] / cost.min() - 1))
        if number < RUNS_A_TRIAL:
            one = evaluation.candidates[next_run(evaluation)]
            measured = float(true[places[id(one.topology), id(one.spec)]] * np.exp(NOISE * random.standard_normal()))
            seen.append(Observation(spec=one.spec, topology=one.topology, step_seconds=measured, spread=NOISE))
            composed += _composed(random, one, takes)
    return Trial(
        workload=request.spec.workload,
        objective=request.objective,
        candidates=len(every),
        regrets=tuple(regrets),
    )


def next_run(evaluation: CandidateEvaluation) -> int:
    """Return the next run: the deciding one, else the first candidate without a run, else the first."""
    if evaluation.deciding is not None:
        return evaluation.deciding.candidate
    return next((one for one in evaluation.ranking.order if one not in evaluation.run), evaluation.ranking.first)


def true_times(random: np.random.Generator, pool: RecommendationPool) -> SiteTimes:
    """Return what operations of each chassis and starts really take in a trial, around what is assumed."""

    def about(usual: UsualTime) -> UsualTime:
        return UsualTime(seconds=float(usual.seconds * np.exp(usual.spread * random.standard_normal())), spread=0.0)

    chassis = sorted({drawer.chassis for drawer in pool.drawers})
    return SiteTimes(
        steps={(kind, one, 0): about(usual) for one in chassis for kind, usual in ASSUMED_TIMES.items()},
        starts={"": about(ASSUMED_START)},
    )


def _timed(candidates: Sequence[RunCandidate], pool: RecommendationPool) -> list[RunCandidate]:
    """Return candidates with the usual times of a pool."""
    return [replace(one, times=one.layout.times(pool, one.spec.workload)) for one in candidates]


def _composed(random: np.random.Generator, run: RunCandidate, takes: SiteTimes) -> list[StepSample]:
    """Return the measured operations that composed a run and gave it back."""
    return [
        StepSample(kind, chassis, sum(step[2] for step in steps),
                   takes.step(kind, chassis, 0).seconds * float(np.exp(TIME_NOISE * random.standard_normal())))
        for drawers in (run.times.compose, run.times.give_back)
        for steps in sorted(drawers, key=str)
        for kind, chassis, count, _ in steps
        for _ in range(count)
    ]  # fmt: skip


def random_request(random: np.random.Generator) -> RecommendationRequest:
    spec = spec_of(str(random.choice(list(TRUE_RATES))), "paper", {})
    return RecommendationRequest(
        spec=spec,
        samples=1e6,
        objective=OBJECTIVES[int(random.choice(3, p=(0.6, 0.2, 0.2)))],
        freedom=SoftwareChoices(
            precisions=("fp16",) if random.random() < 0.5 else ("fp32", "fp16"),
            strategies=("ddp",) if random.random() < 0.5 else ("ddp", "sharded"),
        ),
    )


def random_pool(random: np.random.Generator) -> RecommendationPool:
    """Return a random pool: one or two hosts, one or two drawers, each of a chassis of its own."""
    hosts = {
        number: HostPool(
            id=number,
            name=f"node-{number}",
            cores=int(random.choice((16, 40, 64))),
            local_gpus=int(random.choice((0, 1, 2))) if number == 2 else int(random.choice((1, 2, 4))),
            local=DeviceClass(model="V100-SXM2-16GB", memory_bytes=16e9),
        )
        for number in range(1, int(random.integers(2, 4)))
    }
    drawers: list[DrawerSnapshot] = []
    devices: dict[int, FreeDevice] = {}
    uplinks: dict[int, PcieLink] = {}
    for number in range(1, int(random.integers(2, 4))):
        ports = [
            PortSnapshot(id=number * 100 + nth, label=f"H{nth}", number=nth, host=(nth - 1) % len(hosts) + 1)
            for nth in (1, 2)
        ]
        kind = DEVICE_CLASSES[int(random.integers(0, len(DEVICE_CLASSES)))]
        for port in ports:
            uplinks[port.id] = PcieLink(lanes=16, generation=int(random.choice((3, 3, 4))))
        seen = [
            DeviceSnapshot(
                id=number * 1000 + slot,
                name=f"slot {slot}",
                slot=slot,
                attached=ports[slot % 2].id if random.random() < ATTACHED_SHARE else None,
            )
            for slot in range(1, int(random.integers(2, 5)) + 1)
        ]
        devices |= {one.id: FreeDevice(id=one.id, name=one.name, kind=kind) for one in seen}
        drawers.append(
            DrawerSnapshot(
                chassis=number,
                id=number,
                name=f"drawer {number}",
                mode=DrawerMode.ADVANCED,
                ports=tuple(ports),
                devices=tuple(seen),
            )
        )
    return RecommendationPool(hosts=hosts, drawers=tuple(drawers), devices=devices, uplinks=uplinks)
