"""Pages of failures: what failed, what replaces it, and what is done the next time."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid
from core.language import _, gettext_noop
from core.text import parse_id
from fabric.failures import services
from fabric.failures.models import Failure, FailurePolicy
from fabric.failures.selectors import (
    CSV_COLUMNS,
    failure_cells,
    failure_get,
    failure_rows,
    settable_policies,
    spares_of,
    tenant_get,
)
from fabric.history.views import CSV_ROWS_PER_QUERY, ROWS_A_PAGE
from fabric.inventory.labels import part_name
from fabric.inventory.models import Device


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Failures"), "Compose", 5))
def failures(request: HttpRequest) -> HttpResponse:
    """List failures of attached devices, and the policies that the person may set; `show=ended` is in the URL."""
    person = person_of(request)
    ended = request.GET.get("show") == "ended"
    rows, policies = failure_rows(person, ended=ended), settable_policies(person)
    context = {
        "page": Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "ended": ended,
        "policies": policies,
        "set_policies": [one for one in policies if one.set_at is not None],
        "choices": FailurePolicy.Choice.choices,
    }
    return render(request, "fabric/failures/failures.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE, section="fabric:failures")
def failures_csv(request: HttpRequest) -> Download:
    """Stream the list as CSV, all pages of it."""
    rows = failure_rows(person_of(request), ended=request.GET.get("show") == "ended")
    return csv_download(csv_table(CSV_COLUMNS, map(failure_cells, rows.iterator(CSV_ROWS_PER_QUERY))), "failures.csv")


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="fabric:failures", no_page_test=NO_SAMPLE)
def failure(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one failure, and the devices that could replace the failed one."""
    person = person_of(request)
    row = failure_get(person, pk)
    may_act = person.may_compose and row.state not in {Failure.State.ENDED, Failure.State.REPLACING}
    spares = spares_of(row) if may_act and row.cause != Failure.Cause.HOST else []
    context = {
        "row": row,
        "may_act": may_act,
        "spares": [(one.pk, part_name(one)) for one in spares],
        "is_device_seen": Device.objects.visible_to(person).filter(pk=row.device_id).exists(),
    }
    return render(request, "fabric/failures/failure.html", context)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.FAILURE_REPLACE)
def failure_replace(request: HttpRequest, pk: int) -> HttpResponse:
    """Replace a failed device by the chosen `spare`; redirects to the plan that does it."""
    person = person_of(request)
    row = failure_get(person, pk)
    try:
        row = services.failure_replace(person=person, failure=row, spare=parse_id(request.POST.get("spare", "")))
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("fabric:failure", pk=pk)
    return redirect("fabric:plan", pk=row.plan_id)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.FAILURE_KEEP)
def failure_keep(request: HttpRequest, pk: int) -> HttpResponse:
    """Keep a failed device attached."""
    person = person_of(request)
    try:
        row = services.failure_keep(person=person, failure=failure_get(person, pk))
        messages.success(request, _("{device} stays attached as it is.", device=row.device_name))
    except Conflict as error:
        messages.error(request, error.sentence)
    return redirect("fabric:failure", pk=pk)


@require_POST
@declare(Audience.COMPOSERS, audited_as=Action.FAILURE_POLICY)
def failure_policy(request: HttpRequest) -> HttpResponse:
    """Set what is done when a device of `tenant` ('' for parts of nobody) fails."""
    person = person_of(request)
    given = request.POST.get("tenant", "")
    tenant = tenant_get(person, parse_id(given)) if given else None
    choice = request.POST.get("choice", "")
    if choice not in FailurePolicy.Choice.values:
        raise Invalid(_("Choose what is done."), errors={"choice": _("Choose one.")})
    services.failure_policy_set(person=person, tenant=tenant, choice=choice)
    messages.success(request, _("Saved. It counts for failures that are open, too."))
    return redirect("fabric:failures")
