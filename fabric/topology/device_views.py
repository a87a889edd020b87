"""Pages of the list of devices."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.approvals.services import ApprovalNeeded
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import Tenant
from accounts.visibility import row_or_404, visible_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid, NotFound, Unavailable
from core.language import _, _n, gettext_noop
from core.local_pages import next_page
from core.text import parse_id
from fabric.inventory.models import Device, SavedFilter
from fabric.leases.grants import device_grant
from fabric.topology.device_list import COLUMNS, CSV_COLUMNS, DEFAULT_COLUMNS, DeviceTable
from fabric.topology.problems import status_board
from fabric.topology.saved_filters import saved_filter_add, saved_filter_remove

REMEMBERED = "device_columns"  # in the session
MAX_FAILURES_SHOWN = 10


@require_GET
@declare(
    Audience.EVERYBODY,
    menu_entry=MenuEntry(gettext_noop("Devices")),
    tested_queries=("", "q=kind:gpu+free", "q=foo:bar"),
)
def devices(request: HttpRequest) -> HttpResponse:
    """List devices; `q`, `sort`, `page` and each `column` are in the URL, and the columns are remembered."""
    person = person_of(request)
    chosen = [name for name in request.GET.getlist("column") if name in COLUMNS]
    # The page refreshes itself: the session is written once.
    if chosen and request.session.get(REMEMBERED) != chosen:
        request.session[REMEMBERED] = chosen
    shown = chosen or request.session.get(REMEMBERED) or DEFAULT_COLUMNS
    table, error = _table(request)
    page = table.page(request.GET.get("page"))
    context: dict[str, Any] = {
        "search": request.GET.get("q", ""),
        "search_error": error,
        "table": table,
        "page": page,
        "columns": [(name, column) for name, column in COLUMNS.items() if name in shown],
        "choices": [(name, column.label, name in shown) for name, column in COLUMNS.items()],
        "board": status_board(person, {row.device.chassis_id for row in page.object_list}),
        "tenants": Tenant.objects.all() if person.is_administrator else [],
        "csv": _query(request, but=("page", "column")),
        "query": _query(request, but=("page",)),
        "saved": SavedFilter.objects.visible_to(person),
    }
    return render(request, "fabric/topology/devices.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE, section="fabric:devices")
def device_list_csv(request: HttpRequest) -> Download:
    """Stream the list as CSV, with the same filter and order, or those of it whose ids are given (`devices`)."""
    chosen = [parse_id(text) for text in request.GET.getlist("devices")]
    table = DeviceTable(
        person_of(request),
        search=request.GET.get("q", ""),
        sort=request.GET.get("sort", ""),
        devices=chosen or None,
    )
    return csv_download(csv_table(CSV_COLUMNS, (row.cells() for row in table.all())), "devices.csv")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.GRANT_CHANGE, section="fabric:devices")
def devices_assign(request: HttpRequest) -> HttpResponse:
    """Assign devices to a tenant, or with no `tenant` to none, one by one: says of each that failed why."""
    by = person_of(request)
    pk = request.POST.get("tenant", "")
    tenant = row_or_404(Tenant.objects.all(), parse_id(pk), "tenant") if pk else None
    rows = Device.objects.filter(pk__in={parse_id(text) for text in request.POST.getlist("devices")})
    done, failures = 0, []
    for row in rows.select_related("chassis", "slot"):
        try:
            device_grant(person=by, device=row, tenant=tenant)
        except (Conflict, NotFound, ApprovalNeeded) as error:
            failures.append(f"{row.name} ({row.chassis.name}): {error.sentence}")
        else:
            done += 1
    if done:
        messages.success(request, _assigned_sentence(done, tenant))
    for sentence in failures[:MAX_FAILURES_SHOWN]:
        messages.error(request, sentence)
    if (more := len(failures) - MAX_FAILURES_SHOWN) > 0:
        messages.error(request, _("{count} more were not changed.", count=more))
    if not done and not failures:
        messages.error(request, _("Choose devices first."))
    return redirect(next_page(request, "fabric:devices"))


def _assigned_sentence(count: int, tenant: Tenant | None) -> str:
    if tenant is None:
        return _n("{count} device is unassigned.", "{count} devices are unassigned.", count)
    name = tenant.name
    return _n("{count} device is assigned to {name}.", "{count} devices are assigned to {name}.", count, name=name)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.DEVICE_FILTER_ADD, section="fabric:devices")
def filter_save(request: HttpRequest) -> HttpResponse:
    """Save a filter of devices (`query`) under a `name`; administrators may share it (`shared`)."""
    query = request.POST.get("query", "")
    try:
        made = saved_filter_add(
            person=person_of(request),
            name=request.POST.get("name", ""),
            query=query,
            is_shared="shared" in request.POST,
        )
    except (Invalid, Conflict) as error:
        messages.error(request, error.sentence)
        return redirect("fabric:devices")
    messages.success(request, _("The filter ‘{name}’ was saved.", name=made.name))
    return redirect(f"{reverse('fabric:devices')}?{made.query}")


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.DEVICE_FILTER_REMOVE, section="fabric:devices")
def filter_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a saved filter of devices."""
    person = person_of(request)
    saved_filter_remove(person=person, row=visible_or_404(SavedFilter.objects, person, pk, "filter"))
    messages.success(request, _("The filter was deleted."))
    return redirect("fabric:devices")


def _table(request: HttpRequest) -> tuple[DeviceTable, str]:
    """Return the requested table; all devices, and the sentence that says why, where its filter is wrong."""
    person, sort = person_of(request), request.GET.get("sort", "")
    try:
        return DeviceTable(person, search=request.GET.get("q", ""), sort=sort), ""
    except (Invalid, Unavailable) as error:
        return DeviceTable(person, sort=sort), error.sentence


def _query(request: HttpRequest, *, but: tuple[str, ...]) -> str:
    query: QueryDict = request.GET.copy()
    for name in but:
        query.pop(name, None)
    return query.urlencode()
