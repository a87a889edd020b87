"""Compositions from a pool and a placement, and the order of runs that moves the fewest devices. Pure.

Devices are taken in a fixed order, so that a run with fewer devices reuses some of those of a larger run.

Devices of a run stay on its host for the next. So a device is moved only if the next run needs it elsewhere, and unused
devices stay where they are until the end. The order minimises moved devices first, then compositions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from benchmarks.runs.rules import Composition
from core.language import _, _n

# Placements of accelerators, besides 'drawer:7' for those of one drawer.
CPU_PLACEMENT, LOCAL_PLACEMENT, SPREAD_PLACEMENT, HYBRID_PLACEMENT = "cpu", "local", "spread", "hybrid"
DRAWER_PREFIX = "drawer:"
DEVICES_PREFIX = "devices:"  # followed by ids of devices: these, and the host's own GPUs for the rest
HOST_STORAGE = "host"
OWN_DRIVE_STORAGE = "own"
NVME_PREFIX = "nvme:"


@dataclass(frozen=True, kw_only=True)
class PoolHost:
    """A host: the number of its own GPUs, its executors ('torch', 'simulated'), and PyTorch's backends ('cuda').

    `own_drive` is the model of its own NVMe drive, '' for none.
    """

    id: int
    name: str
    local_gpus: int = 0
    own_drive: str = ""
    executors: tuple[str, ...] = ("simulated",)
    backends: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PoolDevice:
    """A device that may be composed. `ports` maps hosts (ids) to the host ports by which they reach it.

    `attached` is the host (id) that it is attached to now; a device of another host is not moved.
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
class SweepPool:
    """Hosts and devices that a person may compose; `drawers` has their names."""

    hosts: tuple[PoolHost, ...] = ()
    devices: tuple[PoolDevice, ...] = ()
    drawers: Mapping[int, str] = field(default_factory=dict)

    def host(self, pk: int) -> PoolHost | None:
        return next((one for one in self.hosts if one.id == pk), None)

    @property
    def models(self) -> list[str]:
        """The models of accelerators in drawers."""
        return sorted({one.model for one in self.devices if not one.is_storage} - {""})

    def drawers_of(self, host: int) -> list[int]:
        """Return the drawers (ids) of which the host reaches a device."""
        return sorted({one.drawer for one in self.devices if host in one.ports})


class PlacementError(Exception):
    """A request for devices that is impossible; its text is the reason, a sentence."""


@dataclass(frozen=True, kw_only=True)
class PlacementRequest:
    """The devices that a run requests: number, model ('' any), host, placement, and storage of its data."""

    host: int
    count: int
    placement: str = LOCAL_PLACEMENT
    accelerator: str = ""
    storage: str = HOST_STORAGE


def compose_placement(pool: SweepPool, request: PlacementRequest) -> Composition:
    """Return the composition for a request; raises Impossible."""
    host = pool.host(request.host)
    if host is None:
        raise PlacementError(_("You cannot compose with host {host}, or it does not exist.", host=request.host))
    drive, devices = _storage_drive(pool, host, request.storage)
    own = request.storage == OWN_DRIVE_STORAGE
    if request.placement == CPU_PLACEMENT:
        return Composition(host=host.id, cpu=True, devices=devices, storage=drive, own_drive=own)
    local = _local_count(request)
    if local > host.local_gpus:
        has = _n("{count} GPU", "{count} GPUs", host.local_gpus) if host.local_gpus else _("no GPU")
        raise PlacementError(
            _("{host} has {found} of its own; {count} would be needed.", host=host.name, found=has, count=local)
        )
    taken = _chassis_devices(pool, host, request, request.count - local)
    return Composition(
        host=host.id,
        local_gpus=local,
        devices={**{one.id: one.ports[host.id] for one in taken}, **devices},
        storage=drive,
        own_drive=own,
    )


def composition_key(composition: Composition) -> str:
    """Return the identity of a composition, independent of the order of its devices."""
    return msgspec.json.encode(composition.as_json(), order="sorted").decode()


def placement_label(pool: SweepPool, placement: str) -> str:
    """Return the label of a placement."""
    if placement.startswith(DEVICES_PREFIX):
        return _("devices as named")
    if placement.startswith(DRAWER_PREFIX):
        drawer = placement.removeprefix(DRAWER_PREFIX)
        return pool.drawers.get(int(drawer), placement) if drawer.isdecimal() else placement
    return {
        CPU_PLACEMENT: _("CPU only"),
        LOCAL_PLACEMENT: _("the host’s own GPUs"),
        SPREAD_PLACEMENT: _("evenly over drawers"),
        HYBRID_PLACEMENT: _("half own, half drawers"),
    }.get(placement, placement)


