"""The pool of a recommendation, as frozen values: hosts, drawers with the state of their rules, free devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from benchmarks.model.reference_data import LOCAL_STORAGE
from benchmarks.model.topology import PcieLink, Storage
from benchmarks.recommend.power import ChassisPower
from benchmarks.recommend.times import SiteTimes
from benchmarks.runs.topology import model_name
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DeviceSnapshot, DrawerSnapshot, PortSnapshot


@dataclass(frozen=True, kw_only=True)
class DeviceClass:
    """The properties shared by equivalent devices; `memory_bytes` is of a GPU, else 0."""

    model: str
    memory_bytes: float = 0.0
    link: PcieLink = field(default_factory=PcieLink)


@dataclass(frozen=True, kw_only=True)
class HostPool:
    """A host: the number and kind of its own free GPUs, and its own data storage."""

    id: int
    name: str
    cores: int = 40
    memory_bytes: float = 756 * 2**30
    local_gpus: int = 0
    local: DeviceClass = field(default_factory=lambda: DeviceClass(model="V100-SXM2-16GB", memory_bytes=16e9))
    local_fabric: Literal["nvlink", "pcie"] = "nvlink"
    # The disk that it reads from by default is unknown.
    storage: Storage = field(default_factory=lambda: Storage(model=LOCAL_STORAGE))
    own_drive: bool = False  # `storage` is an NVMe drive that the host's agent reports


@dataclass(frozen=True, kw_only=True)
class FreeDevice:
    """A free device of a chassis: not assigned to others, and not used by a run."""

    id: int
    name: str
    kind: DeviceClass
    is_storage: bool = False


@dataclass(frozen=True, kw_only=True)
class RecommendationPool:
    """Hosts by id, drawers as in `fabric.operations.projected_state`, and their free devices.

    `uplinks` maps ids of usable host ports to their links. `modes` are the ids of drawers whose mode may be changed.
    `places` are the labels of drawers: 'falcon-1/drawer 1'. `power` is by the id of a chassis.
    """

    hosts: Mapping[int, HostPool] = field(default_factory=dict)
    drawers: tuple[DrawerSnapshot, ...] = ()
    devices: Mapping[int, FreeDevice] = field(default_factory=dict)
    uplinks: Mapping[int, PcieLink] = field(default_factory=dict)
    modes: frozenset[int] = frozenset()
    places: Mapping[int, str] = field(default_factory=dict)
    times: SiteTimes = field(default_factory=SiteTimes)
    power: Mapping[int, ChassisPower] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """The number of free GPUs, those of hosts included."""
        return sum(not one.is_storage for one in self.devices.values()) + sum(
            host.local_gpus for host in self.hosts.values()
        )

    def place(self, drawer: DrawerSnapshot, label: str) -> str:
        """Return the name of the switch below a host port."""
        return f"{self.places.get(drawer.id or 0, drawer.name)}/{label}"


Count = Annotated[int, msgspec.Meta(ge=0, le=64)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Lanes = Literal[1, 2, 4, 8, 16]
Generation = Annotated[int, msgspec.Meta(ge=1, le=6)]
Gigabytes = Annotated[float, msgspec.Meta(gt=0, le=100_000)]


class PoolError(ValueError):
    """A file is not a valid pool; its text is a sentence that names the field."""


class _Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Name
    local_gpus: Count = 0
    model: Name = "V100-SXM2-16GB"
    memory_gb: Gigabytes = 16.0
    fabric: Literal["nvlink", "pcie"] = "nvlink"
    cores: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 40
    host_memory_gb: Gigabytes = 811.0


class _Port(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    label: Name
    host: str | None = None
    lanes: Lanes = 16
    generation: Generation = 3


class _Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    slot: Annotated[int, msgspec.Meta(ge=1, le=8)]
    model: Name
    kind: Literal["gpu", "nvme"] = "gpu"
    memory_gb: Gigabytes = 16.0
    lanes: Lanes = 16
    generation: Generation = 3
    attached: str | None = None
    free: bool = True


class _Drawer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    chassis: Name
    drawer: Annotated[int, msgspec.Meta(ge=1, le=8)]
    mode: DrawerMode = DrawerMode.ADVANCED
    may_change_mode: bool = True
    ports: tuple[_Port, ...] = ()
    devices: tuple[_Device, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal["falconweb-pool"]
    version: Literal[1]
    hosts: tuple[_Host, ...]
    drawers: tuple[_Drawer, ...] = ()


def read_pool(text: str | bytes) -> RecommendationPool:
    """Parse a pool file; raises PoolError with a sentence that names the error and its place."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at ")
        raise PoolError(f"{where.strip('`').removeprefix('$.') or 'The file'}: {sentence}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PoolError(f"The file is not JSON: {error}.") from error
    names = [host.name for host in file.hosts]
    _refuse_duplicates(names, "hosts")
    hosts = {number: _host_pool(number, host) for number, host in enumerate(file.hosts, 1)}
    _refuse_duplicates([f"{one.chassis} drawer {one.drawer}" for one in file.drawers], "drawers")
    drawers, devices, uplinks, places = [], {}, {}, {}
    for number, drawer in enumerate(file.drawers, 1):
        at = f"drawers[{number - 1}]"
        _refuse_duplicates([port.label for port in drawer.ports], f"{at}.ports")
        _refuse_duplicates([f"slot {device.slot}" for device in drawer.devices], f"{at}.devices")
        ports = []
        for nth, port in enumerate(drawer.ports, 1):
            if port.host is not None and port.host not in names:
                raise PoolError(f"{at}.ports[{nth - 1}].host: there is no host '{port.host}' in the file.")
            pk = number * 100 + nth
            host = None if port.host is None else names.index(port.host) + 1
            ports.append(PortSnapshot(id=pk, label=port.label, number=nth, host=host))
            uplinks[pk] = PcieLink(lanes=port.lanes, generation=port.generation)
        labels = {port.label: port.id for port in ports}
        seen = []
        for nth, device in enumerate(drawer.devices):
            if device.attached is not None and device.attached not in labels:
                raise PoolError(f"{at}.devices[{nth}].attached: the drawer has no host port '{device.attached}'.")
            pk = number * 1000 + device.slot
            attached = labels[device.attached] if device.attached is not None else None
            name = f"{drawer.chassis}/drawer {drawer.drawer} slot {device.slot}"
            seen.append(DeviceSnapshot(id=pk, name=name, slot=device.slot, attached=attached))
            if device.free:
                devices[pk] = FreeDevice(id=pk, name=name, kind=_device_class(device), is_storage=device.kind == "nvme")
        places[number] = f"{drawer.chassis}/drawer {drawer.drawer}"
        drawers.append(
            DrawerSnapshot(
                chassis=number,
                id=number,
                name=places[number],
                mode=drawer.mode,
                ports=tuple(ports),
                devices=tuple(seen),
            )
        )
    return RecommendationPool(
        hosts=hosts,
        drawers=tuple(drawers),
        devices=devices,
        uplinks=uplinks,
        modes=frozenset(number for number, one in enumerate(file.drawers, 1) if one.may_change_mode),
        places=places,
    )


def _host_pool(number: int, host: _Host) -> HostPool:
    return HostPool(
        id=number,
        name=host.name,
        cores=host.cores,
        memory_bytes=host.host_memory_gb * 1e9,
        local_gpus=host.local_gpus,
        local=DeviceClass(model=model_name(host.model), memory_bytes=host.memory_gb * 1e9),
        local_fabric=host.fabric,
    )


def _device_class(device: _Device) -> DeviceClass:
    memory = device.memory_gb * 1e9 if device.kind == "gpu" else 0.0
    return DeviceClass(
        model=model_name(device.model),
        memory_bytes=memory,
        link=PcieLink(lanes=device.lanes, generation=device.generation),
    )


def _refuse_duplicates(names: list[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PoolError(f"{where}: '{name}' occurs more than once.")
