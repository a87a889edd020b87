"""How well GPUs reach each other: bandwidth and latency by where the two of a pair are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from benchmarks.figures.cells import Cell, left_out, sorted_marks
from benchmarks.figures.labels import drawer_of
from benchmarks.figures.rows import Floats, Row
from benchmarks.figures.shapes import Axis, Figure, Mark
from benchmarks.model.shapes import LOCAL, Topology

LOCALS, MIXED, FALCONS = "local-local", "Falcon-local", "Falcon-Falcon"
PROCESSES, NOWHERE = "processes on the CPU", "places not recorded"
PAIRS: Final = (LOCALS, MIXED, FALCONS, PROCESSES, NOWHERE)
BOTH_WAYS, WRITE = "both ways together", "P2P write"
USUAL: Final = {"bandwidth": BOTH_WAYS, "latency": WRITE}
# The published table (its source: performance model, design notes): bidirectional bandwidth in GB/s, P2P write latency
# in microseconds. That of local pairs is a mean over single and double NVLinks.
PUBLISHED: Final = {"bandwidth": (72.37, 19.64, 24.47), "latency": (1.85, 2.66, 2.08)}
RATES: Final = {"b/s": 1e-9, "kb/s": 1e-6, "mb/s": 1e-3, "gb/s": 1.0, "kib/s": 2**10 / 1e9, "mib/s": 2**20 / 1e9,
                "gib/s": 2**30 / 1e9}  # fmt: skip
TIMES: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ns": 1e-3}
Quantity = Literal["bandwidth", "latency"]


@dataclass(frozen=True)
class Matrix:
    """A value for each two devices, from row to column, f8[devices, devices]: GB/s or microseconds; NaN for none."""

    quantity: Quantity
    counted: str
    values: Floats


def matrices(row: Row) -> Iterator[Matrix]:
    """Yield the tables of a run that tell of each two devices.

    'bandwidth' is what goes both ways at once, 'latency' that of a small write; other tables are what their names say,
    each for itself, and left out where they are the same as one of these two.
    """
    known: dict[Quantity, list[Floats]] = {"bandwidth": [], "latency": []}
    for name, table in sorted(row.summary.tables.items(), key=lambda one: one[0] not in USUAL):
        unit = row.summary.units.get(name, "").strip().lower()
        quantity: Quantity = "latency" if "latency" in name.lower() else "bandwidth"
        factors = TIMES if quantity == "latency" else RATES
        values = _square(table)
        # Without a unit it is as the published tools print it: GB/s, microseconds.
        if values is None or (unit and unit not in factors):
            continue
        if any(one.shape == values.shape and np.array_equal(one, values, equal_nan=True) for one in known[quantity]):
            continue
        known[quantity].append(values)
        yield Matrix(quantity, USUAL.get(name, name.replace("_", " ")), values * factors.get(unit, 1.0))


def _square(table: Any) -> Floats | None:
    """Return a table as a square of at least two devices; None for anything else."""
    if not isinstance(table, list) or len(table) < 2:
        return None
    if not all(isinstance(line, list) and len(line) == len(table) for line in table):
        return None
    try:
        return np.array([[np.nan if one is None else float(one) for one in line] for line in table], dtype=np.float64)
    except (TypeError, ValueError):
        return None


def pair_of(topology: Topology | None, one: int, other: int) -> str:
    """Return where the two of a pair are, by their places in the order of ranks."""
    if topology is not None and not topology.accelerators:
        return PROCESSES
    if topology is None or max(one, other) >= len(topology.accelerators):
        return NOWHERE
    places = [topology.accelerators[rank].place for rank in (one, other)]
    locals_ = sum(place == LOCAL for place in places)
    return (FALCONS, MIXED, LOCALS)[locals_]


def has_pairs(row: Row) -> bool:
    """Tell whether a run measured something of each two devices."""
    return next(matrices(row), None) is not None


def between_gpus(rows: Sequence[Row], *, published: bool = False) -> tuple[Figure, ...]:
    """Return bandwidth (GB/s) and latency (us) by where the two GPUs of a pair are, published ones on request."""
    having = [row for row in rows if has_pairs(row)]
    note = left_out(
        [row for row in rows if row.workload == "gpu_bandwidth" and row not in having], "without a table of pairs"
    )
    crossing = [
        row for row in having if row.topology and len({drawer_of(one) for one in row.topology.accelerators} - {""}) > 1
    ]
    drawers = (
        f"Falcon-Falcon holds pairs within a drawer and across drawers of {len(crossing)} of these runs."
        if crossing
        else ""
    )
    return (
        Figure(
            name="gpu-bandwidth",
            title="Bandwidth between two GPUs",
            caption=(
                "The mean over all pairs of a class, each in both directions where they were measured apart. "
                f"‘{BOTH_WAYS.capitalize()}’ is bidirectional: the sum of what goes to and from at the same time."
            ),
            kind="bars",
            groups="Counting",
            x=Axis(title="Pair", kind="category"),
            y=Axis(title="Bandwidth", unit="GB/s"),
            interval="5th to 95th percentile over the pairs",
            counts="pairs",
            marks=_marks(having, "bandwidth", published=published),
        ).noted(note, drawers),
        Figure(
            name="gpu-latency",
            title="Latency of a small write between two GPUs",
            caption="The mean over all pairs of a class.",
            kind="bars",
            groups="Counting",
            x=Axis(title="Pair", kind="category"),
            y=Axis(title="Latency", unit="µs"),
            interval="5th to 95th percentile over the pairs",
            counts="pairs",
            marks=_marks(having, "latency", published=published),
        ).noted(note, drawers),
    )


def _marks(rows: Sequence[Row], quantity: Quantity, *, published: bool) -> tuple[Mark, ...]:
    values: dict[Cell, list[float]] = {}
    runs: dict[Cell, dict[str, None]] = {}
    usual = USUAL[quantity]
    for row in rows:
        for matrix in matrices(row):
            if matrix.quantity != quantity:
                continue
            for one, other in np.argwhere(np.isfinite(matrix.values)).tolist():
                if one == other:
                    continue
                cell = Cell(pair_of(row.topology, one, other), matrix.counted, row.provenance)
                values.setdefault(cell, []).append(float(matrix.values[one, other]))
                runs.setdefault(cell, {})[row.id] = None
    marks = []
    for cell, found in values.items():
        mean = float(np.mean(found))
        low, high = np.percentile(found, [5, 95])
        has_spread = len(found) > 1
        marks.append(
            Mark(
                x=cell.x, group=cell.group, provenance=cell.provenance, value=mean, count=len(found),
                low=min(float(low), mean) if has_spread else None, high=max(float(high), mean) if has_spread else None,
                runs=tuple(runs[cell]),
            )
        )  # fmt: skip
    if published:
        marks += [
            Mark(x=pair, group=usual, provenance="published", value=value, count=0)
            for pair, value in zip(PAIRS, PUBLISHED[quantity], strict=False)
        ]
    return sorted_marks(marks, PAIRS, [usual])
