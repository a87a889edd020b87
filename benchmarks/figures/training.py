"""Charts of training: relative time, throughput scaling, loss, step times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.figures.charts import (
    BOOTSTRAP_NOTE,
    Chart,
    ChartAxis,
    ChartMark,
    Estimate,
    MarkKey,
    estimate_mark,
    estimate_marks,
    omission_note,
    run_lines,
    runs_by_mark,
    seconds_a_sample,
    sort_marks,
)
from benchmarks.figures.rows import (
    LOSS_KEY,
    MARK_SOURCE_LABELS,
    STEP_SECONDS_KEY,
    STORAGE_LABELS,
    Floats,
    MarkSource,
    RunData,
    arrangement_label,
    combined_labels,
    configuration_labels,
    differing_fields,
    field_label,
    ordered_configurations,
    software_label,
    software_sort_key,
    storage_label,
    work_labels,
)
from benchmarks.figures.utilisation import MAX_LINES
from benchmarks.model.topology import LOCAL
from core.errors import Invalid
from core.language import _, english, gettext_noop, joined

SOFTWARE_FIELDS: Final = ("precision", "gradient", "strategy", "compile", "batch")
MAX_NAMED: Final = 8  # of what a note is about
RATIO_CAPTION: Final = gettext_noop(
    "Time for the same number of samples; below 1 is faster than the baseline. Each ratio is between runs of one "
    "provenance: measured to measured, simulated to simulated."
)


def timed_trainings(rows: Sequence[RunData]) -> tuple[list[RunData], str]:
    """Return the training runs, and a sentence on those without step times."""
    training = [row for row in rows if row.is_training]
    timed = [row for row in training if seconds_a_sample(row) is not None]
    without = [row for row in training if row not in timed]
    return timed, omission_note(without, _("without times of steps, or whose batch is not recorded"))


def time_by_configuration(rows: Sequence[RunData], baseline: str = "") -> Chart:
    """Return training time by configuration relative to a baseline, by workload.

    Raises Invalid for a baseline that no run has.
    """
    timed, note = timed_trainings(rows)
    labels, works = configuration_labels(timed), work_labels(timed, but=("devices",))
    return _relative_chart(
        timed,
        name="relative-time",
        title=_("Training time by configuration"),
        groups=_("Configuration"),
        places=_("Workload"),
        x=works,
        group=labels,
        order=ordered_configurations(labels.values()),
        baseline=baseline,
        notes=(note,),
    )


def time_by_storage(rows: Sequence[RunData], baseline: str = "") -> Chart:
    """Return training time by storage relative to a baseline, for the same workload on the same devices."""
    timed, note = timed_trainings(rows)
    known = [row for row in timed if row.topology is not None]
    storages = {row.id: storage_label(row.topology) for row in known if row.topology}
    return _relative_chart(
        known,
        name="storage-time",
        title=_("Training time by storage"),
        groups=_("Storage"),
        places=_("Workload and devices"),
        x=combined_labels(work_labels(known), {row.id: arrangement_label(row.topology) for row in known}),
        group=storages,
        order=[label for one in STORAGE_LABELS if (label := _(one)) in storages.values()],
        baseline=baseline,
        notes=(
            note,
            omission_note([row for row in timed if row.topology is None], _("whose topology is not recorded")),
        ),
    )


def time_by_software(rows: Sequence[RunData], baseline: str = "") -> Chart:
    """Return training time by software variant against a baseline, for the same workload in the same configuration.

    A batch that differs is part of the variant: sharding leaves room for a larger one.
    """
    timed, note = timed_trainings(rows)
    works, labels = work_labels(timed, but=SOFTWARE_FIELDS), configuration_labels(timed)
    specs: dict[str, list[RunData]] = defaultdict(list)
    for row in timed:
        specs[works[row.id]].append(row)
    variants = {}
    for same in specs.values():
        has_batches = "batch" in differing_fields(row.spec for row in same)
        for row in same:
            if row.spec is not None:  # it has steps that count something
                variant = software_label(row.spec)
                variants[row.id] = (
                    joined([variant, field_label("batch", row.spec.batch)], ", ") if has_batches else variant
                )
    return _relative_chart(
        timed,
        name="software",
        title=_("Training time by software variant"),
        groups=_("Variant"),
        places=_("Workload and configuration"),
        x=combined_labels(works, labels),
        group=variants,
        order=sorted(set(variants.values()), key=software_sort_key),
        baseline=baseline,
        notes=(note,),
    )


def _relative_chart(
    rows: Sequence[RunData],
    *,
    name: str,
    title: str,
    groups: str,
    places: str,
    x: Mapping[str, str],
    group: Mapping[str, str],
    order: Sequence[str],
    baseline: str,
    notes: Sequence[str],
) -> Chart:
    """Return the times of runs over those of the baseline at the same place, of the same provenance.

    `x` and `group` have the place and the group of each run by its id, `order` all groups. The `baseline` is one of
    them, '' for the one that is comparable with the most others.
    """
    found = runs_by_mark(rows, lambda row: x[row.id], lambda row: group[row.id])
    values = estimate_marks(found, seconds_a_sample)
    chosen = next((one for one in order if baseline in {one, english(one)}), "")
    if baseline and not chosen:
        raise Invalid(
            _("None of these runs has the baseline '{baseline}'.", baseline=baseline[:60]),
            errors={"baseline": _("One of: {choices}.", choices=joined(order[:12], ", ") or _("none"))},
        )
    baseline = chosen or _default_baseline(values, order)
    marks: list[ChartMark] = []
    alone: dict[tuple[str | float, MarkSource], None] = {}
    for cell, (estimate, runs) in values.items():
        against = values.get(MarkKey(cell.x, baseline, cell.provenance))
        if against is None:
            alone[cell.x, cell.provenance] = None
        elif cell.group == baseline:
            marks.append(estimate_mark(cell, Estimate(1.0, None, estimate.count), runs))
        else:
            marks.append(estimate_mark(cell, estimate.over(against[0]), runs))
    compared = {mark.x for mark in marks if mark.group != baseline}
    bare = dict.fromkeys(str(mark.x) for mark in marks if mark.x not in compared)
    marks = [mark for mark in marks if mark.x in compared]
    missing = [f"{x} ({_(MARK_SOURCE_LABELS[provenance])})" for x, provenance in alone]
    found_notes: list[str] = []
    if bare:
        found_notes.append(_("Only {baseline}: {places}.", baseline=baseline, places=_shortened_list(list(bare))))
    if missing:
        found_notes.append(
            _(
                "Without a run of {baseline} to compare with: {places}.",
                baseline=baseline,
                places=_shortened_list(missing),
            )
        )
    note = joined(found_notes)
    if len(order) == 1:
        note = _("All of these runs have {group}: there is nothing to compare with.", group=order[0])
        marks = []
    return Chart(
        name=name,
        title=title,
        kind="bars",
        groups=groups,
        caption=_(RATIO_CAPTION),
        x=ChartAxis(title=places, kind="category"),
        y=ChartAxis(title=_("Time relative to {baseline}", baseline=baseline or _("the baseline"))),
        marks=sort_marks(marks, groups=[baseline, *order]),
        interval=_(BOOTSTRAP_NOTE),
        counts=_("steps"),
        baseline=baseline,
        baselines=tuple(order),
    ).with_notes(*notes, note)


def _shortened_list(names: Sequence[str]) -> str:
    shown, rest = "; ".join(names[:MAX_NAMED]), len(names) - MAX_NAMED
    return _("{names} and {count} more", names=shown, count=rest) if rest > 0 else shown


def _default_baseline(values: Mapping[MarkKey, object], groups: Sequence[str]) -> str:
    """Return the group that is comparable with the most others, the first in order of several; '' for none."""
    there: dict[tuple[str | float, str], set[str]] = defaultdict(set)
    for cell in values:
        there[cell.x, cell.provenance].add(cell.group)
    compared = {group: sum(len(found) - 1 for found in there.values() if group in found) for group in groups}
    return max(groups, key=lambda group: compared[group], default="")


MIN_PLACES: Final = 2  # places, for something to grow over
LOG_SCALE_RATIO: Final = 4  # largest over smallest, above which the axis is logarithmic


@dataclass(frozen=True)
class _ScalingField:
    """A field of a specification that throughput scales with; `ideal` describes the dotted line."""

    field: str
    name: str
    title: str
    ideal: str

    def of(self, row: RunData) -> int:
        """Return it of a run; 0 where it is not set."""
        value: int = getattr(row.spec, self.field, 0)
        return value


def throughput_scaling(rows: Sequence[RunData]) -> tuple[Chart, ...]:
    """Return throughput by accelerators, batch, threads and loaders, each over runs that differ in it alone."""
    timed, _ = timed_trainings(rows)
    return tuple(_scaling_chart(timed, field) for field in _SCALING_FIELDS)


def _scaling_chart(rows: Sequence[RunData], by: _ScalingField) -> Chart:
    placed = [row for row in rows if by.of(row) > 0]
    works = work_labels(placed, but=(by.field,))
    where = (
        {row.id: _accelerator_location(row) for row in placed}
        if by.field == "devices"
        else configuration_labels(placed)
    )
    names = combined_labels(works, where)
    # Runs that also differ in another field do not form a line, and are left out.
    lines: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in placed:
        lines[names[row.id], row.provenance].add(by.of(row))
    grown = [row for row in placed if len(lines[names[row.id], row.provenance]) >= MIN_PLACES]
    found = estimate_marks(runs_by_mark(grown, by.of, lambda row: names[row.id]), _throughput)
    marks = [estimate_mark(cell, *one) for cell, one in found.items()]
    marks.sort(key=lambda mark: (mark.group, mark.provenance, float(mark.x)))
    numbers = sorted({float(mark.x) for mark in marks})
    is_wide = bool(numbers) and numbers[-1] >= LOG_SCALE_RATIO * numbers[0]
    unset, title = [row for row in rows if row not in placed], _(by.title)
    return Chart(
        name=by.name,
        title=_("Throughput by {field}", field=_(by.title)),
        caption=_(
            "Samples a second over all devices, of runs that differ in {field} alone. Dotted: {ideal}.",
            field=_(by.title),
            ideal=_(by.ideal),
        ),
        kind="points",
        groups=_("Workload"),
        x=ChartAxis(title=title[:1].upper() + title[1:], kind="log" if is_wide else "linear"),
        y=ChartAxis(title=_("Throughput"), unit="samples/s", kind="log" if is_wide else "linear"),
        interval=_(BOOTSTRAP_NOTE),
        counts=_("steps"),
        marks=tuple(marks),
        ideals=_ideals(marks),
    ).with_notes(omission_note(unset, _("whose {field} are not set", field=_(by.title))) if grown else "")


def _throughput(row: RunData) -> Estimate | None:
    seconds = seconds_a_sample(row)
    return seconds.inverse() if seconds is not None else None


def _ideals(marks: Sequence[ChartMark]) -> tuple[ChartMark, ...]:
    """Return linear scaling from the first mark of each line, at the places of its other marks."""
    first: dict[tuple[str, str], ChartMark] = {}
    for mark in marks:
        first.setdefault((mark.group, mark.provenance), mark)
    begins = [first[mark.group, mark.provenance] for mark in marks]
    return tuple(
        ChartMark(
            x=mark.x,
            group=mark.group,
            provenance=mark.provenance,
            value=begin.value * float(mark.x) / float(begin.x),
            count=0,
        )
        for mark, begin in zip(marks, begins, strict=True)
    )


def _accelerator_location(row: RunData) -> str:
    """Return the location of the accelerators, without their number."""
    found = {one.place == LOCAL for one in row.topology.accelerators} if row.topology else set()
    if not found:
        return "CPU" if row.topology else _("places not recorded")
    return _("local and Falcon GPUs") if len(found) > 1 else _("local GPUs") if found == {True} else _("Falcon GPUs")


_PROPORTION: Final = gettext_noop("in proportion to the fewest")
_SCALING_FIELDS: Final = (
    _ScalingField("devices", "scaling-devices", gettext_noop("accelerators"), _PROPORTION),
    _ScalingField(
        "batch", "scaling-batch", gettext_noop("samples a device"), gettext_noop("steps as long as with the fewest")
    ),
    _ScalingField("threads", "scaling-threads", gettext_noop("threads a process"), _PROPORTION),
    _ScalingField("loader_workers", "scaling-loaders", gettext_noop("loaders a process"), _PROPORTION),
    _ScalingField("cores", "scaling-cores", gettext_noop("cores a host"), _PROPORTION),
)

LOSS_POINTS: Final = 300  # of a line over steps
STEP_PERCENTILES: Final = tuple(range(0, 101, 2))  # percentiles


def loss_chart(rows: Sequence[RunData]) -> Chart:
    """Return the loss over the timed steps; of long runs each point is the mean of some steps."""
    having = [row for row in rows if LOSS_KEY in row.keys and np.isfinite(row.read(LOSS_KEY)[1]).any()]
    drawn = having[:MAX_LINES]
    columns = {row.id: row.read(LOSS_KEY)[1] for row in drawn}
    size = max(1, -(-max((len(one) for one in columns.values()), default=0) // LOSS_POINTS))
    places = -(-max((len(one) for one in columns.values()), default=0) // size)
    return Chart(
        name="loss",
        title=_("Loss over steps"),
        caption=_("Loss of the timed steps, as reported by rank 0.")
        if size == 1
        else _("Loss of the timed steps, as reported by rank 0. Each point is the mean of {count}.", count=size),
        kind="lines",
        groups=_("Run"),
        x=ChartAxis(title=_("Step")),
        y=ChartAxis(title=_("Loss")),
        at=tuple(float(place * size + 1) for place in range(places)),
        lines=run_lines(drawn, lambda row: _bucket_means(columns[row.id], size, places)),
    ).with_notes(
        omission_note([row for row in rows if row not in having], _("without a loss")),
        omission_note(having[MAX_LINES:], _("since a chart has at most {most} lines", most=MAX_LINES)),
    )


def _bucket_means(values: Floats, size: int, places: int) -> list[float]:
    parts = (values[place * size : (place + 1) * size] for place in range(places))
    known = [part[np.isfinite(part)] for part in parts]
    return [float(part.mean()) if len(part) else np.nan for part in known]


def step_time_chart(rows: Sequence[RunData]) -> Chart:
    """Return the distribution of step times: the time that a share of them stayed below."""
    having = [row for row in rows if len(row.steps()) > 1]
    drawn = having[:MAX_LINES]
    return Chart(
        name="step-time",
        title=_("Distribution of step times"),
        caption=_(
            "The maximum time of the fastest share of a run's timed steps: the middle is the median, a steep right "
            "end shows a few long steps."
        ),
        kind="lines",
        groups=_("Run"),
        x=ChartAxis(title=_("Share of steps"), unit="%"),
        y=ChartAxis(title=_("Step time"), unit="s"),
        at=tuple(float(share) for share in STEP_PERCENTILES) if drawn else (),
        lines=run_lines(drawn, lambda row: np.percentile(row.steps(), STEP_PERCENTILES)),
    ).with_notes(
        omission_note(
            [row for row in rows if row not in having and STEP_SECONDS_KEY not in row.keys],
            _("without times of single steps"),
        ),
        omission_note(having[MAX_LINES:], _("since a chart has at most {most} lines", most=MAX_LINES)),
    )
