"""Pages of links: thin layers over selectors and the service that resets counters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, NotFound, Unavailable
from core.text import parse_id
from fabric.inventory.models import Device, HostPort, Port
from fabric.inventory.port_counters import port_reset_counters
from fabric.inventory.selectors import may_configure
from telemetry.links.presentation import (
    KIND_LABELS,
    LEVEL_LABELS,
    LinkView,
    bar_path,
    draw_timeline,
    link_views,
    state_labels,
)
from telemetry.links.rules import LinkLevel
from telemetry.links.selectors import (
    SORTS,
    LinkFilter,
    counter_resets,
    filter_choices,
    link_get,
    link_rows,
    port_counters,
    span_begin,
    state_spans,
    stored_errors,
    visible_since,
)

ROWS_PER_PAGE = 50
CSV_ROWS_PER_QUERY = 500
RESETS_SHOWN = 20
MAX_DRAWN = 2000
RANGES = {
    "hour": ("1 hour", timedelta(hours=1)), "day": ("24 hours", timedelta(days=1)),
    "week": ("7 days", timedelta(days=7)), "month": ("30 days", timedelta(days=30)),
    "quarter": ("90 days", timedelta(days=90)),
}  # fmt: skip
SHORT = {"hour", "day"}
COLUMNS = (
    "link", "port", "chassis", "drawer", "kind", "far_end", "tenant", "verdict", "since", "reasons", "status", "width",
    "max_width", "speed_gbps", "max_speed_gbps", "sent_again_per_second", "came_damaged_per_second",
    "correctable_per_second", "flaps_last_hour", "retrained_last_hour", "errors",
    "judged_at", "stale",
)  # fmt: skip
STATE_COLUMNS = ("since", "until", "status", "width", "speed_gbps", "asked_for_here", "drops")


def filter_from_query(given: Any) -> LinkFilter:
    """Return the query parameters of a URL; invalid ones are ignored."""

    def number(name: str) -> int | None:
        text = given.get(name, "")
        return parse_id(text) if text else None

    verdict, kind, sort = (given.get(name, "") for name in ("verdict", "kind", "sort"))
    return LinkFilter(
        chassis=number("chassis"),
        drawer=number("drawer"),
        tenant=number("tenant"),
        verdict=verdict if verdict in LEVEL_LABELS else "",
        kind=kind if kind in KIND_LABELS else "",
        search=given.get("q", "")[:200],
        sort=sort if sort.removeprefix("-") in SORTS else "verdict",
    )


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry("Link health", "Telemetry", 5))
def links(request: HttpRequest) -> HttpResponse:
    """List links, worst first; filter, order and page are in the URL."""
    person = person_of(request)
    wanted = filter_from_query(request.GET)
    page = Paginator(link_rows(person, wanted), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    given = request.GET.copy()
    given.pop("page", None)
    filters = any(given.get(name) for name in ("chassis", "drawer", "tenant", "verdict", "kind", "q"))
    context = {
        "page": page,
        "views": link_views(page.object_list),
        "wanted": wanted,
        "query": given.urlencode(),
        "filtered": filters,
        "choices": filter_choices(person),
        "levels": [(level.value, words) for level, (_, words) in LEVEL_LABELS.items()],
        "kinds": list(KIND_LABELS.items()),
        "columns": [_column(name, wanted.sort) for name in SORTS],
    }
    return render(request, "telemetry/links/links.html", context)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def links_csv(request: HttpRequest) -> Download:
    """Stream the list as CSV, with the same filter and order."""
    rows = link_rows(person_of(request), filter_from_query(request.GET))

    def each() -> Iterator[tuple[object, ...]]:
        for number in (pages := Paginator(rows, CSV_ROWS_PER_QUERY)).page_range:
            for view in link_views(pages.page(number).object_list):
                yield _csv_row(view)

    return csv_download(csv_table(COLUMNS, each()), "links.csv")


@require_GET
@declare(Audience.OBJECT_VIEWERS)
def link(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one link: the reasons for its state, its counters, its history; `range` and `page` are in the URL."""
    person = person_of(request)
    port, view = link_get(person, pk)
    now = timezone.now()
    name = request.GET.get("range", "")
    name = name if name in RANGES else "day"
    since = now - RANGES[name][1]
    held = visible_since(person, port)
    spans = state_spans(person, pk)
    shown = [_visible_span(span, held) for span in spans.exclude(until__lt=since)[:MAX_DRAWN]]
    page = Paginator(spans, ROWS_PER_PAGE).get_page(request.GET.get("page"))
    counters = port_counters(person, port, now=now)
    names = [one.counter.name for one in counters.counters]
    # Counts by the minute are kept for a day; the store keeps them longer.
    long = name not in SHORT
    kept = stored_errors(person, port, names, since=since, until=now) if long and names else {}
    context = {
        "port": port,
        "view": view,
        "healthy": view.level == LinkLevel.HEALTHY,
        "device": Device.objects.visible_to(person).filter(slot__port=port, missing_since=None).first(),
        "host_port": HostPort.objects.visible_to(person).filter(port=port).select_related("host").first(),
        "counters": [(one, bar_path(kept.get(one.counter.name, ()) if long else one.day)) for one in counters.counters],
        "drawn": RANGES[name if long else "day"][0],
        "counted": counters,
        "line": draw_timeline(shown, since=since, until=now),
        "range": name,
        "ranges": [(key, words) for key, (words, _) in RANGES.items()],
        "page": page,
        "spans": [_visible_span(span, held) for span in page.object_list],
        "resets": counter_resets(person, port, most=RESETS_SHOWN),
        "may_reset": bool(port.metrics_uri) and may_configure(person, port),
        "objects": f"port/{pk}",
    }
    return render(request, "telemetry/links/link.html", context)


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_PAGE)
def states_csv(request: HttpRequest, pk: int) -> Download:
    """Stream the states of a link as CSV, newest first."""
    person = person_of(request)
    port, _ = link_get(person, pk)
    held, rows = visible_since(person, port), state_spans(person, pk)

    def each() -> Iterator[tuple[object, ...]]:
        # In pages: each part of a download may run in another thread, and cursors cannot change threads.
        for number in (pages := Paginator(rows, CSV_ROWS_PER_QUERY)).page_range:
            for span in pages.page(number).object_list:
                until = span.until.isoformat() if span.until is not None else ""
                yield (
                    span_begin(span, held).isoformat(), until, span.status, span.width, span.speed_gbps,
                    "yes" if span.asked else "no", span.drops,
                )  # fmt: skip

    return csv_download(csv_table(STATE_COLUMNS, each()), f"link-{pk}-states.csv")


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.PORT_COUNTERS)
def counter_reset(request: HttpRequest, pk: int) -> HttpResponse:
    """Reset the error counters of a port on the BMC."""
    person = person_of(request)
    port: Port | None = Port.objects.visible_to(person).filter(pk=pk).first()
    if port is None:
        raise NotFound("There is no such link.")
    try:
        port_reset_counters(person=person, port=port)
    except (Conflict, Unavailable) as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, "The chassis reports that the counters were reset. The totals here continue.")
    return redirect("links:link", pk=pk)


