"""Pages of the runs of exports."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.access import administrator_of
from accounts.audit.exports import Download
from accounts.models import User
from accounts.sheets import lines
from fabric.numbers import whole_number
from falconweb.errors import FalconWebError, Invalid
from telemetry.exports.downloads import run_download
from telemetry.exports.models import ExportRun, Runs
from telemetry.exports.runs import run_cancel, run_resume
from telemetry.exports.selectors import RUN_COLUMNS, RUN_SORTS, run_lines, run_of, runs_found

ROWS_A_PAGE = 50


@require_GET
def runs(request: HttpRequest) -> HttpResponse:
    """List runs; `q`, `state`, `export`, `sort` and `page` are in the URL."""
    person = administrator_of(request)
    asked, error = _asked(request), ""
    try:
        rows = _found(person, asked)
    except Invalid as refused:
        error, rows = refused.sentence, ExportRun.objects.none()
    context = {
        "page": Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "asked": asked,
        "filtered": any(asked[name] for name in ("q", "state", "export")),
        "error": error,
        "states": ExportRun.State.choices,
        "sorts": RUN_SORTS,
        "going_on": ExportRun.objects.visible_to(person).open().exists(),
    }
    return render(request, "exports/runs.html", context, status=400 if error else 200)


@require_GET
def runs_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream the runs that fit as CSV."""
    rows = _found(administrator_of(request), _asked(request))
    answer = Download(lines(RUN_COLUMNS, run_lines(rows)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="export-runs.csv"'
    return answer


@require_GET
def run(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a run: how far it is, what came of it, and what may be done with it."""
    row = run_of(administrator_of(request), pk)
    ended = row.state in {ExportRun.State.FAILED, ExportRun.State.CANCELLED}
    context = {
        "run": row,
        "may_resume": ended and row.definition is not None and row.file_removed_at is None,
        "options": row.snapshot["options"],
        "rate": round(row.counted / row.took.total_seconds()) if row.took and row.took.total_seconds() >= 1 else None,
    }
    return render(request, "exports/run.html", context)


@require_POST
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Cancel a run."""
    person = administrator_of(request)
    try:
        row = run_cancel(by=person, run=run_of(person, pk))
    except FalconWebError as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, "It ends within seconds." if row.is_open else "Cancelled.")
    return redirect("exports:export_run", pk=pk)


@require_POST
def resume(request: HttpRequest, pk: int) -> HttpResponse:
    """Resume a run."""
    person = administrator_of(request)
    try:
        run_resume(by=person, run=run_of(person, pk))
    except FalconWebError as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, "It goes on where it stopped.")
    return redirect("exports:export_run", pk=pk)


@require_GET
def file(request: HttpRequest, pk: int) -> HttpResponseBase:
    """Download the file of a run."""
    person = administrator_of(request)
    return run_download(by=person, run=run_of(person, pk))


def _asked(request: HttpRequest) -> dict[str, str]:
    """Return what an address asks of the list of runs."""
    return {name: request.GET.get(name, "") for name in ("q", "state", "export", "sort")}


def _found(person: User, asked: dict[str, str]) -> Runs:
    return runs_found(
        person,
        search=asked["q"],
        state=asked["state"],
        sort=asked["sort"] or "-number",
        definition=whole_number(asked["export"]) or None,
    )
