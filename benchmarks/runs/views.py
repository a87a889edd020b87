"""Pages of the catalogue and of runs: thin layers over selectors and services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.runs.choices import host_choices
from benchmarks.runs.detail import run_status
from benchmarks.runs.device_selection import sample_run_file
from benchmarks.runs.documents import MAX_FILE_LENGTH, parse_run_file, run_file
from benchmarks.runs.forms import RunForm, run_form, run_form_from, run_form_new
from benchmarks.runs.models import Run
from benchmarks.runs.recording import log_read, log_size, log_tail, series_of, series_values
from benchmarks.runs.results import summary_of
from benchmarks.runs.selectors import (
    CSV_COLUMNS,
    EXECUTOR_LABELS,
    SORT_FIELDS,
    STATE_GROUPS,
    RunFilter,
    catalogue_list,
    run_get,
    run_list,
    run_rows,
)
from benchmarks.runs.services import (
    has_checkpoint,
    run_cancel,
    run_create,
    run_delete,
    run_resume,
    run_retry,
    run_return,
)
from benchmarks.runs.topology import gpu_labels, recorded_topology
from benchmarks.workloads.catalogue import CATALOGUE
from core.database import natural
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, FalconWebError, Invalid, NotFound
from core.language import _, _n, gettext_noop
from core.local_pages import next_page
from fabric.inventory.models import Device, Host

ROWS_A_PAGE = 50
COMPARABLE_SHOWN = 3
MAX_CANCELLED_AT_ONCE = 200
FAMILY_LABELS = {
    "vision": gettext_noop("Vision"),
    "detection": gettext_noop("Detection"),
    "language": gettext_noop("Language"),
    "link": gettext_noop("Links and storage"),
    "command": gettext_noop("Your own"),
}


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Workloads", "Benchmarks", 1))
def catalogue(request: HttpRequest) -> HttpResponse:
    """Show the catalogue with the latest run of each workload."""
    person = person_of(request)
    found = catalogue_list(person)
    families = [
        (words, [line for line in found if line.workload.family == family]) for family, words in FAMILY_LABELS.items()
    ]
    context = {
        "families": families,
        "going_on": Run.objects.visible_to(person).open().exists(),
        "able": any(not host.why_not for host in host_choices(person)),
    }
    return render(request, "benchmarks/runs/catalogue.html", context)


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Runs", "Benchmarks", 2))
def runs(request: HttpRequest) -> HttpResponse:
    """List runs; the filter, `sort` and `page` are in the URL."""
    person = person_of(request)
    filters, error = RunFilter.of(request.GET.dict()), ""
    try:
        rows = run_list(person, filters).prefetch_related("nodes")
    except Invalid as refused:
        error, rows = refused.sentence, Run.objects.none()
    page = Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))
    seen = Run.objects.visible_to(person)
    context = {
        "page": page,
        "rows": [(run, summary_of(run)) for run in page.object_list],
        "filters": filters,
        "error": error,
        "going_on": seen.open().exists(),
        "workloads": [(name, _(one.title)) for name, one in CATALOGUE.items()],
        "states": [*((name, _(label)) for name, label in STATE_GROUPS.items()), *Run.State.choices],
        "provenances": Run.Provenance.choices,
        "executors": [(name, _(label)) for name, label in EXECUTOR_LABELS.items()],
        "hosts": Host.objects.filter(runs__in=seen).distinct().order_by(natural("name")),
        "people": seen.order_by("requested_by_name").values_list("requested_by_name", flat=True).distinct(),
        "sorts": SORT_FIELDS,
    }
    return render(request, "benchmarks/runs/runs.html", context, status=400 if error else 200)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def runs_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream the matching runs as CSV."""
    rows = run_list(person_of(request), RunFilter.of(request.GET.dict()))
    return csv_download(csv_table(CSV_COLUMNS, run_rows(rows)), "runs.csv")


@require_POST
@declare(Audience.COMPOSERS, audited_as=Action.RUN_CANCEL)
def runs_cancel(request: HttpRequest) -> HttpResponse:
    """Cancel several runs independently: a refusal of one does not affect the others."""
    person = person_of(request)
    ids = [one for one in request.POST.getlist("run")[:MAX_CANCELLED_AT_ONCE] if len(one) == 36]
    try:
        rows = list(Run.objects.visible_to(person).filter(pk__in=ids))
    except ValidationError:
        rows = []
    if not rows:
        raise NotFound(_("There is no such run.")) if ids else Invalid(_("No run was chosen."))
    cancelled, refused = 0, []
    for run in rows:
        try:
            run_cancel(person=person, run=run)
            cancelled += 1
        except FalconWebError as error:
            refused.append(_("‘{run}’: {sentence}", run=run.title, sentence=error.sentence))
    if cancelled:
        messages.success(request, _n("{count} run cancelled.", "{count} runs cancelled.", cancelled))
    for sentence in refused[:10]:
        messages.error(request, sentence)
    return redirect(next_page(request, "runs:runs"))


