"""What a run of a benchmark is, and what a host tells of one: shapes that the site, the agent and the trainer share.

Sizes are in bytes, times in seconds, shares 0 to 1. What happens in a run is told as a sequence of events, each one
line of JSON; the site reads it from a number on, so that nothing is lost or told twice when a worker dies.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

import msgspec

Precision = Literal["fp32", "fp16", "bf16"]  # of the arithmetic; fp16 and bf16 are mixed precision
Strategy = Literal["single", "dp", "ddp", "sharded"]  # sharded: parameters, gradients and optimiser over all devices
Backend = Literal["cpu", "cuda"]
Executor = Literal["torch", "simulated"]
# Where a figure comes from. Never two of them in one mark of a chart without saying so.
Provenance = Literal["measured", "simulated", "predicted", "imported"]
Option = int | float | str | bool
# The environment variable by which an agent tells the trainer which drive was chosen: a folder there, or its device.
DRIVE_VARIABLE: Final = "FALCONWEB_DRIVE"

Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that decides what a run does, apart from where: two runs with one hash are repetitions of each other.

    `batch` is for one device, `accumulation` batches make a step. `options` are the workload's own sizes (sequence
    length, image side, message sizes). `command` is given for the workload 'command' alone.
    """

    workload: str
    framework: Literal["pytorch"] = "pytorch"
    devices: Positive = 1  # ranks; for dp the devices of the one process
    batch: Positive = 1
    accumulation: Positive = 1
    steps: Positive = 10  # timed
    warmup: Count = 3
    precision: Precision = "fp32"
    gradient: Precision = "fp32"  # what is sent between devices
    strategy: Strategy = "ddp"
    compile: bool = False
    bucket_bytes: Positive = 25 * 2**20  # of gradients that are sent together
    loader_workers: Count = 0
    threads: Count = 0  # of the host's CPU a process; 0: the library's own choice
    seed: Count = 0
    backend: Backend = "cuda"
    options: dict[str, Option] = {}
    command: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """One a device, and a single one for 'single' and 'dp'."""
        return 1 if self.strategy in ("single", "dp") else self.devices

    @property
    def global_batch(self) -> int:
        """Samples of one step over all devices."""
        return self.devices * self.batch * self.accumulation

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated run does with one device: shares of compute and memory, mean traffic in bytes a second.

    Devices without an address are, in their order, the GPUs that the run was given and no other one names, the host's
    own last, then what else it was given. `peer_share` of the traffic is with devices of the same drawer, and does not
    reach the host.
    """

    address: str = ""  # PCIe address on the host
    share: float = 0.0
    memory_share: float = 0.0  # of its memory that is in use
    to_device: float = 0.0
    from_device: float = 0.0
    peer_share: float = 0.0


class SimulationProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How a simulated run goes: median and relative spread (of the logarithm) of a step, and what it does to devices.

    `fails` lets it end badly, for tests and exercises: 'out_of_memory', 'crash' or 'hang' after `fails_at` steps.
    """

    step_seconds: float
    spread: float = 0.02
    warmup_factor: float = 1.5  # of the first steps
    devices: tuple[DeviceProfile, ...] = ()
    host_cpu_share: float = 0.0
    host_memory_bytes: float = 0.0
    disk_read: float = 0.0  # bytes a second
    first_loss: float = 0.0
    last_loss: float = 0.0
    fails: Literal["", "out_of_memory", "crash", "hang"] = ""
    fails_at: Count = 0
    # Results that are no step times: of the bandwidth tests.
    result: dict[str, Any] = {}


class Software(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run ran on, '' where it is not known."""

    python: str = ""
    framework: str = ""  # 'torch 2.13.0+cpu'
    cuda: str = ""
    nccl: str = ""
    driver: str = ""
    libraries: dict[str, str] = {}
    operating_system: str = ""
    processor: str = ""
    cores: int = 0
    accelerators: tuple[str, ...] = ()
    container: str = ""  # digest
    commit: str = ""


class RunStarted(msgspec.Struct, frozen=True, tag_field="kind", tag="began"):
    """The processes run: what on."""

    at: float
    software: Software


class PhaseStarted(msgspec.Struct, frozen=True, tag_field="kind", tag="phase"):
    """Something new begins: 'build', 'warmup', 'timed', 'no_sync' (steps without exchange of gradients), 'finish'."""

    at: float
    name: str


class StepsCompleted(msgspec.Struct, frozen=True, tag_field="kind", tag="steps"):
    """Steps that ended: `first` counts from 0 within the phase. Seconds of rank 0 after all ranks were waited for."""

    at: float  # when the last of them ended
    phase: str
    first: Count
    seconds: tuple[float, ...]
    loss: tuple[float | None, ...] = ()


class RunReading(msgspec.Struct, frozen=True, tag_field="kind", tag="reading"):
    """Readings of one moment, name to value: those of READINGS, of a device 'gpu/0000:41:00.0/utilisation'."""

    at: float
    interval: float  # seconds that a mean or a rate is over; 0: of a moment
    source: str  # 'nvml', 'procfs', 'simulated'
    values: dict[str, float]


class RunResult(msgspec.Struct, frozen=True, tag_field="kind", tag="result"):
    """Figures that are no step times, by name: {"bandwidth": [[..]]}, with their units: {"bandwidth": "GB/s"}."""

    at: float
    values: dict[str, Any]
    units: dict[str, str] = {}


class RunFailed(msgspec.Struct, frozen=True, tag_field="kind", tag="trouble"):
    """Something went wrong; `what` is 'out_of_memory', 'crash', 'hang', 'limit', 'lost' or 'refused'."""

    at: float
    what: str
    sentence: str


RunEvent = RunStarted | PhaseStarted | StepsCompleted | RunReading | RunResult | RunFailed
event_encoder = msgspec.json.Encoder()
event_decoder = msgspec.json.Decoder(RunEvent)

# Readings of a run by the last part of their name: unit, and what it is.
READINGS: dict[str, tuple[str, str]] = {
    "utilisation": ("share", "GPU in use"),
    "memory_share": ("share", "GPU memory busy"),
    "memory_used": ("B", "GPU memory in use"),
    "pcie_to": ("B/s", "PCIe to the device"),
    "pcie_from": ("B/s", "PCIe from the device"),
    "power": ("W", "Power"),
    "temperature": ("°C", "Temperature"),
    "cpu": ("share", "CPU of the host in use"),
    "memory": ("B", "Memory of the host in use"),
    "disk_read": ("B/s", "Read from disks"),
    "disk_write": ("B/s", "Written to disks"),
}

RunState = Literal["running", "ended", "unknown"]


class RunUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a host tells of one run since `first_event` and since byte `first_byte` of its log.

    `more` says that not all fitted. 'ended' with exit_code None: nobody knows how (its keeper was killed).
    """

    run: str
    state: RunState
    exit_code: int | None = None
    sentence: str = ""
    cancelled: bool = False
    first_event: Count = 0
    events: tuple[RunEvent, ...] = ()
    first_byte: Count = 0
    log: str = ""
    next_byte: Count = 0
    more: bool = False
