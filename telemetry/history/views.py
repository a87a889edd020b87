"""Pages of history: charts over any range, throughput, heat maps."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.models import User
from accounts.visibility import visible_or_404
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid, NotFound
from core.language import _, gettext_noop
from core.text import parse_id
from core.zones import field_text
from fabric.inventory.models import Chassis, Drawer, Host
from telemetry.history import rules
from telemetry.history.heat_map import (
    COLOUR_STEPS,
    LONGEST_DAY_CELLS,
    draw_heat_map,
    heat_map,
    hour_count,
    hourly_highs,
    time_of_day,
)
from telemetry.history.models import Dashboard, DashboardPanel
from telemetry.history.selectors import measured_metrics
from telemetry.history.services import (
    dashboard_add,
    dashboard_change,
    dashboard_remove,
    panel_add,
    panel_change,
    panel_remove,
)
from telemetry.history.subjects import HistorySubject, find_subjects, search_subjects
from telemetry.history.throughput import COLUMNS, SORTS, Throughput, throughput_lines, throughput_of

DEFAULT_CHASSIS_SHOWN = 4  # shown where none is selected
MAX_CHOICES = 500
MAX_PANEL_CHARTS = 6  # of a panel of a dashboard; the charts page shows them all


@require_GET
@declare(
    Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Charts"), "Telemetry", 1), tested_queries=("of=chassis/1",)
)
def telemetry(request: HttpRequest) -> HttpResponse:
    """Show charts: `of` (several), `metric` (several), `range` or `since` and `until`, and `charts` are in the URL."""
    person = person_of(request)
    shown = wanted = rules.TelemetryView.from_parameters(request.GET)
    now = time.time()
    if not wanted.subjects:
        shown = replace(shown, subjects=_usual_subjects(person))
    span = shown.span(now)
    found, missing = find_subjects(person, shown.subjects, span)
    if missing and not found:
        raise NotFound(_("There is no '{name}', or you may not see it.", name=missing[0][:60]))
    by_ref = {one.ref: one for one in found}
    search = request.GET.get("q", "")
    measured = measured_metrics(found, span)
    context = {
        "shown": shown,
        "span": span,
        "since": _typed(span.since),
        "until": _typed(span.until),
        "subjects": [
            (one, shown.query(subjects=tuple(ref for ref in shown.subjects if ref != one.ref))) for one in found
        ],
        "missing": len(missing),
        "panels": [_panel(one, by_ref) for one in shown.panels(list(by_ref))],
        "ranges": [
            (name, _(words), shown.query(range=name, since="", until=""))
            for name, (words, _seconds) in rules.RANGES.items()
        ],
        "metrics": [
            (metric, metric.name in (shown.metrics or rules.DEFAULT_METRICS))
            for metric in rules.METRICS.values()
            if metric.name in measured or metric.name in shown.metrics
        ],
        "moves": _range_links(shown, span),
        "apart": shown.query(layout="apart"),
        "together": shown.query(layout="together"),
        "query": shown.query(),
        "search": search,
        "results": _search_results(person, search, wanted) if "q" in request.GET else None,
        "is_chosen": bool(wanted.subjects),
        "full": len(shown.subjects) >= rules.MAX_SHOWN,
        "dashboards": Dashboard.objects.filter(person=person),
        "chassis": sorted({member.chassis for one in found for member in one.members}),
    }
    return render(request, "telemetry/history/telemetry.html", context)


def _usual_subjects(person: User) -> tuple[str, ...]:
    """Return what is shown where nothing is chosen."""
    usual = Chassis.objects.visible_to(person).values_list("pk", flat=True)[:DEFAULT_CHASSIS_SHOWN]
    return tuple(f"chassis/{pk}" for pk in usual)


def _search_results(person: User, search: str, shown: rules.TelemetryView) -> list[tuple[Any, str]]:
    """Return what was found, each with the query that adds it to what was chosen: it replaces what nobody chose."""
    found = [one for one in search_subjects(person, search) if one.ref not in shown.subjects]
    return [(one, shown.query(subjects=(*shown.subjects, one.ref))) for one in found]


def _panel(panel: rules.ChartPanel, subjects: dict[str, HistorySubject]) -> dict[str, Any]:
    names = {ref: subjects[ref].full_name for ref in panel.subjects}
    title: str = _(panel.title) if panel.title else ""
    if panel.group:
        title = _("{panel} of {subject}", panel=title, subject=next(iter(names.values())))
    return {"panel": panel, "title": title, "names": json.dumps(names), "subjects": ",".join(panel.subjects)}


def _range_links(shown: rules.TelemetryView, span: rules.TimeRange) -> list[tuple[str, str, str]]:
    """Return links to the range before, after, half as long and twice as long, with key names and labels."""
    half, middle = span.seconds / 2, (span.since + span.until) / 2
    spans = {
        "earlier": (span.since - half, span.until - half), "later": (span.since + half, span.until + half),
        "in": (middle - half / 2, middle + half / 2), "out": (span.since - half, span.until + half),
    }  # fmt: skip
    words = {"earlier": _("Earlier"), "later": _("Later"), "in": _("Zoom in"), "out": _("Zoom out")}
    return [
        (name, words[name], shown.query(range="", since=rules.iso_utc(since), until=rules.iso_utc(until)))
        for name, (since, until) in spans.items()
    ]


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Throughput"), "Telemetry", 3))
def throughput(request: HttpRequest) -> HttpResponse:
    """Show the throughput of drawers and slots; `chassis`, `range` and `sort` are in the URL."""
    person = person_of(request)
    all_chassis = list(Chassis.objects.visible_to(person)[:MAX_CHOICES])
    context: dict[str, Any] = {"all_chassis": all_chassis, "found": None}
    if all_chassis or "chassis" in request.GET:
        found, name, sort = _throughput(request, person, all_chassis)
        rates = [flow.mean for row in (*found.slots, *found.drawers) for flow in (row.rx, row.tx)]
        context |= {
            "found": found,
            "range": name,
            "ranges": [(one, _(words), _query(found, one, sort)) for one, (words, _seconds) in rules.RANGES.items()],
            "sort": sort,
            "sorts": {one: _query(found, name, one) for one in SORTS},
            "csv": _query(found, name, sort),
            "step": rules.step_label(found.step),
            "most": max((rate for rate in rates if not math.isnan(rate)), default=0.0),
        }
    return render(request, "telemetry/history/throughput.html", context)


@require_GET
@declare(Audience.EVERYBODY, section="history:throughput", no_page_test=NO_PAGE)
def throughput_csv(request: HttpRequest) -> Download:
    person = person_of(request)
    found, _name, _sort = _throughput(request, person, list(Chassis.objects.visible_to(person)[:1]))
    return csv_download(csv_table(COLUMNS, throughput_lines([*found.drawers, *found.slots])), "throughput.csv")


def _throughput(request: HttpRequest, person: User, usual: list[Chassis]) -> tuple[Throughput, str, str]:
    name = request.GET.get("range", "24h")
    sort = request.GET.get("sort", "place")
    if sort not in SORTS:
        raise Invalid(_("Sorting by '{sort}' is not supported.", sort=sort[:30]))
    chassis = parse_id(request.GET.get("chassis", "")) or (usual[0].pk if usual else 0)
    return throughput_of(person, chassis, rules.named_range(name, now=time.time()), sort=sort), name, sort


def _query(found: Throughput, name: str, sort: str) -> str:
    return urlencode({"chassis": found.chassis.pk, "range": name, "sort": sort})


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Heat map"), "Telemetry", 4))
def heat(request: HttpRequest) -> HttpResponse:
    """Show the temperatures of a drawer's slots over a day of the zone; `drawer` and `day` are in the URL."""
    person = person_of(request)
    drawers = list(Drawer.objects.visible_to(person).filter(missing_since=None).select_related("chassis")[:MAX_CHOICES])
    today = timezone.localdate()
    day = _day(request.GET.get("day", ""), today)
    drawer = parse_id(request.GET.get("drawer", "")) or (drawers[0].pk if drawers else 0)
    context: dict[str, Any] = {"drawers": drawers, "day": day, "today": today, "found": None, "steps": COLOUR_STEPS}
    if drawer:
        begin, end = (str(int(_midnight(one).timestamp())) for one in (day, day + timedelta(days=1)))
        span = rules.range_between(begin, end, now=time.time())
        found = heat_map(person, drawer, span, cells=LONGEST_DAY_CELLS)
        of_day = {
            "subjects": ",".join(f"slot/{row.slot.pk}" for row in found.rows),
            "metrics": "temperature_celsius",
            "since": rules.iso_utc(found.span.since),
            "until": rules.iso_utc(found.span.until),
            "points": LONGEST_DAY_CELLS,
            "stats": "band",
        }
        context |= {
            "found": found,
            "picture": draw_heat_map(found),
            "hours": hourly_highs(found),
            "hour_names": [time_of_day(found.span.since + hour * rules.HOUR)[:2] for hour in range(hour_count(found))],
            "gaps_shown": [(time_of_day(gap.since), time_of_day(gap.until), _(gap.reason)) for gap in found.gaps],
            "before": day - timedelta(days=1),
            "after": day + timedelta(days=1) if day < today else None,
            "day_query": f"metric=temperature_celsius&since={of_day['since']}&until={of_day['until']}",
            "csv": f"{reverse('api:telemetry_table')}?{urlencode(of_day)}",
        }
    return render(request, "telemetry/history/heat.html", context)


