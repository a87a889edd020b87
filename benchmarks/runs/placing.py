"""Where runs can run: the hosts that a person may compose, and what the performance model reads of a composition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from accounts.models import User
from benchmarks.model.facts import LOCAL_STORAGE
from benchmarks.model.shapes import LOCAL, Accelerator, Storage, Topology
from benchmarks.runs.composition import Composition
from benchmarks.runs.drives import drive_name, own_drive, own_drive_now, storage_of_own
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.parts import UNKNOWN, link_of, model_name
from fabric.hostside import neighbours_on, own_of, serials_of_chassis
from fabric.models import Device, Host, HostAgent, HostPort
from fabric.outlook import drawers_seen
from fabric.planning import DrawerSeen
from fabric.rules import why_not_attach
from fabric.services.agents import is_away, report_of
from falconweb.errors import NotFound
from hostwire.shapes import HostReport, Trainer

CPU: Final = "cpu"
USUAL_MEMORY: Final = 16e9
# Which of its own disks a host reads from unless it is told, nobody knows.
OWN_STORAGE: Final = Storage(model=LOCAL_STORAGE)


@dataclass(frozen=True, kw_only=True)
class PortChoice:
    """A host port that devices can be attached to for a run."""

    id: int
    label: str
    chassis: str
    drawer: str

    @property
    def words(self) -> str:
        """What it is called where several chassis are."""
        return f"{self.chassis} {self.label}"


@dataclass(frozen=True, kw_only=True)
class DeviceChoice:
    """A device for a run: `attached` is the host port's id that it is at now (None: free).

    `here` tells whether that is one of this host's; `targets` are the host ports of this host that the drawer's mode
    lets it have, the present one first. `used_by` is the title of the run that holds it now, '' for none;
    `memory_bytes` is 0 where it is not known.
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
    """A host for a run. `trainer` is what its agent can run, None where no agent tells; `why_not` says why not then.

    `own_memory` are the bytes of each GPU of its own, `own_drive` is the model of an NVMe drive of its own that data
    can be read from, '' where its agent tells of none. `held` has its keys of benchmarks.runs.models.Hold, each with
    the title of the run that holds it, as the person sees it.
    """

    id: int
    name: str
    local_gpus: int
    own_drive: str
    trainer: Trainer | None
    why_not: str
    ports: tuple[PortChoice, ...]
    devices: tuple[DeviceChoice, ...]
    own_memory: tuple[int, ...]
    held: Mapping[str, str]

    @property
    def executors(self) -> tuple[str, ...]:
        """What can carry a run out there."""
        return self.trainer.executors if self.trainer is not None else ()


@dataclass(frozen=True)
class _Found:
    """What a person sees of all chassis: devices, drawers as they will be, and which keys are held by which run.

    `neighbours` are all devices at each host, whoever sees them, `of_chassis` the serial numbers of all there are.
    """

    devices: list[Device]
    drawers: Mapping[tuple[int, int | None], DrawerSeen]
    held: Mapping[str, str]
    neighbours: Mapping[int, list[Device]]
    of_chassis: Collection[str]


def hosts_for(person: User) -> tuple[HostChoice, ...]:
    """Return the hosts on which a person may run something, with all that may be composed there; ten queries."""
    ports = HostPort.objects.visible_to(person).filter(missing_since=None).exclude(host=None)
    by_host: dict[int, list[HostPort]] = {}
    for port in ports.select_related("chassis", "drawer").order_by("chassis__name", "number", "pk"):
        by_host.setdefault(port.host_id, []).append(port)
    hosts = Host.objects.visible_to(person)
    if not person.is_administrator:
        hosts = hosts.filter(pk__in=by_host)
    rows = Device.objects.visible_to(person).filter(missing_since=None).exclude(endpoint_uri="")
    devices = list(rows.select_related("chassis", "slot__drawer", "host_port"))
    drawers = drawers_seen({device.chassis_id for device in devices})
    held = held_by(person)
    agents = {agent.host_id: agent for agent in HostAgent.objects.filter(host__in=hosts)}
    found = _Found(devices, drawers, held, neighbours_on(list(agents)), serials_of_chassis())
    return tuple(
        _host_choice(host, by_host.get(host.pk, []), agents.get(host.pk), found) for host in hosts.order_by("name")
    )


