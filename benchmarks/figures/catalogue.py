"""The catalogue of figures: their requirements, options and drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.figures.bandwidth import DEVICE_LINK_PREFIX, gpu_pair_charts, has_pairs, traffic_by_workload
from benchmarks.figures.bandwidth import STORAGE_WORKLOAD as STORAGE_READ
from benchmarks.figures.bandwidth import storage_read_chart as storage_reading
from benchmarks.figures.charts import Chart
from benchmarks.figures.rows import (
    LOSS_KEY,
    STEP_SECONDS_KEY,
    RunData,
    configuration_label,
    is_reading,
    software_label,
    storage_label,
)
from benchmarks.figures.training import (
    loss_chart,
    step_time_chart,
    throughput_scaling,
    time_by_configuration,
    time_by_software,
    time_by_storage,
)
from benchmarks.figures.utilisation import reading_over_time, use_by_configuration
from core.errors import Invalid
from core.language import _, gettext_noop
from hostwire.training import READINGS

MAX_MARKS: Final = 400  # of one chart


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """The chosen options of a figure: see `FigureDefinition.options` for those that apply."""

    baseline: str = ""
    time: str = "share"
    reading: str = "utilisation"
    published: bool = False


@dataclass(frozen=True, kw_only=True)
class FigureDefinition:
    """A figure of the catalogue: some charts on one page. `needs` ends the sentence 'Not available: requires ...'.

    `options` are the names of the options that apply, `overlays` the optional additions to runs. `uses` returns whether
    a run can be in it; `varied`, if set, must have more than one value among the runs for a comparison.
    """

    name: str
    title: str
    about: str
    needs: str
    uses: Callable[[RunData], bool]
    draw: Callable[[Sequence[RunData], FigureOptions], tuple[Chart, ...]]
    options: tuple[str, ...] = ()
    varied: Callable[[RunData], object] | None = None
    overlays: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureAvailability:
    """A figure of the catalogue with the number of usable runs; `is_ready` if they are sufficient."""

    entry: FigureDefinition
    count: int
    is_ready: bool


def validate_options(options: FigureOptions) -> None:
    """Raise Invalid for invalid options."""
    if options.time not in TIME_SCALES:
        raise Invalid(
            _("The time is shown in another way."),
            errors={"time": _("One of {choices}.", choices=", ".join(TIME_SCALES))},
        )
    if options.reading not in READINGS:
        raise Invalid(
            _("There is no such reading."), errors={"reading": _("One of {choices}.", choices=", ".join(READINGS))}
        )


def figure_availability(rows: Sequence[RunData]) -> list[FigureAvailability]:
    """Return all figures, each with the number of usable runs."""
    found = []
    for entry in FIGURES.values():
        used = [row for row in rows if entry.uses(row)]
        is_ready = bool(used) and (entry.varied is None or len({entry.varied(row) for row in used}) > 1)
        found.append(FigureAvailability(entry, len(used), is_ready))
    return found


def limit_marks(figure: Chart) -> Chart:
    """Return a figure limited to MAX_MARKS marks."""
    if len(figure.marks) <= MAX_MARKS:
        return figure
    rest = len(figure.marks) - MAX_MARKS
    shorter = replace(figure, marks=figure.marks[:MAX_MARKS], ideals=())
    return shorter.with_notes(
        _("{count} marks are left out: a chart has at most {most}. Choose fewer runs.", count=rest, most=MAX_MARKS)
    )


def _has_steps(row: RunData) -> bool:
    return row.is_training and (STEP_SECONDS_KEY in row.keys or row.summary.step_seconds is not None)


def _sizes(row: RunData) -> tuple[int, ...]:
    spec = row.spec
    return (spec.devices, spec.batch, spec.threads, spec.loader_workers) if spec else ()


def _has_reading(*names: str) -> Callable[[RunData], bool]:
    return lambda row: any(name in row.summary.readings for name in names)


def _has_traffic(row: RunData) -> bool:
    return (
        row.summary.pcie is not None
        or any(key.startswith(DEVICE_LINK_PREFIX) for key in row.keys)
        or _has_reading("pcie_to", "pcie_from")(row)
    )


def _has_series(name: str) -> Callable[[RunData], bool]:
    return lambda row: any(is_reading(key, name) for key in row.keys)


TIME_SCALES: Final = {"share": gettext_noop("share of the run"), "seconds": gettext_noop("seconds")}
_DEFINITIONS = (
    FigureDefinition(
        name="utilisation",
        title=gettext_noop("GPU utilisation over a run"),
        about=gettext_noop("How busy the GPUs are from the first second to the last, several runs over each other."),
        needs=gettext_noop("runs with readings of their GPUs"),
        uses=_has_series("utilisation"),
        draw=lambda rows, options: (
            reading_over_time(rows, reading=options.reading, by_share=options.time == "share"),
        ),
        options=("reading", "time"),
    ),
    FigureDefinition(
        name="resources",
        title=gettext_noop("Use of GPU, memory and CPU by configuration"),
        about=gettext_noop("GPU, GPU memory, CPU and system memory, each by configuration and workload."),
        needs=gettext_noop("runs with readings of their GPUs or of their host"),
        uses=_has_reading("utilisation", "memory_used", "memory_share", "cpu", "memory"),
        draw=lambda rows, __: use_by_configuration(rows),
        overlays=("predicted",),
    ),
    FigureDefinition(
        name="relative-time",
        title=gettext_noop("Relative training time by configuration"),
        about=gettext_noop(
            "Training time of the same work in each configuration, relative to a baseline, by workload."
        ),
        needs=gettext_noop("runs of training in two configurations at least"),
        uses=_has_steps,
        draw=lambda rows, options: (time_by_configuration(rows, options.baseline),),
        options=("baseline",),
        varied=lambda row: configuration_label(row.topology),
        overlays=("predicted",),
    ),
    FigureDefinition(
        name="pcie",
        title=gettext_noop("PCIe transfer by workload"),
        about=gettext_noop("Traffic to and from the devices, separately and in total."),
        needs=gettext_noop("runs on devices whose PCIe traffic was counted"),
        uses=_has_traffic,
        draw=lambda rows, __: (traffic_by_workload(rows),),
        overlays=("predicted",),
    ),
    FigureDefinition(
        name="storage",
        title=gettext_noop("Storage variants"),
        about=gettext_noop(
            "Training time with the data on local storage, local NVMe and Falcon NVMe; and the read rate of each."
        ),
        needs=gettext_noop("runs that read their data from different storage, or runs of storage read"),
        uses=lambda row: _has_steps(row) or row.workload == STORAGE_READ,
        draw=lambda rows, options: (time_by_storage(rows, options.baseline), storage_reading(rows)),
        options=("baseline",),
        # A storage read is a figure by itself; training requires two kinds of storage.
        varied=lambda row: row.id if row.workload == STORAGE_READ else row.topology and storage_label(row.topology),
        overlays=("predicted",),
    ),
    FigureDefinition(
        name="software",
        title=gettext_noop("Software variants"),
        about=gettext_noop(
            "DP, DDP and sharding, FP32, FP16 and BF16, compilation: the time of each for the same samples."
        ),
        needs=gettext_noop("runs of one workload that differ in software"),
        uses=_has_steps,
        draw=lambda rows, options: (time_by_software(rows, options.baseline),),
        options=("baseline",),
        varied=lambda row: (software_label(row.spec), row.spec.batch) if row.spec else None,
        overlays=("predicted",),
    ),
    FigureDefinition(
        name="gpu-to-gpu",
        title=gettext_noop("GPU to GPU"),
        about=gettext_noop(
            "Bandwidth and latency between two GPUs: both local, one in the Falcon, both in the Falcon."
        ),
        needs=gettext_noop("runs of ‘GPU to GPU’, or imported tables of p2pBandwidthLatencyTest or nvbandwidth"),
        uses=has_pairs,
        draw=lambda rows, options: gpu_pair_charts(rows, published=options.published),
        overlays=("predicted", "published"),
    ),
    FigureDefinition(
        name="scaling",
        title=gettext_noop("Throughput scaling"),
        about=gettext_noop(
            "Samples a second by accelerators, batch, threads and loaders, with linear scaling for comparison."
        ),
        needs=gettext_noop("runs that differ in one of these alone, such as those of a sweep"),
        uses=_has_steps,
        draw=lambda rows, __: throughput_scaling(rows),
        varied=_sizes,
        overlays=("predicted",),
    ),
    FigureDefinition(
        name="loss",
        title=gettext_noop("Loss over steps"),
        about=gettext_noop("The course of training, compared between runs."),
        needs=gettext_noop("runs with a recorded loss"),
        uses=lambda row: LOSS_KEY in row.keys,
        draw=lambda rows, __: (loss_chart(rows),),
    ),
    FigureDefinition(
        name="step-time",
        title=gettext_noop("Distribution of step times"),
        about=gettext_noop("The spread of step times, and outliers."),
        needs=gettext_noop("runs with the times of their steps"),
        uses=lambda row: STEP_SECONDS_KEY in row.keys,
        draw=lambda rows, __: (step_time_chart(rows),),
    ),
)
FIGURES: Mapping[str, FigureDefinition] = {entry.name: entry for entry in _DEFINITIONS}
