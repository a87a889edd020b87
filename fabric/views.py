"""Pages of the fabric: thin faces over selectors and services."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import User
from fabric.models import Chassis, Device, Host, HostPort, Operation, Port
from fabric.selectors import downgraded, fabric_view, operations_visible_to
from fabric.services.operations import UNKNOWN, operation_request
from fabric.topology import lay_out
from falconweb.errors import FalconWebError, NotFound

NEWEST = 100


def person_of(request: HttpRequest) -> User:
    """Return the signed-in person (the middleware has seen to it that there is one)."""
    if not isinstance(request.user, User):
        raise NotFound("There is nobody signed in.")
    return request.user


@require_GET
def fabric(request: HttpRequest) -> HttpResponse:
    """Show topology or list of all visible chassis; `view` and `q` are in the URL."""
    search = request.GET.get("q", "")
    view = "list" if request.GET.get("view") == "list" else "topology"
    chassis = fabric_view(person_of(request), search=search)
    context: dict[str, Any] = {"view": view, "search": search, "chassis": chassis}
    if view == "topology":
        context["pictures"] = [(one, lay_out(one)) for one in chassis]
    return render(request, "fabric/fabric.html", context)


@require_GET
def chassis(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one chassis."""
    person = person_of(request)
    views = fabric_view(person, chassis_id=pk)
    if not views:
        raise NotFound("There is no such chassis.")
    context: dict[str, Any] = {"chassis": views[0], "picture": lay_out(views[0])}
    if person.is_administrator:
        row = Chassis.objects.get(pk=pk)
        context["row"] = row
        context["kinds"] = [
            (kind.replace("_", " "), found)
            for kind, found in row.inventory.items()
            if isinstance(found, list) and found and kind != "problems"
        ]
        context["problems"] = row.inventory.get("problems", [])
    return render(request, "fabric/chassis.html", context)


@require_GET
def device(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one device, with the form that attaches and detaches it."""
    person = person_of(request)
    row = (
        Device.objects.visible_to(person).filter(pk=pk).select_related("chassis", "slot__port", "slot__drawer").first()
    )
    if row is None:
        raise NotFound("There is no such device.")
    ports = HostPort.objects.visible_to(person).filter(chassis=row.chassis_id, missing_since=None)
    seen = ports.filter(pk=row.host_port_id).first()
    if row.slot is not None and row.slot.drawer_id is not None:
        ports = ports.filter(drawer=row.slot.drawer_id)
    operations = Operation.objects.visible_to(person).filter(device=row)[:10]
    context = {
        "device": row,
        "port": row.slot.port if row.slot else None,
        "host_port": seen,
        "host_ports": ports.select_related("host"),
        "downgraded": downgraded(row),
        "operations": operations,
        "open_operation": next((one for one in operations if one.is_open), None),
    }
    return render(request, "fabric/device.html", context)


@require_GET
def port(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one port: its link against its capability, and its error counters."""
    row = Port.objects.visible_to(person_of(request)).filter(pk=pk).select_related("chassis", "switch").first()
    if row is None:
        raise NotFound("There is no such port.")
    return render(request, "fabric/port.html", {"port": row})


@require_GET
def host(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one host and the visible devices attached to it."""
    person = person_of(request)
    row = Host.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such host.")
    ports = HostPort.objects.visible_to(person).filter(host=row).select_related("chassis")
    devices = Device.objects.visible_to(person).filter(host_port__in=ports).select_related("slot", "chassis")
    return render(request, "fabric/host.html", {"host": row, "host_ports": ports, "devices": devices})


@require_http_methods(["GET", "POST"])
def operations(request: HttpRequest) -> HttpResponse:
    """List operations, or ask for one: device, target ('' = detach), expected ('' = no host)."""
    person = person_of(request)
    if request.method != "POST":
        rows = list(operations_visible_to(person))[:NEWEST]
        return render(request, "fabric/operations.html", {"operations": rows})
    row = Device.objects.visible_to(person).filter(pk=_number(request.POST.get("device", ""))).first()
    if row is None:
        raise NotFound("There is no such device.")
    expected = _host_port(person, request.POST["expected"]) if "expected" in request.POST else UNKNOWN
    try:
        operation, _ = operation_request(
            person=person, device=row, target=_host_port(person, request.POST.get("target", "")), expected=expected
        )
    except FalconWebError as error:
        if error.status != 409:
            raise
        messages.error(request, error.sentence)
        return redirect("fabric:device", pk=row.pk)
    return redirect("fabric:operation", pk=operation.pk)


@require_GET
def operation(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show one operation; htmx asks for the part that moves."""
    row = Operation.objects.visible_to(person_of(request)).filter(pk=pk).select_related("device").first()
    if row is None:
        raise NotFound("There is no such operation.")
    template = "fabric/operation_steps.html" if request.headers.get("HX-Request") else "fabric/operation.html"
    return render(request, template, {"operation": row})


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _host_port(person: User, text: str) -> HostPort | None:
    if text == "":
        return None
    row: HostPort | None = HostPort.objects.visible_to(person).filter(pk=_number(text)).first()
    if row is None:
        raise NotFound("There is no such host port.")
    return row
