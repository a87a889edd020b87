"""Pages of leases, their calendar and usage, and of a tenant with what it owns or leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of, require_composer
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.forms import TenantForm
from accounts.models import Tenant, User
from accounts.selectors import tenant_asset_labels
from accounts.services import tenant_edit, tenant_remove
from accounts.visibility import row_or_404
from core.database import natural
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid
from core.forms import service_errors_in
from core.language import _, gettext_noop, joined
from core.text import parse_id
from fabric.inventory.models import Chassis, Device, HostPort, LeasablePart
from fabric.leases.calendar import CalendarSpan, lease_calendar, parse_first_day
from fabric.leases.ends import lease_extend, lease_extension_decline, lease_extension_request, lease_return
from fabric.leases.forms import (
    LeaseDecisionForm,
    LeaseEndForm,
    LeaseExtensionForm,
    LeaseGrantForm,
    LeaseRequestForm,
    QuotaForm,
)
from fabric.leases.grants import grants_set
from fabric.leases.models import Lease, LeaseItem, Letter, Quota
from fabric.leases.ownership_table import ownership_page
from fabric.leases.part_choice import PartChoice, PartSearch, part_choice
from fabric.leases.quotas import count_label, quotas_set
from fabric.leases.rules import Month, TimeSpan, month_label, months_between
from fabric.leases.selectors import (
    LeaseCandidate,
    free_counts,
    lease_candidates,
    lease_rows,
    leases_current,
    leases_past,
    leases_pending,
    ownership_revision,
    requested_label,
    requested_parts,
    shortages,
)
from fabric.leases.services import (
    lease_approve,
    lease_decline,
    lease_give,
    lease_request,
    lease_withdraw,
    request_objections,
)
from fabric.leases.usage import (
    COLUMNS,
    UsageRecord,
    idle_items,
    usage_of,
    usage_period,
    usage_table,
    usage_table_rows,
)

ROWS_A_PAGE = 25
REQUESTED: Final = gettext_noop("Requested. An administrator will approve or decline it.")


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Leases"), "Compose", 5))
def leases(request: HttpRequest) -> HttpResponse:
    """Show requested, current or future, and ended leases; `page` is of the last."""
    person = person_of(request)
    unsent = Letter.objects.filter(sent_at=None).exclude(error="").order_by("-pk").first()
    context = {
        "waiting": leases_pending(person),
        "going_on": leases_current(person).exclude(state=Lease.State.REQUESTED),
        "idle": idle_items(Lease.objects.visible_to(person).open()),
        "page": Paginator(leases_past(person), ROWS_A_PAGE).get_page(request.GET.get("page")),
        "may_request": person.may_compose and not person.is_administrator,
        "email": settings.EMAIL_IS_SENT,
        "unsent": unsent if person.is_administrator else None,
        "now": timezone.now(),
    }
    return render(request, "fabric/leases/leases.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def lease(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one lease with its timeline and actions."""
    person = person_of(request)
    row = row_or_404(lease_rows(person), pk, "lease")
    return render(request, "fabric/leases/lease.html", _lease_context(person, row))


@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.LEASE_REQUEST)
def lease_request_page(request: HttpRequest) -> HttpResponse:
    """Request a lease."""
    person = person_of(request)
    if person.is_administrator:
        return redirect("fabric:lease_give")
    form = LeaseRequestForm(_form_data(request), chassis=Chassis.objects.visible_to(person).order_by(natural("name")))
    if form.is_valid():
        values = form.cleaned_data
        with service_errors_in(form):
            row = lease_request(
                person=person,
                wishes=form.wishes(),
                starts_at=values["starts_at"],
                ends_at=values["ends_at"],
                note=values["note"],
            )
            messages.success(request, _(REQUESTED))
            for sentence in _objections(row):
                messages.warning(request, joined([sentence, _("An administrator can allow it over quota.")]))
            return redirect("fabric:lease", pk=row.pk)
    elif request.method == "POST" and not person.may_compose:
        lease_request(person=person, wishes=[], starts_at=None, ends_at=None)  # says why not
    context = {"form": form, "unassigned": [count_label(kind, number) for kind, number in free_counts().items()]}
    return render(request, "fabric/leases/lease_request.html", context, status=400 if form.errors else 200)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.LEASE_GIVE)
