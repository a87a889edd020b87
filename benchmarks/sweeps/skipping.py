"""Which points of a sweep are skipped, by what its runs have shown and what is predicted of the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.runs.models import Run
from benchmarks.runs.summary import summary_of
from benchmarks.sweeps.early import Early, Known, Standing, beaten_by, why_skipped
from benchmarks.sweeps.models import Point, Sweep


def skip_beaten(sweep: Sweep, early: Early) -> int:
    """Skip the points that wait and that another, which has run, clearly beats; returns how many."""
    points = {point.position: point for point in Point.objects.filter(sweep=sweep)}
    shown = [one for run in _completed(sweep) if (one := _shown(run, points.get(run.position))) is not None]
    if not shown:
        return 0
    # A point that is repeated is as its first repeat was.
    measured = {_alike(points[one.position]): one for one in shown}
    skipped = 0
    for point in points.values():
        if point.state != Point.State.WAITING:
            continue
        of_repeat = measured.get(_alike(point))
        standing = of_repeat if of_repeat is not None else _predicted(point)
        if standing is None or (other := beaten_by(standing, shown, early)) is None:
            continue
        skipped += Point.objects.filter(pk=point.pk, state=Point.State.WAITING).update(
            state=Point.State.SKIPPED, sentence=why_skipped(standing, other, early)
        )
    return skipped


def name_of(values: dict[str, Any]) -> str:
    """Return a point's values in a line: 'batch 64, count 4'."""
    return ", ".join(f"{axis} {values[axis]}" for axis in ("count", "batch", "precision") if axis in values)


def _completed(sweep: Sweep) -> list[Run]:
    return list(Run.objects.filter(sweep=sweep, state=Run.State.COMPLETED).order_by("-finished_at"))


def _shown(run: Run, point: Point | None) -> Standing | None:
    figure = summary_of(run).samples_per_second
    if point is None or figure is None or figure.low <= 0:
        return None
    known: Known = "simulated" if run.provenance == Run.Provenance.SIMULATED else "measured"
    return _standing(point, 1 / figure.high, 1 / figure.low, known)


def _predicted(point: Point) -> Standing | None:
    told = point.predicted
    if not told:
        return None
    samples = told["samples_per_second"] * told["step_seconds"]  # of one step
    return _standing(point, told["low"] / samples, told["high"] / samples, "predicted")


def _standing(point: Point, low: float, high: float, known: Known) -> Standing:
    spec = point.specification()
    # At another size it is another task: nobody gives up the larger one because the smaller is quicker.
    family = f"{spec.workload} {msgspec.json.encode(spec.options, order='sorted').decode()}"
    return Standing(
        position=point.position,
        name=name_of(point.values),
        family=family,
        devices=spec.devices,
        low=low,
        high=high,
        known=known,
    )


def _alike(point: Point) -> str:
    """Return what a point shares with its repeats."""
    told = {"spec": point.spec, "composition": point.composition}
    return msgspec.json.encode(told, order="sorted").decode()
