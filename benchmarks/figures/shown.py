"""Figures and comparisons as pages show them: numbers as people read them, beside the exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.figures.comparing import ABSENT, Against
from benchmarks.figures.encoding import as_json
from benchmarks.figures.shapes import Cell, Figure

OPEN_ROWS = 40  # a table of so many rows is open from the start
MOST_ROWS = 500  # of a table on a page; its file has all


@dataclass(frozen=True)
class ShownCell:
    """A cell of a table: what is read, and the exact number, None for words."""

    words: str
    exact: float | int | None
    head: str = ""  # of its column

    @property
    def is_number(self) -> bool:
        """Whether it stands on the right."""
        return self.exact is not None or self.words == ABSENT


@dataclass(frozen=True)
class ShownFigure:
    """A figure with its table."""

    figure: Figure
    rows: list[list[ShownCell]]
    left_out: int

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return as_json(self.figure)

    @property
    def data_id(self) -> str:
        """The id of the element that holds it."""
        return f"data-{self.figure.name}"

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The heads, and whether numbers stand below them."""
        first = self.rows[0] if self.rows else []
        return [(name, cell.is_number) for name, cell in zip(self.figure.columns, first, strict=True)]

    @property
    def is_open(self) -> bool:
        """Whether the table is short enough to be open."""
        return len(self.rows) <= OPEN_ROWS

    @property
    def place_of_provenance(self) -> int:
        """The number of the column with the provenance, from 0; -1 for none."""
        return -1 if self.figure.kind == "lines" else 2


def shown(figure: Figure) -> ShownFigure:
    """Return a figure as a page shows it."""
    place = 0 if figure.kind == "lines" else 1  # of the x axis
    heads = figure.columns
    rows = [
        [replace(cell_of(cell, is_exact=at == place), head=heads[at]) for at, cell in enumerate(row)]
        for row in figure.rows()
    ]
    return ShownFigure(figure, rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS))


def cell_of(cell: Cell, *, is_exact: bool = False) -> ShownCell:
    """Return a cell of a table; one that `is_exact`, such as a number of threads, has no more digits than it needs."""
    if cell is None:
        return ShownCell(ABSENT, None)
    if isinstance(cell, str):
        return ShownCell(cell, None)
    return ShownCell(f"{cell:g}" if is_exact else number(cell), cell)


def number(value: float) -> str:
    """Return a number with four significant digits, counts in full: '0.01234', '12.30', '123,456'."""
    if not math.isfinite(value):
        return ABSENT
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    digits = 3 - math.floor(math.log10(abs(value)))
    return f"{value:,.{digits}f}" if 0 <= digits <= 8 else f"{value:,.4g}" if digits > 8 else f"{value:,.0f}"


@dataclass(frozen=True)
class ShownAgainst:
    """A result in words: its value, its interval, its ratio to the first run's."""

    value: str
    interval: str
    ratio: str
    ratio_interval: str


def against(results: Sequence[Against | None]) -> list[ShownAgainst | None]:
    """Return the results of runs in words."""
    return [
        None
        if one is None
        else ShownAgainst(
            number(one.value),
            _interval(one.low, one.high),
            _ratio(one.ratio),
            _ratio_interval(one.ratio_low, one.ratio_high),
        )
        for one in results
    ]


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def _ratio(ratio: float | None) -> str:
    """Return a ratio; one that three decimals would not tell has digits of its own."""
    if ratio is None:
        return ""
    return f"{ratio:.3f}" if 0.01 <= ratio < 1000 else number(ratio)


def _ratio_interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{_ratio(low)} to {_ratio(high)}"
