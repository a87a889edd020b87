"""The published cells in the event simulation, as input of figures."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from benchmarks.figures.comparison import published_cells
from benchmarks.figures.rows import STEP_SECONDS_KEY, Floats, RunData, no_values
from benchmarks.model import ModelError
from benchmarks.model.topology import Topology
from benchmarks.runs.results import Statistic, Summary
from benchmarks.simulation import StepSimulation
from benchmarks.simulation.observations import simulate_published
from benchmarks.workloads.catalogue import CATALOGUE, workload_title
from core.language import cache_by_language
from hostwire.training import Spec

ID_PREFIX = "simulation "  # of rows that are no recorded runs


@cache_by_language
def simulated_cells(figure: str) -> list[RunData]:
    """Return the published cells of a figure as simulated; without those that the simulation does not play."""
    found = []
    for number, (spec, topology) in enumerate(published_cells(figure)):
        with suppress(ModelError):  # it plays no workload that measures links
            simulated = simulate_published(spec, topology)
            found.append(_row(f"{ID_PREFIX}{figure} {number}", spec, topology, simulated))
    return found


def _row(name: str, spec: Spec, topology: Topology, simulated: StepSimulation) -> RunData:
    title = workload_title(spec.workload)
    series = _series(simulated)
    return RunData(
        id=name,
        title=f"{title}, {topology.name}",
        workload=spec.workload,
        workload_title=title,
        is_training=CATALOGUE[spec.workload].is_training,
        provenance="simulated",
        spec=spec,
        topology=topology,
        summary=Summary(
            readings={
                "utilisation": Statistic.exact(simulated.kernel_busy, "share"),
                "memory_share": Statistic.exact(simulated.memory_busy, "share"),
                "cpu": Statistic.exact(simulated.cpu_share, "share"),
                "memory": Statistic.exact(simulated.host_memory_bytes, "B"),
            },
            pcie=Statistic.exact(simulated.traffic, "B/s") if simulated.traffic else None,
        ),
        keys=frozenset(series),
        read=lambda key: series.get(key, no_values(key)),
    )


def _series(simulated: StepSimulation) -> Mapping[str, tuple[Floats, Floats]]:
    timeline = simulated.timeline
    return {
        STEP_SECONDS_KEY: (np.cumsum(simulated.steps), np.array(simulated.steps)),
        "utilisation": (np.array([one.at for one in timeline]), np.array([one.kernel_busy for one in timeline])),
        "cpu": (np.array([one.at for one in timeline]), np.array([one.cpu for one in timeline])),
    }