# Charts of a run: title, unit, and the suffix or prefix of the names of its series.
CHARTS = (
    (gettext_noop("Step time"), "s", "steps/", "/seconds"),
    (gettext_noop("Loss"), "", "steps/", "/loss"),
    (gettext_noop("Utilisation"), "share", "", "/utilisation"),
    (gettext_noop("PCIe traffic (GPU counters)"), "B/s", "gpu/", "/pcie_"),
)


@require_http_methods(["GET", "POST"])
@declare(Audience.COMPOSERS, what="run anything", audited_as=Action.RUN_CREATE)
def run_new(request: HttpRequest) -> HttpResponse:
    """Request a run; the form is prefilled from the URL: `workload`, `preset`, `host`, or a run (`again`)."""
    person = person_of(request)
    hosts = host_choices(person)
    if request.method != "POST":
        if again := request.GET.get("again", ""):
            return _render_form(request, run_form_from(hosts, _earlier_run(person, again)))
        return _render_form(request, run_form_new(hosts, request.GET))
    form = run_form(hosts, request.POST)
    try:
        run = run_create(person=person, request=form.run_request())
    except FalconWebError as error:
        form.add_errors(error)
        return _render_form(request, form, status=error.status)
    return redirect("runs:run", pk=run.pk)


@require_http_methods(["GET", "POST"])
@declare(Audience.COMPOSERS, what="run anything", audited_as=Action.RUN_CREATE)
def run_from_file(request: HttpRequest) -> HttpResponse:
    """Request a run by a manifest, pasted or uploaded; prefilled with `again`, a run, or with `sample`."""
    person = person_of(request)
    if request.method != "POST":
        again = request.GET.get("again", "")
        text = run_file(_earlier_run(person, again)) if again else ""
        sample = sample_run_file(host_choices(person))
        return _render_file(request, sample if request.GET.get("sample") else text, sample)
    text = request.POST.get("text", "")
    try:
        text = _uploaded_text(request) or text
        if not text.strip():
            raise Invalid(_("The form is empty."), errors={"": _("Paste JSON, or choose a file.")})
        run = run_create(person=person, request=parse_run_file(text))
    except FalconWebError as error:
        errors = error.details.get("errors", {}) or {"": error.sentence}
        return _render_file(request, text, sample_run_file(host_choices(person)), errors=errors, status=error.status)
    return redirect("runs:run", pk=run.pk)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def run(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show a run: its progress, results and hardware."""
    person = person_of(request)
    row = run_get(person, pk)
    tail = log_tail(row)
    series = series_of(row)
    context = {
        "run": row,
        "job": run_status(person, row),
        "workload": CATALOGUE.get(row.workload),
        "topology": recorded_topology(row),
        "series": series,
        "gpus": json.dumps(gpu_labels(row, [one.key for one in series]), ensure_ascii=False),
        "charts": CHARTS,
        "links": _live_links(person, row) if row.is_open else [],
        "log": tail,
        "log_size": log_size(row),
        "is_mine": row.requested_by_id == person.pk or person.is_administrator,
        "may_cancel": person.may_compose
        and row.is_open
        and row.cancel_requested_at is None
        and row.state != Run.State.RETURNING,
        "may_resume": has_checkpoint(row),
        "repeat_of": Run.objects.visible_to(person).filter(pk=row.repeat_of_id).first() if row.repeat_of_id else None,
        "repeats": Run.objects.visible_to(person).filter(repeat_of=row).order_by("-queued_at")[:5],
        "comparable": _comparable_runs(person, row) if row.state == Run.State.COMPLETED else [],
    }
    return render(request, "benchmarks/runs/run.html", context)


def _comparable_runs(person: User, row: Run) -> QuerySet[Run]:
    """Return the newest completed runs of the same workload."""
    rows = Run.objects.visible_to(person).filter(workload=row.workload, state=Run.State.COMPLETED)
    return rows.exclude(pk=row.pk).order_by("-queued_at")[:COMPARABLE_SHOWN]


def _live_links(person: User, row: Run) -> list[tuple[int, str, str]]:
    """Return each chassis whose devices a run uses, its ports to them as live charts take them, and their names."""
    found: dict[int, dict[str, str]] = {}
    devices = Device.objects.visible_to(person).filter(runs=row, slot__port__isnull=False).order_by("chassis", "pk")
    for chassis, port, name in devices.values_list("chassis", "slot__port", "slot__name"):
        found.setdefault(chassis, {})[f"port/{port}"] = name
    return [(chassis, " ".join(names), json.dumps(names)) for chassis, names in found.items()]


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_PAGE)
def run_log(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    row = run_get(person_of(request), pk)

    def pieces() -> Iterator[str]:
        first = 0
        while True:
            piece = log_read(row, first)
            yield piece.text
            if not piece.more:
                return
            first = piece.next

    headers = {"Content-Disposition": f'attachment; filename="run-{row.pk}.log"'}
    return Download(pieces(), content_type="text/plain; charset=utf-8", headers=headers)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_PAGE)
def run_series(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Download series of a run as CSV: those of `key`, once for each, or all."""
    row = run_get(person_of(request), pk)
    keys = request.GET.getlist("key")[:200] or None
    known = {one.key: one for one in series_of(row)}

    def rows() -> Iterator[tuple[object, ...]]:
        for key in sorted(known) if keys is None else keys:
            if key in known:
                at, values = series_values(row, [key]).get(key, ((), ()))
                for moment, value in zip(at, values, strict=True):
                    yield key, f"{moment:.6f}", f"{value:.9g}", known[key].unit, known[key].interval, known[key].source

    heads = ("series", "unix_seconds", "value", "unit", "interval_seconds", "source")
    return csv_download(csv_table(heads, rows()), f"run-{row.pk}.csv")


def _run_action(act: Callable[[HttpRequest, Run], HttpResponse]) -> Callable[[HttpRequest, UUID], HttpResponse]:
    """Return a view that calls `act` with the run of the address, and shows a refusal on the page of the run."""

    @wraps(act)
    def view(request: HttpRequest, pk: UUID) -> HttpResponse:
        try:
            return act(request, run_get(person_of(request), pk))
        except FalconWebError as error:
            if error.status in {403, 404}:
                raise
            messages.error(request, error.sentence)
            return redirect("runs:run", pk=pk)

    return view


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.RUN_CANCEL)
@_run_action
def cancel(request: HttpRequest, run: Run) -> HttpResponse:
    run = run_cancel(person=person_of(request), run=run)
    messages.success(request, _("The run is being cancelled.") if run.is_open else _("The run was cancelled."))
    return redirect("runs:run", pk=run.pk)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.RUN_RETRY)
