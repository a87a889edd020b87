"""Warnings of what a host may not be able to hold, from what its agent reports.

Sources: docs/agent.md, section 'What a host can hold'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from accounts.models import User
from core.language import _, _n, join_words
from fabric.agents.models import HostAgent
from fabric.agents.selectors import attached_devices, is_agent_away, latest_report, match_device, pci_ids
from fabric.inventory.models import Device, HostPort
from hostwire.protocol import HostReport, PciDevice, RootPort

MAX_NVIDIA_GPUS: Final = 32  # of a host: NV_MAX_DEVICES in nvlimits.h of NVIDIA's open kernel modules
MAX_CUDA_PEERS: Final = 8  # of a GPU without NVSwitch: CUDA C++ Programming Guide, Peer-to-Peer Memory Access
PASSES_ADDRESSES: Final = ("", "identity")  # types of IOMMU domains that translate no addresses
NVIDIA, AMD, MELLANOX = "0x10de", "0x1002", "0x15b3"
FIRST_MLX5: Final = "0x1011"  # Connect-IB; earlier adapters have another driver
DISPLAY_CLASS: Final = "0x03"


@dataclass(frozen=True, kw_only=True)
class HostArrivals:
    """A host with its report, and the devices that it would gain.

    `nvidia_gpus` counts those that it would have then, its own included. `root_ports` are those that lead to the
    devices, and `memory` the bytes of prefetchable memory that they need, by their ids, as far as hosts reported them.
    """

    name: str
    report: HostReport
    devices: Sequence[Device]
    nvidia_gpus: int = 0
    root_ports: Mapping[int, RootPort] = field(default_factory=dict)
    memory: Mapping[int, int] = field(default_factory=dict)


def attachment_warnings(person: User, attachments: Mapping[int, int | None]) -> tuple[str, ...]:
    """Return what hosts may not be able to hold once devices (ids) are attached to host ports (ids), None: to none.

    A person who sees only a part of a host is told that it may not hold them, without numbers.
    """
    ports = HostPort.objects.select_related("host").in_bulk([port for port in attachments.values() if port is not None])
    devices = Device.objects.select_related("host_port").in_bulk(list(attachments))
    gained: defaultdict[int, list[Device]] = defaultdict(list)
    lost: defaultdict[int, list[Device]] = defaultdict(list)
    names: dict[int, str] = {}
    for pk, device in devices.items():
        target = ports.get(attachments[pk] or 0)
        before = device.host_port.host_id if device.host_port is not None else None
        after = target.host_id if target is not None else None
        if before == after:
            continue
        if target is not None and target.host is not None:
            gained[target.host.pk].append(device)
            names[target.host.pk] = target.host.name
        if before is not None:
            lost[before].append(device)
    if not gained:
        return ()
    agents = HostAgent.objects.filter(host__in={*gained, *lost})
    reports = {one.host_id: report for one in agents if not is_agent_away(one) and (report := latest_report(one))}
    neighbours = attached_devices(list(reports))
    seen = {
        device.pk: (device, found)
        for host, report in reports.items()
        for device in neighbours[host]
        if (found := match_device(report, device, neighbours[host]).seen) is not None
    }
    memory = {pci_ids(one): one.memory_window for report in reports.values() for one in report.devices}
    in_part = set(
        HostPort.objects.filter(host__in=gained)
        .exclude(pk__in=HostPort.objects.visible_to(person))
        .values_list("host", flat=True)
    )
    found_warnings: list[str] = []
    for host, arriving in sorted(gained.items(), key=lambda one: names[one[0]]):
        if host not in reports:
            continue
        report = reports[host]
        by_port = {
            device.host_port_id: root
            for device, card in seen.values()
            if device.host_port is not None
            and device.host_port.host_id == host
            and (root := _root_port(report, card.address)) is not None
        }
        sentences = list(
            host_warnings(
                HostArrivals(
                    name=names[host],
                    report=report,
                    devices=arriving,
                    nvidia_gpus=sum(one.answers and _is_nvidia_gpu(one) for one in report.devices)
                    + sum(_is_nvidia_gpu(one) for one in arriving)
                    - sum(_is_nvidia_gpu(one) for one in lost[host]),
                    root_ports={one.pk: by_port[port] for one in arriving if (port := attachments[one.pk]) in by_port},
                    memory={one.pk: memory.get(pci_ids(one), 0) for one in arriving},
                )
            )
        )
        if sentences and host in in_part:
            sentences = [_("{host} may not be able to hold these devices. Ask an administrator.", host=names[host])]
        found_warnings += sentences
    return tuple(found_warnings)


def host_warnings(host: HostArrivals) -> Iterator[str]:
    """Yield what a host may not be able to hold; nothing that its agent does not report."""
    if any(_is_nvidia_gpu(device) for device in host.devices):
        yield from _gpu_warnings(host)
    yield from _driver_warnings(host)
    yield from _address_warnings(host)


def _gpu_warnings(host: HostArrivals) -> Iterator[str]:
    if host.report.limits is None:
        return
    if host.nvidia_gpus > MAX_NVIDIA_GPUS:
        yield _(
            "{host} would have {count} NVIDIA GPUs: their driver takes {most}.",
            host=host.name, count=host.nvidia_gpus, most=MAX_NVIDIA_GPUS,
        )  # fmt: skip
    elif host.nvidia_gpus > MAX_CUDA_PEERS + 1:
        yield _(
            "{host} would have {count} NVIDIA GPUs: CUDA connects each with {most} others at most, unless by NVSwitch; "
            "data for the rest go through the host’s memory.",
            host=host.name, count=host.nvidia_gpus, most=MAX_CUDA_PEERS,
        )  # fmt: skip
    if any(one.driver == "nouveau" for one in host.report.devices):
        yield _("On {host} nouveau has NVIDIA GPUs: CUDA cannot use those.", host=host.name)
    translating = sorted({one.iommu for one in host.report.devices if one.iommu not in PASSES_ADDRESSES})
    if translating and host.nvidia_gpus > 1:
        yield _(
            "{host} translates the addresses of its devices (IOMMU: {kinds}): CUDA does not support copies from GPU to "
            "GPU with it, unless in a virtual machine. Start the host with iommu=pt.",
            host=host.name, kinds=", ".join(translating),
        )  # fmt: skip


def _driver_warnings(host: HostArrivals) -> Iterator[str]:
    drivers = host.report.limits.drivers if host.report.limits is not None else None
    if drivers is None:
        return
    lacking: dict[str, list[str]] = {}
    for device in host.devices:
        if (driver := _driver_of(device)) and driver not in drivers:
            lacking.setdefault(driver, []).append(device.name)
    for driver, names in sorted(lacking.items()):
        yield _(
            "{host} has no driver {driver}: it cannot use {devices}.",
            host=host.name, driver=driver, devices=join_words(names),
        )  # fmt: skip


def _address_warnings(host: HostArrivals) -> Iterator[str]:
    if any(one.unassigned for one in host.report.devices):
        yield _(
            "{host} found no addresses for the memory of a device that it has: its firmware leaves too few for more.",
            host=host.name,
        )
    arriving: defaultdict[RootPort, list[Device]] = defaultdict(list)
    for device in host.devices:
        if (port := host.root_ports.get(device.pk)) is not None:
            arriving[port].append(device)
    for port, devices in sorted(arriving.items(), key=lambda one: one[0].address):
        buses = port.last_bus - port.first_bus + 1 - port.used_buses
        if buses < len(devices):
            yield _n(
                "Below the root port {port} of {host} {count} bus number is free, for {devices} more devices.",
                "Below the root port {port} of {host} {count} bus numbers are free, for {devices} more devices.",
                buses, port=port.address, host=host.name, devices=len(devices),
            )  # fmt: skip
        needed = sum(host.memory.get(device.pk, 0) for device in devices)
        used = sum(one.memory_window for one in host.report.devices if _is_below(port, one.address))
        if port.window and needed > port.window - used:
            yield _(
                "Below the root port {port} of {host} addresses for {free} of memory are free; "
                "the devices need {needed}.",
                port=port.address, host=host.name, free=_gib(max(0, port.window - used)),
                needed=_gib(needed),
            )  # fmt: skip


def _is_nvidia_gpu(device: Device | PciDevice) -> bool:
    is_gpu = (
        device.kind == Device.Kind.GPU if isinstance(device, Device) else device.class_code.startswith(DISPLAY_CLASS)
    )
    return is_gpu and pci_ids(device)[0] == NVIDIA


def _driver_of(device: Device) -> str:
    """Return the driver that a device needs, '' where that is not known."""
    vendor, model = pci_ids(device)
    if device.kind == Device.Kind.GPU:
        return {NVIDIA: "nvidia", AMD: "amdgpu"}.get(vendor, "")
    if device.kind == Device.Kind.NIC:
        return "mlx5_core" if vendor == MELLANOX and model >= FIRST_MLX5 else ""
    return "nvme" if device.kind == Device.Kind.NVME else ""


def _root_port(report: HostReport, address: str) -> RootPort | None:
    ports = report.limits.root_ports if report.limits is not None else ()
    return next((one for one in ports if _is_below(one, address)), None)


def _is_below(port: RootPort, address: str) -> bool:
    """Return whether a device is below a root port: by its bus, as lspci -t shows them."""
    domain, _colon, rest = address.partition(":")
    bus = rest.partition(":")[0]
    # What an agent sends need not be an address.
    is_bus = set(bus) <= set("0123456789abcdef") and bus != ""
    return is_bus and domain == port.address.partition(":")[0] and port.first_bus <= int(bus, 16) <= port.last_bus


def _gib(size: int) -> str:
    return f"{size / 2**30:,.0f} GiB"
