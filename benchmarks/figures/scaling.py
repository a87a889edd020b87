"""How throughput grows with threads, batch and accelerators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.figures.cells import BOOTSTRAPPED, cells, estimated, left_out, mark_of, seconds_a_sample
from benchmarks.figures.estimates import Estimate
from benchmarks.figures.labels import configurations, work_of
from benchmarks.figures.rows import Row
from benchmarks.figures.shapes import Axis, Figure, Mark
from benchmarks.model.shapes import LOCAL
from hostwire.training import Spec

FEWEST: Final = 2  # places, for something to grow over
WIDE: Final = 4  # largest over smallest: from here on steps of powers of two


@dataclass(frozen=True)
class _Field:
    """A field of a specification that throughput grows with; `ideal` says what the dotted line is."""

    field: str
    name: str
    title: str
    ideal: str
    value: Callable[[Spec], int]

    def of(self, row: Row) -> int:
        """Return it of a run; 0 where it is not set."""
        return self.value(row.spec) if row.spec is not None else 0


def scaling(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Return throughput by accelerators, by batch, by threads and by loaders: of runs that differ in nothing else."""
    timed = [row for row in rows if row.is_training and seconds_a_sample(row) is not None]
    return tuple(_by(timed, field) for field in _FIELDS)


def _by(rows: Sequence[Row], by: _Field) -> Figure:
    placed = [row for row in rows if by.of(row) > 0]
    works = work_of(placed, but=(by.field,))
    where = {row.id: _places(row) for row in placed} if by.field == "devices" else configurations(placed)
    several = len(set(where.values())) > 1
    names = {row.id: f"{works[row.id]}, {where[row.id]}" if several else works[row.id] for row in placed}
    # Runs that differ in something else besides are no line: each is a place of its own, and left out.
    lines: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in placed:
        lines[names[row.id], row.provenance].add(by.of(row))
    grown = [row for row in placed if len(lines[names[row.id], row.provenance]) >= FEWEST]
    found = estimated(cells(grown, by.of, lambda row: names[row.id]), _throughput)
    marks = sorted((mark_of(cell, *one) for cell, one in found.items()), key=_place)
    numbers = sorted({float(mark.x) for mark in marks})
    is_wide = bool(numbers) and numbers[-1] >= WIDE * numbers[0]
    unset = [row for row in rows if row not in placed]
    return Figure(
        name=by.name,
        title=f"Throughput by {by.title}",
        caption=f"Samples a second over all devices, of runs that differ in {by.title} alone. Dotted: {by.ideal}.",
        kind="points",
        groups="Workload",
        x=Axis(title=by.title.capitalize(), kind="log" if is_wide else "linear"),
        y=Axis(title="Throughput", unit="samples/s", kind="log" if is_wide else "linear"),
        interval=BOOTSTRAPPED,
        counts="steps",
        marks=tuple(marks),
        ideals=_ideals(marks),
    ).noted(left_out(unset, f"whose {by.title} are not set") if grown else "")


def _throughput(row: Row) -> Estimate | None:
    seconds = seconds_a_sample(row)
    return seconds.inverse() if seconds is not None else None


def _place(mark: Mark) -> tuple[str, str, float]:
    return mark.group, mark.provenance, float(mark.x)


def _ideals(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Return what would be in proportion to the first mark of each line, at the places of its others."""
    first: dict[tuple[str, str], Mark] = {}
    for mark in marks:
        first.setdefault((mark.group, mark.provenance), mark)
    return tuple(
        Mark(
            x=mark.x,
            group=mark.group,
            provenance=mark.provenance,
            value=begin.value * float(mark.x) / float(begin.x),
            count=0,
        )
        for mark in marks
        for begin in [first[mark.group, mark.provenance]]
    )


def _places(row: Row) -> str:
    """Return whose the accelerators are, however many."""
    found = {one.place == LOCAL for one in row.topology.accelerators} if row.topology else set()
    if not found:
        return "CPU" if row.topology else "places not recorded"
    return "local and Falcon GPUs" if len(found) > 1 else "local GPUs" if found == {True} else "Falcon GPUs"


_PROPORTION: Final = "in proportion to the fewest"
_FIELDS: Final = (
    _Field("devices", "scaling-devices", "accelerators", _PROPORTION, lambda spec: spec.devices),
    _Field("batch", "scaling-batch", "samples a device", "steps as long as with the fewest", lambda spec: spec.batch),
    _Field("threads", "scaling-threads", "threads a process", _PROPORTION, lambda spec: spec.threads),
    _Field("loader_workers", "scaling-loaders", "loaders a process", _PROPORTION, lambda spec: spec.loader_workers),
)
