"""Pages of a new sweep: a form with a live count, or a manifest that is explained first."""

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
from accounts.declaration import NO_PAGE, Audience, declare
from accounts.models import User
from benchmarks.sweeps.expansion import ExpandedSweep, expand_sweep, sweep_pool
from benchmarks.sweeps.forms import form_axes, grid_from_form, initial_form_data, objective_choices
from benchmarks.sweeps.grid import AXIS_LABELS, MAX_POINTS, validated_grid
from benchmarks.sweeps.manifest import MAX_MANIFEST_LENGTH, Manifest, read_manifest
from benchmarks.sweeps.placement import LOCAL_PLACEMENT, SweepPool
from benchmarks.sweeps.selectors import axis_value_labels
from benchmarks.sweeps.services import sweep_create
from core.errors import FalconWebError, Invalid

MAX_EXCLUDED_SHOWN = 20
HANDLED_STATUSES = {400, 409, 422}
EXECUTOR_CHOICES = (("simulated", "Simulated"), ("torch", "PyTorch"))
# An example manifest, shown while the field is empty.
EXAMPLE = """\
name: resnet
gpus: [1, 2, 4]
learners: 1
framework:
  name: pytorch
workload: resnet50
grid:
  batch: [32, 64, 128]"""
PRESET_CHOICES = (
    ("custom", "custom: full size"),
    ("paper", "paper: as published"),
    ("tiny", "tiny: small, on any machine"),
)


@require_http_methods(["GET", "POST"])
@declare(Audience.COMPOSERS, what="run anything", audited_as=Action.SWEEP_CREATE)
def sweep_add(request: HttpRequest) -> HttpResponse:
    """Show the form of a sweep, prefilled from the URL; POST requests the sweep."""
    person = person_of(request)
    pool = sweep_pool(person)
    if request.method != "POST":
        given = request.GET or initial_form_data(pool)
        return _render_form(request, given, pool, _preview(person, given, pool))
    try:
        row = sweep_create(
            person=person,
            grid=grid_from_form(request.POST),
            title=request.POST.get("title", ""),
            idempotency_key=request.POST.get("key", "")[:200],
        )
    except FalconWebError as error:
        if error.status not in HANDLED_STATUSES:
            raise
        found = {"error": error.sentence, "errors": error.details.get("errors", {})}
        return _render_form(
            request, request.POST, pool, {**_preview(person, request.POST, pool), **found}, status=error.status
        )
    messages.success(request, "The sweep starts within seconds.")
    return redirect("sweeps:sweep", pk=row.pk)


@require_GET
@declare(Audience.COMPOSERS, what="run anything", not_judged=NO_PAGE)
def sweep_count(request: HttpRequest) -> HttpResponse:
    """Preview the grid of a URL, as a part of a page that the form updates while it is filled in."""
    person = person_of(request)
    return render(request, "benchmarks/sweeps/count.html", _preview(person, request.GET, sweep_pool(person)))


@sensitive_post_parameters("text")
@sensitive_variables("text", "read")
@require_http_methods(["GET", "POST"])
@declare(Audience.COMPOSERS, what="run anything", audited_as=Action.SWEEP_READ)
def manifest(request: HttpRequest) -> HttpResponse:
    """Show the form of manifests; POST explains `file` or `text` field by field, with `make` it requests the sweep.

    What was given is never sent back: it may hold passwords of data stores.
    """
    person = person_of(request)
    pool = sweep_pool(person)
    if request.method != "POST":
        return _render_manifest(request, pool, {"chosen": _manifest_defaults(QueryDict(), pool)})
    chosen = _manifest_defaults(request.POST, pool)
    text, sentence = _submitted_manifest(request)
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
        return _render_manifest(request, pool, found, status=400)
    try:
        grid = read.grid_with(chosen)
        if "make" in request.POST:
            row = sweep_create(person=person, grid=grid, title=read.title, manifest=read.kept)
            messages.success(request, "The sweep starts within seconds.")
            return redirect("sweeps:sweep", pk=row.pk)
        found |= _preview_context(person, expand_sweep(person, validated_grid(grid), pool))
    except FalconWebError as error:
        if error.status not in HANDLED_STATUSES:
            raise
        errors = error.details.get("errors", {})
        return _render_manifest(
            request, pool, {**found, "refused": error.sentence, "errors": errors}, status=error.status
        )
    runs = len(found["draft"].points)
    audit_record(action=Action.SWEEP_READ, actor=person, after={"name": read.title, "runs": runs})
    return _render_manifest(request, pool, found)


