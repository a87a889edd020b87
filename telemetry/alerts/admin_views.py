"""Pages of rules, silences, routes and deliveries, for administrators."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
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
from accounts.visibility import visible_or_404
from core.errors import Conflict, FalconWebError, Invalid, Unavailable
from core.forms import service_errors_in
from core.language import _, gettext_noop, joined
from core.text import parse_id
from core.zones import MINUTE, local_words
from telemetry.alerts import route_services, rule_services
from telemetry.alerts.facts import active_rule, enabled_built_ins
from telemetry.alerts.forms import RouteForm, RuleForm, SilenceForm
from telemetry.alerts.models import Alert, Delivery, Route, Rule, Silence
from telemetry.alerts.notifications import enqueue_delivery
from telemetry.alerts.pictures import metric_pictures
from telemetry.alerts.preview import DAY, draw_preview_line, rule_preview
from telemetry.alerts.rules import BUILT_IN_RULES

ROWS_PER_PAGE = 50
SCOPE_RELATED = ("chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")
RANGES = (
    ("3600", gettext_noop("the last hour")),
    ("21600", gettext_noop("the last 6 hours")),
    ("86400", gettext_noop("the last day")),
    ("604800", gettext_noop("the last week")),
    ("2592000", gettext_noop("the last 30 days")),
)


@require_GET
@declare(Audience.ADMINISTRATORS)
def rules(request: HttpRequest) -> HttpResponse:
    """List the rules: the built-in ones with their switches, then the administrators' own."""
    search = request.GET.get("q", "").replace("\0", " ").strip()[:200]
    rows = Rule.objects.annotate(active=Count("alerts", filter=Q(alerts__state__in=Alert.ACTIVE)))
    if search:
        rows = rows.filter(Q(name__icontains=search) | Q(metric__icontains=search) | Q(note__icontains=search))
    orders = {"name": "name", "severity": "-severity", "metric": "metric", "newest": "-pk"}
    sort = request.GET.get("sort", "name")
    order = orders.get(sort, "name")
    on = enabled_built_ins()
    page = Paginator(rows.select_related(*SCOPE_RELATED).order_by(order, "name"), ROWS_PER_PAGE)
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
    return _rule_page(request, None)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_EDIT, no_page_test=NO_SAMPLE)
def rule(request: HttpRequest, pk: int) -> HttpResponse:
    return _rule_page(request, visible_or_404(Rule.objects, person_of(request), pk, gettext_noop("rule")))


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def preview_rule(request: HttpRequest) -> HttpResponse:
    """Preview the rule of a form on stored readings; nothing is saved."""
    given = request.GET.copy()
    given["name"] = given.get("name") or "Preview"  # it may come last
    return render(request, "telemetry/alerts/preview.html", _preview_context(request, RuleForm(given)))


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def metrics(request: HttpRequest) -> HttpResponse:
    """Show what may be measured, with a picture of its last hour."""
    person = person_of(request)
    pictures, chassis = metric_pictures(person, dict(_metric_choices(person)))
    return render(request, "telemetry/alerts/metric_pictures.html", {"pictures": pictures, "chassis": chassis})


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_EDIT)
def switch_rule(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    row = visible_or_404(Rule.objects, person, pk, gettext_noop("rule"))
    enabled = request.POST.get("enabled") == "1"
    rule_services.rule_switch(person=person, rule=row, enabled=enabled)
    messages.success(request, _switched(row.name, enabled=enabled))
    return redirect("alerts:rules")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_RULE_REMOVE)
def remove_rule(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    row = visible_or_404(Rule.objects, person, pk, gettext_noop("rule"))
    rule_services.rule_remove(person=person, rule=row)
    messages.success(request, _("'{name}' was deleted. Its alerts stay in the history.", name=row.name))
    return redirect("alerts:rules")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_BUILT_IN)
