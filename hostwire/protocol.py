"""Commands, answers and reports between site and agents, as frozen structs; JSON on the wire.

IDs are as sysfs writes them (`0x10de`), addresses `0000:41:00.0`, times Unix seconds, speeds GT/s a lane.

msgspec looks at a class when it is first read: it asks Python for its annotations meanwhile, which lets other threads
in, and one that meets the class half looked at reads memory that is not there yet (msgspec 0.22.0 ends with a
segmentation fault). What was looked at before threads begin is only read afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from hostwire.training import Executor, RunUpdate, SimulationProfile, Spec

# How long a command may ask an agent to wait for holders to leave, or for a device to appear.
MAX_WAIT = 600.0
WaitSeconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)]

# What every database can keep.
NonNegative = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
UnixSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]

HolderKind = Literal["process", "mount", "swap", "mapping", "interface", "functions"]
# Who uses a device in a way that taking it would lose data: never forced while the device still answers.
DATA_HOLDER_KINDS = ("mount", "swap", "mapping")
Outcome = Literal[
    "done",  # report, holders: looked at
    "removed",  # drain: the host no longer has it (also where it was removed before)
    "in_use",  # drain: somebody holds it, see `holders`; nothing was changed
    "not_present",  # drain, holders: the host sees no such device
    "seen",  # rescan, restore: every wanted device is there
    "not_seen",  # rescan, restore: the time ended before all of them were
    "timed_out",  # a step did not end within its limit: see `steps`
    "refused",  # see `sentence`; nothing was changed
    "failed",  # a step was refused by the host's system: see `steps`
    "started",  # train: it runs (also where it was started before)
    "stopped",  # train_stop: all its processes are gone
    "interrupted",  # the agent ended midway and was started again: ask for the truth with a new command
]


class DeviceSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which device is meant: what is given must fit. An address alone is enough, a serial number is safest."""

    address: str = ""
    vendor_id: str = ""
    device_id: str = ""
    serial: str = ""


class ReportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="report"):
    """Asks for a report at once."""


class HoldersRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="holders"):
    """Asks who holds a device."""

    device: DeviceSelector


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="drain"):
    """Asks to take a device from the host: wait for its holders for `wait` seconds, or with `force` not at all."""

    device: DeviceSelector
    wait: WaitSeconds = 0.0
    force: bool = False


class RescanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="rescan"):
    """Asks to look for new devices, for `wait` seconds at most.

    `known` are the addresses that the host showed before the devices were attached: a device without a known serial
    number counts as new where its address is not among them. Without it, what the agent sees itself counts as known.
    """

    wanted: tuple[DeviceSelector, ...] = ()
    wait: WaitSeconds = 60.0
    known: tuple[str, ...] | None = None


class RestoreRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="restore"):
    """Asks to undo a drain: look for the device again and give it back to its driver."""

    device: DeviceSelector
    wait: WaitSeconds = 60.0


class TrainRequest(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="task", tag="train"
):
    """Asks to start a run, once (`run` names it): with these devices of the host, for `limit` seconds at most.

    `local` is how many of the host's own GPUs it takes besides: none at the addresses `foreign`, where a chassis has
    given it devices. Data is read from the NVMe drive `drive`, one of `devices` or the host's own; None: from wherever
    the host has it. A simulated one goes as `profile` says.
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


class TrainPollRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="train_look"):
    """Asks what became of a run since these places in its events and its log."""

    run: str
    event: NonNegative = 0
    byte: NonNegative = 0


class TrainStopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="train_stop"):
    """Asks to end a run: its processes are asked to, and killed after `grace` seconds."""

    run: str
    grace: WaitSeconds = 5.0


class TrainDeleteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="task", tag="train_forget"):
    """Asks to delete what is kept of a run that has ended: the site has all of it."""

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
    """A request to one host, good once (`nonce`) and until `expires`."""

    host: str
    nonce: str
    issued: float
    expires: float
    request: Request

    @property
    def task(self) -> str:
        """The name of the Celery task that takes it."""
        return f"agent.{self.request.__struct_config__.tag}"


class DeviceHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who uses a device: a process (pid, command, owner), or what else `kind` says, with the place in `what`."""

    kind: HolderKind
    what: str
    pid: NonNegative = 0
    command: str = ""
    owner: str = ""


class PciDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A PCIe device as the host sees it. Width 0 and speed 0.0 where the host does not say.

    `answers` is False where the entry is left of a device that is gone. `nodes` are its device files, `problems` what
    could not be read. `model` is what an NVMe drive calls itself.
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


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """What NVML says of a GPU: shares 0 to 1, watts, degrees Celsius, MiB; None where the GPU does not tell."""

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
    """One step that was taken: its name, how it ended, how long it took in seconds."""

    name: str
    outcome: Literal["done", "skipped", "failed", "timed_out"]
    seconds: float
    sentence: str = ""


class CommandAnswer(msgspec.Struct, frozen=True):
    """What became of a command (told by its nonce). `sentence` is for people.

    `devices` are the devices it was about, as they are now; `holders` who holds them; `cut_off` who held them when
    they were taken by force.
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
    """What a host can run: executors, and of PyTorch the version, its backends and who runs the commands of users.

    `account` is the unprivileged account of users' own commands, '' where they are refused. `drives` tells whether
    what PyTorch reads can come from a drive that is chosen.
    """

    executors: tuple[Executor, ...] = ()
    framework: str = ""
    backends: tuple[str, ...] = ()
    account: str = ""
    drives: bool = False
    absent: str = ""  # why there is no real executor, a sentence
    running: tuple[str, ...] = ()  # runs


class HostReport(msgspec.Struct, frozen=True):
    """What a host is like: sent each ten seconds and after each command.

    `number` counts up from 1 since the agent's start `started`. `holders` is by address of the device. `nvml` says
    what is in the way of NVML's readings, '' where they are there. `left_out` counts devices that did not fit.
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
    trainer: TrainerCapabilities = TrainerCapabilities()


def prepare_structs(*others: type[Any]) -> int:
    """Let msgspec look at all its structs that are defined by now, and at other classes; returns how many those are."""
    shapes = {*defined_structs(), *others}
    for shape in shapes:
        msgspec.json.Decoder(shape)
    return len(shapes)


def defined_structs(base: type[Any] = msgspec.Struct) -> Iterator[type[Any]]:
    """Yield the structs that are defined by now, below a base."""
    for shape in base.__subclasses__():
        if shape.__module__.partition(".")[0] != "msgspec":
            yield shape
        yield from defined_structs(shape)
