"""The ratios of short measurements, each to what ran beside it, compared with those on record.

Times on a machine say little about a change; their ratios to something measured in the same run say nearly the same on
each machine. `python -m perf --short` names what has worsened by more than a third; `--record` makes this the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from perf.figures import PerfFigure

RECORD = Path(__file__).with_name("ratios.json")
# How many times worse than on record: is told, and fails the run. Between both it may be what else the machine does.
TOLD, FAILED = 4 / 3, 2.0
RATES = frozenset({"1/s"})  # units of which more is better


def key(figure: PerfFigure) -> str:
    """Return what a figure is on record as."""
    return f"{figure.name}: {figure.figure}, beside {figure.beside}"


def losses(figures: Iterable[PerfFigure], record: Mapping[str, float]) -> dict[str, float]:
    """Return how many times worse than on record the ratios are, those that are told; the better one of each figure."""
    found: dict[str, float] = {}
    for figure in figures:
        if figure.ratio is not None and (before := record.get(key(figure))):
            loss = before / figure.ratio if figure.unit in RATES else figure.ratio / before
            found[key(figure)] = min(loss, found.get(key(figure), loss))
    return {name: loss for name, loss in found.items() if loss > TOLD}


def missing(figures: Iterable[PerfFigure], record: Mapping[str, float]) -> list[str]:
    """Return what is on record and was not measured."""
    return sorted(set(record) - {key(figure) for figure in figures if figure.ratio is not None})


def read_record() -> dict[str, float]:
    """Return the ratios on record; empty without one."""
    record: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return record


def write_record(figures: Iterable[PerfFigure]) -> None:
    """Make the ratios of these figures the record."""
    ratios = {key(figure): round(figure.ratio, 3) for figure in figures if figure.ratio is not None}
    RECORD.write_text(json.dumps(ratios, indent=1, sort_keys=True) + "\n")
