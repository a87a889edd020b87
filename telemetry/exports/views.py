"""Pages of exports, for administrators: thin layers over services and selectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.audit.services import audit_record
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from core.downloads import csv_download, csv_table
from core.errors import FalconWebError, Invalid
from core.language import _, gettext_noop
from core.text import parse_id
from core.zones import MINUTE, local_words
from telemetry.exports import selectors, services
from telemetry.exports.files import run_download
from telemetry.exports.forms import ExportForm, initial_from_query
from telemetry.exports.models import (
    AdministratorOnlyQuerySet,
    ExportDefinition,
    ExportFormat,
    ExportRun,
    ExportRunQuerySet,
    ExportTarget,
)
from telemetry.exports.options import ExportSpec, spec_of

ROWS_PER_PAGE = 25
RUNS_SHOWN = 10


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry(gettext_noop("Exports"), "Administration", 4))
def exports(request: HttpRequest) -> HttpResponse:
    """List definitions and current runs; `q`, `format`, `target`, `sort` and `page` are in the URL."""
    person = person_of(request)
    error = ""
    try:
        rows = _found_definitions(request)
    except Invalid as refused:
        error, rows = refused.sentence, ExportDefinition.objects.none()
    context = {
        "page": Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "filters": request.GET,
        "filtered": any(request.GET.get(name) for name in ("q", "format", "target")),
        "error": error,
        "sorts": selectors.EXPORT_SORTS,
        "formats": ExportFormat.choices,
        "targets": ExportTarget.choices,
        "runs": selectors.find_runs(person)[:RUNS_SHOWN],
        "going_on": ExportRun.objects.visible_to(person).open().exists(),
    }
    return render(request, "telemetry/exports/exports.html", context, status=400 if error else 200)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def exports_csv(request: HttpRequest) -> HttpResponseBase:
    lines = selectors.definition_lines(_found_definitions(request))
    return csv_download(csv_table(selectors.EXPORT_COLUMNS, lines), "exports.csv")


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_SAMPLE)
def export(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a definition: its content, target and runs; `page` is in the URL."""
    person = person_of(request)
    row = selectors.definition_get(person, pk)
    runs = selectors.find_runs(person, definition=row.pk)
    # A page that refreshes its runs each second does not count the events again.
    anew = request.headers.get("X-Requested-With") != "refresh"
    context = {
        "definition": row,
        "going_on": runs.open().exists(),
        "page": Paginator(runs, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "preview": selectors.build_preview(person, spec_of(row)) if anew else None,
        "columns": len(row.columns),
    }
    return render(request, "telemetry/exports/export.html", context)


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_ADD)
def add_export(request: HttpRequest) -> HttpResponse:
    """Define an export; the form is prefilled with a search for events in the URL."""
    person = person_of(request)
    if request.method != "POST":
        return _render_form(request, ExportForm(person=person, initial=initial_from_query(request.GET)), None)
    form = ExportForm(request.POST, person=person)
    row = _submit(form, lambda spec: services.export_add(by=person, spec=spec, from_now=form.cleaned_data["from_now"]))
    if row is None:
        return _render_form(request, form, None)
    messages.success(request, _added_sentence(row))
    return redirect("exports:export", pk=row.pk)


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_EDIT, no_page_test=NO_SAMPLE)
def edit_export(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    row = selectors.definition_get(person, pk)
    if request.method != "POST":
        return _render_form(request, ExportForm(person=person, definition=row), row)
    form = ExportForm(request.POST, person=person, definition=row)
    saved = _submit(form, lambda spec: services.export_edit(by=person, definition=row, spec=spec))
    if saved is None:
        return _render_form(request, form, row)
    messages.success(request, _("{name} was saved.", name=saved.name))
    return redirect("exports:export", pk=pk)


@sensitive_post_parameters("secret")
@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_PREVIEW)
def export_preview(request: HttpRequest) -> HttpResponse:
    """Preview an unsaved form; `definition` is the one that it changes."""
    person = person_of(request)
    row, form = _posted_form(request)
    preview = _submit(form, lambda spec: selectors.build_preview(person, spec.checked()))
    if preview is not None:
        audit_record(action=Action.EXPORT_PREVIEW, actor=person, after={"name": form.cleaned_data["name"]})
    return _render_form(request, form, row, preview=preview)


@sensitive_post_parameters("secret")
@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_TEST)
def check_export_target(request: HttpRequest) -> HttpResponse:
    """Test the target of an unsaved form, or, without a form, of `definition`."""
    person = person_of(request)
    row, form = _posted_form(request)
    if row is not None and "name" not in request.POST:
        try:
            messages.success(request, services.target_check(by=person, spec=spec_of(row), definition=row))
        except FalconWebError as error:
            messages.error(request, error.sentence)
        return redirect("exports:export", pk=row.pk)
    tried = _submit(
        form, lambda spec: services.target_check(by=person, spec=spec, definition=row), refused=FalconWebError
    )
    return _render_form(request, form, row, tried=tried)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_SWITCH)
