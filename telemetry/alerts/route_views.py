"""Pages of routes and of what was delivered by them, for administrators."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Max, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import administrator_of
from accounts.forms import tell
from fabric.numbers import whole_number
from falconweb.errors import Conflict, Invalid, NotFound
from telemetry.alerts.forms import RouteForm
from telemetry.alerts.models import Delivery, Route
from telemetry.alerts.services.asking import send_soon
from telemetry.alerts.services.routes import delivery_retry, route_add, route_edit, route_remove, route_test

ROWS_A_PAGE = 50
RELATED = ("chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")


@require_GET
def routes(request: HttpRequest) -> HttpResponse:
    """List routes with how their deliveries go."""
    administrator_of(request)
    waiting = Count("deliveries", filter=Q(deliveries__state=Delivery.State.WAITING))
    failed = Count("deliveries", filter=Q(deliveries__state=Delivery.State.FAILED))
    rows = Route.objects.select_related(*RELATED).annotate(
        waiting=waiting, failed=failed, last=Max("deliveries__delivered_at")
    )
    context = {"rows": rows, "email": settings.EMAIL_IS_SENT}
    return render(request, "alerts/routes.html", context)


@require_http_methods(["GET", "POST"])
def route_added(request: HttpRequest) -> HttpResponse:
    """Add a route."""
    person = administrator_of(request)
    form = RouteForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            row = route_add(person=person, values=form.values())
        except (Invalid, Conflict) as error:
            tell(form, error)
        else:
            messages.success(request, f"'{row.name}' is saved. Send a test to see that it arrives.")
            return redirect("alerts:route", pk=row.pk)
    context = {"form": form, "route": None, "email": settings.EMAIL_IS_SENT}
    return render(request, "alerts/route.html", context, status=400 if form.errors else 200)


@require_http_methods(["GET", "POST"])
def route(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a route; below it stands what was delivered."""
    person = administrator_of(request)
    row = _route_of(pk)
    form = RouteForm.of(row)
    if request.method == "POST":
        form = RouteForm(request.POST, has_secret=bool(row.secret_encrypted))
        if form.is_valid():
            try:
                row = route_edit(person=person, route=row, values=form.values())
            except (Invalid, Conflict) as error:
                tell(form, error)
            else:
                messages.success(request, f"'{row.name}' is saved.")
                return redirect("alerts:route", pk=row.pk)
    page = Paginator(row.deliveries.order_by("-number"), ROWS_A_PAGE).get_page(request.GET.get("page"))
    context = {"form": form, "route": row, "page": page, "email": settings.EMAIL_IS_SENT}
    return render(request, "alerts/route.html", context, status=400 if form.errors else 200)


@require_POST
def route_removed(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a route with its log."""
    person, row = administrator_of(request), _route_of(pk)
    route_remove(person=person, route=row)
    messages.success(request, f"'{row.name}' is deleted, and what waited with it.")
    return redirect("alerts:routes")


@require_POST
def route_tested(request: HttpRequest, pk: int) -> HttpResponse:
    """Send a test."""
    person, row = administrator_of(request), _route_of(pk)
    route_test(person=person, route=row)
    send_soon()
    messages.success(request, "A test is on its way. Below stands how it goes, within a few seconds.")
    return redirect("alerts:route", pk=row.pk)


@require_GET
def deliveries(request: HttpRequest) -> HttpResponse:
    """List what was delivered and what waits, of all routes; `state`, `route` and `page` are in the URL."""
    administrator_of(request)
    rows = Delivery.objects.select_related("route")
    state = request.GET.get("state", "")
    if state in Delivery.State.values:
        rows = rows.filter(state=state)
    if only := whole_number(request.GET.get("route", "")):
        rows = rows.filter(route=only)
    context = {
        "page": Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "state": state,
        "only": only,
        "states": Delivery.State.choices,
        "routes": Route.objects.order_by("name"),
    }
    return render(request, "alerts/deliveries.html", context)


@require_POST
def delivery_retried(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Try a delivery now."""
    person = administrator_of(request)
    row: Delivery | None = Delivery.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such delivery.")
    try:
        delivery_retry(person=person, delivery=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        send_soon()
        messages.success(request, "It is tried again now.")
    return redirect("alerts:route", pk=row.route_id)


def _route_of(pk: int) -> Route:
    row: Route | None = Route.objects.select_related(*RELATED).filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        raise NotFound("There is no such route.")
    return row
