"""The performance model on this machine: one prediction, the published experiment, many cells together, and learning.

Drawing many cells together is compared with drawing the same cells individually.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import msgspec

from benchmarks.model import paper_rows, predict, prior, refit, step_seconds
from benchmarks.model.belief import Cell
from benchmarks.model.calibration import PAPER_TOPOLOGIES, Observation, paper_cells
from perf.figures import PerfFigure

REPEATED, DRAWS = 5, 400
MAX_PREDICTION_MS = 50.0  # ms, warm


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of predicting."""
    _workload, _configuration, spec, topology = paper_cells()[-1]
    log("the prior is fitted to the published rates")
    began = time.perf_counter()
    belief = prior()
    predict(spec, topology)
    first = time.perf_counter() - began
    log("predictions, of one cell and of many")
    one = _median(lambda: predict(spec, topology, belief))
    paper = _median(paper_rows)
    cells = _cells(1000)
    draws = belief.draws(DRAWS)
    together = _median(lambda: step_seconds(draws, cells))
    apart = _median(lambda: [step_seconds(draws, [cell]) for cell in cells])
    log("learning from runs")
    learning = {count: _median(partial(refit, _runs(count))) for count in (5, 50, 500)}
    return [
        PerfFigure("first prediction, with the prior's fit", first * 1e3, "ms"),
        PerfFigure("one prediction", one * 1e3, "ms", most=MAX_PREDICTION_MS),
        PerfFigure("predictions", 1 / one, "1/s"),
        PerfFigure("25 cells of the published experiment", paper * 1e3, "ms"),
        PerfFigure(
            f"{len(cells):,} cells, {DRAWS} draws",
            len(cells) / together,
            "cells/s",
            beside="one after the other",
            beside_value=len(cells) / apart,
        ),
        *(PerfFigure(f"learning from {count} runs", seconds * 1e3, "ms") for count, seconds in learning.items()),
    ]


def _median(work: Callable[[], object]) -> float:
    """Return the median duration of a call in seconds."""
    found = []
    for _ in range(REPEATED):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _cells(count: int) -> list[Cell]:
    """Return cells of the published workloads that differ in batch, precision and topology."""
    specs = [spec for _workload, configuration, spec, _topology in paper_cells() if configuration == "localGPUs"]
    topologies = [PAPER_TOPOLOGIES[name] for name in ("localGPUs", "hybridGPUs", "falconGPUs")]
    cells: list[Cell] = []
    batch = 0
    while len(cells) < count:
        batch += 1
        cells += [
            (msgspec.structs.replace(spec, batch=batch, precision=precision), topology)
            for spec in specs
            for precision in ("fp32", "fp16")
            for topology in topologies
        ]
    return cells[:count]


def _runs(count: int) -> list[Observation]:
    """Return runs of this many cells, slightly off the predictions."""
    cells = _cells(count)
    seconds = step_seconds(prior().draws(1, seed=1), cells)[0]
    return [
        Observation(spec=spec, topology=topology, step_seconds=float(step))
        for (spec, topology), step in zip(cells, seconds, strict=True)
    ]
