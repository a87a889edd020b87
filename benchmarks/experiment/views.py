"""Pages of the published experiment: all of it, and each of its figures."""

from __future__ import annotations

from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import translation
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.experiment.plays import ExperimentPlay, plan_play
from benchmarks.experiment.published import CONFIGURATIONS, PLAY_TITLES, VARIANTS, WORKLOADS
from benchmarks.experiment.selectors import (
    ExperimentRuns,
    experiment_figure,
    experiment_runs,
    figures_without_runs,
    observation_verdicts,
    played_sweeps,
)
from benchmarks.experiment.services import experiment_play
from benchmarks.figures.presentation import chart_csv_lines, display_chart
from benchmarks.model.observations import FIRST_MODEL
from benchmarks.sweeps.expansion import duration_text, expand_sweep, sweep_pool
from benchmarks.sweeps.grid import validated_grid
from benchmarks.sweeps.selectors import progress_of_sweeps
from core.downloads import csv_download
from core.errors import NotFound
from core.forms import refusals_as_messages
from core.language import SOURCE_LANGUAGE, _, _n, joined


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Experiment", "Benchmarks", 4))
def experiment(request: HttpRequest) -> HttpResponse:
    """Show the published experiment in its order; charts are loaded as they come into view."""
    person, verdicts = person_of(request), observation_verdicts()
    runs, sweeps = experiment_runs(person), played_sweeps(person)
    progress = progress_of_sweeps(sweeps)
    context = {
        "workloads": WORKLOADS,
        "configurations": CONFIGURATIONS.items(),
        "variants": VARIANTS,
        "first_model": FIRST_MODEL,
        "figures": figures_without_runs(),  # the charts, which are loaded as they come into view, have the runs
        "verdicts": verdicts,
        "holding": sum(one.judged.holds for one in verdicts),
        "fitted": sum(one.judged.fitted for one in verdicts),
        "simulated": len(simulated := [one.simulated for one in verdicts if one.simulated]),
        "simulated_holding": sum(one.holds for one in simulated),
        "provenances": _provenances(runs),
        "plays": _plays(person) if person.may_compose else [],
        "played": [(sweep, progress[sweep.pk]) for sweep in sweeps],
    }
    return render(request, "benchmarks/experiment/experiment.html", context)


def _plays(person: User) -> list[ExperimentPlay]:
    pool = sweep_pool(person)
    return [plan_play(pool, executor) for executor in PLAY_TITLES]


@require_http_methods(["GET", "POST"])
@declare(Audience.COMPOSERS, what="run anything", audited_as=Action.SWEEP_CREATE, tested_argument="simulated")
def play(request: HttpRequest, executor: str) -> HttpResponse:
    """Say what playing the experiment would run, attach and take; POST creates the sweep."""
    person = person_of(request)
    known = next((one for one in PLAY_TITLES if one == executor), None)
    if known is None:
        raise NotFound(_("There is no such executor."))
    if request.method == "POST":
        with refusals_as_messages(request):
            sweep = experiment_play(person=person, executor=known, idempotency_key=request.POST.get("key", "")[:100])
            return redirect("sweeps:sweep", pk=sweep.pk)
    planned = plan_play(sweep_pool(person), known)
    expanded = expand_sweep(person, validated_grid(planned.grid), planned.pool) if planned.grid is not None else None
    context = {
        "play": planned,
        "draft": expanded,
        "duration": duration_text(expanded.seconds) if expanded else "",
        "reasons": expanded.expansion.reasons if expanded else [],
        "key": uuid4(),
    }
    refused = request.method == "POST"
    return render(request, "benchmarks/experiment/play.html", context, status=400 if refused else 200)


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
    played = _(
        "Step by step, by events on the published hardware: independent of the model’s formula. Simulated runs take "
        "their place, workload by workload."
    )
    return [
        ("published", _("What the publication says, and nothing beyond: six values of Table IV, three of PCIe traffic, "
                        "limits as lines, and sentences.")),
        ("predicted", _("By the performance model from published rates and data sheets, before any run; bars are "
                        "intervals of 90 %.")),
        ("simulated", joined([played, counted["simulated"]])),
        ("measured", counted["measured"]),
    ]  # fmt: skip


@require_GET
@declare(Audience.EVERYBODY, tested_argument="figure-11")
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