def host_for(person: User, pk: int) -> HostChoice:
    """Return one of `hosts_for`; raises NotFound."""
    found = next((host for host in hosts_for(person) if host.id == pk), None)
    if found is None:
        raise NotFound("There is no such host.")
    return found


def held_by(person: User) -> dict[str, str]:
    """Return which keys are held (see benchmarks.runs.models.Hold), with the title of the run as the person sees it."""
    seen = dict(Run.objects.visible_to(person).open().values_list("pk", "title"))
    return {key: seen.get(run, "another run") for key, run in Hold.objects.values_list("key", "run")}


def topology_of(composition: Composition) -> Topology:
    """Return what a composition gets, as the performance model reads it: links as trained, or else as they can be.

    Accelerators are in the order of ranks: the host's own, then those of chassis. On the CPU there are none. Raises
    NotFound for a host, device or host port that there is not.
    """
    host = Host.objects.filter(pk=composition.host).first()
    if host is None:
        raise NotFound("There is no such host.")
    devices = Device.objects.select_related("chassis", "slot__port", "slot__drawer").in_bulk(list(composition.devices))
    ports = HostPort.objects.select_related("chassis", "drawer", "port").in_bulk(set(composition.devices.values()))
    for pk, port in composition.devices.items():
        if pk not in devices or port not in ports:
            raise NotFound(f"There is no device {pk}." if pk not in devices else f"There is no host port {port}.")
    agent = HostAgent.objects.filter(host=host).first()
    report = report_of(agent)
    gpus = [pk for pk in composition.devices if devices[pk].kind == Device.Kind.GPU]
    places = {pk: place_of(ports[port]) for pk, port in composition.devices.items()}
    return Topology(
        name=host.name,
        host=host.name,
        memory_bytes=(host.memory_gib or 0.0) * 2**30 or Topology.memory_bytes,
        accelerators=()
        if composition.cpu
        else (
            *local_accelerators(host, report, composition.local_gpus),
            *(_accelerator(devices[pk], places[pk]) for pk in gpus),
        ),
        storage=_storage(composition, devices, places, report),
        uplinks={place_of(port): link_of(port.port) for port in ports.values()},
    )


def place_of(port: HostPort) -> str:
    """Return what stands for the switch below a host port: 'falcon-1/drawer 1/H1'."""
    drawer = f"drawer {port.drawer.number}" if port.drawer is not None else "no drawer"
    return f"{port.chassis.name}/{drawer}/{port.label}"


def name_of_device(device: Device) -> str:
    """Return how the performance model calls a device: unlike any other one of the site."""
    where = device.slot.name if device.slot is not None else f"device {device.pk}"
    return f"{device.chassis.name}/{where}"


def local_accelerators(host: Host, report: HostReport | None, count: int) -> tuple[Accelerator, ...]:
    """Return the host's own GPUs, by what its agent says of them."""
    models = _local_models(host, report)
    return tuple(
        Accelerator(
            name=f"local {number + 1}",
            model=models[number][0] if number < len(models) else (models[0][0] if models else UNKNOWN),
            place=LOCAL,
            memory_bytes=models[number][1] if number < len(models) else USUAL_MEMORY,
        )
        for number in range(count)
    )


def _accelerator(device: Device, place: str) -> Accelerator:
    port = device.slot.port if device.slot is not None else None
    return Accelerator(
        name=name_of_device(device),
        model=model_name(device.model),
        place=place,
        link=link_of(port, device),
        memory_bytes=float(device.memory_bytes or USUAL_MEMORY),
    )


