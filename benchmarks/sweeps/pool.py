"""What a sweep may compose with, as frozen values, and how a wish for devices becomes a composition: pure.

Devices are taken in one order, so that a run with fewer of them uses some of those that one with more has composed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.runs.composition import Composition

# Where accelerators are, besides 'drawer:7' for those of one drawer.
CPU, OWN, SPREAD, HYBRID = "cpu", "local", "spread", "hybrid"
DRAWER = "drawer:"
HOST_STORAGE = "host"
OWN_DRIVE = "own"
NVME = "nvme:"


@dataclass(frozen=True, kw_only=True)
class PoolHost:
    """A host: how many GPUs of its own it has, and what it can run ('torch', 'simulated').

    `own_drive` is the model of its own NVMe drive, '' where it has none.
    """

    id: int
    name: str
    local_gpus: int = 0
    local_model: str = ""
    own_drive: str = ""
    executors: tuple[str, ...] = ("simulated",)
    frameworks: tuple[str, ...] = ("pytorch",)


@dataclass(frozen=True, kw_only=True)
class PoolDevice:
    """A device that may be composed. `ports` has the host port by which each host (id) reaches it.

    `attached` is the host (id) that it is attached to now; one of another host is not taken away from there.
    """

    id: int
    name: str
    model: str
    drawer: int
    slot: int = 0
    attached: int | None = None
    is_storage: bool = False
    where: str = ""
    ports: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Hosts and devices that a person may compose; `drawers` has their names."""

    hosts: tuple[PoolHost, ...] = ()
    devices: tuple[PoolDevice, ...] = ()
    drawers: Mapping[int, str] = field(default_factory=dict)

    def host(self, pk: int) -> PoolHost | None:
        """Return a host."""
        return next((one for one in self.hosts if one.id == pk), None)

    @property
    def models(self) -> list[str]:
        """The models of accelerators, the hosts' own among them."""
        found = {one.model for one in self.devices if not one.is_storage}
        return sorted((found | {one.local_model for one in self.hosts if one.local_gpus}) - {""})

    def drawers_of(self, host: int) -> list[int]:
        """Return the drawers (ids) of which the host reaches a device."""
        return sorted({one.drawer for one in self.devices if host in one.ports})


class Impossible(Exception):
    """A wish for devices that nothing fulfils; its text is the sentence that says why."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Which devices a run asks for: how many of which model ('' any) for which host, where, and where its data lies."""

    host: int
    count: int
    placement: str = OWN
    accelerator: str = ""
    storage: str = HOST_STORAGE


def composed(pool: Pool, wish: Wish) -> Composition:
    """Return the composition that a wish comes to; raises Impossible."""
    host = pool.host(wish.host)
    if host is None:
        raise Impossible(f"There is no host {wish.host} that you may compose with.")
    drive, devices = _storage(pool, host, wish.storage)
    own = wish.storage == OWN_DRIVE
    if wish.placement == CPU:
        return Composition(host=host.id, cpu=True, devices=devices, storage=drive, own_drive=own)
    local = _local_count(wish)
    if local:
        _refuse_local(host, local, wish)
    taken = _taken(pool, host, wish, wish.count - local)
    return Composition(
        host=host.id,
        local_gpus=local,
        devices={**{one.id: one.ports[host.id] for one in taken}, **devices},
        storage=drive,
        own_drive=own,
    )


def key_of(composition: Composition) -> str:
    """Return what tells a composition from others, whatever the order of its devices."""
    return msgspec.json.encode(composition.as_json(), order="sorted").decode()


def placement_words(pool: Pool, placement: str) -> str:
    """Return a placement as people read it."""
    if placement.startswith(DRAWER):
        drawer = placement.removeprefix(DRAWER)
        return pool.drawers.get(int(drawer), placement) if drawer.isdecimal() else placement
    return {
        CPU: "CPU only", OWN: "the host’s own GPUs", SPREAD: "evenly over drawers", HYBRID: "half own, half drawers",
    }.get(placement, placement)  # fmt: skip


