"""The dialog that confirms changes of devices, the request of them, and the task drawer."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from core.errors import FalconWebError
from core.language import _, gettext_noop, joined
from core.local_pages import next_page
from core.text import parse_id
from fabric.agents.limits import attachment_warnings
from fabric.compose.proposal import givable_hosts, givable_models, give_proposal
from fabric.compose.selectors import (
    MAX_CHANGES_AT_ONCE,
    attachment_changes,
    change_impacts,
    own_tasks,
    usual_change_duration,
)
from fabric.compose.services import changes_check, changes_desired, changes_request, changes_title
from fabric.operations.models import Operation

FETCH_HEADER_VALUE = "compose"  # what compose.js names itself, which takes data instead of a page


@require_http_methods(["GET", "POST"])
@declare(Audience.COMPOSERS, audited_as=Action.OPERATION_REQUEST, section="fabric:fabric", no_page_test=NO_PAGE)
def compose(request: HttpRequest) -> HttpResponse:
    """Show what changes would do (`change`, repeated, see `attachment_changes`); POST requests them.

    `title` names a plan that undoes another one.
    """
    person = person_of(request)
    if request.method == "GET":
        changes = attachment_changes(person, request.GET.getlist("change"))
        check = changes_check(person, changes)
        possible = check.possible(changes)
        context = {
            "impacts": change_impacts(person, changes, check.obstacles),
            "possible": len(possible),
            "reason": "" if possible else next(iter(check.obstacles.values())),
            "title": changes_title(possible or changes),
            "interrupted": check.interrupted,
            "warnings": attachment_warnings(person, changes_desired(possible).attachments),
            "usually": usual_change_duration(possible),
        }
        return render(request, "fabric/compose/impact.html", context)
    fetched = request.headers.get("X-Requested-With") == FETCH_HEADER_VALUE
    try:
        changes = attachment_changes(person, request.POST.getlist("change"))
        work, refused = changes_request(person=person, changes=changes, title=request.POST.get("title", ""))
    except FalconWebError as error:
        if fetched:
            return JsonResponse({"sentence": error.sentence}, status=error.status)
        if error.status not in {400, 409}:
            raise
        messages.error(request, error.sentence)
        return redirect(next_page(request, "fabric:fabric"))
    page = "fabric:operation" if isinstance(work, Operation) else "fabric:plan"
    names = {one.device.pk: one.device.name for one in changes}
    left_out = joined(
        _("{name} is left out: {sentence}", name=names[pk], sentence=sentence) for pk, sentence in refused.items()
    )
    if fetched:
        return JsonResponse({"sentence": left_out, "page": reverse(page, args=[work.pk])})
    if left_out:
        messages.error(request, left_out)
    return redirect(page, pk=work.pk)


@require_GET
@declare(
    Audience.EVERYBODY,
    menu_entry=MenuEntry(gettext_noop("Attach by request"), "Compose", 3),
    tested_queries=("", "host=1&model=Tesla+V100-PCIE-16GB&count=2"),
)
def give(request: HttpRequest) -> HttpResponse:
    """Propose devices for a host: `count` of a `model` for the `host` (an id); without them only ask for them."""
    person = person_of(request)
    hosts, models = givable_hosts(person), givable_models(person)
    model, count = request.GET.get("model", ""), parse_id(request.GET.get("count", "")) or 1
    host = next((one for one in hosts if one.pk == parse_id(request.GET.get("host", ""))), None)
    context = {
        "hosts": [(one.pk, one.name) for one in hosts],
        "models": [(one, one) for one in models],
        "most": MAX_CHANGES_AT_ONCE,
        "host": host,
        "chosen": host.pk if host is not None else None,
        "model": model,
        "count": min(count, MAX_CHANGES_AT_ONCE),
    }
    if host is not None and model in models:
        context["proposal"] = give_proposal(person, host, model, min(count, MAX_CHANGES_AT_ONCE))
    return render(request, "fabric/compose/give.html", context)


@require_GET
@declare(Audience.EVERYBODY, section="fabric:operations", no_page_test=NO_PAGE)
def tasks(request: HttpRequest) -> HttpResponse:
    """Show the task drawer: what the person has under way, on every page of theirs."""
    shown = own_tasks(person_of(request))
    context = {"tasks": shown, "running": len([one for one in shown if one.is_open])}
    return render(request, "fabric/compose/tasks.html", context)