def _typed(at: float) -> str:
    """Return a Unix time to the second as a field shows it."""
    return field_text(datetime.fromtimestamp(int(at), UTC))


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=timezone.get_current_timezone())


def _day(text: str, today: date) -> date:
    if not text:
        return today
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise Invalid(_("This is not a valid day. Enter one such as 2026-03-01.")) from error
    if not date(2000, 1, 1) <= day <= date(2199, 1, 1):
        raise Invalid(_("The day is not between the years 2000 and 2200."))
    return day


@require_http_methods(["GET", "POST"])
@declare(
    Audience.EVERYBODY,
    audited_as=Action.DASHBOARD_ADD,
    menu_entry=MenuEntry(gettext_noop("Dashboards"), "Telemetry", 2),
)
def dashboards(request: HttpRequest) -> HttpResponse:
    """List dashboards; POST pins the view `query` under a `name`: to a `dashboard`, or as a new one."""
    person = person_of(request)
    if request.method == "POST":
        query, name, place = (request.POST.get(field, "") for field in ("query", "name", "dashboard"))
        try:
            if place:
                panel = panel_add(person=person, dashboard=parse_id(place), title=name, query=query)
                made, query = panel.dashboard, panel.query
            else:
                made = dashboard_add(person=person, name=name, query=query)
                query = made.query
        except (Invalid, Conflict) as error:
            messages.error(request, error.sentence)
            return redirect("history:dashboards")
        messages.success(
            request, _("‘{name}’ was pinned to the dashboard ‘{dashboard}’.", name=name, dashboard=made.name)
        )
        return redirect(f"{reverse('history:telemetry')}?{query}")
    seen = Dashboard.objects.visible_to(person).annotate(count=Count("panels"))
    context = {"own": seen.filter(person=person), "shared": _shared_dashboards(person, seen)}
    return render(request, "telemetry/history/dashboards.html", context)


