"""Pages of the fabric: thin faces over selectors and services."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.models import User
from fabric import sheets
from fabric.bmc.series import counter_words
from fabric.listing import host_rows, port_rows
from fabric.models import Chassis, Device, Drawer, Host, HostPort, Operation, Port, Slot, Walk
from fabric.overview import overview_of
from fabric.rules import ABOUT_MODES, why_not_mode
from fabric.selectors import below_capability, downgraded, fabric_page, fabric_view, operations_visible_to
from fabric.services.operations import UNKNOWN, drawer_state, mode_request, operation_request
from fabric.topology import MODES, lay_out
from falconweb.errors import Conflict, FalconWebError, Invalid, NotFound

ROWS_A_PAGE = 50


@require_GET
def fabric(request: HttpRequest) -> HttpResponse:
    """Show topology or list of the visible chassis; `view`, `q` and `page` are in the URL."""
    search = request.GET.get("q", "")
    view = "list" if request.GET.get("view") == "list" else "topology"
    page = fabric_page(person_of(request), search=search, number=_number(request.GET.get("page", "1")))
    context: dict[str, Any] = {"view": view, "search": search, "page": page, "chassis": page.chassis}
    if view == "topology":
        context["pictures"] = [(one, lay_out(one)) for one in page.chassis]
    return render(request, "fabric/fabric.html", context)


@require_GET
def devices_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Stream the list view as CSV, with the same search."""
    views = fabric_view(person_of(request), search=request.GET.get("q", ""))
    answer = StreamingHttpResponse(
        sheets.lines(sheets.SLOT_COLUMNS, sheets.slot_rows(views)), content_type="text/csv; charset=utf-8"
    )
    answer["Content-Disposition"] = 'attachment; filename="devices.csv"'
    return answer


