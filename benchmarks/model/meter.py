"""What meters read while a step runs: NVML on the devices, the operating system on the host.

NVML's utilisation is the share of time in which at least one kernel runs, and NCCL's kernels run while they wait for
other devices. A device that waits for the fabric reads as busy and its memory as idle; one that waits for its input
reads as idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.model.reference_data import Floats
from benchmarks.model.step_time import StepTimes


@dataclass(frozen=True)
class MeterReadings:
    """Shares of a step, draws by cells: any kernel runs, one computes, one accesses memory, the host's cores load."""

    utilisation: Floats
    compute_share: Floats
    memory_share: Floats
    cpu_share: Floats


def meter_readings(found: StepTimes, cells: Mapping[str, Floats]) -> MeterReadings:
    """Return what is read during the steps of cells."""
    computing = found.kernels + found.updating
    return MeterReadings(
        utilisation=np.minimum(1.0, (computing + found.exposed) / found.step),
        compute_share=np.minimum(1.0, computing / found.step),
        memory_share=np.minimum(1.0, (found.memory + found.updating) / found.step),
        cpu_share=np.minimum(1.0, found.decode * cells["cores"] / (cells["host_cores"] * found.step)),
    )