def _local_count(request: PlacementRequest) -> int:
    if request.placement.startswith(DEVICES_PREFIX):
        return max(0, request.count - len(_named_ids(request.placement)))
    if request.placement == LOCAL_PLACEMENT:
        return request.count
    if request.placement == HYBRID_PLACEMENT:
        if request.count < 2:
            raise PlacementError(_("Half own, half drawers needs at least 2 devices."))
        return request.count - request.count // 2
    return 0


def _chassis_devices(pool: SweepPool, host: PoolHost, request: PlacementRequest, count: int) -> list[PoolDevice]:
    if request.placement.startswith(DEVICES_PREFIX):
        return _named_devices(pool, host, request)
    if count == 0:
        return []
    if request.placement.startswith(DRAWER_PREFIX):
        drawer = request.placement.removeprefix(DRAWER_PREFIX)
        if not drawer.isdecimal() or int(drawer) not in pool.drawers:
            raise PlacementError(
                _("You cannot compose with drawer {drawer}, or it does not exist.", drawer=drawer[:20])
            )
        return _drawer_devices(pool, host, request.accelerator, int(drawer), count)
    drawers = pool.drawers_of(host.id)
    if not drawers:
        raise PlacementError(_("{name} reaches no device in a drawer.", name=host.name))
    return _spread_devices(pool, host, request.accelerator, drawers, count)


def _named_ids(placement: str) -> list[str]:
    return list(dict.fromkeys(placement.removeprefix(DEVICES_PREFIX).split(",")))


def _named_devices(pool: SweepPool, host: PoolHost, request: PlacementRequest) -> list[PoolDevice]:
    """Return the named accelerators in their order, each of which the host must reach."""
    reached = {
        str(one.id): one
        for one in pool.devices
        if not one.is_storage and host.id in one.ports and one.attached in {None, host.id}
        and request.accelerator in {"", one.model}
    }  # fmt: skip
    names = _named_ids(request.placement)
    if missing := [one for one in names if one not in reached]:
        raise PlacementError(
            _("You cannot compose {host} with device {device}.", host=host.name, device=missing[0][:20])
        )
    if len(names) > request.count:
        raise PlacementError(_n("{count} device is named.", "{count} devices are named.", len(names)))
    return [reached[one] for one in names]


def _drawer_devices(pool: SweepPool, host: PoolHost, model: str, drawer: int, count: int) -> list[PoolDevice]:
    free = _free_devices(pool, host, model, drawer)
    if len(free) < count:
        raise PlacementError(
            _(
                "{drawer} has {found} for {host}; {count} would be needed.",
                drawer=pool.drawers[drawer],
                found=_count_label(len(free), model),
                host=host.name,
                count=count,
            )
        )
    return free[:count]


def _spread_devices(
    pool: SweepPool, host: PoolHost, model: str, drawers: Sequence[int], count: int
) -> list[PoolDevice]:
    """Return devices spread over the drawers as evenly as possible."""
    shelves = [_free_devices(pool, host, model, drawer) for drawer in drawers]
    free = sum(map(len, shelves))
    if free < count:
        raise PlacementError(
            _(
                "All drawers have {found} for {host}; {count} would be needed.",
                found=_count_label(free, model),
                host=host.name,
                count=count,
            )
        )
    taken: list[PoolDevice] = []
    while len(taken) < count:
        for shelf in shelves:
            if shelf and len(taken) < count:
                taken.append(shelf.pop(0))
    # Devices of one drawer have adjacent ranks.
    return sorted(taken, key=lambda one: drawers.index(one.drawer))


def _free_devices(pool: SweepPool, host: PoolHost, model: str, drawer: int) -> list[PoolDevice]:
    """Return the accelerators of a drawer available to the host: its attached ones, then the detached ones."""
    fitting = [
        one
        for one in pool.devices
        if not one.is_storage
        and one.drawer == drawer
        and host.id in one.ports
        and one.attached in {None, host.id}
        and model in {"", one.model}
    ]
    return sorted(fitting, key=lambda one: (one.attached is None, one.slot, one.id))