def _shared_dashboards(person: User, seen: QuerySet[Dashboard]) -> QuerySet[Dashboard]:
    return seen.exclude(person=person).select_related("person").order_by("name", "pk")[:MAX_CHOICES]


@require_http_methods(["GET", "POST"])
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.DASHBOARD_CHANGE, no_page_test=NO_SAMPLE)
def dashboard(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a dashboard for the chosen `chassis` and `host`, on a `wall`; POST changes `name`, `position`, `shared`."""
    person = person_of(request)
    if request.method == "POST":
        name, answer = request.POST.get("name"), request.POST.get("shared")
        shared = answer == "yes" if answer else None
        place = parse_id(request.POST.get("position", "")) or None
        try:
            dashboard_change(person=person, pk=pk, name=name, position=place, shared=shared)
        except (Invalid, Conflict) as error:
            messages.error(request, error.sentence)
        return redirect("history:dashboard", pk) if answer else redirect("history:dashboards")
    shown: Dashboard = visible_or_404(Dashboard.objects, person, pk, gettext_noop("dashboard"))
    chosen = {kind: parse_id(request.GET.get(kind, "")) for kind in rules.VARIABLES}
    panels = list(shown.panels.all())
    context = {
        "dashboard": shown,
        "may_edit": shown.may_edit(person),
        "is_wall": request.GET.get("wall") == "1",
        "query": urlencode({kind: one for kind, one in chosen.items() if one}),
        "variables": [
            (kind, chosen[kind], rows.objects.visible_to(person)[:MAX_CHOICES])
            for kind, rows in (("chassis", Chassis), ("host", Host))
            if any(one.follows and one.view.variable == kind for one in panels)
        ],
        **_dashboard_charts(person, panels, chosen),
    }
    return render(request, "telemetry/history/dashboard.html", context)


def _dashboard_charts(person: User, panels: list[DashboardPanel], chosen: dict[str, int]) -> dict[str, Any]:
    """Return what the panels show to a person, each of the subjects that the person may see."""
    now = time.time()
    usual = _usual_subjects(person)
    views = []
    for panel in panels:
        kind = panel.view.variable if panel.follows else ""
        subjects = (f"{kind}/{chosen[kind]}",) if kind and chosen[kind] else panel.view.subjects
        views.append(replace(panel.view, subjects=subjects or usual))
    spans = [view.span(now) for view in views]
    # The subjects of all panels are found at once; their members only tell which chassis are live.
    widest = rules.TimeRange(
        min((one.since for one in spans), default=now), max((one.until for one in spans), default=now)
    )
    found, _missing = find_subjects(person, list(dict.fromkeys(ref for view in views for ref in view.subjects)), widest)
    by_ref = {one.ref: one for one in found}
    shown = []
    for panel, view, span in zip(panels, views, spans, strict=True):
        seen = tuple(ref for ref in view.subjects if ref in by_ref)
        charts = [_panel(one, by_ref) for one in view.panels(seen)]
        shown.append({
            "panel": panel,
            "kind": panel.view.variable,
            "span": span,
            "query": view.query(subjects=seen) if seen else "",
            "of": by_ref[seen[0]].full_name if len(seen) == 1 else "",
            "missing": len(view.subjects) - len(seen),
            "charts": charts[:MAX_PANEL_CHARTS],
            "more": len(charts) - MAX_PANEL_CHARTS,
        })  # fmt: skip
    return {"panels": shown, "chassis": sorted({member.chassis for one in found for member in one.members})}


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.DASHBOARD_REMOVE)
def remove_dashboard(request: HttpRequest, pk: int) -> HttpResponse:
    dashboard_remove(person=person_of(request), pk=pk)
    messages.success(request, _("The dashboard was deleted. Its readings stay."))
    return redirect("history:dashboards")


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.DASHBOARD_CHANGE)
def change_panel(request: HttpRequest, pk: int, panel: int) -> HttpResponse:
    """Move a panel (`position`, from 1), change its `title` and whether it `follows`, or `remove` it."""
    person = person_of(request)
    address = reverse("history:dashboard", args=[pk])
    if "remove" in request.POST:
        panel_remove(person=person, dashboard=pk, pk=panel)
        messages.success(request, _("The panel was removed. Its readings stay."))
        return redirect(address)
    title = request.POST.get("title")
    follows = None if title is None else "follows" in request.POST
    place = parse_id(request.POST.get("position", "")) or None
    try:
        panel_change(person=person, dashboard=pk, pk=panel, title=title, position=place, follows=follows)
    except Invalid as error:
        messages.error(request, error.sentence)
    return redirect(f"{address}#panel-{panel}")
