"""Pages of sweeps: the list, one sweep with its progress and results, and its actions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NONE_YET, Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.runs.models import Run
from benchmarks.sweeps.expansion import duration_text
from benchmarks.sweeps.grid import AXIS_LABELS, SweepGrid, varied_axes
from benchmarks.sweeps.models import Sweep
from benchmarks.sweeps.placement import composition_key
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
    sweep_delete,
    sweep_halt,
    sweep_pause,
    sweep_resume,
    sweep_retry,
    why_not_delete,
)
from core.downloads import csv_download, csv_table
from core.errors import FalconWebError, Invalid
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
@declare(Audience.EVERYBODY, not_judged=NO_PAGE)
def sweeps_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream the matching sweeps as CSV."""
    filters = _list_filters(request)
    rows = sweep_list(person_of(request), search=filters["q"], state=filters["state"], sort=filters["sort"])
    return csv_download(csv_table(CSV_COLUMNS, sweep_rows(rows)), "sweeps.csv")


@require_GET
@declare(Audience.WHO_SEES_IT, not_judged=NONE_YET)
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
        "axes": [(axis, AXIS_LABELS[axis]) for axis in axes],
        "page": page,
        "rows": [
            (one, STATE_SIGNS[one.state], [(AXIS_LABELS[axis], _axis_value(axis, one, names)) for axis in axes])
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
@declare(Audience.WHO_SEES_IT, not_judged=NO_PAGE)
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
    @declare(Audience.WHO_SEES_IT, audited_as=action)
    def view(request: HttpRequest, pk: UUID) -> HttpResponse:
        person = person_of(request)
        row = sweep_get(person, pk)
        try:
            row = act(person=person, sweep=row)
        except FalconWebError as error:
            return _redirect_with_error(request, pk, error)
        messages.success(request, sentence(row))
        return redirect("sweeps:sweep", pk=pk)

    return view


pause = _action_view(
    Action.SWEEP_PAUSE, sweep_pause, lambda _: "Paused. Current runs finish; then the devices are returned."
)
resume = _action_view(Action.SWEEP_RESUME, sweep_resume, lambda _: "Resumed. It continues within seconds.")
halt = _action_view(
    Action.SWEEP_HALT, sweep_halt, lambda _: "Halted. Its runs are cancelled; then the devices are returned."
)
retry = _action_view(
    Action.SWEEP_RETRY,
    sweep_retry,
    lambda row: (
        "The runs are queued again. The sweep stays paused: resume it to run them."
        if row.state == Sweep.State.PAUSED
        else "The runs are retried within seconds."
    ),
)


@require_POST
@declare(Audience.WHO_SEES_IT, audited_as=Action.SWEEP_DELETE)
def delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a sweep, with `runs` also its runs."""
    person = person_of(request)
    row = sweep_get(person, pk)
    with_runs = "runs" in request.POST
    try:
        sweep_delete(person=person, sweep=row, runs=with_runs)
    except FalconWebError as error:
        return _redirect_with_error(request, pk, error)
    messages.success(request, f"‘{row.title}’ was deleted{' with its runs' if with_runs else ''}.")
    return redirect("sweeps:sweeps")


def _redirect_with_error(request: HttpRequest, pk: UUID, error: FalconWebError) -> HttpResponse:
    if error.status not in {400, 409}:
        raise error
    messages.error(request, error.sentence)
    return redirect("sweeps:sweep", pk=pk)


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
    for _, some in itertools.groupby(points, key=lambda one: composition_key(one.composition)):
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
        return "yes" if value else "no"
    return names.get(axis, {}).get(value, str(value))


def _list_filters(request: HttpRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "") for name in ("q", "state", "sort")}
