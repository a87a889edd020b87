"""Pages of the published experiment: all of it, and each of its figures."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import translation
from django.views.decorators.http import require_GET

from accounts.access import person_of
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from benchmarks.experiment.published import CONFIGURATIONS, FIRST_MODEL, VARIANTS, WORKLOADS
from benchmarks.experiment.selectors import (
    ExperimentRuns,
    experiment_figure,
    experiment_figures,
    experiment_runs,
    judged_observations,
)
from benchmarks.figures.presentation import chart_csv_lines, display_chart
from core.downloads import csv_download
from core.errors import NotFound
from core.language import SOURCE_LANGUAGE, _, _n


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Experiment", "Benchmarks", 4))
def experiment(request: HttpRequest) -> HttpResponse:
    """Show the published experiment in its order; charts are loaded as they come into view."""
    runs, judged = experiment_runs(person_of(request)), judged_observations()
    context = {
        "workloads": WORKLOADS,
        "configurations": CONFIGURATIONS.items(),
        "variants": VARIANTS,
        "first_model": FIRST_MODEL,
        "figures": experiment_figures(runs),
        "judged": judged,
        "holding": sum(one.holds for one in judged),
        "provenances": _provenances(runs),
    }
    return render(request, "benchmarks/experiment/experiment.html", context)


def _provenances(runs: ExperimentRuns) -> list[tuple[str, str]]:
    """Return what is shown, and what each of it is."""
    counted = {
        source: _n(
            "{count} completed run of these cells that you may see.",
            "{count} completed runs of these cells that you may see.",
            count,
        )
        if (count := runs.count(source))
        else _("No run of these cells yet.")
        for source in ("simulated", "measured")
    }
    return [
        ("published", _("What the publication says, and nothing beyond: six values of Table IV, three of PCIe traffic, "
                        "limits as lines, and sentences.")),
        ("predicted", _("By the performance model from published rates and data sheets, before any run; bars with 90 % "
                        "intervals.")),
        *counted.items(),
    ]  # fmt: skip


@require_GET
@declare(Audience.EVERYBODY, tested_argument="figure-11", tested_queries=("", "part=charts"))
def experiment_figure_page(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one figure; with `part=charts` only its charts, for the page of all."""
    drawing = experiment_figure(slug, experiment_runs(person_of(request)))
    context = {
        "drawing": drawing,
        "charts": [display_chart(one) for one in drawing.charts if not one.is_empty],
        "empty": [one for one in drawing.charts if one.is_empty],
    }
    name = "charts" if request.GET.get("part") == "charts" else "figure"
    return render(request, f"benchmarks/experiment/{name}.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def experiment_csv(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Send the tables of a figure as CSV; `chart` names one of several."""
    chart = request.GET.get("chart", "")
    with translation.override(SOURCE_LANGUAGE):
        drawing = experiment_figure(slug, experiment_runs(person_of(request)))
        charts = [one for one in drawing.charts if not chart or one.name == chart]
        lines = list(chart_csv_lines(charts))
    if not charts:
        raise NotFound(_("There is no such chart."))
    return csv_download(lines, f"{chart or slug}.csv")
