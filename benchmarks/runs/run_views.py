"""Pages of one run: asked for by a form or a file, followed while it goes, decided about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from uuid import UUID

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.exports import Download
from accounts.models import User
from accounts.sheets import lines
from benchmarks.runs.asking import LARGEST_FILE, Asked, asked_of_text, file_of
from benchmarks.runs.forms import RunForm, form_again, form_of
from benchmarks.runs.log import log_read, log_size, log_tail
from benchmarks.runs.models import Run
from benchmarks.runs.naming import gpu_names
from benchmarks.runs.observing import topology_kept
from benchmarks.runs.offered import offered_to
from benchmarks.runs.result_tables import singles_of, tables_of
from benchmarks.runs.run_job import job_of
from benchmarks.runs.sample import sample_of
from benchmarks.runs.selectors import run_of
from benchmarks.runs.series import series_of, values_of
from benchmarks.runs.services import run_cancel, run_create, run_delete, run_retry, run_return
from benchmarks.runs.summary import summary_of
from benchmarks.workloads.catalogue import CATALOGUE
from fabric.permissions import refuse_onlooker
from falconweb.errors import Conflict, FalconWebError, Invalid

LOG_AT_ONCE = 256 * 1024
# What the charts of a run show: title, unit, how its series are called (the end, or the beginning).
CHARTS = (
    ("Step time", "s", "steps/", "/seconds"),
    ("Loss", "", "steps/", "/loss"),
    ("Utilisation", "share", "", "/utilisation"),
    ("PCIe of the GPUs, as they count it", "B/s", "gpu/", "/pcie_"),
)


@require_http_methods(["GET", "POST"])
def run_new(request: HttpRequest) -> HttpResponse:
    """Ask for a run; the form begins with what the URL gives: `workload`, `preset`, `host`, or a run (`again`)."""
    person = person_of(request)
    refuse_onlooker(person, "run anything")
    offered = offered_to(person)
    if request.method != "POST":
        again = request.GET.get("again", "")
        if again:
            return _form(request, form_again(offered, _had_before(person, again)))
        return _form(request, form_of(offered, request.GET))
    form = form_of(offered, request.POST)
    try:
        run = _created(person, form.asked())
    except FalconWebError as error:
        form.refused(error)
        return _form(request, form, status=error.status)
    return redirect("runs:run", pk=run.pk)


@require_http_methods(["GET", "POST"])
def run_from_file(request: HttpRequest) -> HttpResponse:
    """Ask for a run by a file: pasted, or uploaded. It begins with `again`, a run, or with `sample`."""
    person = person_of(request)
    refuse_onlooker(person, "run anything")
    if request.method != "POST":
        again = request.GET.get("again", "")
        text = file_of(_had_before(person, again)) if again else ""
        sample = sample_of(offered_to(person))
        return _file(request, sample if request.GET.get("sample") else text, sample)
    text = request.POST.get("text", "")
    try:
        text = _uploaded(request) or text
        if not text.strip():
            raise Invalid("Nothing was given.", errors={"": "Paste JSON, or choose a file."})
        run = _created(person, asked_of_text(text))
    except FalconWebError as error:
        errors = error.details.get("errors", {}) or {"": error.sentence}
        return _file(request, text, sample_of(offered_to(person)), errors=errors, status=error.status)
    return redirect("runs:run", pk=run.pk)


@require_GET
def run(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show a run: how it goes, what it came to, what it ran on."""
    person = person_of(request)
    row = run_of(person, pk)
    tail = log_tail(row)
    series = series_of(row)
    context = {
        "run": row,
        "job": job_of(person, row),
        "workload": CATALOGUE.get(row.workload),
        "topology": topology_kept(row),
        "series": series,
        "gpus": json.dumps(gpu_names(row, [one.key for one in series]), ensure_ascii=False),
        "tables": tables_of(summary_of(row)),
        "single": singles_of(summary_of(row)),
        "charts": CHARTS,
        "log": tail,
        "log_size": log_size(row),
        "is_mine": row.requested_by_id == person.pk or person.is_administrator,
        "may_cancel": person.may_compose
        and row.is_open
        and row.cancel_requested_at is None
        and row.state != Run.State.RETURNING,
        "repeat_of": Run.objects.visible_to(person).filter(pk=row.repeat_of_id).first() if row.repeat_of_id else None,
        "repeats": Run.objects.visible_to(person).filter(repeat_of=row).order_by("-queued_at")[:5],
    }
    return render(request, "benchmarks/runs/run.html", context)


