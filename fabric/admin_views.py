"""Pages for administrators: a tenant with what it holds, and the system as a whole."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any, TypeVar

import django
from django.contrib import messages
from django.db import connection
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import administrator_of
from accounts.forms import TenantForm, tell
from accounts.models import Tenant, User
from accounts.selectors import holdings_of
from accounts.services import tenant_edit, tenant_remove
from fabric.holdings import holdings_revision, holdings_table
from fabric.models import Chassis, Device, Drawer, Host, HostPort, Switch
from fabric.services.grants import grants_set
from falconweb.errors import Conflict, Invalid, NotFound

Row = TypeVar("Row", Device, HostPort)
COUNTED: tuple[tuple[str, type[Drawer | Switch | HostPort | Device]], ...] = (
    ("Drawers", Drawer),
    ("Switch chips", Switch),
    ("Host ports", HostPort),
    ("Devices", Device),
)


@require_http_methods(["GET", "POST"])
def tenant(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a tenant: people, name, and the table of what it holds; a POST renames it."""
    by = administrator_of(request)
    row = _tenant(pk)
    form = TenantForm(request.POST) if request.method == "POST" else TenantForm(initial={"name": row.name})
    if form.is_bound and form.is_valid():
        try:
            row = tenant_edit(by=by, tenant=row, name=form.cleaned_data["name"])
        except Invalid as error:
            tell(form, error)
        else:
            messages.success(request, f"The tenant is called {row.name} now.")
            return redirect("fabric:tenant", pk=row.pk)
    context = {
        "tenant": row,
        "people": row.people.all(),
        "form": form,
        "groups": holdings_table(row),
        "seen": holdings_revision(),
        "holds": holdings_of([row.pk]).get(row.pk, []),
    }
    return render(request, "fabric/tenant.html", context, status=400 if form.errors else 200)


@require_POST
def tenant_grants(request: HttpRequest, pk: int) -> HttpResponse:
    """Let the tenant hold what is ticked: `devices`, `host_ports`, and with them `take_devices`, `take_host_ports`."""
    by = administrator_of(request)
    row = _tenant(pk)
    post = request.POST
    taken: list[Device | HostPort] = [
        *_rows(Device, post.getlist("take_devices")),
        *_rows(HostPort, post.getlist("take_host_ports")),
    ]
    try:
        grants_set(
            person=by,
            tenant=row,
            devices=_rows(Device, [*post.getlist("devices"), *post.getlist("take_devices")]),
            host_ports=_rows(HostPort, [*post.getlist("host_ports"), *post.getlist("take_host_ports")]),
            take=taken,
            seen=post.get("seen", ""),
        )
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        holds = " and ".join(holdings_of([row.pk]).get(row.pk, ["nothing"]))
        messages.success(request, f"{row.name} holds {holds} now.")
    return redirect("fabric:tenant", pk=row.pk)


@require_POST
def tenant_removal(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a tenant that has nobody and holds nothing."""
    by = administrator_of(request)
    row = _tenant(pk)
    try:
        tenant_remove(by=by, tenant=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("fabric:tenant", pk=row.pk)
    messages.success(request, f"The tenant {row.name} is removed.")
    return redirect("accounts:tenants")


@require_GET
def system(request: HttpRequest) -> HttpResponse:
    """Show versions, what there is, each chassis with its firmware and last answer, and who signed in when."""
    administrator_of(request)
    here = Q(missing_since=None)
    counts = [(name, model.objects.filter(here).count()) for name, model in COUNTED]
    kinds = Device.objects.filter(here).order_by("kind").values_list("kind").annotate(Count("pk"))
    context: dict[str, Any] = {
        "python": platform.python_version(),
        "django": django.get_version(),
        "database": f"{connection.display_name} {'.'.join(str(part) for part in connection.get_database_version())}",
        "counts": [("Hosts", Host.objects.count()), *counts],
        "kinds": [(Device.Kind(kind).label, number) for kind, number in kinds],
        "chassis": Chassis.objects.order_by("name"),
        "people": User.objects.filter(is_active=True).select_related("tenant").order_by("username"),
    }
    return render(request, "fabric/system.html", context)


def _tenant(pk: int) -> Tenant:
    row = Tenant.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such tenant.")
    return row


def _rows(model: type[Row], numbers: Iterable[str]) -> list[Row]:
    wanted = {int(text) for text in numbers if text.isascii() and text.isdecimal() and len(text) < 19}
    return list(model.objects.filter(pk__in=wanted))
