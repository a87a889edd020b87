"""Pages for administrators: a tenant with what it owns or leases, and the system as a whole."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, declare
from accounts.forms import TenantForm
from accounts.models import Tenant
from accounts.selectors import tenant_asset_labels
from accounts.services import tenant_edit, tenant_remove
from accounts.visibility import row_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict
from core.forms import service_errors_in
from core.text import parse_id
from fabric.inventory.models import Device, HostPort
from fabric.leases.calendar import CalendarStep, lease_calendar, parse_first_day
from fabric.leases.forms import QuotaForm
from fabric.leases.grants import grants_set
from fabric.leases.models import Quota
from fabric.leases.quotas import quotas_set
from fabric.leases.rules import Month, month_label, months_between
from fabric.leases.selectors import ownership_revision, ownership_table
from fabric.leases.usage import COLUMNS, UsageRecord, usage_of, usage_period, usage_table, usage_table_rows
from fabric.leases.views import posted_rows


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.TENANT_EDIT)
def tenant(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a tenant: people, name, and what it owns or leases; a POST renames it."""
    by = person_of(request)
    row = _tenant(pk)
    form = TenantForm(request.POST if request.method == "POST" else None, initial={"name": row.name})
    if form.is_valid():
        with service_errors_in(form):
            row = tenant_edit(by=by, tenant=row, name=form.cleaned_data["name"])
            messages.success(request, f"The tenant was renamed to {row.name}.")
            return redirect("fabric:tenant", pk=row.pk)
    context = {
        "tenant": row,
        "people": row.people.all(),
        "form": form,
        "groups": ownership_table(),
        "seen": ownership_revision(),
        "assets": tenant_asset_labels([row.pk]).get(row.pk, []),
    }
    return render(request, "fabric/tenant.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.GRANTS_SET, target_kind="tenant")
def tenant_grants(request: HttpRequest, pk: int) -> HttpResponse:
    """Assign what is ticked to the tenant: `devices`, `host_ports`, and with them `take_devices`, `take_host_ports`."""
    by = person_of(request)
    row = _tenant(pk)
    devices, host_ports = Device.objects.all(), HostPort.objects.all()
    try:
        grants_set(
            person=by,
            tenant=row,
            devices=posted_rows(request, devices, "devices", "take_devices"),
            host_ports=posted_rows(request, host_ports, "host_ports", "take_host_ports"),
            take=[*posted_rows(request, devices, "take_devices"), *posted_rows(request, host_ports, "take_host_ports")],
            seen=request.POST.get("seen", ""),
        )
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        assets = " and ".join(tenant_asset_labels([row.pk]).get(row.pk, ["nothing"]))
        messages.success(request, f"{row.name} now owns or leases {assets}.")
    return redirect("fabric:tenant", pk=row.pk)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.TENANT_REMOVE)
def tenant_removal(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a tenant that has no people, owns nothing and leases nothing."""
    by = person_of(request)
    row = _tenant(pk)
    try:
        tenant_remove(by=by, tenant=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("fabric:tenant", pk=row.pk)
    messages.success(request, f"{row.name} was removed.")
    return redirect("accounts:tenants")


@require_GET
@declare(Audience.EVERYBODY)
def calendar(request: HttpRequest) -> HttpResponse:
    """Show the calendar of leases; `from` (a day) and `step` (days or weeks) are in the URL."""
    today = timezone.now().date()
    first = parse_first_day(request.GET.get("from", "")) or today
    step: CalendarStep = "weeks" if request.GET.get("step") == "weeks" else "days"
    shown = lease_calendar(person_of(request), first=first, step=step)
    return render(request, "fabric/lease_calendar.html", {"calendar": shown, "today": today})


@require_GET
@declare(Audience.EVERYBODY)
def usage(request: HttpRequest) -> HttpResponse:
    """Show hours by tenant, kind and month; `since`, `until` (months) and `tenant` are in the URL."""
    person = person_of(request)
    held, first, last, tenant = _requested_usage(request)
    context: dict[str, Any] = {
        "rows": usage_table(held, first, last),
        "months": [month_label(month) for month in months_between(first, last)],
        "since": month_label(first),
        "until": month_label(last),
        "tenant": tenant,
        "tenants": Tenant.objects.all() if person.is_administrator else [],
        "quotas": Quota.objects.visible_to(person).select_related("tenant"),
    }
    return render(request, "fabric/lease_usage.html", context)


@require_GET
@declare(Audience.EVERYBODY, not_judged=NO_PAGE)
def usage_csv(request: HttpRequest) -> Download:
    """Stream the same as CSV."""
    held, _, _, _ = _requested_usage(request)
    return csv_download(csv_table(COLUMNS, usage_table_rows(held)), "usage.csv")


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.QUOTA_SET)
def quotas(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and set the quota of a tenant."""
    by = person_of(request)
    tenant = _tenant(pk)
    initial: dict[str, int | None] = {}
    for one in Quota.objects.filter(tenant=tenant):
        initial |= {f"once_{one.kind}": one.most_at_once, f"hours_{one.kind}": one.most_hours_a_month}
    form = QuotaForm(request.POST if request.method == "POST" else None, initial=initial)
    if form.is_valid():
        with service_errors_in(form):
            quotas_set(person=by, tenant=tenant, limits=form.limits())
            messages.success(request, f"The quota of {tenant.name} was saved.")
            return redirect("fabric:tenant", pk=tenant.pk)
    context = {"tenant": tenant, "form": form}
    return render(request, "fabric/lease_quotas.html", context, status=400 if form.errors else 200)


def _requested_usage(request: HttpRequest) -> tuple[list[UsageRecord], Month, Month, int | None]:
    first, last = usage_period(request.GET.get("since", ""), request.GET.get("until", ""))
    tenant = parse_id(request.GET.get("tenant", "")) or None
    return usage_of(person_of(request), first, last, tenant=tenant), first, last, tenant


def _tenant(pk: int) -> Tenant:
    row: Tenant = row_or_404(Tenant.objects.all(), pk, "tenant")
    return row
