"""Pages of plans and of a person's draft: thin layers over selectors and services."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of, require_composer
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, MenuEntry, declare
from accounts.freshness import require_fresh_sign_in
from accounts.models import User
from accounts.visibility import visible_or_404
from core.errors import FalconWebError, Invalid, NotFound
from core.forms import refusals_as_messages
from core.language import _, gettext_noop
from core.local_pages import next_page
from core.text import parse_id
from fabric.bmc.chassis_profiles import ALL_MODES
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Drawer, Host, HostPort, Port
from fabric.operations.models import Plan
from fabric.operations.projected_state import projected_drawer
from fabric.operations.rules import LANE_COUNTS, PORT_TYPES, PortSetting
from fabric.plans.drafts import draft_add, draft_remove
from fabric.plans.jobs import plan_cancel, plan_resume
from fabric.plans.permissions import check_own_plan
from fabric.plans.preview import devices_in_use, plan_preview
from fabric.plans.progress import plan_job
from fabric.plans.rules import DesiredState, projected_after
from fabric.plans.selectors import (
    ORIGIN_LABELS,
    STATE_FILTERS,
    attachments_broken_by_mode,
    open_draft,
    plan_rows,
    plan_summaries,
)
from fabric.plans.services import MAX_TITLE_LENGTH, plan_apply, plan_change, plan_discard, plan_undo
from fabric.plans.strips import drawer_strips

PLANS_A_PAGE = 50
FETCH_HEADER_VALUE = "draft"  # what draft.js names itself, which takes a sentence instead of a page
PlanAction = Callable[[HttpRequest, User, Plan], HttpResponse | None]


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Plans"), "Compose", 1))
def plans(request: HttpRequest) -> HttpResponse:
    """List plans; `state` (a group of states), `q` and `page` are in the URL."""
    group, search = request.GET.get("state", ""), request.GET.get("q", "")
    rows = plan_rows(person_of(request), group=group, search=search)
    page = Paginator(rows, PLANS_A_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "plans": plan_summaries(page.object_list),
        "group": group if group in STATE_FILTERS else "",
        "groups": [("", _("All")), *((key, _(label)) for key, (label, _states) in STATE_FILTERS.items())],
        "search": search,
    }
    return render(request, "fabric/plans/plans.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def plan(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show a plan: the preview of a draft, or the progress of an applied one."""
    person = person_of(request)
    row: Plan = visible_or_404(Plan.objects.all(), person, pk, "plan")
    context: dict[str, Any] = {"plan": row, "origin": _(ORIGIN_LABELS.get(row.origin, "")), "longest": MAX_TITLE_LENGTH}
    context["strips"] = drawer_strips(person, row)
    if row.state == Plan.State.DRAFT:
        context["preview"] = plan_preview(person, row)
        context["is_open_draft"] = open_draft(person) == row
    else:
        context["job"] = plan_job(person, row)
    return render(request, "fabric/plans/plan.html", context)


def plan_action(action: Action) -> Callable[[PlanAction], Callable[..., HttpResponse]]:
    """Declare a view of a POST that acts on a plan; it answers with what the function returns, None: the plan's page.

    A refusal is shown on that page; missing permissions have an error page of their own.
    """

    def decorate(act: PlanAction) -> Callable[..., HttpResponse]:
        @require_POST
        @declare(Audience.OBJECT_VIEWERS, audited_as=action)
        @wraps(act)
        def view(request: HttpRequest, pk: UUID) -> HttpResponse:
            person = person_of(request)
            row = visible_or_404(Plan.objects.all(), person, pk, "plan")
            answer = None
            with refusals_as_messages(request):
                answer = act(request, person, row)
            return answer or redirect("fabric:plan", pk=pk)

        return view

    return decorate


@plan_action(Action.PLAN_CHANGE)
def plan_title(request: HttpRequest, person: User, row: Plan) -> None:
    """Rename a draft."""
    check_own_plan(person, row)
    title = " ".join(request.POST.get("title", "").split())
    if not title:
        raise Invalid(_("Enter a name. The plan keeps its current one."))
    plan_change(person=person, plan=row, desired=DesiredState.from_json(row.wanted), title=title)


@plan_action(Action.PLAN_CHANGE)
def plan_replan(request: HttpRequest, person: User, row: Plan) -> None:
    """Recompute a draft on the current state."""
    plan_change(person=person, plan=row, desired=DesiredState.from_json(row.wanted))


@plan_action(Action.PLAN_APPLY)
def plan_application(request: HttpRequest, person: User, row: Plan) -> None:
    """Apply a draft; `on_failure` is stop or roll_back, `confirmation` its name, to include devices in use."""
    on_failure, typed = request.POST.get("on_failure", "stop"), request.POST.get("confirmation", "")
    if typed:
        require_fresh_sign_in(request)
    force = [one.device for one in devices_in_use(person, row)] if typed else []
    plan_apply(person=person, plan=row, on_failure=on_failure, force=force, confirmation=typed)


