"""Figures as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from accounts.sheets import lines, safe
from benchmarks.figures.comparing import Comparison
from benchmarks.figures.shapes import Axis, Figure, Line, Mark


def as_json(figure: Figure) -> dict[str, Any]:
    """Return a figure as the page's script and the API's clients read it."""
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "kind": figure.kind,
        "x": _axis(figure.x),
        "y": _axis(figure.y),
        "groups": figure.groups,
        "interval": figure.interval,
        "counts": figure.counts,
        "baseline": figure.baseline,
        "baselines": list(figure.baselines),
        "provenances": list(figure.sources),
        "marks": [_mark(mark) for mark in figure.marks],
        "at": list(figure.at),
        "lines": [_line(line) for line in figure.lines],
        "ideals": [_mark(mark) for mark in figure.ideals],
        "notes": list(figure.notes),
    }


def _axis(axis: Axis) -> dict[str, str]:
    return {"title": axis.title, "unit": axis.unit, "kind": axis.kind}


def _mark(mark: Mark) -> dict[str, Any]:
    return {
        "x": mark.x, "group": mark.group, "provenance": mark.provenance, "value": mark.value, "low": mark.low,
        "high": mark.high, "count": mark.count, "runs": list(mark.runs),
    }  # fmt: skip


def _line(line: Line) -> dict[str, Any]:
    return {
        "group": line.group,
        "provenance": line.provenance,
        "values": list(line.values),
        "runs": list(line.runs),
    }


def csv_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """Yield the tables of figures one below the other, each with its title above it where there are several."""
    several = list(figures)
    for number, figure in enumerate(several):
        if len(several) > 1:
            if number:
                yield "\r\n"
            yield from lines([figure.title], [])
        # Heads have what people call their runs.
        yield from lines([safe(column) for column in figure.columns], figure.rows())


def compared_json(compared: Comparison) -> dict[str, Any]:
    """Return runs side by side as the API's clients read them."""
    return {
        "runs": [
            {
                "id": row.id,
                "title": row.title,
                "workload": row.workload,
                "provenance": row.provenance,
                "state": row.state,
            }
            for row in compared.rows
        ],
        "facts": [
            {"part": part.title, "name": fact.name, "values": list(fact.values), "differs": fact.differs}
            for part in compared.parts
            for fact in part.facts
        ],
        "results": [
            {
                "name": result.name,
                "unit": result.unit,
                "interval": result.interval,
                "values": [asdict(one) if one else None for one in result.values],
            }
            for result in compared.results
        ],
    }
