"""The device fields of the run form, and a sample request.

`static/benchmarks/runs/run-form.js` selects in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.runs.choices import DeviceChoice, HostChoice, PortChoice
from benchmarks.runs.documents import composition_document
from benchmarks.runs.rules import Composition
from core.language import _, join_words
from core.text import parse_id
from fabric.inventory.models import Device

OWN_DRIVE_CHOICE: Final = "own"  # the host's own drive; the other choices are device ids
MAX_DIGITS: Final = 2
# The order in which GPUs are selected when only their number is given.
HERE, FREE, ELSEWHERE = range(3)
IN_USE_PENALTY: Final = 3  # added if a run uses it


@dataclass(frozen=True, kw_only=True)
class DeviceField:
    """A device in the form, with the selected host port (0: not selected)."""

    host: HostChoice
    device: DeviceChoice
    chosen: int = 0

    @property
    def name(self) -> str:
        """The name of its checkbox, whose value is a host port."""
        return f"device-{self.host.id}-{self.device.id}"

    @property
    def port_name(self) -> str:
        return f"port-{self.host.id}-{self.device.id}"

    @property
    def port(self) -> int:
        return self.chosen or self.device.targets[0].id

    @property
    def ports(self) -> str:
        """The ids of the host ports that it can be attached to, separated by spaces."""
        return " ".join(str(port.id) for port in self.device.targets)

    @property
    def at_another(self) -> str:
        """The other host and host port it is attached to, '' if it is on this host or detached."""
        return "" if self.device.here else self.device.at

    @property
    def rank(self) -> int:
        """The selection order: lower first."""
        place = HERE if self.device.here else FREE if self.device.attached is None else ELSEWHERE
        return place + (IN_USE_PENALTY if self.device.used_by else 0)

    @property
    def now(self) -> str:
        if self.device.why_not:
            return self.device.why_not
        at = _("at {at}", at=self.device.at) if self.device.at else _("detached")
        return _("{at}, used by ‘{run}’", at=at, run=self.device.used_by) if self.device.used_by else at


@dataclass(frozen=True, kw_only=True)
class PortField:
    """A host port in the form: how many GPUs of its drawer it can have, the count typed, and its error."""

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
        return sum(not line.device.why_not for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class HostFields:
    """The form fields of a host. `lost` has a sentence for each selected GPU that is unavailable, `lost_drive` one for
    the drive. `is_other`: the run is on this host, too, together with the chosen one.
    """

    host: HostChoice
    chosen: bool
    is_other: bool
    local: str
    cpu_used: str
    drive_used: str
    drawers: tuple[DrawerFields, ...]
    drives: tuple[DeviceField, ...]
    storage: str
    lost: tuple[str, ...]
    lost_drive: str

    @property
    def other_name(self) -> str:
        """The name of the checkbox by which the run is on this host, too."""
        return f"with-{self.host.id}"

    @property
    def offers_other(self) -> bool:
        """Whether the host may be a further one: it is simulated, or its agent names an address for that."""
        trainer = self.host.trainer
        return self.is_other or (trainer is not None and bool(trainer.address or "simulated" in trainer.executors))

    @property
    def wrong(self) -> dict[str, str]:
        return {port.name: port.error for drawer in self.drawers for port in drawer.ports if port.error}

    @property
    def gpus(self) -> tuple[DeviceField, ...]:
        return tuple(line for drawer in self.drawers for line in drawer.lines)

    @property
    def waits(self) -> str:
        """The runs that use all GPUs available to the host, as text; '' if a GPU is free, or there is none."""
        there = [line.device.used_by for line in self.gpus if not line.device.why_not]
        if not all(there) or self.own_free:
            return ""
        return _quoted_titles({*there, *self.own_runs})

    @property
    def own_runs(self) -> list[str]:
        return [title for key, title in self.host.held.items() if key.startswith(f"host/{self.host.id}/gpu")]

    @property
    def own_free(self) -> int:
        return max(0, self.host.local_gpus - len(self.own_runs))

    @property
    def own_users(self) -> str:
        return _quoted_titles(self.own_runs)


def host_fields(host: HostChoice, given: Mapping[str, str], *, chosen: bool) -> HostFields:
    """Return the form fields of a host, with the submitted values applied."""
    lines = [DeviceField(host=host, device=device) for device in host.devices]
    gpus = [line for line in lines if line.device.kind == Device.Kind.GPU]
    drives = [line for line in lines if line.device.kind == Device.Kind.NVME]
    ticked, lost = _selected_devices(host, gpus, given)
    by_drawer: dict[tuple[int, int], list[DeviceField]] = {}
    for line in gpus:
        by_drawer.setdefault(line.device.drawer, []).append(line)
    storage, port, lost_drive = _selected_storage(host, drives, given)
    return HostFields(
        host=host,
        chosen=chosen,
        is_other=not chosen and bool(given.get(f"with-{host.id}")),
        local=given.get(f"local-{host.id}", "") or "0",
        cpu_used=host.held.get(f"host/{host.id}/cpu", ""),
        drive_used=host.held.get(f"host/{host.id}/drive", ""),
        drawers=tuple(_drawer_fields(host, drawer, found, ticked, given) for drawer, found in by_drawer.items()),
        drives=tuple(replace(line, chosen=port if str(line.device.id) == storage else 0) for line in drives),
        storage=storage,
        lost=tuple(lost),
        lost_drive=lost_drive,
    )


def _selected_devices(
    host: HostChoice, lines: Sequence[DeviceField], given: Mapping[str, str]
) -> tuple[dict[int, int], list[str]]:
    """Return the host ports of individually selected devices by device id, and an error for each unavailable one."""
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
        return _("A selected device cannot be attached to {host} now.", host=host.name)
    called = _("{model} in {where}", model=line.device.model, where=line.device.where)
    if line.device.why_not:
        return _("{device} cannot be taken: {reason}", device=called, reason=line.device.why_not)
    if port not in {one.id for one in line.device.targets}:
        return _("{device} cannot be attached to that host port now.", device=called)
    return ""


def _drawer_fields(
    host: HostChoice,
    drawer: tuple[int, int],
    lines: Sequence[DeviceField],
    ticked: Mapping[int, int],
    given: Mapping[str, str],
) -> DrawerFields:
    key = f"{host.id}-{drawer[0]}-{drawer[1]}"
    there = [line for line in lines if not line.device.why_not]
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
        name=lines[0].device.drawer_name,
        lines=tuple(replace(line, chosen=chosen.get(line.device.id, 0)) for line in lines),
        ports=tuple(parts),
    )


def _select_count(lines: Iterable[DeviceField], port: PortChoice, typed: str, chosen: dict[int, int]) -> str:
    """Select the typed number of GPUs for a host port; return the error, '' on success."""
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= MAX_DIGITS):
        return _("Enter a whole number of GPUs for {port}.", port=port.full_label)
    requested, have = int(typed), sum(one == port.id for one in chosen.values())
    if requested < have:
        return _(
            "{have} are ticked for {port}, and {requested} requested: clear one of the two.",
            have=have,
            port=port.full_label,
            requested=requested,
        )
    free = [line for line in lines if line.device.id not in chosen and port in line.device.targets]
    if requested > have + len(free):
        return _(
            "{port} can have {most} GPUs, not {requested}.",
            port=port.full_label,
            most=have + len(free),
            requested=requested,
        )
    free.sort(key=lambda line: (line.rank, line.device.attached != port.id))
    chosen |= {line.device.id: port.id for line in free[: requested - have]}
    return ""


def _selected_storage(
    host: HostChoice, drives: Sequence[DeviceField], given: Mapping[str, str]
) -> tuple[str, int, str]:
    """Return the data source ('', OWN_DRIVE_CHOICE or a device id), its host port, and an error if unavailable."""
    choice = given.get(f"storage-{host.id}", "")
    if choice in {"", OWN_DRIVE_CHOICE}:
        return choice, 0, ""
    line = next((one for one in drives if str(one.device.id) == choice), None)
    port = parse_id(given.get(f"port-{host.id}-{choice}", "")) or (line.port if line is not None else 0)
    lost = _selection_error(host, line, port)
    return ("", 0, lost) if lost else (choice, port, "")


def _quoted_titles(titles: Iterable[str]) -> str:
    words = sorted({f"‘{title}’" for title in titles})
    return join_words(words) if words else ""


GPU_SAMPLE: Final = {"workload": "resnet50", "preset": "custom", "spec": {"steps": 30, "batch": 16}}
CPU_SAMPLE: Final = {"workload": "mnist_cnn", "preset": "tiny", "spec": {"steps": 30}}
SAMPLE_LIMIT_SECONDS: Final = 3600


def sample_run_file(offered: Iterable[HostChoice]) -> str:
    """Return a run request that is possible now, as JSON: on a chassis GPU, else a host's own GPU, else a CPU.

    '' if no host can run anything.
    """
    samples = [_host_sample(host) for host in offered if not host.why_not]
    samples.sort(key=lambda one: (one["composition"]["cpu"], not one["composition"]["devices"]))
    return json.dumps(samples[0], indent=2) if samples else ""


def _host_sample(host: HostChoice) -> dict[str, Any]:
    lines = [line for line in host_fields(host, {}, chosen=True).gpus if not line.device.why_not]
    gpu = min(lines, key=lambda line: line.rank, default=None)
    backends = host.trainer.backends if host.trainer is not None else ()
    can_use_gpus = "simulated" in host.executors or "cuda" in backends
    has_gpus = can_use_gpus and (gpu is not None or host.local_gpus > 0)
    place = Composition(
        host=host.id,
        local_gpus=int(has_gpus and gpu is None),
        devices={gpu.device.id: gpu.port} if has_gpus and gpu is not None else {},
        cpu=not has_gpus,
    )
    return {
        **(GPU_SAMPLE if has_gpus else CPU_SAMPLE),
        "composition": composition_document(place),
        "executor": "simulated" if "simulated" in host.executors else "torch",
        "limit_seconds": SAMPLE_LIMIT_SECONDS,
    }
