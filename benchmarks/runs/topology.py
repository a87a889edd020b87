"""The topology of a composition: devices, drives, links and their labels.

A GPU of a chassis is identified by its slot, one of the host's own by its number. PCI addresses are recorded when the
run starts, because other devices may have them later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from accounts.models import User
from accounts.visibility import row_or_404
from benchmarks.model.reference_data import LOCAL_STORAGE, is_nvme
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology
from benchmarks.runs.models import Run, host_names
from benchmarks.runs.recording import GPU_PREFIX
from benchmarks.runs.rules import Composition, HostShare
from core.errors import NotFound
from core.language import _, gettext_noop
from core.text import parse_id
from fabric.agents.models import HostAgent
from fabric.agents.selectors import attached_devices, chassis_serial_numbers, host_local_devices, latest_report
from fabric.bmc.values import LANE_GBPS
from fabric.inventory.models import Device, Host, HostPort, Port
from hostwire.protocol import HostReport, PciDevice

RATE_TOLERANCE: Final = 0.75  # Redfish services report the raw rate of a link, or the rate after encoding
VENDOR_PREFIXES: Final = ("NVIDIA ", "Tesla ", "AMD ", "Intel ")
UNKNOWN_MODEL: Final = "unknown"


def model_name(text: str) -> str:
    """Return a model without its manufacturer: 'V100-SXM2-16GB' of 'Tesla V100-SXM2-16GB'."""
    for maker in VENDOR_PREFIXES:
        text = text.removeprefix(maker)
    return text.strip() or UNKNOWN_MODEL


def link_of(port: Port | None, device: Device | None = None) -> PcieLink:
    """Return the trained link of a port; for a link that is down, the maximum that both ends support."""
    if port is not None and port.active_width and port.speed_gbps:
        return PcieLink(lanes=port.active_width, generation=pcie_generation(port.speed_gbps / port.active_width))
    widths = [port.width, port.configured_width] if port is not None else []
    widths += [device.max_lanes] if device is not None else []
    lanes = min(filter(None, widths), default=PcieLink.lanes)
    if device is not None and device.max_pcie_type in LANE_GBPS:
        return PcieLink(lanes=lanes, generation=pcie_generation(LANE_GBPS[device.max_pcie_type]))
    if port is not None and port.max_speed_gbps and port.width:
        return PcieLink(lanes=lanes, generation=pcie_generation(port.max_speed_gbps / port.width))
    return PcieLink(lanes=lanes)


def pcie_generation(gbps: float) -> int:
    """Return the PCIe generation with this lane rate, Gb/s."""
    rates = [rate for rate in LANE_GBPS.values() if gbps >= RATE_TOLERANCE * rate]
    return max(1, len(rates))


SYSTEM_MOUNTS: Final = ("/", "/boot", "/boot/efi", "/efi")
NVME_CLASS: Final = "0x0108"  # PCI class code: non-volatile memory controller


def own_drive(
    report: HostReport | None, neighbours: Collection[Device], of_chassis: Collection[str] | None = None
) -> PciDevice | None:
    """Return a host's own NVMe drive for data: the first that is not a system drive, else the first.

    `neighbours` are all devices that are attached to it, `of_chassis` the result of
    fabric.agents.selectors.chassis_serial_numbers, for callers with several hosts.
    """
    if report is None:
        return None
    own = host_local_devices(report, neighbours, chassis_serial_numbers() if of_chassis is None else of_chassis)
    drives = [one for one in own if one.class_code.startswith(NVME_CLASS)]
    system = {
        address
        for address, holders in report.holders.items()
        if any(one.kind == "mount" and one.what in SYSTEM_MOUNTS for one in holders)
    }
    return min(drives, key=lambda one: one.address in system, default=None)


def current_own_drive(host: int, report: HostReport | None) -> PciDevice | None:
    """Return `own_drive` of one host, by its id; two queries."""
    return own_drive(report, attached_devices([host]).get(host, []))


def drive_model_name(model: str) -> str:
    """Return the label of an NVMe drive in the performance model and figures, which identify NVMe by this label."""
    name = model_name(model)
    return name if is_nvme(name) else f"NVMe {name}"


def own_drive_storage(drive: PciDevice) -> Storage:
    """Return a host's own drive as storage of the performance model."""
    usual = PcieLink()
    generation = pcie_generation(drive.speed) if drive.speed else usual.generation
    return Storage(
        model=drive_model_name(drive.model), place=LOCAL, link=PcieLink(lanes=drive.width or 4, generation=generation)
    )


