"""All layouts that a pool can be composed to, without equivalent ones.

Among equivalent layouts, the one with the fewest changes is kept. Above the limit, the layouts with the fewest places,
the most even spreads and the fewest changes are kept for each mixture of devices; the search is then not exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

from benchmarks.model.topology import PcieLink
from benchmarks.recommend.drawer_options import DrawerChoices, DrawerOption, drawer_choices
from benchmarks.recommend.layouts import Layout, SwitchPlace
from benchmarks.recommend.pool import DeviceClass, HostPool, RecommendationPool
from benchmarks.recommend.request import Constraints

MAX_LAYOUTS: Final = 1000
# The limit of states times options that are combined: for all hosts and drawers, and at least for one drawer.
MAX_JOINED: Final = 50_000
MIN_JOINED: Final = 2_000
MAX_A_MIXTURE: Final = 4
PlaceNumbers = tuple[int, ...]  # of places, sorted, with repetitions
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class LayoutSearch:
    """All distinct layouts, and whether the search was complete."""

    layouts: tuple[Layout, ...]
    exact: bool = True


def search_layouts(pool: RecommendationPool, limits: Constraints) -> LayoutSearch:
    """Return the layouts within the limits on places; limits on time and energy are not checked."""
    places = _PlaceIndex()
    searches: dict[object, _HostSearch] = {}
    for host in pool.hosts.values():
        if limits.hosts is None or host.id in limits.hosts:
            search = _HostSearch(pool, host, limits, places)
            searches.setdefault(search.key, search)  # one of several equivalent hosts is enough
    joins = sum(len(search.parts) for search in searches.values())
    found: dict[tuple[object, int, PlaceNumbers], Layout] = {}
    for search in searches.values():
        # The features of a host that matter to a run: its GPUs only if the run uses some of them.
        own = places.number_of(replace(search.host, id=0, name="", local_gpus=0))
        plain = replace(search.host, id=0, name="", local_gpus=0, local=DeviceClass(model=""), local_fabric="pcie")
        rest = places.number_of(plain)
        for numbers, layout in search.layouts(max(MIN_JOINED, MAX_JOINED // max(1, joins))):
            key = (own if layout.local else rest, layout.local, numbers)
            if key not in found or layout.changes < found[key].changes:
                found[key] = layout
    exact = all(search.exact for search in searches.values())
    if len(found) <= MAX_LAYOUTS:
        return LayoutSearch(layouts=tuple(found.values()), exact=exact)
    keys = places.thinned(found, [(one[1], one[0]) for one in found], [one[2] for one in found],
                          [one.changes for one in found.values()])  # fmt: skip
    counts = [found[key].count for key in keys]
    return LayoutSearch(
        layouts=tuple(found[key] for key in _strided(_each_count_first(keys, counts), MAX_LAYOUTS)), exact=False
    )


class _PlaceIndex:
    """A numbering of places, shared by all searches."""

    def __init__(self) -> None:
        self.every: list[SwitchPlace] = []
        self.numbers: dict[object, int] = {}
        self.totals: list[Counter[DeviceClass]] = []

    def number_of(self, thing: object) -> int:
        """Return the number of a place or another key, for fast comparison."""
        if thing not in self.numbers:
            self.numbers[thing] = len(self.every)
            place = thing if isinstance(thing, SwitchPlace) else SwitchPlace(uplink=PcieLink(), held=())
            self.every.append(place)
            self.totals.append(Counter(dict(place.held)))
        return self.numbers[thing]

    def of(self, numbers: PlaceNumbers) -> tuple[SwitchPlace, ...]:
        return tuple(self.every[number] for number in numbers)

    def thinned(
        self,
        items: Sequence[Item] | Mapping[Item, object],
        groups: Sequence[object],
        numbers: Sequence[PlaceNumbers],
        changes: Sequence[tuple[int, int]],
    ) -> list[Item]:
        """Return of each group and mixture of devices the undominated spreads, and the one with the fewest changes.

        Those with few kinds of devices come first.
        """
        mixtures: dict[object, list[int]] = {}
        kinds = []
        spread = []
        for position, (group, own) in enumerate(zip(groups, numbers, strict=True)):
            total: Counter[DeviceClass] = Counter()
            for number in own:
                total.update(self.totals[number])
            kinds.append(len(total))
            mixtures.setdefault((group, frozenset(total.items())), []).append(position)
            places = self.of(own)
            used = sum(place.count > 0 for place in places)
            spread.append((used, max((place.load for place in places), default=0.0)))
        every = list(items)
        kept: dict[int, None] = {}
        for positions in mixtures.values():
            kept |= dict.fromkeys(_pareto_spreads(positions, spread))
            kept[min(positions, key=lambda one: (changes[one], spread[one]))] = None
        return [every[position] for position in sorted(kept, key=lambda one: kinds[one])]


@dataclass(slots=True)
class _PartialLayout:
    choices: tuple[tuple[int, DrawerOption], ...] = ()
    changes: tuple[int, int] = (0, 0)
    count: int = 0
    has_drive: bool = False


@dataclass
class _HostSearch:
    pool: RecommendationPool
    host: HostPool
    limits: Constraints
    places: _PlaceIndex
    exact: bool = field(default=True, init=False)

    @cached_property
    def parts(self) -> list[DrawerChoices]:
        """The options of each drawer, with equivalent drawers adjacent."""
        limits = self.limits
        found = drawer_choices(
            self.pool,
            self.host.id,
            keep=limits.keep,
            models=limits.models,
            same_mode=limits.same_mode,
            storage=limits.storage != "local",
            gpus=limits.gpus != "local",
        )
        first: dict[object, int] = {}
        for part in found:
            first.setdefault(part.key, len(first))
        return sorted(found, key=lambda one: first[one.key])

    @property
    def key(self) -> object:
        """Return a key that is equal for equivalent hosts."""
        uplinks = [tuple(self.pool.uplinks.get(port.id) for port in part.drawer.ports) for part in self.parts]
        alike = frozenset(Counter((part.key, links) for part, links in zip(self.parts, uplinks, strict=True)).items())
        return (replace(self.host, id=0, name=""), alike)

    def layouts(self, most_joined: int) -> Iterator[tuple[PlaceNumbers, Layout]]:
        """Yield them with their places' numbers; over `most_joined` states times options the search is not exact."""
        limits, host = self.limits, self.host
        most = limits.most_devices if limits.most_devices is not None else 10**9
        least = max(1, limits.least_devices or 1)
        own = host.local_gpus if limits.gpus != "chassis" else 0
        if limits.models is not None and host.local.model not in limits.models:
            own = 0
        states = self._states(most, most_joined)
        if len(states) * (own + 1) > 4 * MAX_LAYOUTS:
            self.exact = False
            states = self._thinned(states, 4 * MAX_LAYOUTS // (own + 1))
        for numbers, state in states.items():
            if limits.storage == "chassis" and not state.has_drive:
                continue
            places = self.places.of(numbers)
            for local in range(max(0, least - state.count), min(own, most - state.count) + 1):
                layout = Layout(host=host, local=local, places=places, choices=state.choices, changes=state.changes)
                if state.count + local and self._is_unmixed(layout):
                    yield numbers, layout

    def _states(self, most: int, most_joined: int) -> dict[PlaceNumbers, _PartialLayout]:
        """Return the combinations of the drawers, by the numbers of the used places."""
        positions = {id(drawer): position for position, drawer in enumerate(self.pool.drawers)}
        states: dict[PlaceNumbers, _PartialLayout] = {(): _PartialLayout()}
        for part in self.parts:
            options = self._options(part, positions[id(part.drawer)])
            if len(states) * len(options) > most_joined:
                self.exact = False
                options = self._thinned(options, len(options))
                states = self._thinned(states, max(50, most_joined // len(options)))
            states = self._joined(states, options, most)
        return states

    def _options(self, part: DrawerChoices, position: int) -> dict[PlaceNumbers, _PartialLayout]:
        found: dict[PlaceNumbers, _PartialLayout] = {}
        for option in part.options:
            numbers = self._numbers(part, option)
            state = _PartialLayout(
                choices=((position, option),) if numbers else (),
                changes=(int(option.mode is not None), len(option.steps)),
                count=option.count,
                has_drive=option.storage is not None,
            )
            if numbers not in found or state.changes < found[numbers].changes:
                found[numbers] = state
        return found

    def _thinned(self, states: Mapping[PlaceNumbers, _PartialLayout], most: int) -> dict[PlaceNumbers, _PartialLayout]:
        every = states.values()
        kept = self.places.thinned(
            states, [one.has_drive for one in every], list(states), [one.changes for one in every]
        )
        ordered = _each_count_first(kept, [states[one].count for one in kept])
        return {one: states[one] for one in _strided(ordered, most)}

    def _joined(
        self, states: Mapping[PlaceNumbers, _PartialLayout], options: Mapping[PlaceNumbers, _PartialLayout], most: int
    ) -> dict[PlaceNumbers, _PartialLayout]:
        joined: dict[PlaceNumbers, _PartialLayout] = {}
        one_place, every = self.limits.one_place, self.places.every
        for key, state in states.items():
            for numbers, option in options.items():
                count = state.count + option.count
                if count > most or (option.has_drive and state.has_drive):
                    continue
                if one_place and sum(every[one].count > 0 for one in (*key, *numbers)) > 1:
                    continue
                together = tuple(sorted(key + numbers))
                changes = (state.changes[0] + option.changes[0], state.changes[1] + option.changes[1])
                known = joined.get(together)
                if known is None or changes < known.changes:
                    has_drive = state.has_drive or option.has_drive
                    joined[together] = _PartialLayout(state.choices + option.choices, changes, count, has_drive)
        return joined

    def _numbers(self, part: DrawerChoices, option: DrawerOption) -> PlaceNumbers:
        """Return the numbers of the places of an option."""
        held = dict(option.held)
        drive = option.storage
        found = []
        for port in sorted({*held, *([drive[1]] if drive is not None else [])}):
            kind = None
            if drive is not None and drive[1] == port:
                kind = self.pool.devices[part.drawer.devices[drive[0]].id].kind
            uplink = self.pool.uplinks[part.drawer.ports[port].id]
            found.append(self.places.number_of(SwitchPlace(uplink=uplink, held=held.get(port, ()), drive=kind)))
        return tuple(sorted(found))

    def _is_unmixed(self, layout: Layout) -> bool:
        limits = self.limits
        if limits.one_place and layout.local and any(place.count for place in layout.places):
            return False
        return not limits.one_model or len({kind.model for kind in layout.kinds}) == 1


def _pareto_spreads(positions: list[int], spread: Sequence[tuple[int, float]]) -> list[int]:
    """Return the undominated spreads: no other uses fewer places with as little load on each."""
    front: list[int] = []
    least = float("inf")
    for position in sorted(positions, key=lambda one: spread[one]):
        if spread[position][1] < least:
            least = spread[position][1]
            front.append(position)
    return front if len(front) <= MAX_A_MIXTURE else [front[0], *_strided(front[1:-1], MAX_A_MIXTURE - 2), front[-1]]


def _each_count_first(items: list[Item], counts: Sequence[int]) -> list[Item]:
    """Return the items with the first of each number of devices before all others."""
    first: dict[int, int] = {}
    for position, count in enumerate(counts):
        first.setdefault(count, position)
    heads = set(first.values())
    return [items[one] for one in first.values()] + [
        item for position, item in enumerate(items) if position not in heads
    ]


def _strided(items: list[Item], most: int) -> list[Item]:
    """Return at most a number of items: the first half of it, and an even sample of the others."""
    if len(items) <= most:
        return items
    head = most // 2
    rest = items[head:]
    wanted = most - head
    return items[:head] + [rest[position * len(rest) // wanted] for position in range(wanted)]
