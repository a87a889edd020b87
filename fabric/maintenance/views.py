"""Pages of maintenance: all parts of them with their firmware, and one with its LED and its resets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.visibility import row_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid
from core.forms import refusals_as_messages
from core.language import _, gettext_noop
from core.local_pages import next_page
from core.text import parse_id
from fabric.inventory.models import ManagedPart
from fabric.maintenance import services
from fabric.maintenance.files import MAX_IMAGE_BYTES
from fabric.maintenance.models import CollectedLog, FirmwareImage
from fabric.maintenance.selectors import (
    CSV_COLUMNS,
    AffectedDevice,
    PartTable,
    affected_devices,
    drain_plan,
    managed_part_rows,
    reset_choices,
    undrained_devices,
    update_service,
)
from fabric.maintenance.services import firmware_image_add, firmware_request, log_download, reset_request
from fabric.operations.models import Operation

MAX_OPERATIONS = 10


@require_GET
@declare(
    Audience.ADMINISTRATORS,
    menu_entry=MenuEntry(gettext_noop("Maintenance"), "Administration", 5),
    tested_queries=("", "q=drawer&kind=drawer", "differing=1"),
)
def maintenance(request: HttpRequest) -> HttpResponse:
    """List the parts of all chassis; `q`, `kind`, `differing`, `sort` and `page` are in the URL."""
    table = _table(request)
    page = table.page(request.GET.get("page"))
    filters = {name: request.GET.get(name, "") for name in ("q", "kind", "differing")}
    context: dict[str, Any] = {
        "table": table,
        "page": page,
        "filters": filters,
        "filtered": any(filters.values()),
        "kinds": ManagedPart.Kind.choices,
    }
    return render(request, "fabric/maintenance/parts.html", context)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE, section="fabric:maintenance")
def maintenance_csv(request: HttpRequest) -> Download:
    """Stream the list as CSV, with the same filter and order."""
    table = _table(request)
    rows = (row.cells() for row in table.shown(table.rows))
    return csv_download(csv_table(CSV_COLUMNS, rows), "parts.csv")


@require_http_methods(["GET", "POST"])
@declare(
    Audience.ADMINISTRATORS,
    audited_as=Action.PART_RESET,
    section="fabric:maintenance",
    fresh_sign_in=True,
)
def managed_part(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a part; POST requests its reset (`reset_type`) or its update (`image_uri` or `image`, `version`).

    Both need its label as `confirmation`, and the ids of the devices that it may interrupt as `affected`.
    """
    person = person_of(request)
    row: ManagedPart = row_or_404(managed_part_rows(person), pk, "part")
    error, errors = "", cast("dict[str, str]", {})
    if request.method == "POST":
        try:
            operation = _request(request, row)
        except (Conflict, Invalid) as refusal:
            error, errors = refusal.sentence, refusal.details.get("errors", {})
        else:
            return redirect("fabric:operation", pk=operation.pk)
    affected = affected_devices(row)
    service = update_service(row)
    interrupted = affected_devices(row, by_update=True) if service is not None else []
    context = {
        "part": row,
        "usual": PartTable(person).shown([row])[0].usual,
        "choices": reset_choices(row),
        "posted": request.POST,
        "is_update": "update" in request.POST,
        "affected": affected,
        "affected_ids": _ids(affected),
        "service": service,
        "images": FirmwareImage.objects.all() if service is not None and service.takes_pushes else [],
        "undrained": undrained_devices(row) if service is not None else [],
        "interrupted": interrupted,
        "interrupted_ids": _ids(interrupted),
        "logs": row.collected_logs.all(),
        "drain": drain_plan(row) if service is not None else None,
        "error": error,
        "errors": errors,
        "operations": Operation.objects.filter(managed_part=row)[:MAX_OPERATIONS],
    }
    return render(request, "fabric/maintenance/part.html", context)


