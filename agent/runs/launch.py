"""Launch of a run: from the site's request to a launch specification, or to the reason for a refusal."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.machine import DeviceLookupError, Machine
from agent.runs.folder import LaunchSpec, RunFolder
from agent.runs.processes import AccountError, account_of, process_identity
from agent.runs.simulation import SimulatedRun
from agent.settings import Settings
from agent.step_execution import CODE_ROOT
from hostwire.protocol import DeviceSelector, GpuReading, TrainRequest
from hostwire.training import DRIVE_VARIABLE, RUN_VARIABLE, SCRATCH_VARIABLE, DeviceProfile, NodePart

COMMAND_WORKLOAD = "command"
# The environment variables that programs need. They get no others of the agent's: those include its key.
PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME")
# The operator's settings for the trainer: the location of the storage to read, and its description for the record.
TRAINER_VARIABLES = (SCRATCH_VARIABLE, "FALCONWEB_CONTAINER_DIGEST", "FALCONWEB_COMMIT")


class RunRefusedError(Exception):
    """This host refuses the run; the text says why."""


def request_digest(request: TrainRequest) -> str:
    return hashlib.sha256(msgspec.json.encode(request, order="sorted")).hexdigest()


def base_environment(*more: str) -> dict[str, str]:
    """Return the environment of the processes that the agent starts for runs, with these additional variables."""
    return {name: os.environ[name] for name in (*PASSED_VARIABLES, *more) if name in os.environ}


def commands_refusal(settings: Settings) -> str:
    """Return the reason why this host runs no users' commands, '' where it does."""
    if settings.simulated:
        return "A simulated host runs no commands of users: they would run on the machine of the site."
    if not settings.account:
        return "This host runs no commands of users: AGENT_ACCOUNT names no account for them."
    try:
        account_of(settings.account)
    except AccountError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class AssignedDevices:
    """The devices of a run: the addresses of the named ones, of the host's own, and of the GPUs among them.

    `drive` is the address of the drive that data is read from, '' for the host's default.
    """

    named: tuple[str, ...]
    own: tuple[str, ...]
    gpus: tuple[GpuReading, ...]
    drive: str = ""

    @property
    def devices(self) -> tuple[str, ...]:
        return self.named + self.own


def prepare_launch(
    request: TrainRequest,
    folder: RunFolder,
    settings: Settings,
    machine: Machine,
    *,
    torch: PyTorchInstallation,
    used: Collection[str],
) -> LaunchSpec:
    """Return the launch specification, and write its input files into the folder.

    `used` are the addresses of the devices of other runs. Raises RunRefusedError, StepError, OSError.
    """
    spec, node = request.spec, request.node
    if spec.workload == COMMAND_WORKLOAD:
        refusal = commands_refusal(settings) if request.executor == "torch" else "A command cannot be simulated."
        if refusal or not spec.command:
            raise RunRefusedError(refusal or "The run has no command.")
        if any("\0" in word for word in spec.command):
            raise RunRefusedError("The command has a NUL character, which no program accepts.")
    elif request.executor == "torch" and torch.absent:
        raise RunRefusedError(torch.absent)
    elif request.executor == "simulated" and not settings.simulated:
        raise RunRefusedError("This host is not simulated, so it runs no simulations.")
    given = _assign_devices(request, machine, used)
    if spec.workload == COMMAND_WORKLOAD:
        command, environment = spec.command, _command_environment(folder, settings, given.gpus)
    elif request.executor == "torch":
        command, environment = _pytorch_launch(request, folder, settings, given, torch)
        environment |= _drive_environment(machine, settings, given.drive)
    else:
        command, environment = _simulated_launch(request, folder, settings, given)
    is_simulated = request.executor == "simulated"
    return LaunchSpec(
        run=request.run,
        request=request_digest(request),
        title=spec.workload,
        command=command,
        environment={**environment, RUN_VARIABLE: request.run},
        limit=request.limit,
        # A real executor for a simulated host runs on this machine.
        root=str(settings.root if is_simulated else "/"),
        account=settings.account if spec.workload == COMMAND_WORKLOAD else "",
        # A user's command writes no events, and of several hosts only that with rank 0.
        hang=0.0 if spec.workload == COMMAND_WORKLOAD or (node and not node.leads) else settings.hang_seconds,
        sample=settings.sample_seconds,
        simulated=is_simulated,
        devices=given.devices,
        # Of these the sampler reads those that NVML sees by then: a GPU just attached may come to it later.
        gpus=given.devices if is_simulated or not settings.simulated else (),
        log_bytes=int(settings.log_mib * 2**20),
        parent=process_identity(settings.parent) if settings.parent else None,
    )


