"""The published experiment's cells and BERT-large's software variants, predicted together: figures with their draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import msgspec
import numpy as np

from benchmarks.model.belief import Belief, Cell, apply_misfit
from benchmarks.model.calibration import PAPER_TOPOLOGIES, PAPER_VARIANTS, paper_cells, paper_spec
from benchmarks.model.features import feature_columns, features_of
from benchmarks.model.meter import meter_readings
from benchmarks.model.prediction import prediction_draws
from benchmarks.model.reference_data import Floats
from benchmarks.model.step_time import counted_traffic, step_times
from benchmarks.model.training_time import training_times

LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS, LOCAL_NVME, FALCON_NVME = PAPER_TOPOLOGIES


@dataclass(frozen=True)
class Figure:
    """A value with its draws."""

    value: float
    drawn: Floats

    def __add__(self, other: float) -> Figure:
        return Figure(self.value + other, self.drawn + other)

    def __mul__(self, other: float) -> Figure:
        return Figure(self.value * other, self.drawn * other)

    def __sub__(self, other: Figure) -> Figure:
        return Figure(self.value - other.value, self.drawn - other.drawn)

    def __truediv__(self, other: Figure) -> Figure:
        return Figure(self.value / other.value, self.drawn / other.drawn)


class ExperimentStudy(ABC):
    """The published experiment's cells and BERT-large's variants, with figures by workload or variant, and place.

    Figures: 'step' and 'training' (seconds), 'traffic' (bytes a second), 'utilisation', 'memory', 'cpu' (shares).
    """

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Cell] = {
            (workload, name): (spec, topology) for workload, name, spec, topology in paper_cells()
        }
        for variant, fields in PAPER_VARIANTS.items():
            for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS):
                spec = msgspec.structs.replace(paper_spec("bert_large"), **fields)
                self.cells[variant, name] = (spec, PAPER_TOPOLOGIES[name])

    @abstractmethod
    def figure(self, what: str, workload: str, name: str) -> Figure:
        """Return a figure of one cell."""

    def seconds_a_sample(self, workload: str, name: str) -> Figure:
        step = self.figure("step", workload, name)
        return step * (1 / self.cells[workload, name][0].global_batch)

    def overhead(self, workload: str, name: str) -> Figure:
        """Return how much longer a step takes than on localGPUs, relative."""
        return self.figure("step", workload, name) / self.figure("step", workload, LOCAL_GPUS) + -1.0


class PaperStudy(ExperimentStudy):
    """The experiment by one belief of the model.

    Each figure is a pair of arrays: one value for each cell, and draws by cells. Steps and traffic are medians, as in a
    prediction; shares and whole trainings are those of the most probable parameters.
    """

    def __init__(self, belief: Belief) -> None:
        super().__init__()
        self._column = {key: index for index, key in enumerate(self.cells)}
        pairs, draws = list(self.cells.values()), prediction_draws(belief)
        columns = feature_columns([features_of(*cell) for cell in pairs])
        found, middle = step_times(draws.logs, columns), step_times(belief.mean[None], columns)
        steps = apply_misfit(draws, pairs, found.step)
        read, read_middle = meter_readings(found, columns), meter_readings(middle, columns)
        whole, whole_middle = training_times(draws.logs, pairs), training_times(belief.mean[None], pairs)
        self.terms = middle
        self.training = whole_middle
        self.figures: dict[str, tuple[Floats, Floats]] = {
            "step": (np.median(found.step, axis=0), steps),
            "traffic": (
                np.median(counted_traffic(draws.logs, columns, found.step), axis=0),
                counted_traffic(draws.logs, columns, steps),
            ),
            "utilisation": (whole_middle.utilisation[0], whole.utilisation),
            "memory": (whole_middle.memory_share[0], whole.memory_share),
            "cpu": (read_middle.cpu_share[0], read.cpu_share),
            "waited": (middle.waited[0] / middle.step[0], found.waited / found.step),
            "training": (whole_middle.total[0], whole.total),
        }

    def column(self, workload: str, name: str) -> int:
        return self._column[workload, name]

    def figure(self, what: str, workload: str, name: str) -> Figure:
        middle, drawn = self.figures[what]
        column = self._column[workload, name]
        return Figure(float(middle[column]), drawn[:, column])
