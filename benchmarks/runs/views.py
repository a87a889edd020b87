"""Pages of the catalogue and of the list of runs: thin faces over selectors and services."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.exports import Download
from accounts.sheets import lines
from benchmarks.runs.models import Run
from benchmarks.runs.placing import hosts_for
from benchmarks.runs.selectors import (
    COLUMNS,
    EXECUTORS,
    GROUPS,
    SORTS,
    RunFilter,
    catalogue_of,
    figures_of,
    run_lines,
    runs_found,
)
from benchmarks.runs.services import run_cancel
from benchmarks.workloads.catalogue import CATALOGUE
from fabric.models import Host
from fabric.permissions import refuse_onlooker
from falconweb.errors import FalconWebError, Invalid, NotFound

ROWS_A_PAGE = 50
MOST_AT_ONCE = 200
FAMILIES = {
    "vision": "Vision", "detection": "Detection", "language": "Language", "link": "Links and storage",
    "command": "Your own",
}  # fmt: skip


@require_GET
def catalogue(request: HttpRequest) -> HttpResponse:
    """Show what can be run, and what was run last of it."""
    person = person_of(request)
    found = catalogue_of(person)
    families = [
        (words, [line for line in found if line.workload.family == family]) for family, words in FAMILIES.items()
    ]
    context = {
        "families": families,
        "going_on": Run.objects.visible_to(person).open().exists(),
        "able": any(not host.why_not for host in hosts_for(person)),
    }
    return render(request, "benchmarks/runs/catalogue.html", context)


@require_GET
def runs(request: HttpRequest) -> HttpResponse:
    """List runs; the filter, `sort` and `page` are in the URL."""
    person = person_of(request)
    asked, error = RunFilter.of(request.GET.dict()), ""
    try:
        rows = runs_found(person, asked)
    except Invalid as refused:
        error, rows = refused.sentence, Run.objects.none()
    page = Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))
    seen = Run.objects.visible_to(person)
    context = {
        "page": page,
        "rows": figures_of(page.object_list),
        "asked": asked,
        "error": error,
        "going_on": seen.open().exists(),
        "workloads": [(name, one.title) for name, one in CATALOGUE.items()],
        "states": [*GROUPS.items(), *Run.State.choices],
        "provenances": Run.Provenance.choices,
        "executors": EXECUTORS.items(),
        "hosts": Host.objects.filter(runs__in=seen).distinct().order_by("name"),
        "people": seen.order_by("requested_by_name").values_list("requested_by_name", flat=True).distinct(),
        "sorts": SORTS,
    }
    return render(request, "benchmarks/runs/runs.html", context, status=400 if error else 200)


@require_GET
def runs_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream the runs that fit as CSV."""
    rows = runs_found(person_of(request), RunFilter.of(request.GET.dict()))
    answer = Download(lines(COLUMNS, run_lines(rows)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="runs.csv"'
    return answer


@require_POST
def runs_cancel(request: HttpRequest) -> HttpResponse:
    """Cancel several runs, each by itself: what stands against one keeps no other."""
    person = person_of(request)
    refuse_onlooker(person)
    wanted = [one for one in request.POST.getlist("run")[:MOST_AT_ONCE] if len(one) == 36]
    try:
        rows = list(Run.objects.visible_to(person).filter(pk__in=wanted))
    except ValidationError:
        rows = []
    if not rows:
        raise NotFound("There is no such run.") if wanted else Invalid("No run was chosen.")
    cancelled, refused = 0, []
    for run in rows:
        try:
            run_cancel(person=person, run=run)
            cancelled += 1
        except FalconWebError as error:
            refused.append(f"‘{run.title}’: {error.sentence}")
    if cancelled:
        messages.success(request, f"{cancelled} run{'' if cancelled == 1 else 's'} cancelled.")
    for sentence in refused[:10]:
        messages.error(request, sentence)
    where = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(where, allowed_hosts={request.get_host()}) and where.startswith("/")
    return redirect(where if safe else "runs:runs")
