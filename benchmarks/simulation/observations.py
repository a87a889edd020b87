"""What the published experiment observed, each judged by the simulation: does it hold in what is simulated?

Sentences, and how they are judged, are those of `benchmarks/model/observations.py`. Meters are read during steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter

import numpy as np

from benchmarks.model.observations import STEP_JUDGES
from benchmarks.model.paper_study import ExperimentStudy, Figure
from benchmarks.model.reference_data import DATA_SETS
from benchmarks.model.topology import Topology
from benchmarks.simulation.course import checkpoint_pause
from benchmarks.simulation.result import StepSimulation
from benchmarks.simulation.steps import simulate_step
from hostwire.training import Spec

_READINGS: Mapping[str, Callable[[StepSimulation], float]] = {
    "step": attrgetter("step_seconds"),
    "traffic": attrgetter("traffic"),
    "utilisation": attrgetter("kernel_busy"),
    "memory": attrgetter("memory_busy"),
    "cpu": attrgetter("cpu_share"),
}


@dataclass(frozen=True, kw_only=True)
class SimulatedObservation:
    """An observation beside its simulation: `simulated` in words, its leading `value`."""

    simulated: str
    value: float
    holds: bool


@dataclass(frozen=True)
class _PublishedCell:
    """A cell of the published experiment, equal by the hash of its specification and the name of its configuration."""

    spec_hash: str
    configuration: str
    cold: bool
    spec: Spec = field(compare=False)
    topology: Topology = field(compare=False)


def simulate_published(spec: Spec, topology: Topology, *, cold: bool = False) -> StepSimulation:
    """Return the simulation of a cell in a published configuration, played once by a process. Raises ModelError."""
    return _simulation(_PublishedCell(spec.hash, topology.name, cold, spec, topology))


@cache
def _simulation(cell: _PublishedCell) -> StepSimulation:
    return simulate_step(cell.spec, cell.topology, cold=cell.cold)


class SimulatedStudy(ExperimentStudy):
    """The experiment by the simulation; its figures have no draws but the value."""

    def figure(self, what: str, workload: str, name: str) -> Figure:
        spec, topology = self.cells[workload, name]
        if what == "training":
            value = _training_seconds(spec, topology)
        else:
            value = _READINGS[what](simulate_published(spec, topology))
        return Figure(value, np.array([value]))


def _training_seconds(spec: Spec, topology: Topology) -> float:
    """Return the seconds of a published training: a first pass from the drive, further ones, and checkpoints."""
    data = DATA_SETS[spec.workload]
    steps = data.samples / spec.global_batch
    first, further = (simulate_published(spec, topology, cold=cold).step_seconds for cold in (True, False))
    checkpoints = data.copies * (data.epochs * steps / data.checkpoint_steps if data.checkpoint_steps else data.epochs)
    pause = checkpoint_pause(spec, topology).seconds
    return steps * (first + (data.epochs - 1) * further) + checkpoints * pause


def simulated_observations() -> dict[str, SimulatedObservation]:
    """Return the observations that it can show, by their key, as the simulation judges them."""
    study, found = SimulatedStudy(), {}
    for key, judge in STEP_JUDGES.items():
        simulated, figure, holds = judge(study)
        found[key] = SimulatedObservation(simulated=simulated, value=figure.value, holds=bool(holds))
    return found
