"""The performance model on this machine: one prediction, the published experiment, many cells together, and learning.

Drawing many cells together is compared with drawing the same cells individually.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec

from benchmarks.model import paper_rows, predict, prior, refit, step_seconds
from benchmarks.model.belief import Cell
from benchmarks.model.calibration import PAPER_TOPOLOGIES, Observation, paper_cells
from perf.figures import PerfFigure

REPEATED, DRAWS = 5, 400
MAX_PREDICTION_MS = 50.0  # ms, warm


def measure(say: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of predicting."""
    _workload, _configuration, spec, topology = paper_cells()[-1]
    say("the prior is fitted to the published rates")
    began = time.perf_counter()
    belief = prior()
    predict(spec, topology)
    first = time.perf_counter() - began
    say("predictions, of one cell and of many")
    one = _median(lambda: predict(spec, topology, belief))
    paper = _median(paper_rows)
    cells = _cells(1000)
    draws = belief.draws(DRAWS)
    together = _median(lambda: step_seconds(draws, cells))
    apart = _median(lambda: [step_seconds(draws, [cell]) for cell in cells])
    say("learning from runs")
    learning = {count: _learning(_runs(count)) for count in (5, 50, 500)}
    return [
        PerfFigure(name="predict", figure="first prediction, with the prior's fit", value=first * 1e3, unit="ms"),
        PerfFigure(name="predict", figure="one prediction", value=one * 1e3, unit="ms", most=MAX_PREDICTION_MS),
        PerfFigure(name="predict", figure="predictions", value=1 / one, unit="1/s"),
        PerfFigure(name="predict", figure="25 cells of the published experiment", value=paper * 1e3, unit="ms"),
        PerfFigure(
            name="predict",
            figure=f"{len(cells):,} cells, {DRAWS} draws",
            value=len(cells) / together,
            unit="cells/s",
            beside="one after the other",
            beside_value=len(cells) / apart,
        ),
        *(
            PerfFigure(name="predict", figure=f"learning from {count} runs", value=seconds * 1e3, unit="ms")
            for count, seconds in learning.items()
        ),
    ]


def _learning(runs: list[Observation]) -> float:
    """Return the seconds of fitting the model to runs."""
    return _median(lambda: refit(runs))


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
