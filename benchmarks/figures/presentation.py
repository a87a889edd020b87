"""Charts and comparisons as JSON, CSV and page tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import msgspec

from benchmarks.figures.charts import Chart, Relation, TableCell
from benchmarks.figures.comparison import ABSENT_TEXT, Comparison, RelativeValue
from core.downloads import csv_cell, csv_table
from core.language import _


def chart_json(figure: Chart) -> dict[str, Any]:
    """Return a figure as JSON for the page's script and API clients."""
    return {**msgspec.to_builtins(figure, enc_hook=str.__str__), "provenances": figure.sources}


def chart_csv_lines(figures: Iterable[Chart]) -> Iterator[str]:
    """Yield the tables of figures in sequence, each below its title if there are several."""
    several = list(figures)
    for number, figure in enumerate(several):
        if len(several) > 1:
            if number:
                yield "\r\n"
            yield from csv_table([figure.title], [])
        # Headers contain titles of runs, which are user input.
        yield from csv_table([csv_cell(column) for column in figure.columns], figure.rows())


def comparison_json(compared: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON for API clients."""
    return {
        "runs": [
            {name: getattr(row, name) for name in ("id", "title", "workload", "provenance", "state")}
            for row in compared.rows
        ],
        "facts": [
            {"part": part.title, **msgspec.to_builtins(fact, enc_hook=str.__str__), "differs": fact.differs}
            for part in compared.parts
            for fact in part.facts
        ],
        "results": msgspec.to_builtins(compared.results, enc_hook=str.__str__),
    }


OPEN_ROWS = 40  # rows up to which a table is open initially
BOUND_SIGNS = {f"{one} " for one in get_args(Relation)}
MAX_ROWS = 500  # of a table on a page; its file has all


@dataclass(frozen=True)
class DisplayCell:
    """A cell of a table: the displayed text, and the exact number, None for text."""

    words: str
    exact: float | int | None
    head: str = ""  # of its column

    @property
    def is_number(self) -> bool:
        """Whether it is right-aligned."""
        return self.exact is not None or self.words == ABSENT_TEXT or self.words[:2] in BOUND_SIGNS


@dataclass(frozen=True)
class DisplayChart:
    """A figure with its table."""

    figure: Chart
    rows: list[list[DisplayCell]]
    left_out: int

    @property
    def data(self) -> dict[str, Any]:
        return chart_json(self.figure)

    @property
    def data_id(self) -> str:
        return f"data-{self.figure.name}"

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The headers, and whether their columns are numeric."""
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


def display_chart(figure: Chart) -> DisplayChart:
    """Return a figure for display on a page."""
    place = 0 if figure.kind == "lines" else 1  # of the x axis
    heads = figure.columns
    rows = [
        [replace(display_cell(cell, is_exact=at == place), head=heads[at]) for at, cell in enumerate(row)]
        for row in figure.rows()
    ]
    return DisplayChart(figure, rows[:MAX_ROWS], max(0, len(rows) - MAX_ROWS))


def display_cell(cell: TableCell, *, is_exact: bool = False) -> DisplayCell:
    """Return a cell of a table; an `is_exact` value, such as a number of threads, has no superfluous digits."""
    if cell is None:
        return DisplayCell(ABSENT_TEXT, None)
    if isinstance(cell, str):
        return DisplayCell(cell, None)
    return DisplayCell(f"{cell:g}" if is_exact else format_number(cell), cell)


def format_number(value: float) -> str:
    """Return a number with four significant digits, counts in full: '0.01234', '12.30', '123,456'."""
    if not math.isfinite(value):
        return ABSENT_TEXT
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    digits = 3 - math.floor(math.log10(abs(value)))
    return f"{value:,.{digits}f}" if 0 <= digits <= 8 else f"{value:,.4g}" if digits > 8 else f"{value:,.0f}"


@dataclass(frozen=True)
class DisplayRelativeValue:
    """A result as text: its value, its interval, its ratio to the first run's."""

    value: str
    interval: str
    ratio: str
    ratio_interval: str


def display_relative_values(results: Sequence[RelativeValue | None]) -> list[DisplayRelativeValue | None]:
    """Return the results of runs as text."""
    return [
        None
        if one is None
        else DisplayRelativeValue(
            format_number(one.value),
            _interval_text(one.low, one.high, format_number),
            "" if one.ratio is None else _ratio_text(one.ratio),
            _interval_text(one.ratio_low, one.ratio_high, _ratio_text),
        )
        for one in results
    ]


def _interval_text(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    return "" if low is None or high is None else _("{low} to {high}", low=text(low), high=text(high))


def _ratio_text(ratio: float) -> str:
    """Return a ratio with three decimals, or with more significant digits if it is too small for them."""
    return f"{ratio:.3f}" if 0.01 <= ratio < 1000 else format_number(ratio)
