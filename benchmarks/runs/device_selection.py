"""The device fields of the run form, and a sample request.

Pure: it reads what was typed, and says what is wrong with it. `static/js/run-form.js` chooses in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.runs.choices import DeviceAvailability, DeviceChoice, HostChoice, PortChoice, RunChoices
from benchmarks.runs.rules import Composition
from core.text import join_words, parse_id
from fabric.inventory.models import Device

OWN_DRIVE_CHOICE: Final = "own"  # stands for the host's own drive where another choice is a device's id
MAX_DIGITS: Final = 2
# Which GPUs are taken first where a number is asked for.
HERE, FREE, ELSEWHERE = range(3)
IN_USE_PENALTY: Final = 3  # added: a run has it


@dataclass(frozen=True, kw_only=True)
class DeviceField:
    """A device in the form, with the host port that is chosen for it (0: it is not used)."""

    host: HostChoice
    device: DeviceChoice
    standing: DeviceAvailability
    chosen: int = 0

    @property
    def name(self) -> str:
        """The name of its box; its value is a host port."""
        return f"device-{self.host.id}-{self.device.id}"

    @property
    def port_name(self) -> str:
        """The name of the choice among host ports beside it."""
        return f"port-{self.host.id}-{self.device.id}"

    @property
    def port(self) -> int:
        """The host port that is meant when it is taken."""
        return self.chosen or self.device.targets[0].id

    @property
    def ports(self) -> str:
        """The host ports that it can be attached to, ids with spaces between them."""
        return " ".join(str(port.id) for port in self.device.targets)

    @property
    def at_another(self) -> str:
        """The host and host port that it would be taken from, '' where it is here or free."""
        return "" if self.device.here else self.standing.at

    @property
    def rank(self) -> int:
        """How soon it is taken: less is sooner."""
        place = HERE if self.device.here else FREE if self.device.attached is None else ELSEWHERE
        return place + (IN_USE_PENALTY if self.device.used_by else 0)

    @property
    def now(self) -> str:
        """Where it stands now, in words."""
        if self.standing.why_not:
            return self.standing.why_not
        at = f"at {self.standing.at}" if self.standing.at else "free"
        return f"{at}, used by ‘{self.device.used_by}’" if self.device.used_by else at


@dataclass(frozen=True, kw_only=True)
class PortField:
    """A host port in the form: how many GPUs of its drawer it can have, what was typed for it, and what is wrong."""

    port: PortChoice
    name: str
    most: int
    typed: str
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class DrawerFields:
    """The GPUs of a drawer that a host can have, and its host ports there."""

    key: str
    name: str
    lines: tuple[DeviceField, ...]
    ports: tuple[PortField, ...]

    @property
    def most(self) -> int:
        """How many GPUs can be taken."""
        return sum(not line.standing.why_not for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class HostFields:
    """What the form shows of a host. `lost` says which GPUs were chosen and cannot be had, `lost_drive` which drive."""

    host: HostChoice
    chosen: bool
    local: str
    own_memory: str
    own_taken: int
    own_runs: tuple[str, ...]
    cpu_used: str
    drive_used: str
    drawers: tuple[DrawerFields, ...]
    drives: tuple[DeviceField, ...]
    storage: str
    lost: tuple[str, ...]
    lost_drive: str

    @property
    def wrong(self) -> dict[str, str]:
        """What is wrong with the numbers that were typed, by the names of their fields."""
        return {port.name: port.error for drawer in self.drawers for port in drawer.ports if port.error}

    @property
    def gpus(self) -> tuple[DeviceField, ...]:
        """All GPUs of chassis that it can have."""
        return tuple(line for drawer in self.drawers for line in drawer.lines)

    @property
    def waits(self) -> str:
        """Which runs have all GPUs that it could have, in words; '' where one is free, or there is none."""
        there = [line.device.used_by for line in self.gpus if not line.standing.why_not]
        if not all(there) or self.own_taken < self.host.local_gpus:
            return ""
        runs = {*there, *self.own_runs}
        return _quoted_titles(runs) if runs else ""

    @property
    def own_free(self) -> int:
        """How many GPUs of its own no run has."""
        return max(0, self.host.local_gpus - self.own_taken)

    @property
    def own_users(self) -> str:
        """Which runs have GPUs of its own, in words; '' where none has."""
        return _quoted_titles(self.own_runs) if self.own_runs else ""


def host_fields(host: HostChoice, offered: RunChoices, given: Mapping[str, str], *, chosen: bool) -> HostFields:
    """Return what the form shows of a host, with what was typed taken for it."""
    lines = [
        DeviceField(host=host, device=device, standing=offered.standings[device.id])
        for device in host.devices
        if device.id in offered.standings
    ]
    gpus = [line for line in lines if line.device.kind == Device.Kind.GPU]
    drives = [line for line in lines if line.device.kind == Device.Kind.NVME]
    ticked, lost = _selected_devices(host, gpus, given)
    by_drawer: dict[tuple[int, int], list[DeviceField]] = {}
    for line in gpus:
        by_drawer.setdefault(line.standing.drawer, []).append(line)
    storage, port, lost_drive = _selected_storage(host, drives, given)
    own_runs = [title for key, title in host.held.items() if key.startswith(f"host/{host.id}/gpu")]
    return HostFields(
        host=host,
        chosen=chosen,
        local=given.get(f"local-{host.id}", "") or "0",
        own_memory=" ".join(str(one) for one in host.own_memory),
        own_taken=len(own_runs),
        own_runs=tuple(own_runs),
        cpu_used=host.held.get(f"host/{host.id}/cpu", ""),
        drive_used=host.held.get(f"host/{host.id}/drive", ""),
        drawers=tuple(_drawer_fields(host, drawer, found, ticked, given) for drawer, found in by_drawer.items()),
        drives=tuple(_with_port(line, port if str(line.device.id) == storage else 0) for line in drives),
        storage=storage,
        lost=tuple(lost),
        lost_drive=lost_drive,
    )


def _selected_devices(
    host: HostChoice, lines: Sequence[DeviceField], given: Mapping[str, str]
) -> tuple[dict[int, int], list[str]]:
    """Return the host ports of what is chosen one by one, by the devices' ids, and a sentence for each that is lost."""
    start = f"device-{host.id}-"
    known = {line.device.id: line for line in lines}
    ticked: dict[int, int] = {}
    lost = []
    for name, value in given.items():
        if not name.startswith(start) or not value:
            continue
        pk = parse_id(name.removeprefix(start))
        port = parse_id(given.get(f"port-{host.id}-{pk}", "") or value)
        if sentence := _selection_error(host, known.get(pk), port):
            lost.append(sentence)
        else:
            ticked[pk] = port
    return ticked, lost