def lease_give_page(request: HttpRequest) -> HttpResponse:
    """Create a lease without a request, for `tenant` if it is in the URL."""
    by = person_of(request)
    form = LeaseGrantForm(_form_data(request), initial=request.GET.dict())
    if form.is_valid():
        with service_errors_in(form):
            row = lease_give(person=by, things=_selected_parts(request), **form.cleaned_data)
            messages.success(
                request, _("Lease {lease} was created for {tenant}.", lease=row.pk, tenant=row.tenant_name)
            )
            return redirect("fabric:lease", pk=row.pk)
    found = lease_candidates(Lease(starts_at=timezone.now()), TimeSpan(timezone.now(), None))
    context = {"form": form, "choice": _part_choice(request, found)}
    return render(request, "fabric/leases/lease_give.html", context, status=400 if form.errors else 200)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.LEASE_APPROVE, no_page_test=NO_SAMPLE)
def lease_decision(request: HttpRequest, pk: int) -> HttpResponse:
    """Decide a request: GET proposes what is unassigned then, POST approves (`approve`) or declines (`decline`)."""
    by = person_of(request)
    row = row_or_404(lease_rows(by), pk, "lease")
    if row.state != Lease.State.REQUESTED:
        if request.method == "POST":
            state = row.get_state_display()
            messages.error(request, _("Lease {lease} is already '{state}'.", lease=row.pk, state=state))
        return redirect("fabric:lease", pk=row.pk)
    now = timezone.now()
    starts_at = row.starts_at if row.starts_at > now else None
    initial = {"starts_at": starts_at, "ends_at": row.ends_at, **request.GET.dict()}
    form = LeaseDecisionForm(_form_data(request), initial=initial)
    if form.is_valid():
        with service_errors_in(form):
            _decide(request, by, row, form.cleaned_data)
            return redirect("fabric:lease", pk=row.pk)
    found = lease_candidates(row, TimeSpan(max(row.starts_at, now), row.ends_at))
    context = {
        "lease": row,
        "wished": requested_label(row),
        "form": form,
        "choice": _part_choice(request, found),
        "short": shortages(row, found),
        "objections": _objections(row),
    }
    return render(request, "fabric/leases/lease_decision.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.LEASE_WITHDRAW)
def lease_withdrawal(request: HttpRequest, pk: int) -> HttpResponse:
    """Withdraw a lease that has not started."""
    return _act_on_lease(request, pk, lease_withdraw, _("The lease was withdrawn."))


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.LEASE_EXTEND)
def lease_extension(request: HttpRequest, pk: int) -> HttpResponse:
    """Request another end, or, as an administrator, set it."""
    person = person_of(request)
    form: forms.Form = LeaseEndForm(request.POST) if person.is_administrator else LeaseExtensionForm(request.POST)
    row = row_or_404(lease_rows(person), pk, "lease")
    require_composer(person, "change leases")
    if not form.is_valid():
        messages.error(request, _("The end is not a valid date and time. Enter both."))
        return redirect("fabric:lease", pk=row.pk)
    if person.is_administrator:
        return _act_on_lease(request, pk, lease_extend, _("The end was changed."), **form.cleaned_data)
    return _act_on_lease(request, pk, lease_extension_request, _(REQUESTED), **form.cleaned_data)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.LEASE_EXTENSION_DECLINE)
def lease_extension_decline_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Decline a requested change of the end of a lease."""
    reason = request.POST.get("reason", "")
    return _act_on_lease(request, pk, lease_extension_decline, _("The requested end was declined."), reason=reason)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.LEASE_RETURN)
def lease_return_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Return a lease before its end: `items` of it, or all."""
    items = None if "all" in request.POST else _posted_rows(request, LeaseItem.objects.filter(lease=pk), "items")
    success = _("The lease is being returned: attached devices are detached first.")
    return _act_on_lease(request, pk, lease_return, success, items=items)


