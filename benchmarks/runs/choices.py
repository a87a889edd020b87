"""Hosts and devices that a person may choose for a run, and why some are not available."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from accounts.models import User
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.rules import SHARED_SUFFIX, held_key
from benchmarks.runs.topology import model_name, own_drive
from core.database import natural
from core.language import _
from fabric.agents.models import HostAgent
from fabric.agents.selectors import (
    attached_devices,
    chassis_serial_numbers,
    host_local_devices,
    is_agent_away,
    latest_report,
)
from fabric.inventory.labels import host_port_name, monitored_only_reason
from fabric.inventory.models import Chassis, Device, Host, HostPort, Slot
from fabric.leases.selectors import returning_reasons
from fabric.operations.projected_state import projected_drawers
from fabric.operations.rules import DrawerSnapshot, attach_violation
from hostwire.protocol import HostReport, TrainerCapabilities


@dataclass(frozen=True, kw_only=True)
class PortChoice:
    id: int
    label: str
    chassis: str

    @property
    def full_label(self) -> str:
        return f"{self.chassis} {self.label}"


@dataclass(frozen=True, kw_only=True)
class DeviceChoice:
    """A device for a run: `attached` is the id of its current host port (None: free).

    `here`: that port belongs to this host; `at` names host and host port, 'node-b (H2)'. `targets` are the host ports
    of this host that the drawer's mode allows, the current one first. `drawer` has the ids of chassis and drawer, 0
    without a drawer. `used_by` is the title of the run that holds it, `why_not` the reason why the person cannot use
    it now, each '' for none; `memory_bytes` is 0 if unknown.
    """

    id: int
    name: str
    kind: str
    model: str
    drawer: tuple[int, int]
    drawer_name: str
    where: str
    slot: str
    memory_bytes: int
    attached: int | None
    at: str
    here: bool
    targets: tuple[PortChoice, ...]
    used_by: str
    why_not: str


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
    devices: tuple[DeviceChoice, ...]
    own_memory: tuple[int, ...]
    held: Mapping[str, str]

    @property
    def used_by(self) -> str:
        """The title of a run that has the host, or one of those that share it, as the person sees it; '' for none."""
        places = {f"host/{self.id}", f"host/{self.id}{SHARED_SUFFIX}"}
        return next((title for key, title in self.held.items() if held_key(key) in places), "")

    @property
    def executors(self) -> tuple[str, ...]:
        return self.trainer.executors if self.trainer is not None else ()


def host_choices(person: User) -> tuple[HostChoice, ...]:
    """Return the hosts on which a person may run something, with the devices that can be attached.

    Eleven queries, more while leases end.
    """
    reader = _ChoiceReader(person)
    return tuple(reader.host_choice(host) for host in reader.hosts)


class _ChoiceReader:
    """Reads the visible part of all chassis once for all hosts."""

    def __init__(self, person: User) -> None:
        ports = HostPort.objects.visible_to(person).order_by(natural("chassis__name"), "number", "pk")
        self.port_ids = {port.pk for port in ports}
        self.ports: dict[int | None, list[HostPort]] = {}
        for port in ports:
            if port.host_id is not None and port.missing_since is None:
                self.ports.setdefault(port.host_id, []).append(port)
        self.hosts = Host.objects.visible_to(person).order_by(natural("name"))
        if not person.is_administrator:
            self.hosts = self.hosts.filter(pk__in=self.ports)
        rows = Device.objects.visible_to(person).filter(missing_since=None).exclude(endpoint_uri="")
        self.devices = list(rows.select_related("chassis", "slot__drawer", "host_port__host"))
        self.agents = {agent.host_id: agent for agent in HostAgent.objects.filter(host__in=self.hosts)}
        self.returning = returning_reasons(person, [device.pk for device in self.devices])
        self.drawers = projected_drawers({device.chassis_id for device in self.devices})
        self.held = _visible_holds(person)
        # All devices attached to each host, and the serial numbers of all devices, visible or not.
        self.neighbours = attached_devices(list(self.agents))
        self.of_chassis = chassis_serial_numbers()

    def host_choice(self, host: Host) -> HostChoice:
        ports = self.ports.get(host.pk, [])
        agent = self.agents.get(host.pk)
        report = latest_report(agent) if agent is not None and not is_agent_away(agent) else None
        neighbours = self.neighbours.get(host.pk, [])
        drive = own_drive(report, neighbours, self.of_chassis)
        devices = [self._device_choice(device, ports) for device in self.devices]
        return HostChoice(
            id=host.pk,
            name=host.name,
            local_gpus=host.local_gpu_count,
            own_drive=model_name(drive.model) if drive is not None else "",
            trainer=report.trainer if report is not None else None,
            why_not=_unavailable_reason(host, agent, report),
            devices=tuple(one for one in devices if one.targets),
            own_memory=_local_gpu_memory(report, neighbours, self.of_chassis) if host.local_gpu_count else (),
            held={key: title for key, title in self.held.items() if f"{key}/".startswith(f"host/{host.pk}/")},
        )

    def _device_choice(self, device: Device, ports: Collection[HostPort]) -> DeviceChoice:
        chassis, slot, port = device.chassis, device.slot, device.host_port
        drawer = slot.drawer if slot is not None else None
        drawer_id = drawer.pk if drawer is not None else None
        snapshot = self.drawers.get((chassis.pk, drawer_id))
        number = slot.number if slot is not None else 0
        targets = [
            PortChoice(id=one.pk, label=one.label, chassis=chassis.name)
            for one in ports
            if one.chassis_id == chassis.pk
            and one.drawer_id == drawer_id
            and (one.pk == device.host_port_id or _can_attach(snapshot, number, one.label))
        ]
        targets.sort(key=lambda one: one.id != device.host_port_id)
        may_be_taken = port is None or port.pk in self.port_ids
        return DeviceChoice(
            id=device.pk,
            name=device.name,
            kind=device.kind,
            model=model_name(device.model),
            drawer=(chassis.pk, drawer_id or 0),
            drawer_name=f"{chassis.name} · {drawer.name}" if drawer is not None else chassis.name,
            where=f"{chassis.name} · {slot.name}" if slot is not None else chassis.name,
            slot=_slot_label(slot),
            memory_bytes=device.memory_bytes or 0,
            attached=device.host_port_id,
            at="" if port is None else host_port_name(port) if may_be_taken else _("another host"),
            here=port in ports,
            targets=tuple(targets),
            used_by=self.held.get(f"device/{device.pk}", ""),
            why_not=chassis_unavailable_reason(chassis)
            or ("" if may_be_taken else _("it is at a host port that is not granted to your tenant"))
            or self.returning.get(device.pk, ""),
        )


def _slot_label(slot: Slot | None) -> str:
    if slot is None:
        return ""
    return _("slot {number}", number=slot.number) if slot.number else slot.name


def _visible_holds(person: User) -> dict[str, str]:
    seen = dict(Run.objects.visible_to(person).open().values_list("pk", "title"))
    return {key: seen.get(run, _("another run")) for key, run in Hold.objects.values_list("key", "run")}


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
        return _("No agent runs on {name}. An administrator enrols one on the host's page.", name=host.name)
    if report is None:
        return _("The agent of {name} does not report.", name=host.name)
    if not report.trainer.executors:
        return report.trainer.absent or _("The agent of {name} can run nothing. Update it.", name=host.name)
    return ""


def _can_attach(drawer: DrawerSnapshot | None, slot: int, label: str) -> bool:
    return drawer is not None and not attach_violation(drawer.state(), slot=slot, label=label)


def chassis_unavailable_reason(chassis: Chassis) -> str:
    if not chassis.is_composable:
        return monitored_only_reason(chassis)
    if not chassis.enabled:
        return _("{name} is not polled: an administrator has disabled it.", name=chassis.name)
    return _("{name} does not answer now.", name=chassis.name) if chassis.last_error else ""
