"""Training time against a baseline: by configuration, by storage, by software."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.figures.cells import (
    BOOTSTRAPPED,
    Cell,
    cells,
    estimated,
    left_out,
    mark_of,
    seconds_a_sample,
    sorted_marks,
)
from benchmarks.figures.estimates import Estimate
from benchmarks.figures.labels import (
    arrangement_of,
    configurations,
    differing,
    ordered,
    software_of,
    software_place,
    storage_of,
    words_of,
    work_of,
)
from benchmarks.figures.rows import Row
from benchmarks.figures.shapes import Axis, Figure, Mark
from falconweb.errors import Invalid

SOFTWARE: Final = ("precision", "gradient", "strategy", "compile", "batch")
MOST_NAMED: Final = 8  # of what a note is about
STORAGES: Final = ("local storage", "local NVMe", "Falcon NVMe")
RATIO: Final = (
    "Time for the same number of samples; below 1 is faster than the baseline. The ratio is made of runs of one "
    "provenance each: measured against measured, simulated against simulated. "
)


def trained(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the runs that trained in steps, and the sentence on those that did and tell no time."""
    training = [row for row in rows if row.is_training]
    timed = [row for row in training if seconds_a_sample(row) is not None]
    without = [row for row in training if row not in timed]
    return timed, left_out(without, "without times of steps, or whose batch is not recorded")


def by_configuration(rows: Sequence[Row], baseline: str = "") -> Figure:
    """Return training time by configuration against a baseline, by workload.

    Raises Invalid for a baseline that no run has.
    """
    timed, note = trained(rows)
    labels, works = configurations(timed), work_of(timed, but=("devices",))
    return _against(
        Figure(
            name="relative-time", title="Training time by configuration", kind="bars", groups="Configuration",
            caption=RATIO, x=Axis(title="Workload", kind="category"), y=Axis(title="Time relative to the baseline"),
        ).noted(note),
        timed, lambda row: works[row.id], lambda row: labels[row.id], ordered(labels.values()), baseline,
    )  # fmt: skip


def by_storage(rows: Sequence[Row], baseline: str = "") -> Figure:
    """Return training time by where the data lies against a baseline, for the same workload on the same devices."""
    timed, note = trained(rows)
    known = [row for row in timed if row.topology is not None]
    works, there = work_of(known), {row.id: arrangement_of(row.topology) for row in known}
    return _against(
        Figure(
            name="storage-time", title="Training time by storage", kind="bars", groups="Storage", caption=RATIO,
            x=Axis(title="Workload and devices", kind="category"), y=Axis(title="Time relative to the baseline"),
        ).noted(note, left_out([row for row in timed if row.topology is None], "whose topology is not recorded")),
        known, _and(works, there), lambda row: storage_of(row.topology) if row.topology else "",
        [one for one in STORAGES if one in {storage_of(row.topology) for row in known if row.topology}], baseline,
    )  # fmt: skip


def by_software(rows: Sequence[Row], baseline: str = "") -> Figure:
    """Return training time by software variant against a baseline, for the same workload in the same configuration.

    A batch that differs is part of the variant: sharding leaves room for a larger one.
    """
    timed, note = trained(rows)
    works, labels = work_of(timed, but=SOFTWARE), configurations(timed)
    specs: dict[str, list[Row]] = defaultdict(list)
    for row in timed:
        specs[works[row.id]].append(row)
    variants = {}
    for same in specs.values():
        has_batches = "batch" in differing(row.spec for row in same)
        for row in same:
            if row.spec is not None:  # it has steps that count something
                variant = software_of(row.spec)
                variants[row.id] = f"{variant}, {words_of('batch', row.spec.batch)}" if has_batches else variant
    return _against(
        Figure(
            name="software", title="Training time by software variant", kind="bars", groups="Variant", caption=RATIO,
            x=Axis(title="Workload and configuration", kind="category"), y=Axis(title="Time relative to the baseline"),
        ).noted(note),
        timed, _and(works, labels), lambda row: variants[row.id],
        sorted(set(variants.values()), key=software_place), baseline,
    )  # fmt: skip


def _and(works: Mapping[str, str], places: Mapping[str, str]) -> Callable[[Row], str]:
    """Return what a run did, with where it did where the runs were in several places."""
    several = len(set(places.values())) > 1
    return lambda row: f"{works[row.id]}, {places[row.id]}" if several else works[row.id]


def _against(  # noqa: PLR0917 - one call, read in order
    figure: Figure,
    rows: Sequence[Row],
    x: Callable[[Row], str],
    group: Callable[[Row], str],
    groups: Sequence[str],
    wanted: str,
) -> Figure:
    """Return a figure with the marks of runs over those of the baseline at the same place, of the same provenance."""
    values = estimated(cells(rows, x, group), seconds_a_sample)
    if wanted and wanted not in groups:
        known = ", ".join(groups[:12]) or "none"
        raise Invalid(f"None of these runs has the baseline '{wanted[:60]}'.", errors={"baseline": f"One of: {known}."})
    baseline = wanted or _widest(values, groups)
    marks: list[Mark] = []
    alone: dict[tuple[str | float, str], None] = {}
    for cell, (estimate, runs) in values.items():
        against = values.get(Cell(cell.x, baseline, cell.provenance))
        if against is None:
            alone[cell.x, cell.provenance] = None
        elif cell.group == baseline:
            marks.append(mark_of(cell, Estimate(1.0, None, estimate.count), runs))
        else:
            marks.append(mark_of(cell, estimate.over(against[0]), runs))
    compared = {mark.x for mark in marks if mark.group != baseline}
    bare = dict.fromkeys(str(mark.x) for mark in marks if mark.x not in compared)
    marks = [mark for mark in marks if mark.x in compared]
    missing = [f"{x} ({provenance})" for x, provenance in alone]
    note = f"Without a run of {baseline} to compare with: {_some(missing)}." if missing else ""
    if bare:
        note = f"With nothing but {baseline}: {_some(list(bare))}. {note}".rstrip()
    if len(groups) < 2 and groups:
        note = f"All of these runs have {groups[0]}: there is nothing to compare it with."
        marks = []
    return replace(
        figure,
        marks=sorted_marks(marks, groups=[baseline, *groups]),
        y=Axis(title=f"Time relative to {baseline}" if baseline else figure.y.title),
        interval=BOOTSTRAPPED,
        counts="steps",
        baseline=baseline,
        baselines=tuple(groups),
    ).noted(note)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{'; '.join(names[:MOST_NAMED])}{more}"


def _widest(values: Mapping[Cell, object], groups: Sequence[str]) -> str:
    """Return the group that most others can be compared with, of several the first in order; '' for none."""
    there: dict[tuple[str | float, str], set[str]] = defaultdict(set)
    for cell in values:
        there[cell.x, cell.provenance].add(cell.group)
    compared = {group: sum(len(found) - 1 for found in there.values() if group in found) for group in groups}
    return max(groups, key=lambda group: compared[group], default="")
