"""Pages of drift and of history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.exports import Download
from accounts.models import User
from fabric import sheets
from fabric.drift import drift_rows, drift_views
from fabric.history import COLUMNS, attachment_lines, attachment_rows, attachment_views
from fabric.models import Attachment, Chassis, Device, Slot
from fabric.numbers import whole_number
from fabric.services.changes import CABLE_SECONDS
from fabric.services.drift import drifts_accept, drifts_ahead, drifts_of_chassis, drifts_reapply
from falconweb.errors import Conflict, NotFound

ROWS_A_PAGE = 50
LINES_AT_ONCE = 500


@require_GET
def drifts(request: HttpRequest) -> HttpResponse:
    """List what is not as approved, by chassis; `chassis`, `page` and `show=ended` are in the URL."""
    person = person_of(request)
    chassis = whole_number(request.GET.get("chassis", "")) or None
    ended = request.GET.get("show") == "ended"
    rows = drift_rows(person, chassis=chassis, is_open=not ended)
    if not ended:
        rows = rows.order_by("chassis__name", "chassis", "-noticed_at", "-pk")
    page = Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))
    views = drift_views(person, page.object_list)
    context = {
        "page": page,
        "ended": ended,
        "views": views,
        "groups": _by_chassis(views),
        "only": Chassis.objects.visible_to(person).filter(pk=chassis).first() if chassis else None,
        "may_act": any(view.may_accept or view.may_reapply for view in views),
    }
    return render(request, "fabric/drifts.html", context)


@require_GET
def drift(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one drift: what differs, since when, who did it, and how it ended."""
    person = person_of(request)
    row = drift_rows(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such drift.")
    return render(request, "fabric/drift.html", {"one": drift_views(person, [row])[0], "row": row})


@require_POST
def accept(request: HttpRequest) -> HttpResponse:
    """Make what is found the approved one: of `only`, of each `drift`, or of all of `chassis`."""
    person = person_of(request)
    try:
        rows = drifts_accept(person=person, drifts=_chosen(request, person, reapply=False))
    except Conflict as error:
        _tell(request, error)
        return redirect(_back(request))
    names = rows[0].what if len(rows) == 1 else f"{len(rows)} differences"
    messages.success(request, f"Accepted: {names}. What is found is the approved allocation now.")
    return redirect(_back(request))


@require_POST
def reapply(request: HttpRequest) -> HttpResponse:
    """Have it made again as it was approved, by a plan that begins at once; it is shown next.

    Where that takes devices out meanwhile, or needs somebody at the chassis, it is said first, and done once `agreed`.
    """
    person = person_of(request)
    try:
        chosen = _chosen(request, person, reapply=True)
        ahead = drifts_ahead(person=person, drifts=chosen)
        if ahead.key != request.POST.get("agreed", ""):
            views = drift_views(person, drift_rows(person, is_open=True).filter(pk__in=chosen))
            context = {
                "ahead": ahead,
                "views": views,
                "next": resolve_url(_back(request)),
                "minutes": round(CABLE_SECONDS / 60),
            }
            return render(request, "fabric/drift_agree.html", context)
        plan = drifts_reapply(person=person, drifts=chosen, agreed=ahead.key)
    except Conflict as error:
        _tell(request, error)
        return redirect(_back(request))
    return redirect("fabric:plan", pk=plan.pk)


@require_GET
def slot_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Show who held a slot, when."""
    row = _slot(person_of(request), pk)
    return _history(request, attachment_rows(person_of(request), slot=pk), {"slot": row, "name": row.name})


@require_GET
def slot_history_csv(request: HttpRequest, pk: int) -> Download:
    """Stream who held a slot, when, as CSV."""
    person = person_of(request)
    _slot(person, pk)
    return _sheet(person, attachment_rows(person, slot=pk), f"slot-{pk}-history.csv")


@require_GET
def device_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Show where a device was, and whose, when."""
    row = _device(person_of(request), pk)
    return _history(request, attachment_rows(person_of(request), device=pk), {"device": row, "name": row.name})


@require_GET
def device_history_csv(request: HttpRequest, pk: int) -> Download:
    """Stream where a device was, and whose, when, as CSV."""
    person = person_of(request)
    _device(person, pk)
    return _sheet(person, attachment_rows(person, device=pk), f"device-{pk}-history.csv")


def _by_chassis(views: list[Any]) -> list[dict[str, Any]]:
    groups: dict[int, dict[str, Any]] = {}
    for view in views:
        group = groups.setdefault(view.chassis_id, {"pk": view.chassis_id, "name": view.chassis_name, "views": []})
        group["views"].append(view)
    for group in groups.values():
        group["may_accept"] = any(view.may_accept for view in group["views"])
        group["may_reapply"] = any(view.may_reapply for view in group["views"])
    return list(groups.values())


def _chosen(request: HttpRequest, person: User, *, reapply: bool) -> list[int]:
    if only := request.POST.get("only", ""):
        return [whole_number(only)]
    if chassis := request.POST.get("chassis", ""):
        return drifts_of_chassis(person=person, chassis=whole_number(chassis), reapply=reapply)
    return sorted({whole_number(text) for text in request.POST.getlist("drift")})


def _tell(request: HttpRequest, error: Conflict) -> None:
    differences = error.details.get("differences") or []
    for sentence in [one for one in differences if isinstance(one, str)] or [error.sentence]:
        messages.error(request, sentence)


def _back(request: HttpRequest) -> str:
    """Return the page of this site that the form was on, else the list."""
    wanted = request.POST.get("next", "")
    here = {request.get_host()}
    if wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, here, require_https=request.is_secure()):
        return wanted
    return "fabric:drifts"


def _slot(person: User, pk: int) -> Slot:
    row: Slot | None = Slot.objects.visible_to(person).filter(pk=pk).select_related("chassis", "drawer").first()
    if row is None:
        raise NotFound("There is no such slot.")
    return row


def _device(person: User, pk: int) -> Device:
    rows = Device.objects.visible_to(person).filter(pk=pk).select_related("chassis", "slot__drawer")
    row: Device | None = rows.first()
    if row is None:
        raise NotFound("There is no such device.")
    return row


def _history(request: HttpRequest, rows: QuerySet[Attachment], context: dict[str, Any]) -> HttpResponse:
    page = Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))
    times = attachment_views(person_of(request), page.object_list)
    return render(request, "fabric/history.html", {**context, "page": page, "times": times})


def _sheet(person: User, rows: QuerySet[Attachment], name: str) -> Download:
    def lines() -> Iterator[tuple[object, ...]]:
        for number in (pages := Paginator(rows, LINES_AT_ONCE)).page_range:
            yield from attachment_lines(attachment_views(person, pages.page(number).object_list))

    answer = Download(sheets.lines(COLUMNS, lines()), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
