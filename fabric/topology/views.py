"""Pages of the fabric: thin layers over selectors and services."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlencode

import django
from django.contrib import messages
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import User
from accounts.visibility import visible_or_404
from core.database import natural
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid, Unavailable
from core.language import _, gettext_noop
from core.text import natural_key, parse_id
from fabric.agents.views import agent_context
from fabric.bmc.series import counter_label
from fabric.drift.selectors import drift_rows, part_drifts
from fabric.history.selectors import attachment_rows, attachment_views
from fabric.inventory.gaps import gaps_view
from fabric.inventory.labels import dialect_label
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot, Switch, Walk
from fabric.inventory.progress import limits_of, walk_progress_label
from fabric.inventory.rules import counts_since
from fabric.inventory.selectors import (
    counter_baselines,
    host_rows,
    may_configure,
    may_move_cable,
    port_rows,
    same_hardware,
)
from fabric.operations.models import Operation
from fabric.operations.rules import LANE_COUNTS, MODE_VALUE_LABELS, PortSetting, allowed_port_types
from fabric.operations.selectors import Readiness, device_readiness
from fabric.operations.services import mode_request
from fabric.operations.views import ROWS_A_PAGE
from fabric.plans.selectors import port_setting_label
from fabric.topology import presentation
from fabric.topology.components import chassis_components, device_components
from fabric.topology.fleet import MEASURES, fleet_of
from fabric.topology.front import layout_front
from fabric.topology.layout import Screen, layout_chassis, planned_locations
from fabric.topology.overview import overview_for
from fabric.topology.problems import (
    DRIFTED,
    NOT_ANSWERING,
    Problem,
    StatusBoard,
    Subject,
    present_problems,
    status_board,
)
from fabric.topology.selectors import (
    chassis_view,
    draft_marks,
    fabric_view,
    found_devices,
    mode_choices,
    walked_front,
)
from fabric.topology.slot_pages import ShownSlots, SlotPlace, slot_places, slots_on_page

# What a service reports, by its names in a walk.
INVENTORY_LABELS = {
    "chassis": gettext_noop("Chassis"),
    "drawers": gettext_noop("Drawers"),
    "slots": gettext_noop("Slots"),
    "devices": gettext_noop("Devices"),
    "functions": gettext_noop("Functions"),
    "switches": gettext_noop("Switches"),
    "ports": gettext_noop("Ports"),
    "port_metrics": gettext_noop("Port metrics"),
    "zones": gettext_noop("Zones"),
    "endpoints": gettext_noop("Endpoints"),
    "connections": gettext_noop("Connections"),
    "virtual_switches": gettext_noop("Virtual CXL switches"),
    "resource_blocks": gettext_noop("Resource blocks"),
    "systems": gettext_noop("Systems"),
    "sensors": gettext_noop("Sensors"),
    "fans": gettext_noop("Fans"),
    "metrics": gettext_noop("Metrics"),
    "log_services": gettext_noop("Log services"),
}
ATTACHMENTS_SHOWN = 8
PORTS_A_PAGE = 64
MAX_PARTS_LISTED = 1000  # of all kinds that a service reports; of more, the first of each kind
PARTS_LISTED = 25
FACES = ("topology", "list", "front")
NOTICED = {DRIFTED, "missing"}
FLEET_BY = "fleet_by"  # of the session


@require_GET
@declare(
    Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Fabric")), tested_queries=("", "view=list", "view=front")
)
def fabric(request: HttpRequest) -> HttpResponse:
    """Show one chassis, as topology, list or front, and a map of all; `view`, `chassis`, `q`, `page` are in the URL.

    A search shows one of the chassis where it finds devices; the list has all that it finds.
    """
    person = person_of(request)
    search = request.GET.get("q", "").strip()
    view = request.GET.get("view", "")
    view = view if view in FACES else FACES[0]
    board = status_board(person)
    places, search_error = None, ""
    try:
        places = _found_places(person, search) if search else None
    except (Invalid, Unavailable) as error:
        search_error = error.sentence
    wanted, number = parse_id(request.GET.get("chassis", "")), request.GET.get("page")
    context: dict[str, Any]
    if places is not None and view == "list":
        chassis_of = {place: pk for pk, found in places.items() for place in found}
        page, _all = slots_on_page(list(chassis_of), number)
        context = {
            "page": page,
            "found": page.paginator.count,
            "chassis": fabric_view(
                person, chassis_ids={chassis_of[place] for place in page}, shown=ShownSlots.of(page)
            ),
            "chosen": request.GET.get("chassis"),
        }
    else:
        context = _chosen_chassis(person, board, wanted, number, places)
    marks, screen = draft_marks(person), Screen.of(request.COOKIES)
    for one in context["chassis"]:
        if view == "topology":
            context["picture"] = layout_chassis(one, marks, board, screen)
        elif view == "front":
            fans, context["is_lit"] = walked_front(person, one.id)
            context["picture"] = layout_front(one, fans, marks, board, screen)
        else:
            context["planned"] = {**context.get("planned", {}), **planned_locations(one, marks)}
    kept = urlencode({name: value for name, value in request.GET.items() if name not in {"chassis", "page"}})
    tile_query = f"?{kept}&chassis=" if kept else "?chassis="
    context |= {"view": view, "search": search, "search_error": search_error, "board": board, "tile_query": tile_query}
    return render(request, "fabric/topology/fabric.html", context)


def _found_places(person: User, search: str) -> dict[int, list[SlotPlace]]:
    """Return the places of found devices by chassis, in the order of their names."""
    names = Chassis.objects.visible_to(person).values_list("pk", "name")
    ids = [pk for pk, name in sorted(names, key=lambda one: natural_key(one[1].casefold()))]
    places = slot_places(person, ids, devices=found_devices(person, search))
    return {pk: places[pk] for pk in ids if pk in places}


def _chosen_chassis(
    person: User, board: StatusBoard, wanted: int, page_number: str | None, found: Mapping[int, list[SlotPlace]] | None
) -> dict[str, Any]:
    """Return the map, of those found if there was a search, and the chassis that is wanted, else the worst."""
    fleet = fleet_of(person, board)
    tiles = tuple(one for one in fleet.tiles if found is None or one.id in found)
    if not tiles:
        return {"chassis": []}
    place = next((place for place, one in enumerate(tiles) if one.id == wanted), 0)
    chosen = tiles[place].id
    places = slot_places(person, [chosen]).get(chosen, []) if found is None else found[chosen]
    page, shown = slots_on_page(places, page_number)
    if found is not None:
        shown = ShownSlots.of(page)
    return {
        "fleet": dataclasses.replace(fleet, tiles=tiles),
        "chosen": chosen,
        "number": place + 1,
        "before": tiles[place - 1],
        "after": tiles[(place + 1) % len(tiles)],
        "page": page,
        "chassis": [chassis_view(person, chosen, shown)],
    }


def _problems_about(
    person: User, chassis_ids: Collection[int], subjects: Collection[Subject], *, but: Collection[str] = ()
) -> list[Problem]:
    """Return the problems of things; `but` are words of those that a page has notices of its own for."""
    return [one for one in present_problems(person, chassis_ids) if one.about in subjects and one.word not in but]


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def devices_csv(request: HttpRequest) -> Download:
    """Stream the list view as CSV, with the same search."""
    views = fabric_view(person_of(request), search=request.GET.get("q", ""))
    return csv_download(csv_table(presentation.SLOT_COLUMNS, presentation.slot_table_rows(views)), "devices.csv")


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def chassis(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one chassis."""
    person = person_of(request)
    row: Chassis = visible_or_404(Chassis.objects, person, pk, "chassis")
    page, shown = slots_on_page(slot_places(person, [pk]).get(pk, []), request.GET.get("page"))
    view = chassis_view(person, pk, shown)
    present = port_rows(person, chassis=pk).filter(missing_since=None).order_by("switch", "port_id")
    ports = Paginator(present, PORTS_A_PAGE).get_page(request.GET.get("ports"))
    counted = counter_baselines(person, [pk])
    for port in ports:
        port.errors = counts_since(port.errors, counted.get(port.pk))
    board = status_board(person, [pk])
    status = board.of("chassis", pk)
    context: dict[str, Any] = {
        "chassis": view,
        "page": page,
        # Its standing says that it does not answer, and of when what is shown is.
        "chassis_problems": [one for one in status.problems if one.word != NOT_ANSWERING] if status else [],
        "picture": layout_chassis(view, draft_marks(person), board, Screen.of(request.COOKIES)),
        "ports": ports,
        "drifted": drift_rows(person, chassis=pk, is_open=True).count(),
        "dialect": dialect_label(view.dialect),
        "limits": presentation.limits_label(row.manufacturer, row.model),
    }
    if person.is_administrator:
        walk = Walk.objects.filter(chassis=row).first()
        found = walk.found if walk else {}
        context["row"] = row
        context["same_hardware"] = same_hardware(row)
        reported = {
            _(label): resources
            for kind, label in INVENTORY_LABELS.items()
            if (resources := found.get(kind)) and isinstance(resources, list)
        }
        most = PARTS_LISTED if sum(map(len, reported.values())) > MAX_PARTS_LISTED else MAX_PARTS_LISTED
        context["kinds"] = [(label, len(parts), parts[:most]) for label, parts in reported.items()]
        context["problems"] = found.get("problems", [])
        if found.get("gaps") is not None:
            context["gaps"] = gaps_view(found["gaps"])
        context["components"] = chassis_components(found.get("components", ()))
    return render(request, "fabric/topology/chassis.html", context)


