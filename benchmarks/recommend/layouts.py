"""Layouts: a host, a number of its own GPUs, and devices below its host ports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology
from benchmarks.recommend.drawer_options import ClassCounts, DrawerOption
from benchmarks.recommend.pool import DeviceClass, HostPool, RecommendationPool
from benchmarks.recommend.times import TimesAround
from core.language import _, _n, join_words, joined
from fabric.bmc.types import DrawerMode
from fabric.plans.rules import DesiredState

MAX_NAMED_PORTS: Final = 3  # host ports that are listed individually


@dataclass(frozen=True)
class SwitchPlace:
    """A switch below a host port: its uplink, the GPUs below it by kind, and the drive that data is read from."""

    uplink: PcieLink
    held: ClassCounts
    drive: DeviceClass | None = None

    @cached_property
    def count(self) -> int:
        return sum(count for _, count in self.held)

    @cached_property
    def load(self) -> float:
        """GPUs per uplink lane and generation, a measure of sharing."""
        return self.count / (self.uplink.lanes * 2.0**self.uplink.generation)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A host with GPUs: `choices` are the positions of drawers in the pool with the chosen options.

    `changes` are the required changes of modes, and plan steps.
    """

    host: HostPool
    local: int
    places: tuple[SwitchPlace, ...]
    choices: tuple[tuple[int, DrawerOption], ...] = ()
    changes: tuple[int, int] = (0, 0)

    @property
    def count(self) -> int:
        return self.local + sum(place.count for place in self.places)

    @property
    def kinds(self) -> dict[DeviceClass, int]:
        """The number of its GPUs of each kind, the host's own first."""
        found: dict[DeviceClass, int] = {self.host.local: self.local} if self.local else {}
        for place in self.places:
            for kind, count in place.held:
                found[kind] = found.get(kind, 0) + count
        return found

    def topology(self) -> Topology:
        """Return the topology of a run with numbered GPUs and places; a prediction needs no names."""
        places = {f"place {number}": place for number, place in enumerate(self.places, 1)}
        drive = next(((name, place.drive) for name, place in places.items() if place.drive is not None), None)
        return self._topology(
            accelerators=(
                *_numbered_accelerators(self.host.local, LOCAL, self.local),
                *(
                    one
                    for name, place in places.items()
                    for held in place.held
                    for one in _numbered_accelerators(held[0], name, held[1])
                ),
            ),
            storage=self.host.storage if drive is None else _drive_storage(drive[1], drive[0]),
            uplinks={name: place.uplink for name, place in places.items()},
        )

    def _topology(
        self, *, accelerators: tuple[Accelerator, ...], storage: Storage, uplinks: dict[str, PcieLink], name: str = ""
    ) -> Topology:
        return Topology(
            name=name,
            host=self.host.name,
            cores=self.host.cores,
            memory_bytes=self.host.memory_bytes,
            local_fabric=self.host.local_fabric,
            accelerators=accelerators,
            storage=storage,
            uplinks=uplinks,
        )

    def times(self, pool: RecommendationPool, workload: str) -> TimesAround:
        """Return the time to compose it, to start a run, and to give it back."""
        drawers = [(pool.drawers[position].chassis, option.steps) for position, option in self.choices]
        return TimesAround.of(pool.times, drawers, workload)

    def slots(self, pool: RecommendationPool) -> dict[int, int]:
        """Return the number of slots that it uses of each chassis, by id."""
        found: dict[int, int] = {}
        for position, option in self.choices:
            chassis = pool.drawers[position].chassis
            found[chassis] = found.get(chassis, 0) + len(option.devices) + (option.storage is not None)
        return found

    def attachments(self, pool: RecommendationPool) -> dict[int, int]:
        """Return the host ports of devices by id, in the order of ranks after the local GPUs."""
        return {
            pool.drawers[position].devices[device].id: pool.drawers[position].ports[port].id
            for position, option in self.choices
            for device, port in option.devices
        }

    def storage(self, pool: RecommendationPool) -> tuple[int, int] | None:
        """Return the ids of the data drive and its host port; None: the host's own drive."""
        for position, option in self.choices:
            if option.storage is not None:
                device, port = option.storage
                return pool.drawers[position].devices[device].id, pool.drawers[position].ports[port].id
        return None

    def desired_state(self, pool: RecommendationPool) -> DesiredState:
        """Return the desired state of a plan, empty without changes."""
        attachments: dict[int, int | None] = {}
        modes: dict[int, DrawerMode] = {}
        for position, option in self.choices:
            drawer = pool.drawers[position]
            chosen = [*option.devices, *([option.storage] if option.storage is not None else [])]
            for device, port in chosen:
                if drawer.devices[device].attached != drawer.ports[port].id:
                    attachments[drawer.devices[device].id] = drawer.ports[port].id
            attachments |= {drawer.devices[device].id: None for device in option.detached}
            if option.mode is not None and drawer.id is not None:
                modes[drawer.id] = option.mode
        return DesiredState(attachments=attachments, modes=modes)

    def named_topology(self, pool: RecommendationPool) -> Topology:
        """Return the topology of a run with the names of its devices and places."""
        accelerators = list(_numbered_accelerators(self.host.local, LOCAL, self.local))
        uplinks: dict[str, PcieLink] = {}
        storage = self.host.storage
        for position, option in self.choices:
            drawer = pool.drawers[position]
            for device, port in option.devices:
                place = pool.place(drawer, drawer.ports[port].label)
                free = pool.devices[drawer.devices[device].id]
                uplinks[place] = pool.uplinks[drawer.ports[port].id]
                accelerators.append(_accelerator(free.kind, place, free.name))
            if option.storage is not None:
                place = pool.place(drawer, drawer.ports[option.storage[1]].label)
                uplinks[place] = pool.uplinks[drawer.ports[option.storage[1]].id]
                kind = pool.devices[drawer.devices[option.storage[0]].id].kind
                storage = _drive_storage(kind, place)
        return self._topology(name=self.label(pool), accelerators=tuple(accelerators), storage=storage, uplinks=uplinks)

    def label(self, pool: RecommendationPool) -> str:
        """Return it as text: 'node-a: 4 local GPUs, 4 × V100-PCIE-16GB below falcon-1/drawer 1/H1'."""
        parts: list[str] = []
        if self.local:
            parts.append(_n("{count} local GPU", "{count} local GPUs", self.local))
        ports = [(position, port, held) for position, option in self.choices for port, held in option.held]
        if len(ports) > MAX_NAMED_PORTS:
            counts = [place.count for place in self.places if place.count]
            few, many = min(counts), max(counts)
            each = _("{low} to {high}", low=few, high=many) if few < many else str(few)
            below = {kind: sum(dict(place.held).get(kind, 0) for place in self.places) for kind in self.kinds}
            what = join_words([f"{count} × {kind.model}" for kind, count in below.items() if count])
            parts.append(_("{gpus} below {count} host ports, {each} each", gpus=what, count=len(ports), each=each))
        else:
            for position, port, held in ports:
                drawer = pool.drawers[position]
                what = join_words([f"{count} × {kind.model}" for kind, count in held])
                parts.append(_("{gpus} below {place}", gpus=what, place=pool.place(drawer, drawer.ports[port].label)))
        for position, option in self.choices:
            if option.storage is not None:
                drawer = pool.drawers[position]
                parts.append(
                    _("data on a drive below {place}", place=pool.place(drawer, drawer.ports[option.storage[1]].label))
                )
        return joined([self.host.name, joined(parts, ", ")], ": ")


def _numbered_accelerators(kind: DeviceClass, place: str, count: int) -> Iterable[Accelerator]:
    return (_accelerator(kind, place, f"{place}, GPU {number}") for number in range(1, count + 1))


@lru_cache(maxsize=10_000)
def _accelerator(kind: DeviceClass, place: str, name: str) -> Accelerator:
    return Accelerator(name=name, model=kind.model, place=place, link=kind.link, memory_bytes=kind.memory_bytes)


def _drive_storage(drive: DeviceClass, place: str) -> Storage:
    return Storage(model=drive.model, place=place, link=drive.link)