def _preview(person: User, given: QueryDict, pool: SweepPool) -> dict[str, Any]:
    """Return the preview of a grid, or its errors."""
    try:
        return _preview_context(person, expand_sweep(person, validated_grid(grid_from_form(given)), pool))
    except Invalid as error:
        return {"error": error.sentence, "errors": error.details.get("errors", {})}


def _preview_context(person: User, expanded: ExpandedSweep) -> dict[str, Any]:
    names = axis_value_labels(person, [one.values for one in expanded.expansion.left_out[:MAX_EXCLUDED_SHOWN]])
    return {
        "draft": expanded,
        "reasons": expanded.expansion.reasons[:MAX_EXCLUDED_SHOWN],
        "left_out": [
            (", ".join(f"{AXIS_LABELS.get(axis, axis)} {names.get(axis, {}).get(value, value)}"
                       for axis, value in one.values.items() if axis not in {"framework", "storage", "host"}), one.why)
            for one in expanded.expansion.left_out[:MAX_EXCLUDED_SHOWN]
        ],
        "left_out_more": max(0, expanded.expansion.left_out_count - MAX_EXCLUDED_SHOWN),
    }  # fmt: skip


def _render_form(
    request: HttpRequest, given: QueryDict, pool: SweepPool, found: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    context = {
        **found,
        "axes": form_axes(given, pool, found.get("errors", {})),
        "given": given,
        "objectives": objective_choices(given),
        "executors": EXECUTOR_CHOICES,
        "presets": PRESET_CHOICES,
        "pool": pool,
        "most": MAX_POINTS,
    }
    return render(request, "benchmarks/sweeps/sweep_add.html", context, status=status)


def _manifest_defaults(given: QueryDict, pool: SweepPool) -> dict[str, Any]:
    """Return the choices beside a manifest, as members of a grid."""
    usual = initial_form_data(pool)
    host = given.get("host") or usual.get("host") or "0"
    return {
        "host": [int(host) if host.isascii() and host.isdecimal() and len(host) < 7 else 0],
        "placement": [given.get("placement") or usual.get("placement") or LOCAL_PLACEMENT],
        "executor": given.get("executor") or usual.get("executor") or "simulated",
    }


def _submitted_manifest(request: HttpRequest) -> tuple[str, str]:
    """Return the submitted manifest, or why it cannot be read; a file takes precedence over text."""
    file = request.FILES.get("file")
    if file is None or not file.name:
        return request.POST.get("text", "").replace("\r\n", "\n"), ""
    raw = file.read(4 * MAX_MANIFEST_LENGTH + 1)
    try:
        return raw.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        return "", f"The file is not UTF-8 text: line {line} has an invalid byte."


def _render_manifest(
    request: HttpRequest, pool: SweepPool, found: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    context = {
        **found,
        "host": found["chosen"]["host"][0],
        "placement": found["chosen"]["placement"][0],
        "executor": found["chosen"]["executor"],
        "hosts": pool.hosts,
        "placements": [
            one for axis in form_axes(QueryDict(), pool, {}) if axis.name == "placement" for one in axis.choices
        ],
        "executors": EXECUTOR_CHOICES,
        "largest": MAX_MANIFEST_LENGTH,
        "example": EXAMPLE,
    }
    return render(request, "benchmarks/sweeps/manifest.html", context, status=status)
