"""The page of an imported trace, which plays it, and its deletion."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, declare
from benchmarks.traces.selectors import DEFAULT_PLACE, places, trace_get, trace_play
from benchmarks.traces.services import trace_delete
from core.errors import FalconWebError
from core.language import _


@require_GET
@declare(Audience.OBJECT_VIEWERS, section="runs:catalogue", no_page_test=NO_SAMPLE)
def trace(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show what a trace holds; with `place`, and `devices` or all, its play there."""
    person = person_of(request)
    row = trace_get(person, pk)
    place, devices = request.GET.get("place", ""), request.GET.get("devices", "").strip()
    played, error, status = None, "", 200
    if place:
        try:
            played = trace_play(person, row, place=place, devices=devices)
        except FalconWebError as refused:
            error, status = refused.sentence, refused.status
    context = {
        "trace": row,
        "places": places(person),
        "place": place or DEFAULT_PLACE,
        "devices": devices,
        "played": played,
        "error": error,
        "may_delete": person.is_administrator or (person.may_compose and row.imported_by_id == person.pk),
    }
    return render(request, "benchmarks/traces/trace.html", context, status=status)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.TRACE_DELETE)
def delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a trace."""
    person = person_of(request)
    row = trace_get(person, pk)
    trace_delete(person=person, trace=row)
    messages.success(request, _("‘{name}’ was deleted.", name=row.title))
    return redirect("runs:catalogue")
