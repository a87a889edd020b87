"""Figures of measurements, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

HEADINGS = ("measured", "figure", "value", "unit", "beside", "its value", "ratio", "bar")
RIGHT_ALIGNED = frozenset({2, 5, 6})


@dataclass(frozen=True)
class PerfFigure:
    """One figure in `unit`, and that of the reference `beside`, if any; `name` is that of its measurement.

    A bar limits it: at most `most` in `unit`, at most `most_ratio` times the reference, or at least `least` in `unit`.
    """

    figure: str
    value: float
    unit: str
    _: KW_ONLY
    name: str = ""
    beside: str | None = None
    beside_value: float | None = None
    most: float | None = None
    most_ratio: float | None = None
    least: float | None = None

    @property
    def ratio(self) -> float | None:
        """The ratio of the value to the reference; None without a reference."""
        return self.value / self.beside_value if self.beside_value else None

    @property
    def bar(self) -> str:
        """The bar and whether it is met; '' without a bar."""
        if self.most is not None:
            return _bar(f"<= {_short(self.most)}", self.value <= self.most)
        if self.least is not None:
            return _bar(f">= {_short(self.least)}", self.value >= self.least)
        if self.most_ratio is not None and self.ratio is not None:
            return _bar(f"ratio <= {_short(self.most_ratio)}", self.ratio <= self.most_ratio)
        return ""

    def for_json(self) -> dict[str, Any]:
        """Return the figure for perf.json."""
        plain = {name: value for name, value in asdict(self).items() if name not in {"most", "most_ratio", "least"}}
        return {"name": self.name, **plain, "ratio": self.ratio}


def table(figures: Sequence[PerfFigure]) -> str:
    """Return the figures as lines of text."""
    rows = [HEADINGS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in RIGHT_ALIGNED else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(figure: PerfFigure) -> tuple[str, ...]:
    return (
        figure.name,
        figure.figure,
        _short(figure.value),
        figure.unit,
        figure.beside or "",
        _short(figure.beside_value),
        _short(figure.ratio),
        figure.bar,
    )


def _bar(limit: str, is_met: bool) -> str:
    return f"{limit}: {'met' if is_met else 'MISSED'}"


def _short(value: float | None) -> str:
    """Return a number with three digits if small, without a fraction if large."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
