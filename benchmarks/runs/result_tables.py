"""Results that are no step times, such as a matrix of bandwidths, as tables that a page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.runs.summary import Summary
from benchmarks.runs.templatetags.run_words import number, plain_words, value_words


@dataclass(frozen=True, kw_only=True)
class Table:
    """A result: rows of cells with their heads."""

    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def tables_of(summary: Summary) -> list[tuple[str, Table]]:
    """Return the results of a run that are tables and no step times, each with its name and unit."""
    found = []
    for name, value in sorted(summary.tables.items()):
        if isinstance(value, dict | list):
            unit = summary.units.get(name, "")
            words = plain_words(name)
            found.append((f"{words}, {unit}" if unit else words, _table(value)))
    return found


def singles_of(summary: Summary) -> list[tuple[str, str]]:
    """Return the results of a run that are one value each: name, and the value with its unit."""
    found = []
    for name, value in sorted(summary.tables.items()):
        if isinstance(value, dict | list):
            continue
        unit = summary.units.get(name, "")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        words = value_words(float(value), unit) if is_number and unit else f"{_cell(value)} {unit}".strip()
        found.append((plain_words(name.removesuffix("_bytes") if unit == "B" else name), words))
    return found


def _table(value: dict[str, Any] | list[Any]) -> Table:
    if isinstance(value, dict):
        return Table(heads=tuple(str(one) for one in value), rows=_columns(list(value.values())))
    if value and all(isinstance(one, list) for one in value):
        return Table(
            heads=("", *(str(place) for place in range(len(value[0])))),
            rows=tuple((str(place), *(_cell(one) for one in line)) for place, line in enumerate(value)),
        )
    return Table(rows=(tuple(_cell(one) for one in value),))


def _columns(values: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return columns, or single values, as rows."""
    columns = [one if isinstance(one, list) else [one] for one in values]
    longest = max((len(one) for one in columns), default=0)
    return tuple(tuple(_cell(column[row]) if row < len(column) else "" for column in columns) for row in range(longest))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)[:200]
    return number(float(value))
