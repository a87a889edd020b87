"""The front of a chassis as a picture: drawers as they stand in the rack, slots as upright modules, in SVG units.

A BMC reports numbers, not places: drawers are in the order of theirs, slots too, and nothing has its real size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.language import _
from fabric.operations.rules import MODE_VALUE_LABELS
from fabric.topology.layout import (
    NO_DRAFT_MARKS,
    NO_STATUS,
    DraftMarks,
    HostPortBox,
    Screen,
    SlotBox,
    host_port_box,
    host_ports_of,
    planned_locations,
    slot_box,
)
from fabric.topology.presentation import ChassisView, DrawerView
from fabric.topology.problems import ProblemLevel, Status, StatusBoard

# The width of the picture and of each rack ear, how many modules are in a row, and how many letters fit on one.
SHAPES = {Screen.WIDE: (1120, 34, 8, 16), Screen.MEDIUM: (720, 24, 8, 10), Screen.NARROW: (340, 4, 4, 11)}
MODULE_HEIGHT, GAP = 128, 6
NAME_HEIGHT, PORT_HEIGHT, FAN_HEIGHT = 34, 30, 40
PORT_WIDTH, FAN_WIDTH = 148, 104  # at least
PADDING = 8  # between the frame of a drawer and what is in it
LEVELS = {"Warning": ProblemLevel.WARNING, "Critical": ProblemLevel.CRITICAL}


@dataclass(frozen=True)
class FrontDrawer:
    """A drawer: its frame, its modules and its host ports."""

    drawer: DrawerView
    mode: str
    y: int
    height: int
    modules: tuple[SlotBox, ...]
    heads: tuple[HostPortBox, ...]
    status: Status | None

    @property
    def label(self) -> str:
        """What a screen reader says of it."""
        return f"{self.drawer.name}, {self.mode}"


@dataclass(frozen=True)
class FanBox:
    """A fan; `level` where the BMC reports it as unwell."""

    name: str
    x: int
    y: int
    level: ProblemLevel | None


@dataclass(frozen=True)
class FrontPicture:
    """The front of a chassis; the same view always gives the same picture."""

    screen: Screen
    height: int
    drawers: tuple[FrontDrawer, ...]
    fans: tuple[FanBox, ...]

    @property
    def width(self) -> int:
        """The width of all."""
        return SHAPES[self.screen][0]

    @property
    def ear(self) -> int:
        """The width of each ear, by which it is held in the rack."""
        return SHAPES[self.screen][1]

    @property
    def right_ear(self) -> int:
        """The x of the right ear."""
        return self.width - self.ear

    @property
    def led(self) -> int:
        """The x of the location LED, in the left ear; 0 where that is too narrow."""
        return max(0, (self.ear - 14) // 2)

    @property
    def frame_width(self) -> int:
        """The width of a drawer, between the ears."""
        return self.width - 2 * self.ear

    @property
    def module_width(self) -> int:
        """The width of a module."""
        return self.across // SHAPES[self.screen][2] - GAP

    @property
    def across(self) -> int:
        """The width of a row of boxes within a drawer, with a gap after each."""
        return self.frame_width - 2 * PADDING + GAP

    @property
    def port_width(self) -> int:
        """The width of a host port."""
        return self.across // (self.across // (PORT_WIDTH + GAP)) - GAP

    @property
    def fan_width(self) -> int:
        """The width of a fan."""
        return self.across // (self.across // (FAN_WIDTH + GAP)) - GAP

    @property
    def half_port(self) -> int:
        """Half of the width of a host port."""
        return self.port_width // 2

    @property
    def half_fan(self) -> int:
        """Half of the width of a fan."""
        return self.fan_width // 2

    @property
    def letters(self) -> int:
        """How many letters fit on a module."""
        return SHAPES[self.screen][3]


def layout_front(
    chassis: ChassisView,
    fans: Iterable[Mapping[str, Any]] = (),
    marks: DraftMarks = NO_DRAFT_MARKS,
    board: StatusBoard = NO_STATUS,
    screen: Screen = Screen.WIDE,
) -> FrontPicture:
    """Return the positions of everything on the front; `fans` are those of the newest walk."""
    empty = FrontPicture(screen, 0, (), ())
    left = empty.ear + PADDING
    planned = planned_locations(chassis, marks)
    drawers: list[FrontDrawer] = []
    y = 0
    for drawer in chassis.drawers:
        place = _Rows(left, y + NAME_HEIGHT, empty.across, empty.module_width, MODULE_HEIGHT)
        modules = [
            slot_box(drawer, slot, place.corner(index), planned, board) for index, slot in enumerate(drawer.slots)
        ]
        ports = host_ports_of(chassis, drawer)
        place = _Rows(left, place.bottom(len(modules)), empty.across, empty.port_width, PORT_HEIGHT)
        heads = [host_port_box(port, place.corner(index), marks, board) for index, port in enumerate(ports)]
        height = place.bottom(len(heads)) - GAP + PADDING - y
        mode = _(MODE_VALUE_LABELS.get(drawer.mode, drawer.mode))
        status = board.of("drawer", drawer.id)
        drawers.append(FrontDrawer(drawer, mode, y, height, tuple(modules), tuple(heads), status))
        y += height + PADDING
    place = _Rows(left, y, empty.across, empty.fan_width, FAN_HEIGHT)
    boxes = tuple(
        FanBox(str(fan.get("name", "")), *place.corner(index), LEVELS.get(fan.get("health", "")))
        for index, fan in enumerate(fans)
    )
    return FrontPicture(screen, max(place.bottom(len(boxes)), 40), tuple(drawers), boxes)


@dataclass(frozen=True)
class _Rows:
    """Equal boxes beside one another, in rows that are `across` wide."""

    x: int
    y: int
    across: int
    width: int
    height: int

    @property
    def columns(self) -> int:
        return self.across // (self.width + GAP)

    def corner(self, index: int) -> tuple[int, int]:
        row, column = divmod(index, self.columns)
        return self.x + column * (self.width + GAP), self.y + row * (self.height + GAP)

    def bottom(self, count: int) -> int:
        """Return the top of what is below as many of them."""
        return self.y + -(-count // self.columns) * (self.height + GAP)
