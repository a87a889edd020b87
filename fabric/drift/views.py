"""Pages of drift."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, MenuEntry, declare
from accounts.models import User
from accounts.visibility import row_or_404
from core.database import natural
from core.errors import Conflict
from core.language import _, gettext_noop
from core.local_pages import next_page
from core.text import parse_id
from fabric.drift.selectors import drift_rows, drift_views
from fabric.drift.services import drifts_accept, drifts_of_chassis, drifts_reapply, drifts_reapply_effects
from fabric.history.views import ROWS_A_PAGE
from fabric.inventory.models import Chassis
from fabric.operations.rules import CABLE_SECONDS


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Drift"), "Compose", 4))
def drifts(request: HttpRequest) -> HttpResponse:
    """List drifted parts by chassis; `chassis`, `page` and `show=ended` are in the URL."""
    person = person_of(request)
    chassis = parse_id(request.GET.get("chassis", "")) or None
    ended = request.GET.get("show") == "ended"
    rows = drift_rows(person, chassis=chassis, is_open=not ended)
    if not ended:
        rows = rows.order_by(natural("chassis__name"), "chassis", "-noticed_at", "-pk")
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
    return render(request, "fabric/drift/drifts.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def drift(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one drift: the difference, its start, its cause and how it ended."""
    person = person_of(request)
    row = row_or_404(drift_rows(person), pk, "drift")
    return render(request, "fabric/drift/drift.html", {"one": drift_views(person, [row])[0], "row": row})


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.DRIFT_ACCEPT)
def drift_accept(request: HttpRequest) -> HttpResponse:
    """Accept the current allocation: of `only`, of each `drift`, or of all of `chassis`."""
    person = person_of(request)
    try:
        rows = drifts_accept(person=person, drifts=_chosen_drifts(request, person, reapply=False))
    except Conflict as error:
        _show_conflict(request, error)
        return redirect(next_page(request, "fabric:drifts"))
    if len(rows) == 1:
        sentence = _("Accepted: {part}. The current allocation is now the approved one.", part=rows[0].what)
    else:
        sentence = _("Accepted: {count} differences. The current allocation is now the approved one.", count=len(rows))
    messages.success(request, sentence)
    return redirect(next_page(request, "fabric:drifts"))


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.DRIFT_REAPPLY)
def drift_reapply(request: HttpRequest) -> HttpResponse:
    """Reapply the approved allocation by a plan that starts immediately; redirects to it.

    Where that takes devices out meanwhile, or needs somebody at the chassis, it is said first, and done once `agreed`.
    """
    person = person_of(request)
    try:
        chosen = _chosen_drifts(request, person, reapply=True)
        ahead = drifts_reapply_effects(person=person, drifts=chosen)
        if ahead.key != request.POST.get("agreed", ""):
            views = drift_views(person, drift_rows(person, is_open=True).filter(pk__in=chosen))
            context = {
                "ahead": ahead,
                "views": views,
                "next": resolve_url(next_page(request, "fabric:drifts")),
                "minutes": round(CABLE_SECONDS / 60),
            }
            return render(request, "fabric/drift/drift_agree.html", context)
        plan = drifts_reapply(person=person, drifts=chosen, agreed=ahead.key)
    except Conflict as error:
        _show_conflict(request, error)
        return redirect(next_page(request, "fabric:drifts"))
    return redirect("fabric:plan", pk=plan.pk)


def _by_chassis(views: list[Any]) -> list[dict[str, Any]]:
    groups: dict[int, dict[str, Any]] = {}
    for view in views:
        group = groups.setdefault(view.chassis_id, {"pk": view.chassis_id, "name": view.chassis_name, "views": []})
        group["views"].append(view)
    for group in groups.values():
        group["may_accept"] = any(view.may_accept for view in group["views"])
        group["may_reapply"] = any(view.may_reapply for view in group["views"])
    return list(groups.values())


def _chosen_drifts(request: HttpRequest, person: User, *, reapply: bool) -> list[int]:
    if only := request.POST.get("only", ""):
        return [parse_id(only)]
    if chassis := request.POST.get("chassis", ""):
        return drifts_of_chassis(person=person, chassis=parse_id(chassis), reapply=reapply)
    return sorted({parse_id(text) for text in request.POST.getlist("drift")})


def _show_conflict(request: HttpRequest, error: Conflict) -> None:
    differences = error.details.get("differences") or []
    for sentence in [one for one in differences if isinstance(one, str)] or [error.sentence]:
        messages.error(request, sentence)
