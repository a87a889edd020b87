"""Pages of records: exports, and imports by way of a look at what a file would become."""

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
from accounts.models import User
from benchmarks.records.content import LARGEST, TOO_LARGE, Content
from benchmarks.records.exporting import Wanted, records_download, run_named
from benchmarks.records.formats import FORMATS
from benchmarks.records.importing import Checked, Imported, records_check, records_import
from benchmarks.records.staging import forget, staged, staged_again
from falconweb.errors import FalconWebError, NotFound

LONGEST_NAME: Final = 200
MOST_SHOWN: Final = 100
MOST_TEXT: Final = 200_000


@require_GET
def run_jsonl(request: HttpRequest, pk: uuid.UUID) -> HttpResponseBase:
    """Send the whole record of a run as JSON Lines."""
    return _of_one(request, pk, "jsonl")


@require_GET
def run_csv(request: HttpRequest, pk: uuid.UUID) -> HttpResponseBase:
    """Send all samples of a run as CSV."""
    return _of_one(request, pk, "csv")


@require_GET
def runs_jsonl(request: HttpRequest) -> HttpResponseBase:
    """Send the records of runs as JSON Lines: `run` names some, else a filter."""
    return records_download(person=person_of(request), wanted=_wanted(request), kind="jsonl")


@require_GET
def runs_csv(request: HttpRequest) -> HttpResponseBase:
    """Send the results of runs as CSV, a row a run; all their samples with `as=samples`."""
    kind = "csv" if request.GET.get("as") == "samples" else "summary"
    return records_download(person=person_of(request), wanted=_wanted(request), kind=kind)


@require_http_methods(["GET", "POST"])
def record_import(request: HttpRequest) -> HttpResponse:
    """Show the form; POST `file` or `text` shows what it would become, with `make` it becomes that."""
    person = person_of(request)
    if request.method != "POST":
        return _page(request, person, {})
    chosen: dict[str, Any] = {"format": request.POST.get("format", "")}
    try:
        content, shown = _given(request, person)
        chosen |= shown
        if "make" in request.POST:
            imported = records_import(person=person, content=content, format=chosen["format"])
            forget(content)
            return _done(request, imported)
        checked = records_check(person=person, content=content, format=chosen["format"])
    except FalconWebError as error:
        if error.status not in {400, 404, 413}:
            raise
        refused = {"refused": error.sentence, "found": error.details.get("problems", [])}
        return _page(request, person, {**chosen, **refused}, status=400 if error.status == 404 else error.status)
    return _page(request, person, {**chosen, **_shown(checked)}, status=400 if checked.problems else 200)


def _of_one(request: HttpRequest, pk: uuid.UUID, kind: str) -> HttpResponseBase:
    person = person_of(request)
    run = run_named(person, pk)
    name = f"{slugify(run.title)[:60] or 'run'}-{str(run.pk)[:8]}"
    return records_download(person=person, wanted=Wanted(runs=(str(pk),)), kind=kind, name=name)


def _wanted(request: HttpRequest) -> Wanted:
    given = request.GET
    return Wanted(
        runs=tuple(given.getlist("run")), sweep=given.get("sweep", ""), workload=given.get("workload", ""),
        provenance=given.get("provenance", ""),
    )  # fmt: skip


def _given(request: HttpRequest, person: User) -> tuple[Content, dict[str, Any]]:
    """Return what is to be imported: a file before a text, and both before what was looked at already."""
    name = _printable(request.POST.get("name", ""))
    file, text = request.FILES.get("file"), request.POST.get("text", "")
    if file is None and not text.strip():
        token = request.POST.get("staged", "")
        if not token:
            raise NotFound("Choose a file, or paste its text.")
        return staged_again(person, token, name), {"staged": token, "name": name}
    parts: Iterable[bytes]
    if file is not None:
        name, parts = _printable(file.name or ""), file.chunks()
    else:
        # Browsers send every line break of a form as two characters.
        text = text.replace("\r\n", "\n")
        name, parts = "", [text.encode("utf-8", "surrogatepass")]
    token, content = staged(person, parts, name)
    # What was pasted is given back, to be mended in place.
    return content, {"staged": token, "name": name, "text": text if file is None and len(text) < MOST_TEXT else ""}


def _printable(name: str) -> str:
    return "".join(one for one in name if one.isprintable())[:LONGEST_NAME]


def _shown(checked: Checked) -> dict[str, Any]:
    return {
        "checked": checked,
        "rows": checked.runs[:MOST_SHOWN],
        "left_out": max(0, len(checked.runs) - MOST_SHOWN),
        "known": len(checked.runs) - len(checked.new),
    }


def _done(request: HttpRequest, imported: Imported) -> HttpResponse:
    new, known = imported.new, imported.known
    if new:
        count = f"{len(new)} run was" if len(new) == 1 else f"{len(new)} runs were"
        rest = f" {len(known)} of the file {'was' if len(known) == 1 else 'were'} here already." if known else ""
        messages.success(request, f"{count} imported.{rest}")
    else:
        messages.info(request, "Nothing was imported: all of the file was here already.")
    if len(imported.runs) == 1:
        return redirect("runs:run", pk=imported.runs[0][0].pk)
    return redirect("runs:runs")


def _page(request: HttpRequest, person: User, found: dict[str, Any], *, status: int = 200) -> HttpResponse:
    context = {
        **found,
        "formats": FORMATS.items(),
        "may_import": person.may_compose,
        "largest": LARGEST // 2**20,
        "largest_bytes": LARGEST,
        "too_large": TOO_LARGE,
    }
    return render(request, "benchmarks/records/import.html", context, status=status)
