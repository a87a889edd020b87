"""What runs move over PCIe, to the devices and from them, by workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.figures.cells import Cell, Spread, left_out, sorted_marks, spread_marks
from benchmarks.figures.labels import configurations, work_of
from benchmarks.figures.rows import STEPS, Floats, Row
from benchmarks.figures.shapes import Axis, Figure
from benchmarks.model.shapes import LOCAL

TO, FROM, BOTH = "to the devices", "from the devices", "together"
LINKS: Final = "link/device-"
PHASE: Final = "phase/timed"
GIGA: Final = 1e9


@dataclass(frozen=True)
class Traffic:
    """What a run moved: bytes a second by direction. `counted` says by whom, '' for the links of the chassis."""

    counted: str
    by_direction: dict[str, Spread]


def by_workload(rows: Sequence[Row]) -> Figure:
    """Return PCIe transfer by workload, in GB/s: to and from the devices apart, and together."""
    found = {row.id: one for row in rows if (one := traffic_of(row)) is not None}
    having = [row for row in rows if row.id in found]
    works, labels = work_of(having), configurations(having)
    several = len(set(labels.values())) > 1
    marks = []
    groups: dict[str, None] = {}
    for direction in (TO, FROM, BOTH):
        places: dict[Cell, list[Row]] = {}
        for row in having:
            counted = found[row.id].counted
            if direction not in found[row.id].by_direction:
                continue
            group = f"{direction}, {counted}" if counted else direction
            x = f"{works[row.id]}, {labels[row.id]}" if several else works[row.id]
            places.setdefault(Cell(x, group, row.provenance), []).append(row)
        groups |= dict.fromkeys(cell.group for cell in places)
        marks += spread_marks(places, lambda row, of=direction: found[row.id].by_direction.get(of))  # type: ignore[misc]
    apart = [row for row in having if TO not in found[row.id].by_direction]
    return Figure(
        name="pcie",
        title="PCIe transfer by workload",
        caption=(
            "Means over the timed steps, all devices of a run summed up. Where nothing else is said, counted at the "
            "links of the chassis to its devices (ingress and egress of each), the host's own GPUs left out."
        ),
        kind="bars",
        groups="Direction",
        x=Axis(title="Workload and configuration" if several else "Workload", kind="category"),
        y=Axis(title="PCIe transfer", unit="GB/s"),
        interval="5th to 95th percentile of the readings; of several runs from the lowest to the highest of theirs",
        counts="readings",
        marks=sorted_marks(marks, groups=list(groups)),
    ).noted(
        left_out([row for row in rows if row.id not in found], "without traffic over PCIe"),
        f"Of {len(apart)} of these runs only the sum of both directions is known." if apart else "",
    )


def traffic_of(row: Row) -> Traffic | None:
    """Return what a run moved over PCIe, by the best that is known of it; None for nothing.

    That is what chassis counted at the links of its devices; else what GPUs count themselves, which for GPUs of the
    host is traffic over PCIe, too, but not of any chassis; else the sum that was kept.
    """
    links = _of_links(row)
    if links is not None:
        return links
    kept = row.summary.pcie
    if kept is not None:
        both = Spread(kept.value / GIGA, kept.low / GIGA, kept.high / GIGA, kept.count)
        return Traffic("", {BOTH: both, **(_of_sides(row) if row.provenance == "predicted" else {})})
    sides = _of_sides(row)
    if not sides:
        return None
    places = {one.place == LOCAL for one in row.topology.accelerators} if row.topology else set()
    whose = {frozenset({True}): "local GPUs by their own count", frozenset({False}): "as GPUs count it"}
    return Traffic(whose.get(frozenset(places), "all GPUs by their own count"), sides)


def _of_links(row: Row) -> Traffic | None:
    """Return what chassis counted at the links to their devices (see benchmarks.runs.traffic); None for nothing."""
    ways = {TO: "/pcie_to", FROM: "/pcie_from"}
    columns: dict[str, list[tuple[Floats, Floats]]] = {TO: [], FROM: []}
    for key in sorted(row.keys):
        for way, name in ways.items():
            if key.startswith(LINKS) and key.endswith(name):
                columns[way].append(row.read(key))
    if not columns[TO] or not columns[FROM]:
        return None
    since, until = _timed(row)
    found = {
        TO: _summed(columns[TO], since, until),
        FROM: _summed(columns[FROM], since, until),
        BOTH: _summed(columns[TO] + columns[FROM], since, until),
    }
    known = {way: one for way, one in found.items() if one is not None}
    return Traffic("", known) if known else None


def _timed(row: Row) -> tuple[float, float]:
    """Return the time (Unix s) of a run's timed steps, all of it where nothing tells when they were."""
    since, until = -np.inf, np.inf
    if PHASE in row.keys:
        at, _ = row.read(PHASE)
        since = float(at[0]) if len(at) else since
    if STEPS in row.keys:
        at, _ = row.read(STEPS)
        until = float(at[-1]) if len(at) else until
    return since, until


def _summed(columns: Sequence[tuple[Floats, Floats]], since: float, until: float) -> Spread | None:
    """Return the sum of several series: its mean and percentiles over the moments at which all of them tell."""
    parts = []
    for at, values in columns:
        inside = (at >= since) & (at <= until) & np.isfinite(values)
        parts.append((at[inside], values[inside]))
    moments, counts = np.unique(np.concatenate([at for at, _ in parts]), return_counts=True)
    totals = np.bincount(
        np.searchsorted(moments, np.concatenate([at for at, _ in parts])),
        np.concatenate([values for _, values in parts]),
        minlength=len(moments),
    )
    whole = totals[counts == len(parts)] / GIGA
    if len(whole) == 0:
        return None
    low, high = np.percentile(whole, [5, 95])
    mean = float(np.mean(whole))
    return Spread(mean, min(float(low), mean), max(float(high), mean), len(whole))


def _of_sides(row: Row) -> dict[str, Spread]:
    """Return the traffic by the readings of devices: the mean of one times how many there are."""
    count = len(row.topology.accelerators) if row.topology else row.spec.devices if row.spec else 0
    readings = row.summary.readings
    found = {
        way: Spread(one.value * count / GIGA, one.low * count / GIGA, one.high * count / GIGA, one.count)
        for way, name in ((TO, "pcie_to"), (FROM, "pcie_from"))
        if count and (one := readings.get(name)) is not None
    }
    if len(found) == 2 and row.provenance != "predicted":
        total = found[TO].value + found[FROM].value
        found[BOTH] = Spread(total, None, None, min(one.count for one in found.values()))
    return found