@require_GET
def run_log(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Download the log of a run."""
    row = run_of(person_of(request), pk)

    def pieces() -> Iterator[str]:
        first = 0
        while True:
            piece = log_read(row, first, most=LOG_AT_ONCE)
            yield piece.text
            if not piece.more:
                return
            first = piece.next

    answer = Download(pieces(), content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="run-{row.pk}.log"'
    return answer


@require_GET
def run_series(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Download series of a run as CSV: those of `key`, once for each, or all."""
    row = run_of(person_of(request), pk)
    keys = request.GET.getlist("key")[:200] or None
    known = {one.key: one for one in series_of(row)}

    def rows() -> Iterator[tuple[object, ...]]:
        for key in sorted(known) if keys is None else keys:
            if key in known:
                at, values = values_of(row, [key]).get(key, ((), ()))
                for moment, value in zip(at, values, strict=True):
                    yield key, f"{moment:.6f}", f"{value:.9g}", known[key].unit, known[key].interval, known[key].source

    heads = ("series", "unix_seconds", "value", "unit", "interval_seconds", "source")
    answer = Download(lines(heads, rows()), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="run-{row.pk}.csv"'
    return answer


@require_POST
def cancel(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Cancel a run."""
    person = person_of(request)
    row = run_of(person, pk)
    try:
        row = run_cancel(person=person, run=row)
    except FalconWebError as error:
        return _refused(request, row, error)
    messages.success(request, "It is being ended." if row.is_open else "Cancelled.")
    return redirect("runs:run", pk=pk)


@require_POST
def retry(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Ask for the same run once more."""
    person = person_of(request)
    row = run_of(person, pk)
    try:
        again = run_retry(person=person, run=row)
    except FalconWebError as error:
        return _refused(request, row, error)
    return redirect("runs:run", pk=again.pk)


@require_POST
def give_back(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Give devices back that a run could not give back at its end."""
    person = person_of(request)
    row = run_of(person, pk)
    try:
        run_return(person=person, run=row)
    except FalconWebError as error:
        return _refused(request, row, error)
    return redirect("runs:run", pk=pk)


@require_POST
def delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a run with all that was recorded of it."""
    person = person_of(request)
    row = run_of(person, pk)
    try:
        run_delete(person=person, run=row)
    except FalconWebError as error:
        return _refused(request, row, error)
    messages.success(request, f"‘{row.title}’ is deleted.")
    return redirect("runs:runs")


def _created(person: User, asked: Asked) -> Run:
    return run_create(
        person=person,
        spec=asked.spec,
        composition=asked.composition,
        executor=asked.executor,
        preset=asked.preset,
        title=asked.title,
        limit_seconds=asked.limit_seconds,
        keep_composed=asked.keep_composed,
        exercise=asked.exercise,
    )


def _form(request: HttpRequest, form: RunForm, *, status: int = 200) -> HttpResponse:
    context = {"form": form, "catalogue": CATALOGUE.values(), "workload": form.workload}
    return render(request, "benchmarks/runs/run_new.html", context, status=status)


def _file(
    request: HttpRequest, text: str, sample: str, *, errors: Mapping[str, str] | None = None, status: int = 200
) -> HttpResponse:
    context = {"text": text, "sample": sample, "errors": errors}
    return render(request, "benchmarks/runs/run_file.html", context, status=status)


def _uploaded(request: HttpRequest) -> str:
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return ""
    if not file.size or file.size > LARGEST_FILE:
        raise Invalid("The file is empty or too long.", errors={"file": f"At most {LARGEST_FILE // 1024} KiB."})
    try:
        return bytes(file.read()).decode()
    except UnicodeDecodeError as error:
        raise Invalid("The file is no text.", errors={"file": "It is no UTF-8 text."}) from error


def _refused(request: HttpRequest, run: Run, error: FalconWebError) -> HttpResponse:
    if error.status in {403, 404}:
        raise error
    messages.error(request, error.sentence)
    return redirect("runs:run", pk=run.pk)


def _had_before(person: User, again: str) -> Run:
    """Return the run that another one begins with; raises Conflict for an imported one, which has no place here."""
    row = run_of(person, _uuid(again))
    if not row.composition:
        raise Conflict("It was imported: nobody here knows where it could run.")
    return row


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise Invalid("There is no such run.", errors={"again": "Give the id of a run."}) from error