@require_GET
@declare(
    Audience.EVERYBODY,
    menu_entry=MenuEntry(gettext_noop("Overview")),
    tested_queries=("", "by=temperature", "by=tenant"),
)
def overview(request: HttpRequest) -> HttpResponse:
    """Show active problems, the fleet `by` a measure (the last one is remembered), capacity and current activity."""
    chosen = request.GET.get("by", "")
    if chosen in MEASURES and chosen != request.session.get(FLEET_BY):
        request.session[FLEET_BY] = chosen
    by = request.session.get(FLEET_BY, "status")
    return render(request, "fabric/topology/overview.html", {"overview": overview_for(person_of(request), by=by)})


@require_http_methods(["GET", "POST"])
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.DRAWER_MODE, section="fabric:fabric")
def drawer(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one drawer; POST `mode` requests another mode."""
    person = person_of(request)
    row: Drawer = visible_or_404(Drawer.objects.select_related("chassis"), person, pk, "drawer")
    if request.method == "POST":
        try:
            operation = mode_request(person=person, drawer=row, mode=request.POST.get("mode", ""))
        except (Conflict, Invalid) as error:
            messages.error(request, error.sentence)
            return redirect("fabric:drawer", pk=pk)
        return redirect("fabric:operation", pk=operation.pk)
    places = slot_places(person, [row.chassis_id], drawer=pk).get(row.chassis_id, [])
    page, here = slots_on_page(places, request.GET.get("page"))
    chassis = chassis_view(person, row.chassis_id, here)
    view = next((one for one in chassis.drawers if one.id == row.pk), None)
    shown = dataclasses.replace(chassis, drawers=(view,) if view else ())
    slots = [slot for slot in view.slots if slot.device] if view else []
    ports = [slot for slot in slots if slot.port_id]
    board = status_board(person, [row.chassis_id])
    context = {
        "drawer": row,
        "page": page,
        "chassis": shown,
        "status": board.of("drawer", pk),
        "picture": layout_chassis(shown, draft_marks(person), board, Screen.of(request.COOKIES)),
        "mode": _(MODE_VALUE_LABELS.get(row.mode, row.mode)),
        "attached": [slot for slot in slots if slot.device and slot.device.host_port_id],
        "modes": mode_choices(person, row),
        "operation": Operation.objects.visible_to(person).open().filter(drawer=row).first(),
        "drifts": part_drifts(person, row),
        "devices": [slot.device for slot in slots],
        "objects": " ".join([f"drawer/{row.pk}", *(f"port/{slot.port_id}" for slot in ports)]),
        "now": f"drawer/{row.pk}",
        "names": json.dumps({f"port/{slot.port_id}": _("Slot {number}", number=slot.label) for slot in ports}),
    }
    return render(request, "fabric/topology/drawer.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def slot(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one slot, with what is in it and the port behind it."""
    person = person_of(request)
    row: Slot = visible_or_404(Slot.objects.select_related("chassis", "drawer", "port"), person, pk, "slot")
    device = Device.objects.visible_to(person).filter(slot=row).first()
    ports = HostPort.objects.visible_to(person).filter(devices=device) if device else HostPort.objects.none()
    subjects = {("port", row.port_id or 0), ("device", device.pk if device else 0)}
    context = {
        "slot": row,
        "device": device,
        "host_port": ports.select_related("host").first(),
        "port": row.port,
        "drifts": part_drifts(person, device) if device else [],
        "problems": _problems_about(person, [row.chassis_id], subjects, but={DRIFTED}),
        "times": attachment_views(person, attachment_rows(person, slot=pk)[:ATTACHMENTS_SHOWN]),
        "history_page": reverse("fabric:slot_history", args=[pk]),
        "objects": f"port/{row.port_id}" if row.port_id else "",
    }
    return render(request, "fabric/topology/slot.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def device(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one device, with the form that attaches and detaches it."""
    person = person_of(request)
    rows = Device.objects.select_related("chassis", "slot__port", "slot__drawer", "tenant", "host_port__host")
    row: Device = visible_or_404(rows, person, pk, "device")
    ports = HostPort.objects.visible_to(person).filter(chassis=row.chassis_id, missing_since=None)
    seen = ports.filter(pk=row.host_port_id).select_related("host").first()
    if row.slot is not None and row.slot.drawer_id is not None:
        ports = ports.filter(drawer=row.slot.drawer_id)
    operations = list(Operation.objects.visible_to(person).filter(device=row)[:10])
    port = row.slot.port if row.slot else None
    coming = next((one for one in operations if one.is_open), None)
    subjects = {("device", row.pk), ("port", port.pk if port is not None else 0)}
    context = {
        "device": row,
        "port": port,
        "host_port": seen,
        "other_host_ports": HostPort.objects.visible_to(person).filter(other_devices=row).select_related("host"),
        "targets": [one for one in ports.select_related("host") if one.pk != (seen.pk if seen else None)],
        "problems": _problems_about(person, [row.chassis_id], subjects, but=NOTICED),
        "operations": operations,
        "open_operation": coming,
        # Nothing is shown of a host that the person may not see, nor of its processes.
        "readiness": device_readiness(row, operation=coming) if seen or row.host_port_id is None else Readiness(),
        "drifts": part_drifts(person, row),
        "components": device_components(row),
        "times": attachment_views(person, attachment_rows(person, device=pk)[:ATTACHMENTS_SHOWN]),
        "history_page": reverse("fabric:device_history", args=[pk]),
        "objects": f"device/{row.pk}" + (f" port/{port.pk}" if port else ""),
    }
    return render(request, "fabric/topology/device.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def port(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one port: its link compared with its capability, its error counters, and what is attached."""
    person = person_of(request)
    row: Port = visible_or_404(Port.objects.select_related("chassis", "switch__drawer"), person, pk, "port")
    context: dict[str, Any] = {
        "port": row,
        "slot": Slot.objects.visible_to(person).filter(port=row).select_related("drawer").first(),
        "device": Device.objects.visible_to(person).filter(slot__port=row).first(),
        "host_port": HostPort.objects.visible_to(person).filter(port=row).select_related("host").first(),
        "errors": {
            counter_label(name): count
            for name, count in counts_since(row.errors, counter_baselines(person, [row.chassis_id]).get(row.pk)).items()
        },
        "drifts": part_drifts(person, row),
        "objects": f"port/{row.pk}",
    }
    subjects = {("port", pk), ("device", context["device"].pk if context["device"] else 0)}
    context["problems"] = _problems_about(person, [row.chassis_id], subjects, but={DRIFTED})
    on_it = context["host_port"] or context["device"]
    if on_it is not None and row.chassis.is_composable and row.missing_since is None and may_configure(person, row):
        now = PortSetting(port_type=row.port_type, configured_width=row.configured_width)
        context |= {"setting": port_setting_label(now), "lanes": LANE_COUNTS}
        context["port_types"] = allowed_port_types(of_host=context["host_port"] is not None)
        if context["host_port"] is not None and may_move_cable(person):
            context["hosts"] = Host.objects.visible_to(person).order_by(natural("name"))
    return render(request, "fabric/topology/port.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS)
def host(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one host, its host ports and the visible devices attached to it."""
    person = person_of(request)
    row: Host = visible_or_404(Host.objects.all(), person, pk, "host")
    ports = list(
        HostPort.objects.visible_to(person)
        .filter(host=row, missing_since=None)
        .select_related("chassis", "drawer", "port")
    )
    devices = (
        Device.objects.visible_to(person)
        .filter(Q(host_port__in=ports) | Q(other_host_ports__in=ports), missing_since=None)
        .select_related("slot__drawer", "slot__port", "chassis", "host_port")
        .prefetch_related("other_host_ports")
        .distinct()
    )
    labels = {one.pk: one.label for one in ports}
    for one in devices:
        at = (one.host_port_id, *(other.pk for other in one.other_host_ports.all()))
        one.labels = ", ".join(labels[pk] for pk in at if pk in labels)
    chassis = []
    for found in dict.fromkeys(one.chassis for one in ports):
        linked = [one for one in ports if one.chassis_id == found.pk and one.port_id]
        objects = " ".join(f"port/{one.port_id}" for one in linked)
        names = json.dumps({f"port/{one.port_id}": one.label for one in linked})
        chassis.append({"chassis": found, "objects": objects, "names": names})
    subjects = {("host-port", one.pk) for one in ports} | {("port", one.port_id or 0) for one in ports}
    subjects |= {("device", one.pk) for one in devices}
    subjects |= {("port", one.slot.port_id or 0) for one in devices if one.slot is not None}
    context: dict[str, Any] = {
        "host": row, "host_ports": ports, "devices": devices, "chassis": chassis,
        "problems": _problems_about(person, {one.chassis_id for one in ports}, subjects),
    }  # fmt: skip
    if may_move_cable(person):
        elsewhere = HostPort.objects.visible_to(person).filter(missing_since=None).exclude(host=row)
        composable = [one for one in elsewhere.select_related("chassis", "host") if one.chassis.is_composable]
        context["cables"] = composable
    return render(request, "fabric/topology/host.html", {**context, **agent_context(person, row, list(devices))})


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Hosts")))
def hosts(request: HttpRequest) -> HttpResponse:
    """List hosts; `q` and `page` are in the URL."""
    search = request.GET.get("q", "")
    pages = Paginator(host_rows(person_of(request), search=search), ROWS_A_PAGE)
    page = pages.get_page(request.GET.get("page"))
    for one in page.object_list:
        one.attached = sum(len(port.devices.all()) for port in one.seen_ports)
    return render(request, "fabric/topology/hosts.html", {"page": page, "search": search})


COUNTED_MODELS: tuple[tuple[str, type[Drawer | Switch | HostPort | Device]], ...] = (
    (gettext_noop("Drawers"), Drawer),
    (gettext_noop("Switch chips"), Switch),
    (gettext_noop("Host ports"), HostPort),
    (gettext_noop("Devices"), Device),
)


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry(gettext_noop("System"), "Administration", 7))
def system(request: HttpRequest) -> HttpResponse:
    """Show versions, counts, each chassis with its firmware and last answer, and last sign-ins.

    Their pages, `page` and `people`, are in the URL.
    """
    here = Q(missing_since=None)
    counts = [(_(name), model.objects.filter(here).count()) for name, model in COUNTED_MODELS]
    kinds = Device.objects.filter(here).order_by("kind").values_list("kind").annotate(Count("pk"))
    people = User.objects.filter(is_active=True).select_related("tenant").order_by("username")
    page = Paginator(Chassis.objects.all(), ROWS_A_PAGE // 2).get_page(request.GET.get("page"))
    for one in page:
        one.progress, one.limits = walk_progress_label(one), limits_of(one)
    context: dict[str, Any] = {
        "python": platform.python_version(),
        "django": django.get_version(),
        "database": f"{connection.display_name} {'.'.join(str(part) for part in connection.get_database_version())}",
        "counts": [(_("Hosts"), Host.objects.count()), *counts],
        "kinds": [(Device.Kind(kind).label, number) for kind, number in kinds],
        "page": page,
        "people": Paginator(people, ROWS_A_PAGE // 2).get_page(request.GET.get("people")),
    }
    return render(request, "fabric/topology/system.html", context)
