"""The fleet at a glance: a tile for each chassis by its status, a reading or its tenants, worst first."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Final

from django.db.models import Case, F, When

from accounts.models import User
from core.language import _, gettext_noop
from core.text import natural_key
from fabric.inventory.models import Chassis, Device, Slot
from fabric.topology.problems import Status, StatusBoard
from fabric.topology.readings import ChassisReadings

MEASURES: Final = {
    "status": gettext_noop("Status"),
    "temperature": gettext_noop("Temperature"),
    "use": gettext_noop("Utilisation"),
    "traffic": gettext_noop("Traffic"),
    "power": gettext_noop("Power"),
    "tenant": gettext_noop("Tenant"),
}
TENANT_PATTERNS: Final = 6  # see fleet.css; further tenants have letters alone
MAX_TENANTS_LISTED: Final = 12
DENSE_FROM: Final = 40  # tiles
MAX_CELLS: Final = 64  # of a tile
STATES: Final = ("critical", "warning", "attached", "detached", "others", "empty")  # worst first


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A measure in five steps; a value that reaches a bound is in the step above it."""

    attribute: str  # of ChassisReadings
    about: str
    unit: str
    bounds: tuple[float, ...]
    size: float = 1.0  # of the unit
    decimals: int = 0

    def step(self, value: float) -> int:
        """Return the step of a value, 1 to 5."""
        return 1 + bisect_right(self.bounds, value / self.size)

    def words(self, value: float) -> str:
        """Return a value with its unit, at most three digits and those before the point: '0.31 GB/s', '131 GB/s'."""
        shown = value / self.size
        decimals = min(self.decimals, 0 if shown >= 100 else 1 if shown >= 10 else 2)
        return f"{shown:.{decimals}f} {self.unit}"

    @property
    def legend(self) -> list[tuple[int, str]]:
        """Each step in words: 'below 40 °C', '40 to 55 °C', 'from 85 °C'."""
        low, *middle, high = self.bounds[0], *zip(self.bounds, self.bounds[1:], strict=False), self.bounds[-1]
        words = [
            _("below {value:g} {unit}", value=low, unit=self.unit),
            *(_("{one:g} to {other:g} {unit}", one=one, other=other, unit=self.unit) for one, other in middle),
            _("from {value:g} {unit}", value=high, unit=self.unit),
        ]
        return list(enumerate(words, 1))