def _selection_error(host: HostChoice, line: DeviceField | None, port: int) -> str:
    if line is None:
        return f"A device that was chosen cannot be attached to {host.name} now."
    called = f"{line.device.model} in {line.device.where}"
    if line.standing.why_not:
        return f"{called} cannot be taken: {line.standing.why_not}"
    if port not in {one.id for one in line.device.targets}:
        return f"{called} cannot be attached to that host port now."
    return ""


def _drawer_fields(
    host: HostChoice,
    drawer: tuple[int, int],
    lines: Sequence[DeviceField],
    ticked: Mapping[int, int],
    given: Mapping[str, str],
) -> DrawerFields:
    key = f"{host.id}-{drawer[0]}-{drawer[1]}"
    there = [line for line in lines if not line.standing.why_not]
    chosen = {line.device.id: ticked[line.device.id] for line in lines if line.device.id in ticked}
    if given.get(f"all-{key}"):
        chosen |= {line.device.id: line.port for line in there if line.device.id not in chosen}
    ports = {port.id: port for line in lines for port in line.device.targets}
    parts = []
    for port in sorted(ports.values(), key=lambda one: one.label):
        name = f"count-{host.id}-{port.id}"
        typed = given.get(name, "").strip()
        error = _select_count(there, port, typed, chosen) if typed else ""
        most = sum(port in line.device.targets for line in there)
        parts.append(PortField(port=port, name=name, most=most, typed=typed if error else "", error=error))
    return DrawerFields(
        key=key,
        name=lines[0].standing.drawer_name,
        lines=tuple(_with_port(line, chosen.get(line.device.id, 0)) for line in lines),
        ports=tuple(parts),
    )


