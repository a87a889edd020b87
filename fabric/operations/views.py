"""Pages of operations: requesting one, its progress, cancelling it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, MenuEntry, declare
from accounts.freshness import require_fresh_sign_in
from accounts.visibility import row_or_404, visible_or_404
from core.errors import Conflict
from core.forms import refusals_as_messages
from core.language import _, gettext_noop
from core.text import parse_id
from fabric.bmc.types import Dialect
from fabric.inventory.dialect_choice import dialect_choose
from fabric.inventory.labels import DIALECT_LABELS, dialect_label
from fabric.inventory.models import Chassis, Device, HostPort, Walk
from fabric.operations import services
from fabric.operations.models import Operation, Plan, Proof
from fabric.operations.selectors import may_cancel, operations_visible_to, visible_host_port
from fabric.operations.trials import proposed_trial, trial_obstacle, trial_request

ROWS_A_PAGE = 50
TRIALS_SHOWN = 5
STEP_STATES = {
    "waiting": gettext_noop("waiting"), "running": gettext_noop("running"), "done": gettext_noop("done"),
    "failed": gettext_noop("failed"), "skipped": gettext_noop("skipped"),
}  # fmt: skip


@require_http_methods(["GET", "POST"])
@declare(
    Audience.EVERYBODY,
    audited_as=Action.OPERATION_REQUEST,
    menu_entry=MenuEntry(gettext_noop("Operations"), "Compose", 2),
)
def operations(request: HttpRequest) -> HttpResponse:
    """List operations, or request one: device, target ('' = detach), expected ('' = no host)."""
    person = person_of(request)
    if request.method != "POST":
        pages = Paginator(operations_visible_to(person), ROWS_A_PAGE)
        return render(request, "fabric/operations/operations.html", {"page": pages.get_page(request.GET.get("page"))})
    row: Device = visible_or_404(Device.objects.all(), person, parse_id(request.POST.get("device", "")), "device")
    expected = _host_port(request, "expected") if "expected" in request.POST else services.UNKNOWN
    shown: tuple[str, object] = ("fabric:device", row.pk)
    if force := request.POST.get("force") == "1":
        require_fresh_sign_in(request)
    with refusals_as_messages(request):
        operation = services.operation_request(
            person=person,
            device=row,
            target=_host_port(request, "target"),
            expected=expected,
            force=force,
            confirmation=request.POST.get("confirmation", ""),
        )
        shown = ("fabric:operation", operation.pk)
    return redirect(*shown)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_DIALECT, section="fabric:fabric", fresh_sign_in=True)
def chassis_dialect(request: HttpRequest, pk: int) -> HttpResponse:
    """Show how a chassis attaches devices, and why; POST `choice` chooses another way, '' what its walks find."""
    row: Chassis = row_or_404(Chassis.objects.all(), pk, "chassis")
    if request.method == "POST":
        with refusals_as_messages(request):
            row = dialect_choose(person=person_of(request), chassis=row, choice=request.POST.get("choice", ""))
            messages.success(request, dialect_label(row.dialect))
        return redirect("fabric:chassis_dialect", pk=pk)
    obstacle = trial_obstacle(row)
    walk = Walk.objects.filter(chassis=row).first()
    found = walk.found if walk is not None else {}
    context = {
        "row": row,
        "label": dialect_label(row.dialect),
        "found": dialect_label(found.get("dialect", Dialect.NONE)),
        "found_reason": found.get("dialect_reason", ""),
        "choices": [(name.value, dialect_label(name)) for name in DIALECT_LABELS if name is not Dialect.NONE],
        "obstacle": obstacle,
        "trial": None if obstacle else proposed_trial(row),
        "trials": Operation.objects.filter(chassis=row, kind=Operation.Kind.TRIAL).select_related("proof")[
            :TRIALS_SHOWN
        ],
    }
    return render(request, "fabric/operations/chassis_dialect.html", context)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.CHASSIS_TRIAL, section=None, fresh_sign_in=True)
def dialect_trial(request: HttpRequest, pk: int) -> HttpResponse:
    """Request the write of `dialect`, `device` and `port` that the page of a chassis proposed; it is reverted."""
    row: Chassis = row_or_404(Chassis.objects.all(), pk, "chassis")
    device, port = (
        row_or_404(model.objects.filter(chassis=row), parse_id(request.POST.get(name, "")), kind)
        for model, name, kind in ((Device, "device", "device"), (HostPort, "port", "host port"))
    )
    shown: tuple[str, object] = ("fabric:chassis_dialect", pk)
    with refusals_as_messages(request):
        operation = trial_request(
            person=person_of(request), chassis=row, dialect=request.POST.get("dialect", ""), device=device, port=port
        )
        shown = ("fabric:operation", operation.pk)
    return redirect(*shown)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def operation(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show one operation."""
    person = person_of(request)
    row: Operation = visible_or_404(Operation.objects.all(), person, pk, "operation")
    before = Operation.objects.open().in_queue_of(row).filter(requested_at__lt=row.requested_at)
    context = {
        "operation": row,
        "plan": Plan.objects.visible_to(person).filter(pk=row.plan_id).first(),
        "seconds": _seconds(row.started_at, row.finished_at),
        "steps": _with_durations(row.steps),
        "device": Device.objects.visible_to(person).filter(pk=row.device_id).first(),
        "proof": Proof.objects.filter(operation=row).first(),
        "may_cancel": row.is_open and row.plan_id is None and may_cancel(person, row),
        "waits": row.state == Operation.State.REQUESTED and before.exists(),
        "waits_for": before.filter(pk__in=Operation.objects.visible_to(person)).last(),
    }
    return render(request, "fabric/operations/operation.html", context)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.OPERATION_CANCEL)
def operation_cancel(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Cancel an operation; a running one ends as soon as it safely can."""
    person = person_of(request)
    row: Operation = visible_or_404(Operation.objects.all(), person, pk, "operation")
    try:
        services.operation_cancel(person=person, operation=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    return redirect("fabric:operation", pk=pk)


def _host_port(request: HttpRequest, name: str) -> HostPort | None:
    text = request.POST.get(name, "")
    return visible_host_port(person_of(request), parse_id(text) if text else None)


def _with_durations(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps with how long each took, or has taken so far, in s."""
    return [
        {
            **step,
            "words": _(STEP_STATES.get(step["state"], step["state"])),
            "seconds": _seconds(parse_datetime(step["started_at"] or ""), parse_datetime(step["finished_at"] or "")),
        }
        for step in steps
    ]


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None else ((end or timezone.now()) - begin).total_seconds()