@_run_action
def retry(request: HttpRequest, run: Run) -> HttpResponse:
    return redirect("runs:run", pk=run_retry(person=person_of(request), run=run).pk)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.RUN_RETRY)
@_run_action
def resume(request: HttpRequest, run: Run) -> HttpResponse:
    """Request a run that goes on from the checkpoint of one that was halted."""
    return redirect("runs:run", pk=run_resume(person=person_of(request), run=run).pk)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.RUN_RETURN)
@_run_action
def return_devices(request: HttpRequest, run: Run) -> HttpResponse:
    """Return the devices that a run could not return at its end."""
    return redirect("runs:run", pk=run_return(person=person_of(request), run=run).pk)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.RUN_DELETE)
@_run_action
def delete(request: HttpRequest, run: Run) -> HttpResponse:
    run_delete(person=person_of(request), run=run)
    messages.success(request, _("‘{name}’ was deleted.", name=run.title))
    return redirect("runs:runs")


def _render_form(request: HttpRequest, form: RunForm, *, status: int = 200) -> HttpResponse:
    context = {"form": form, "catalogue": CATALOGUE.values(), "workload": form.workload}
    return render(request, "benchmarks/runs/run_new.html", context, status=status)


def _render_file(
    request: HttpRequest, text: str, sample: str, *, errors: Mapping[str, str] | None = None, status: int = 200
) -> HttpResponse:
    context = {"text": text, "sample": sample, "errors": errors}
    return render(request, "benchmarks/runs/run_file.html", context, status=status)


def _uploaded_text(request: HttpRequest) -> str:
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return ""
    if not file.size or file.size > MAX_FILE_LENGTH:
        raise Invalid(
            _("The file is empty or too long."), errors={"file": _("At most {most} KiB.", most=MAX_FILE_LENGTH // 1024)}
        )
    try:
        return bytes(file.read()).decode()
    except UnicodeDecodeError as error:
        raise Invalid(_("The file is not text."), errors={"file": _("It is not UTF-8 text.")}) from error


def _earlier_run(person: User, again: str) -> Run:
    """Return the run that prefills another; raises Conflict for an imported one, which has no host here."""
    try:
        row = run_get(person, UUID(again))
    except ValueError as error:
        raise Invalid(_("There is no such run."), errors={"again": _("Give the id of a run.")}) from error
    if not row.composition:
        raise Conflict(_("This run was imported: its host is not known here."))
    return row