def _assign_devices(request: TrainRequest, machine: Machine, used: Collection[str]) -> AssignedDevices:
    named = tuple(_device_address(machine, one) for one in request.devices)
    drive = _device_address(machine, request.drive) if request.drive is not None else ""
    if drive and drive not in named:
        named = (*named, drive)
    if taken := sorted({*named} & {*used}):
        raise RunRefusedError(f"Another run has {', '.join(taken)}.")
    if not named and not request.local:
        return AssignedDevices((), (), ())
    gpus = {gpu.address: gpu for gpu in machine.gpus().gpus}
    free = [address for address in sorted(gpus) if address not in {*named, *used, *request.foreign}]
    if len(free) < request.local:
        raise RunRefusedError(
            f"The run needs {request.local} of the host's own GPUs; {len(free)} are free and visible to NVML."
        )
    own = tuple(free[: request.local])
    return AssignedDevices(named, own, tuple(gpus[address] for address in named + own if address in gpus), drive)


def _drive_environment(machine: Machine, settings: Settings, drive: str) -> dict[str, str]:
    """Return the environment variable that names the chosen drive to the trainer."""
    if not drive:
        return {}
    if settings.simulated:
        raise RunRefusedError("A simulated host has no drive that PyTorch can read: the drives are this machine's.")
    place = machine.data_place(drive)
    if not place:
        raise RunRefusedError(
            f"The drive {drive} cannot be read here: mount it, with a folder ‘falconweb’ of the agent's own at its "
            "top, or let the agent read its device file."
        )
    return {DRIVE_VARIABLE: place}


def _device_address(machine: Machine, selector: DeviceSelector) -> str:
    try:
        return machine.find(selector).address
    except DeviceLookupError as error:
        raise RunRefusedError(str(error)) from error


def _simulated_launch(
    request: TrainRequest, folder: RunFolder, settings: Settings, given: AssignedDevices
) -> tuple[tuple[str, ...], dict[str, str]]:
    if request.profile is None:
        raise RunRefusedError("The run has no simulation profile.")
    simulation = SimulatedRun(
        run=request.run,
        spec=request.spec,
        profile=msgspec.structs.replace(request.profile, devices=_address_profile(request.profile.devices, given)),
        root=str(settings.root),
        accelerators=tuple(gpu.name for gpu in given.gpus),
    )
    folder.write(folder.simulation.name, simulation)
    environment = {**base_environment(), "PYTHONPATH": str(CODE_ROOT)}
    return (sys.executable, "-m", "agent.runs.simulation", str(folder.place)), environment


def _address_profile(devices: tuple[DeviceProfile, ...], given: AssignedDevices) -> tuple[DeviceProfile, ...]:
    """Assign an address to each device of a profile; raises RunRefusedError for missing or unexpected devices."""
    named = [device.address for device in devices if device.address]
    if strange := [address for address in named if address not in given.devices]:
        raise RunRefusedError(f"The run does not include {', '.join(strange)}.")
    computing = [gpu.address for gpu in given.gpus]
    others = [address for address in given.devices if address not in computing]
    rest = iter([address for address in computing + others if address not in named])
    if len(devices) > len(given.devices):
        raise RunRefusedError(f"The run uses {len(devices)} devices and has {len(given.devices)}.")
    return tuple(
        device if device.address else msgspec.structs.replace(device, address=next(rest)) for device in devices
    )