def _select_count(lines: Iterable[DeviceField], port: PortChoice, typed: str, chosen: dict[int, int]) -> str:
    """Choose as many GPUs for a host port as were asked for; return what is wrong with that."""
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= MAX_DIGITS):
        return f"Give a whole number of GPUs for {port.words}."
    wanted, have = int(typed), sum(one == port.id for one in chosen.values())
    if wanted < have:
        return f"{have} are ticked for {port.words}, and {wanted} asked for: clear one of the two."
    free = [line for line in lines if line.device.id not in chosen and port in line.device.targets]
    if wanted > have + len(free):
        return f"{port.words} can have {have + len(free)} GPUs, not {wanted}."
    free.sort(key=lambda line: (line.rank, line.device.attached != port.id))
    chosen |= {line.device.id: port.id for line in free[: wanted - have]}
    return ""


def _selected_storage(
    host: HostChoice, drives: Sequence[DeviceField], given: Mapping[str, str]
) -> tuple[str, int, str]:
    """Return where data is read from ('', OWN or a device's id), at which host port, and why not where it was asked."""
    asked = given.get(f"storage-{host.id}", "")
    if asked in {"", OWN_DRIVE_CHOICE}:
        return asked, 0, ""
    line = next((one for one in drives if str(one.device.id) == asked), None)
    port = parse_id(given.get(f"port-{host.id}-{asked}", "")) or (line.port if line is not None else 0)
    lost = _selection_error(host, line, port)
    return ("", 0, lost) if lost else (asked, port, "")


def _quoted_titles(titles: Iterable[str]) -> str:
    return join_words(sorted({f"‘{title}’" for title in titles}))


def _with_port(line: DeviceField, port: int) -> DeviceField:
    return DeviceField(host=line.host, device=line.device, standing=line.standing, chosen=port)


GPU_SAMPLE: Final = {"workload": "resnet50", "preset": "custom", "spec": {"steps": 30, "batch": 16}}
CPU_SAMPLE: Final = {"workload": "mnist_cnn", "preset": "tiny", "spec": {"steps": 30}}
SAMPLE_LIMIT_SECONDS: Final = 3600


def sample_run_file(offered: RunChoices) -> str:
    """Return a file of a run that can be had now, JSON: on a GPU of a chassis, else one of a host's own, else a CPU.

    '' where no host can run anything.
    """
    hosts = [host for host in offered.hosts if not host.why_not]
    samples = [_host_sample(host, offered) for host in hosts]
    samples.sort(key=lambda one: (one["composition"]["cpu"], not one["composition"]["devices"]))
    return json.dumps(samples[0], indent=2) if samples else ""


def _host_sample(host: HostChoice, offered: RunChoices) -> dict[str, Any]:
    gpu = _soonest_gpu(host, offered)
    has_gpus = _can_use_gpus(host) and (gpu is not None or host.local_gpus > 0)
    place = Composition(
        host=host.id,
        local_gpus=int(has_gpus and gpu is None),
        devices={gpu.device.id: gpu.port} if has_gpus and gpu is not None else {},
        cpu=not has_gpus,
    )
    return {
        **(GPU_SAMPLE if has_gpus else CPU_SAMPLE),
        "composition": place.as_document(),
        "executor": "simulated" if "simulated" in host.executors else "torch",
        "limit_seconds": SAMPLE_LIMIT_SECONDS,
    }


def _soonest_gpu(host: HostChoice, offered: RunChoices) -> DeviceField | None:
    """Return the GPU of a chassis that a host has soonest."""
    lines = [line for line in host_fields(host, offered, {}, chosen=True).gpus if not line.standing.why_not]
    return min(lines, key=lambda line: line.rank, default=None)


def _can_use_gpus(host: HostChoice) -> bool:
    backends = host.trainer.backends if host.trainer is not None else ()
    return "simulated" in host.executors or "cuda" in backends