def _storage(
    composition: Composition, devices: Mapping[int, Device], places: Mapping[int, str], report: HostReport | None
) -> Storage:
    if composition.storage is not None and composition.storage in devices:
        device = devices[composition.storage]
        port = device.slot.port if device.slot is not None else None
        return Storage(model=drive_name(device.model), place=places[device.pk], link=link_of(port, device))
    if composition.own_drive:
        drive = own_drive_now(composition.host, report)
        if drive is not None:
            return storage_of_own(drive)
    return OWN_STORAGE


def _local_models(host: Host, report: HostReport | None) -> list[tuple[str, float]]:
    """Return models and memory (bytes) of what NVML shows on a host and is in no chassis."""
    if report is None:
        return []
    serials = set(Device.objects.filter(host_port__host=host).values_list("serial_number", flat=True)) - {""}
    at = {one.address: one.serial for one in report.devices}
    return [
        (model_name(gpu.name), (gpu.memory_total or 0.0) * 2**20 or USUAL_MEMORY)
        for gpu in sorted(report.gpus, key=lambda one: one.address)
        if (gpu.serial or at.get(gpu.address, "")) not in serials
    ]


def _host_choice(host: Host, ports: list[HostPort], agent: HostAgent | None, found: _Found) -> HostChoice:
    choices = {
        port.pk: PortChoice(
            id=port.pk,
            label=port.label,
            chassis=port.chassis.name,
            drawer=port.drawer.name if port.drawer is not None else "",
        )
        for port in ports
    }
    report = report_of(agent) if agent is not None and not is_away(agent) else None
    devices = [_device_choice(device, ports, choices, found) for device in found.devices]
    neighbours = found.neighbours.get(host.pk, [])
    drive = own_drive(report, neighbours, found.of_chassis)
    return HostChoice(
        id=host.pk,
        name=host.name,
        local_gpus=host.local_gpu_count,
        own_drive=model_name(drive.model) if drive is not None else "",
        trainer=report.trainer if report is not None else None,
        why_not=_why_not(host, agent, report),
        ports=tuple(choices.values()),
        devices=tuple(one for one in devices if one.targets),
        own_memory=_own_memory(report, neighbours, found.of_chassis) if host.local_gpu_count else (),
        held={key: title for key, title in found.held.items() if key.startswith(f"host/{host.pk}/")},
    )


def _own_memory(
    report: HostReport | None, neighbours: Collection[Device], of_chassis: Collection[str]
) -> tuple[int, ...]:
    """Return how much memory each GPU of a host's own has, bytes, by their addresses; nothing where none tells."""
    if report is None:
        return ()
    own = {one.address for one in own_of(report, neighbours, of_chassis)}
    gpus = sorted((gpu for gpu in report.gpus if gpu.address in own), key=lambda one: one.address)
    return tuple(round((gpu.memory_total or 0.0) * 2**20) for gpu in gpus)


def _why_not(host: Host, agent: HostAgent | None, report: HostReport | None) -> str:
    if agent is None:
        return f"No agent runs on {host.name}. An administrator enrols one on the host's page."
    if report is None:
        return f"The agent of {host.name} does not report."
    if not report.trainer.executors:
        return report.trainer.absent or f"The agent of {host.name} can run nothing. Update it."
    return ""


def _device_choice(
    device: Device, ports: Collection[HostPort], choices: Mapping[int, PortChoice], found: _Found
) -> DeviceChoice:
    drawer = device.slot.drawer_id if device.slot is not None else None
    seen = found.drawers.get((device.chassis_id, drawer))
    slot = device.slot.number if device.slot is not None else 0
    targets = [
        choices[port.pk]
        for port in ports
        if port.chassis_id == device.chassis_id
        and port.drawer_id == drawer
        and (port.pk == device.host_port_id or _fits(seen, slot, port.label))
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


def _fits(drawer: DrawerSeen | None, slot: int, label: str) -> bool:
    return drawer is not None and not why_not_attach(drawer.state(), slot=slot, label=label)
