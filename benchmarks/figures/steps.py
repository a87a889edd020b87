"""What happened step by step: the loss, and how long steps took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.figures.cells import left_out
from benchmarks.figures.rows import LOSS, STEPS, Floats, Row, distinct_names
from benchmarks.figures.shapes import Axis, Figure, Line
from benchmarks.figures.use import MOST_LINES

POINTS: Final = 300  # of a line over steps
SHARES: Final = tuple(range(0, 101, 2))  # percentiles


def loss(rows: Sequence[Row]) -> Figure:
    """Return the loss over the timed steps; of long runs each point is the mean of some steps."""
    having = [row for row in rows if LOSS in row.keys and np.isfinite(row.read(LOSS)[1]).any()]
    drawn = having[:MOST_LINES]
    columns = {row.id: row.read(LOSS)[1] for row in drawn}
    size = max(1, -(-max((len(one) for one in columns.values()), default=0) // POINTS))
    places = -(-max((len(one) for one in columns.values()), default=0) // size)
    names = distinct_names(drawn)
    return Figure(
        name="loss",
        title="Loss over steps",
        caption="Loss of the timed steps, as rank 0 tells it." + (f" Each point is the mean of {size}." * (size > 1)),
        kind="lines",
        groups="Run",
        x=Axis(title="Step"),
        y=Axis(title="Loss"),
        at=tuple(float(place * size + 1) for place in range(places)),
        lines=tuple(
            Line(
                group=names[row.id],
                provenance=row.provenance,
                values=_means(columns[row.id], size, places),
                runs=(row.id,),
            )
            for row in drawn
        ),
    ).noted(
        left_out([row for row in rows if row not in having], "without a loss"),
        left_out(having[MOST_LINES:], f"since a chart holds {MOST_LINES} lines at most"),
    )


def _means(values: Floats, size: int, places: int) -> tuple[float | None, ...]:
    found: list[float | None] = []
    for place in range(places):
        part = values[place * size : (place + 1) * size]
        known = part[np.isfinite(part)]
        found.append(float(f"{known.mean():.6g}") if len(known) else None)
    return tuple(found)


def durations(rows: Sequence[Row]) -> Figure:
    """Return how steps are distributed: the time that a share of them stayed below."""
    having = [row for row in rows if len(row.steps()) > 1]
    drawn = having[:MOST_LINES]
    names = distinct_names(drawn)
    return Figure(
        name="step-time",
        title="Distribution of step times",
        caption=(
            "How long the quickest share of a run's timed steps took at most: the middle is the median, a steep right "
            "end are few long steps."
        ),
        kind="lines",
        groups="Run",
        x=Axis(title="Share of steps", unit="%"),
        y=Axis(title="Step time", unit="s"),
        at=tuple(float(share) for share in SHARES) if drawn else (),
        lines=tuple(
            Line(
                group=names[row.id],
                provenance=row.provenance,
                values=tuple(float(f"{one:.6g}") for one in np.percentile(row.steps(), SHARES)),
                runs=(row.id,),
            )
            for row in drawn
        ),
    ).noted(
        left_out([row for row in rows if row not in having and STEPS not in row.keys], "without times of single steps"),
        left_out(having[MOST_LINES:], f"since a chart holds {MOST_LINES} lines at most"),
    )
