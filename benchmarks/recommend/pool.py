"""What a recommendation may choose from, as frozen values: hosts, drawers with their rules' state, free devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.model.facts import LOCAL_STORAGE
from benchmarks.model.shapes import LOCAL, Link, Storage
from fabric.planning import DrawerSeen


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What devices have in common that nothing tells apart but their place: `memory_bytes` is of a GPU, else 0."""

    model: str
    memory_bytes: float = 0.0
    link: Link = field(default_factory=Link)


@dataclass(frozen=True, kw_only=True)
class HostPool:
    """A host: how many of its own GPUs are free, what they are, and where its own data lies."""

    id: int
    name: str
    cores: int = 40
    memory_bytes: float = 756 * 2**30
    local_gpus: int = 0
    local: Kind = field(default_factory=lambda: Kind(model="V100-SXM2-16GB", memory_bytes=16e9))
    local_fabric: Literal["nvlink", "pcie"] = "nvlink"
    # Which of its own disks it reads from, nobody tells.
    storage: Storage = field(default_factory=lambda: Storage(model=LOCAL_STORAGE))
    own_drive: bool = False  # `storage` is an NVMe drive that the host's agent tells of


@dataclass(frozen=True, kw_only=True)
class FreeDevice:
    """A device of a chassis that may be used: nobody else holds it, and no run is at it."""

    id: int
    name: str
    kind: Kind
    is_storage: bool = False


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Hosts by id, drawers as `fabric.outlook` sees them, and of their devices those that may be used.

    `uplinks` maps ids of host ports that may be used to the link behind them. `modes` are the ids of drawers whose mode
    may be changed. `places` names a drawer for a reader: 'falcon-1/drawer 1'.
    """

    hosts: Mapping[int, HostPool] = field(default_factory=dict)
    drawers: tuple[DrawerSeen, ...] = ()
    devices: Mapping[int, FreeDevice] = field(default_factory=dict)
    uplinks: Mapping[int, Link] = field(default_factory=dict)
    modes: frozenset[int] = frozenset()
    places: Mapping[int, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """How many GPUs are free, those of hosts included."""
        return sum(not one.is_storage for one in self.devices.values()) + sum(
            host.local_gpus for host in self.hosts.values()
        )

    def place(self, drawer: DrawerSeen, label: str) -> str:
        """Return what stands for the switch below a host port."""
        return f"{self.places.get(drawer.id or 0, drawer.name)}/{label}"


__all__ = ["LOCAL", "FreeDevice", "HostPool", "Kind", "Pool"]