def _act_on_lease(
    request: HttpRequest, pk: int, service: Callable[..., Lease], success: str, **values: Any
) -> HttpResponse:
    """Call a service with a lease and redirect to its page, which shows the result."""
    person = person_of(request)
    row = row_or_404(lease_rows(person), pk, "lease")
    try:
        after = service(person=person, lease=row, **values)
    except (Conflict, Invalid) as error:
        messages.error(request, error.sentence)
        return redirect("fabric:lease", pk=row.pk)
    messages.success(request, success)
    return redirect("fabric:lease", pk=after.pk)


def _decide(request: HttpRequest, by: User, row: Lease, values: dict[str, Any]) -> None:
    if "decline" in request.POST:
        lease_decline(person=by, lease=row, reason=values["reason"])
        messages.success(request, _("The request was declined."))
        return
    done = lease_approve(person=by, lease=row, things=_selected_parts(request), **values)
    messages.success(request, _("Approved: the lease is '{state}'.", state=done.get_state_display()))


def _lease_context(person: User, row: Lease) -> dict[str, Any]:
    end = {"ends_at": row.extension_to or row.ends_at}
    return {
        "lease": row,
        "items": row.items.all(),
        "seen_devices": set(Device.objects.visible_to(person).values_list("pk", flat=True)),
        "wished": requested_label(row) if row.wishes else "",
        "objections": _objections(row) if row.state == Lease.State.REQUESTED else [],
        "events": row.events.all(),
        "idle": {item.pk: item.idle_since for item in idle_items([row])},
        "idle_hours": settings.CONFIG.idle_hours,
        "may_withdraw": person.may_compose and row.state in {Lease.State.REQUESTED, Lease.State.APPROVED},
        "may_return": person.may_compose and row.state == Lease.State.ACTIVE,
        "may_ask": person.may_compose
        and not person.is_administrator
        and row.state in Lease.BOOKED
        and row.ends_at is not None,
        "may_set": person.is_administrator and row.state in Lease.BOOKED,
        "end_form": LeaseExtensionForm(initial=end),
        "set_form": LeaseEndForm(initial=end),
        "email": settings.EMAIL_IS_SENT,
        "plan": row.plan if person.is_administrator else None,
    }


def _objections(row: Lease) -> list[str]:
    if row.tenant is None:
        return []
    return request_objections(row.tenant, requested_parts(row), row.starts_at, row.ends_at, but=row)


def _form_data(request: HttpRequest) -> Any:
    """Return the submitted data, even if empty; None for GET."""
    return request.POST if request.method == "POST" else None


def _part_choice(request: HttpRequest, candidates: Sequence[LeaseCandidate]) -> PartChoice:
    """Return the choice of parts, as proposed at first, then as ticked; `q`, `kind` and `model` search, `add` adds."""
    given = request.POST if request.method == "POST" else request.GET
    ticked = {f"{name}/{pk}" for name in ("devices", "host_ports") for pk in given.getlist(name)}
    search = PartSearch(given.get("q", "")[:200], given.get("kind", ""), given.get("model", ""))
    add = parse_id(given.get("count", "")) if "add" in given else 0
    return part_choice(candidates, ticked=ticked if given else None, search=search, add=add)


def _selected_parts(request: HttpRequest) -> Sequence[LeasablePart]:
    return [
        *_posted_rows(request, Device.objects.all(), "devices"),
        *_posted_rows(request, HostPort.objects.all(), "host_ports"),
    ]


