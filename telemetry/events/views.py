"""Pages of events: thin layers over selectors and the services of saved views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import Tenant, User
from accounts.visibility import visible_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid
from core.language import _, gettext_noop
from fabric.inventory.models import Chassis, Device, Drawer, Host, Port
from telemetry.events import selectors, services
from telemetry.events.filters import MESSAGE_SORTS, REGISTRY_NAMES, EventFilter, MessageFilter
from telemetry.events.models import Event, EventSeverity, EventSource, SavedView
from telemetry.events.rules import MESSAGE_CATALOGUE, find_message

NEWEST_SHOWN = 6
ROWS_PER_PAGE = 50
MAX_NEW_COUNTED = 999
MESSAGE_COLUMNS = ("message", "registry", "severity", "what_it_means", "what_to_do")
RANGES = (
    ("1h", gettext_noop("the last hour")), ("24h", gettext_noop("the last day")),
    ("7d", gettext_noop("the last week")), ("30d", gettext_noop("the last 30 days")),
)  # fmt: skip
# Parts that come from a link on their page: shown and kept in the URL, without a list to choose from.
SUBJECT_MODELS: dict[str, Any] = {"drawer": Drawer, "device": Device, "port": Port, "host": Host}


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Events")))
def events(request: HttpRequest) -> HttpResponse:
    """List events, newest first; filter and position are in the URL. Without any, the default view is shown."""
    person = person_of(request)
    views = list(person.event_views.all())
    if not request.GET and (default := next((one for one in views if one.is_default), None)) is not None:
        return redirect(f"{reverse('events:events')}?{default.query}&view={default.pk}")
    errors: dict[str, str] = {}
    view = _selected_view(request.GET, views)
    wanted, page = EventFilter(), selectors.EventPage([], "", "")
    rows = Event.objects.visible_to(person)
    # Before the rows are read, so that events that arrive meanwhile are counted as new.
    newest = selectors.horizon()
    try:
        wanted = EventFilter.of(request.GET, is_kept=view is not None)
        rows = wanted.apply(rows)
        before, after = request.GET.get("before", ""), request.GET.get("after", "")
        page = selectors.events_page(rows, before=before, after=after)
    except Invalid as error:
        errors = error.details["errors"]
    query = urlencode(wanted.parameters())
    if view is None and not errors:
        view = next((one for one in views if one.query == query), None)
    context = {
        "page": page,
        "errors": errors,
        "wanted": wanted,
        "words": " ".join(wanted.words),
        "given": _form_values(request.GET, wanted),
        "query": query,
        "count": None if errors or wanted.words else selectors.events_count(rows),
        "things": _filter_subjects(person, wanted),
        "ranges": [(code, _(words)) for code, words in RANGES],
        "range": dict(wanted.parameters()).get("last", ""),
        "severities": EventSeverity.choices,
        "sources": EventSource.choices,
        "messages_known": selectors.recent_messages(Event.objects.visible_to(person)),
        "chassis": Chassis.objects.visible_to(person),
        "tenants": Tenant.objects.all() if person.is_administrator else [],
        "views": views,
        "view": view,
        "newest": newest,
        "is_newest": not request.GET.get("before") and not request.GET.get("after") and wanted.until is None,
    }
    return render(request, "telemetry/events/events.html", context, status=400 if errors else 200)


@require_GET
@declare(Audience.OBJECT_VIEWERS)
def event(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one event: its meaning, the events around it, and links to charts at its time."""
    person = person_of(request)
    row = visible_or_404(Event.objects, person, pk, gettext_noop("event"))
    context = {
        "event": row,
        "known": find_message(row.message_id),
        "neighbours": selectors.nearby_events(person, row),
        "around": int(selectors.AROUND.total_seconds() // 60),
        "place": "" if selectors.is_first_event(person, row) else selectors.list_position(row),
        "charts": selectors.charts_url(row),
        "told": selectors.report_sources(row),
        "arguments": " | ".join(map(str, row.arguments)),
    }
    return render(request, "telemetry/events/event.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def events_csv(request: HttpRequest) -> Download:
    person = person_of(request)
    view = _selected_view(request.GET, person.event_views.all())
    rows = EventFilter.of(request.GET, is_kept=view is not None).apply(Event.objects.visible_to(person))
    return csv_download(csv_table(selectors.EVENT_COLUMNS, selectors.event_rows(rows)), "events.csv")


@require_GET
@declare(Audience.EVERYBODY)
def catalogue(request: HttpRequest) -> HttpResponse:
    """List message definitions; `q`, `registry`, `severity`, `sort` and `page` are in the URL."""
    errors: dict[str, str] = {}
    wanted, found = MessageFilter(), []
    try:
        wanted = MessageFilter.of(request.GET)
        found = wanted.found()
    except Invalid as error:
        errors = error.details["errors"]
    context = {
        "page": Paginator(found, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "wanted": wanted,
        "words": request.GET.get("q", ""),
        "errors": errors,
        "all": len(MESSAGE_CATALOGUE),
        "registries": REGISTRY_NAMES,
        "severities": EventSeverity.choices,
        "sorts": [(code, _(words)) for code, (words, _order) in MESSAGE_SORTS.items()],
    }
    return render(request, "telemetry/events/catalogue.html", context, status=400 if errors else 200)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def catalogue_csv(request: HttpRequest) -> Download:
    found = MessageFilter.of(request.GET).found()
    rows = ((one.name, one.registry, one.severity, one.explanation, one.advice) for one in found)
    return csv_download(csv_table(MESSAGE_COLUMNS, rows), "messages.csv")


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def newest(request: HttpRequest) -> HttpResponse:
    """Show the newest events of a part, or of all, as a section of another page."""
    wanted = EventFilter.of(request.GET)
    rows = wanted.apply(Event.objects.visible_to(person_of(request)))
    page = selectors.events_page(rows, limit=NEWEST_SHOWN)
    return render(request, "telemetry/events/newest.html", {"page": page, "query": urlencode(wanted.parameters())})


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def new_event_count(request: HttpRequest) -> HttpResponse:
    """Return how many matching events arrived after the number `known`."""
    text = request.GET.get("known", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Invalid(_("Give the event to count from."), errors={"known": _("Give the number of an event.")})
    rows = EventFilter.of(request.GET).apply(Event.objects.visible_to(person_of(request))).filter(pk__gt=int(text))
    return JsonResponse({"count": rows.order_by()[: MAX_NEW_COUNTED + 1].count()})


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.EVENT_VIEW_ADD)
def add_view(request: HttpRequest) -> HttpResponse:
    """Save a search (`query`) under a `name`, as the `default` or not."""
    query = request.POST.get("query", "")
    try:
        made = services.saved_view_add(
            person=person_of(request),
            name=request.POST.get("name", ""),
            query=query,
            is_default="default" in request.POST,
        )
    except (Invalid, Conflict) as error:
        messages.error(request, error.sentence)
        return redirect(f"{reverse('events:events')}?{query}" if _is_query(query) else "events:events")
    messages.success(request, _("The view ‘{name}’ was saved.", name=made.name))
    return redirect(f"{reverse('events:events')}?{made.query}&view={made.pk}")


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.EVENT_VIEW_CHANGE)
def change_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Rename a view to `name`, or make it the default (`default` 1) or not (0)."""
    default = request.POST.get("default")
    try:
        row = services.saved_view_change(
            person=person_of(request),
            pk=pk,
            name=request.POST.get("name"),
            is_default=None if default is None else default == "1",
        )
    except (Invalid, Conflict) as error:
        messages.error(request, error.sentence)
        return redirect("events:events")
    return redirect(f"{reverse('events:events')}?{row.query}&view={row.pk}")


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.EVENT_VIEW_REMOVE)
def remove_view(request: HttpRequest, pk: int) -> HttpResponse:
    services.saved_view_remove(person=person_of(request), pk=pk)
    messages.success(request, _("The view was deleted. Its events stay."))
    return redirect(f"{reverse('events:events')}?view=0")


def _form_values(given: QueryDict, wanted: EventFilter) -> dict[str, str]:
    """Return the submitted values for the form; valid times in one format, whatever they were given in."""
    told = {name: given.get(name, "") for name in ("since", "until", "message", "person")}
    for name, at in (("since", wanted.since), ("until", wanted.until)):
        if at is not None:
            told[name] = at.isoformat()
    return told


def _selected_view(given: QueryDict, views: Iterable[SavedView]) -> SavedView | None:
    """Return the saved view whose query is that of the URL, at any position in the list."""
    asked = {name: given.getlist(name) for name in given if name not in {"view", "before", "after"}}
    return next((one for one in views if dict(QueryDict(one.query).lists()) == asked), None)


def _is_query(text: str) -> bool:
    return bool(text) and len(text) <= services.MAX_QUERY_LENGTH and text.isascii() and text.isprintable()


def _filter_subjects(person: User, wanted: EventFilter) -> list[tuple[str, int, str, str]]:
    """Return the selected parts: kind, number, name, and the URL without it."""
    found = []
    for kind, model in SUBJECT_MODELS.items():
        names = dict(model.objects.visible_to(person).filter(pk__in=getattr(wanted, kind)).values_list("pk", "name"))
        for pk in getattr(wanted, kind):
            without = [pair for pair in wanted.parameters() if pair != (kind, str(pk))]
            found.append((kind, pk, str(names.get(pk, f"{kind} {pk}")), urlencode(without)))
    return found