def _local_count(wish: Wish) -> int:
    if wish.placement == OWN:
        return wish.count
    if wish.placement == HYBRID:
        if wish.count < 2:
            raise Impossible("Half own, half drawers needs at least 2 devices.")
        return wish.count - wish.count // 2
    return 0


def _refuse_local(host: PoolHost, count: int, wish: Wish) -> None:
    if count > host.local_gpus:
        has = f"{host.local_gpus} GPU{'' if host.local_gpus == 1 else 's'}" if host.local_gpus else "no GPU"
        raise Impossible(f"{host.name} has {has} of its own; {count} would be needed.")
    if wish.accelerator and host.local_model and wish.accelerator != host.local_model:
        raise Impossible(f"The own GPUs of {host.name} are {host.local_model}, not {wish.accelerator}.")


def _taken(pool: Pool, host: PoolHost, wish: Wish, count: int) -> list[PoolDevice]:
    if count == 0:
        return []
    if wish.placement.startswith(DRAWER):
        drawer = wish.placement.removeprefix(DRAWER)
        if not drawer.isdecimal() or int(drawer) not in pool.drawers:
            raise Impossible(f"There is no drawer {drawer[:20]} that you may compose with.")
        return _of_drawer(pool, host, wish.accelerator, int(drawer), count)
    drawers = pool.drawers_of(host.id)
    if not drawers:
        raise Impossible(f"{host.name} reaches no device in a drawer.")
    return _spread(pool, host, wish.accelerator, drawers, count)


def _of_drawer(pool: Pool, host: PoolHost, model: str, drawer: int, count: int) -> list[PoolDevice]:
    free = _free(pool, host, model, {drawer})
    if len(free) < count:
        raise Impossible(
            f"{pool.drawers[drawer]} has {_number(len(free), model)} for {host.name}; {count} would be needed."
        )
    return free[:count]


def _spread(pool: Pool, host: PoolHost, model: str, drawers: Sequence[int], count: int) -> list[PoolDevice]:
    """Return devices of the drawers in turn, as even as can be."""
    shelves = [_free(pool, host, model, {drawer}) for drawer in drawers]
    free = sum(map(len, shelves))
    if free < count:
        raise Impossible(f"All drawers have {_number(free, model)} for {host.name}; {count} would be needed.")
    taken: list[PoolDevice] = []
    while len(taken) < count:
        for shelf in shelves:
            if shelf and len(taken) < count:
                taken.append(shelf.pop(0))
    # Those of one drawer are neighbours among the ranks.
    return sorted(taken, key=lambda one: drawers.index(one.drawer))


def _free(pool: Pool, host: PoolHost, model: str, drawers: Collection[int]) -> list[PoolDevice]:
    """Return accelerators that the host may have: those it has before those that are attached to no host."""
    fitting = [
        one
        for one in pool.devices
        if not one.is_storage
        and one.drawer in drawers
        and host.id in one.ports
        and one.attached in {None, host.id}
        and model in {"", one.model}
    ]
    return sorted(fitting, key=lambda one: (one.attached is None, one.slot, one.id))


def _storage(pool: Pool, host: PoolHost, storage: str) -> tuple[int | None, dict[int, int]]:
    """Return the drive of a chassis that data is read from, None for the host's, and what is attached for that."""
    if storage == OWN_DRIVE and not host.own_drive:
        raise Impossible(f"{host.name} shows no NVMe drive of its own.")
    if storage in {HOST_STORAGE, OWN_DRIVE}:
        return None, {}
    drive = next((one for one in pool.devices if one.is_storage and f"{NVME}{one.id}" == storage), None)
    if drive is None:
        raise Impossible(f"There is no NVMe drive {storage.removeprefix(NVME)[:20]} that you may compose with.")
    if host.id not in drive.ports:
        raise Impossible(f"{host.name} does not reach {drive.name}.")
    if drive.attached not in {None, host.id}:
        raise Impossible(f"{drive.name} is attached to another host.")
    return drive.id, {drive.id: drive.ports[host.id]}


def _number(count: int, model: str) -> str:
    return f"{count or 'no'} free {model or 'accelerators'}"
