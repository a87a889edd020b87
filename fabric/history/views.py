"""Pages of history."""

from __future__ import annotations

from typing import Any, Final, Literal

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access import person_of
from accounts.declaration import NO_PAGE, Audience, declare
from accounts.visibility import visible_or_404
from core.downloads import Download, csv_download, csv_table
from fabric.history.selectors import COLUMNS, attachment_rows, attachment_table_rows, attachment_views
from fabric.inventory.models import Device, Slot

ROWS_A_PAGE = 50
CSV_ROWS_PER_QUERY = 500
PartKind = Literal["slot", "device"]
PARTS: Final[dict[PartKind, Any]] = {
    "slot": Slot.objects.select_related("chassis", "drawer"),
    "device": Device.objects.select_related("chassis", "slot__drawer"),
}


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def history(request: HttpRequest, pk: int, kind: PartKind) -> HttpResponse:
    """Show the history of a slot, or of a device: where it was attached, and its tenants."""
    person = person_of(request)
    part = visible_or_404(PARTS[kind], person, pk, kind)
    page = Paginator(attachment_rows(person, **{kind: pk}), ROWS_A_PAGE).get_page(request.GET.get("page"))
    context = {kind: part, "name": part.name, "page": page, "times": attachment_views(person, page.object_list)}
    return render(request, "fabric/history/history.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric", no_page_test=NO_PAGE)
def history_csv(request: HttpRequest, pk: int, kind: PartKind) -> Download:
    """Stream the history of a slot or of a device as CSV."""
    person = person_of(request)
    visible_or_404(PARTS[kind], person, pk, kind)
    pages = Paginator(attachment_rows(person, **{kind: pk}), CSV_ROWS_PER_QUERY)

    views = (view for page in pages for view in attachment_views(person, page.object_list))
    return csv_download(csv_table(COLUMNS, attachment_table_rows(views)), f"{kind}-{pk}-history.csv")