SCALES: Final = {
    "temperature": Scale(attribute="celsius", about=gettext_noop("hottest device"), unit="°C", bounds=(40, 55, 70, 85)),
    "use": Scale(attribute="utilisation", about=gettext_noop("mean utilisation"), unit="%", bounds=(20, 40, 60, 80)),
    "traffic": Scale(
        attribute="bytes_per_second", about=gettext_noop("traffic"), unit="GB/s", bounds=(0.1, 1, 10, 50), size=1e9,
        decimals=2,
    ),
    "power": Scale(attribute="watts", about=gettext_noop("power"), unit="W", bounds=(500, 1000, 2000, 4000)),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FleetTenant:
    """A tenant with devices in the fleet; its `letter` and its pattern (1 to 6, else 0) mark them."""

    name: str
    letter: str
    pattern: int


@dataclass(frozen=True, kw_only=True)
class FleetTile:
    """A chassis: `cells` has a tuple for each drawer, with the state of each slot; none where it has a `step`.

    A state is 'critical', 'warning', 'attached', 'detached', 'others' (of another tenant, or of nobody) or 'empty'; by
    tenant 't1' (its pattern), 'unassigned', 'others' or 'empty'.
    Of more than MAX_CELLS slots, a cell stands for the worst, or most, of several.
    `step` is that of its value `words`, 0 without a value.
    """

    id: int
    name: str
    status: Status | None
    cells: tuple[tuple[str, ...], ...] = ()
    step: int | None = None
    words: str = ""
    measured: str = ""  # the measure in words

    @property
    def state(self) -> str:
        """Its status for a screen reader, 'critical: missing'."""
        return f"{_(self.status.level.css)}: {self.status.words}" if self.status else _("no problem")

    @property
    def summary(self) -> str:
        """Status and measure: 'critical: missing. 9 attached, 4 detached'."""
        return f"{self.state}. {self.measured}"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The tiles by one measure; `legend` explains its steps, `tenants` the letters."""

    by: str
    tiles: tuple[FleetTile, ...]
    legend: tuple[tuple[int, str], ...] = ()
    tenants: tuple[FleetTenant, ...] = ()

    @property
    def measures(self) -> dict[str, str]:
        """The measures that can be chosen, with their labels."""
        return {name: _(label) for name, label in MEASURES.items()}

    @property
    def is_dense(self) -> bool:
        """Whether the tiles have to be small to fit on a screen."""
        return len(self.tiles) > DENSE_FROM

    @property
    def more_tenants(self) -> int:
        """How many tenants the legend leaves out."""
        return max(0, len(self.tenants) - MAX_TENANTS_LISTED)

    @property
    def listed_tenants(self) -> tuple[FleetTenant, ...]:
        """The tenants of the legend."""
        return self.tenants[:MAX_TENANTS_LISTED]


def fleet_of(
    person: User, board: StatusBoard, *, by: str = "status", readings: Mapping[int, ChassisReadings] | None = None
) -> Fleet:
    """Return the chassis that a person may see, worst first, then by name: 'falcon-2' before 'falcon-10'.

    `by` is one of MEASURES; those with a scale need the `readings` by chassis.
    """
    bare = [
        FleetTile(id=pk, name=name, status=board.of("chassis", pk))
        for pk, name in Chassis.objects.visible_to(person).values_list("pk", "name")
    ]
    bare.sort(key=lambda one: (-one.status.level if one.status else 0, natural_key(one.name.casefold())))
    if by in SCALES:
        scale, known = SCALES[by], readings or {}
        tiles = tuple(_measured_tile(one, scale, known.get(one.id)) for one in bare)
        return Fleet(by=by, tiles=tiles, legend=tuple(scale.legend))
    devices, slots = _devices(person), _slots(person)
    if by == "tenant":
        tenants = _tenants(one.tenant for one in devices.values() if one.tenant)
        tiles = tuple(_tenant_tile(one, slots[one.id], devices, tenants) for one in bare)
        return Fleet(by=by, tiles=tiles, tenants=tuple(tenants.values()))
    return Fleet(by=by, tiles=tuple(_status_tile(one, slots[one.id], devices, board) for one in bare))


@dataclass(frozen=True)
class _Placed:
    """A visible device in a slot."""

    pk: int
    is_attached: bool
    tenant: str


Places = Mapping[int, list[tuple[int, int | None]]]  # by drawer, 0 for none: slots in order, each with its device


def _devices(person: User) -> dict[int, _Placed]:
    visible = Device.objects.visible_to(person).exclude(slot=None)
    rows = visible.values_list("slot", "pk", "host_port", "tenant__name")
    return {slot: _Placed(pk, port is not None, tenant or "") for slot, pk, port, tenant in rows}


def _slots(person: User) -> Mapping[int, Places]:
    """Return the slots of each chassis with the devices in them, visible or not."""
    slots = Slot.objects.filter(chassis__in=Chassis.objects.visible_to(person).values("pk"), missing_since=None)
    found: dict[int, dict[int, list[tuple[int, int | None]]]] = defaultdict(lambda: defaultdict(list))
    rows = slots.order_by("chassis", "drawer__number", "number", "uri")
    # A missing device of nobody cannot be requested, and is shown to administrators alone.
    there = Case(When(device__tenant=None, device__missing_since__isnull=False, then=None), default=F("device"))
    for pk, chassis, drawer, device in rows.values_list("pk", "chassis", "drawer__number", there):
        found[chassis][drawer or 0].append((pk, device))
    return found


def _tenants(names: Iterable[str]) -> dict[str, FleetTenant]:
    """Return tenants by name: those with most devices have patterns."""
    counted = sorted(Counter(names).items(), key=lambda one: (-one[1], natural_key(one[0].casefold())))
    return {
        name: FleetTenant(name=name, letter=_letters(place), pattern=place + 1 if place < TENANT_PATTERNS else 0)
        for place, (name, _count) in enumerate(counted)
    }


def _letters(place: int) -> str:
    """Return 'A' for 0, 'Z' for 25, 'AA' for 26."""
    above, own = divmod(place, len(ascii_uppercase))
    return (_letters(above - 1) if above else "") + ascii_uppercase[own]


def _measured_tile(bare: FleetTile, scale: Scale, readings: ChassisReadings | None) -> FleetTile:
    value = getattr(readings, scale.attribute) if readings is not None else None
    if value is None:
        return replace(bare, step=0, words="–", measured=_("{measure}: no value", measure=_(scale.about)))
    words = scale.words(value)
    return replace(bare, step=scale.step(value), words=words, measured=f"{_(scale.about)} {words}")


def _status_tile(bare: FleetTile, places: Places, devices: Mapping[int, _Placed], board: StatusBoard) -> FleetTile:
    cells = tuple(tuple(_state(board, device, devices.get(slot)) for slot, device in row) for row in places.values())
    states = [state for drawer in cells for state in drawer]
    if len(states) > MAX_CELLS:
        cells = _summarised(cells, lambda some: min(some, key=STATES.index))
    wrong = sum(state in {"critical", "warning"} for state in states)
    counted = {"attached": states.count("attached"), "detached": states.count("detached")}
    measured = (
        _("{attached} attached, {detached} detached, {wrong} with problems", wrong=wrong, **counted)
        if wrong
        else _("{attached} attached, {detached} detached", **counted)
    )
    return replace(bare, cells=cells, measured=measured)


def _tenant_tile(
    bare: FleetTile, places: Places, devices: Mapping[int, _Placed], tenants: Mapping[str, FleetTenant]
) -> FleetTile:
    here = Counter(devices[slot].tenant for row in places.values() for slot, _ in row if slot in devices)
    counted = [(one, here[one.name]) for one in tenants.values() if here[one.name]]
    spoken = [f"{one.name} {count}" for one, count in counted] + [_("unassigned {count}", count=here[""])] * bool(
        here[""]
    )
    cells = tuple(
        tuple(_owner_state(tenants, device, devices.get(slot)) for slot, device in row) for row in places.values()
    )
    if sum(map(len, cells)) > MAX_CELLS:
        cells = _summarised(cells, lambda some: Counter(some).most_common(1)[0][0])
    words = " ".join(f"{one.letter}{count}" for one, count in counted)
    return replace(bare, cells=cells, words=words, measured=", ".join(spoken))


def _summarised(cells: Sequence[Sequence[str]], choose: Callable[[Sequence[str]], str]) -> tuple[tuple[str, ...], ...]:
    """Return at most MAX_CELLS cells each chosen from several slots: of one drawer, unless there are very many."""
    if len(cells) > MAX_CELLS:
        cells = [[state for drawer in cells for state in drawer]]
    width = max(1, MAX_CELLS // len(cells))
    rows = []
    for drawer in cells:
        size = max(1, math.ceil(len(drawer) / width))
        rows.append(tuple(choose(drawer[place : place + size]) for place in range(0, len(drawer), size)))
    return tuple(rows)


def _state(board: StatusBoard, device: int | None, seen: _Placed | None) -> str:
    if seen is None:
        return "empty" if device is None else "others"
    status = board.of("device", seen.pk)
    if status is not None:
        return status.level.css
    return "attached" if seen.is_attached else "detached"


def _owner_state(tenants: Mapping[str, FleetTenant], device: int | None, seen: _Placed | None) -> str:
    if seen is None:
        return "empty" if device is None else "others"
    return f"t{tenants[seen.tenant].pattern}" if seen.tenant else "unassigned"
