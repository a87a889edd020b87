"""Pages of rules and of silences, for administrators."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import administrator_of
from accounts.forms import tell
from accounts.models import User
from falconweb.errors import Conflict, FalconWebError, Invalid, NotFound, Unavailable
from telemetry.alerts.drawing import Drawing, drawing_of
from telemetry.alerts.facts import built_ins_on, rule_in_force
from telemetry.alerts.forms import RuleForm, SilenceForm
from telemetry.alerts.metrics import metric_choices
from telemetry.alerts.models import Alert, Rule, Silence
from telemetry.alerts.preview import DAY, Preview, rule_preview
from telemetry.alerts.services.rules import built_in_switch, rule_add, rule_edit, rule_fill, rule_remove, rule_switch
from telemetry.alerts.services.silences import silence_add, silence_end
from telemetry.alerts.terms import BUILT_INS

ROWS_A_PAGE = 50
RANGES = (("3600", "the last hour"), ("21600", "the last 6 hours"), ("86400", "the last day"),
          ("604800", "the last week"), ("2592000", "the last 30 days"))  # fmt: skip


@require_GET
def rules(request: HttpRequest) -> HttpResponse:
    """List the rules: the built-in ones with their switches, then the administrators' own."""
    administrator_of(request)
    search = request.GET.get("q", "").replace("\0", " ").strip()[:200]
    rows = Rule.objects.annotate(ringing=Count("alerts", filter=Q(alerts__state__in=Alert.RINGING)))
    if search:
        rows = rows.filter(Q(name__icontains=search) | Q(metric__icontains=search) | Q(note__icontains=search))
    orders = {"name": "name", "severity": "-severity", "metric": "metric", "newest": "-pk"}
    sort = request.GET.get("sort", "name")
    order = orders.get(sort, "name")
    on = built_ins_on()
    related = ("chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")
    page = Paginator(rows.select_related(*related).order_by(order, "name"), ROWS_A_PAGE)
    context = {
        "page": page.get_page(request.GET.get("page")),
        "search": search,
        "sort": sort,
        "built_ins": [(known, name in on) for name, known in BUILT_INS.items()],
    }
    return render(request, "alerts/rules.html", context)


@require_http_methods(["GET", "POST"])
def rule_added(request: HttpRequest) -> HttpResponse:
    """Add a rule."""
    return _rule(request, administrator_of(request), None)


@require_http_methods(["GET", "POST"])
def rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a rule."""
    return _rule(request, administrator_of(request), _rule_of(pk))


@require_GET
def rule_previewed(request: HttpRequest) -> HttpResponse:
    """Show what a rule, as it stands in a form, would have done; nothing is kept."""
    person = administrator_of(request)
    return render(request, "alerts/preview.html", _preview(request, person, RuleForm(request.GET)))


@require_POST
def rule_switched(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch a rule on or off."""
    person, row = administrator_of(request), _rule_of(pk)
    enabled = request.POST.get("enabled") == "1"
    rule_switch(person=person, rule=row, enabled=enabled)
    messages.success(request, f"'{row.name}' is switched {'on' if enabled else 'off'}.")
    return redirect("alerts:rules")


@require_POST
def rule_removed(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a rule."""
    person, row = administrator_of(request), _rule_of(pk)
    rule_remove(person=person, rule=row)
    messages.success(request, f"'{row.name}' is deleted. What it raised stays in the history.")
    return redirect("alerts:rules")


@require_POST
def built_in(request: HttpRequest, name: str) -> HttpResponse:
    """Switch a built-in rule on or off."""
    person = administrator_of(request)
    enabled = request.POST.get("enabled") == "1"
    known = built_in_switch(person=person, name=name, enabled=enabled)
    messages.success(request, f"'{known.words}' is switched {'on' if enabled else 'off'}.")
    return redirect("alerts:rules")


@require_GET
def silences(request: HttpRequest) -> HttpResponse:
    """List silences, those that hold first."""
    administrator_of(request)
    related = ("rule", "chassis", "drawer__chassis", "device__chassis", "port__chassis", "tenant")
    page = Paginator(Silence.objects.select_related(*related), ROWS_A_PAGE).get_page(request.GET.get("page"))
    return render(request, "alerts/silences.html", {"page": page})


@require_http_methods(["GET", "POST"])
def silence_added(request: HttpRequest) -> HttpResponse:
    """Silence alerts; `of` in the URL fills the form with what one alert is about."""
    person = administrator_of(request)
    form = SilenceForm(request.POST) if request.method == "POST" else SilenceForm(initial=_initial(request))
    if form.is_bound and form.is_valid():
        try:
            row = silence_add(person=person, values=form.values())
        except Invalid as error:
            tell(form, error)
        else:
            messages.success(request, f"Silent until {row.ends_at:%Y-%m-%d %H:%M} UTC: {row.scope_words}.")
            return redirect("alerts:silences")
    return render(request, "alerts/silence_add.html", {"form": form}, status=400 if form.errors else 200)


@require_POST
def silence_ended(request: HttpRequest, pk: int) -> HttpResponse:
    """End a silence now."""
    person = administrator_of(request)
    row = Silence.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such silence.")
    try:
        silence_end(person=person, silence=row)
    except Conflict as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, "The silence is over. What fires still is told now.")
    return redirect("alerts:silences")


def _rule(request: HttpRequest, person: User, row: Rule | None) -> HttpResponse:
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
                tell(form, error)
            else:
                messages.success(request, f"'{saved.name}' is saved. It counts within a few seconds.")
                return redirect("alerts:rules")
    elif "metric" in request.GET:
        form = RuleForm(request.GET)  # 'Try it' without a script
    else:
        form = RuleForm() if row is None else RuleForm.of(row)
    context: dict[str, Any] = {
        "form": form, "rule": row, "ranges": RANGES, "range": request.GET.get("range", "86400"),
        "metrics": _metrics(person),
    }  # fmt: skip
    if form.is_bound and request.method != "POST":
        context |= _preview(request, person, form)
    wrong = request.method == "POST" and form.errors
    return render(request, "alerts/rule.html", context, status=400 if wrong else 200)


def _preview(request: HttpRequest, person: User, form: RuleForm) -> dict[str, Any]:
    """Return a preview of what stands in a form, or the sentence why there is none."""
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
        preview: Preview = rule_preview(person=person, rule=rule_in_force(row), since=now - span, until=now)
    except (Invalid, Unavailable) as error:
        return {"why_not": error.sentence}
    drawings: list[Drawing] = [drawing_of(line, preview) for line in preview.lines]
    return {"preview": preview, "drawings": drawings, "span_words": dict(RANGES).get(seconds, "the last day")}


def _metrics(person: User) -> list[tuple[str, str]]:
    try:
        return metric_choices(person)
    except (FalconWebError, OSError):
        return []


def _initial(request: HttpRequest) -> dict[str, Any]:
    of = request.GET.get("of", "")
    row = Alert.objects.filter(pk=int(of)).first() if of.isascii() and of.isdecimal() and len(of) < 19 else None
    if row is None:
        return {}
    what = f"rule-{row.rule_id}" if row.rule_id is not None else row.cause.partition(":")[0]
    return {"scope": row.object, "chassis": row.chassis_id, "drawer": row.drawer_id, "device": row.device_id,
            "port": row.port_id, "what": what}  # fmt: skip


def _rule_of(pk: int) -> Rule:
    row: Rule | None = Rule.objects.filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        raise NotFound("There is no such rule.")
    return row
