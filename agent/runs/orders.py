"""From what the site asks for to what a keeper carries out, or the sentence why this host cannot."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from agent.limits import CODE
from agent.machine import Machine, NotOneError
from agent.runs.account import AccountError, account_of
from agent.runs.family import MARK, member
from agent.runs.folder import Order, RunFolder
from agent.runs.framework import Framework
from agent.runs.simulated import Play
from agent.settings import Settings
from hostwire.shapes import DeviceWanted, GpuReading, Train
from hostwire.training import DRIVE_VARIABLE, DeviceProfile

COMMAND = "command"
# What programs need to know of their surroundings. Nothing else of the agent's environment reaches them: it has a key.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME")
# What whoever runs the host tells the trainer: where the storage is that is read, and what the record says.
OF_TRAINER = ("FALCONWEB_SCRATCH", "FALCONWEB_CONTAINER_DIGEST", "FALCONWEB_COMMIT")


class RefusedError(Exception):
    """Why this host does not do it, a sentence."""


def request_digest(request: Train) -> str:
    """Return what tells one request from another."""
    return hashlib.sha256(msgspec.json.encode(request, order="sorted")).hexdigest()


def surroundings(*more: str) -> dict[str, str]:
    """Return the environment of whatever the agent starts for runs, with these variables besides."""
    return {name: os.environ[name] for name in (*PASSED_ON, *more) if name in os.environ}


def why_no_commands(settings: Settings) -> str:
    """Return why this host runs no commands of users, '' where it does."""
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
class Given:
    """What a run is given: addresses of the devices that were named, and of the host's own, and the GPUs among them.

    `drive` is the address of what data is read from, '' for wherever the host has it.
    """

    named: tuple[str, ...]
    own: tuple[str, ...]
    gpus: tuple[GpuReading, ...]
    drive: str = ""

    @property
    def devices(self) -> tuple[str, ...]:
        """All of them."""
        return self.named + self.own


def prepare(
    request: Train, folder: RunFolder, settings: Settings, machine: Machine, *, torch: Framework, used: Collection[str]
) -> Order:
    """Return the order and write what it reads into the folder.

    `used` are the addresses of devices that other runs have. Raises RefusedError, StepError, OSError.
    """
    spec = request.spec
    if spec.workload == COMMAND:
        refusal = why_no_commands(settings) if request.executor == "torch" else "A command cannot be simulated."
        if refusal or not spec.command:
            raise RefusedError(refusal or "The run says no command.")
        if any("\0" in word for word in spec.command):
            raise RefusedError("The command has a character that no program can be given (NUL).")
    elif request.executor == "torch" and torch.absent:
        raise RefusedError(torch.absent)
    elif request.executor == "simulated" and not settings.simulated:
        raise RefusedError("This is no simulated host: nothing is simulated here.")
    given = _given(request, machine, used)
    if spec.workload == COMMAND:
        command, environment = spec.command, _command_environment(folder, settings, given.gpus)
    elif request.executor == "torch":
        command, environment = _torch(request, folder, settings, given, torch)
        environment |= _data(machine, settings, given.drive)
    else:
        command, environment = _simulated(request, folder, settings, given)
    played = request.executor == "simulated"
    return Order(
        run=request.run,
        request=request_digest(request),
        title=spec.workload,
        command=command,
        environment={**environment, MARK: request.run},
        limit=request.limit,
        # What runs for a simulated host runs on this machine, unless it is simulated itself.
        root=str(settings.root if played else "/"),
        account=settings.account if spec.workload == COMMAND else "",
        # A command of a user tells nothing.
        hang=0.0 if spec.workload == COMMAND else settings.hang_seconds,
        sample=settings.sample_seconds,
        simulated=played,
        devices=given.devices,
        gpus=tuple(gpu.address for gpu in given.gpus) if played or not settings.simulated else (),
        log_bytes=int(settings.log_mib * 2**20),
        parent=member(settings.parent) if settings.parent else None,
    )


def _given(request: Train, machine: Machine, used: Collection[str]) -> Given:
    named = tuple(_found(machine, one) for one in request.devices)
    drive = _found(machine, request.drive) if request.drive is not None else ""
    if drive and drive not in named:
        named = (*named, drive)
    if taken := sorted({*named} & {*used}):
        raise RefusedError(f"Another run has {', '.join(taken)}.")
    if not named and not request.local:
        return Given((), (), ())
    gpus = {gpu.address: gpu for gpu in machine.gpus().gpus}
    free = [address for address in sorted(gpus) if address not in {*named, *used, *request.foreign}]
    if len(free) < request.local:
        raise RefusedError(
            f"The run wants {request.local} of the host's own GPUs; {len(free)} are free, or NVML does not see them."
        )
    own = tuple(free[: request.local])
    return Given(named, own, tuple(gpus[address] for address in named + own if address in gpus), drive)


def _data(machine: Machine, settings: Settings, drive: str) -> dict[str, str]:
    """Return what tells the trainer where the drive is that was chosen."""
    if not drive:
        return {}
    if settings.simulated:
        raise RefusedError("A simulated host has no drive that PyTorch could read: this machine's are not its own.")
    place = machine.data_place(drive)
    if not place:
        raise RefusedError(
            f"The drive {drive} cannot be read here: mount it, with a folder ‘falconweb’ of the agent's own at its "
            "top, or let the agent read its device file."
        )
    return {DRIVE_VARIABLE: place}


def _found(machine: Machine, wanted: DeviceWanted) -> str:
    try:
        return machine.find(wanted).address
    except NotOneError as error:
        raise RefusedError(str(error)) from error


def _simulated(
    request: Train, folder: RunFolder, settings: Settings, given: Given
) -> tuple[tuple[str, ...], dict[str, str]]:
    if request.profile is None:
        raise RefusedError("The run does not say how it is to be simulated.")
    play = Play(
        run=request.run,
        spec=request.spec,
        profile=msgspec.structs.replace(request.profile, devices=_addressed(request.profile.devices, given)),
        root=str(settings.root),
        accelerators=tuple(gpu.name for gpu in given.gpus),
    )
    folder.write(folder.play.name, play)
    environment = {**surroundings(), "PYTHONPATH": str(CODE)}
    return (sys.executable, "-m", "agent.runs.simulated", str(folder.place)), environment


def _addressed(devices: tuple[DeviceProfile, ...], given: Given) -> tuple[DeviceProfile, ...]:
    """Give each device of a profile its address; raises RefusedError where there are too few, or another was given."""
    named = [device.address for device in devices if device.address]
    if strange := [address for address in named if address not in given.devices]:
        raise RefusedError(f"The run is not given {', '.join(strange)}.")
    computing = [gpu.address for gpu in given.gpus]
    others = [address for address in given.devices if address not in computing]
    rest = iter([address for address in computing + others if address not in named])
    if len(devices) > len(given.devices):
        raise RefusedError(f"The run uses {len(devices)} devices and is given {len(given.devices)}.")
    return tuple(
        device if device.address else msgspec.structs.replace(device, address=next(rest)) for device in devices
    )


def _torch(
    request: Train, folder: RunFolder, settings: Settings, given: Given, torch: Framework
) -> tuple[tuple[str, ...], dict[str, str]]:
    spec = request.spec
    if spec.backend == "cuda":
        if not torch.cuda or settings.simulated:
            raise RefusedError("This host has no CUDA for PyTorch: it can run on the CPU alone.")
        if len(given.gpus) != spec.devices:
            raise RefusedError(f"The run is of {spec.devices} GPUs; it has {len(given.gpus)} that NVML sees here.")
    environment = {
        **surroundings(*OF_TRAINER),
        "HOME": str(folder.home),
        "TMPDIR": str(folder.home),
        "PYTHONPATH": str(CODE),
        "PYTHONUNBUFFERED": "1",
        # The library's own choice would be all cores for each process.
        "OMP_NUM_THREADS": str(spec.threads or max(1, (os.cpu_count() or 1) // spec.processes)),
        **(_visible(given.gpus) if spec.backend == "cuda" else _visible(())),
    }
    folder.write(folder.spec.name, spec)
    command = (settings.python, "-m", "trainer", str(folder.spec), "--events", str(folder.told))
    return command, environment


def _command_environment(folder: RunFolder, settings: Settings, gpus: tuple[GpuReading, ...]) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(folder.home),
        "TMPDIR": str(folder.home),
        "USER": settings.account,
        "LOGNAME": settings.account,
        "SHELL": "/bin/sh",
        **_visible(gpus),
    }


def _visible(gpus: tuple[GpuReading, ...]) -> dict[str, str]:
    """Return what lets CUDA see these GPUs alone, in this order: NVML tells them by their addresses, CUDA by UUID."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}
