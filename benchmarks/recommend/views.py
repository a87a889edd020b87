"""Pages of recommendations: thin layers over the pool, the answer, plans and runs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import translation
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.recommend.answer import RankedCandidate, Recommendation, recommend
from benchmarks.recommend.chart import parts_bar, throughput_chart
from benchmarks.recommend.cost_reasons import ENERGY_PARTS, TIME_PARTS
from benchmarks.recommend.explanation import format_duration, format_energy, format_share
from benchmarks.recommend.forms import RecommendationForm
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.ranking import DRAW_COUNT
from benchmarks.recommend.reports import (
    CSV_COLUMNS,
    amount_text,
    candidate_composition,
    candidate_title,
    recommendation_rows,
)
from benchmarks.recommend.request import OBJECTIVE_LABELS, OBJECTIVE_UNITS, parse_recommendation_request
from benchmarks.recommend.selectors import recommendation_pool
from benchmarks.recommend.services import recommendation_plan_create, recommendation_run_create
from benchmarks.runs.choices import host_choices
from benchmarks.runs.results import observations
from benchmarks.workloads.catalogue import CATALOGUE
from core.downloads import csv_download, csv_table
from core.errors import FalconWebError, Invalid
from core.language import SOURCE_LANGUAGE, _, _n, joined

MAX_BODY_LENGTH = 100_000


@require_GET
@declare(
    Audience.EVERYBODY,
    menu_entry=MenuEntry("Recommendation", "Benchmarks", 5),
    tested_queries=("workload=resnet50&preset=paper",),
)
def recommend_page(request: HttpRequest) -> HttpResponse:
    """Show the form and, for the request in the URL, the answer."""
    person = person_of(request)
    pool = recommendation_pool(person)
    form = RecommendationForm(request.GET, pool)
    context: dict[str, Any] = {"pool": pool, "free": _free_counts(pool)}
    status = 200
    if form.is_submitted:
        try:
            answer = _answer(person, form)
        except Invalid as error:
            form.add_errors(error)
            status = error.status
        else:
            context |= _recommendation_context(person, pool, answer)
    return render(request, "benchmarks/recommend/recommend.html", {**form.context(), **context}, status=status)


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def recommend_csv(request: HttpRequest) -> HttpResponseBase:
    """Send the ranking as CSV; the request is in the URL, as on the page."""
    person = person_of(request)
    form = RecommendationForm(request.GET, recommendation_pool(person))
    asked = parse_recommendation_request(form.plain(), form.pool)
    with translation.override(SOURCE_LANGUAGE):
        answer = recommend(form.pool, asked, observations(person))
    return csv_download(csv_table(CSV_COLUMNS, recommendation_rows(answer)), "recommendation.csv")


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.PLAN_CREATE)
def recommend_plan(request: HttpRequest) -> HttpResponse:
    """Create a draft from a candidate and redirect to it."""
    person = person_of(request)
    try:
        wanted = _posted_json(request, "wanted")
        plan = recommendation_plan_create(person=person, wanted=wanted, title=request.POST.get("title", "")[:200])
    except FalconWebError as error:
        return _redirect_with_error(request, error)
    return redirect("fabric:plan", pk=plan.pk)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.RUN_CREATE)
def recommend_run(request: HttpRequest) -> HttpResponse:
    """Request a run of a candidate and redirect to it."""
    person = person_of(request)
    try:
        run = recommendation_run_create(
            person=person,
            spec=_posted_json(request, "spec"),
            composition=_posted_json(request, "composition"),
            executor=request.POST.get("executor", ""),
            title=request.POST.get("title", "")[:200],
        )
    except FalconWebError as error:
        return _redirect_with_error(request, error)
    return redirect("runs:run", pk=run.pk)


def _answer(person: User, form: RecommendationForm) -> Recommendation:
    return recommend(form.pool, parse_recommendation_request(form.plain(), form.pool), observations(person))


def _posted_json(request: HttpRequest, name: str) -> Any:
    try:
        return json.loads(request.POST.get(name, "")[:MAX_BODY_LENGTH])
    except (ValueError, RecursionError) as error:
        raise Invalid(_("This form is invalid. Go back and request it again.")) from error


def _redirect_with_error(request: HttpRequest, error: FalconWebError) -> HttpResponse:
    if error.status != 409:
        raise error
    messages.error(request, joined([error.sentence, _("Nothing was changed.")]))
    # The request is repeated: the answer reflects the current state.
    query = QueryDict(request.POST.get("asked", "")[:MAX_BODY_LENGTH]).urlencode()
    return redirect(f"{reverse('recommend:recommend')}{'?' if query else ''}{query}")


def _free_counts(pool: RecommendationPool) -> dict[str, int | str]:
    devices = [one for one in pool.devices.values() if not one.is_storage]
    return {
        "chassis": len(devices),
        "own_words": _n("{count} GPU", "{count} GPUs", pool.gpus - len(devices)),
        "hosts_words": _n("{count} host", "{count} hosts", len(pool.hosts)),
    }


def _recommendation_context(person: User, pool: RecommendationPool, answer: Recommendation) -> dict[str, Any]:
    executors = {host.id: host.executors for host in host_choices(person)} if person.may_compose else {}
    unit = OBJECTIVE_UNITS[answer.request.objective][0]
    deciding = answer.deciding
    return {
        "answer": answer,
        "chart": throughput_chart(answer.lines),
        "rows": [_candidate_row(pool, answer, line, executors) for line in answer.lines],
        "deciding": _candidate_row(pool, answer, deciding.line, executors) if deciding is not None else None,
        "unit": unit,
        "heading": _(OBJECTIVE_LABELS[answer.request.objective]),
        "samples_asked": answer.request.samples,
        "unit_of_work": _(CATALOGUE[answer.request.spec.workload].samples),
    }


def _candidate_row(
    pool: RecommendationPool,
    answer: Recommendation,
    line: RankedCandidate,
    executors: dict[int, tuple[str, ...]],
) -> dict[str, Any]:
    layout = line.candidate.layout
    wanted = layout.desired_state(pool)
    return {
        "line": line,
        "words": amount_text(answer, line.objective),
        "probability": format_share(line.probability)
        if line.probability
        else _("under {share}", share=format_share(1 / DRAW_COUNT)),
        "near": format_share(line.near),
        "regret": format_share(line.regret),
        "time": parts_bar(line.spent, TIME_PARTS, format_duration),
        "energy": parts_bar(line.energy, ENERGY_PARTS, partial(format_energy, whole=line.joules.value)),
        "seconds": format_duration(line.seconds.value),
        "joules": format_energy(line.joules.value),
        "is_composed": not wanted.attachments and not wanted.modes,
        # A run attaches devices and returns them; only a plan changes the mode of a drawer.
        "needs_plan": bool(wanted.modes),
        "wanted": json.dumps(wanted.as_json()),
        "spec_json": msgspec.json.encode(line.candidate.spec).decode(),
        "composition_json": json.dumps(candidate_composition(pool, line).as_json()),
        "executors": executors.get(layout.host.id, ()),
        "title": candidate_title(line),
    }
