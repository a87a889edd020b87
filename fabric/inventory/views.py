"""Pages with which administrators add, edit and delete chassis."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import Audience, MenuEntry, declare
from accounts.visibility import row_or_404
from core.errors import Conflict, Invalid, Unavailable
from core.forms import add_service_errors
from core.language import _, gettext_noop
from core.local_pages import next_page
from fabric.inventory import access, locate, services
from fabric.inventory.forms import ChassisForm
from fabric.inventory.models import Chassis, Device, Host, HostPort, ManagedPart


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
@declare(
    Audience.ADMINISTRATORS,
    audited_as=Action.CHASSIS_ADD,
    menu_entry=MenuEntry(gettext_noop("New chassis"), "Administration", 6),
    fresh_sign_in=True,
)
def chassis_add(request: HttpRequest) -> HttpResponse:
    """Add a chassis; where its certificate is not trusted, offer the fingerprint it shows."""
    return _chassis_form_page(request, None)


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_EDIT, section="Administration", fresh_sign_in=True)
def chassis_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Edit a chassis; an empty password keeps the stored one."""
    return _chassis_form_page(request, row_or_404(Chassis.objects.all(), pk, "chassis"))


@sensitive_variables("values")
def _chassis_form_page(request: HttpRequest, row: Chassis | None) -> HttpResponse:
    """Show the form of a chassis, a new one where there is no row, or store it; a password has to be typed again."""
    form = ChassisForm.of(row, request.POST if request.method == "POST" else None)
    found_fingerprint: object = ""
    asks_uuid = row is not None and row.shares_uuid
    if form.is_valid():
        values: dict[str, Any] = dict(form.cleaned_data)
        # An accepted fingerprint replaces the typed one.
        values["fingerprint"] = request.POST.get("accept", "") or values["fingerprint"]
        try:
            if row is None:
                saved = services.chassis_add(person=person_of(request), **values)
            else:
                values["password"] = values["password"] or None
                saved = services.chassis_edit(person=person_of(request), chassis=row, **values)
        except (Invalid, Conflict) as error:
            add_service_errors(form, error)
            found_fingerprint = error.details.get("found_fingerprint", "")
            asks_uuid = asks_uuid or "same_uuid_as" in error.details
        else:
            done = _("{name} was added.", name=saved.name) if row is None else _("{name} was saved.", name=saved.name)
            messages.success(request, done)
            return redirect("fabric:chassis", pk=saved.pk)
    context = {
        "form": form,
        "row": row,
        "found_fingerprint": found_fingerprint,
        "asks_uuid": asks_uuid or bool(request.POST.get("shares_uuid")),
        "password_again": bool(request.POST.get("password")),
    }
    return render(request, "fabric/inventory/chassis_form.html", context)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_LOCATE, section=None)
def chassis_locate(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch the location LED of a chassis on, or off if `off` is sent."""
    row: Chassis = row_or_404(Chassis.objects.all(), pk, "chassis")
    led = ManagedPart.objects.filter(chassis=row, uri=row.uri).select_related("chassis").first()
    if led is None:
        messages.error(request, _("{name} has no location LED that its service switches.", name=row.name))
    else:
        _locate(request, led)
    return redirect(reverse("fabric:fabric", query={"view": "front", "chassis": pk}))


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_LOCATE, section="fabric:maintenance")
def part_locate(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch the location LED of a part on, or off if `off` is sent."""
    rows = ManagedPart.objects.select_related("chassis", "device__slot")
    _locate(request, row_or_404(rows, pk, "part"))
    return redirect(next_page(request, "fabric:maintenance"))


def _locate(request: HttpRequest, row: ManagedPart) -> None:
    lit = "off" not in request.POST
    try:
        locate.part_locate(person=person_of(request), part=row, lit=lit)
    except (Conflict, Unavailable) as error:
        messages.error(request, error.sentence)
    else:
        done = _("The location LED of {name} is on.", name=row.label)
        messages.success(request, done if lit else _("The location LED of {name} is off.", name=row.label))


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_SIGN_IN, section=None)
def chassis_sign_in(request: HttpRequest, pk: int) -> HttpResponse:
    """Have the stored password of a chassis tried now."""
    row: Chassis = row_or_404(Chassis.objects.all(), pk, "chassis")
    try:
        access.sign_in_retry(person=person_of(request), chassis=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, _("The password of {name} is tried now.", name=row.name))
    return redirect("fabric:chassis", pk=pk)


@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_REMOVE, section="Administration")
def chassis_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what is deleted with a chassis, and delete it once its name is typed."""
    person = person_of(request)
    row: Chassis = row_or_404(Chassis.objects.all(), pk, "chassis")
    error = ""
    if request.method == "POST" and request.POST.get("name", "").strip() != row.name:
        error = _("This is not the name of the chassis. Type {name}.", name=row.name)
    elif request.method == "POST":
        try:
            services.chassis_remove(person=person, chassis=row)
        except Conflict as refusal:
            error = refusal.sentence
        else:
            messages.success(request, _("{name} was deleted.", name=row.name))
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