LOCAL_PREFIX: Final = "local "  # followed by a number: a host's own accelerator
ADDRESSES_KEY: Final = "addresses"  # of a run's source: the names of accelerators by PCI address


def strategy_label(name: str) -> str:
    """Return the label of a parallelisation strategy: 'DDP', 'sharded', 'one device'; translated by who shows it."""
    return {"single": gettext_noop("one device"), "sharded": gettext_noop("sharded")}.get(name, name.upper())


def accelerator_label(accelerator: Accelerator) -> str:
    """Return the label of an accelerator: 'own GPU 1', 'falcon-1 drawer 1 slot 3'."""
    name, host = accelerator.name, accelerator.host
    if accelerator.place == LOCAL:
        number = name.removeprefix(f"{host}/").removeprefix(LOCAL_PREFIX)
        if number == name:
            return name
        if host:
            return _("own GPU {number} of {host}", number=number, host=host)
        return _("own GPU {number}", number=number)
    chassis, _slash, slot = name.rpartition("/")
    return f"{chassis} {slot[:1].lower()}{slot[1:]}" if chassis else name


def gpu_labels(run: Run, keys: Iterable[str]) -> dict[str, str]:
    """Return the labels of the GPUs in these series, by PCI address: 'falcon-1 drawer 1 slot 3 · V100'.

    GPUs that cannot be identified are left out.
    """
    topology = recorded_topology(run)
    addresses = sorted({key.split("/")[1] for key in keys if key.startswith(GPU_PREFIX) and key.count("/") > 1})
    if topology is None or not addresses:
        return {}
    noted = run.source.get(ADDRESSES_KEY)
    named = {one.name: one for one in topology.accelerators}
    found = {
        address: named[name]
        for address, name in (noted if isinstance(noted, Mapping) else {}).items()
        if isinstance(name, str) and name in named
    }
    named_found = {known.name for known in found.values()}
    for host in ("", *topology.other_hosts):
        others = [one for one in addresses if one not in found and one.rpartition(" ")[0] == host.replace("/", "-")]
        unnoted = [one for one in topology.accelerators if one.name not in named_found and one.host == host]
        if len(others) == len(unnoted) and all(one.place == LOCAL for one in unnoted):
            # A host assigns its own GPUs in the order of their addresses.
            found |= dict(zip(others, unnoted, strict=True))
    return {
        address: accelerator_label(one) + ("" if one.place == LOCAL else f" · {one.model.partition('-')[0]}")
        for address, one in found.items()
        if address in addresses
    }


def recorded_topology(run: Run) -> Topology | None:
    """Return the recorded topology of a run; None if it is unknown."""
    try:
        return msgspec.convert(run.topology, Topology) if run.topology else None
    except msgspec.ValidationError:
        return None


DEFAULT_GPU_MEMORY: Final = 16e9
# The default disk that a host reads from is unknown.
DEFAULT_STORAGE: Final = Storage(model=LOCAL_STORAGE)


def composition_topology(composition: Composition) -> Topology:
    """Return the topology of a composition for the performance model, with links as trained, else at their maximum.

    Accelerators are in the order of ranks: the host's own, then those of chassis. On the CPU there are none. Raises
    NotFound for an unknown host, device or host port.
    """
    hosts: list[Host] = [row_or_404(Host.objects.all(), pk, "host") for pk in composition.hosts]
    attached = composition.all_devices
    devices = Device.objects.select_related("chassis", "slot__port", "slot__drawer").in_bulk(list(attached))
    ports = HostPort.objects.select_related("chassis", "drawer", "port").in_bulk(set(attached.values()))
    for pk, port in attached.items():
        if pk not in devices or port not in ports:
            raise NotFound(
                _("There is no device {pk}.", pk=pk)
                if pk not in devices
                else _("There is no host port {port}.", port=port)
            )
    places = {pk: place_name(ports[port]) for pk, port in attached.items()}
    reports = {one.host_id: latest_report(one) for one in HostAgent.objects.filter(host__in=hosts)}
    first, *others = hosts
    return Topology(
        name=host_names(hosts),
        host=first.name,
        other_hosts=tuple(one.name for one in others),
        memory_bytes=(first.memory_gib or 0.0) * 2**30 or Topology.memory_bytes,
        accelerators=()
        if composition.cpu
        else tuple(
            accelerator
            for host, share in zip(hosts, composition.shares, strict=True)
            for accelerator in _share_accelerators(
                share, devices, places, host=host, report=reports.get(host.pk), name="" if host is first else host.name
            )
        ),
        storage=_composition_storage(composition, devices, places, reports.get(first.pk)),
        uplinks={place_name(port): link_of(port.port) for port in ports.values()},
    )


