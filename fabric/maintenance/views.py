"""Pages of maintenance: all parts of them with their firmware, and one with its LED and its resets."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.visibility import row_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid
from core.language import gettext_noop
from core.text import parse_id
from fabric.inventory.models import ManagedPart
from fabric.maintenance.selectors import CSV_COLUMNS, PartTable, affected_devices, managed_part_rows, reset_choices
from fabric.maintenance.services import reset_request
from fabric.operations.models import Operation

MAX_OPERATIONS = 10


@require_GET
@declare(
    Audience.ADMINISTRATORS,
    menu_entry=MenuEntry(gettext_noop("Firmware and power"), "Administration", 5),
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
    no_page_test=NO_SAMPLE,
    fresh_sign_in=True,
)
def managed_part(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a part, and request a reset of it: `reset_type`, its label as `confirmation`, `affected` ids."""
    person = person_of(request)
    row: ManagedPart = row_or_404(managed_part_rows(person), pk, "part")
    error, errors = "", cast("dict[str, str]", {})
    if request.method == "POST":
        try:
            operation = reset_request(
                person=person,
                part=row,
                reset_type=request.POST.get("reset_type", ""),
                confirmation=request.POST.get("confirmation", ""),
                affected=[parse_id(one) for one in request.POST.get("affected", "").split(",") if one],
            )
        except (Conflict, Invalid) as refusal:
            error, errors = refusal.sentence, refusal.details.get("errors", {})
        else:
            return redirect("fabric:operation", pk=operation.pk)
    affected = affected_devices(row)
    context = {
        "part": row,
        "usual": PartTable(person).shown([row])[0].usual,
        "choices": reset_choices(row),
        "chosen": request.POST.get("reset_type", ""),
        "affected": affected,
        "affected_ids": ",".join(str(one.device.pk) for one in affected),
        "error": error,
        "errors": errors,
        "operations": Operation.objects.filter(managed_part=row)[:MAX_OPERATIONS],
    }
    return render(request, "fabric/maintenance/part.html", context)


def _table(request: HttpRequest) -> PartTable:
    return PartTable(
        person_of(request),
        search=request.GET.get("q", ""),
        kind=request.GET.get("kind", ""),
        differing=bool(request.GET.get("differing")),
        sort=request.GET.get("sort", ""),
    )
