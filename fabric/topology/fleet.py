"""The fleet at a glance: a tile for each chassis, with a cell for each slot, worst first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Case, F, When

from accounts.models import User
from core.text import natural_key
from fabric.inventory.models import Chassis, Device, Slot
from fabric.topology.problems import Status, StatusBoard


@dataclass(frozen=True, kw_only=True)
class FleetTile:
    """A chassis: `cells` has a tuple for each drawer, with the state of each slot.

    A state is 'critical', 'warning', 'attached', 'detached', 'others' (of another tenant, or of nobody) or 'empty'.
    """

    id: int
    name: str
    status: Status | None
    cells: tuple[tuple[str, ...], ...]

    @property
    def summary(self) -> str:
        """What a screen reader says of it: '2 problems: missing. 9 devices attached, 4 detached.'."""
        states = [state for drawer in self.cells for state in drawer]
        wrong = sum(state in {"critical", "warning"} for state in states)
        problems = f"{self.status.level.css}: {self.status.words}. " if self.status else "no problem. "
        unwell = f", {wrong} with problems" if wrong else ""
        return f"{problems}{states.count('attached')} attached, {states.count('detached')} detached{unwell}"


def fleet_tiles(person: User, board: StatusBoard) -> tuple[FleetTile, ...]:
    """Return the chassis that a person may see, worst first, then by name: 'falcon-2' before 'falcon-10'."""
    cells = _cells(person, board)
    tiles = [
        FleetTile(id=pk, name=name, status=board.of("chassis", pk), cells=tuple(map(tuple, cells[pk].values())))
        for pk, name in Chassis.objects.visible_to(person).values_list("pk", "name")
    ]
    return tuple(
        sorted(tiles, key=lambda one: (-one.status.level if one.status else 0, natural_key(one.name.casefold())))
    )


def _cells(person: User, board: StatusBoard) -> Mapping[int, Mapping[int, list[str]]]:
    """Return the states of the slots of each chassis and drawer (by number, 0 for none), in order."""
    visible = Device.objects.visible_to(person).exclude(slot=None)
    seen = {slot: (pk, port) for slot, pk, port in visible.values_list("slot", "pk", "host_port")}
    slots = Slot.objects.filter(chassis__in=Chassis.objects.visible_to(person).values("pk"), missing_since=None)
    found: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    rows = slots.order_by("chassis", "drawer__number", "number", "uri")
    # A missing device of nobody cannot be requested, and is shown to administrators alone.
    there = Case(When(device__tenant=None, device__missing_since__isnull=False, then=None), default=F("device"))
    for pk, chassis, drawer, device in rows.values_list("pk", "chassis", "drawer__number", there):
        found[chassis][drawer or 0].append(_state(board, device, seen.get(pk)))
    return found


def _state(board: StatusBoard, device: int | None, seen: tuple[int, int | None] | None) -> str:
    if seen is None:
        return "empty" if device is None else "others"
    status = board.of("device", seen[0])
    if status is not None:
        return status.level.css
    return "attached" if seen[1] is not None else "detached"
