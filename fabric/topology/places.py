"""The positions of a drawer's parts in the topology, in SVG units, from the corner of its drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

SLOT_WIDTH, SLOT_HEIGHT, GAP = 124, 100, 12
HEAD_WIDTH, HEAD_HEIGHT = 160, 64
SWITCH_WIDTH, SWITCH_HEIGHT = 250, 34
MARGIN = 18
COLUMNS = 8
MARK_SIZE = 28  # in the smallest scale still 24 px
MARK_GAP = 6  # between a mark on a link and the box at the link's end
BEHIND_A_BOX = 8  # how far a link that ends at the side of a box goes on behind it

Point = tuple[float, float]


@dataclass(frozen=True)
class WidePlaces:
    """Host ports, switch chips and slots below one another, each centred; eight slots a row."""

    heads: int
    chips: int
    slots: int

    width: ClassVar[int] = 1120
    mode_at: ClassVar[tuple[int, int]] = (MARGIN, 70)  # where a draft's mode is named
    name_width: ClassVar[int] = 180  # reserved for the drawer's name and mode
    head_y: ClassVar[int] = 14
    bare_y: ClassVar[int] = 66  # of slots without a host port or switch above

    @property
    def chip_y(self) -> int:
        """The top of the switch chips."""
        return 140

    @property
    def chip_width(self) -> int:
        """The width of each switch chip."""
        return min(SWITCH_WIDTH, self.width // max(1, self.chips) - GAP)

    @property
    def slot_y(self) -> int:
        """The top of the first slots: without anything above, right below the name."""
        return self.chip_y + SWITCH_HEIGHT + 66 if self.heads or self.chips else self.bare_y

    @property
    def rows(self) -> int:
        """How many rows of slots there are."""
        return -(-self.slots // COLUMNS)

    @property
    def height(self) -> int:
        """The height of all."""
        slots = self.slot_y + self.rows * (SLOT_HEIGHT + GAP) - GAP
        return slots if self.slots else self.chip_y + SWITCH_HEIGHT

    def head(self, index: int) -> tuple[int, int]:
        """Return the corner of a host port: centred above the chips, unless that would cover the drawer's name."""
        room = self.width - self.name_width
        spread = min(max((room - self.name_width) // self.heads, HEAD_WIDTH + GAP), room // self.heads)
        left = max(self.name_width, (self.width - self.heads * spread) // 2)
        return left + index * spread + spread // 2 - HEAD_WIDTH // 2, self.head_y

    def head_link(self, index: int) -> tuple[Point, Point]:
        """Return the ends of a host port's link, at the port and at a chip."""
        x, y = self.head(index)
        return (x + HEAD_WIDTH // 2, y + HEAD_HEIGHT), (self._chip_x(index, self.heads), self.chip_y)

    def chip(self, index: int) -> tuple[int, int]:
        """Return the corner of a switch chip."""
        spread = self.width // self.chips
        return index * spread + spread // 2 - self.chip_width // 2, self.chip_y

    def slot(self, index: int) -> tuple[int, int]:
        """Return the corner of a slot."""
        row, column = divmod(index, COLUMNS)
        return column * (SLOT_WIDTH + GAP) + MARGIN, self.slot_y + row * (SLOT_HEIGHT + GAP)

    def slot_link(self, index: int) -> tuple[Point, Point]:
        """Return the ends of a slot's link, at a chip and at the slot."""
        x, y = self.slot(index)
        start = self._chip_x(index % COLUMNS, min(COLUMNS, self.slots))
        return (start, self.chip_y + SWITCH_HEIGHT), (x + SLOT_WIDTH // 2, y)

    def slot_mark(self, index: int) -> tuple[int, int]:
        """Return where a mark on a slot's link has its middle."""
        start, end = self.slot_link(index)
        # A link to a lower row runs behind boxes: its end has room for a mark.
        return mark_on(end, start) if index < COLUMNS else (round(end[0]), round(end[1]))

    def _chip_x(self, index: int, count: int) -> float:
        """Return the x of the link of the index-th of `count` neighbours on the chips, so that no links cross."""
        if not self.chips:
            return self.width / 2
        chip = min(self.chips - 1, index * self.chips // count)
        share = -(-count // self.chips)
        inset = 16
        step = (self.chip_width - 2 * inset) / share
        return self.chip(chip)[0] + inset + step * (index % share + 0.5)


class NarrowPlaces(WidePlaces):
    """Two host ports a row, and two columns of slots; their links run down between the columns.

    Slots go down the left column first: a column is what one of two hosts reaches in the standard mode.
    """

    width = 340
    mode_at = (164, 50)
    head_y = 64
    bare_y = 64
    edge: ClassVar[int] = 4

    @property
    def chip_y(self) -> int:
        """The top of the switch chips, below all rows of host ports."""
        rows = -(-self.heads // 2)
        return self.head_y + (rows * (HEAD_HEIGHT + GAP) - GAP + 44 if rows else 0)

    @property
    def rows(self) -> int:
        """How many rows of slots there are."""
        return -(-self.slots // 2)

    def head(self, index: int) -> tuple[int, int]:
        """Return the corner of a host port; the last of an odd number is in the middle."""
        row, column = divmod(index, 2)
        y = self.head_y + row * (HEAD_HEIGHT + GAP)
        alone = index == self.heads - 1 and column == 0
        right = self.width - self.edge - HEAD_WIDTH
        return (self.width - HEAD_WIDTH) // 2 if alone else right if column else self.edge, y

    def head_link(self, index: int) -> tuple[Point, Point]:
        """Return the ends of a host port's link: straight down, those of each row beside those of the row before."""
        x, y = self.head(index)
        down = x + HEAD_WIDTH // 2 + index // 2 * 24
        return (down, y + HEAD_HEIGHT), (down, self.chip_y)

    def slot(self, index: int) -> tuple[int, int]:
        """Return the corner of a slot."""
        column, row = divmod(index, self.rows)
        x = self.width - self.edge - SLOT_WIDTH if column else self.edge
        return x, self.slot_y + row * (SLOT_HEIGHT + GAP)

    def slot_link(self, index: int) -> tuple[Point, Point]:
        """Return the ends of a slot's link: the link of a lower row is nearer to the middle."""
        column, row = divmod(index, self.rows)
        half = self.width / 2 - self.edge - SLOT_WIDTH
        start = (self.rows - row - 0.5) * half / self.rows
        end = half + BEHIND_A_BOX
        side = 1 if column else -1
        middle = self.width / 2
        return (
            (middle + side * start, self.chip_y + SWITCH_HEIGHT),
            (middle + side * end, self.slot(index)[1] + SLOT_HEIGHT // 2),
        )

    def slot_mark(self, index: int) -> tuple[int, int]:
        """Return where a mark on a slot's link has its middle: beside the slot."""
        _, (x, y) = self.slot_link(index)
        away = BEHIND_A_BOX + MARK_SIZE // 2 + MARK_GAP
        return round(x + (away if x < self.width / 2 else -away)), round(y)


def mark_on(end: Point, other: Point) -> tuple[int, int]:
    """Return the middle of a mark on a link, near its end on the way to the other one."""
    share = (MARK_SIZE / 2 + MARK_GAP) / abs(other[1] - end[1])
    return round(end[0] + share * (other[0] - end[0])), round(end[1] + share * (other[1] - end[1]))
