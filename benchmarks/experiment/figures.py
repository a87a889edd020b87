"""The published experiment's Table IV and Figures 9 to 16, drawn of runs and predictions by the charts of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from benchmarks.experiment.published import RELATIVE_TIME
from benchmarks.figures.bandwidth import BOTH, gpu_pair_charts, traffic_by_workload
from benchmarks.figures.charts import (
    HIGH_PERCENTILE,
    LOW_PERCENTILE,
    Chart,
    ChartAxis,
    ChartBound,
    ChartMark,
    sort_marks,
)
from benchmarks.figures.rows import FALCON_NVME as FALCON_NVME_STORAGE
from benchmarks.figures.rows import LOCAL_NVME as LOCAL_NVME_STORAGE
from benchmarks.figures.rows import LOCAL_STORAGE, STORAGE_LABELS, RunData, configuration_label
from benchmarks.figures.training import time_by_configuration, time_by_software, time_by_storage
from benchmarks.figures.utilisation import reading_over_time, use_by_configuration
from benchmarks.model import paper_rows, published_belief
from benchmarks.model.calibration import PAPER_TOPOLOGIES, PAPER_WORKLOADS
from benchmarks.model.paper_study import FALCON_GPUS, FALCON_NVME, HYBRID_GPUS, LOCAL_GPUS, LOCAL_NVME, PaperStudy
from benchmarks.model.published_observations import MIXED_TIME, TRAFFIC, UTILISATION
from benchmarks.workloads.catalogue import workload_title
from core.language import _, english, gettext_noop

Rows = Sequence[RunData]
GPU_CONFIGURATIONS: Final = (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
STORAGE_CONFIGURATIONS: Final = (LOCAL_GPUS, LOCAL_NVME, FALCON_NVME)
BASE_VARIANT: Final = "DDP, FP32, batch 4"


@dataclass(frozen=True, kw_only=True)
class ExperimentFigure:
    """A published table or figure: `number` as published, `observations` the first letters of their keys.

    `rows` is the name of the figure whose cells it has, see `published_cells`, of these in its `configurations`.
    """

    slug: str
    number: str
    title: str
    observations: tuple[str, ...]
    rows: str
    configurations: tuple[str, ...]
    draw: Callable[[Rows], tuple[Chart, ...]]
    is_predicted: bool = True


def _in(rows: Rows, configurations: Sequence[str]) -> list[RunData]:
    return [row for row in rows if configuration_label(row.topology) in configurations]


def _pairs(rows: Rows) -> tuple[Chart, ...]:
    return gpu_pair_charts(rows, published=True)


def _over_time(rows: Rows) -> tuple[Chart, ...]:
    chart = reading_over_time(_in(rows, (FALCON_GPUS,)))
    note = _("Simulated lines without a run are of eight steps: checkpoints and validations lie outside of them.")
    return (chart.with_notes(note if any(one.queued_at is None for one in rows) else ""),)


def _use(readings: Mapping[str, str]) -> Callable[[Rows], tuple[Chart, ...]]:
    """Return how charts of use are drawn, each by the name of its reading; not of cells that have no such reading."""

    def draw(rows: Rows) -> tuple[Chart, ...]:
        return tuple(_use_chart(rows, name, reading) for name, reading in readings.items())

    return draw


def _use_chart(rows: Rows, name: str, reading: str) -> Chart:
    # That all workloads exceed 80 % was published of all configurations.
    places = tuple(PAPER_TOPOLOGIES) if name == "gpu" else GPU_CONFIGURATIONS
    shown = [row for row in _in(rows, places) if row.queued_at is not None or reading in row.summary.readings]
    chart = next(one for one in use_by_configuration(shown) if one.name == name)
    marks = sort_marks(chart.marks, places, list(map(workload_title, PAPER_WORKLOADS)))
    return replace(chart, marks=marks, bounds=_utilisation_bounds(chart) if name == "gpu" else ())


def _utilisation_bounds(chart: Chart) -> tuple[ChartBound, ...]:
    places = dict.fromkeys(str(mark.x) for mark in chart.marks)
    return tuple(ChartBound(x=place, relation=">", value=100 * UTILISATION) for place in places)


def _relative_time(rows: Rows) -> tuple[Chart, ...]:
    chart = time_by_configuration(_in(rows, GPU_CONFIGURATIONS), LOCAL_GPUS)
    places = {mark.x for mark in chart.marks}
    bounds = (
        ChartBound(
            x=workload_title(name),
            relation=relation,
            value=value,
            group=FALCON_GPUS if relation == "≈" else "",
        )
        for name, (relation, value) in RELATIVE_TIME.items()
    )
    bounded = replace(chart, bounds=tuple(one for one in bounds if one.x in places))
    return (_as_published(_with_joint_intervals(bounded)),)


def _traffic(rows: Rows) -> tuple[Chart, ...]:
    chart = traffic_by_workload(_in(rows, (FALCON_GPUS,)))
    published = [
        ChartMark(x=workload_title(name), group=_(BOTH), provenance="published", value=value, count=0)
        for name, value in TRAFFIC.items()
    ]
    return (_as_published(replace(chart, marks=(*chart.marks, *published))),)


def _storage(rows: Rows) -> tuple[Chart, ...]:
    steps = _as_published(_with_joint_intervals(time_by_storage(_in(rows, STORAGE_CONFIGURATIONS))))
    return (_whole_trainings(), replace(steps, title=_("Time of a step by storage")))


def _whole_trainings() -> Chart:
    """Return the predicted time of whole trainings by storage, relative to local storage: what O10 is judged by."""
    marks = (
        ChartMark(
            x=workload_title(name), group=_(storage), provenance="predicted", value=value, low=low, high=high, count=0
        )
        for name, storage, value, low, high in _training_ratios()
    )
    baseline = _(LOCAL_STORAGE)
    return Chart(
        name="training-storage",
        title=_("Whole training by storage"),
        caption=_(
            "With a first pass from the drive, validations and checkpoints, for the published number of epochs. In "
            "steps, once the host has the data in its memory, drives hardly differ."
        ),
        kind="bars",
        groups=_("Storage"),
        x=ChartAxis(title=_("Workload"), kind="category"),
        y=ChartAxis(title=_("Time relative to {baseline}", baseline=baseline)),
        interval=_("the prediction’s own interval of 90 %"),
        marks=tuple(marks),
        baseline=baseline,
    )


@cache
def _training_ratios() -> tuple[tuple[str, str, float, float, float], ...]:
    """Return workload, storage, and the whole training's time relative to local storage with its 90 % interval."""
    study, found = PaperStudy(published_belief()), []
    for name in PAPER_WORKLOADS:
        base = study.figure("training", name, LOCAL_GPUS)
        for place, storage in zip(STORAGE_CONFIGURATIONS, STORAGE_LABELS, strict=True):
            ratio = study.figure("training", name, place) / base
            low, high = np.percentile(ratio.drawn, [LOW_PERCENTILE, HIGH_PERCENTILE])
            found.append((name, storage, ratio.value, min(float(low), ratio.value), max(float(high), ratio.value)))
    return tuple(found)


