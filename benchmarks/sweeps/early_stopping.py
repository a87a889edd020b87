"""Points that another one dominates, and skipping them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from benchmarks.runs.models import Run
from benchmarks.runs.results import summary_of
from benchmarks.sweeps.grid import EARLY_OBJECTIVES, EarlyStopping
from benchmarks.sweeps.models import Point, Sweep


def skip_dominated(sweep: Sweep, early: EarlyStopping) -> int:
    """Skip waiting points that a completed point dominates; return their number."""
    points = {point.position: point for point in Point.objects.filter(sweep=sweep)}
    runs = Run.objects.filter(sweep=sweep, state=Run.State.COMPLETED).order_by("-finished_at")
    shown = [one for run in runs if (one := _measured_estimate(run, points.get(run.position))) is not None]
    if not shown:
        return 0
    # A repeat counts as its first run.
    measured = {_repeat_key(points[one.position]): one for one in shown}
    skipped = 0
    for point in points.values():
        if point.state != Point.State.WAITING:
            continue
        of_repeat = measured.get(_repeat_key(point))
        standing = of_repeat if of_repeat is not None else _predicted_estimate(point)
        if standing is None or (other := dominating_point(standing, shown, early)) is None:
            continue
        skipped += Point.objects.filter(pk=point.pk, state=Point.State.WAITING).update(
            state=Point.State.SKIPPED, sentence=skip_reason(standing, other, early)
        )
    return skipped


def point_label(values: dict[str, Any]) -> str:
    """Return a point's values as text: 'batch 64, count 4'."""
    return ", ".join(f"{axis} {values[axis]}" for axis in ("count", "batch", "precision") if axis in values)


def _measured_estimate(run: Run, point: Point | None) -> PointEstimate | None:
    figure = summary_of(run).samples_per_second
    if point is None or figure is None or figure.low <= 0:
        return None
    source: EstimateSource = "simulated" if run.provenance == Run.Provenance.SIMULATED else "measured"
    return _point_estimate(point, 1 / figure.high, 1 / figure.low, source)


def _predicted_estimate(point: Point) -> PointEstimate | None:
    predicted = point.predicted
    if not predicted:
        return None
    samples = predicted["samples_per_second"] * predicted["step_seconds"]  # of one step
    return _point_estimate(point, predicted["low"] / samples, predicted["high"] / samples, "predicted")


def _point_estimate(point: Point, low: float, high: float, source: EstimateSource) -> PointEstimate:
    spec = point.specification()
    # Another size is another task: a smaller one does not dominate a larger one.
    family = f"{spec.workload} {msgspec.json.encode(spec.options, order='sorted').decode()}"
    return PointEstimate(
        position=point.position,
        name=point_label(point.values),
        family=family,
        devices=spec.devices,
        low=low,
        high=high,
        source=source,
    )


def _repeat_key(point: Point) -> str:
    """Return the key that a point shares with its repeats."""
    identity = {"spec": point.spec, "composition": point.composition}
    return msgspec.json.encode(identity, order="sorted").decode()


EstimateSource = Literal["measured", "simulated", "predicted"]


@dataclass(frozen=True, kw_only=True)
class PointEstimate:
    """The estimate for a point: seconds a sample between `low` and `high`, the number of devices, and its basis.

    Only points of one `family` (a workload at one size) are compared.
    """

    position: int
    name: str
    family: str
    devices: int
    low: float
    high: float
    source: EstimateSource


def dominating_point(one: PointEstimate, others: Iterable[PointEstimate], early: EarlyStopping) -> PointEstimate | None:
    """Return the point that dominates this one in all objectives, the fastest of several; None without any.

    For time, the other's interval must be entirely below this one's; for devices, it must have no more. A point that is
    only predicted does not dominate.
    """
    if one.source == "predicted" and not early.predicted:
        return None
    better = [
        other
        for other in others
        if other.position != one.position
        and other.family == one.family
        and other.source != "predicted"
        and all(_is_better(other, one, objective) for objective in early.objectives)
    ]
    return min(better, key=lambda other: (other.high, other.position), default=None)


def skip_reason(one: PointEstimate, other: PointEstimate, early: EarlyStopping) -> str:
    """Return the reason why a point is skipped, as a sentence."""
    aims = " and ".join(EARLY_OBJECTIVES[objective] for objective in early.objectives)
    how = "predicted" if one.source == "predicted" else f"{one.source} before"
    return (
        f"Skipped: worse than point {other.position + 1} ({other.name}) in {aims}. {how.capitalize()}: "
        f"{_interval_text(one)} a sample on {_device_count_text(one.devices)}; "
        f"that one took {_interval_text(other)} on {_device_count_text(other.devices)}, {other.source}."
    )


def _is_better(other: PointEstimate, one: PointEstimate, objective: str) -> bool:
    if objective == "devices":
        return other.devices <= one.devices
    if objective == "device_time":
        return other.high * other.devices < one.low * one.devices
    return other.high < one.low


def _interval_text(one: PointEstimate) -> str:
    return f"{one.low * 1000:.4g} to {one.high * 1000:.4g} ms"


def _device_count_text(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"
