"""Pages of rules, silences, routes and deliveries, for administrators."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Max, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, declare
from accounts.models import User
from core.errors import Conflict, FalconWebError, Invalid, NotFound, Unavailable
from core.forms import add_service_errors
from core.text import parse_id
from telemetry.alerts.forms import RouteForm, RuleForm, SilenceForm
from telemetry.alerts.models import Alert, Delivery, Route, Rule, Silence
from telemetry.alerts.notifications import enqueue_delivery
from telemetry.alerts.preview import DAY, PreviewDrawing, RulePreview, draw_preview_line, rule_preview
from telemetry.alerts.route_services import (
    delivery_retry,
    route_add,
    route_edit,
    route_remove,
    route_test,
    silence_add,
    silence_end,
)
from telemetry.alerts.rule_services import (
    built_in_switch,
    metric_choices,
    rule_add,
    rule_edit,
    rule_fill,
    rule_remove,
    rule_switch,
)
from telemetry.alerts.rules import BUILT_IN_RULES
from telemetry.alerts.selectors import active_rule, enabled_built_ins

ROWS_PER_PAGE = 50
RANGES = (("3600", "the last hour"), ("21600", "the last 6 hours"), ("86400", "the last day"),
          ("604800", "the last week"), ("2592000", "the last 30 days"))  # fmt: skip


@require_GET
@declare(Audience.ADMINISTRATORS)
def rules(request: HttpRequest) -> HttpResponse:
    """List the rules: the built-in ones with their switches, then the administrators' own."""
    search = request.GET.get("q", "").replace("\0", " ").strip()[:200]
    rows = Rule.objects.annotate(ringing=Count("alerts", filter=Q(alerts__state__in=Alert.RINGING)))
    if search:
        rows = rows.filter(Q(name__icontains=search) | Q(metric__icontains=search) | Q(note__icontains=search))
    orders = {"name": "name", "severity": "-severity", "metric": "metric", "newest": "-pk"}
    sort = request.GET.get("sort", "name")
    order = orders.get(sort, "name")
    on = enabled_built_ins()
    related = ("chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")
    page = Paginator(rows.select_related(*related).order_by(order, "name"), ROWS_PER_PAGE)
    context = {
        "page": page.get_page(request.GET.get("page")),
        "search": search,
        "sort": sort,
        "built_ins": [(known, name in on) for name, known in BUILT_IN_RULES.items()],
    }
    return render(request, "telemetry/alerts/rules.html", context)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_ADD)
def add_rule(request: HttpRequest) -> HttpResponse:
    """Add a rule."""
    return _rule_page(request, person_of(request), None)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_EDIT, no_page_test=NO_SAMPLE)
def rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a rule."""
    return _rule_page(request, person_of(request), _get_rule(pk))


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def preview_rule(request: HttpRequest) -> HttpResponse:
    """Preview the rule of a form on stored readings; nothing is saved."""
    person = person_of(request)
    return render(request, "telemetry/alerts/preview.html", _preview_context(request, person, RuleForm(request.GET)))


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_EDIT)
def switch_rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch a rule on or off."""
    person, row = person_of(request), _get_rule(pk)
    enabled = request.POST.get("enabled") == "1"
    rule_switch(person=person, rule=row, enabled=enabled)
    messages.success(request, f"'{row.name}' was switched {'on' if enabled else 'off'}.")
    return redirect("alerts:rules")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_REMOVE)
