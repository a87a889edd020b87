"""The simulation beside the performance model on random compositions: how far apart they are, and why."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.model import fits, predict
from benchmarks.model.calibration import PAPER_DRAWERS
from benchmarks.model.prediction import Prediction, format_seconds
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology, gpu_memory_bytes
from benchmarks.simulation.result import StepSimulation
from benchmarks.simulation.steps import simulate_step
from benchmarks.simulation.work import sample_seconds
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import Spec

WORST, WORST_OF_WORKLOAD = 10, 2  # cells that are explained
PREDICTION_DRAWS = 64
COPIED = 0.3  # of the time of computing: copies of samples that last so long are felt by the model's rings
STARVED = 0.05  # of a step: devices that wait longer for samples are late because of them
LOCAL_MODELS = {"V100": "V100-SXM2-16GB", "A100": "A100-SXM4-40GB"}
CHASSIS_MODELS = {"V100": "V100-PCIE-16GB", "A100": "A100-PCIE-40GB"}
TRAINED = tuple(name for name, workload in CATALOGUE.items() if workload.is_training)


@dataclass(frozen=True)
class ComparedCell:
    """One composition in both: what either takes for the seconds of a step."""

    spec: Spec
    topology: Topology
    simulated: StepSimulation
    predicted: Prediction

    @property
    def difference(self) -> float:
        """Relative, of the simulation against the model."""
        return self.simulated.step_seconds / self.predicted.step_seconds - 1

    @property
    def terms(self) -> Mapping[str, tuple[float, float]]:
        """Seconds of each term, of the simulation and of the model.

        Copies to devices count as input; waits for the slowest device as input where samples are short, else as
        computation.
        """
        found = self.simulated
        starved = found.input_wait > STARVED * found.step_seconds
        own = {
            "compute": found.compute + (0 if starved else found.late),
            "communication": found.exposed,
            "input": found.input_wait + found.copying + (found.late if starved else 0),
            "optimiser": found.optimiser,
        }
        return {term.name: (own[term.name], term.seconds) for term in self.predicted.terms}

    @property
    def label(self) -> str:
        spec, places = self.spec, sorted({device.place for device in self.topology.accelerators})
        where = " + ".join("local" if place == LOCAL else place.split("/")[1] for place in places)
        links = {f"x{device.link.lanes} Gen{device.link.generation}" for device in self.topology.accelerators}
        return (
            f"{spec.workload}, {spec.devices} x {self.topology.accelerators[0].model.split('-')[0]} ({where}; "
            f"{', '.join(sorted(links))}), batch {spec.batch}, {spec.precision}, {spec.strategy}, "
            f"{spec.loader_workers} loaders of {self.topology.cores} cores"
        )

    @property
    def why(self) -> str:
        """One sentence: which term differs most, and what either takes for the limit."""
        name, (own, other) = max(self.terms.items(), key=lambda term: abs(term[1][0] - term[1][1]))
        limits = [max(self.terms, key=lambda term: self.terms[term][side]) for side in (0, 1)]
        more = "more" if own > other else "less"
        agreed = (
            f"both take {limits[0]} for the limit"
            if limits[0] == limits[1]
            else f"the simulation takes {limits[0]} for the limit, the model {limits[1]}"
        )
        reason = REASONS.get((name, more), "")
        if (name, more) == ("input", "more") and self.simulated.copying <= self.simulated.input_wait:
            needed = format_seconds(sample_seconds(self.spec))
            reason = f"a sample takes {needed} of a core, and the processes that train keep cores busy, too"
        elif (name, more) == ("communication", "more"):
            reason = EXCHANGES[self.spec.strategy]
        elif (name, more) == ("communication", "less") and self.simulated.copying > COPIED * self.simulated.compute:
            reason = "copies of samples share an uplink for a part of a step; the model takes them to do so throughout"
        return f"{format_seconds(abs(own - other))} {more} {name} than in the model ({reason}); {agreed}."


EXCHANGES: Mapping[str, str] = {
    "ddp": "buckets wait for their gradients, and rings for other traffic",
    "sharded": "the weights of a large layer are gathered while the layer before it is computed, which may be small",
    "dp": "all weights and gradients pass the slowest edge, and the interpreter copies modules",
}
# What either side leaves out, or sees otherwise, by the term in which it shows.
REASONS: Mapping[tuple[str, str], str] = {
    ("compute", "more"): "kernels of small batches do not reach their rate, and the exchange takes multiprocessors",
    ("compute", "less"): "kernels reach more of the device: the rates that either is fitted to are those of others",
    ("communication", "less"): "a ring reaches NCCL's own rates, and gradients of late layers leave early",
    ("input", "more"): "copies to the devices delay each step and share uplinks",
    ("input", "less"): "cores prepare samples faster, and a full queue hides what varies",
    ("optimiser", "more"): "it starts kernels for each tensor",
    ("optimiser", "less"): "kernels of the optimiser reach the memory's rate",
}


def random_cell(source: random.Random) -> tuple[Spec, Topology]:
    """Return a training of the catalogue at published sizes, on a composition that has memory enough for it."""
    while True:
        generation = source.choice(["V100", "V100", "V100", "A100"])
        link = PcieLink(lanes=source.choice([8, 16, 16, 16]), generation=source.choice([3, 3, 4]))
        places = source.choice(
            [(LOCAL,), PAPER_DRAWERS[:1], PAPER_DRAWERS, (LOCAL, *PAPER_DRAWERS[:1]), (LOCAL, *PAPER_DRAWERS)]
        )
        devices = source.choice([1, 2, 4, 4, 8, 8, 8])
        accelerators = tuple(
            _accelerator(number, places[number * len(places) // devices], generation, link) for number in range(devices)
        )
        workload = source.choice(TRAINED)
        usual = spec_of(workload, "paper", {})
        spec = spec_of(
            workload,
            "paper",
            {
                "devices": devices,
                "batch": max(1, round(usual.batch * source.choice([0.5, 1, 1, 2]))),
                "precision": source.choice(["fp16", "fp16", "fp32"]),
                "strategy": "single" if devices == 1 else source.choice(["ddp", "ddp", "ddp", "sharded", "dp"]),
                "loader_workers": source.choice([1, 2, 4, 8, 16]),
            },
        )
        topology = Topology(
            name="random",
            cores=source.choice([16, 32, 40, 64]),
            accelerators=accelerators,
            storage=Storage(model=source.choice(["local storage", "SSDPEDKX040T7"])),
            uplinks={
                place: PcieLink(lanes=source.choice([8, 16, 16]), generation=link.generation)
                for place in places
                if place != LOCAL
            },
            local_fabric=source.choice(["nvlink", "nvlink", "pcie"]),
        )
        if not fits(spec, topology):
            return spec, topology


def _accelerator(number: int, place: str, generation: str, link: PcieLink) -> Accelerator:
    model = (LOCAL_MODELS if place == LOCAL else CHASSIS_MODELS)[generation]
    return Accelerator(name=f"GPU {number}", model=model, place=place, link=link, memory_bytes=gpu_memory_bytes(model))


def compare(count: int, seed: int) -> list[ComparedCell]:
    """Return random compositions in both, the largest difference first."""
    source = random.Random(seed)  # noqa: S311 - a study, not a secret
    found = []
    for _ in range(count):
        spec, topology = random_cell(source)
        found.append(
            ComparedCell(
                spec,
                topology,
                simulate_step(spec, topology, seed=seed),
                predict(spec, topology, count=PREDICTION_DRAWS),
            )
        )
    return sorted(found, key=lambda cell: -abs(cell.difference))


def farthest(cells: Sequence[ComparedCell]) -> list[ComparedCell]:
    """Return the cells to explain: those that differ most, and few of each workload, whose reasons are alike."""
    seen: Counter[str] = Counter()
    found = []
    for cell in cells:
        seen[cell.spec.workload] += 1
        if seen[cell.spec.workload] <= WORST_OF_WORKLOAD:
            found.append(cell)
    return found[:WORST]


@dataclass(frozen=True)
class ComparisonSummary:
    """Of relative differences without sign: their median, and shares of cells within 10 and 20 %."""

    cells: int
    median: float
    bias: float  # median with sign
    within_10: float
    within_20: float


def summary(cells: Sequence[ComparedCell]) -> ComparisonSummary:
    sizes = [abs(cell.difference) for cell in cells]
    return ComparisonSummary(
        cells=len(cells),
        median=statistics.median(sizes),
        bias=statistics.median(cell.difference for cell in cells),
        within_10=sum(size <= 0.1 for size in sizes) / len(sizes),
        within_20=sum(size <= 0.2 for size in sizes) / len(sizes),
    )
