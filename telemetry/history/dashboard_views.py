"""Pages of pinned dashboards: each person's own."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access import person_of
from fabric.numbers import whole_number
from falconweb.errors import Conflict, Invalid
from telemetry.history.models import Dashboard
from telemetry.history.services import dashboard_add, dashboard_change, dashboard_remove


@require_http_methods(["GET", "POST"])
def dashboards(request: HttpRequest) -> HttpResponse:
    """List one's dashboards; POST `name` and `query` keeps another one."""
    person = person_of(request)
    if request.method == "POST":
        query = request.POST.get("query", "")
        try:
            made = dashboard_add(person=person, name=request.POST.get("name", ""), query=query)
        except (Invalid, Conflict) as error:
            messages.error(request, error.sentence)
            return redirect("history:dashboards")
        messages.success(request, f"‘{made.name}’ is pinned.")
        return redirect("history:dashboards")
    return render(request, "history/dashboards.html", {"dashboards": Dashboard.objects.visible_to(person)})


@require_POST
def change(request: HttpRequest, pk: int) -> HttpResponse:
    """Rename one (`name`), or give it another place (`position`, from 1)."""
    name = request.POST.get("name")
    place = whole_number(request.POST.get("position", ""))
    try:
        dashboard_change(person=person_of(request), pk=pk, name=name, position=place or None)
    except (Invalid, Conflict) as error:
        messages.error(request, error.sentence)
    return redirect("history:dashboards")


@require_POST
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget one."""
    dashboard_remove(person=person_of(request), pk=pk)
    messages.success(request, "It is removed. What it showed is not touched.")
    return redirect("history:dashboards")
