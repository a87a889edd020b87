"""Commands, answers and reports between site and agents, as frozen structs, JSON on the wire.

IDs are as in sysfs (`0x10de`), addresses like `0000:41:00.0`, times in Unix seconds, speeds in GT/s per lane.

msgspec inspects a class when it first decodes it. Evaluating the annotations meanwhile can switch threads, and another
thread that uses the half-inspected class reads uninitialised memory (msgspec 0.22.0 ends with a segmentation fault).
So classes are inspected before threads start (`prepare_structs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from hostwire.training import Executor, NodePart, RunUpdate, SimulationProfile, Spec

# The longest wait that a command may request: for a device to be released, or to appear.
MAX_WAIT = 600.0
WaitSeconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)]

# Limits that every database can store.
NonNegative = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
UnixSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]

HolderKind = Literal["process", "mount", "swap", "mapping", "interface", "functions"]
# Holders whose data a forced drain would lose: never forced while the device still responds.
DATA_HOLDER_KINDS = ("mount", "swap", "mapping")
Outcome = Literal[
    "done",  # report, holders: read
    "removed",  # drain: removed from the host (also where it was removed before)
    "in_use",  # drain: the device is in use, see `holders`; nothing was changed
    "not_present",  # drain, holders: the host sees no such device
    "seen",  # rescan, restore: every expected device is present
    "not_seen",  # rescan, restore: not all of them appeared in time
    "timed_out",  # a step did not end within its limit: see `steps`
    "refused",  # see `sentence`; nothing was changed
    "failed",  # the host's operating system refused a step: see `steps`
    "started",  # train: the run is running (also where it was started before)
    "stopped",  # train_stop: all processes of the run have ended
    "interrupted",  # the agent was restarted during the command: read the state with a new command
]


class DeviceSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects a device by all given fields. An address alone is enough, a serial number is safest."""

    address: str = ""
    vendor_id: str = ""
    device_id: str = ""
    serial: str = ""


class AgentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task"):
    """The request of a command; its tag is the name of the agent's task."""


class ReportRequest(AgentRequest, frozen=True, tag="report"):
    """Requests an immediate report."""


class HoldersRequest(AgentRequest, frozen=True, tag="holders"):
    """Requests the holders of a device."""

    device: DeviceSelector


class DrainRequest(AgentRequest, frozen=True, tag="drain"):
    """Requests a drain: wait up to `wait` seconds until the device is unused; with `force`, do not wait."""

    device: DeviceSelector
    wait: WaitSeconds = 0.0
    force: bool = False


class RescanRequest(AgentRequest, frozen=True, tag="rescan"):
    """Requests a scan for new devices, for at most `wait` seconds.

    `known` are the addresses that the host had before the devices were attached: a device without a known serial
    number is new if its address is not among them. Without it, the devices that the agent sees now are known.
    """

    wanted: tuple[DeviceSelector, ...] = ()
    wait: WaitSeconds = 60.0
    known: tuple[str, ...] | None = None


class RestoreRequest(AgentRequest, frozen=True, tag="restore"):
    """Requests to undo a drain: find the device again and bind it to its driver."""

    device: DeviceSelector
    wait: WaitSeconds = 60.0


class TrainRequest(AgentRequest, frozen=True, omit_defaults=True, tag="train"):
    """Requests to start the run named `run`, once, with these devices of the host, for at most `limit` seconds.

    `local` is the number of the host's own GPUs that it takes besides; GPUs at the addresses `foreign` are a chassis's,
    and do not count. Data is read from the NVMe drive `drive`, one of `devices` or the host's own; None: from the
    host's default location. A simulated run follows `profile`. `node` is this host's part in a run over several.
    """

    run: str
    spec: Spec
    executor: Executor
    limit: Annotated[float, msgspec.Meta(gt=0, le=30 * 86400)]
    devices: tuple[DeviceSelector, ...] = ()
    local: NonNegative = 0
    foreign: tuple[str, ...] = ()
    drive: DeviceSelector | None = None
    profile: SimulationProfile | None = None
    node: NodePart | None = None


class TrainPollRequest(AgentRequest, frozen=True, tag="train_look"):
    """Requests the events and the log of a run from these positions on."""

    run: str
    event: NonNegative = 0
    byte: NonNegative = 0


class TrainStopRequest(AgentRequest, frozen=True, tag="train_stop"):
    """Requests to stop a run: its processes get SIGTERM, and SIGKILL after `grace` seconds."""

    run: str
    grace: WaitSeconds = 5.0


class TrainDeleteRequest(AgentRequest, frozen=True, tag="train_forget"):
    """Requests to delete the files of a run that has ended: the site has all of its results."""

    run: str


Request = (
    ReportRequest
    | HoldersRequest
    | DrainRequest
    | RescanRequest
    | RestoreRequest
    | TrainRequest
    | TrainPollRequest
    | TrainStopRequest
    | TrainDeleteRequest
)


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to one host, valid once (`nonce`) and until `expires`."""

    host: str
    nonce: str
    issued: float
    expires: float
    request: Request

    @property
    def task(self) -> str:
        """The name of the Celery task that carries it out."""
        return task_name(type(self.request))


def task_name(request: type[Request]) -> str:
    """Return the name of the Celery task that carries out requests of a kind."""
    return f"agent.{request.__struct_config__.tag}"


class DeviceHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user of a device: a process (pid, command, owner, start), or another `kind`, with the location in `what`.

    `started` is 0.0 where it is not known, and where the agent is older than the field.
    """

    kind: HolderKind
    what: str
    pid: NonNegative = 0
    command: str = ""
    owner: str = ""
    started: UnixSeconds = 0.0


class PciDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A PCIe device as the host sees it. Width 0 and speed 0.0 where the host does not report them.

    `answers` is False for the leftover entry of a device that is gone. `nodes` are its device files, `problems` the
    errors while reading it. `model` is the model name that an NVMe drive reports. `memory_window` are the bytes of its
    BARs of prefetchable memory, `unassigned` those of memory BARs for which the host found no addresses. `iommu` is
    the type of its IOMMU domain, '' without one.
    """

    address: str
    vendor_id: str
    device_id: str
    subsystem_vendor_id: str = ""
    subsystem_id: str = ""
    class_code: str = ""
    serial: str = ""
    driver: str = ""
    numa_node: int = -1
    width: int = 0
    max_width: int = 0
    speed: float = 0.0
    max_speed: float = 0.0
    answers: bool = True
    nodes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    model: str = ""
    memory_window: NonNegative = 0
    unassigned: NonNegative = 0
    iommu: str = ""


class RootPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """A PCIe root port: the bus numbers below it, and the bytes of its window for prefetchable memory, 0 for none."""

    address: str
    first_bus: NonNegative
    last_bus: NonNegative
    used_buses: NonNegative
    window: NonNegative = 0


class HostLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What limits the devices that a host can take.

    `drivers` are those of composable devices that its kernel has or can load, with their versions ('' for none); None
    where that is not known.
    """

    drivers: dict[str, str] | None = None
    root_ports: tuple[RootPort, ...] = ()


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """NVML readings of a GPU: shares 0 to 1, watts, degrees Celsius, MiB; None where the GPU reports no value."""

    address: str
    name: str = ""
    serial: str = ""
    uuid: str = ""
    gpu_share: float | None = None
    memory_share: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    watts: float | None = None
    celsius: float | None = None
    draining: bool | None = None


class CommandStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A completed step: its name, its result, and its duration in seconds."""

    name: str
    outcome: Literal["done", "skipped", "failed", "timed_out"]
    seconds: float
    sentence: str = ""


class CommandAnswer(msgspec.Struct, frozen=True):
    """The answer to the command with this nonce. `sentence` is for people.

    `devices` are the devices it concerned, in their present state; `holders` are their users; `cut_off` their users at
    the time of a forced drain.
    """

    host: str
    nonce: str
    task: str
    outcome: Outcome
    sentence: str
    began: float
    ended: float
    devices: tuple[PciDevice, ...] = ()
    holders: tuple[DeviceHolder, ...] = ()
    cut_off: tuple[DeviceHolder, ...] = ()
    steps: tuple[CommandStep, ...] = ()
    news: RunUpdate | None = None


class TrainerCapabilities(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a host can run: its executors, PyTorch's version and backends, and the account of users' commands.

    `account` is unprivileged, '' where users' own commands are refused. `drives` is whether PyTorch can read its data
    from a chosen drive. `address` is where its processes meet those of other hosts, '' where it takes part in no run
    over several. `spec_fields` are the LATER_FIELDS that a specification may set; agents of earlier releases, which
    drop a request with any of them, name none.
    """

    executors: tuple[Executor, ...] = ()
    framework: str = ""
    backends: tuple[str, ...] = ()
    account: str = ""
    drives: bool = False
    address: str = ""
    absent: str = ""  # a sentence: why there is no real executor
    spec_fields: tuple[str, ...] = ()
    running: tuple[str, ...] = ()  # runs


class HostReport(msgspec.Struct, frozen=True):
    """The state of a host: sent every ten seconds and after each command.

    `number` counts up from 1 since the agent's start `started`. `holders` is by address of the device. `nvml` is the
    reason why NVML readings are missing, '' where they are present. `left_out` counts devices that did not fit.
    """

    host: str
    number: NonNegative
    started: UnixSeconds
    sent: UnixSeconds
    version: str
    hostname: str = ""
    uuid: str = ""
    boot_id: str = ""
    kernel: str = ""
    devices: tuple[PciDevice, ...] = ()
    holders: dict[str, tuple[DeviceHolder, ...]] = {}
    gpus: tuple[GpuReading, ...] = ()
    nvml: str = ""
    busy: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    left_out: int = 0
    limits: HostLimits | None = None  # None: the agent is older than the field, or could not read it
    trainer: TrainerCapabilities = TrainerCapabilities()


def prepare_structs(*others: type[Any]) -> int:
    """Let msgspec inspect all structs that are defined so far, and other classes; returns the number of structs."""
    shapes = {*defined_structs(), *others}
    for shape in shapes:
        msgspec.json.Decoder(shape)
    return len(shapes)


def defined_structs(base: type[Any] = msgspec.Struct) -> Iterator[type[Any]]:
    """Yield the subclasses of a struct that are defined so far."""
    for shape in base.__subclasses__():
        if shape.__module__.partition(".")[0] != "msgspec":
            yield shape
        yield from defined_structs(shape)
