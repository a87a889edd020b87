"""Simulated steps of a run, alone or beside others on its host."""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from benchmarks.model.features import features_of
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.simulation import constants as c
from benchmarks.simulation.engine import Engine, Gate, Process
from benchmarks.simulation.result import StepSimulation, TimelinePoint
from benchmarks.simulation.training import WARMUP_STEPS, TrainingRun
from benchmarks.simulation.work import sample_seconds
from hostwire.training import Spec

TIMELINE_POINTS = 60
PROCESS_BYTES = 2.5e9  # of the host's memory for a process of PyTorch with CUDA (assumed)
WORKER_BYTES = 0.3e9  # for each of its loaders (assumed)


def simulate_step(
    spec: Spec,
    topology: Topology,
    *,
    seed: int = 0,
    steps: int = 8,
    neighbours: Sequence[tuple[Spec, Topology]] = (),
    cold: bool = False,
    limits: Mapping[str, float] = {},
) -> StepSimulation:
    """Return simulated steps of a run after one of warm-up; equal arguments give equal results.

    `neighbours` run on the same host at the same time: places of equal names, the drive and the cores are shared.
    `cold`: samples come from the drive, as in a first pass. `limits` leave less of shared resources. Raises
    ModelError for a workload that trains nothing, too few devices, and impossible sizes or links.
    """
    for own, place in ((spec, topology), *neighbours):
        features_of(own, place)  # refuses what cannot run, and impossible sizes and links
    capacities: dict[str, float] = {}
    engine = Engine(capacities)
    runs = [
        TrainingRun(engine, own, place, name=f"{number}/" if number else "", seed=seed, cold=cold)
        for number, (own, place) in enumerate([(spec, topology), *neighbours])
    ]
    for run in reversed(runs):
        capacities.update(run.links.capacities())
    capacities.update(limits)
    main = runs[0]
    for run in runs:
        run.begin()
    watch = _Watch(main, max(1, steps))
    engine.start(watch.wait())
    engine.run(watch.end)
    return watch.result()


class _Watch:
    """Reads the meters of a run from the end of its warm-up to the end of its last step."""

    def __init__(self, run: TrainingRun, steps: int) -> None:
        self._run, self._steps = run, steps
        self.end = Gate()
        self._carried: dict[str, float] = {}

    def wait(self) -> Process:
        run = self._run
        yield run.end_of(WARMUP_STEPS - 1)
        self._began = run.now
        for meter in run.meters:
            meter.reset(run.now)
        self._carried = dict(run.carried)
        self._sent = run.ring_bytes
        yield run.end_of(WARMUP_STEPS + self._steps - 1)
        for meter in run.meters:
            meter.settle(run.now)
        run.arrive(self.end)

    def result(self) -> StepSimulation:
        run, spec, meters = self._run, self._run.spec, self._run.meters
        passed = run.now - self._began
        ends = [self._began, *run.ended[WARMUP_STEPS : WARMUP_STEPS + self._steps]]
        steps = tuple(after - before for before, after in itertools.pairwise(ends))
        count, devices = len(steps), len(meters)

        def share(name: str) -> float:
            return min(1.0, sum(float(getattr(meter, name)) for meter in meters) / devices / passed)

        def each(name: str) -> float:
            fed = meters[: run.ranks]
            return sum(float(getattr(meter, name)) for meter in fed) / len(fed) / count

        bytes_each = self._device_bytes((run.ring_bytes - self._sent) / count)
        counted = self._device_bytes(c.COUNTED_EXCHANGE * (run.ring_bytes - self._sent) / count)
        outside = [device.name for device in run.accelerators if device.place != LOCAL]
        # What the devices take, not what loaders prepare ahead.
        decoded = count * spec.global_batch * sample_seconds(spec)
        started = run.ranks * (1 - (each("waited") * count / passed if spec.loader_workers else 0.0))
        return StepSimulation(
            step_seconds=statistics.median(steps),
            steps=steps,
            compute_busy=share("computed"),
            kernel_busy=share("busy"),
            memory_busy=share("memory"),
            input_wait=each("waited"),
            copying=each("copied"),
            exposed=each("exposed"),
            late=each("late"),
            optimiser=sum(meter.optimised for meter in meters) / run.ranks / count,
            cpu_share=min(1.0, (decoded / passed + started) / run.cores),
            host_memory_bytes=run.ranks * (PROCESS_BYTES + spec.loader_workers * WORKER_BYTES),
            traffic=sum(sum(counted[name]) for name in outside) * count / passed,
            devices=bytes_each,
            links={name: (amount - self._carried.get(name, 0.0)) / passed for name, amount in run.carried.items()},
            timeline=self._timeline(ends[-1]),
        )

    def _device_bytes(self, sent: float) -> dict[str, tuple[float, float]]:
        """Return the bytes a step to and from each device over PCIe; `sent` are those of a ring."""
        run = self._run
        samples = run.spec.batch * run.spec.accumulation * run.sample_bytes
        return {
            name: (samples + sent * comes, sent * leaves)
            for name, (comes, leaves) in run.links.pcie_neighbours().items()
        }

    def _timeline(self, end: float) -> tuple[TimelinePoint, ...]:
        run, meter = self._run, self._run.meters[0]
        width = (end - self._began) / TIMELINE_POINTS
        edges = [self._began + width * number for number in range(TIMELINE_POINTS + 1)]
        busy = _spread([(begin, stop, 1.0) for begin, stop in meter.busy_times], edges)
        memory = _spread(meter.intervals, edges)
        used = [
            (before[0], after[0], (after[1] - before[1]) / (after[0] - before[0]))
            for before, after in zip(run.cores_used, run.cores_used[1:], strict=False)
            if after[0] > before[0]
        ]
        cores = _spread(used, edges)
        return tuple(
            TimelinePoint(
                at=edge - self._began,
                kernel_busy=min(1.0, busy[number]),
                memory_busy=min(1.0, memory[number]),
                cpu=min(1.0, (cores[number] + run.ranks) / run.cores),
            )
            for number, edge in enumerate(edges[1:])
        )


def _spread(intervals: Sequence[tuple[float, float, float]], edges: Sequence[float]) -> list[float]:
    """Return the mean of values that hold for intervals, between each two edges; the edges are evenly spaced."""
    found = [0.0] * (len(edges) - 1)
    for begin, stop, value in intervals:
        number = max(0, bisect_left(edges, begin) - 1)
        while number < len(found) and edges[number] < stop:
            overlap = min(stop, edges[number + 1]) - max(begin, edges[number])
            found[number] += value * max(0.0, overlap) / (edges[number + 1] - edges[number])
            number += 1
    return found