def switch_built_in(request: HttpRequest, name: str) -> HttpResponse:
    enabled = request.POST.get("enabled") == "1"
    known = rule_services.built_in_switch(person=person_of(request), name=name, enabled=enabled)
    messages.success(request, _switched(_(known.words), enabled=enabled))
    return redirect("alerts:rules")


def _switched(name: str, *, enabled: bool) -> str:
    return _("'{name}' was switched on.", name=name) if enabled else _("'{name}' was switched off.", name=name)


@require_GET
@declare(Audience.ADMINISTRATORS)
def silences(request: HttpRequest) -> HttpResponse:
    """List silences, active ones first."""
    page = Paginator(Silence.objects.select_related("rule", *SCOPE_RELATED), ROWS_PER_PAGE)
    return render(request, "telemetry/alerts/silences.html", {"page": page.get_page(request.GET.get("page"))})


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.SILENCE_ADD)
def add_silence(request: HttpRequest) -> HttpResponse:
    """Silence alerts; `of` in the URL fills the form with what one alert is about."""
    if request.method != "POST":
        blank = SilenceForm(initial=_silence_initial(request))
        return render(request, "telemetry/alerts/silence_add.html", {"form": blank})
    form = SilenceForm(request.POST)
    row = _saved(form, partial(route_services.silence_add, person=person_of(request)))
    if row is not None:
        end, scope = local_words(row.ends_at, MINUTE), row.scope_words
        sentence = _("Silenced until {time}: {scope}.", time=end, scope=scope)
        if row.times is not None:
            sentence = _("Silenced ({times}) until {time}: {scope}.", times=row.times.words, time=end, scope=scope)
        messages.success(request, sentence)
        return redirect("alerts:silences")
    return render(request, "telemetry/alerts/silence_add.html", {"form": form}, status=400)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.SILENCE_END)
def end_silence(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    row = visible_or_404(Silence.objects, person, pk, gettext_noop("silence"))
    try:
        route_services.silence_end(person=person, silence=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, _("The silence was ended. Alerts that are still firing are sent now."))
    return redirect("alerts:silences")


def _saved(form: RuleForm | SilenceForm | RouteForm, save: Callable[..., Any]) -> Any:
    """Return the row that a service saved from a form; None, with the errors in the form, where it is wrong."""
    if form.is_valid():
        with service_errors_in(form):
            return save(values=form.values())
    return None


def _rule_page(request: HttpRequest, row: Rule | None) -> HttpResponse:
    person = person_of(request)
    status = 200
    if request.method == "POST":
        form = RuleForm(request.POST)
        save: Callable[..., Any] = partial(rule_services.rule_edit, rule=row) if row else rule_services.rule_add
        if (saved := _saved(form, partial(save, person=person))) is not None:
            messages.success(request, _("'{name}' was saved. It takes effect within a few seconds.", name=saved.name))
            return redirect("alerts:rules")
        status = 400
    elif "metric" in request.GET:
        form = RuleForm(request.GET)  # 'Try it' without a script
    else:
        form = RuleForm() if row is None else RuleForm.of(row)
    context: dict[str, Any] = {
        "form": form,
        "rule": row,
        "ranges": [(one, _(words)) for one, words in RANGES],
        "range": request.GET.get("range", "86400"),
        "metrics": _metric_choices(person),
    }
    if form.is_bound and request.method != "POST":
        context |= _preview_context(request, form)
    return render(request, "telemetry/alerts/rule.html", context, status=status)


def _metric_choices(person: User) -> list[tuple[str, str]]:
    try:
        return rule_services.metric_choices(person)
    except (FalconWebError, OSError):
        return []


def _preview_context(request: HttpRequest, form: RuleForm) -> dict[str, Any]:
    """Return the preview of a form, or the reason why there is none."""
    if not form.is_valid():
        wrong = [f"{form[name].label}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
        return {"why_not": joined((_("Fill in the rule first."), *wrong))}
    seconds = request.GET.get("range", "86400")
    span = float(seconds) if seconds in dict(RANGES) else DAY
    row = Rule(pk=0)
    now = time.time()
    try:
        rule_services.rule_fill(row, form.values())
        preview = rule_preview(person=person_of(request), rule=active_rule(row), since=now - span, until=now)
    except (Invalid, Unavailable) as error:
        return {"why_not": error.sentence}
    drawings = [draw_preview_line(line, preview) for line in preview.lines]
    return {"preview": preview, "drawings": drawings, "span_words": _(dict(RANGES).get(seconds, "the last day"))}


def _silence_initial(request: HttpRequest) -> dict[str, Any]:
    row = Alert.objects.filter(pk=parse_id(request.GET.get("of", ""))).first()
    if row is None:
        return {}
    what = f"rule-{row.rule_id}" if row.rule_id is not None else row.cause.partition(":")[0]
    return {"scope": row.object, "chassis": row.chassis_id, "drawer": row.drawer_id, "device": row.device_id,
            "port": row.port_id, "what": what}  # fmt: skip


@require_GET
@declare(Audience.ADMINISTRATORS)
def routes(request: HttpRequest) -> HttpResponse:
    """List routes with the state of their deliveries."""
    waiting = Count("deliveries", filter=Q(deliveries__state=Delivery.State.WAITING))
    failed = Count("deliveries", filter=Q(deliveries__state=Delivery.State.FAILED))
    rows = Route.objects.select_related(*SCOPE_RELATED).annotate(
        waiting=waiting, failed=failed, last=Max("deliveries__delivered_at")
    )
    context = {"rows": rows, "email": settings.EMAIL_IS_SENT}
    return render(request, "telemetry/alerts/routes.html", context)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_ADD)
def add_route(request: HttpRequest) -> HttpResponse:
    form = RouteForm(request.POST if request.method == "POST" else None)
    save = partial(route_services.route_add, person=person_of(request))
    if form.is_bound and (row := _saved(form, save)) is not None:
        messages.success(request, _("'{name}' was saved. Send a test to check that it arrives.", name=row.name))
        return redirect("alerts:route", pk=row.pk)
    return _render_route(request, form, None)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_EDIT, no_page_test=NO_SAMPLE)
