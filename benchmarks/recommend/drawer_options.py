"""The options of one drawer for a host: counts of devices by kind and host port, as the rules of its mode allow.

The rules are those of fabric.operations.rules and fabric.plans.rules: each option is planned, and one with a violation
is dropped. Equivalent devices of a drawer are counted, not listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.recommend.pool import DeviceClass, RecommendationPool
from fabric.bmc.chassis_profiles import ChassisProfile
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DeviceSnapshot, DrawerSnapshot, PortSnapshot, attach_violation
from fabric.plans.rules import DesiredState, StepKind, plan_steps

ClassCounts = tuple[tuple[DeviceClass, int], ...]  # kinds with their counts, in the order of their names


@dataclass(frozen=True, kw_only=True)
class DrawerOption:
    """One way to use a drawer: its devices at its host ports, by their indices in its lists.

    `held` are the counts at each used host port. `storage` has the indices of a drive and of its port. `detached`
    devices leave their host to make room, `mode` is the required mode of the drawer, `steps` are the kinds of the steps
    of a plan.
    """

    held: tuple[tuple[int, ClassCounts], ...] = ()
    devices: tuple[tuple[int, int], ...] = ()
    storage: tuple[int, int] | None = None
    detached: tuple[int, ...] = ()
    mode: DrawerMode | None = None
    steps: tuple[StepKind, ...] = ()

    @property
    def count(self) -> int:
        return len(self.devices)


@dataclass(frozen=True, kw_only=True)
class DrawerChoices:
    """A drawer with its options for a host; `key` is the same for equivalent drawers."""

    drawer: DrawerSnapshot
    options: tuple[DrawerOption, ...]
    key: object


@dataclass(frozen=True)
class _AnonymousDrawer:
    """A drawer without names and ids: devices and ports are indices in its lists."""

    mode: DrawerMode
    ports: tuple[tuple[str, int, int | None, bool], ...]  # label, number, host (0: the requested one), may be used
    devices: tuple[
        tuple[int, int | None, DeviceClass | None, bool, bool], ...
    ]  # slot, port, kind if free, stays, is storage
    settings: tuple[tuple[int, str, int | None], ...]
    may_change_mode: bool
    profile: ChassisProfile


def drawer_choices(
    pool: RecommendationPool,
    host: int,
    *,
    keep: Collection[int],
    models: Collection[str] | None,
    same_mode: bool,
    storage: bool,
    gpus: bool = True,
) -> list[DrawerChoices]:
    """Return the options of each drawer for a host; drawers without a host port to it are left out."""
    found: list[DrawerChoices] = []
    known: dict[_AnonymousDrawer, tuple[DrawerOption, ...]] = {}
    for drawer in pool.drawers:
        bare, seen = _anonymised(pool, drawer, host, keep=keep, same_mode=same_mode)
        if not any(port[3] for port in bare.ports):
            continue
        if bare not in known:
            known[bare] = tuple(_enumerate_options(bare, seen, models=models, storage=storage, gpus=gpus))
        found.append(DrawerChoices(drawer=drawer, options=known[bare], key=bare))
    return found


def _anonymised(
    pool: RecommendationPool, drawer: DrawerSnapshot, host: int, *, keep: Collection[int], same_mode: bool
) -> tuple[_AnonymousDrawer, DrawerSnapshot]:
    """Return a drawer without names, and its snapshot for planning, with indices instead of ids."""
    others: dict[int, int] = {}
    ports = []
    place_of_port: dict[int, int] = {}
    for place, port in enumerate(drawer.ports):
        place_of_port[port.id] = place
        leads = None if port.host is None else 0 if port.host == host else others.setdefault(port.host, len(others) + 1)
        ports.append((port.label, port.number, leads, leads == 0 and port.id in pool.uplinks))
    devices = []
    for device in drawer.devices:
        free = pool.devices.get(device.id)
        at = None if device.attached is None else place_of_port.get(device.attached)
        stays = device.id in keep and device.attached is not None
        kind = None if free is None else free.kind
        devices.append((device.slot, at, kind, stays, free is not None and free.is_storage))
    behind = [*(port.port for port in drawer.ports), *(device.port for device in drawer.devices)]
    settings = [
        (place, drawer.settings[port].port_type, drawer.settings[port].configured_width)
        for place, port in enumerate(behind)
        if port is not None and port in drawer.settings
    ]
    bare = _AnonymousDrawer(
        mode=drawer.mode,
        ports=tuple(ports),
        devices=tuple(devices),
        settings=tuple(settings),
        may_change_mode=drawer.id is not None and drawer.id in pool.modes and not same_mode,
        profile=drawer.profile,
    )
    count = len(drawer.ports)
    at_place = dict(enumerate(behind))
    seen = DrawerSnapshot(
        chassis=0,
        id=None if drawer.id is None else 0,
        name=drawer.name,
        mode=drawer.mode,
        profile=drawer.profile,
        ports=tuple(
            PortSnapshot(id=place, label=port[0], number=port[1], host=port[2], port=place)
            for place, port in enumerate(ports)
        ),
        devices=tuple(
            DeviceSnapshot(id=place, name=str(place), slot=one[0], attached=one[1], port=count + place)
            for place, one in enumerate(devices)
        ),
        settings={
            place: drawer.settings[port]
            for place, port in at_place.items()
            if port is not None and port in drawer.settings
        },
    )
    return bare, seen


def _enumerate_options(
    bare: _AnonymousDrawer, seen: DrawerSnapshot, *, models: Collection[str] | None, storage: bool, gpus: bool
) -> Iterator[DrawerOption]:
    """Yield each option once, with the fewest changes: first in the drawer's current mode, then in others."""
    usable = [place for place, port in enumerate(bare.ports) if port[3]]
    kinds: dict[DeviceClass, list[int]] = {}
    drives: dict[DeviceClass, list[int]] = {}
    for place, (_, _, kind, _, is_storage) in enumerate(bare.devices):
        if kind is None:
            continue
        if is_storage:
            drives.setdefault(kind, []).append(place)
        elif gpus and (models is None or kind.model in models):
            kinds.setdefault(kind, []).append(place)
    ordered = sorted(kinds, key=_class_sort_key)
    ways = [list(_splits(len(kinds[kind]), len(usable))) for kind in ordered]
    data: list[tuple[DeviceClass, int] | None] = [None]
    if storage:
        data += [(kind, port) for kind in sorted(drives, key=_class_sort_key) for port in usable]
    reach = _reachability(bare, seen)
    for drive in data:
        for counts in product(*ways):
            demand = {
                (kind, port): counts[nth][position]
                for nth, kind in enumerate(ordered)
                for position, port in enumerate(usable)
                if counts[nth][position]
            }
            wanted = None if drive is None else (*drive, drives[drive[0]])
            option = _cheapest_option(bare, seen, reach, demand=demand, kinds=kinds, drive=wanted)
            if option is not None:
                yield option


