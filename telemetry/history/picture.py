"""A heat map as a picture and as a table: pure. Colours are classes, so that a theme chooses them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from telemetry.history.heat import HeatMap, heat_step
from telemetry.history.ranges import HOUR, iso

CELL, ROW = 10, 26  # of the picture, in its own units
NAMES, LEFT, TOP = 50, 18, 4  # the names are a picture of their own, which stays in sight when the other is scrolled
EVERY: Final = 3  # hours between words below


@dataclass(frozen=True)
class Cell:
    """A bucket of a slot: where it is drawn, its step of colour and what it says."""

    x: float
    width: float
    step: int
    words: str


@dataclass(frozen=True)
class Drawn:
    """A row of the picture: its name as far as there is room for it, and the whole one."""

    name: str
    whole: str
    y: int
    cells: list[Cell]


@dataclass(frozen=True)
class Picture:
    """Rows, words below them, and how large it is; the names of the rows are `names` wide."""

    names: int
    width: int
    height: int
    rows: list[Drawn]
    hours: list[tuple[float, str]]
    text_y: int


@dataclass(frozen=True)
class Hours:
    """A slot's day: its highest temperature by the hour, '' where there is none."""

    name: str
    slot_id: int
    highest: str
    hours: list[str]


def cells_of(found: HeatMap) -> Picture:
    """Return the picture of a heat map."""
    seconds = found.span.seconds
    width = 96 * CELL
    rows = []
    for place, row in enumerate(found.rows):
        cells = []
        for at, high, mean in zip(found.at.tolist(), row.high.tolist(), row.mean.tolist(), strict=True):
            step = heat_step(high)
            if step is None:
                continue
            x = LEFT + (max(at, found.span.since) - found.span.since) / seconds * width
            words = f"{row.slot.name}, {iso(at)[11:16]} UTC: highest {high:.1f} °C, mean {mean:.1f} °C"
            cells.append(Cell(round(x, 2), round(found.step / seconds * width, 2), step, words))
        name = f"Slot {row.slot.number}" if row.slot.number else row.slot.name
        rows.append(Drawn(name, row.slot.name, TOP + place * ROW, cells))
    foot = TOP + len(rows) * ROW
    count = round(seconds / HOUR)
    hours = [(LEFT + hour / count * width, f"{hour:02d}:00") for hour in range(0, count + 1, EVERY)]
    return Picture(NAMES, LEFT + width + 24, foot + 24, rows, hours, foot + 16)


def hours_of(found: HeatMap) -> list[Hours]:
    """Return the same as a table: the highest temperature of each hour."""
    count = round(found.span.seconds / HOUR)
    places = ((found.at - found.span.since) // HOUR).astype(int)
    table = []
    for row in found.rows:
        highest = np.full(count, math.nan)
        inside = (places >= 0) & (places < count)
        np.fmax.at(highest, places[inside], row.high[inside])
        table.append(Hours(row.slot.name, row.slot.pk, _words(row.highest), [_words(one) for one in highest.tolist()]))
    return table


def _words(celsius: float) -> str:
    return "" if math.isnan(celsius) else f"{celsius:.0f}"