def host_composition(person: User, name: str) -> Composition:
    """Return the composition now of a host that the person sees, by its name or id. Raises NotFound."""
    hosts = Host.objects.visible_to(person)
    host = hosts.filter(name=name).first() or hosts.filter(pk=parse_id(name)).first()
    if host is None:
        raise NotFound(_("No host of this site has this name."))
    return composition_now(person, host)


def composition_now(person: User, host: Host) -> Composition:
    """Return a host with all GPUs of its own and at it now that the person sees."""
    attached = Device.objects.visible_to(person).filter(host_port__host=host, kind=Device.Kind.GPU, missing_since=None)
    ports = set(HostPort.objects.visible_to(person).filter(host=host).values_list("pk", flat=True))
    pairs = attached.order_by("pk").values_list("pk", "host_port")
    return Composition(
        host=host.pk,
        local_gpus=min(host.local_gpu_count, 64),
        devices={pk: port for pk, port in pairs if port in ports},
    )


def _share_accelerators(
    share: HostShare,
    devices: Mapping[int, Device],
    places: Mapping[int, str],
    *,
    host: Host,
    report: HostReport | None,
    name: str,
) -> tuple[Accelerator, ...]:
    """Return what computes at one host; `name` is that of a further host, '' for the first."""
    found = (
        *(local_accelerators(host, report, share.local_gpus) if share.local_gpus else ()),
        *(_accelerator(devices[pk], places[pk]) for pk in share.devices if devices[pk].kind == Device.Kind.GPU),
    )
    if not name:
        return found
    return tuple(
        replace(one, host=name, name=f"{name}/{one.name}" if one.place == LOCAL else one.name) for one in found
    )


def place_name(port: HostPort) -> str:
    """Return the name of the switch below a host port: 'falcon-1/drawer 1/H1'."""
    drawer = f"drawer {port.drawer.number}" if port.drawer is not None else "no drawer"
    return f"{port.chassis.name}/{drawer}/{port.label}"


def device_label(device: Device) -> str:
    """Return the label of a device in the performance model, unique within the site."""
    where = device.slot.name if device.slot is not None else f"device {device.pk}"
    return f"{device.chassis.name}/{where}"


def local_accelerators(host: Host, report: HostReport | None, count: int) -> tuple[Accelerator, ...]:
    """Return the host's own GPUs, as its agent reports them."""
    models = _local_models(host, report)
    unreported = (models[0][0] if models else UNKNOWN_MODEL, DEFAULT_GPU_MEMORY)
    models += [unreported] * (count - len(models))
    return tuple(
        Accelerator(name=f"{LOCAL_PREFIX}{number}", model=model, place=LOCAL, memory_bytes=memory)
        for number, (model, memory) in enumerate(models[:count], 1)
    )


def _accelerator(device: Device, place: str) -> Accelerator:
    port = device.slot.port if device.slot is not None else None
    return Accelerator(
        name=device_label(device),
        model=model_name(device.model),
        place=place,
        link=link_of(port, device),
        memory_bytes=float(device.memory_bytes or DEFAULT_GPU_MEMORY),
    )


def _composition_storage(
    composition: Composition, devices: Mapping[int, Device], places: Mapping[int, str], report: HostReport | None
) -> Storage:
    if composition.storage is not None and composition.storage in devices:
        device = devices[composition.storage]
        port = device.slot.port if device.slot is not None else None
        return Storage(model=drive_model_name(device.model), place=places[device.pk], link=link_of(port, device))
    if composition.own_drive:
        drive = current_own_drive(composition.host, report)
        if drive is not None:
            return own_drive_storage(drive)
    return DEFAULT_STORAGE


def _local_models(host: Host, report: HostReport | None) -> list[tuple[str, float]]:
    """Return models and memory (bytes) of the GPUs that NVML reports on a host and that are in no chassis."""
    if report is None:
        return []
    serials = set(Device.objects.filter(host_port__host=host).values_list("serial_number", flat=True)) - {""}
    at = {one.address: one.serial for one in report.devices}
    return [
        (model_name(gpu.name), (gpu.memory_total or 0.0) * 2**20 or DEFAULT_GPU_MEMORY)
        for gpu in sorted(report.gpus, key=lambda one: one.address)
        if (gpu.serial or at.get(gpu.address, "")) not in serials
    ]
