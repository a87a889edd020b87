"""What the page of the published experiment shows: verdicts of its observations, and its figures with a person's runs.

Published, predicted, simulated and measured values are marks of their own, never mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from accounts.models import User
from benchmarks.experiment.figures import EXPERIMENT_FIGURES, ExperimentFigure
from benchmarks.experiment.published import PLAY_TITLES, observation_label
from benchmarks.experiment.simulated import ID_PREFIX, simulated_cells
from benchmarks.figures.catalogue import limit_marks
from benchmarks.figures.charts import Chart, omission_note
from benchmarks.figures.comparison import PAIR_WORKLOAD, published_cells, published_predictions
from benchmarks.figures.pictures import ChartPicture, first_picture
from benchmarks.figures.rows import RunData, configuration_label, hardware_labels, work_fields
from benchmarks.figures.selectors import FigureQuery, select_runs, selection_notes
from benchmarks.model.calibration import PAPER_TOPOLOGIES, PAPER_WORKLOADS
from benchmarks.model.observations import JudgedObservation, judge_observations
from benchmarks.simulation.observations import SimulatedObservation, simulated_observations
from benchmarks.sweeps.models import Sweep
from core.errors import NotFound
from core.language import _, cache_by_language
from hostwire.training import Spec

MAX_PLAYED = 4


@dataclass(frozen=True)
class ExperimentRuns:
    """The visible runs of published cells, those of published workloads that are none (`others`), and notes on both."""

    rows: list[RunData]
    others: list[RunData]
    notes: tuple[str, ...] = ()

    def count(self, provenance: str) -> int:
        return sum(row.provenance == provenance for row in self.rows)


@dataclass(frozen=True)
class ObservationVerdict:
    """An observation, with a `label` to read: judged by the model, and by the simulation where it can show it."""

    label: str
    judged: JudgedObservation
    simulated: SimulatedObservation | None


@dataclass(frozen=True)
class RenderedExperimentFigure:
    """A figure with its charts, the verdicts on its observations, and notes on all charts."""

    entry: ExperimentFigure
    charts: tuple[Chart, ...]
    verdicts: tuple[ObservationVerdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def picture(self) -> ChartPicture | None:
        """The first chart with anything in it, in small."""
        return first_picture(self.charts)


@cache_by_language
def observation_verdicts() -> tuple[ObservationVerdict, ...]:
    """Return the observations as the model before any run and the simulation judge them, in the current language."""
    simulated = simulated_observations()
    return tuple(
        ObservationVerdict(observation_label(key), one, simulated.get(key))
        for one in judge_observations()
        for key in (one.observation.key,)
    )


def experiment_runs(person: User) -> ExperimentRuns:
    """Return a person's completed runs of the published workloads, the newest of them, cells apart from others."""
    selection = select_runs(person, FigureQuery(workloads=(*PAPER_WORKLOADS, PAIR_WORKLOAD)))
    works = {work for entry in EXPERIMENT_FIGURES.values() for work in _works_of(entry.rows)}
    cells: list[RunData] = []
    others: list[RunData] = []
    for row in selection.rows:
        (cells if _work(row.spec) in works and _is_published_place(row) else others).append(row)
    return ExperimentRuns(cells, others, tuple(selection_notes(selection)))


def _is_published_place(row: RunData) -> bool:
    """Return whether a run was in a published configuration, on published models of GPUs at links of their width."""
    if row.workload == PAIR_WORKLOAD or row.topology is None:
        return row.topology is not None
    published = PAPER_TOPOLOGIES.get(configuration_label(row.topology))
    return published is not None and hardware_labels(row.topology) == hardware_labels(published)


def _work(spec: Spec | None) -> str:
    """Return what a run did; '' if unknown. Whoever measures pairs of GPUs measures all of them."""
    if spec is None or spec.workload == PAIR_WORKLOAD:
        return spec.workload if spec else ""
    return f"{spec.workload} {sorted(work_fields(spec).items())}"


@cache
def _works_of(figure: str) -> frozenset[str]:
    return frozenset(_work(spec) for spec, __ in published_cells(figure))


def experiment_figure(slug: str, runs: ExperimentRuns) -> RenderedExperimentFigure:
    """Return one figure with these runs; raises NotFound."""
    if slug not in EXPERIMENT_FIGURES:
        raise NotFound(_("There is no such figure."))
    entry = EXPERIMENT_FIGURES[slug]
    predicted = published_predictions(entry.rows)[0] if entry.is_predicted else []
    works = _works_of(entry.rows)
    rows = [row for row in runs.rows if _work(row.spec) in works]
    simulated, waiting = _simulated_rows(entry, rows)
    others = [row for row in rows if row.provenance != "simulated"]
    charts = tuple(_without_ids(limit_marks(chart)) for chart in entry.draw([*predicted, *simulated, *others]))
    notes = (
        *runs.notes,
        omission_note(runs.others, _("that did other work, or on other hardware or in another configuration")),
        omission_note(waiting, _("until all cells of the workload in this figure are simulated by runs")),
    )
    return RenderedExperimentFigure(entry, charts, _verdicts_of(entry), tuple(filter(None, notes)))


def _simulated_rows(entry: ExperimentFigure, rows: Sequence[RunData]) -> tuple[list[RunData], list[RunData]]:
    """Return the simulated rows of a figure, and the runs that are not among them yet.

    Of a workload either all its cells are of runs or none is: hosts differ from the published one.
    """
    played = [row for row in rows if row.provenance == "simulated"]
    cells = [row for row in simulated_cells(entry.rows) if configuration_label(row.topology) in entry.configurations]
    lacking = {row.workload for row in cells} - {
        name
        for name in {row.workload for row in played}
        if {_cell(row) for row in cells if row.workload == name} <= {_cell(row) for row in played}
    }
    shown = [row for row in played if row.workload not in lacking]
    return [row for row in cells if row.workload in lacking] + shown, [row for row in played if row.workload in lacking]


def _cell(row: RunData) -> tuple[str, str]:
    return _work(row.spec), configuration_label(row.topology)


def _without_ids(chart: Chart) -> Chart:
    """Return a chart whose marks and lines name recorded runs alone, not the cells simulated for the page."""
    return replace(
        chart,
        marks=tuple(replace(mark, runs=_recorded(mark.runs)) for mark in chart.marks),
        lines=tuple(replace(line, runs=_recorded(line.runs)) for line in chart.lines),
    )


def _recorded(runs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in runs if not one.startswith(ID_PREFIX))


def _verdicts_of(entry: ExperimentFigure) -> tuple[ObservationVerdict, ...]:
    return tuple(
        one for one in observation_verdicts() if one.judged.observation.key.partition("-")[0] in entry.observations
    )


@cache_by_language
def figures_without_runs() -> tuple[RenderedExperimentFigure, ...]:
    """Return all figures as published, predicted and simulated, in the current language."""
    return tuple(experiment_figures(ExperimentRuns([], [])))


def played_sweeps(person: User) -> list[Sweep]:
    """Return the newest sweeps that played the experiment, of those that a person sees."""
    return list(Sweep.objects.visible_to(person).filter(title__in=PLAY_TITLES.values())[:MAX_PLAYED])


def experiment_figures(runs: ExperimentRuns) -> Sequence[RenderedExperimentFigure]:
    """Return all figures in the published order."""
    return [experiment_figure(slug, runs) for slug in EXPERIMENT_FIGURES]
