"""Pages of sweeps: the list, one sweep with its progress and results, its actions, and the form of a new one.

A new sweep has a form with a live count, or a manifest that is explained first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.runs.models import Run
from benchmarks.sweeps.expansion import ExpandedSweep, duration_text, expand_sweep, sweep_pool
from benchmarks.sweeps.forms import form_axes, grid_from_form, initial_form_data, objective_choices
from benchmarks.sweeps.grid import AXIS_LABELS, MAX_POINTS, SweepGrid, validated_grid, varied_axes
from benchmarks.sweeps.manifest import MAX_MANIFEST_LENGTH, Manifest, read_manifest
from benchmarks.sweeps.models import Sweep
from benchmarks.sweeps.placement import LOCAL_PLACEMENT, SweepPool, composition_key
from benchmarks.sweeps.selectors import (
    CSV_COLUMNS,
    POINT_CSV_COLUMNS,
    POINT_STATES,
    PointStatus,
    SweepProgress,
    axis_value_labels,
    point_filter,
    point_list,
    point_rows,
    progress_of_sweeps,
    remaining_time,
    sweep_get,
    sweep_list,
    sweep_rows,
    sweep_scaling,
    value_label,
)
from benchmarks.sweeps.services import (
    failed_points,
    runs_of_others,
    sweep_create,
    sweep_delete,
    sweep_halt,
    sweep_pause,
    sweep_resume,
    sweep_retry,
    why_not_delete,
)
from core.downloads import csv_download, csv_table
from core.errors import FalconWebError, Invalid
from core.forms import refusals_as_messages
from core.language import _, gettext_noop
from fabric.operations.models import Plan

ROWS_A_PAGE = 25
COMPOSITION_AXES = ("accelerator", "storage")  # axes that distinguish compositions besides host, place and number
MAX_EXCLUDED_SHOWN = 30  # excluded points on the page; the API has the rest
# Each state has a sign, so that colour is never the only cue.
STATE_SIGNS = {"waiting": "·", "open": "▶", "completed": "✓", "failed": "▲", "cancelled": "■", "skipped": "–"}


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Sweeps", "Benchmarks", 3))
def sweeps(request: HttpRequest) -> HttpResponse:
    """List sweeps; `q`, `state`, `sort` and `page` are in the URL."""
    person = person_of(request)
    filters, error = _list_filters(request), ""
    try:
        rows = sweep_list(person, search=filters["q"], state=filters["state"], sort=filters["sort"])
    except Invalid as refused:
        error, rows = refused.sentence, sweep_list(person).none()
    page = Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))
    progress = progress_of_sweeps(list(page.object_list))
    context = {
        "page": page,
        "rows": [(one, progress[one.pk]) for one in page.object_list],
        "filters": filters,
        "filtered": bool(filters["q"] or filters["state"]),
        "error": error,
        "states": Sweep.State.choices,
        "going_on": any(one.state == Sweep.State.RUNNING for one in page.object_list),
        "may_run": person.may_compose,
    }
    return render(request, "benchmarks/sweeps/sweeps.html", context, status=400 if error else 200)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def sweeps_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream the matching sweeps as CSV."""
    filters = _list_filters(request)
    rows = sweep_list(person_of(request), search=filters["q"], state=filters["state"], sort=filters["sort"])
    return csv_download(csv_table(CSV_COLUMNS, sweep_rows(rows)), "sweeps.csv")


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def sweep(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show a sweep: its matrix, how it scales, its points; `state`, `sort` and `page` of the points are in the URL."""
    person = person_of(request)
    row = sweep_get(person, pk)
    points = point_list(row)
    filters, error = {name: request.GET.get(name, "") for name in ("state", "sort")}, ""
    try:
        found = point_filter(points, state=filters["state"], sort=filters["sort"])
    except Invalid as refused:
        error, found = refused.sentence, []
    page = Paginator(found, ROWS_A_PAGE).get_page(request.GET.get("page"))
    names = axis_value_labels(person, [one.values for one in points])
    grid = SweepGrid.from_json(row.grid)
    axes = [axis for axis in varied_axes(grid) if any(axis in one.values for one in points)]
    left, rests_on = remaining_time(points, row)
    progress = SweepProgress.of(one.state for one in points)
    context = {
        "sweep": row,
        "grid": grid,
        "progress": progress,
        "counts": [(state, STATE_SIGNS[state], count) for state, count in progress.counts.items()],
        "groups": _groups(points, names, axes),
        "running": [one for one in points if one.state == "open"],
        "scalings": sweep_scaling(points, row, names),
        "axes": [(axis, _(AXIS_LABELS[axis])) for axis in axes],
        "page": page,
        "rows": [
            (one, STATE_SIGNS[one.state], [(_(AXIS_LABELS[axis]), _axis_value(axis, one, names)) for axis in axes])
            for one in page.object_list
        ],
        "filters": filters,
        "error": error,
        "states": POINT_STATES,
        "left": left,
        "left_words": duration_text(left.total_seconds()) if left is not None else "",
        "rests_on": rests_on,
        "left_out": row.left_out[:MAX_EXCLUDED_SHOWN],
        "left_out_more": max(0, row.left_out_count - MAX_EXCLUDED_SHOWN),
        "plan_back": Plan.objects.visible_to(person).filter(pk=row.plan_back).first() if row.plan_back else None,
        "going_on": row.state == Sweep.State.RUNNING or not row.settled or any(one.state == "open" for one in points),
        **_permitted_actions(person, row),
    }
    return render(request, "benchmarks/sweeps/sweep.html", context, status=400 if error else 200)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_PAGE)
def points_csv(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Stream the matching points of a sweep as CSV."""
    row = sweep_get(person_of(request), pk)
    found = point_filter(point_list(row), state=request.GET.get("state", ""), sort=request.GET.get("sort", ""))
    return csv_download(csv_table(POINT_CSV_COLUMNS, point_rows(found)), f"{slugify(row.title)[:80] or 'sweep'}.csv")


def _action_view(
    action: Action, act: Callable[..., Sweep], sentence: Callable[[Sweep], str]
) -> Callable[[HttpRequest, UUID], HttpResponse]:
    """Return the view of an action on a sweep; `sentence` is what it reports of the changed sweep."""

    @require_POST
    @declare(Audience.OBJECT_VIEWERS, audited_as=action)
    def view(request: HttpRequest, pk: UUID) -> HttpResponse:
        person = person_of(request)
        row = sweep_get(person, pk)
        with refusals_as_messages(request):
            row = act(person=person, sweep=row)
            messages.success(request, sentence(row))
        return redirect("sweeps:sweep", pk=pk)

    return view


pause = _action_view(
    Action.SWEEP_PAUSE, sweep_pause, lambda _row: _("Paused. Current runs finish; then the devices are returned.")
)
resume = _action_view(Action.SWEEP_RESUME, sweep_resume, lambda _row: _("Resumed. It continues within seconds."))
halt = _action_view(
    Action.SWEEP_HALT, sweep_halt, lambda _row: _("Halted. Its runs are cancelled; then the devices are returned.")
)
retry = _action_view(
    Action.SWEEP_RETRY,
    sweep_retry,
    lambda row: (
        _("The runs are queued again. The sweep stays paused: resume it to run them.")
        if row.state == Sweep.State.PAUSED
        else _("The runs are retried within seconds.")
    ),
)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.SWEEP_DELETE)
def delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a sweep, with `runs` also its runs."""
    person = person_of(request)
    row = sweep_get(person, pk)
    with_runs = "runs" in request.POST
    shown: tuple[object, ...] = ("sweeps:sweep", pk)
    with refusals_as_messages(request):
        sweep_delete(person=person, sweep=row, runs=with_runs)
        messages.success(
            request,
            _("‘{name}’ was deleted with its runs.", name=row.title)
            if with_runs
            else _("‘{name}’ was deleted.", name=row.title),
        )
        shown = ("sweeps:sweeps",)
    return redirect(*shown)


def _permitted_actions(person: User, row: Sweep) -> dict[str, Any]:
    """Return the available actions, and for deletion the number of runs, also those of others."""
    may = person.may_compose
    return {
        "may_pause": may and row.state == Sweep.State.RUNNING,
        "may_resume": may and row.state in {Sweep.State.PAUSED, Sweep.State.HALTED},
        "may_halt": may and row.state in {Sweep.State.RUNNING, Sweep.State.PAUSED},
        "may_retry": may and failed_points(row).exists(),
        "may_delete": may and not why_not_delete(row),
        "run_count": Run.objects.filter(sweep=row).count(),
        "runs_of_others": runs_of_others(person, row),
    }


def _groups(
    points: Sequence[PointStatus], names: dict[str, dict[object, str]], axes: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the points by composition, in the order in which they run; `is_now` marks the one that runs."""
    groups = []
    common = ["host", "placement", "count", *(axis for axis in COMPOSITION_AXES if axis in axes)]
    for _key, some in itertools.groupby(points, key=lambda one: composition_key(one.composition)):
        group = list(some)
        groups.append(
            {
                "words": _values_label(group[0], names, common),
                "cells": [
                    {"view": one, "sign": STATE_SIGNS[one.state], "words": _values_label(one, names, axes)}
                    for one in group
                ],
                "is_now": any(one.state == "open" for one in group),
            }
        )
    return groups