def _column(name: str, sort: str) -> dict[str, str]:
    """Return a column's name, label and link, which sorts by it and then reverses the order."""
    at = sort.removeprefix("-") == name
    reverse = sort.startswith("-")
    ascending = (name in {"name", "chassis"}) != reverse
    return {
        "name": name, "words": SORTS[name][0], "sort": f"-{name}" if at and not reverse else name,
        "order": ("ascending" if ascending else "descending") if at else "",
    }  # fmt: skip


def _visible_span(span: Any, held: Any) -> Any:
    """Return a state limited to the time in which the person may see it."""
    span.since = span_begin(span, held)
    span.words = ", ".join(state_labels(span))
    span.seconds = ((span.until or timezone.now()) - span.since).total_seconds()
    return span


def _csv_row(view: LinkView) -> tuple[object, ...]:
    return (
        view.name, view.port_name, view.chassis_name, view.drawer_name, view.kind_label, view.far_end, view.tenant_name,
        view.level, view.since.isoformat() if view.since else "", " ".join(one["sentence"] for one in view.reasons),
        view.status, view.width, view.max_width, view.speed_gbps, view.max_speed_gbps, view.sent_rate,
        view.received_rate, view.correctable_rate, view.flaps, view.recoveries, view.errors,
        view.judged_at.isoformat() if view.judged_at else "", "yes" if view.is_stale else "no",
    )  # fmt: skip
