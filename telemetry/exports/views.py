"""Pages of exports, for administrators: thin faces over services and selectors."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import administrator_of
from accounts.audit.actions import Action
from accounts.audit.exports import Download
from accounts.audit.services import audit_record
from accounts.models import User
from accounts.sheets import lines
from fabric.numbers import whole_number
from falconweb.errors import FalconWebError, Invalid
from telemetry.exports.forms import ExportForm, of_address
from telemetry.exports.models import Definitions, ExportDefinition, ExportRun, Format, Kind
from telemetry.exports.options import wanted_of
from telemetry.exports.runs import run_request
from telemetry.exports.selectors import (
    EXPORT_COLUMNS,
    EXPORT_SORTS,
    definition_lines,
    definition_of,
    definitions_found,
    preview_of,
    runs_found,
)
from telemetry.exports.services import export_add, export_edit, export_remove, export_switch, target_try

ROWS_A_PAGE = 25
RUNS_SHOWN = 10


@require_GET
def exports(request: HttpRequest) -> HttpResponse:
    """List definitions and what goes on; `q`, `format`, `target`, `sort` and `page` are in the URL."""
    person = administrator_of(request)
    asked, error = _asked(request), ""
    try:
        rows = _found(person, asked)
    except Invalid as refused:
        error, rows = refused.sentence, ExportDefinition.objects.none()
    context = {
        "page": Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "asked": asked,
        "filtered": any(asked[name] for name in ("q", "format", "target")),
        "error": error,
        "sorts": EXPORT_SORTS,
        "formats": Format.choices,
        "targets": Kind.choices,
        "runs": runs_found(person)[:RUNS_SHOWN],
        "going_on": ExportRun.objects.visible_to(person).open().exists(),
    }
    return render(request, "exports/exports.html", context, status=400 if error else 200)


@require_GET
def exports_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream the definitions that fit as CSV."""
    rows = _found(administrator_of(request), _asked(request))
    answer = Download(lines(EXPORT_COLUMNS, definition_lines(rows)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="exports.csv"'
    return answer


@require_GET
def export(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a definition: what it gives, where it goes, and its runs; `page` is in the URL."""
    person = administrator_of(request)
    row = definition_of(person, pk)
    runs = runs_found(person, definition=row.pk)
    # A page that brings its runs up to date each second does not have the events counted anew.
    anew = request.headers.get("X-Requested-With") != "refresh"
    context = {
        "definition": row,
        "going_on": runs.open().exists(),
        "page": Paginator(runs, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "preview": preview_of(person, wanted_of(row)) if anew else None,
        "columns": len(row.columns),
    }
    return render(request, "exports/export.html", context)


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
def export_new(request: HttpRequest) -> HttpResponse:
    """Define an export; a search for events in the URL is what the form begins with."""
    person = administrator_of(request)
    if request.method != "POST":
        return _form(request, ExportForm(person=person, initial=of_address(request.GET)), None)
    form = ExportForm(request.POST, person=person)
    if form.is_valid():
        try:
            row = export_add(by=person, wanted=form.wanted(), from_now=form.cleaned_data["from_now"])
        except Invalid as error:
            form.tell(error)
        else:
            messages.success(request, _now_what(row))
            return redirect("exports:export", pk=row.pk)
    return _form(request, form, None)


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
def export_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a definition."""
    person = administrator_of(request)
    row = definition_of(person, pk)
    if request.method != "POST":
        return _form(request, ExportForm(person=person, definition=row), row)
    form = ExportForm(request.POST, person=person, definition=row)
    if form.is_valid():
        try:
            row = export_edit(by=person, definition=row, wanted=form.wanted())
        except Invalid as error:
            form.tell(error)
        else:
            messages.success(request, "Changed.")
            return redirect("exports:export", pk=row.pk)
    return _form(request, form, row)


@sensitive_post_parameters("secret")
@require_POST
def export_preview(request: HttpRequest) -> HttpResponse:
    """Show what a form that is not saved would give; `definition` is the one that it changes."""
    person = administrator_of(request)
    row, form = _typed(request)
    context: dict[str, Any] = {}
    if form.is_valid():
        try:
            context["preview"] = preview_of(person, form.wanted().checked())
            audit_record(action=Action.EXPORT_PREVIEW, actor=person, after={"name": form.cleaned_data["name"]})
        except Invalid as error:
            form.tell(error)
    return _form(request, form, row, **context)


@sensitive_post_parameters("secret")
@require_POST
def export_test(request: HttpRequest) -> HttpResponse:
    """Try the target of a form that is not saved, or, without a form, of `definition`."""
    person = administrator_of(request)
    row, form = _typed(request)
    if row is not None and "name" not in request.POST:
        try:
            messages.success(request, target_try(by=person, wanted=wanted_of(row), definition=row))
        except FalconWebError as error:
            messages.error(request, error.sentence)
        return redirect("exports:export", pk=row.pk)
    context: dict[str, Any] = {}
    if form.is_valid():
        try:
            context["tried"] = target_try(by=person, wanted=form.wanted(), definition=row)
        except FalconWebError as error:
            form.tell(error)
    return _form(request, form, row, **context)


@require_POST
def export_turn(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch a definition on (`on`) or off."""
    person = administrator_of(request)
    enabled = "on" in request.POST
    export_switch(by=person, definition=definition_of(person, pk), enabled=enabled)
    messages.success(request, "Switched on." if enabled else "Switched off: nothing of it begins by itself.")
    return redirect("exports:export", pk=pk)


@require_POST
def export_run(request: HttpRequest, pk: int) -> HttpResponse:
    """Begin a run now; its page comes next."""
    person = administrator_of(request)
    try:
        run = run_request(by=person, definition=definition_of(person, pk))
    except FalconWebError as error:
        messages.error(request, error.sentence)
        return redirect("exports:export", pk=pk)
    return redirect("exports:export_run", pk=run.pk)


@require_http_methods(["GET", "POST"])
def export_gone(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a definition, once somebody has said so."""
    person = administrator_of(request)
    row = definition_of(person, pk)
    if request.method != "POST":
        files = row.runs.filter(state=ExportRun.State.DONE, file_removed_at=None).exclude(file="").count()
        return render(request, "exports/export_remove.html", {"definition": row, "files": files})
    try:
        export_remove(by=person, definition=row)
    except FalconWebError as error:
        messages.error(request, error.sentence)
        return redirect("exports:export", pk=pk)
    messages.success(request, f"Removed: {row.name}. The record of its runs stays.")
    return redirect("exports:exports")


def _asked(request: HttpRequest) -> dict[str, str]:
    """Return what an address asks of the list of definitions."""
    return {name: request.GET.get(name, "") for name in ("q", "format", "target", "sort")}


def _found(person: User, asked: dict[str, str]) -> Definitions:
    return definitions_found(
        person, search=asked["q"], sort=asked["sort"] or "name", format_=asked["format"], target=asked["target"]
    )


def _typed(request: HttpRequest) -> tuple[ExportDefinition | None, ExportForm]:
    person = administrator_of(request)
    pk = whole_number(request.POST.get("definition", ""))
    row = definition_of(person, pk) if pk else None
    return row, ExportForm(request.POST, person=person, definition=row)


def _form(request: HttpRequest, form: ExportForm, row: ExportDefinition | None, **more: Any) -> HttpResponse:
    form.focus_wrong()
    context = {"form": form, "definition": row, **more}
    return render(request, "exports/export_form.html", context, status=400 if form.errors else 200)


def _now_what(row: ExportDefinition) -> str:
    if row.is_stream:
        return "Kept. It begins within seconds and goes on by itself."
    return (
        "Kept." if row.schedule == "none" else f"Kept. It runs for the first time at {row.next_at:%Y-%m-%d %H:%M} UTC."
    )
