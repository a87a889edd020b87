"""Pages of figures: which make sense for some runs, each of them, and runs side by side."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access import person_of
from accounts.audit.exports import Download
from benchmarks.figures.asked import BESIDES, MOST_RUNS, Asked, asked_of
from benchmarks.figures.catalogue import FIGURES, TIMES, offered
from benchmarks.figures.comparing import comparison
from benchmarks.figures.drawing import Drawing, drawing_of
from benchmarks.figures.encoding import csv_lines
from benchmarks.figures.labels import configurations
from benchmarks.figures.selectors import (
    FEWEST_COMPARED,
    MOST_COMPARED,
    Selection,
    compared,
    hosts_seen,
    selection_of,
    sweeps_named,
    workloads_seen,
)
from benchmarks.figures.shown import against, number, shown
from benchmarks.figures.steps import durations, loss
from benchmarks.figures.use import over_time
from benchmarks.runs.models import Run
from falconweb.errors import Invalid, NotFound
from hostwire.training import READINGS


@require_GET
def figures(request: HttpRequest) -> HttpResponse:
    """Show which figures make sense for the runs that are asked for, and these runs; all of it is in the URL."""
    person = person_of(request)
    asked, errors = _read(request)
    selection = Selection([], 0, []) if errors else selection_of(person, asked)
    labels = configurations(selection.rows)
    context = {
        "asked": asked,
        "errors": errors,
        "selection": selection,
        "offers": offered(selection.rows),
        "rows": [(row, labels[row.id], _step(row)) for row in selection.rows],
        "query": asked.query(),
        "most_runs": MOST_RUNS,
        "workloads": workloads_seen(person),
        "provenances": Run.Provenance.choices,
        "hosts": hosts_seen(person),
        "sweeps": sweeps_named(person, asked),
        "listed": _listed(asked),
        "fewest": FEWEST_COMPARED,
        "most": MOST_COMPARED,
    }
    return render(request, "benchmarks/figures/figures.html", context, status=400 if errors else 200)


@require_GET
def figure(request: HttpRequest, name: str) -> HttpResponse:
    """Show a figure: charts, captions and tables."""
    if name not in FIGURES:
        raise NotFound("There is no such figure.")
    asked, errors = _read(request)
    drawing = None
    if not errors:
        try:
            drawing = drawing_of(person_of(request), name, asked)
        except Invalid as error:
            errors = error.details.get("errors", {"": error.sentence})
    context = {
        "entry": FIGURES[name],
        "asked": asked,
        "errors": errors,
        "drawing": drawing,
        "figures": [shown(one) for one in drawing.shown] if drawing else [],
        "empty": [one for one in drawing.figures if one.is_empty] if drawing else [],
        "query": asked.query(),
        "choosing": asked.query(but=("baseline", "time", "reading", "with")),
        "hidden": _hidden(asked),
        "choices": _choices(drawing, asked) if drawing else [],
        "besides": [(one, BESIDES[one], one in asked.besides) for one in FIGURES[name].besides],
    }
    return render(request, "benchmarks/figures/figure.html", context, status=400 if errors else 200)


@require_GET
def figure_csv(request: HttpRequest, name: str) -> HttpResponseBase:
    """Stream the tables of a figure as CSV; `chart` names one of several."""
    drawing = drawing_of(person_of(request), name, asked_of(request.GET))
    chart = request.GET.get("chart", "")
    charts = [one for one in drawing.figures if not chart or one.name == chart]
    if not charts:
        raise NotFound("There is no such chart.")
    answer = Download(csv_lines(charts), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{chart or name}.csv"'
    return answer


@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    """Show two to eight runs side by side, in the order of `run` in the URL; ratios are to the first."""
    asked, errors = _read(request)
    count = len(asked.runs)
    rows = [] if errors or not count else compared(person_of(request), asked)
    if count > MOST_COMPARED:
        errors = {"run": f"{count} runs are more than fit side by side: choose {MOST_COMPARED} at most."}
    is_shown = FEWEST_COMPARED <= count <= MOST_COMPARED and not errors
    found = comparison(rows) if is_shown else None
    charts = [over_time(rows, by_share=asked.options.time == "share"), durations(rows), loss(rows)] if is_shown else []
    context = {
        "asked": asked,
        "errors": errors,
        "rows": rows,
        "comparison": found,
        "results": [(one, against(one.values)) for one in found.results] if found else [],
        "different": sum(len(part.different) for part in found.parts) if found else 0,
        "figures": [shown(one) for one in charts if not one.is_empty],
        "query": asked.query(),
        "fewest": FEWEST_COMPARED,
        "most": MOST_COMPARED,
        "orders": [(row, asked.first(row.id)) for row in rows] if is_shown else [],
    }
    return render(request, "benchmarks/figures/compare.html", context, status=400 if errors else 200)


def _read(request: HttpRequest) -> tuple[Asked, dict[str, str]]:
    """Return what an address asks for, and what is wrong with it."""
    try:
        return asked_of(request.GET), {}
    except Invalid as error:
        return Asked(), error.details["errors"]


def _step(row: Any) -> str:
    kept = row.summary.step_seconds
    return number(kept.value) if kept is not None else ""


def _hidden(asked: Asked) -> list[tuple[str, str]]:
    """Return what a form has to carry along besides its own fields."""
    pairs = [("run", str(one)) for one in asked.runs] + [("sweep", str(one)) for one in asked.sweeps]
    pairs += [("workload", one) for one in asked.workloads] + [("provenance", one) for one in asked.provenances]
    pairs += [("host", str(one)) for one in asked.hosts] + _listed(asked)
    return pairs + ([("since", asked.since_text)] if asked.since else [])


def _listed(asked: Asked) -> list[tuple[str, str]]:
    """Return what came from the filter of the list of runs and has no field here."""
    pairs = [("q", asked.words), ("state", asked.state), ("executor", asked.executor), ("person", asked.person)]
    return [(name, value) for name, value in pairs if value]


def _choices(drawing: Drawing, asked: Asked) -> list[tuple[str, str, list[tuple[str, str, bool]]]]:
    """Return the options of a figure: name, label, and each choice with its value, words and whether it is chosen."""
    found = []
    for name in drawing.entry.options:
        if name == "baseline":
            known = [(one, one) for one in drawing.figures[0].baselines]
            chosen, label = drawing.figures[0].baseline, "Baseline"
        elif name == "time":
            known, chosen, label = list(TIMES.items()), asked.options.time, "Time by"
        else:
            known = [(reading, words) for reading, (_, words) in READINGS.items()]
            chosen, label = asked.options.reading, "Reading"
        if len(known) > 1:
            found.append((name, label, [(value, words, value == chosen) for value, words in known]))
    return found
