"""Pages of links: thin layers over selectors and the service that resets counters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.visibility import visible_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Unavailable
from core.language import _, gettext_noop, joined
from core.text import parse_id
from fabric.inventory.models import Device, HostPort, Port
from fabric.inventory.port_counters import port_reset_counters
from fabric.inventory.selectors import may_configure
from telemetry.links import presentation, selectors
from telemetry.links.rules import LinkLevel

ROWS_PER_PAGE = 30
CSV_ROWS_PER_QUERY = 500
RESETS_SHOWN = 20
MAX_DRAWN = 2000
RANGES = {
    "hour": (gettext_noop("1 hour"), timedelta(hours=1)), "day": (gettext_noop("24 hours"), timedelta(days=1)),
    "week": (gettext_noop("7 days"), timedelta(days=7)), "month": (gettext_noop("30 days"), timedelta(days=30)),
    "quarter": (gettext_noop("90 days"), timedelta(days=90)),
}  # fmt: skip
SHORT = {"hour", "day"}
COLUMNS = (
    "link", "port", "chassis", "drawer", "kind", "far_end", "tenant", "verdict", "since", "reasons", "status", "width",
    "max_width", "speed_gbps", "max_speed_gbps", "sent_again_per_second", "came_damaged_per_second",
    "correctable_per_second", "flaps_last_hour", "retrained_last_hour", "errors",
    "judged_at", "stale",
)  # fmt: skip
STATE_COLUMNS = ("since", "until", "status", "width", "speed_gbps", "asked_for_here", "drops")


def filter_from_query(given: Any) -> selectors.LinkFilter:
    """Return the query parameters of a URL; invalid ones are ignored."""

    def number(name: str) -> int | None:
        text = given.get(name, "")
        return parse_id(text) if text else None

    verdict, kind, sort = (given.get(name, "") for name in ("verdict", "kind", "sort"))
    return selectors.LinkFilter(
        chassis=number("chassis"),
        drawer=number("drawer"),
        tenant=number("tenant"),
        verdict=verdict if verdict in presentation.LEVEL_LABELS else "",
        kind=kind if kind in presentation.KIND_LABELS else "",
        search=given.get("q", "")[:200],
        sort=sort if sort.removeprefix("-") in selectors.SORTS else "verdict",
    )


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Link health"), "Telemetry", 5))
def links(request: HttpRequest) -> HttpResponse:
    """List links, worst first; filter, order and page are in the URL."""
    person = person_of(request)
    link_filter = filter_from_query(request.GET)
    page = Paginator(selectors.link_rows(person, link_filter), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    given = request.GET.copy()
    given.pop("page", None)
    filters = any(given.get(name) for name in ("chassis", "drawer", "tenant", "verdict", "kind", "q"))
    context = {
        "page": page,
        "views": presentation.link_views(page.object_list),
        "link_filter": link_filter,
        "query": given.urlencode(),
        "filtered": filters,
        "choices": selectors.filter_choices(person),
        "levels": [(level.value, _(words)) for level, (_mark, words) in presentation.LEVEL_LABELS.items()],
        "kinds": [(kind, _(str(words))) for kind, words in presentation.KIND_LABELS.items()],
        "columns": [_column(name, link_filter.sort) for name in selectors.SORTS],
    }
    return render(request, "telemetry/links/links.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def links_csv(request: HttpRequest) -> Download:
    """Stream the list as CSV, with the same filter and order."""
    rows = selectors.link_rows(person_of(request), filter_from_query(request.GET))
    lines = (_csv_row(view) for page in _in_pages(rows) for view in presentation.link_views(page))
    return csv_download(csv_table(COLUMNS, lines), "links.csv")


def _in_pages(rows: QuerySet[Any]) -> Iterator[Any]:
    """Yield pages of rows: each part of a download may run in another thread, and cursors cannot change threads."""
    for number in (pages := Paginator(rows, CSV_ROWS_PER_QUERY)).page_range:
        yield pages.page(number).object_list


@require_GET
@declare(Audience.OBJECT_VIEWERS)
def link(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one link: the reasons for its state, its counters, its history; `range` and `page` are in the URL."""
    person = person_of(request)
    port, view = selectors.link_get(person, pk)
    now = timezone.now()
    name = request.GET.get("range", "")
    name = name if name in RANGES else "day"
    since = now - RANGES[name][1]
    visible_from = selectors.visible_since(person, port)
    spans = selectors.state_spans(person, pk)
    shown = [_visible_span(span, visible_from) for span in spans.exclude(until__lt=since)[:MAX_DRAWN]]
    page = Paginator(spans, ROWS_PER_PAGE).get_page(request.GET.get("page"))
    counters = selectors.port_counters(person, port, now=now)
    names = [one.counter.name for one in counters.counters]
    # Counts by the minute are kept for a day; the store keeps them longer.
    long = name not in SHORT
    stored = selectors.stored_errors(person, port, names, since=since, until=now) if long and names else {}
    context = {
        "port": port,
        "view": view,
        "healthy": view.level == LinkLevel.HEALTHY,
        "device": Device.objects.visible_to(person).filter(slot__port=port, missing_since=None).first(),
        "host_port": HostPort.objects.visible_to(person).filter(port=port).select_related("host").first(),
        "counters": [
            (one, presentation.bar_path(stored.get(one.counter.name, ()) if long else one.day))
            for one in counters.counters
        ],
        "drawn": _(RANGES[name if long else "day"][0]),
        "counted": counters,
        "line": presentation.draw_timeline(shown, since=since, until=now),
        "range": name,
        "ranges": [(key, _(words)) for key, (words, _span) in RANGES.items()],
        "page": page,
        "spans": [_visible_span(span, visible_from) for span in page.object_list],
        "resets": selectors.counter_resets(person, port, most=RESETS_SHOWN),
        "may_reset": bool(port.metrics_uri) and may_configure(person, port),
        "objects": f"port/{pk}",
    }
    return render(request, "telemetry/links/link.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_PAGE)
def states_csv(request: HttpRequest, pk: int) -> Download:
    """Stream the states of a link as CSV, newest first."""
    person = person_of(request)
    port, _view = selectors.link_get(person, pk)
    visible_from, rows = selectors.visible_since(person, port), selectors.state_spans(person, pk)
    lines = (
        (selectors.span_begin(span, visible_from).isoformat(), span.until.isoformat() if span.until is not None else "",
         span.status, span.width, span.speed_gbps, "yes" if span.asked else "no", span.drops)
        for page in _in_pages(rows) for span in page
    )  # fmt: skip
    return csv_download(csv_table(STATE_COLUMNS, lines), f"link-{pk}-states.csv")


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.PORT_COUNTERS)
def counter_reset(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    port: Port = visible_or_404(Port.objects.all(), person, pk, gettext_noop("link"))
    try:
        port_reset_counters(person=person, port=port)
    except (Conflict, Unavailable) as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, _("The chassis reports that the counters were reset. The totals here continue."))
    return redirect("links:link", pk=pk)


