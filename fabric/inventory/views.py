"""Pages with which administrators add, edit and delete chassis."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import Audience, MenuEntry, declare
from core.errors import Conflict, FalconWebError, Invalid, NotFound
from core.forms import add_service_errors
from fabric.inventory import services
from fabric.inventory.forms import ChassisForm, without_userinfo
from fabric.inventory.models import Chassis, Device, Host, HostPort


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
@declare(
    Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_ADD, menu_entry=MenuEntry("New chassis", "Administration", 6)
)
def chassis_add(request: HttpRequest) -> HttpResponse:
    """Add a chassis; where its certificate is not trusted, offer the fingerprint it shows."""
    person = person_of(request)
    if request.method != "POST":
        return render(request, "fabric/inventory/chassis_form.html", {"form": ChassisForm()})
    form = ChassisForm(without_userinfo(request.POST))
    if not form.is_valid():
        return _render_form(request, form)
    try:
        row = services.chassis_add(person=person, **_form_values(request, form))
    except (Invalid, Conflict) as error:
        return _render_form(request, form, error)
    messages.success(request, f"{row.name} was added.")
    return redirect("fabric:chassis", pk=row.pk)


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_EDIT, section="Administration")
def chassis_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Edit a chassis; an empty password keeps the stored one."""
    person = person_of(request)
    row = _chassis(pk)
    if request.method != "POST":
        return render(request, "fabric/inventory/chassis_form.html", {"form": ChassisForm.of(row), "row": row})
    form = ChassisForm.of(row, request.POST)
    if not form.is_valid():
        return _render_form(request, form, row=row)
    values = _form_values(request, form)
    values["password"] = values["password"] or None
    try:
        row = services.chassis_edit(person=person, chassis=row, **values)
    except (Invalid, Conflict) as error:
        return _render_form(request, form, error, row=row)
    messages.success(request, f"{row.name} was saved.")
    return redirect("fabric:chassis", pk=row.pk)


@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_REMOVE, section="Administration")
def chassis_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what is deleted with a chassis, and delete it once its name is typed."""
    person = person_of(request)
    row = _chassis(pk)
    error = ""
    if request.method == "POST":
        if request.POST.get("name", "").strip() != row.name:
            error = f"This is not the name of the chassis. Type {row.name}."
        else:
            try:
                services.chassis_remove(person=person, chassis=row)
            except Conflict as refusal:
                error = refusal.sentence
            else:
                messages.success(request, f"{row.name} was deleted.")
                return redirect("fabric:fabric")
    context = {
        "row": row,
        "error": error,
        "devices": Device.objects.visible_to(person).filter(chassis=row).count(),
        "granted": Device.objects.visible_to(person).filter(chassis=row, tenant__isnull=False).count(),
        "host_ports": HostPort.objects.visible_to(person).filter(chassis=row).count(),
        "hosts": Host.objects.visible_to(person).filter(host_ports__chassis=row).distinct().count(),
        "operations": row.operations.visible_to(person).count(),
    }
    return render(request, "fabric/inventory/chassis_remove.html", context)


def _chassis(pk: int) -> Chassis:
    row: Chassis | None = Chassis.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such chassis.")
    return row


def _form_values(request: HttpRequest, form: ChassisForm) -> dict[str, Any]:
    """Return the form values for the services; an accepted fingerprint replaces the typed one."""
    values: dict[str, Any] = dict(form.cleaned_data)
    if accepted := request.POST.get("accept", ""):
        values["fingerprint"] = accepted
    return values


def _render_form(
    request: HttpRequest, form: ChassisForm, error: FalconWebError | None = None, row: Chassis | None = None
) -> HttpResponse:
    """Show the form again with its errors; a typed password has to be typed again."""
    if error is not None:
        add_service_errors(form, error)
    context = {
        "form": form,
        "row": row,
        "found_fingerprint": error.details.get("found_fingerprint", "") if error else "",
        "password_again": bool(request.POST.get("password")),
    }
    return render(request, "fabric/inventory/chassis_form.html", context)
