"""What a simulation returns, and the meters that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TimelinePoint:
    """Means over one part of the simulated time, which ends at `at` seconds."""

    at: float
    kernel_busy: float  # of the first device
    memory_busy: float
    cpu: float


@dataclass(frozen=True, kw_only=True)
class StepSimulation:
    """Simulated steps of a run. Times are seconds, shares 0 to 1, both means over devices and steps where not said.

    `kernel_busy` counts kernels of the communication that wait, as NVML's utilisation does; `compute_busy` does not.
    `memory_busy` is the share of time with memory access. `devices` has the bytes a step to and from each device over
    its PCIe link, `traffic` what the ports of all devices in chassis count together, a second.
    """

    step_seconds: float  # median
    steps: tuple[float, ...]
    compute_busy: float
    kernel_busy: float
    memory_busy: float
    input_wait: float  # seconds of a step
    copying: float  # seconds of a step
    exposed: float  # seconds of a step that devices wait for the exchange
    late: float  # seconds of a step that devices wait for the slowest of them
    optimiser: float  # seconds of a step
    cpu_share: float
    host_memory_bytes: float
    traffic: float
    devices: Mapping[str, tuple[float, float]]
    links: Mapping[str, float]  # bytes a second that each shared link carries, and cores in use
    timeline: tuple[TimelinePoint, ...]

    @property
    def compute(self) -> float:
        """Seconds of a step that devices compute in, the optimiser not counted."""
        return self.compute_busy * (sum(self.steps) / len(self.steps)) - self.optimiser


class DeviceMeter:
    """The meters of one device: `on` and `off` count kernels that run or wait."""

    __slots__ = (
        "busy_times",
        "computed",
        "copied",
        "exposed",
        "intervals",
        "kernels",
        "late",
        "memory",
        "optimised",
        "since",
        "waited",
    )

    def __init__(self) -> None:
        self.kernels = 0
        self.since = self.computed = self.memory = 0.0
        self.busy_times: list[tuple[float, float]] = []
        self.waited = self.copied = self.exposed = self.late = self.optimised = 0.0
        self.intervals: list[tuple[float, float, float]] = []  # begin, end, share with memory access

    def on(self, now: float) -> None:
        if self.kernels == 0:
            self.since = now
        self.kernels += 1

    def off(self, now: float) -> None:
        self.kernels -= 1
        if self.kernels == 0:
            self.busy_times.append((self.since, now))

    @property
    def busy(self) -> float:
        return sum(end - begin for begin, end in self.busy_times)

    def reset(self, now: float) -> None:
        """Forget the warm-up."""
        self.computed = self.memory = self.waited = self.copied = self.exposed = self.late = self.optimised = 0.0
        self.since = now
        self.busy_times.clear()
        self.intervals.clear()

    def settle(self, now: float) -> None:
        """Count kernels that still run until now."""
        if self.kernels:
            self.busy_times.append((self.since, now))
            self.since = now
