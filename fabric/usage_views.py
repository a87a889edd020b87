"""Pages of what is held: the calendar, hours of use, and quotas."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import administrator_of, person_of
from accounts.audit.exports import Download
from accounts.forms import tell
from accounts.models import Tenant
from fabric import sheets
from fabric.booking import Month, months_between
from fabric.lease_calendar import calendar_of
from fabric.lease_forms import QuotaForm
from fabric.lease_views import tenant_of
from fabric.models import Quota
from fabric.services.quotas import quotas_set
from fabric.usage import COLUMNS, Held, month_label, months_shown, usage_lines, usage_of, usage_table
from falconweb.errors import Invalid

EARLIEST, LATEST = date(2000, 1, 1), date(2200, 1, 1)


@require_GET
def calendar(request: HttpRequest) -> HttpResponse:
    """Show who holds what; `from` (a day) and `step` (days or weeks) are in the URL."""
    person = person_of(request)
    step = "weeks" if request.GET.get("step") == "weeks" else "days"
    try:
        first = parse_date(request.GET.get("from", ""))
    except ValueError:
        first = None
    today = timezone.now().date()
    if first is None or not EARLIEST <= first <= LATEST:
        first = today
    shown = calendar_of(person, first=first, step="weeks" if step == "weeks" else "days")
    return render(request, "fabric/lease_calendar.html", {"calendar": shown, "today": today})


@require_GET
def usage(request: HttpRequest) -> HttpResponse:
    """Show hours by tenant, kind and month; `since`, `until` (months) and `tenant` are in the URL."""
    person = person_of(request)
    held, first, last, tenant = _asked(request)
    rows = usage_table(held, first, last)
    context: dict[str, Any] = {
        "rows": rows,
        "months": [month_label(month) for month in months_between(first, last)],
        "since": month_label(first),
        "until": month_label(last),
        "tenant": tenant,
        "tenants": Tenant.objects.all() if person.is_administrator else [],
        "quotas": Quota.objects.visible_to(person).select_related("tenant"),
    }
    return render(request, "fabric/lease_usage.html", context)


@require_GET
def usage_csv(request: HttpRequest) -> Download:
    """Stream the same as CSV."""
    held, _, _, _ = _asked(request)
    answer = Download(sheets.lines(COLUMNS, usage_lines(held)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="usage.csv"'
    return answer


@require_http_methods(["GET", "POST"])
def quotas(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and set how much a tenant may hold."""
    by = administrator_of(request)
    tenant = tenant_of(pk)
    form = QuotaForm(request.POST) if request.method == "POST" else QuotaForm.of(Quota.objects.filter(tenant=tenant))
    if form.is_bound and form.is_valid():
        try:
            quotas_set(person=by, tenant=tenant, limits=form.limits())
        except Invalid as error:
            tell(form, error)
        else:
            messages.success(request, f"The quota of {tenant.name} is set.")
            return redirect("fabric:tenant", pk=tenant.pk)
    context = {"tenant": tenant, "form": form}
    return render(request, "fabric/lease_quotas.html", context, status=400 if form.errors else 200)


def _asked(request: HttpRequest) -> tuple[list[Held], Month, Month, int | None]:
    first, last = months_shown(request.GET.get("since", ""), request.GET.get("until", ""))
    typed = request.GET.get("tenant", "")
    tenant = int(typed) if typed.isascii() and typed.isdecimal() and len(typed) < 19 else None
    return usage_of(person_of(request), first, last, tenant=tenant), first, last, tenant
