"""Pages of figures: those available for some runs, each figure, and runs side by side."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import translation
from django.views.decorators.http import require_GET

from accounts.access import person_of
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from benchmarks.figures.catalogue import FIGURES, TIME_SCALES, figure_availability
from benchmarks.figures.comparison import compare_runs
from benchmarks.figures.pictures import figure_pictures
from benchmarks.figures.presentation import chart_csv_lines, display_chart, display_relative_values, format_number
from benchmarks.figures.rows import configuration_labels
from benchmarks.figures.selectors import (
    LIST_PARAMETERS,
    MAX_COMPARED,
    MAX_RUNS,
    MIN_COMPARED,
    OPTION_PARAMETERS,
    OVERLAYS,
    FigureQuery,
    RenderedFigure,
    RunSelection,
    parse_figure_query,
    render_figure,
    requested_sweeps,
    runs_to_compare,
    select_runs,
    visible_hosts,
    visible_workloads,
)
from benchmarks.figures.training import loss_chart, step_time_chart
from benchmarks.figures.utilisation import reading_over_time
from benchmarks.runs.models import Run
from core.downloads import csv_download
from core.errors import Invalid, NotFound
from core.language import SOURCE_LANGUAGE, _, english
from hostwire.training import READINGS


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Figures", "Benchmarks", 4))
def figures(request: HttpRequest) -> HttpResponse:
    """Show the figures available for the selected runs, and these runs; the selection is in the URL."""
    person = person_of(request)
    query, errors = _parse_query(request)
    selection = RunSelection([], 0, []) if errors else select_runs(person, query)
    labels, offers = configuration_labels(selection.rows), figure_availability(selection.rows)
    is_predicted = not (errors or query.is_filtered)
    pictures = figure_pictures(selection.rows, [one for one in offers if one.is_ready or is_predicted])
    context = {
        "selected": query,
        "query": query.urlencode(),
        "errors": errors,
        "selection": selection,
        "offers": [(one, pictures.get(one.entry.name)) for one in offers],
        "is_predicted": is_predicted,
        "rows": [(row, labels[row.id], _step_seconds_text(row)) for row in selection.rows],
        "most_runs": MAX_RUNS,
        "workloads": visible_workloads(person),
        "provenances": Run.Provenance.choices,
        "hosts": visible_hosts(person),
        "sweeps": requested_sweeps(person, query),
        "listed": [pair for pair in query.pairs if pair[0] in LIST_PARAMETERS],
        "fewest": MIN_COMPARED,
        "most": MAX_COMPARED,
    }
    return render(request, "benchmarks/figures/figures.html", context, status=400 if errors else 200)


@require_GET
@declare(Audience.EVERYBODY, tested_argument="gpu-to-gpu", tested_queries=("with=published",))
def figure(request: HttpRequest, name: str) -> HttpResponse:
    """Show a figure: charts, captions and tables."""
    if name not in FIGURES:
        raise NotFound(_("There is no such figure."))
    query, errors = _parse_query(request)
    drawing = None
    if not errors:
        try:
            drawing = render_figure(person_of(request), name, query)
        except Invalid as error:
            errors = error.details.get("errors", {"": error.sentence})
    context = {
        "entry": FIGURES[name],
        "query": query.urlencode(),
        "errors": errors,
        "drawing": drawing,
        "figures": [display_chart(one) for one in drawing.figures if not one.is_empty] if drawing else [],
        "empty": [one for one in drawing.figures if one.is_empty] if drawing else [],
        "choosing": query.urlencode(but=OPTION_PARAMETERS),
        "hidden": [pair for pair in query.pairs if pair[0] not in OPTION_PARAMETERS],
        "choices": _option_choices(drawing, query) if drawing else [],
        "overlays": [(one, _(OVERLAYS[one]), one in query.overlays) for one in FIGURES[name].overlays],
    }
    return render(request, "benchmarks/figures/figure.html", context, status=400 if errors else 200)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def figure_csv(request: HttpRequest, name: str) -> HttpResponseBase:
    """Send the tables of a figure as CSV; `chart` names one of several."""
    query, chart = parse_figure_query(request.GET), request.GET.get("chart", "")
    with translation.override(SOURCE_LANGUAGE):
        drawing = render_figure(person_of(request), name, query)
        charts = [one for one in drawing.figures if not chart or one.name == chart]
        lines = list(chart_csv_lines(charts))
    if not charts:
        raise NotFound(_("There is no such chart."))
    return csv_download(lines, f"{chart or name}.csv")


@require_GET
@declare(Audience.EVERYBODY)
def compare(request: HttpRequest) -> HttpResponse:
    """Show two to eight runs side by side, in the order of `run` in the URL; ratios are to the first."""
    query, errors = _parse_query(request)
    count = len(query.runs)
    rows = [] if errors or not count else runs_to_compare(person_of(request), query)
    if count > MAX_COMPARED:
        errors = {
            "run": _(
                "{count} runs are more than fit side by side: choose {most} at most.", count=count, most=MAX_COMPARED
            )
        }
    is_shown = MIN_COMPARED <= count <= MAX_COMPARED and not errors
    found = compare_runs(rows) if is_shown else None
    charts = (
        [reading_over_time(rows, by_share=query.options.time == "share"), step_time_chart(rows), loss_chart(rows)]
        if is_shown
        else []
    )
    context = {
        "query": query.urlencode(),
        "errors": errors,
        "rows": rows,
        "comparison": found,
        "results": [(one, display_relative_values(one.values)) for one in found.results] if found else [],
        "different": sum(len(part.different) for part in found.parts) if found else 0,
        "figures": [display_chart(one) for one in charts if not one.is_empty],
        "fewest": MIN_COMPARED,
        "most": MAX_COMPARED,
        "orders": [(row, query.with_first(row.id)) for row in rows] if is_shown else [],
    }
    return render(request, "benchmarks/figures/compare.html", context, status=400 if errors else 200)


def _parse_query(request: HttpRequest) -> tuple[FigureQuery, dict[str, str]]:
    """Return the selection of a URL, and its errors."""
    try:
        return parse_figure_query(request.GET), {}
    except Invalid as error:
        return FigureQuery(), error.details["errors"]


def _step_seconds_text(row: Any) -> str:
    kept = row.summary.step_seconds
    return format_number(kept.value) if kept is not None else ""


def _option_choices(drawing: RenderedFigure, query: FigureQuery) -> list[tuple[str, str, list[tuple[str, str, bool]]]]:
    """Return the options of a figure: name, label, and each choice with its value, words and whether it is chosen."""
    found: list[tuple[str, str, list[tuple[str, str, bool]]]] = []
    for name in drawing.entry.options:
        if name == "baseline":
            known = [(english(one), one) for one in drawing.figures[0].baselines]
            chosen, label = english(drawing.figures[0].baseline), _("Baseline")
        elif name == "time":
            known, chosen, label = (
                [(value, _(words)) for value, words in TIME_SCALES.items()],
                query.options.time,
                _("Time by"),
            )
        else:
            known = [(reading, _(words)) for reading, (__, words) in READINGS.items()]
            chosen, label = query.options.reading, _("Reading")
        if len(known) > 1:
            found.append((name, label, [(value, words, value == chosen) for value, words in known]))
    return found
