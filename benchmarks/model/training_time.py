"""The time of a whole training: epochs of steps, the first with a cold cache, validations, checkpoints.

A faster drive shows here and hardly in a step: with enough memory only the first pass reads it, and checkpoints are
written while the devices wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.model.belief import Cell
from benchmarks.model.features import (
    costs_of,
    feature_columns,
    features_of,
    storage_link_rate,
)
from benchmarks.model.memory import checkpoint_bytes
from benchmarks.model.meter import meter_readings
from benchmarks.model.reference_data import (
    PARAMETER_INDEX,
    Floats,
    drive_datasheet,
    workload_data_set,
)
from benchmarks.model.step_time import step_times

FORWARD = 1 / 3  # of a batch's computation, all that a validation does


@dataclass(frozen=True)
class TrainingTimes:
    """Seconds of whole trainings and their parts, draws by cells."""

    total: Floats
    cold: Floats  # what the first pass takes longer
    checkpoint: Floats  # one of them
    checkpoints: Floats  # how many
    validation: Floats  # one of them
    validations: Floats
    utilisation: Floats  # NVML's, over the whole training
    memory_share: Floats

    @property
    def paused(self) -> Floats:
        """The share of the training in which no step runs."""
        share: Floats = (self.checkpoint * self.checkpoints + self.validation * self.validations) / self.total
        return share


def training_times(logs: Floats, cells: Sequence[Cell]) -> TrainingTimes:
    """Return the times of trainings with the data set, the epochs and the checkpoints of the published runs."""
    warm, cold = [], []
    facts = np.zeros((7, len(cells)))
    for column, (spec, topology) in enumerate(cells):
        data, costs = workload_data_set(spec.workload), costs_of(spec)
        drive, link = drive_datasheet(topology.storage.model), storage_link_rate(topology)
        features = features_of(spec, topology)
        reading = spec.global_batch * costs.input_bytes * data.reads / min(drive.rate, link)
        warm.append(replace(features, read_seconds=reading * data.uncached_share(topology.memory_bytes)))
        cold.append(replace(features, read_seconds=reading))
        steps_each = data.samples / spec.global_batch
        saved = data.copies * checkpoint_bytes(spec)
        every = data.checkpoint_steps or steps_each
        facts[:, column] = (
            steps_each,
            data.epochs,
            data.reads,
            saved / min(drive.write_rate, link),
            max(1.0, steps_each * data.epochs / every),
            data.validation / spec.global_batch,
            1.0 if data.checkpoint_steps else data.epochs,
        )
    steps, epochs, reads, saving, checkpoints, validated, validations = facts
    columns = feature_columns(warm)
    usual, first = step_times(logs, columns), step_times(logs, feature_columns(cold))
    # A mosaic of four reads the whole set within the first quarter of a pass.
    slower = np.maximum(first.step - usual.step, 0.0) * steps / reads
    checkpoint = saving / np.exp(logs[:, PARAMETER_INDEX["storage"], None])
    forward = np.maximum(FORWARD * usual.compute, usual.input) * validated
    total = usual.step * steps * epochs + slower + checkpoint * checkpoints + forward * validations
    read = meter_readings(usual, columns)
    stepping = usual.step * steps * epochs / total
    in_validation = FORWARD * validated * validations / total
    return TrainingTimes(
        total=total,
        cold=slower,
        checkpoint=checkpoint,
        checkpoints=np.broadcast_to(checkpoints, total.shape),
        validation=forward,
        validations=np.broadcast_to(validations, total.shape),
        utilisation=read.utilisation * stepping + usual.kernels * in_validation,
        memory_share=read.memory_share * stepping + usual.memory * in_validation,
    )
