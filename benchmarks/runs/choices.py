"""Hosts and devices that a person may choose for a run, and why some are not available."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from accounts.models import User
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.topology import model_name, own_drive
from fabric.agents.models import HostAgent
from fabric.agents.selectors import (
    attached_devices,
    chassis_serial_numbers,
    host_local_devices,
    is_agent_away,
    latest_report,
)
from fabric.inventory.labels import host_port_name, monitored_only_reason
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.leases.selectors import returning_reason
from fabric.operations.projected_state import projected_drawers
from fabric.operations.rules import DrawerSnapshot, attach_violation
from hostwire.protocol import HostReport, TrainerCapabilities


@dataclass(frozen=True, kw_only=True)
class PortChoice:
    """A host port that devices can be attached to for a run."""

    id: int
    label: str
    chassis: str
    drawer: str

    @property
    def words(self) -> str:
        """Its label with the chassis."""
        return f"{self.chassis} {self.label}"


@dataclass(frozen=True, kw_only=True)
class DeviceChoice:
    """A device for a run: `attached` is the id of its current host port (None: free).

    `here`: that port belongs to this host. `targets` are the host ports of this host that the drawer's mode allows,
    the current one first. `used_by` is the title of the run that holds it, '' for none; `memory_bytes` is 0 if unknown.
    """

    id: int
    name: str
    kind: str
    model: str
    where: str
    memory_bytes: int
    attached: int | None
    here: bool
    targets: tuple[PortChoice, ...]
    used_by: str = ""


@dataclass(frozen=True, kw_only=True)
class HostChoice:
    """A host for a run. `trainer` has the capabilities that its agent reports; if None, `why_not` gives the reason.

    `own_memory` are the bytes of each of its own GPUs, `own_drive` is the model of its own NVMe drive for data, '' if
    its agent reports none. `held` maps its keys of benchmarks.runs.models.Hold to the title of the run that holds
    them, as the person sees it.
    """

    id: int
    name: str
    local_gpus: int
    own_drive: str
    trainer: TrainerCapabilities | None
    why_not: str
    ports: tuple[PortChoice, ...]
    devices: tuple[DeviceChoice, ...]
    own_memory: tuple[int, ...]
    held: Mapping[str, str]

    @property
    def executors(self) -> tuple[str, ...]:
        """The executors that its agent offers."""
        return self.trainer.executors if self.trainer is not None else ()


@dataclass(frozen=True)
class _VisibleFabric:
    """The visible part of all chassis: devices, projected drawers, and the run that holds each key.

    `neighbours` are all devices attached to each host, visible or not, `of_chassis` the serial numbers of all devices.
    """

    devices: list[Device]
    drawers: Mapping[tuple[int, int | None], DrawerSnapshot]
    held: Mapping[str, str]
    neighbours: Mapping[int, list[Device]]
    of_chassis: Collection[str]


def host_choices(person: User) -> tuple[HostChoice, ...]:
    """Return the hosts on which a person may run something, with the devices that can be attached; ten queries."""
    ports = HostPort.objects.visible_to(person).filter(missing_since=None).exclude(host=None)
    by_host: dict[int, list[HostPort]] = {}
    for port in ports.select_related("chassis", "drawer").order_by("chassis__name", "number", "pk"):
        by_host.setdefault(port.host_id, []).append(port)
    hosts = Host.objects.visible_to(person)
    if not person.is_administrator:
        hosts = hosts.filter(pk__in=by_host)
    rows = Device.objects.visible_to(person).filter(missing_since=None).exclude(endpoint_uri="")
    devices = list(rows.select_related("chassis", "slot__drawer", "host_port"))
    drawers = projected_drawers({device.chassis_id for device in devices})
    held = visible_holds(person)
    agents = {agent.host_id: agent for agent in HostAgent.objects.filter(host__in=hosts)}
    found = _VisibleFabric(devices, drawers, held, attached_devices(list(agents)), chassis_serial_numbers())
    return tuple(
        _host_choice(host, by_host.get(host.pk, []), agents.get(host.pk), found) for host in hosts.order_by("name")
    )


def visible_holds(person: User) -> dict[str, str]:
    """Return the held keys (see benchmarks.runs.models.Hold) with the title of the run as the person sees it."""
    seen = dict(Run.objects.visible_to(person).open().values_list("pk", "title"))
    return {key: seen.get(run, "another run") for key, run in Hold.objects.values_list("key", "run")}


def _host_choice(host: Host, ports: list[HostPort], agent: HostAgent | None, found: _VisibleFabric) -> HostChoice:
    choices = {
        port.pk: PortChoice(
            id=port.pk,
            label=port.label,
            chassis=port.chassis.name,
            drawer=port.drawer.name if port.drawer is not None else "",
        )
        for port in ports
    }
    report = latest_report(agent) if agent is not None and not is_agent_away(agent) else None
    devices = [_device_choice(device, ports, choices, found) for device in found.devices]
    neighbours = found.neighbours.get(host.pk, [])
    drive = own_drive(report, neighbours, found.of_chassis)
    return HostChoice(
        id=host.pk,
        name=host.name,
        local_gpus=host.local_gpu_count,
        own_drive=model_name(drive.model) if drive is not None else "",
        trainer=report.trainer if report is not None else None,
        why_not=_unavailable_reason(host, agent, report),
        ports=tuple(choices.values()),
        devices=tuple(one for one in devices if one.targets),
        own_memory=_local_gpu_memory(report, neighbours, found.of_chassis) if host.local_gpu_count else (),
        held={key: title for key, title in found.held.items() if key.startswith(f"host/{host.pk}/")},
    )


def _local_gpu_memory(
    report: HostReport | None, neighbours: Collection[Device], of_chassis: Collection[str]
) -> tuple[int, ...]:
    """Return the memory of each of a host's own GPUs, bytes, in PCI address order; empty without a report."""
    if report is None:
        return ()
    own = {one.address for one in host_local_devices(report, neighbours, of_chassis)}
    gpus = sorted((gpu for gpu in report.gpus if gpu.address in own), key=lambda one: one.address)
    return tuple(round((gpu.memory_total or 0.0) * 2**20) for gpu in gpus)