def _column(name: str, sort: str) -> dict[str, str]:
    """Return a column's name, label and link, which sorts by it and then reverses the order."""
    at = sort.removeprefix("-") == name
    reverse = sort.startswith("-")
    ascending = (name in {"name", "chassis"}) != reverse
    return {
        "name": name, "words": _(selectors.SORTS[name][0]), "sort": f"-{name}" if at and not reverse else name,
        "order": ("ascending" if ascending else "descending") if at else "",
    }  # fmt: skip


def _visible_span(span: Any, visible_from: Any) -> Any:
    span.since = selectors.span_begin(span, visible_from)
    span.words = ", ".join(presentation.state_labels(span))
    span.seconds = ((span.until or timezone.now()) - span.since).total_seconds()
    return span


def _csv_row(view: presentation.LinkView) -> tuple[object, ...]:
    return (
        view.name,
        view.port_name,
        view.chassis_name,
        view.drawer_name,
        view.kind_label,
        view.far_end,
        view.tenant_name,
        view.level,
        view.since.isoformat() if view.since else "",
        joined(one["sentence"] for one in view.reasons),
        view.status,
        view.width,
        view.max_width,
        view.speed_gbps,
        view.max_speed_gbps,
        view.sent_rate,
        view.received_rate,
        view.correctable_rate,
        view.flaps,
        view.recoveries,
        view.errors,
        view.judged_at.isoformat() if view.judged_at else "",
        "yes" if view.is_stale else "no",
    )