def _storage_drive(pool: SweepPool, host: PoolHost, storage: str) -> tuple[int | None, dict[int, int]]:
    """Return the chassis drive for data, None for the host's storage, and its attachment."""
    if storage == OWN_DRIVE_STORAGE and not host.own_drive:
        raise PlacementError(_("{name} shows no NVMe drive of its own.", name=host.name))
    if storage in {HOST_STORAGE, OWN_DRIVE_STORAGE}:
        return None, {}
    drive = next((one for one in pool.devices if one.is_storage and f"{NVME_PREFIX}{one.id}" == storage), None)
    if drive is None:
        raise PlacementError(
            _(
                "You cannot compose with NVMe drive {drive}, or it does not exist.",
                drive=storage.removeprefix(NVME_PREFIX)[:20],
            )
        )
    if host.id not in drive.ports:
        raise PlacementError(_("{host} does not reach {drive}.", host=host.name, drive=drive.name))
    if drive.attached not in {None, host.id}:
        raise PlacementError(_("{name} is attached to another host.", name=drive.name))
    return drive.id, {drive.id: drive.ports[host.id]}


def _count_label(count: int, model: str) -> str:
    return _("{count} free {model}", count=count or _("no"), model=model or _("accelerators"))


Attachments = Mapping[int, int | None]  # device to host port; None: to none
MAX_EXACT: Final = 7  # compositions: up to this number, all orders are evaluated
MAX_IMPROVED: Final = 40  # compositions: above this number, the first search is not improved


class CompositionCost(NamedTuple):
    """The number of moved devices, and of compositions; one that moves no device does not count."""

    moves: int = 0
    compositions: int = 0


def cheapest_order(wanted: Sequence[Mapping[int, int]], now: Attachments) -> list[int]:
    """Return the runs' numbers in an order of low cost; `wanted` has the attachments of each, device to host port.

    Runs of one composition stay together and in their order. For up to 7 compositions the order is optimal.
    """
    groups: dict[frozenset[tuple[int, int]], list[int]] = {}
    for number, places in enumerate(wanted):
        groups.setdefault(frozenset(places.items()), []).append(number)
    compositions = [dict(key) for key in groups]

    def cost(order: Sequence[int]) -> CompositionCost:
        return composition_cost([compositions[group] for group in order], now)

    if len(compositions) <= MAX_EXACT:
        best: Sequence[int] = min(itertools.permutations(range(len(compositions))), key=cost)
    else:
        best = _improved_order(_greedy_order(compositions, now), cost)
    members = list(groups.values())
    return [number for group in best for number in members[group]]


def composition_cost(wanted: Sequence[Mapping[int, int]], now: Attachments) -> CompositionCost:
    """Return the cost of composing these in order, without the final restoring, which is the same for all orders."""
    at, moves, compositions = dict(now), 0, 0
    for places in wanted:
        moved = sum(at.get(device) != port for device, port in places.items())
        moves, compositions = moves + moved, compositions + bool(moved)
        at.update(places)
    return CompositionCost(moves, compositions)


def _greedy_order(compositions: Sequence[Mapping[int, int]], now: Attachments) -> list[int]:
    """Return a greedy order: a composition without moves comes next, else the one with the fewest moves.

    Ties go to the largest, so that compositions with a subset of its devices follow without moves.
    """
    left, at, brought, order = list(range(len(compositions))), dict(now), set[int](), list[int]()
    while left:

        def key(group: int) -> tuple[bool, int, int]:
            moving = {device for device, port in compositions[group].items() if at.get(device) != port}
            return bool(moving), len(moving & brought), -len(moving)  # noqa: B023 - called at once

        chosen = min(left, key=key)
        left.remove(chosen)
        order.append(chosen)
        at.update(compositions[chosen])
        brought |= set(compositions[chosen])
    return order


def _improved_order(order: list[int], cost_of: Callable[[Sequence[int]], CompositionCost]) -> list[int]:
    """Return an order in which moving any single composition does not lower the cost."""
    if len(order) > MAX_IMPROVED:
        return order
    best = cost_of(order)
    better = True
    while better:
        better = False
        for place in range(len(order)):
            rest = order[:place] + order[place + 1 :]
            for other in range(len(order)):
                tried = [*rest[:other], order[place], *rest[other:]]
                if (cost := cost_of(tried)) < best:
                    order, best, better = tried, cost, True
                    break
            if better:
                break
    return order