def _unavailable_reason(host: Host, agent: HostAgent | None, report: HostReport | None) -> str:
    if agent is None:
        return f"No agent runs on {host.name}. An administrator enrols one on the host's page."
    if report is None:
        return f"The agent of {host.name} does not report."
    if not report.trainer.executors:
        return report.trainer.absent or f"The agent of {host.name} can run nothing. Update it."
    return ""


def _device_choice(
    device: Device, ports: Collection[HostPort], choices: Mapping[int, PortChoice], found: _VisibleFabric
) -> DeviceChoice:
    drawer = device.slot.drawer_id if device.slot is not None else None
    seen = found.drawers.get((device.chassis_id, drawer))
    slot = device.slot.number if device.slot is not None else 0
    targets = [
        choices[port.pk]
        for port in ports
        if port.chassis_id == device.chassis_id
        and port.drawer_id == drawer
        and (port.pk == device.host_port_id or _can_attach(seen, slot, port.label))
    ]
    targets.sort(key=lambda one: one.id != device.host_port_id)
    return DeviceChoice(
        id=device.pk,
        name=device.name,
        kind=device.kind,
        model=model_name(device.model),
        where=f"{device.chassis.name} · {device.slot.name}" if device.slot is not None else device.chassis.name,
        memory_bytes=device.memory_bytes or 0,
        attached=device.host_port_id,
        here=device.host_port_id in choices,
        targets=tuple(targets),
        used_by=found.held.get(f"device/{device.pk}", ""),
    )


def _can_attach(drawer: DrawerSnapshot | None, slot: int, label: str) -> bool:
    return drawer is not None and not attach_violation(drawer.state(), slot=slot, label=label)


@dataclass(frozen=True, kw_only=True)
class DeviceAvailability:
    """The location of a device: `at` is its host and host port, 'node-b (H2)', '' if it is free.

    `drawer` has the ids of chassis and drawer, 0 without a drawer. `why_not` is the reason why the person cannot use
    the device now, '' if they can.
    """

    drawer: tuple[int, int]
    drawer_name: str
    slot: str
    at: str
    why_not: str


@dataclass(frozen=True, kw_only=True)
class RunChoices:
    """Hosts, and the availability of devices by id."""

    hosts: tuple[HostChoice, ...] = ()
    standings: Mapping[int, DeviceAvailability] = field(default_factory=dict)


def run_choices(person: User) -> RunChoices:
    """Return the choices of a person; three queries besides those of `host_choices`, more while leases end."""
    hosts = host_choices(person)
    ids = {device.id for host in hosts for device in host.devices}
    rows = Device.objects.filter(pk__in=ids).select_related("chassis", "slot__drawer", "host_port__host")
    devices = list(rows)
    seen = set(HostPort.objects.visible_to(person).values_list("pk", flat=True))
    returning = _returning_devices(person, hosts)
    return RunChoices(
        hosts=hosts,
        standings={row.pk: _device_availability(row, seen, returning) for row in devices},
    )


def _device_availability(device: Device, seen: Collection[int], returning: Mapping[int, str]) -> DeviceAvailability:
    slot, port = device.slot, device.host_port
    drawer = slot.drawer if slot is not None else None
    may_be_taken = port is None or port.pk in seen
    return DeviceAvailability(
        drawer=(device.chassis_id, drawer.pk if drawer is not None else 0),
        drawer_name=f"{device.chassis.name} · {drawer.name}" if drawer is not None else device.chassis.name,
        slot=f"slot {slot.number}" if slot is not None and slot.number else slot.name if slot is not None else "",
        at="" if port is None else host_port_name(port) if may_be_taken else "another host",
        why_not=chassis_unavailable_reason(device.chassis)
        or ("" if may_be_taken else "it is at a host port that is not granted to your tenant")
        or returning.get(device.pk, ""),
    )


def chassis_unavailable_reason(chassis: Chassis) -> str:
    """Return the reason why no device of a chassis can be attached now, '' if it can."""
    if not chassis.is_composable:
        return monitored_only_reason(chassis)
    if not chassis.enabled:
        return f"{chassis.name} is not polled: an administrator has disabled it."
    return f"{chassis.name} does not answer now." if chassis.last_error else ""


def _returning_devices(person: User, hosts: Collection[HostChoice]) -> dict[int, str]:
    """Return the reason for each device that is being returned to the pool; one query if there are none."""
    devices = {device.id for host in hosts for device in host.devices}
    if not returning_reason(person, devices):
        return {}
    return {pk: returning_reason(person, [pk]) for pk in devices}
