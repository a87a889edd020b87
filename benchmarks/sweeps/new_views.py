"""Pages of a new sweep: by a form with its live count, or by a manifest that is explained first."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record
from accounts.models import User
from benchmarks.sweeps.asking import axes_of, beginning, grid_asked, objectives_of
from benchmarks.sweeps.expanding import Drawn, drawn_of
from benchmarks.sweeps.grid import AXIS_WORDS, MOST_POINTS, grid_checked
from benchmarks.sweeps.manifest import LARGEST, Manifest, read_manifest
from benchmarks.sweeps.pool import OWN, Pool
from benchmarks.sweeps.seen import pool_of
from benchmarks.sweeps.selectors import words_of
from benchmarks.sweeps.services import sweep_create
from fabric.permissions import refuse_onlooker
from falconweb.errors import FalconWebError, Invalid

MOST_TOLD = 20
PASSED_ON = {400, 409, 422}
EXECUTORS = (("simulated", "Simulated"), ("torch", "PyTorch, for real"))
# What a manifest may look like, shown where none is typed yet.
EXAMPLE = """\
name: resnet
gpus: [1, 2, 4]
learners: 1
framework:
  name: pytorch
workload: resnet50
grid:
  batch: [32, 64, 128]"""
PRESETS = (("custom", "custom: full size"), ("paper", "paper: as published"), ("tiny", "tiny: small, on any machine"))


@require_http_methods(["GET", "POST"])
def sweep_add(request: HttpRequest) -> HttpResponse:
    """Show the form of a sweep as the address fills it in; POST asks for the sweep."""
    person = person_of(request)
    refuse_onlooker(person, "run anything")
    pool = pool_of(person)
    if request.method != "POST":
        given = request.GET or beginning(pool)
        return _form(request, given, pool, _counted(person, given, pool))
    try:
        row = sweep_create(
            person=person,
            grid=grid_asked(request.POST),
            title=request.POST.get("title", ""),
            idempotency_key=request.POST.get("key", "")[:200],
        )
    except FalconWebError as error:
        if error.status not in PASSED_ON:
            raise
        found = {"error": error.sentence, "errors": error.details.get("errors", {})}
        return _form(
            request, request.POST, pool, {**_counted(person, request.POST, pool), **found}, status=error.status
        )
    messages.success(request, "The sweep begins within seconds.")
    return redirect("sweeps:sweep", pk=row.pk)


@require_GET
def count(request: HttpRequest) -> HttpResponse:
    """Say what the grid of an address comes to; a part of a page, for the form while it is filled in."""
    person = person_of(request)
    refuse_onlooker(person, "run anything")
    return render(request, "benchmarks/sweeps/count.html", _counted(person, request.GET, pool_of(person)))


@sensitive_post_parameters("text")
@sensitive_variables("text", "read")
@require_http_methods(["GET", "POST"])
def manifest(request: HttpRequest) -> HttpResponse:
    """Show the form of manifests; POST explains `file` or `text` field by field, with `make` it asks for the sweep.

    What was given is never sent back: it may hold passwords of data stores.
    """
    person = person_of(request)
    refuse_onlooker(person, "run anything")
    pool = pool_of(person)
    if request.method != "POST":
        return _manifest_page(request, pool, {"chosen": _chosen(QueryDict(), pool)})
    chosen = _chosen(request.POST, pool)
    text, sentence = _given(request)
    read = read_manifest(text) if not sentence else Manifest()
    found: dict[str, Any] = {"chosen": chosen, "read": read, "refused": sentence, "looked": True}
    if sentence or read.problems:
        count = len(read.problems) or 1
        audit_record(
            action=Action.SWEEP_READ,
            actor=person,
            outcome=Outcome.REFUSED,
            sentence=f"The manifest has {count} problem{'' if count == 1 else 's'}.",
        )
        return _manifest_page(request, pool, found, status=400)
    try:
        grid = read.grid_with(chosen)
        if "make" in request.POST:
            row = sweep_create(person=person, grid=grid, title=read.title, manifest=read.kept)
            messages.success(request, "The sweep begins within seconds.")
            return redirect("sweeps:sweep", pk=row.pk)
        found |= _told(person, drawn_of(person, grid_checked(grid), pool))
    except FalconWebError as error:
        if error.status not in PASSED_ON:
            raise
        errors = error.details.get("errors", {})
        return _manifest_page(
            request, pool, {**found, "refused": error.sentence, "errors": errors}, status=error.status
        )
    audit_record(action=Action.SWEEP_READ, actor=person, after={"name": read.title, "runs": len(found["drawn"].points)})
    return _manifest_page(request, pool, found)


def _counted(person: User, given: QueryDict, pool: Pool) -> dict[str, Any]:
    """Return what a grid comes to, or what is wrong with it."""
    try:
        return _told(person, drawn_of(person, grid_checked(grid_asked(given)), pool))
    except Invalid as error:
        return {"error": error.sentence, "errors": error.details.get("errors", {})}


def _told(person: User, drawn: Drawn) -> dict[str, Any]:
    names = words_of(person, [one.values for one in drawn.expansion.left_out[:MOST_TOLD]])
    return {
        "drawn": drawn,
        "reasons": drawn.expansion.reasons[:MOST_TOLD],
        "left_out": [
            (", ".join(f"{AXIS_WORDS.get(axis, axis)} {names.get(axis, {}).get(value, value)}"
                       for axis, value in one.values.items() if axis not in {"framework", "storage", "host"}), one.why)
            for one in drawn.expansion.left_out[:MOST_TOLD]
        ],
        "left_out_more": max(0, drawn.expansion.left_out_count - MOST_TOLD),
    }  # fmt: skip


def _form(
    request: HttpRequest, given: QueryDict, pool: Pool, found: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    context = {
        **found,
        "axes": axes_of(given, pool, found.get("errors", {})),
        "given": given,
        "objectives": objectives_of(given),
        "executors": EXECUTORS,
        "presets": PRESETS,
        "pool": pool,
        "most": MOST_POINTS,
    }
    return render(request, "benchmarks/sweeps/sweep_add.html", context, status=status)


def _chosen(given: QueryDict, pool: Pool) -> dict[str, Any]:
    """Return what is chosen beside a manifest, as members of a grid."""
    ready = [host for host in pool.hosts if host.executors] or list(pool.hosts)
    first = str(ready[0].id) if ready else "0"
    host = given.get("host", "") or first
    return {
        "host": [int(host) if host.isascii() and host.isdecimal() and len(host) < 7 else 0],
        "placement": [given.get("placement") or (beginning(pool).get("placement") or OWN)],
        "executor": given.get("executor") or (beginning(pool).get("executor") or "simulated"),
    }


def _given(request: HttpRequest) -> tuple[str, str]:
    """Return the manifest that came, or why it cannot be read; a file comes before what was typed."""
    file = request.FILES.get("file")
    if file is None or not file.name:
        return request.POST.get("text", "").replace("\r\n", "\n"), ""
    raw = file.read(4 * LARGEST + 1)
    try:
        return raw.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        return "", f"The file is no UTF-8 text: line {line} has a byte that is none of it."


def _manifest_page(request: HttpRequest, pool: Pool, found: dict[str, Any], *, status: int = 200) -> HttpResponse:
    context = {
        **found,
        "host": found["chosen"]["host"][0],
        "placement": found["chosen"]["placement"][0],
        "executor": found["chosen"]["executor"],
        "hosts": pool.hosts,
        "placements": [
            one for axis in axes_of(QueryDict(), pool, {}) if axis.name == "placement" for one in axis.choices
        ],
        "executors": EXECUTORS,
        "largest": LARGEST,
        "example": EXAMPLE,
    }
    return render(request, "benchmarks/sweeps/manifest.html", context, status=status)
