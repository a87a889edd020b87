"""Pages of recommendations: thin faces over the pool, the answer, plans and runs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit.exports import Download
from accounts.models import User
from accounts.sheets import lines
from benchmarks.recommend.acting import recommendation_plan, recommendation_run
from benchmarks.recommend.amounts import share
from benchmarks.recommend.answer import Answer, Line, recommend
from benchmarks.recommend.asking import asked_of
from benchmarks.recommend.bars import Bar, bars_of
from benchmarks.recommend.forms import RequestForm
from benchmarks.recommend.plain import COLUMNS, answer_rows, composition_of, words_of
from benchmarks.recommend.pool import Pool
from benchmarks.recommend.request import OBJECTIVES, UNITS
from benchmarks.recommend.selectors import pool_for, runs_known
from benchmarks.recommend.weighing import DRAWS
from benchmarks.runs.naming import strategy_words
from benchmarks.runs.placing import hosts_for
from benchmarks.workloads.catalogue import CATALOGUE
from falconweb.errors import FalconWebError, Invalid

LONGEST_BODY = 100_000


@require_GET
def recommend_page(request: HttpRequest) -> HttpResponse:
    """Show the form and, for what is asked for in the address, the answer."""
    person = person_of(request)
    pool = pool_for(person)
    form = RequestForm(request.GET, pool)
    context: dict[str, Any] = {"pool": pool, "free": _free(pool)}
    status = 200
    if form.is_asked:
        try:
            answer = recommend(pool, asked_of(form.plain(), pool), runs_known(person))
        except Invalid as error:
            form.refused(error)
            status = error.status
        else:
            context |= _shown(person, pool, answer)
    return render(request, "benchmarks/recommend/recommend.html", {**form.context(), **context}, status=status)


@require_GET
def recommend_csv(request: HttpRequest) -> HttpResponseBase:
    """Send the ranking as CSV; the address says what is asked, as that of the page."""
    person = person_of(request)
    pool = pool_for(person)
    answer = recommend(pool, asked_of(RequestForm(request.GET, pool).plain(), pool), runs_known(person))
    sent = Download(lines(COLUMNS, answer_rows(answer)), content_type="text/csv; charset=utf-8")
    sent["Content-Disposition"] = 'attachment; filename="recommendation.csv"'
    return sent


@require_POST
def recommend_plan(request: HttpRequest) -> HttpResponse:
    """Make a candidate a draft, and lead to it."""
    person = person_of(request)
    try:
        plan = recommendation_plan(person=person, wanted=_json(request, "wanted"), title=_title(request))
    except FalconWebError as error:
        return _refused(request, error)
    return redirect("fabric:plan", pk=plan.pk)


@require_POST
def recommend_run(request: HttpRequest) -> HttpResponse:
    """Ask for a run of a candidate, and lead to it."""
    person = person_of(request)
    try:
        run = recommendation_run(
            person=person,
            spec=_json(request, "spec"),
            composition=_json(request, "composition"),
            executor=request.POST.get("executor", ""),
            title=_title(request),
        )
    except FalconWebError as error:
        return _refused(request, error)
    return redirect("runs:run", pk=run.pk)


def _json(request: HttpRequest, name: str) -> Any:
    try:
        return json.loads(request.POST.get(name, "")[:LONGEST_BODY])
    except (ValueError, RecursionError) as error:
        raise Invalid("The form is not one that this page made. Go back and ask again.") from error


def _title(request: HttpRequest) -> str:
    return request.POST.get("title", "")[:200]


def _refused(request: HttpRequest, error: FalconWebError) -> HttpResponse:
    if error.status != 409:
        raise error
    messages.error(request, f"{error.sentence} Nothing was changed.")
    # What was asked is asked again: the answer is of what there is by now.
    asked = QueryDict(request.POST.get("asked", "")[:LONGEST_BODY]).urlencode()
    return redirect(f"{reverse('recommend:recommend')}{'?' if asked else ''}{asked}")


def _free(pool: Pool) -> dict[str, int]:
    devices = [one for one in pool.devices.values() if not one.is_storage]
    return {"chassis": len(devices), "own": pool.gpus - len(devices), "hosts": len(pool.hosts)}


def _shown(person: User, pool: Pool, answer: Answer) -> dict[str, Any]:
    """Return what the page tells of an answer."""
    executors = {host.id: host.executors for host in hosts_for(person)} if person.may_compose else {}
    bars = bars_of(answer)
    unit = UNITS[answer.asked.objective][0]
    deciding = answer.deciding
    return {
        "answer": answer,
        "rows": [_row(pool, answer, line, bar, executors) for line, bar in zip(answer.lines, bars, strict=True)],
        "deciding": _row(pool, answer, deciding.line, None, executors) if deciding is not None else None,
        "unit": unit,
        "heading": OBJECTIVES[answer.asked.objective],
        "samples_asked": answer.asked.samples,
        "unit_of_work": CATALOGUE[answer.asked.spec.workload].samples,
    }


def _row(
    pool: Pool, answer: Answer, line: Line, bar: Bar | None, executors: dict[int, tuple[str, ...]]
) -> dict[str, Any]:
    layout = line.candidate.layout
    wanted = layout.wanted(pool)
    return {
        "line": line,
        "words": words_of(answer, line.objective),
        "bar": bar,
        "probability": share(line.probability) if line.probability else f"under {share(1 / DRAWS)}",
        "near": share(line.near),
        "regret": share(line.regret),
        "spec": line.candidate.spec,
        "software": _software(line),
        "is_composed": not wanted.attachments and not wanted.modes,
        # A run attaches devices and gives them back; the mode of a drawer is changed by a plan alone.
        "needs_plan": bool(wanted.modes),
        "wanted": json.dumps(wanted.as_json()),
        "spec_json": msgspec.json.encode(line.candidate.spec).decode(),
        "composition_json": json.dumps(composition_of(pool, line).as_json()),
        "executors": executors.get(layout.host.id, ()),
        "title": f"{CATALOGUE[line.candidate.spec.workload].title} as recommended: {line.words}"[:200],
    }


def _software(line: Line) -> str:
    spec = line.candidate.spec
    strategy = "" if spec.devices == 1 else f", {strategy_words(spec.strategy)}"
    return f"{spec.precision.upper()}{strategy}, batch {spec.batch} a GPU"