@plan_action(Action.PLAN_CANCEL)
def plan_cancellation(request: HttpRequest, person: User, row: Plan) -> None:
    """Cancel a plan, or leave one that stopped as it is; `then` roll_back rolls it back."""
    plan_cancel(person=person, plan=row, roll_back=request.POST.get("then") == "roll_back")


@plan_action(Action.PLAN_RESUME)
def plan_resumption(request: HttpRequest, person: User, row: Plan) -> None:
    """Resume a plan that stopped."""
    plan_resume(person=person, plan=row)


@plan_action(Action.PLAN_DISCARD)
def plan_removal(request: HttpRequest, person: User, row: Plan) -> HttpResponse:
    """Discard a draft."""
    plan_discard(person=person, plan=row)
    sentence = _("The draft ‘{title}’ was discarded. Nothing was changed.", title=row.title)
    if request.headers.get("X-Requested-With") == FETCH_HEADER_VALUE:
        return JsonResponse({"sentence": sentence})
    messages.info(request, sentence)
    return redirect(next_page(request, "fabric:plans"))


@plan_action(Action.PLAN_UNDO)
def plan_undoing(request: HttpRequest, person: User, row: Plan) -> HttpResponse:
    """Create a draft that restores the state before a plan."""
    return redirect("fabric:plan", pk=plan_undo(person=person, plan=row).pk)


@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.PLAN_CHANGE, section="fabric:plans")
def draft(request: HttpRequest) -> HttpResponse:
    """Redirect to the person's draft, or explain how to start one; POST adds a change or removes `remove`.

    What is added: `device` and `target` ('': no host), or several as `change` ('<device>:<target>:...'), `drawer` and
    `mode` (and `detach`: what that breaks), `cable` (a host port) and `host` ('': none), or `port` with `port_type` and
    `configured_width` ('': as it is).
    """
    person = person_of(request)
    if request.method != "POST":
        row = open_draft(person)
        return render(request, "fabric/plans/plan_begin.html") if row is None else redirect("fabric:plan", pk=row.pk)
    require_composer(person)
    fetched = request.headers.get("X-Requested-With") == FETCH_HEADER_VALUE
    try:
        if "remove" in request.POST:
            row, sentence = draft_remove(person=person, key=request.POST["remove"]), _("Removed from the draft.")
        else:
            row, sentence = draft_add(person=person, desired=_desired_state(person, request)), _("Added to the draft.")
    except FalconWebError as error:
        if fetched:
            return JsonResponse({"sentence": error.sentence}, status=error.status)
        if error.status != 409:
            raise
        messages.error(request, error.sentence)
        return redirect(next_page(request, "fabric:fabric"))
    if fetched:
        return JsonResponse({"sentence": sentence, "plan": str(row.pk)})
    messages.success(request, sentence)
    return redirect(next_page(request, "fabric:fabric"))


def _desired_state(person: User, request: HttpRequest) -> DesiredState:
    """Return the desired state of a form; raises NotFound for invisible parts, Invalid for invalid values."""
    given = request.POST
    if "change" in given:
        parts = [one.split(":") for one in given.getlist("change")]
        return DesiredState(attachments={parse_id(one[0]): parse_id(one[1]) or None for one in parts if len(one) > 1})
    if "device" in given:
        target = parse_id(given["target"]) if given.get("target") else None
        return DesiredState(attachments={parse_id(given["device"]): target})
    if "drawer" in given:
        return _desired_mode(person, parse_id(given["drawer"]), given.get("mode", ""), detach="detach" in given)
    if "cable" in given:
        port = HostPort.objects.visible_to(person).filter(pk=parse_id(given["cable"])).first()
        host = Host.objects.visible_to(person).filter(pk=parse_id(given["host"])).first() if given.get("host") else None
        if port is None or (given.get("host") and host is None):
            raise NotFound(_("There is no such host port or host."))
        return DesiredState(cables={port.pk: host.pk if host is not None else None})
    if "port" in given:
        row: Port = visible_or_404(Port.objects.all(), person, parse_id(given["port"]), "port")
        port_type, width = given.get("port_type", ""), given.get("configured_width", "")
        if (port_type and port_type not in PORT_TYPES) or (width and parse_id(width) not in LANE_COUNTS):
            raise Invalid(_("A port cannot be configured like this. Choose its type and its lanes from the lists."))
        return DesiredState(
            settings={row.pk: PortSetting(port_type=port_type, configured_width=parse_id(width) or None)}
        )
    raise Invalid(_("No change was selected."))


def _desired_mode(person: User, pk: int, mode: str, *, detach: bool) -> DesiredState:
    row: Drawer = visible_or_404(Drawer.objects.all(), person, pk, "drawer")
    if mode not in {one.value for one in ALL_MODES}:
        raise Invalid(_("Choose one of the three modes."))
    desired = DesiredState(modes={row.pk: DrawerMode(mode)})
    if not detach:
        return desired
    begun = open_draft(person)
    seen = projected_after(
        projected_drawer(row), DesiredState.from_json(begun.wanted) if begun is not None else DesiredState()
    )
    broken = attachments_broken_by_mode(seen, DrawerMode(mode))
    return DesiredState(modes=desired.modes, attachments={device.id: None for device, _reason in broken})
