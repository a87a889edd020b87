"""How quickly storage is read, by where it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.figures.cells import BOOTSTRAPPED, cells, estimated, left_out, mark_of, sorted_marks
from benchmarks.figures.estimates import Estimate, seconds_a_step
from benchmarks.figures.labels import UNKNOWN, storage_of, work_of
from benchmarks.figures.links import RATES
from benchmarks.figures.relative import STORAGES
from benchmarks.figures.rows import Row
from benchmarks.figures.shapes import Axis, Figure

WORKLOAD: Final = "storage_read"
GIGA: Final = 1e9


def rate_of(row: Row) -> Estimate | None:
    """Return how quickly a run read its storage, GB/s: by its passes over a file, else as its result says."""
    if row.workload != WORKLOAD:
        return None
    size = row.spec.options.get("file_bytes") if row.spec else None
    seconds = seconds_a_step(row)
    if seconds is not None and row.spec is not None and isinstance(size, int | float) and size > 0:
        return seconds.inverse().scaled(size * row.spec.devices / GIGA)  # each process has a file of its own
    for name, value in row.summary.tables.items():
        unit = row.summary.units.get(name, "").lower()
        if name in {"bandwidth", "read"} and unit in RATES and isinstance(value, int | float):
            return Estimate(value * RATES[unit], None, 1)
    return None


def reading(rows: Sequence[Row]) -> Figure:
    """Return the rate of sequential reads by storage."""
    asked = [row for row in rows if row.workload == WORKLOAD]
    having = [row for row in asked if rate_of(row) is not None]
    works = work_of(having)
    found = estimated(
        cells(having, lambda row: storage_of(row.topology) if row.topology else UNKNOWN, lambda row: works[row.id]),
        rate_of,
    )
    return Figure(
        name="storage-read",
        title="Storage read",
        caption="Bytes of a file over the median time of a pass: in sequence, past the cache of the host.",
        kind="bars",
        groups="Workload",
        x=Axis(title="Storage", kind="category"),
        y=Axis(title="Read", unit="GB/s"),
        interval=BOOTSTRAPPED,
        counts="passes",
        marks=sorted_marks((mark_of(cell, *one) for cell, one in found.items()), STORAGES),
    ).noted(left_out([row for row in asked if row not in having], "without times of passes"))
