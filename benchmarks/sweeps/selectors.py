"""The sweeps that a person sees: the list, one sweep with its points, the results of its runs and how they scale."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.visibility import visible_or_404
from benchmarks.runs.models import Run
from benchmarks.runs.results import Statistic, Summary, summary_of
from benchmarks.runs.rules import Composition
from benchmarks.sweeps.grid import AXIS_LABELS, SweepGrid, varied_axes
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.placement import DEVICES_PREFIX, DRAWER_PREFIX, HOST_STORAGE, OWN_DRIVE_STORAGE
from benchmarks.workloads.catalogue import CATALOGUE
from core.errors import Invalid
from core.language import _, _n, gettext_noop
from fabric.inventory.models import Device, Drawer, Host

MAX_TEXT_LENGTH: Final = 200
SORT_FIELDS: Final = {
    "title": "title", "state": "state", "person": "requested_by_name", "created": "created_at",
    "finished": "finished_at",
}  # fmt: skip
CSV_COLUMNS: Final = (
    "id", "title", "state", "runs", "waiting", "open", "completed", "failed", "cancelled", "skipped", "left_out",
    "person", "created_at", "finished_at", "sentence",
)  # fmt: skip
POINT_STATES: Final = (
    gettext_noop("waiting"),
    "open",
    gettext_noop("completed"),
    gettext_noop("failed"),
    gettext_noop("cancelled"),
    gettext_noop("skipped"),
)
POINT_SORT_FIELDS: Final = ("position", "state", "samples_per_second", "step_seconds")
POINT_CSV_COLUMNS: Final = (
    "position", "state", "values", "run_id", "provenance", "step_seconds_median", "step_seconds_p5",
    "step_seconds_p95", "samples_per_second", "predicted_step_seconds", "predicted_low", "predicted_high", "sentence",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PointStatus:
    """A point with its state of POINT_STATES, its newest run, and the results of that run."""

    position: int
    values: dict[str, Any]
    state: str
    sentence: str
    composition: Composition
    predicted: dict[str, float]
    run: Run | None = None
    figures: Summary | None = None  # of a completed run

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return self.position + 1

    @property
    def state_words(self) -> str:
        """The label of its state, or of the state of its open run."""
        return self.run.get_state_display() if self.state == "open" and self.run is not None else _(self.state)

    @property
    def rate(self) -> Statistic | None:
        """The samples a second of its run."""
        return self.figures.samples_per_second if self.figures is not None else None

    @property
    def step_ms(self) -> Statistic | None:
        """The step of its run, ms."""
        steps: Statistic | None = self.figures.step_seconds if self.figures is not None else None
        return _milliseconds(steps.value, steps.low, steps.high) if steps is not None else None

    @property
    def predicted_ms(self) -> Statistic | None:
        """The predicted step with its 90 % interval, ms."""
        found = self.predicted
        return _milliseconds(found["step_seconds"], found["low"], found["high"]) if found else None


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
    """The progress of a sweep: the number of points in each state."""

    counts: Mapping[str, int]

    @classmethod
    def of(cls, states: Iterable[str]) -> SweepProgress:
        """Return the progress of a sweep whose points are in these states."""
        found = Counter(states)
        return cls(counts={state: found[state] for state in POINT_STATES})

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """The number of points that need no further run."""
        return self.total - self.counts["waiting"] - self.counts["open"]

    @property
    def percent(self) -> int:
        """The share of points that need no further run, in percent."""
        return 100 * self.ended // self.total if self.total else 0


def sweep_list(person: User, *, search: str = "", state: str = "", sort: str = "") -> QuerySet[Sweep]:
    """Return the sweeps that a person sees, newest first unless sorted; raises Invalid."""
    rows: QuerySet[Sweep] = Sweep.objects.visible_to(person)
    if "\0" in search:
        raise Invalid(_("The text to search for cannot be used."), errors={"q": _("It has a NUL.")})
    for word in search[:MAX_TEXT_LENGTH].split():
        rows = rows.filter(Q(title__icontains=word) | Q(requested_by_name__icontains=word))
    if state:
        if state not in Sweep.State.values:
            raise Invalid(
                _("There is no such state."),
                errors={"state": _("One of {choices}.", choices=", ".join(Sweep.State.values))},
            )
        rows = rows.filter(state=state)
    if not sort:
        return rows.order_by("-created_at", "pk")
    name = sort.removeprefix("-")
    if name not in SORT_FIELDS:
        raise Invalid(
            _("There is no such order."),
            errors={"sort": _("One of {choices}, or with '-' before it.", choices=", ".join(SORT_FIELDS))},
        )
    return rows.order_by(f"{'-' if sort.startswith('-') else ''}{SORT_FIELDS[name]}", "pk")


def sweep_get(person: User, pk: UUID) -> Sweep:
    """Return a sweep; raises NotFound for one that the person may not see."""
    row: Sweep = visible_or_404(Sweep.objects.select_related("requested_by"), person, pk, "sweep")
    return row


def progress_of_sweeps(sweeps: Sequence[Sweep]) -> dict[UUID, SweepProgress]:
    """Return the progress of sweeps; two queries for any number of them."""
    newest: dict[tuple[UUID, int], str] = {}
    states: dict[UUID, list[str]] = {sweep.pk: [] for sweep in sweeps}
    runs = Run.objects.filter(sweep__in=states).order_by("queued_at", "pk").values_list("sweep", "position", "state")
    for sweep, position, state in runs:
        newest[sweep, position] = state
    points = Point.objects.filter(sweep__in=states).values_list("sweep", "position", "state")
    for sweep, position, state in points:
        states[sweep].append(_point_state(state, newest.get((sweep, position))))
    return {pk: SweepProgress.of(some) for pk, some in states.items()}


def point_list(sweep: Sweep) -> list[PointStatus]:
    """Return the points of a sweep in their order; two queries."""
    runs: dict[int, Run] = {}
    for run in Run.objects.filter(sweep=sweep).select_related("host").order_by("queued_at", "pk"):
        runs[run.position] = run
    return [_point_status(point, runs.get(point.position)) for point in Point.objects.filter(sweep=sweep)]


def point_filter(points: Sequence[PointStatus], *, state: str = "", sort: str = "") -> list[PointStatus]:
    """Return the points in a state, sorted; raises Invalid. Points without results come last."""
    if state and state not in POINT_STATES:
        raise Invalid(
            _("There is no such state."), errors={"state": _("One of {choices}.", choices=", ".join(POINT_STATES))}
        )
    name = sort.removeprefix("-") or "position"
    if name not in POINT_SORT_FIELDS:
        raise Invalid(
            _("There is no such order."), errors={"sort": _("One of {choices}.", choices=", ".join(POINT_SORT_FIELDS))}
        )
    found = [one for one in points if not state or one.state == state]
    if name in {"position", "state"}:
        return sorted(found, key=lambda one: getattr(one, name), reverse=sort.startswith("-"))
    shown = [one for one in found if _point_statistic(one, name) is not None]
    shown.sort(key=lambda one: _point_statistic(one, name).value, reverse=sort.startswith("-"))
    return shown + [one for one in found if _point_statistic(one, name) is None]


def sweep_scaling(points: Sequence[PointStatus], sweep: Sweep, names: dict[str, dict[Any, str]]) -> list[ScalingChart]:
    """Return throughput along each numeric axis that a sweep varies; `names` are those of `axis_value_labels`.

    A mark has one provenance. Repeats of a point are one mark: their median, with the union of their intervals.
    """
    varied = varied_axes(SweepGrid.from_json(sweep.grid))
    # Including points without results: their charts fill while the sweep runs.
    workloads = list(dict.fromkeys(str(one.values["workload"]) for one in points if "workload" in one.values))
    along = [(axis, workload) for axis in SCALING_AXES if axis in varied for workload in workloads]
    return [
        _scaling_chart(axis, workload, points=points, varied=varied, names=names)
        for axis, workload in along[:MAX_CHARTS]
    ]


def axis_value_labels(person: User, values: Sequence[Mapping[str, Any]]) -> dict[str, dict[Any, str]]:
    """Return the labels of hosts, placements, drives and workloads among the values of axes; three queries.

    Hosts, drawers and drives that the person does not see have no label.
    """
    hosts = {one["host"] for one in values if "host" in one}
    places = {str(one["placement"]) for one in values if "placement" in one}
    drawers = {
        int(one.removeprefix(DRAWER_PREFIX)): one for one in places if one.removeprefix(DRAWER_PREFIX).isdecimal()
    }
    drives = {str(one["storage"]) for one in values if ":" in str(one.get("storage", ""))}
    ids = {int(one.partition(":")[2]): one for one in drives if one.partition(":")[2].isdecimal()}
    seen = Device.objects.visible_to(person).filter(pk__in=ids).values_list("pk", "name")
    placed = Drawer.objects.visible_to(person).filter(pk__in=drawers).select_related("chassis")
    return {
        "host": dict(Host.objects.visible_to(person).filter(pk__in=hosts).values_list("pk", "name")),
        "placement": {
            "cpu": _("CPU only"),
            "local": _("own GPUs"),
            "spread": _("all drawers"),
            "hybrid": _("half own, half drawers"),
            **{one: _("devices as named") for one in places if one.startswith(DEVICES_PREFIX)},
            **{drawers[row.pk]: f"{row.chassis.name} {row.name}" for row in placed},
        },
        "storage": {
            HOST_STORAGE: _("the host’s storage"),
            OWN_DRIVE_STORAGE: _("the host’s own NVMe drive"),
            **{ids[pk]: name for pk, name in seen},
        },
        "workload": {name: _(workload.title) for name, workload in CATALOGUE.items()},
    }  # fmt: skip


def remaining_time(points: Sequence[PointStatus], sweep: Sweep) -> tuple[timedelta | None, str]:
    """Return the remaining time of a sweep, and the basis of the estimate; None if unknown."""
    rest = [one for one in points if one.state in {"waiting", "open"}]
    ended = [one.run for one in points if one.run is not None and one.run.state == Run.State.COMPLETED]
    took = [(run.finished_at - run.queued_at).total_seconds() for run in ended if run.finished_at is not None]
    if not rest or sweep.state != Sweep.State.RUNNING:
        return None, ""
    side_by_side = max(1, min(len({one.composition.host for one in rest}), SweepGrid.from_json(sweep.grid).at_once))
    if took:
        seconds = sum(took) / len(took) * len(rest) / side_by_side
        return timedelta(seconds=seconds), _n(
            "by the {count} runs that have completed", "by the {count} runs that have completed", len(took)
        )
    steps = [one.predicted["step_seconds"] for one in rest if one.predicted]
    if len(steps) < len(rest):
        return None, ""
    spec_steps = {one.position: one for one in Point.objects.filter(sweep=sweep)}
    seconds = sum(
        one.predicted["step_seconds"]
        * (spec_steps[one.position].spec.get("steps", 10) + spec_steps[one.position].spec.get("warmup", 3))
        for one in rest
    )
    return timedelta(seconds=seconds / side_by_side), _("predicted, composing left out")


def point_rows(points: Sequence[PointStatus]) -> Iterator[tuple[object, ...]]:
    """Yield points as table rows; seconds, samples a second."""
    for one in points:
        steps = one.figures.step_seconds if one.figures is not None else None
        yield (
            one.number, one.state, ", ".join(f"{axis}={value}" for axis, value in one.values.items()),
            one.run.pk if one.run is not None else "", one.run.provenance if one.run is not None else "",
            *((steps.value, steps.low, steps.high) if steps is not None else ("", "", "")),
            one.rate.value if one.rate is not None else "",
            one.predicted.get("step_seconds", ""), one.predicted.get("low", ""), one.predicted.get("high", ""),
            one.sentence,
        )  # fmt: skip


def sweep_rows(rows: QuerySet[Sweep]) -> Iterator[tuple[object, ...]]:
    """Yield sweeps as table rows."""
    sweeps = list(rows)
    progress = progress_of_sweeps(sweeps)
    for sweep in sweeps:
        found = progress[sweep.pk]
        yield (
            sweep.pk, sweep.title, sweep.state, found.total, *found.counts.values(),
            sweep.left_out_count, sweep.requested_by_name, sweep.created_at.isoformat(),
            sweep.finished_at.isoformat() if sweep.finished_at else "", sweep.sentence,
        )  # fmt: skip


def _point_status(point: Point, run: Run | None) -> PointStatus:
    state = _point_state(point.state, run.state if run is not None else None)
    sentence = point.sentence
    if not sentence and run is not None:
        sentence = run.error or (run.sentence if run.is_open else "")
    return PointStatus(
        position=point.position,
        values=point.values,
        state=state,
        sentence=sentence,
        composition=Composition.from_json(point.composition),
        predicted=point.predicted,
        run=run,
        figures=summary_of(run) if run is not None and run.state == Run.State.COMPLETED else None,
    )


def _point_state(point: str, run: str | None) -> str:
    """Return the state of a point, from itself and its newest run."""
    if point == Point.State.SKIPPED:
        return "skipped"
    if run is not None and run not in Run.FINAL:
        return "open"
    if point == Point.State.WAITING:
        return "waiting"
    # Its run was deleted by a user, so it is not run again.
    return run if run is not None else "cancelled"


def _milliseconds(value: float, low: float, high: float) -> Statistic:
    return Statistic(value=1000 * value, low=1000 * low, high=1000 * high, unit="ms")


def _point_statistic(one: PointStatus, name: str) -> Any:
    return getattr(one.figures, name) if one.figures is not None else None


SCALING_AXES: Final = {  # with their names within a sentence
    "count": gettext_noop("devices"),
    "batch": gettext_noop("batch"),
    "threads": gettext_noop("cpu threads"),
    "loader_workers": gettext_noop("loader processes"),
    "cores": gettext_noop("cpu cores"),
    "accumulation": gettext_noop("accumulation"),
}
MAX_LINES: Final = 12
MAX_CHARTS: Final = 24


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
    by: str
    workload: str
    of: str
    lines: tuple[ScalingLine, ...]
    more: int = 0


def _scaling_chart(
    axis: str,
    workload: str,
    *,
    points: Sequence[PointStatus],
    varied: Sequence[str],
    names: dict[str, dict[Any, str]],
) -> ScalingChart:
    others = [name for name in varied if name not in {axis, "repeat", "workload"}]
    lines: dict[tuple[str, str], dict[float, list[Statistic]]] = {}
    for one in points:
        if one.rate is None or one.run is None or one.values["workload"] != workload:
            continue
        name = ", ".join(value_label(other, one.values.get(other), names) for other in others)
        line = lines.setdefault((name, one.run.provenance), {})
        line.setdefault(float(one.values[axis]), []).append(one.rate)
    made = [
        ScalingLine(
            name=name or _("All"),
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
        words=_(AXIS_LABELS[axis]),
        by=_(SCALING_AXES[axis]),
        workload=workload,
        of=value_label("workload", workload, names),
        lines=tuple(line for line in made if line in fullest),
        more=max(0, len(made) - MAX_LINES),
    )


def _scaling_mark(x: float, rates: Sequence[Statistic]) -> ScalingMark:
    return ScalingMark(
        x=x,
        rate=statistics.median(one.value for one in rates),
        low=min(one.low for one in rates),
        high=max(one.high for one in rates),
        runs=len(rates),
    )


VALUE_LABELS: Final = {
    "batch": gettext_noop("batch {number}"),
    "threads": gettext_noop("{number} threads"),
    "loader_workers": gettext_noop("{number} loaders"),
    "cores": gettext_noop("{number} cores"),
    "accumulation": gettext_noop("{number} batches"),
    "repeat": gettext_noop("repeat {number}"),
}


def value_label(axis: str, value: Any, words: dict[str, dict[Any, str]]) -> str:
    """Return a self-explanatory label of an axis value: 'batch 64'; `words` has the labels of named values."""
    named = words.get(axis, {}).get(value)
    if named is not None:
        return named
    if axis == "compile":
        return _("compiled") if value else _("not compiled")
    if axis == "count":
        return _n("{count} device", "{count} devices", value)
    label = VALUE_LABELS.get(axis)
    return _(label, number=value) if label is not None else str(value)
