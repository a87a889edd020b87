"""The page of deployments: a request and the files generated from it."""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import Audience, MenuEntry, declare
from accounts.models import User
from benchmarks.deploy.deployment import Deployment, DeploymentRequestError
from benchmarks.deploy.fields import job_fields, request_of_fields
from benchmarks.deploy.services import deployment_create, tuning_create, visible_hosts, why_not_tunable
from benchmarks.deploy.short_form import EXAMPLE
from core.errors import Conflict, Forbidden, Invalid
from core.language import _

MODAK_EXAMPLE: Final = {
    "job": {
        "job_options": {
            "job_name": "bert-squad", "node_count": 1, "request_gpus": 2, "wall_time_limit": "12:00:00",
            "standard_output_file": "bert.out", "combine_stdout_stderr": True,
        },
        "target": {"job_scheduler_type": "slurm"},
        "application": {
            "app_tag": "bert-large", "app_type": "python", "executable": "python3 run_squad.py",
            "arguments": "--batch {batch} --precision {precision}",
        },
        "optimisation": {
            "enable_opt_build": True, "app_type": "ai_training",
            "app_type-ai_training": {
                "config": {"ai_framework": "pytorch"}, "ai_framework-pytorch": {"version": "2.4.0"},
            },
        },
    }
}  # fmt: skip


@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.DEPLOYMENT_MAKE, menu_entry=MenuEntry("Deployment", "Benchmarks", 6))
def deployment(request: HttpRequest) -> HttpResponse:
    """Show the form; POST `request`, or the fields of a job, shows the result.

    With `file` it sends one of its files; with `tune` it starts a sweep, whose best setting the shown request takes.
    """
    person = person_of(request)
    if request.method != "POST":
        return _render_page(request, person, {})
    text = request.POST["request"] if "request" in request.POST else request_of_fields(request.POST.dict())
    refusal = ""
    try:
        made = deployment_create(person, text)
        if "tune" in request.POST:
            made, refusal = _tuned(person, made, request.POST["tune"])
    except DeploymentRequestError as error:
        # Invalid JSON is not shown again: secrets in it cannot be recognised.
        found = {"errors": error.errors, "notes": error.notes, "request_text": error.request}
        return _render_page(request, person, found, status=400)
    if file := next((one for one in made.files if one.kind == request.POST.get("file", "")), None):
        headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
        return HttpResponse(file.text, content_type="text/plain; charset=utf-8", headers=headers)
    tuning = {"refusal": refusal or why_not_tunable(person, made), "key": uuid4().hex}
    return _render_page(
        request, person, {"made": made, "request_text": made.request, "notes": made.notes, "tuning": tuning}
    )


def _tuned(person: User, made: Deployment, key: str) -> tuple[Deployment, str]:
    """Return a deployment that its tuning belongs to; without one as it is, with the reason."""
    try:
        _sweep, text = tuning_create(person, made, idempotency_key=key)
    except (Conflict, Forbidden, Invalid) as error:
        return made, error.sentence
    return deployment_create(person, text), ""


def _render_page(request: HttpRequest, person: User, found: dict[str, Any], *, status: int = 200) -> HttpResponse:
    hosts = visible_hosts(person)
    example = EXAMPLE | ({"host": hosts[0][1]} if hosts else {})
    errors = found.get("errors", {})
    fields = job_fields(found.get("request_text", ""), errors, [name for _, name in hosts])
    is_json = "request" in request.POST  # what fields cannot say stays JSON
    at_fields = set() if is_json else {f"/{one.name}" for one in fields}
    context = {
        **found,
        "fields": fields,
        "is_json": is_json,
        "other_errors": {pointer: errors[pointer] for pointer in errors if pointer not in at_fields},
        "hosts": hosts,
        "examples": [
            (_("This site's own form"), json.dumps(example, indent=2)), ("MODAK", json.dumps(MODAK_EXAMPLE, indent=2)),
        ],
    }  # fmt: skip
    return render(request, "benchmarks/deploy/deploy.html", context, status=status)