def _class_sort_key(kind: DeviceClass) -> tuple[str, float, int, int]:
    return (kind.model, kind.memory_bytes, kind.link.generation, kind.link.lanes)


def _splits(most: int, ports: int) -> Iterator[tuple[int, ...]]:
    """Yield all distributions of at most `most` devices to a number of ports."""
    if ports == 0:
        yield ()
        return
    for first in range(most + 1):
        for rest in _splits(most - first, ports - 1):
            yield (first, *rest)


Reachability = Mapping[DrawerMode, Mapping[tuple[int, int], bool]]


def _reachability(bare: _AnonymousDrawer, seen: DrawerSnapshot) -> Reachability:
    """Return the devices that each port can reach, in each possible mode of the drawer."""
    others = (mode for mode in bare.profile.mode_names if mode is not bare.mode and bare.may_change_mode)
    modes = [bare.mode, *others]
    found = {}
    for mode in modes:
        state = replace(seen, mode=mode).state(is_empty=True)
        found[mode] = {
            # An existing attachment that the BMC accepts stays, whatever the rules.
            (device, port): seen.id is None
            or (mode is bare.mode and bare.devices[device][1] == port)
            or not attach_violation(state, slot=bare.devices[device][0], label=bare.ports[port][0], others=())
            for device in range(len(bare.devices))
            for port, about in enumerate(bare.ports)
            if about[3]
        }
    return found


