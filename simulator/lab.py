"""The description of a lab: hosts, chassis, cables, devices and their models."""

from __future__ import annotations

import uuid
from enum import StrEnum
from pathlib import Path

import msgspec

from simulator.rules import ADVANCED, DEFAULT_PROFILE, Allocation, Mode, load_rules, profile_names, refusal

DEFAULT_LAB = Path(__file__).with_name("default_lab.json")
_NAMESPACE = uuid.UUID("5f0c2a54-0d2b-4b67-9d5a-3ff6b1a1f4c4")
# Signalling rate of one lane in Gbit/s, by PCIe generation.
LANE_GBPS = {"Gen1": 2.5, "Gen2": 5.0, "Gen3": 8.0, "Gen4": 16.0, "Gen5": 32.0}
GENERATIONS = tuple(LANE_GBPS)


class DeviceModelKind(StrEnum):
    """The PCI properties of a device on its host."""

    GPU = "GPU"
    DRIVE = "Drive"
    NETWORK = "NetworkAdapter"
    CUSTOM = "Custom"


class DeviceModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model of a PCIe device; IDs are hexadecimal strings, power is in watts."""

    kind: DeviceModelKind
    manufacturer: str
    model: str
    part_number: str
    vendor_id: str
    device_id: str
    subsystem_vendor_id: str
    subsystem_id: str
    class_code: str
    generation: str = "Gen3"
    lanes: int = 16
    firmware: str = "1.0"
    idle_watts: float = 15.0
    max_watts: float = 75.0
    memory_mib: int = 0
    capacity_bytes: int = 0
    # The share of the link's capacity that a busy device receives and transmits.
    receive_share: float = 0.3
    transmit_share: float = 0.2


# The built-in models, with their real vendor and device IDs.
DEVICE_MODELS = msgspec.json.decode(
    Path(__file__).with_name("device_models.json").read_bytes(), type=dict[str, DeviceModel]
)


class LabError(ValueError):
    """A lab file cannot be simulated; the text says why."""


DRIVER_VERSIONS = {"nvidia": "550.90.07", "nvme": "1.0", "mlx5_core": "5.0"}


class HostLab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host server; serial number and UUID are derived from its name unless the file has them."""

    manufacturer: str = "Supermicro"
    model: str = "SYS-4029GP-TVRT"
    serial: str = ""
    uuid: str = ""
    cpu_model: str = "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"
    cpus: int = 2
    cores_per_cpu: int = 20
    memory_gib: float = 756
    gpu_model: str = "Tesla V100-SXM2-16GB"
    gpus: int = 8
    # What limits the devices that it can take: see docs/agent.md.
    pci_window_gib: int = 2048  # of each root port that leads to a chassis
    iommu: str = ""  # the type of the IOMMU domains of its devices, such as DMA-FQ; '' without one
    drivers: dict[str, str] = msgspec.field(default_factory=DRIVER_VERSIONS.copy)


class SlotLab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device in a slot and the host port (`H1`..) that it is attached to at the start, if any."""

    device: str
    attached_to: str | None = None
    serial: str = ""


class DrawerLab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One drawer: its mode, its host ports (port to host, null without a cable) and its slots (number to device)."""

    host_ports: dict[str, str | None]
    slots: dict[int, SlotLab] = {}
    mode: Mode = ADVANCED


class ChassisLab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chassis with its drawers, first drawer first."""

    drawers: list[DrawerLab]
    serial: str = ""
    model: str = ""  # '' is that of its profile
    profile: str = DEFAULT_PROFILE


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a lab file; `devices` adds models to the built-in ones."""

    hosts: dict[str, HostLab]
    chassis: dict[str, ChassisLab]
    devices: dict[str, DeviceModel] = {}

    def device_model(self, key: str) -> DeviceModel:
        """Return the model of a device by its key in the lab file."""
        model = self.devices.get(key) or DEVICE_MODELS.get(key)
        if model is None:
            raise LabError(f"the device {key!r} is unknown; known are {', '.join(DEVICE_MODELS | self.devices)}")
        return model


def stable_uuid(*names: str) -> str:
    """Return the same UUID for the same names, in every process and for every seed."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(names)))


def stable_serial(prefix: str, *names: str) -> str:
    """Return the same serial number for the same names."""
    return prefix + uuid.uuid5(_NAMESPACE, "serial/" + "/".join(names)).hex[:10].upper()


def load_lab(path: Path | None = None) -> Lab:
    """Read a lab file (JSON), or the built-in lab, and validate it.

    Raises LabError with a sentence that names the place in the file.
    """
    file = path or DEFAULT_LAB
    try:
        lab = msgspec.json.decode(file.read_bytes(), type=Lab, strict=False)
    except (OSError, msgspec.MsgspecError) as error:
        raise LabError(f"cannot read the lab file {file}: {error}") from error
    for model in lab.devices.values():
        if model.generation not in GENERATIONS:
            raise LabError(f"the device {model.model} has no PCIe generation {model.generation!r}")
    for name, chassis in lab.chassis.items():
        _check_chassis(lab, name, chassis)
    if not lab.chassis:
        raise LabError(f"the lab file {file} describes no chassis")
    return lab


def with_profile(lab: Lab, name: str, profile: str) -> Lab:
    """Return a lab in which a chassis is of another model; raises LabError where it is not possible in that."""
    chassis = msgspec.structs.replace(lab.chassis[name], profile=profile, model="")
    _check_chassis(lab, name, chassis)
    return msgspec.structs.replace(lab, chassis=lab.chassis | {name: chassis})


def _check_chassis(lab: Lab, name: str, chassis: ChassisLab) -> None:
    if chassis.profile not in profile_names():
        raise LabError(f"{name}: there is no profile {chassis.profile!r}; there are {', '.join(profile_names())}")
    rules = load_rules(chassis.profile)
    seen: set[str] = set()
    for number, drawer in enumerate(chassis.drawers, start=1):
        place = f"{name}, drawer {number}"
        for port, host in drawer.host_ports.items():
            if host is not None and host not in lab.hosts:
                raise LabError(f"{place}: the host {host!r} of port {port} is not described")
            if port in seen:
                raise LabError(f"{place}: the host port {port} is cabled twice")
            seen.add(port)
        attached: dict[int, str] = {}
        for slot, content in drawer.slots.items():
            lab.device_model(content.device)
            if not 1 <= slot <= rules.slots:
                raise LabError(f"{place}: there is no slot {slot}")
            if content.attached_to is None:
                continue
            if content.attached_to not in drawer.host_ports:
                raise LabError(f"{place}: slot {slot} is attached to {content.attached_to}, which is not cabled there")
            attached[slot] = content.attached_to
        hosts = {port: host or "" for port, host in drawer.host_ports.items()}
        reason = refusal(drawer.mode, Allocation(host_of_port=hosts, port_of_slot=attached), rules)
        if reason:
            raise LabError(f"{place}: {reason}")