def _posted_rows(request: HttpRequest, rows: QuerySet[Any], *names: str) -> list[Any]:
    """Return those of the rows whose ids are submitted under these names, as '3' or '3,4'; others are ignored."""
    pks = {parse_id(one) for name in names for text in request.POST.getlist(name) for one in text.split(",")}
    return list(rows.filter(pk__in=pks))


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.TENANT_EDIT)
def tenant(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a tenant: people, name, and what it owns or leases; a POST renames it."""
    by = person_of(request)
    row = row_or_404(Tenant.objects.all(), pk, "tenant")
    form = TenantForm(_form_data(request), initial={"name": row.name})
    if form.is_valid():
        with service_errors_in(form):
            row = tenant_edit(by=by, tenant=row, name=form.cleaned_data["name"])
            messages.success(request, _("The tenant was renamed to {name}.", name=row.name))
            return redirect("fabric:tenant", pk=row.pk)
    search = request.GET.get("q", "")[:200]
    context = {
        "tenant": row,
        "people": row.people.all(),
        "form": form,
        "search": search,
        "ownership": ownership_page(row, search=search, number=request.GET.get("page")),
        "seen": ownership_revision(),
        "assets": tenant_asset_labels([row.pk]).get(row.pk, []),
    }
    return render(request, "fabric/leases/tenant.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.GRANTS_SET, target_kind="tenant")
def tenant_grants(request: HttpRequest, pk: int) -> HttpResponse:
    """Assign what is ticked to the tenant: `devices`, `host_ports`, and with them `take_devices`, `take_host_ports`."""
    by = person_of(request)
    row = row_or_404(Tenant.objects.all(), pk, "tenant")
    devices, host_ports = Device.objects.all(), HostPort.objects.all()
    try:
        grants_set(
            person=by,
            tenant=row,
            devices=_posted_rows(request, devices, "devices", "take_devices"),
            host_ports=_posted_rows(request, host_ports, "host_ports", "take_host_ports"),
            take=[
                *_posted_rows(request, devices, "take_devices"),
                *_posted_rows(request, host_ports, "take_host_ports"),
            ],
            seen=request.POST.get("seen", ""),
        )
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        assets = _(" and ").join(tenant_asset_labels([row.pk]).get(row.pk, [_("nothing")]))
        messages.success(request, _("{tenant} now owns or leases {assets}.", tenant=row.name, assets=assets))
    return redirect("fabric:tenant", pk=row.pk)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.TENANT_REMOVE)
def tenant_removal(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a tenant that has no people, owns nothing and leases nothing."""
    by = person_of(request)
    row = row_or_404(Tenant.objects.all(), pk, "tenant")
    try:
        tenant_remove(by=by, tenant=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("fabric:tenant", pk=row.pk)
    messages.success(request, _("{name} was deleted.", name=row.name))
    return redirect("accounts:tenants")


@require_GET
@declare(Audience.EVERYBODY)
def calendar(request: HttpRequest) -> HttpResponse:
    """Show the calendar of leases; `from` (a day), `span`, `group`, `open` (a group) and `page` are in the URL."""
    person, today = person_of(request), timezone.localdate()
    first = parse_first_day(request.GET.get("from", "")) or today
    span: CalendarSpan = "week" if request.GET.get("span") == "week" else "month"
    by_tenant = person.is_administrator and request.GET.get("group") == "tenant"
    opened = request.GET.get("open", "")
    shown = lease_calendar(person, first=first, span=span)
    page = shown.page(by_tenant=by_tenant, opened=opened, number=request.GET.get("page"))
    context = {"calendar": shown, "page": page, "by_tenant": by_tenant, "opened": opened, "today": today}
    return render(request, "fabric/leases/lease_calendar.html", context)


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
    return render(request, "fabric/leases/lease_usage.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def usage_csv(request: HttpRequest) -> Download:
    """Stream the same as CSV."""
    held = _requested_usage(request)[0]
    return csv_download(csv_table(COLUMNS, usage_table_rows(held)), "usage.csv")


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.QUOTA_SET)
def quotas(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and set the quota of a tenant."""
    by = person_of(request)
    tenant = row_or_404(Tenant.objects.all(), pk, "tenant")
    initial: dict[str, int | None] = {}
    for one in Quota.objects.filter(tenant=tenant):
        initial |= {f"once_{one.kind}": one.most_at_once, f"hours_{one.kind}": one.most_hours_a_month}
    form = QuotaForm(_form_data(request), initial=initial)
    if form.is_valid():
        with service_errors_in(form):
            quotas_set(person=by, tenant=tenant, limits=form.limits())
            messages.success(request, _("The quota of {tenant} was saved.", tenant=tenant.name))
            return redirect("fabric:tenant", pk=tenant.pk)
    context = {"tenant": tenant, "form": form}
    return render(request, "fabric/leases/lease_quotas.html", context, status=400 if form.errors else 200)


def _requested_usage(request: HttpRequest) -> tuple[list[UsageRecord], Month, Month, int | None]:
    first, last = usage_period(request.GET.get("since", ""), request.GET.get("until", ""))
    tenant = parse_id(request.GET.get("tenant", "")) or None
    return usage_of(person_of(request), first, last, tenant=tenant), first, last, tenant
