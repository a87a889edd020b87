"""Specification and events of a benchmark run: structs that the site, the agent and the trainer share.

Sizes are in bytes, times in seconds, shares 0 to 1. A run reports a sequence of events, each a line of JSON; the site
reads it from a number on, so that no event is lost or duplicated when a worker dies.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec

Precision = Literal["fp32", "fp16", "bf16"]  # fp16 and bf16 are mixed precision
Strategy = Literal["single", "dp", "ddp", "sharded"]  # sharded: parameters, gradients, optimiser over all devices
Backend = Literal["cpu", "cuda"]
# random: samples of noise, in memory or as raw bytes on a chosen drive; files: a data set that is generated once.
DataSource = Literal["random", "files"]
Executor = Literal["torch", "simulated"]
# The origin of a figure. A chart mark that combines two of them must say so.
Provenance = Literal["measured", "simulated", "predicted", "imported"]
Option = int | float | str | bool
# Environment variables of a run's processes: its name; the chosen drive, as a folder on it or its device file; and the
# folder for data where no drive was chosen.
RUN_VARIABLE: Final = "FALCONWEB_RUN"
DRIVE_VARIABLE: Final = "FALCONWEB_DRIVE"
SCRATCH_VARIABLE: Final = "FALCONWEB_SCRATCH"
MESSAGE_SIZE_FACTOR: Final = 4  # between the sizes of messages of a link workload

# Fields that a Spec gained after runs were recorded: at their default they leave its hash as it was.
LATER_FIELDS: Final[frozenset[str]] = frozenset(
    {"hosts", "cores", "data", "samples", "validate_every", "checkpoint_every", "restarts", "resume_from"}
)

CHECKPOINT_NAME: Final = r"^([0-9A-Za-z][0-9A-Za-z_-]{0,79})?$"  # of a folder: no path
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All parameters of a run but its location: runs with the same hash are repetitions of each other.

    `batch` is per device; a step has `accumulation` batches. `options` are the workload's own sizes (sequence length,
    image side, message sizes). Only the workload 'command' has a `command`.
    """

    workload: str
    framework: Literal["pytorch"] = "pytorch"
    devices: Positive = 1  # ranks of all hosts; for dp the devices of the single process
    hosts: Positive = 1
    batch: Positive = 1
    accumulation: Positive = 1
    steps: Positive = 10  # timed
    warmup: Count = 3
    precision: Precision = "fp32"
    gradient: Precision = "fp32"  # of the data sent between devices
    strategy: Strategy = "ddp"
    compile: bool = False
    bucket_bytes: Positive = 25 * 2**20  # bucket of gradients that are sent together
    loader_workers: Count = 0
    threads: Count = 0  # CPU threads per process; 0: the library's default
    cores: Count = 0  # CPU cores that all processes of a host together may use; 0: all
    data: DataSource = "random"
    samples: Count = 0  # files for training; 0: the workload's usual number
    validate_every: Count = 0  # timed steps between two validations; 0: none
    checkpoint_every: Count = 0  # timed steps between two checkpoints; 0: none
    restarts: Count = 0  # how often the run goes on from its checkpoint when a process or its device is lost
    resume_from: Annotated[str, msgspec.Meta(pattern=CHECKPOINT_NAME)] = ""  # the run whose checkpoint it goes on from
    seed: Count = 0
    backend: Backend = "cuda"
    options: dict[str, Option] = {}
    command: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """One per device, and a single one for 'single' and 'dp'."""
        return 1 if self.strategy in ("single", "dp") else self.devices

    @property
    def message_sizes(self) -> list[int]:
        """The sizes of the messages of a link workload, bytes: fourfold from the smallest to the largest."""
        size, most = int(self.options.get("least_bytes", 4)), int(self.options.get("most_bytes", 2**28))
        sizes = [size]
        while 0 < (size := size * MESSAGE_SIZE_FACTOR) < most:
            sizes.append(size)
        return sizes if sizes[-1] >= most else [*sizes, most]

    @property
    def global_batch(self) -> int:
        """Samples of one step over all devices."""
        return self.devices * self.batch * self.accumulation

    @property
    def process_batch(self) -> int:
        """Samples of a batch that one process takes: for dp those of all devices."""
        return self.batch * (self.devices if self.strategy == "dp" else 1)

    @property
    def later_fields(self) -> frozenset[str]:
        """The fields of LATER_FIELDS that are not at their default."""
        return frozenset(name for name, default in _later_defaults().items() if getattr(self, name) != default)

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal; fields of LATER_FIELDS count only if they are set."""
        unset = LATER_FIELDS - self.later_fields
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in unset}
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


@cache
def _later_defaults() -> dict[str, object]:
    """Return the defaults of LATER_FIELDS: msgspec evaluates all annotations each time that it is asked."""
    return {field.name: field.default for field in msgspec.structs.fields(Spec) if field.name in LATER_FIELDS}


class SentSpec(Spec, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A specification as a host gets it: without fields at their default, which an agent of an earlier version may not
    know.
    """


class NodePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The part that one host, a node, has in a run over several: its ranks, and where all ranks meet.

    The node with rank 0 opens the rendezvous at `rendezvous`, an IPv4 address of its own; every node exchanges data on
    the network of its own `address`. `token` is the run's own: processes of another run that come to the same port by
    mistake do not meet those of this one.
    """

    first_rank: Count
    ranks: Positive
    rendezvous: str
    port: Annotated[int, msgspec.Meta(ge=1024, le=65535)]
    address: str
    token: str

    @property
    def leads(self) -> bool:
        return self.first_rank == 0


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a simulated run on one device: shares of compute and memory, mean traffic in bytes per second.

    Devices without an address are assigned in this order: the run's GPUs that no other device names, the host's own
    last, then the run's other devices. `peer_share` of the traffic is with devices of the same drawer, and does not
    reach the host.
    """

    address: str = ""  # PCIe address on the host
    share: float = 0.0
    memory_share: float = 0.0  # share of its memory in use
    to_device: float = 0.0
    from_device: float = 0.0
    peer_share: float = 0.0
    memory_busy: float | None = None  # share of time with access to its memory; None: follows `share`


class SharedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A link, a drive or the cores of a host, which runs share: bytes or core-seconds a second.

    `demand` is what the run takes of `capacity` on its own; `curve` are seconds of a step by what there is, the
    scarcest first. `waits`: devices whose kernels wait for it count as busy, as they do for a link.
    """

    name: str
    capacity: float
    demand: float
    curve: tuple[tuple[float, float], ...]
    waits: bool = False


class PeriodicPause(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after each `every` timed steps in which the devices do something else: a phase, with its own load."""

    phase: Literal["validation", "checkpoint"]
    every: Positive
    seconds: float
    share: float = 0.0  # of compute of all devices
    cpu_share: float = 0.0
    disk_read: float = 0.0  # bytes per second
    disk_write: float = 0.0


class SimulationProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The course of a simulated run: median and relative spread (of the logarithm) of a step, and the device loads.

    `steps` are seconds of steps to repeat in this order, instead of `spread`; `shared` is what other runs may slow.
    `fails` makes it fail, for tests and exercises: 'out_of_memory', 'crash' or 'hang' after `fails_at` steps.
    """

    step_seconds: float
    spread: float = 0.02
    steps: tuple[float, ...] = ()
    shared: tuple[SharedResource, ...] = ()
    pauses: tuple[PeriodicPause, ...] = ()
    warmup_factor: float = 1.5  # of the first steps
    devices: tuple[DeviceProfile, ...] = ()
    host_cpu_share: float = 0.0
    host_memory_bytes: float = 0.0
    disk_read: float = 0.0  # bytes per second
    first_loss: float = 0.0
    last_loss: float = 0.0
    fails: Literal["", "out_of_memory", "crash", "hang"] = ""
    fails_at: Count = 0
    # Results other than step times: of the bandwidth tests.
    result: dict[str, Any] = {}


class Software(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The software and hardware of a run, '' where unknown."""

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
    """The processes have started, in this environment."""

    at: float
    software: Software


class PhaseStarted(msgspec.Struct, frozen=True, tag_field="kind", tag="phase"):
    """A phase begins: 'build', 'data' (files are written, or found), 'warmup', 'timed', 'finish' and others.

    'no_sync': steps without gradient exchange; 'resumed': steps after the loss of a process. 'validation' and
    'checkpoint' are between steps, whose phase begins again after them.
    """

    at: float
    name: str


class StepsCompleted(msgspec.Struct, frozen=True, tag_field="kind", tag="steps"):
    """Completed steps. Seconds of rank 0, after a barrier of all ranks.

    `first` counts from 0 within the phase; in 'resumed' from the timed step at which it goes on. A 'validation' or
    'checkpoint' is a step of its phase, the loss that of the samples for validation.
    """

    at: float  # when the last of them ended
    phase: str
    first: Count
    seconds: tuple[float, ...]
    loss: tuple[float | None, ...] = ()


class RunReading(msgspec.Struct, frozen=True, tag_field="kind", tag="reading"):
    """Readings at one time, name to value: those of READINGS, for a device 'gpu/0000:41:00.0/utilisation'."""

    at: float
    interval: float  # seconds over which a mean or rate is taken; 0: instantaneous
    source: str  # 'nvml', 'procfs', 'simulated'
    values: dict[str, float]


class RunResult(msgspec.Struct, frozen=True, tag_field="kind", tag="result"):
    """Figures other than step times, by name: {"bandwidth": [[..]]}, with their units: {"bandwidth": "GB/s"}."""

    at: float
    values: dict[str, Any]
    units: dict[str, str] = {}


class RunFailed(msgspec.Struct, frozen=True, tag_field="kind", tag="trouble"):
    """A failure; `what` is 'out_of_memory', 'crash', 'hang', 'limit', 'lost', 'refused' or 'peer'.

    'peer': a process of another host ended first, and that host has the cause.
    """

    at: float
    what: str
    sentence: str


RunEvent = RunStarted | PhaseStarted | StepsCompleted | RunReading | RunResult | RunFailed
event_encoder = msgspec.json.Encoder()
event_decoder = msgspec.json.Decoder(RunEvent)

# Readings of a run by the last part of their name: unit and label.
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
    """The news of a run since `first_event` and since byte `first_byte` of its log.

    `more`: not everything fitted. 'ended' with exit_code None: the result is unknown (its supervisor was killed).
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
