"""Pages of records: exports, and imports with a preview."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.records.formats import FORMATS
from benchmarks.records.import_files import (
    BODY_LIMIT,
    MAX_UPLOAD_BYTES,
    TOO_LARGE_SENTENCE,
    ImportFile,
    stage_file,
    staged_file_delete,
    staged_file_get,
)
from benchmarks.records.services import (
    ExportFilter,
    ImportCheck,
    ImportResult,
    finished_run_get,
    records_check,
    records_download,
    records_import,
)
from benchmarks.simulation.chakra import is_trace
from benchmarks.traces.services import trace_check, trace_import
from core.errors import FalconWebError, NotFound
from core.language import _, _n, joined

TRACE_FORMAT: Final = "chakra"
MAX_NAME_LENGTH: Final = 200
MAX_SHOWN: Final = 100
MAX_TEXT_SHOWN: Final = 200_000


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="runs:runs", no_page_test=NO_PAGE)
def run_download(request: HttpRequest, pk: uuid.UUID, kind: str) -> HttpResponseBase:
    """Send the whole record of a run as JSON Lines, or all its samples as CSV."""
    person = person_of(request)
    run = finished_run_get(person, pk)
    name = f"{slugify(run.title)[:60] or 'run'}-{str(run.pk)[:8]}"
    return records_download(person=person, wanted=ExportFilter(runs=(str(pk),)), kind=kind, name=name)


@require_GET
@declare(Audience.EVERYBODY, section="runs:runs", no_page_test=NO_PAGE)
def runs_download(request: HttpRequest, kind: str) -> HttpResponseBase:
    """Send the records of runs as JSON Lines, or their results as CSV; `run` names some, else a filter.

    The CSV has a row a run, or with `as=samples` all samples.
    """
    if kind == "summary" and request.GET.get("as") == "samples":
        kind = "csv"
    return records_download(person=person_of(request), wanted=ExportFilter.of(request.GET), kind=kind)


@require_http_methods(["GET", "POST"])
@declare(
    Audience.EVERYBODY,
    audited_as=Action.RECORDS_IMPORT,
    menu_entry=MenuEntry("Import", "Benchmarks", 7),
    body_limit=BODY_LIMIT,
)
def record_import(request: HttpRequest) -> HttpResponse:
    """Show the form; POST `file` or `text` previews the import, with `make` it is imported."""
    person = person_of(request)
    if request.method != "POST":
        return _render_page(request, person, {})
    chosen: dict[str, Any] = {"format": request.POST.get("format", "")}
    try:
        content, shown = _submitted_file(request, person)
        chosen |= shown
        if chosen["format"] == TRACE_FORMAT or (not chosen["format"] and is_trace(content.head)):
            return _import_trace(request, person, content, chosen)
        if "make" in request.POST:
            imported = records_import(person=person, content=content, format=chosen["format"])
            staged_file_delete(content)
            return _redirect_imported(request, imported)
        checked = records_check(person=person, content=content, format=chosen["format"])
    except FalconWebError as error:
        if error.status not in {400, 404, 413}:
            raise
        refused = {"refused": error.sentence, "found": error.details.get("problems", [])}
        return _render_page(request, person, {**chosen, **refused}, status=400 if error.status == 404 else error.status)
    return _render_page(request, person, {**chosen, **_check_context(checked)}, status=400 if checked.problems else 200)


def _import_trace(request: HttpRequest, person: User, content: ImportFile, chosen: dict[str, Any]) -> HttpResponse:
    """Show what a trace holds; with `make` import it."""
    with content.open() as file:
        data = file.read()
    if "make" not in request.POST:
        found = {"format": TRACE_FORMAT, "trace": trace_check(person, data), "size": len(data)}
        return _render_page(request, person, {**chosen, **found})
    row, is_new = trace_import(person=person, content=data, title=content.name)
    staged_file_delete(content)
    if is_new:
        messages.success(request, _("‘{name}’ was imported.", name=row.title))
    else:
        messages.info(request, _("Nothing was imported: everything in the file exists already."))
    return redirect("traces:trace", pk=row.pk)


def _submitted_file(request: HttpRequest, person: User) -> tuple[ImportFile, dict[str, Any]]:
    """Return the content to import: a file before a text, and both before the previewed content."""
    name = _printable_name(request.POST.get("name", ""))
    file, text = request.FILES.get("file"), request.POST.get("text", "")
    if file is None and not text.strip():
        token = request.POST.get("staged", "")
        if not token:
            raise NotFound(_("Choose a file, or paste its text."))
        return staged_file_get(person, token, name), {"staged": token, "name": name}
    parts: Iterable[bytes]
    if file is not None:
        name, parts = _printable_name(file.name or ""), file.chunks()
    else:
        # Browsers send each line break of a form as two characters.
        text = text.replace("\r\n", "\n")
        name, parts = "", [text.encode("utf-8", "surrogatepass")]
    token, content = stage_file(person, parts, name)
    # Pasted text is shown again so that it can be corrected.
    return content, {"staged": token, "name": name, "text": text if file is None and len(text) < MAX_TEXT_SHOWN else ""}


def _printable_name(name: str) -> str:
    return "".join(one for one in name if one.isprintable())[:MAX_NAME_LENGTH]


def _check_context(checked: ImportCheck) -> dict[str, Any]:
    return {
        "checked": checked,
        "rows": checked.runs[:MAX_SHOWN],
        "left_out": max(0, len(checked.runs) - MAX_SHOWN),
        "known": len(checked.runs) - len(checked.new),
    }


def _redirect_imported(request: HttpRequest, imported: ImportResult) -> HttpResponse:
    new, known = imported.new, imported.known
    if new:
        said = [_n("{count} run was imported.", "{count} runs were imported.", len(new))]
        if known:
            said.append(
                _n("{count} of the file was here already.", "{count} of the file were here already.", len(known))
            )
        messages.success(request, joined(said))
    else:
        messages.info(request, _("Nothing was imported: everything in the file exists already."))
    if len(imported.runs) == 1:
        return redirect("runs:run", pk=imported.runs[0][0].pk)
    return redirect("runs:runs")


def _render_page(request: HttpRequest, person: User, found: dict[str, Any], *, status: int = 200) -> HttpResponse:
    context = {
        **found,
        "formats": [*((name, _(label)) for name, label in FORMATS.items()), (TRACE_FORMAT, _("Trace of Chakra"))],
        "may_import": person.may_compose,
        "largest": MAX_UPLOAD_BYTES // 2**20,
        "largest_bytes": MAX_UPLOAD_BYTES,
        "too_large": _(TOO_LARGE_SENTENCE),
    }
    return render(request, "benchmarks/records/import.html", context, status=status)
