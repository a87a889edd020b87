"""Pages of approvals: what waits, one of them, the policy."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.approvals import services
from accounts.approvals.models import CHOSEN_DANGERS, ApprovalRequest
from accounts.approvals.selectors import approval_rows, chosen_dangers
from accounts.audit.actions import Action
from accounts.audit.selectors import target_url
from accounts.declaration import NO_SAMPLE, Audience, MenuEntry, declare
from accounts.freshness import require_fresh_sign_in
from accounts.visibility import visible_or_404
from core.forms import refusals_as_messages
from core.language import _

ROWS_PER_PAGE = 50


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry("Approvals", "Administration", 3))
def approvals(request: HttpRequest) -> HttpResponse:
    """List requests, those that wait first."""
    page = Paginator(approval_rows(person_of(request)), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "accounts/approvals/approvals.html", {"page": page, "chosen": chosen_dangers()})


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def approval(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what would happen, and who decides."""
    person = person_of(request)
    row: ApprovalRequest = visible_or_404(ApprovalRequest.objects.all(), person, pk, "approval")
    mine = row.requested_by_id == person.pk
    waits = row.state == ApprovalRequest.State.WAITING
    context = {
        "approval": row,
        "waits": waits,
        "may_withdraw": waits and mine,
        "may_decide": waits and not mine and person.is_administrator,
        "target_page": target_url(row.target_kind, row.target_id),
        "result_page": target_url(row.result_kind, row.result_id),
    }
    return render(request, "accounts/approvals/approval.html", context)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.APPROVAL_APPROVE, section=None)
def approval_decision(request: HttpRequest, pk: int) -> HttpResponse:
    """Decide a request: `decision` is approve, refuse (with `reason`) or withdraw."""
    by = person_of(request)
    row: ApprovalRequest = visible_or_404(ApprovalRequest.objects.all(), by, pk, "approval")
    with refusals_as_messages(request):
        match request.POST.get("decision"):
            case "approve":
                require_fresh_sign_in(request)
                row = services.approval_approve(by=by, approval=row)
                if row.state == ApprovalRequest.State.FAILED:
                    messages.error(request, _(row.reason))
            case "withdraw":
                services.approval_withdraw(by=by, approval=row)
            case _:
                services.approval_refuse(by=by, approval=row, reason=request.POST.get("reason", ""))
    return redirect("accounts:approval", pk=row.pk)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.APPROVAL_POLICY)
def approval_policy(request: HttpRequest) -> HttpResponse:
    """Show and set the acts that need two people: `dangers`."""
    if request.method == "POST":
        with refusals_as_messages(request):
            services.policy_set(by=person_of(request), dangers=request.POST.getlist("dangers"))
            messages.success(request, _("The policy was saved."))
        return redirect("accounts:approval_policy")
    chosen = chosen_dangers()
    rows = [(one.value, _(one.label), one.value in chosen) for one in CHOSEN_DANGERS]
    return render(request, "accounts/approvals/policy.html", {"dangers": rows})