@require_GET
def chassis(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one chassis."""
    person = person_of(request)
    views = fabric_view(person, chassis_id=pk)
    if not views:
        raise NotFound("There is no such chassis.")
    ports = port_rows(person, chassis=pk).filter(missing_since=None).order_by("switch", "port_id")
    context: dict[str, Any] = {"chassis": views[0], "picture": lay_out(views[0]), "ports": ports}
    if person.is_administrator:
        row = Chassis.objects.get(pk=pk)
        walk = Walk.objects.filter(chassis=row).first()
        found = walk.found if walk else {}
        context["row"] = row
        context["kinds"] = [
            (kind.replace("_", " "), resources)
            for kind, resources in found.items()
            if isinstance(resources, list) and resources and kind != "problems"
        ]
        context["problems"] = found.get("problems", [])
    return render(request, "fabric/chassis.html", context)


@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    """Show what is wrong now, what is free, and what is going on."""
    return render(request, "fabric/overview.html", {"overview": overview_of(person_of(request))})


@require_http_methods(["GET", "POST"])
def drawer(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one drawer; POST `mode` asks for another mode."""
    person = person_of(request)
    row = Drawer.objects.visible_to(person).filter(pk=pk).select_related("chassis").first()
    if row is None:
        raise NotFound("There is no such drawer.")
    if request.method == "POST":
        try:
            asked = mode_request(person=person, drawer=row, mode=request.POST.get("mode", ""))
        except (Conflict, Invalid) as error:
            messages.error(request, error.sentence)
            return redirect("fabric:drawer", pk=pk)
        return redirect("fabric:operation", pk=asked.pk)
    chassis = fabric_view(person, chassis_id=row.chassis_id)[0]
    view = next((one for one in chassis.drawers if one.id == row.pk), None)
    shown = dataclasses.replace(chassis, drawers=(view,) if view else ())
    devices = [slot.device for slot in view.slots if slot.device] if view else []
    ports = [slot for slot in view.slots if slot.device and slot.port_id] if view else []
    context = {
        "drawer": row,
        "chassis": shown,
        "picture": lay_out(shown),
        "mode": MODES.get(row.mode, row.mode),
        "attached": [slot for slot in view.slots if slot.device and slot.device.host_port_id] if view else [],
        "modes": _modes(row) if person.is_administrator and row.mode in MODES and row.mode != "Unknown" else [],
        "operation": Operation.objects.visible_to(person).open().filter(drawer=row).first(),
        "devices": devices,
        "objects": " ".join([f"drawer/{row.pk}", *(f"port/{slot.port_id}" for slot in ports)]),
        "now": f"drawer/{row.pk}",
        "names": json.dumps({f"port/{slot.port_id}": f"Slot {slot.number}" for slot in ports}),
    }
    return render(request, "fabric/drawer.html", context)


def _modes(row: Drawer) -> list[dict[str, str]]:
    """Return the other modes with what stands against each."""
    state = drawer_state(row)
    return [
        {"value": mode.value, "name": MODES[mode], "about": ABOUT_MODES[mode], "reason": why_not_mode(state, mode)}
        for mode in ABOUT_MODES
        if mode.value != row.mode
    ]


@require_GET
def slot(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one slot, with what is in it and the port behind it."""
    person = person_of(request)
    row = Slot.objects.visible_to(person).filter(pk=pk).select_related("chassis", "drawer", "port").first()
    if row is None:
        raise NotFound("There is no such slot.")
    device = Device.objects.visible_to(person).filter(slot=row).first()
    attached = HostPort.objects.visible_to(person).filter(devices=device).select_related("host") if device else None
    context = {
        "slot": row,
        "device": device,
        "host_port": attached.first() if attached is not None else None,
        "port": row.port,
        "objects": f"port/{row.port_id}" if row.port_id else "",
    }
    return render(request, "fabric/slot.html", context)


@require_GET
def device(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one device, with the form that attaches and detaches it."""
    person = person_of(request)
    row = (
        Device.objects.visible_to(person)
        .filter(pk=pk)
        .select_related("chassis", "slot__port", "slot__drawer", "tenant")
        .first()
    )
    if row is None:
        raise NotFound("There is no such device.")
    ports = HostPort.objects.visible_to(person).filter(chassis=row.chassis_id, missing_since=None)
    seen = ports.filter(pk=row.host_port_id).select_related("host").first()
    if row.slot is not None and row.slot.drawer_id is not None:
        ports = ports.filter(drawer=row.slot.drawer_id)
    operations = list(Operation.objects.visible_to(person).filter(device=row)[:10])
    port = row.slot.port if row.slot else None
    context = {
        "device": row,
        "port": port,
        "host_port": seen,
        "targets": [one for one in ports.select_related("host") if one.pk != (seen.pk if seen else None)],
        "downgraded": downgraded(row),
        "operations": operations,
        "open_operation": next((one for one in operations if one.is_open), None),
        "objects": f"device/{row.pk}" + (f" port/{port.pk}" if port else ""),
    }
    return render(request, "fabric/device.html", context)


@require_GET
def port(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one port: its link against its capability, its error counters, and what is on it."""
    person = person_of(request)
    row = Port.objects.visible_to(person).filter(pk=pk).select_related("chassis", "switch__drawer").first()
    if row is None:
        raise NotFound("There is no such port.")
    context = {
        "port": row,
        "slot": Slot.objects.visible_to(person).filter(port=row).select_related("drawer").first(),
        "device": Device.objects.visible_to(person).filter(slot__port=row).first(),
        "host_port": HostPort.objects.visible_to(person).filter(port=row).select_related("host").first(),
        "errors": {counter_words(name): count for name, count in row.errors.items()},
        "objects": f"port/{row.pk}",
    }
    context["below"] = below_capability(row) if context["host_port"] else ""
    return render(request, "fabric/port.html", context)


@require_GET
def host(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one host, its host ports and the visible devices attached to it."""
    person = person_of(request)
    row = Host.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such host.")
    ports = list(
        HostPort.objects.visible_to(person)
        .filter(host=row, missing_since=None)
        .select_related("chassis", "drawer", "port")
    )
    devices = (
        Device.objects.visible_to(person)
        .filter(host_port__in=ports, missing_since=None)
        .select_related("slot__drawer", "slot__port", "chassis", "host_port")
    )
    chassis = [
        {
            "chassis": found,
            "objects": " ".join(f"port/{one.port_id}" for one in ports if one.chassis_id == found.pk and one.port_id),
            "names": json.dumps(
                {f"port/{one.port_id}": one.label for one in ports if one.chassis_id == found.pk and one.port_id}
            ),
        }
        for found in dict.fromkeys(one.chassis for one in ports)
    ]
    context = {"host": row, "host_ports": ports, "devices": devices, "chassis": chassis}
    return render(request, "fabric/host.html", context)


@require_GET
def hosts(request: HttpRequest) -> HttpResponse:
    """List hosts; `q` and `page` are in the URL."""
    search = request.GET.get("q", "")
    pages = Paginator(host_rows(person_of(request), search=search), ROWS_A_PAGE)
    page = pages.get_page(request.GET.get("page"))
    for one in page.object_list:
        one.attached = sum(len(port.devices.all()) for port in one.seen_ports)
    return render(request, "fabric/hosts.html", {"page": page, "search": search})


@require_http_methods(["GET", "POST"])
def operations(request: HttpRequest) -> HttpResponse:
    """List operations, or ask for one: device, target ('' = detach), expected ('' = no host)."""
    person = person_of(request)
    if request.method != "POST":
        pages = Paginator(operations_visible_to(person), ROWS_A_PAGE)
        return render(request, "fabric/operations.html", {"page": pages.get_page(request.GET.get("page"))})
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
    person = person_of(request)
    row = Operation.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such operation.")
    template = "fabric/operation_steps.html" if request.headers.get("HX-Request") else "fabric/operation.html"
    before = Operation.objects.open().filter(
        chassis=row.chassis_id, drawer=row.drawer_id, requested_at__lt=row.requested_at
    )
    context = {
        "operation": row,
        "seconds": _seconds(row.started_at, row.finished_at),
        "steps": _timed(row.steps),
        "device": Device.objects.visible_to(person).filter(pk=row.device_id).first(),
        "waits": row.state == Operation.State.REQUESTED and before.exists(),
        "waits_for": before.filter(pk__in=Operation.objects.visible_to(person)).last(),
    }
    return render(request, template, context)


def _timed(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps with how long each took, or has taken so far, in s."""
    return [
        {
            **step,
            "seconds": _seconds(parse_datetime(step["started_at"] or ""), parse_datetime(step["finished_at"] or "")),
        }
        for step in steps
    ]


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None else ((end or timezone.now()) - begin).total_seconds()


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _host_port(person: User, text: str) -> HostPort | None:
    if text == "":
        return None
    row: HostPort | None = HostPort.objects.visible_to(person).filter(pk=_number(text)).first()
    if row is None:
        raise NotFound("There is no such host port.")
    return row
