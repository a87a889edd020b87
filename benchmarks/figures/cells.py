"""Marks of runs: those that did the same, in the same place, are one mark; those of another provenance never are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.figures.estimates import Estimate, seconds_a_step, together
from benchmarks.figures.rows import Row, counted, named
from benchmarks.figures.shapes import SOURCES, Mark, Source
from fabric.bmc.values import natural

BOOTSTRAPPED: Final = (
    "90 % by bootstrap of the steps, of several runs of these too; of predictions their own 90 % interval"
)
PERCENTILES: Final = "5th to 95th percentile of the readings; of several runs from the lowest to the highest of theirs"


@dataclass(frozen=True)
class Cell:
    """Where a mark goes: the place on the x axis, its group, and the one provenance of the runs that it is made of."""

    x: str | float
    group: str
    provenance: Source


@dataclass(frozen=True)
class Spread:
    """A value of a run with its percentiles, of `count` readings."""

    value: float
    low: float | None
    high: float | None
    count: int


def cells(rows: Iterable[Row], x: Callable[[Row], str | float], group: Callable[[Row], str]) -> dict[Cell, list[Row]]:
    """Return the runs of each cell, in the order in which they came."""
    found: dict[Cell, list[Row]] = defaultdict(list)
    for row in rows:
        found[Cell(x(row), group(row), row.provenance)].append(row)
    return found


def estimated(
    found: Mapping[Cell, Sequence[Row]], of: Callable[[Row], Estimate | None]
) -> dict[Cell, tuple[Estimate, tuple[str, ...]]]:
    """Return what the runs of each cell come to together, with their ids; cells without any are left out."""
    values = {}
    for cell, rows in found.items():
        known = [(row, one) for row in rows if (one := of(row)) is not None]
        if known:
            seed = f"{cell.x} {cell.group} {cell.provenance}"
            values[cell] = (together([one for _, one in known], seed), tuple(row.id for row, _ in known))
    return values


def mark_of(cell: Cell, estimate: Estimate, runs: tuple[str, ...]) -> Mark:
    """Return an estimate as a mark."""
    low, high = estimate.interval
    count, runs = made_of(cell, estimate.count, runs)
    return Mark(
        x=cell.x, group=cell.group, provenance=cell.provenance, value=estimate.value, low=low, high=high,
        count=count, runs=runs,
    )  # fmt: skip


def made_of(cell: Cell, count: int, runs: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return of how many values of which runs a mark is made: a prediction of none."""
    return (0, ()) if cell.provenance == "predicted" else (count, runs)


def spread_marks(found: Mapping[Cell, Sequence[Row]], of: Callable[[Row], Spread | None]) -> list[Mark]:
    """Return marks of readings: of several runs the median of theirs, from the lowest low to the highest high."""
    marks = []
    for cell, rows in found.items():
        known = [(row, one) for row in rows if (one := of(row)) is not None]
        if not known:
            continue
        lows = [one.low for _, one in known if one.low is not None]
        highs = [one.high for _, one in known if one.high is not None]
        count, runs = made_of(cell, sum(one.count for _, one in known), tuple(row.id for row, _ in known))
        marks.append(
            Mark(
                x=cell.x,
                group=cell.group,
                provenance=cell.provenance,
                value=float(np.median([one.value for _, one in known])),
                low=min(lows, default=None),
                high=max(highs, default=None),
                count=count,
                runs=runs,
            )
        )
    return marks


def sorted_marks(marks: Iterable[Mark], xs: Sequence[str | float] = (), groups: Sequence[str] = ()) -> tuple[Mark, ...]:
    """Return marks in the order of these places, then of these groups, otherwise by name; provenance last."""
    places = {x: number for number, x in enumerate(xs)}
    names = {group: number for number, group in enumerate(groups)}

    def key(mark: Mark) -> tuple[object, ...]:
        # 'batch 4' before 'batch 12'.
        return (
            places.get(mark.x, len(places)), natural(str(mark.x)), names.get(mark.group, len(names)),
            natural(mark.group), SOURCES.index(mark.provenance),
        )  # fmt: skip

    return tuple(sorted(marks, key=key))


def seconds_a_sample(row: Row) -> Estimate | None:
    """Return a run's seconds for one sample over all its devices; None where it has no steps, or they count nothing."""
    seconds, samples = seconds_a_step(row), row.samples_a_step
    return seconds.scaled(1 / samples) if seconds is not None and samples else None


def left_out(rows: Sequence[Row], why: str) -> str:
    """Return a sentence on runs that a figure is not about; '' for none."""
    if not rows:
        return ""
    return f"Left out: {counted(rows, 'run')} {why} ({named(rows)})."