def switch_export(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch a definition on (`on`) or off."""
    person = person_of(request)
    enabled = "on" in request.POST
    services.export_switch(by=person, definition=selectors.definition_get(person, pk), enabled=enabled)
    messages.success(request, _("Switched on.") if enabled else _("Switched off: it no longer runs by itself."))
    return redirect("exports:export", pk=pk)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_RUN)
def start_run(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    try:
        run = services.run_request(by=person, definition=selectors.definition_get(person, pk))
    except FalconWebError as error:
        messages.error(request, error.sentence)
        return redirect("exports:export", pk=pk)
    return redirect("exports:export_run", pk=run.pk)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_REMOVE, no_page_test=NO_SAMPLE)
def remove_export(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a definition after a confirmation."""
    person = person_of(request)
    row = selectors.definition_get(person, pk)
    if request.method != "POST":
        files = row.runs.filter(state=ExportRun.State.DONE, file_removed_at=None).exclude(file="").count()
        return render(request, "telemetry/exports/export_remove.html", {"definition": row, "files": files})
    try:
        services.export_remove(by=person, definition=row)
    except FalconWebError as error:
        messages.error(request, error.sentence)
        return redirect("exports:export", pk=pk)
    messages.success(request, _("{name} was deleted. Its runs stay in the list.", name=row.name))
    return redirect("exports:exports")


def _found_definitions(request: HttpRequest) -> AdministratorOnlyQuerySet:
    given = request.GET
    return selectors.find_definitions(
        person_of(request),
        search=given.get("q", ""),
        sort=given.get("sort") or "name",
        format_=given.get("format", ""),
        target=given.get("target", ""),
    )


def _submit(form: ExportForm, call: Callable[[ExportSpec], Any], *, refused: type[FalconWebError] = Invalid) -> Any:
    """Return what a service makes of a form; None, with the errors in the form, where either refuses it."""
    if form.is_valid():
        try:
            return call(form.spec())
        except refused as error:
            form.add_errors_of(error)
    return None


def _posted_form(request: HttpRequest) -> tuple[ExportDefinition | None, ExportForm]:
    person = person_of(request)
    pk = parse_id(request.POST.get("definition", ""))
    row = selectors.definition_get(person, pk) if pk else None
    return row, ExportForm(request.POST, person=person, definition=row)


def _render_form(request: HttpRequest, form: ExportForm, row: ExportDefinition | None, **more: Any) -> HttpResponse:
    form.focus_wrong()
    context = {"form": form, "definition": row, **more}
    return render(request, "telemetry/exports/export_form.html", context, status=400 if form.errors else 200)


def _added_sentence(row: ExportDefinition) -> str:
    if row.is_stream:
        return _("Saved. It starts within seconds and runs continuously.")
    if row.next_at:
        return _("Saved. The first run is at {time}.", time=local_words(row.next_at, MINUTE))
    return _("Saved.")


RUN_ROWS_PER_PAGE = 50


@require_GET
@declare(Audience.ADMINISTRATORS)
def runs(request: HttpRequest) -> HttpResponse:
    """List runs; `q`, `state`, `export`, `sort` and `page` are in the URL."""
    error = ""
    try:
        rows = _found_runs(request)
    except Invalid as refused:
        error, rows = refused.sentence, ExportRun.objects.none()
    context = {
        "page": Paginator(rows, RUN_ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "filters": request.GET,
        "filtered": any(request.GET.get(name) for name in ("q", "state", "export")),
        "error": error,
        "states": ExportRun.State.choices,
        "sorts": selectors.RUN_SORTS,
        "going_on": ExportRun.objects.visible_to(person_of(request)).open().exists(),
    }
    return render(request, "telemetry/exports/runs.html", context, status=400 if error else 200)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def runs_csv(request: HttpRequest) -> HttpResponseBase:
    lines = selectors.run_lines(_found_runs(request))
    return csv_download(csv_table(selectors.RUN_COLUMNS, lines), "export-runs.csv")


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_SAMPLE)
def run(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a run: its progress, result and actions."""
    row = selectors.run_get(person_of(request), pk)
    ended = row.state in {ExportRun.State.FAILED, ExportRun.State.CANCELLED}
    context = {
        "run": row,
        "may_resume": ended and row.definition is not None and row.file_removed_at is None,
        "options": row.snapshot["options"],
        "rate": round(row.counted / row.took.total_seconds()) if row.took and row.took.total_seconds() >= 1 else None,
    }
    return render(request, "telemetry/exports/run.html", context)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_CANCEL, target_kind="export run")
def cancel_run(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    try:
        row = services.run_cancel(by=person, run=selectors.run_get(person, pk))
    except FalconWebError as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, _("The run stops within seconds.") if row.is_open else _("The run was cancelled."))
    return redirect("exports:export_run", pk=pk)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.EXPORT_RESUME, target_kind="export run")
def resume_run(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    try:
        services.run_resume(by=person, run=selectors.run_get(person, pk))
    except FalconWebError as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, _("The run continues from where it stopped."))
    return redirect("exports:export_run", pk=pk)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def download_file(request: HttpRequest, pk: int) -> HttpResponseBase:
    person = person_of(request)
    return run_download(by=person, run=selectors.run_get(person, pk))


def _found_runs(request: HttpRequest) -> ExportRunQuerySet:
    given = request.GET
    return selectors.find_runs(
        person_of(request),
        search=given.get("q", ""),
        state=given.get("state", ""),
        sort=given.get("sort") or "-number",
        definition=parse_id(given.get("export", "")) or None,
    )