def _as_published(chart: Chart) -> Chart:
    """Return a chart with its workloads in the published order."""
    groups = dict.fromkeys(mark.group for mark in chart.marks)
    return replace(chart, marks=sort_marks(chart.marks, list(map(workload_title, PAPER_WORKLOADS)), list(groups)))


def _with_joint_intervals(chart: Chart) -> Chart:
    """Return a chart of relative times whose predictions have intervals of steps drawn together, as the model has."""
    known = _relative_predictions()
    marks = (
        replace(mark, value=one[0], low=one[1], high=one[2])
        if mark.provenance == "predicted" and (one := known.get((str(mark.x), english(mark.group))))
        else mark
        for mark in chart.marks
    )
    return replace(chart, marks=tuple(marks))


@cache
def _relative_predictions() -> Mapping[tuple[str, str], tuple[float, float, float]]:
    """Return time relative to localGPUs with its interval, by title of the workload, and configuration or storage."""
    names = {LOCAL_NVME: LOCAL_NVME_STORAGE, FALCON_NVME: FALCON_NVME_STORAGE}
    return {
        (workload_title(row.workload), name): (1 + row.overhead, 1 + row.overhead_low, 1 + row.overhead_high)
        for row in paper_rows()
        if row.configuration != LOCAL_GPUS
        for name in {row.configuration, names.get(row.configuration, row.configuration)}
    }