def _values_label(one: PointStatus, names: dict[str, dict[object, str]], axes: Sequence[str]) -> str:
    """Return a point's values in a line: 'node-a, 4 devices, batch 64'."""
    return ", ".join(value_label(axis, one.values[axis], names) for axis in axes if axis in one.values)


def _axis_value(axis: str, one: PointStatus, names: dict[str, dict[object, str]]) -> str:
    value = one.values.get(axis)
    if value is None:
        return ""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return names.get(axis, {}).get(value, str(value))


def _list_filters(request: HttpRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "") for name in ("q", "state", "sort")}


MAX_PREVIEWED = 20
HANDLED_STATUSES = {400, 409, 422}
EXECUTOR_CHOICES = (("simulated", gettext_noop("Simulated")), ("torch", "PyTorch"))
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
    ("custom", gettext_noop("custom: full size")),
    ("paper", gettext_noop("paper: as published")),
    ("tiny", gettext_noop("tiny: small, on any machine")),
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
    messages.success(request, _("The sweep starts within seconds."))
    return redirect("sweeps:sweep", pk=row.pk)


@require_GET
@declare(Audience.COMPOSERS, what="run anything", no_page_test=NO_PAGE)
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
            messages.success(request, _("The sweep starts within seconds."))
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
    names = axis_value_labels(person, [one.values for one in expanded.expansion.left_out[:MAX_PREVIEWED]])
    return {
        "draft": expanded,
        "duration": duration_text(expanded.seconds),
        "reasons": expanded.expansion.reasons[:MAX_PREVIEWED],
        "left_out": [
            (", ".join(f"{_(AXIS_LABELS.get(axis, axis))} {names.get(axis, {}).get(value, value)}"
                       for axis, value in one.values.items() if axis not in {"framework", "storage", "host"}), one.why)
            for one in expanded.expansion.left_out[:MAX_PREVIEWED]
        ],
        "left_out_more": max(0, expanded.expansion.left_out_count - MAX_PREVIEWED),
    }  # fmt: skip


def _render_form(
    request: HttpRequest, given: QueryDict, pool: SweepPool, found: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    context = {
        **found,
        "axes": form_axes(given, pool, found.get("errors", {})),
        "given": given,
        "objectives": objective_choices(given),
        "executors": [(name, _(label)) for name, label in EXECUTOR_CHOICES],
        "presets": [(name, _(label)) for name, label in PRESET_CHOICES],
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
        return "", _("The file is not UTF-8 text: line {line} has an invalid byte.", line=line)


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
        "executors": [(name, _(label)) for name, label in EXECUTOR_CHOICES],
        "largest": MAX_MANIFEST_LENGTH,
        "example": EXAMPLE,
    }
    return render(request, "benchmarks/sweeps/manifest.html", context, status=status)
