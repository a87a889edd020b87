"""Pages of alerts: active alerts, the history, and acknowledgement."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render, resolve_url
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.visibility import row_or_404
from core.database import natural
from core.downloads import Download, csv_download, csv_table
from core.errors import Conflict, Invalid
from core.language import _, _n, gettext_noop
from core.local_pages import next_page
from core.text import parse_id
from fabric.inventory.models import Chassis
from telemetry.alerts.limits import chassis_limits
from telemetry.alerts.models import Alert, AlertSeverity, Route, Silence
from telemetry.alerts.route_services import own_mails_set
from telemetry.alerts.selectors import (
    ALERT_COLUMNS,
    AlertFilter,
    alert_lines,
    alert_rows,
    alert_views,
)
from telemetry.alerts.services import alerts_acknowledge

ROWS_PER_PAGE = 50
MAIL_CHOICES = (
    ("", gettext_noop("of no alerts")),
    ("Critical", gettext_noop("of critical alerts")),
    ("Warning", gettext_noop("of all alerts")),
)
FILTERS = ("q", "severity", "state", "chassis", "device", "port", "rule", "since", "until")


@require_GET
@declare(Audience.EVERYBODY, menu_entry=MenuEntry(gettext_noop("Alerts")))
def alerts(request: HttpRequest) -> HttpResponse:
    """List active alerts, worst first, or (`show=history`) resolved ones; filter, sort and `page` are in the URL."""
    person = person_of(request)
    errors: dict[str, str] = {}
    try:
        wanted = AlertFilter.of(request.GET)
        rows = wanted.apply(alert_rows(person))
    except Invalid as error:
        errors, wanted, rows = error.details["errors"], AlertFilter(), Alert.objects.none()
    page = Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page"))
    views = alert_views(person, page.object_list, with_current=True)
    context = {
        "page": page,
        "views": views,
        "wanted": wanted,
        "given": request.GET,
        "is_narrowed": any(request.GET.get(name) for name in FILTERS),
        "errors": errors,
        "severities": AlertSeverity.choices,
        "states": [one for one in Alert.State.choices if one[0] != Alert.State.RESOLVED],
        "chassis": Chassis.objects.visible_to(person).order_by(natural("name")),
        "may_acknowledge": any(view.may_acknowledge for view in views),
        "pending": person.is_administrator,
        "mail_choices": [(one, _(words)) for one, words in MAIL_CHOICES] if settings.EMAIL_IS_SENT else [],
        "own_mails": Route.objects.in_use().filter(person=person).values_list("severity", flat=True).first() or "",
        "silences": len(Silence.objects.visible_to(person).in_force()),
        "sorts": (
            ("worst", _("worst first")),
            ("newest", _("newest first")),
            ("oldest", _("oldest first")),
            ("subject", _("by part")),
            ("title", _("by alert")),
        ),
    }
    return render(request, "telemetry/alerts/alerts.html", context, status=400 if errors else 200)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def alerts_csv(request: HttpRequest) -> Download:
    person = person_of(request)
    rows = AlertFilter.of(request.GET).apply(alert_rows(person))
    return csv_download(csv_table(ALERT_COLUMNS, alert_lines(person, rows)), "alerts.csv")


@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_SAMPLE)
def alert(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one alert: the value, the threshold, the start, and who was notified."""
    person = person_of(request)
    row = row_or_404(alert_rows(person), pk, gettext_noop("alert"))
    notifications = row.notifications.select_related("route", "fired_in", "resolved_in").order_by("route__name")
    silences = [
        one for one in Silence.objects.visible_to(person).in_force() if Alert.objects.filter(one.alerts(), pk=row.pk)
    ]
    context = {
        "one": alert_views(person, [row], with_current=True)[0],
        "notifications": notifications if person.is_administrator else [],
        "silences": silences,
    }
    return render(request, "telemetry/alerts/alert.html", context)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.ALERT_ACKNOWLEDGE)
def acknowledge(request: HttpRequest) -> HttpResponse:
    """Acknowledge each `alert`, or `only` one, with a note."""
    person = person_of(request)
    chosen = [request.POST["only"]] if request.POST.get("only") else request.POST.getlist("alert")
    try:
        results = alerts_acknowledge(
            person=person,
            alerts=sorted({parse_id(text) for text in chosen}),
            note=request.POST.get("note", ""),
        )
    except Conflict as error:
        for sentence in error.details.get("differences", [error.sentence])[:20]:
            messages.error(request, sentence)
    else:
        done = [one for one in results if not one.sentence]
        name = done[0].name if len(done) == 1 else _n("{count} alert", "{count} alerts", len(done))
        messages.success(request, _("Acknowledged: {name}.", name=name))
        for one in results:
            if one.sentence:
                messages.warning(request, f"{one.name}: {one.sentence}")
    return redirect(next_page(request, resolve_url("alerts:alerts")))


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.ALERT_OWN_MAILS)
def own_mails(request: HttpRequest) -> HttpResponse:
    """Choose of which alerts one is told by e-mail."""
    person = person_of(request)
    try:
        row = own_mails_set(person=person, severity=request.POST.get("severity", ""))
    except (Conflict, Invalid) as error:
        messages.error(request, error.sentence)
    else:
        if row is None:
            sentence = _("No more e-mail of alerts.")
        elif row.severity == AlertSeverity.CRITICAL:
            sentence = _("E-mail of critical alerts goes to {address}.", address=person.email)
        else:
            sentence = _("E-mail of all alerts goes to {address}.", address=person.email)
        messages.success(request, sentence)
    return redirect("alerts:alerts")


@never_cache
@require_GET
@declare(Audience.OBJECT_VIEWERS, no_page_test=NO_PAGE)
def limits(request: HttpRequest, pk: int) -> JsonResponse:
    """Return the limits on the visible series of a chassis by key: value, side and severity."""
    found = chassis_limits(person_of(request), pk)
    return JsonResponse(
        {
            key: [{"value": one.value, "is_upper": one.is_upper, "severity": one.severity} for one in of_series]
            for key, of_series in found.items()
        }
    )