def _software(rows: Rows) -> tuple[Chart, ...]:
    shown = _in([row for row in rows if row.workload == "bert_large"], GPU_CONFIGURATIONS)
    chart = time_by_software(shown)
    is_known = BASE_VARIANT in map(english, chart.baselines)
    if is_known:
        chart = time_by_software(shown, BASE_VARIANT)
    places = dict.fromkeys(str(mark.x) for mark in chart.marks)
    bounds = tuple(
        ChartBound(x=place, relation="<", value=value, group=gettext_noop("FP16"))
        for place in places
        for name, value in MIXED_TIME.items()
        if place.endswith(name)
    )
    order = sorted(places, key=lambda place: [place.endswith(name) for name in GPU_CONFIGURATIONS], reverse=True)
    groups = list(dict.fromkeys(mark.group for mark in chart.marks))
    return (replace(chart, marks=sort_marks(chart.marks, order, groups), bounds=bounds if is_known else ()),)


_FIGURES = (
    ExperimentFigure(
        slug="table-4",
        number=gettext_noop("Table IV"),
        title=gettext_noop("Bandwidth and latency between two GPUs"),
        observations=(),
        rows="gpu-to-gpu",
        configurations=(),
        draw=_pairs,
    ),
    ExperimentFigure(
        slug="figure-9",
        number=gettext_noop("Figure 9"),
        title=gettext_noop("GPU utilisation over a run"),
        observations=("O7",),
        rows="utilisation",
        configurations=(FALCON_GPUS,),
        draw=_over_time,
        is_predicted=False,
    ),
    ExperimentFigure(
        slug="figure-10",
        number=gettext_noop("Figure 10"),
        title=gettext_noop("Use of GPUs and their memory"),
        observations=("O5", "O6", "O9"),
        rows="resources",
        configurations=tuple(PAPER_TOPOLOGIES),
        draw=_use({"gpu": "utilisation", "gpu-memory-busy": "memory_share", "gpu-memory": "memory_used"}),
    ),
    ExperimentFigure(
        slug="figure-11",
        number=gettext_noop("Figure 11"),
        title=gettext_noop("Training time by configuration"),
        observations=("O1", "O2", "O3"),
        rows="relative-time",
        configurations=GPU_CONFIGURATIONS,
        draw=_relative_time,
    ),
    ExperimentFigure(
        slug="figure-12",
        number=gettext_noop("Figure 12"),
        title=gettext_noop("PCIe traffic of Falcon GPUs"),
        observations=("O4",),
        rows="pcie",
        configurations=(FALCON_GPUS,),
        draw=_traffic,
    ),
    ExperimentFigure(
        slug="figure-13",
        number=gettext_noop("Figure 13"),
        title=gettext_noop("CPU utilisation"),
        observations=("O8",),
        rows="resources",
        configurations=GPU_CONFIGURATIONS,
        draw=_use({"cpu": "cpu"}),
    ),
    ExperimentFigure(
        slug="figure-14",
        number=gettext_noop("Figure 14"),
        title=gettext_noop("System memory"),
        observations=("O8",),
        rows="resources",
        configurations=GPU_CONFIGURATIONS,
        draw=_use({"system-memory": "memory"}),
    ),
    ExperimentFigure(
        slug="figure-15",
        number=gettext_noop("Figure 15"),
        title=gettext_noop("Storage"),
        observations=("O10",),
        rows="storage",
        configurations=STORAGE_CONFIGURATIONS,
        draw=_storage,
    ),
    ExperimentFigure(
        slug="figure-16",
        number=gettext_noop("Figure 16"),
        title=gettext_noop("Software variants of BERT-large"),
        observations=("O11", "O12", "O13"),
        rows="software",
        configurations=GPU_CONFIGURATIONS,
        draw=_software,
    ),
)
EXPERIMENT_FIGURES: Final[Mapping[str, ExperimentFigure]] = {one.slug: one for one in _FIGURES}
