"""Throughput against one axis, a chart for each workload and a line for each combination of the other axes: pure.

A mark has one provenance. Repeats of a point are one mark: their median, with the union of their intervals.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.sweeps.grid import AXIS_LABELS

SCALING_AXES: Final = ("count", "batch", "threads", "loader_workers", "accumulation")
MAX_LINES: Final = 12
MAX_CHARTS: Final = 24


@dataclass(frozen=True, kw_only=True)
class RunThroughput:
    """The result of a completed run: the values of its axes, samples a second with the 5th and 95th percentile."""

    values: dict[str, Any]
    rate: float
    low: float
    high: float
    provenance: str


@dataclass(frozen=True, kw_only=True)
class ScalingMark:
    """A mark of a chart; `runs` is the number of its runs."""

    x: float
    rate: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class ScalingLine:
    """A line of a chart: the common values of its marks, and their provenance."""

    name: str
    provenance: str
    marks: tuple[ScalingMark, ...]


@dataclass(frozen=True, kw_only=True)
class ScalingChart:
    """Throughput of a workload, labelled `of`, along an axis; `more` is the number of lines left out."""

    axis: str
    words: str
    workload: str
    of: str
    lines: tuple[ScalingLine, ...]
    more: int = 0


def scaling_charts(
    shown: Iterable[RunThroughput], *, workloads: Sequence[str], varied: Sequence[str], words: dict[str, dict[Any, str]]
) -> list[ScalingChart]:
    """Return a chart for each workload and each varied numeric axis; `words` has the labels of values."""
    runs = list(shown)
    along = [(axis, workload) for axis in SCALING_AXES if axis in varied for workload in workloads]
    return [
        _scaling_chart(
            axis,
            workload,
            runs=[one for one in runs if one.values["workload"] == workload],
            varied=varied,
            words=words,
        )
        for axis, workload in along[:MAX_CHARTS]
    ]


def _scaling_chart(
    axis: str, workload: str, *, runs: Sequence[RunThroughput], varied: Sequence[str], words: dict[str, dict[Any, str]]
) -> ScalingChart:
    others = [name for name in varied if name not in {axis, "repeat", "workload"}]
    lines: dict[tuple[str, str], dict[float, list[RunThroughput]]] = {}
    for one in runs:
        name = ", ".join(value_label(other, one.values.get(other), words) for other in others)
        line = lines.setdefault((name, one.provenance), {})
        line.setdefault(float(one.values[axis]), []).append(one)
    made = [
        ScalingLine(
            name=name or "All",
            provenance=provenance,
            marks=tuple(_scaling_mark(x, found) for x, found in sorted(marks.items())),
        )
        for (name, provenance), marks in lines.items()
    ]
    # Lines with the most marks are kept, in the order of the runs: ordering by marks would change the colours of lines
    # while the sweep runs.
    fullest = sorted(made, key=lambda line: -len(line.marks))[:MAX_LINES]
    return ScalingChart(
        axis=axis,
        words=AXIS_LABELS[axis],
        workload=workload,
        of=value_label("workload", workload, words),
        lines=tuple(line for line in made if line in fullest),
        more=max(0, len(made) - MAX_LINES),
    )


def _scaling_mark(x: float, runs: Sequence[RunThroughput]) -> ScalingMark:
    return ScalingMark(
        x=x,
        rate=statistics.median(one.rate for one in runs),
        low=min(one.low for one in runs),
        high=max(one.high for one in runs),
        runs=len(runs),
    )


def value_label(axis: str, value: Any, words: dict[str, dict[Any, str]]) -> str:
    """Return a self-explanatory label of an axis value: 'batch 64'; `words` has the labels of named values."""
    named = words.get(axis, {}).get(value)
    if named is not None:
        return named
    if axis == "compile":
        return "compiled" if value else "not compiled"
    if axis == "count":
        return f"{value} device{'' if value == 1 else 's'}"
    return {
        "batch": "batch {}",
        "threads": "{} threads",
        "loader_workers": "{} loaders",
        "accumulation": "{} batches",
        "repeat": "repeat {}",
    }.get(axis, "{}").format(value)