def _pytorch_launch(
    request: TrainRequest, folder: RunFolder, settings: Settings, given: AssignedDevices, torch: PyTorchInstallation
) -> tuple[tuple[str, ...], dict[str, str]]:
    spec, node = request.spec, request.node
    if node is not None:
        _require_own_address(node, settings.rendezvous)
    ranks = spec.processes if node is None else node.ranks
    if spec.backend == "cuda":
        if not torch.cuda or settings.simulated:
            raise RunRefusedError("This host has no CUDA for PyTorch: it can run on the CPU only.")
        if len(given.gpus) != (needed := spec.devices if node is None else ranks):
            raise RunRefusedError(f"The run needs {needed} GPUs; it has {len(given.gpus)} that NVML sees here.")
    data = settings.state / "data"  # of data sets and checkpoints, which outlive the run
    data.mkdir(mode=0o700, exist_ok=True)
    environment = {
        SCRATCH_VARIABLE: str(data),
        **base_environment(*TRAINER_VARIABLES),
        "HOME": str(folder.home),
        "TMPDIR": str(folder.home),
        "PYTHONPATH": str(CODE_ROOT),
        "PYTHONUNBUFFERED": "1",
        # The library's default would be all cores for each process.
        "OMP_NUM_THREADS": str(spec.threads or max(1, (os.cpu_count() or 1) // ranks)),
        **(_visible_gpus(given.gpus) if spec.backend == "cuda" else _visible_gpus(())),
    }
    folder.write(folder.spec.name, spec)
    command = (settings.python, "-m", "trainer", str(folder.spec), "--events", str(folder.executor_events))
    if node is None:
        return command, environment
    folder.write(folder.node.name, node)
    return (*command, "--node", str(folder.node)), environment


def _require_own_address(node: NodePart, own: str) -> None:
    """Refuse a part of a run that would listen elsewhere than at the address that this host names."""
    if not own:
        raise RunRefusedError("This host takes part in no run over several: AGENT_RENDEZVOUS names no address of it.")
    if node.address != own or (node.leads and node.rendezvous != own):
        raise RunRefusedError(f"The run names another address of this host than {own} (AGENT_RENDEZVOUS).")


def _command_environment(folder: RunFolder, settings: Settings, gpus: tuple[GpuReading, ...]) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(folder.home),
        "TMPDIR": str(folder.home),
        "USER": settings.account,
        "LOGNAME": settings.account,
        "SHELL": "/bin/sh",
        **_visible_gpus(gpus),
    }


def _visible_gpus(gpus: tuple[GpuReading, ...]) -> dict[str, str]:
    """Return the variable that limits CUDA to these GPUs, in this order: NVML maps addresses to CUDA's UUIDs."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}


PROBE_SECONDS = 20.0
PROBE_CACHE_SECONDS = 600.0
PROBE_RETRY_SECONDS = 15.0  # after a probe that failed: PyTorch may be half installed
# Run by the configured Python, which need not be the agent's.
_PROBE_PROGRAM = """
import importlib.metadata, importlib.util, json, os, re, sys
found = {"changed": {place: os.stat(place).st_mtime_ns for place in sys.path if os.path.isdir(place)}}
found["missing"] = [name for name in ("torch", "msgspec") if importlib.util.find_spec(name) is None]
if not found["missing"]:
    place = importlib.metadata.distribution("torch").locate_file("torch/version.py")
    text = open(place).read()
    found["version"] = "".join(re.findall(r"^__version__ = '([^']*)'", text, re.M)[:1])
    found["cuda"] = "".join(re.findall(r"^cuda\\b[^=]*= '([^']*)'", text, re.M)[:1])
json.dump(found, sys.stdout)
"""


class PyTorchInstallation(msgspec.Struct, frozen=True):
    """The version of PyTorch and of the CUDA that it was built with, '' for none; `absent` is the reason for none."""

    version: str = ""
    cuda: str = ""
    absent: str = ""


class _ProbeResult(msgspec.Struct, frozen=True):
    changed: dict[str, int] = {}  # when the folders of packages changed, ns
    missing: list[str] = []
    version: str = ""
    cuda: str = ""


class PyTorchProbe:
    """Detects PyTorch, and caches the result until a package is installed or removed, for ten minutes at most."""

    def __init__(self, python: str, code: Path) -> None:
        self._python = python
        self._code = code
        self._lock = threading.Lock()
        self._seen: PyTorchInstallation | None = None
        self._changed: dict[str, int] = {}
        self._until = 0.0

    def installation(self) -> PyTorchInstallation:
        with self._lock:
            if self._seen is None or time.monotonic() > self._until or self._is_changed():
                self._changed = {}
                self._seen = self._probe()
                cached = PROBE_CACHE_SECONDS if self._changed else PROBE_RETRY_SECONDS
                self._until = time.monotonic() + cached
            return self._seen

    def _is_changed(self) -> bool:
        try:
            return any(Path(place).stat().st_mtime_ns != at for place, at in self._changed.items())
        except OSError:
            return True

    def _probe(self) -> PyTorchInstallation:
        if not (self._code / "trainer/__main__.py").is_file():
            return PyTorchInstallation(
                absent=f"The program that trains is not installed: there is no {self._code / 'trainer'}."
            )
        try:
            output = subprocess.run(  # noqa: S603 - the Python of a setting
                [self._python, "-I", "-c", _PROBE_PROGRAM],
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=True,
                cwd="/",
            ).stdout
            found = msgspec.json.decode(output, type=_ProbeResult)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
            return PyTorchInstallation(absent=f"{self._python} (AGENT_PYTHON) cannot be checked for PyTorch: {error}")
        self._changed = found.changed
        if found.missing:
            return PyTorchInstallation(absent=f"{self._python} (AGENT_PYTHON) has no {' and no '.join(found.missing)}.")
        return PyTorchInstallation(found.version, found.cuda)