def _request(request: HttpRequest, row: ManagedPart) -> Operation:
    posted = request.POST
    common: dict[str, Any] = {
        "person": person_of(request), "part": row, "confirmation": posted.get("confirmation", ""),
        "affected": [parse_id(one) for one in posted.get("affected", "").split(",") if one],
    }  # fmt: skip
    if "update" not in posted:
        return reset_request(reset_type=posted.get("reset_type", ""), **common)
    pk = posted.get("image", "")
    return firmware_request(
        image_uri=posted.get("image_uri", "").strip(),
        image=row_or_404(FirmwareImage.objects.all(), parse_id(pk), "image") if pk else None,
        version=posted.get("version", ""),
        **common,
    )


def _ids(devices: Iterable[AffectedDevice]) -> str:
    return ",".join(str(one.device.pk) for one in devices)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.PLAN_CREATE, section="fabric:maintenance")
def firmware_drain(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a plan that detaches the devices which an update of a part interrupts, and show its draft."""
    person = person_of(request)
    row: ManagedPart = row_or_404(managed_part_rows(person), pk, "part")
    try:
        plan = services.firmware_drain(person=person, part=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("fabric:managed_part", pk=pk)
    return redirect("fabric:plan", pk=plan.pk)


@require_http_methods(["GET", "POST"])
@declare(
    Audience.ADMINISTRATORS,
    audited_as=Action.FIRMWARE_IMAGE_ADD,
    section="fabric:maintenance",
    body_limit=(MAX_IMAGE_BYTES + 2**20, gettext_noop("An image has at most 512 MB.")),
)
def firmware_images(request: HttpRequest) -> HttpResponse:
    """List the uploaded images of firmware; POST uploads one (`file`)."""
    error = ""
    if request.method == "POST":
        file = request.FILES.get("file")
        try:
            chunks = file.chunks() if file is not None else ()
            image = firmware_image_add(person=person_of(request), name=str(file), chunks=chunks)
        except (Conflict, Invalid) as refusal:
            error = refusal.sentence
        else:
            messages.success(request, _("{name} was uploaded.", name=image.name))
            return redirect("fabric:firmware_images")
    context = {"images": FirmwareImage.objects.all(), "error": error}
    return render(request, "fabric/maintenance/images.html", context)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.FIRMWARE_IMAGE_REMOVE, section="fabric:maintenance")
def firmware_image_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete an uploaded image."""
    row: FirmwareImage = row_or_404(FirmwareImage.objects.all(), pk, "image")
    with refusals_as_messages(request):
        services.firmware_image_remove(person=person_of(request), image=row)
        messages.success(request, _("{name} was deleted.", name=row.name))
    return redirect("fabric:firmware_images")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.LOG_COLLECT, section="fabric:maintenance")
def logs_collect(request: HttpRequest, pk: int) -> HttpResponse:
    """Request the logs of a BMC as a file, and show the operation."""
    person = person_of(request)
    row: ManagedPart = row_or_404(managed_part_rows(person), pk, "part")
    try:
        operation = services.logs_request(person=person, part=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("fabric:managed_part", pk=pk)
    return redirect("fabric:operation", pk=operation.pk)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE, section="fabric:maintenance")
def collected_log(request: HttpRequest, pk: int) -> Download:
    """Stream a collected log."""
    row: CollectedLog = row_or_404(CollectedLog.objects.all(), pk, "log")
    return log_download(person_of(request), row)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.LOG_REMOVE, section="fabric:maintenance")
def collected_log_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a collected log."""
    row: CollectedLog = row_or_404(CollectedLog.objects.all(), pk, "log")
    services.collected_log_remove(person=person_of(request), log=row)
    messages.success(request, _("{name} was deleted.", name=row.name))
    return redirect(next_page(request, "fabric:maintenance"))


def _table(request: HttpRequest) -> PartTable:
    return PartTable(
        person_of(request),
        search=request.GET.get("q", ""),
        kind=request.GET.get("kind", ""),
        differing=bool(request.GET.get("differing")),
        sort=request.GET.get("sort", ""),
    )
