"""Pages of history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access import person_of
from accounts.declaration import NO_PAGE, Audience, declare
from accounts.models import User
from accounts.visibility import visible_or_404
from core.downloads import Download, csv_download, csv_table
from fabric.history.models import Attachment
from fabric.history.selectors import COLUMNS, attachment_rows, attachment_table_rows, attachment_views
from fabric.inventory.models import Device, Slot

ROWS_A_PAGE = 50
CSV_ROWS_PER_QUERY = 500


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def slot_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the history of a slot."""
    row = _slot(person_of(request), pk)
    return _history_page(request, attachment_rows(person_of(request), slot=pk), {"slot": row, "name": row.name})


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric", no_page_test=NO_PAGE)
def slot_history_csv(request: HttpRequest, pk: int) -> Download:
    """Stream the history of a slot as CSV."""
    person = person_of(request)
    _slot(person, pk)
    return _csv_download(person, attachment_rows(person, slot=pk), f"slot-{pk}-history.csv")


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric")
def device_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the history of a device: where it was attached, and its tenants."""
    row = _device(person_of(request), pk)
    return _history_page(request, attachment_rows(person_of(request), device=pk), {"device": row, "name": row.name})


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:fabric", no_page_test=NO_PAGE)
def device_history_csv(request: HttpRequest, pk: int) -> Download:
    """Stream the history of a device as CSV."""
    person = person_of(request)
    _device(person, pk)
    return _csv_download(person, attachment_rows(person, device=pk), f"device-{pk}-history.csv")


def _slot(person: User, pk: int) -> Slot:
    row: Slot = visible_or_404(Slot.objects.select_related("chassis", "drawer"), person, pk, "slot")
    return row


def _device(person: User, pk: int) -> Device:
    row: Device = visible_or_404(Device.objects.select_related("chassis", "slot__drawer"), person, pk, "device")
    return row


def _history_page(request: HttpRequest, rows: QuerySet[Attachment], context: dict[str, Any]) -> HttpResponse:
    page = Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))
    times = attachment_views(person_of(request), page.object_list)
    return render(request, "fabric/history/history.html", {**context, "page": page, "times": times})


def _csv_download(person: User, rows: QuerySet[Attachment], name: str) -> Download:
    def lines() -> Iterator[tuple[object, ...]]:
        for number in (pages := Paginator(rows, CSV_ROWS_PER_QUERY)).page_range:
            yield from attachment_table_rows(attachment_views(person, pages.page(number).object_list))

    return csv_download(csv_table(COLUMNS, lines()), name)