def remove_rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a rule."""
    person, row = person_of(request), _get_rule(pk)
    rule_remove(person=person, rule=row)
    messages.success(request, f"'{row.name}' was deleted. Its alerts stay in the history.")
    return redirect("alerts:rules")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_BUILT_IN)
def switch_built_in(request: HttpRequest, name: str) -> HttpResponse:
    """Switch a built-in rule on or off."""
    person = person_of(request)
    enabled = request.POST.get("enabled") == "1"
    known = built_in_switch(person=person, name=name, enabled=enabled)
    messages.success(request, f"'{known.words}' was switched {'on' if enabled else 'off'}.")
    return redirect("alerts:rules")


@require_GET
@declare(Audience.ADMINISTRATORS)
def silences(request: HttpRequest) -> HttpResponse:
    """List silences, active ones first."""
    related = ("rule", "chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")
    page = Paginator(Silence.objects.select_related(*related), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "telemetry/alerts/silences.html", {"page": page})


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.SILENCE_ADD)
def add_silence(request: HttpRequest) -> HttpResponse:
    """Silence alerts; `of` in the URL fills the form with what one alert is about."""
    person = person_of(request)
    form = SilenceForm(request.POST) if request.method == "POST" else SilenceForm(initial=_silence_initial(request))
    if form.is_bound and form.is_valid():
        try:
            row = silence_add(person=person, values=form.values())
        except Invalid as error:
            add_service_errors(form, error)
        else:
            messages.success(request, f"Silenced until {row.ends_at:%Y-%m-%d %H:%M} UTC: {row.scope_words}.")
            return redirect("alerts:silences")
    return render(request, "telemetry/alerts/silence_add.html", {"form": form}, status=400 if form.errors else 200)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.SILENCE_END)
def end_silence(request: HttpRequest, pk: int) -> HttpResponse:
    """End a silence now."""
    person = person_of(request)
    row = Silence.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such silence.")
    try:
        silence_end(person=person, silence=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, "The silence was ended. Alerts that are still firing are sent now.")
    return redirect("alerts:silences")


def _rule_page(request: HttpRequest, person: User, row: Rule | None) -> HttpResponse:
    if request.method == "POST":
        form = RuleForm(request.POST)
        if form.is_valid():
            try:
                values = form.values()
                saved = (
                    rule_add(person=person, values=values)
                    if row is None
                    else rule_edit(person=person, rule=row, values=values)
                )
            except (Invalid, Conflict) as error:
                add_service_errors(form, error)
            else:
                messages.success(request, f"'{saved.name}' was saved. It takes effect within a few seconds.")
                return redirect("alerts:rules")
    elif "metric" in request.GET:
        form = RuleForm(request.GET)  # 'Try it' without a script
    else:
        form = RuleForm() if row is None else RuleForm.of(row)
    context: dict[str, Any] = {
        "form": form, "rule": row, "ranges": RANGES, "range": request.GET.get("range", "86400"),
        "metrics": _metric_choices(person),
    }  # fmt: skip
    if form.is_bound and request.method != "POST":
        context |= _preview_context(request, person, form)
    wrong = request.method == "POST" and form.errors
    return render(request, "telemetry/alerts/rule.html", context, status=400 if wrong else 200)


def _preview_context(request: HttpRequest, person: User, form: RuleForm) -> dict[str, Any]:
    """Return the preview of a form, or the reason why there is none."""
    if not form.is_valid():
        wrong = [f"{form.fields[name].label or name}: {' '.join(map(str, said))}" for name, said in form.errors.items()
                 if name in form.fields]  # fmt: skip
        return {"why_not": f"Fill in the rule first. {' '.join(map(str, wrong))}"}
    seconds = request.GET.get("range", "86400")
    span = float(seconds) if seconds in dict(RANGES) else DAY
    row = Rule(pk=0)
    now = time.time()
    try:
        rule_fill(row, form.values())
        preview: RulePreview = rule_preview(person=person, rule=active_rule(row), since=now - span, until=now)
    except (Invalid, Unavailable) as error:
        return {"why_not": error.sentence}
    drawings: list[PreviewDrawing] = [draw_preview_line(line, preview) for line in preview.lines]
    return {"preview": preview, "drawings": drawings, "span_words": dict(RANGES).get(seconds, "the last day")}


def _metric_choices(person: User) -> list[tuple[str, str]]:
    try:
        return metric_choices(person)
    except (FalconWebError, OSError):
        return []


def _silence_initial(request: HttpRequest) -> dict[str, Any]:
    of = request.GET.get("of", "")
    row = Alert.objects.filter(pk=int(of)).first() if of.isascii() and of.isdecimal() and len(of) < 19 else None
    if row is None:
        return {}
    what = f"rule-{row.rule_id}" if row.rule_id is not None else row.cause.partition(":")[0]
    return {"scope": row.object, "chassis": row.chassis_id, "drawer": row.drawer_id, "device": row.device_id,
            "port": row.port_id, "what": what}  # fmt: skip


def _get_rule(pk: int) -> Rule:
    row: Rule | None = Rule.objects.filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        raise NotFound("There is no such rule.")
    return row


RELATED = ("chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")


@require_GET
@declare(Audience.ADMINISTRATORS)
def routes(request: HttpRequest) -> HttpResponse:
    """List routes with the state of their deliveries."""
    waiting = Count("deliveries", filter=Q(deliveries__state=Delivery.State.WAITING))
    failed = Count("deliveries", filter=Q(deliveries__state=Delivery.State.FAILED))
    rows = Route.objects.select_related(*RELATED).annotate(
        waiting=waiting, failed=failed, last=Max("deliveries__delivered_at")
    )
    context = {"rows": rows, "email": settings.EMAIL_IS_SENT}
    return render(request, "telemetry/alerts/routes.html", context)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_ADD)
def add_route(request: HttpRequest) -> HttpResponse:
    """Add a route."""
    person = person_of(request)
    form = RouteForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            row = route_add(person=person, values=form.values())
        except (Invalid, Conflict) as error:
            add_service_errors(form, error)
        else:
            messages.success(request, f"'{row.name}' was saved. Send a test to check that it arrives.")
            return redirect("alerts:route", pk=row.pk)
    context = {"form": form, "route": None, "email": settings.EMAIL_IS_SENT}
    return render(request, "telemetry/alerts/route.html", context, status=400 if form.errors else 200)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_EDIT, no_page_test=NO_SAMPLE)
def route(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a route, with its deliveries below."""
    person = person_of(request)
    row = _get_route(pk)
    form = RouteForm.of(row)
    if request.method == "POST":
        form = RouteForm(request.POST, has_secret=bool(row.secret_encrypted))
        if form.is_valid():
            try:
                row = route_edit(person=person, route=row, values=form.values())
            except (Invalid, Conflict) as error:
                add_service_errors(form, error)
            else:
                messages.success(request, f"'{row.name}' was saved.")
                return redirect("alerts:route", pk=row.pk)
    page = Paginator(row.deliveries.order_by("-number"), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    context = {"form": form, "route": row, "page": page, "email": settings.EMAIL_IS_SENT}
    return render(request, "telemetry/alerts/route.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_REMOVE)
def remove_route(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a route with its log."""
    person, row = person_of(request), _get_route(pk)
    route_remove(person=person, route=row)
    messages.success(request, f"'{row.name}' was deleted with its waiting notifications.")
    return redirect("alerts:routes")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_TEST)
def send_route_test(request: HttpRequest, pk: int) -> HttpResponse:
    """Send a test."""
    person, row = person_of(request), _get_route(pk)
    route_test(person=person, route=row)
    enqueue_delivery()
    messages.success(request, "A test is being sent. The result appears below within a few seconds.")
    return redirect("alerts:route", pk=row.pk)


@require_GET
@declare(Audience.ADMINISTRATORS)
def deliveries(request: HttpRequest) -> HttpResponse:
    """List delivered and waiting notifications of all routes; `state`, `route` and `page` are in the URL."""
    rows = Delivery.objects.select_related("route")
    state = request.GET.get("state", "")
    if state in Delivery.State.values:
        rows = rows.filter(state=state)
    if only := parse_id(request.GET.get("route", "")):
        rows = rows.filter(route=only)
    context = {
        "page": Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "state": state,
        "only": only,
        "states": Delivery.State.choices,
        "routes": Route.objects.order_by("name"),
    }
    return render(request, "telemetry/alerts/deliveries.html", context)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.DELIVERY_RETRY)
def retry_delivery(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Retry a delivery now."""
    person = person_of(request)
    row: Delivery | None = Delivery.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such delivery.")
    try:
        delivery_retry(person=person, delivery=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        enqueue_delivery()
        messages.success(request, "The delivery is being retried.")
    return redirect("alerts:route", pk=row.route_id)


def _get_route(pk: int) -> Route:
    row: Route | None = Route.objects.select_related(*RELATED).filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        raise NotFound("There is no such route.")
    return row