def route(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a route, with its deliveries below."""
    person = person_of(request)
    row = visible_or_404(Route.objects.select_related(*SCOPE_RELATED), person, pk, gettext_noop("route"))
    form = RouteForm.of(row)
    if request.method == "POST":
        form = RouteForm(request.POST, has_secret=row.has_secret)
        save = partial(route_services.route_edit, person=person, route=row)
        if (saved := _saved(form, save)) is not None:
            messages.success(request, _("'{name}' was saved.", name=saved.name))
            return redirect("alerts:route", pk=pk)
    return _render_route(request, form, row)


def _render_route(request: HttpRequest, form: RouteForm, row: Route | None) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "route": row, "email": settings.EMAIL_IS_SENT}
    if row is not None:
        rows = row.deliveries.order_by("-number")
        context["page"] = Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "telemetry/alerts/route.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_REMOVE)
def remove_route(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    row = visible_or_404(Route.objects, person, pk, gettext_noop("route"))
    route_services.route_remove(person=person, route=row)
    messages.success(request, _("'{name}' was deleted with its waiting notifications.", name=row.name))
    return redirect("alerts:routes")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.ALERT_ROUTE_TEST)
def send_route_test(request: HttpRequest, pk: int) -> HttpResponse:
    person = person_of(request)
    row = visible_or_404(Route.objects, person, pk, gettext_noop("route"))
    route_services.route_test(person=person, route=row)
    enqueue_delivery()
    messages.success(request, _("A test is being sent. The result appears below within a few seconds."))
    return redirect("alerts:route", pk=pk)


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
    person = person_of(request)
    row = visible_or_404(Delivery.objects, person, pk, gettext_noop("delivery"))
    try:
        route_services.delivery_retry(person=person, delivery=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        enqueue_delivery()
        messages.success(request, _("The delivery is being retried."))
    return redirect("alerts:route", pk=row.route_id)