def _cheapest_option(
    bare: _AnonymousDrawer,
    seen: DrawerSnapshot,
    reach: Reachability,
    *,
    demand: Mapping[tuple[DeviceClass, int], int],
    kinds: Mapping[DeviceClass, list[int]],
    drive: tuple[DeviceClass, int, list[int]] | None,
) -> DrawerOption | None:
    """Return the option with the least changes: changes of mode count first, then detached devices."""
    if not demand and drive is None:
        return DrawerOption()
    for mode, reaches in reach.items():
        chosen = _assigned_devices(bare, reaches, demand, kinds, drive)
        if chosen is None:
            continue
        devices, storage = chosen
        used = {**dict(devices), **({storage[0]: storage[1]} if storage is not None else {})}
        idle = tuple(
            place
            for place, (_, at, kind, stays, _) in enumerate(bare.devices)
            if kind is not None and at is not None and not stays and place not in used
        )
        for detached in ((), idle) if idle else ((),):
            wanted = DesiredState(
                attachments={**dict.fromkeys(detached), **used}, modes={} if mode is bare.mode else {0: mode}
            )
            planned = plan_steps([seen], wanted)
            if not planned.objections:
                return DrawerOption(
                    held=_counts_by_port(demand),
                    devices=tuple(devices),
                    storage=storage,
                    detached=detached,
                    mode=None if mode is bare.mode else mode,
                    steps=tuple(step.kind for step in planned.steps),
                )
    return None


def _assigned_devices(
    bare: _AnonymousDrawer,
    reaches: Mapping[tuple[int, int], bool],
    demand: Mapping[tuple[DeviceClass, int], int],
    kinds: Mapping[DeviceClass, list[int]],
    drive: tuple[DeviceClass, int, list[int]] | None,
) -> tuple[list[tuple[int, int]], tuple[int, int] | None] | None:
    """Return a device for each requested place, preferring attached ones; None if there are too few."""
    taken: set[int] = set()
    found: list[tuple[int, int]] = []
    wanted = {port for _, port in demand}

    def rank(place: int, port: int) -> tuple[int, int]:
        at = bare.devices[place][1]
        return (0 if at == port else 1 if at is None else 3 if at in wanted else 2, place)

    for (kind, port), count in demand.items():
        able = [place for place in kinds[kind] if place not in taken and _may_attach(bare, reaches, place, port)]
        if len(able) < count:
            return None
        for place in sorted(able, key=lambda one: rank(one, port))[:count]:
            taken.add(place)
            found.append((place, port))
    if drive is None:
        return found, None
    _, port, places = drive
    able = [place for place in places if _may_attach(bare, reaches, place, port)]
    return (found, (min(able, key=lambda one: rank(one, port)), port)) if able else None


def _may_attach(bare: _AnonymousDrawer, reaches: Mapping[tuple[int, int], bool], place: int, port: int) -> bool:
    _, at, _, stays, _ = bare.devices[place]
    return reaches[place, port] and (not stays or at == port)


def _counts_by_port(demand: Mapping[tuple[DeviceClass, int], int]) -> tuple[tuple[int, ClassCounts], ...]:
    ports: dict[int, list[tuple[DeviceClass, int]]] = {}
    for (kind, port), count in demand.items():
        ports.setdefault(port, []).append((kind, count))
    return tuple((port, tuple(held)) for port, held in sorted(ports.items()))
