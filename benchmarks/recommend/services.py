"""Plans and runs from a recommendation: the values from a form or the API are validated again."""

from __future__ import annotations

from typing import Any

import msgspec

from accounts.models import User
from benchmarks.runs.models import Run
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.rules import Composition
from benchmarks.runs.services import run_create
from benchmarks.workloads.catalogue import workload_of
from benchmarks.workloads.validation import SpecError, validate_spec
from core.errors import Invalid
from core.language import _
from fabric.operations.models import Plan
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_create
from hostwire.training import Spec

PLAN_ORIGIN = "recommend"


def recommendation_plan_create(*, person: User, wanted: Any, title: str = "", idempotency_key: str = "") -> Plan:
    """Create a draft plan that composes a recommendation; raises as `plan_create`, Invalid without changes."""
    try:
        desired = DesiredState.from_json(wanted)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise Invalid(
            _("This is no allocation that a recommendation asked for."), errors={"wanted": str(error)}
        ) from error
    if desired.cables or desired.settings:
        raise Invalid(
            _("A recommendation moves no cables and sets no ports."), errors={"wanted": _("Attachments and modes.")}
        )
    if not desired.attachments and not desired.modes:
        raise Invalid(
            _("All of it is composed already: there is nothing to plan. Run it."), errors={"wanted": _("Empty.")}
        )
    return plan_create(person=person, desired=desired, title=title, origin=PLAN_ORIGIN, idempotency_key=idempotency_key)


def recommendation_run_create(
    *, person: User, spec: Any, composition: Any, executor: str, title: str = "", idempotency_key: str = ""
) -> Run:
    """Queue a run of a recommendation: a plan composes it, and its devices are restored after it.

    Raises as `run_create`, Invalid for a malformed specification or composition.
    """
    try:
        given = msgspec.convert(spec, Spec)
    except (msgspec.ValidationError, TypeError) as error:
        raise Invalid(_("This is no specification of a run."), errors={"spec": str(error)}) from error
    try:
        place = Composition.from_json(composition)
    except (msgspec.ValidationError, TypeError) as error:
        raise Invalid(_("This is no composition."), errors={"composition": str(error)}) from error
    try:
        checked = validate_spec(workload_of(given.workload), given)
    except SpecError as error:
        raise Invalid(str(error), errors=error.errors) from error
    except KeyError as error:
        raise Invalid(_("There is no such workload."), errors={"spec.workload": str(error)}) from error
    request = RunRequest(spec=checked, composition=place, executor=executor, title=title)
    return run_create(person=person, request=request, idempotency_key=idempotency_key)
