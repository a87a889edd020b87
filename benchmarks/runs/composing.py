"""The way of a run's devices to its host: a plan in the name of who asked, waited for."""

from __future__ import annotations

from typing import Final

import msgspec

from accounts.audit.services import together
from accounts.models import User
from benchmarks.runs.checks import executor_checked, place_checked, wanted_of
from benchmarks.runs.composition import Composition
from benchmarks.runs.models import Run
from benchmarks.runs.placing import topology_of
from benchmarks.runs.turn import RunFails, Turn
from fabric.models import Device, Plan
from fabric.permissions import refuse_onlooker
from fabric.plans import plan_lines
from fabric.services.jobs import plan_cancel
from fabric.services.plans import plan_apply, plan_create
from falconweb.errors import Conflict, FalconWebError, InUse, RuleViolation

ORIGIN: Final = "run"
# What stands in the way for a moment, such as an operation on a device, is waited for so long.
PATIENCE: Final = 60.0  # s
State = Run.State


def compose(turn: Turn) -> bool:
    """Bring a run's devices to its host as far as that goes now; tell whether there is more to do at once.

    Raises RunFails with what stands in the way.
    """
    run = turn.run
    if run.cancel_requested_at is not None:
        return _cancelled(turn)
    if run.plan is None:
        return _begun(turn)
    match run.plan.state:
        case Plan.State.DONE:
            return _composed(turn)
        case state if run.plan.is_active:
            turn.say(_progress(run.plan, back=state == Plan.State.ROLLING_BACK))
            return False
        case Plan.State.STOPPED:
            raise RunFails("compose", f"Its devices could not be attached: {run.plan.sentence}")
        case _:
            why = run.plan.sentence or f"their plan is '{run.plan.get_state_display().lower()}'."
            raise RunFails("compose", f"Its devices were not attached: {why}")


def person_of_run(run: Run) -> User:
    """Return who asked for a run; raises RunFails where they may run nothing any more."""
    person = run.requested_by
    if person is None or not person.is_active:
        raise RunFails("refused", f"{run.requested_by_name} has no account here any more.")
    if run.tenant_id is not None and person.tenant_id != run.tenant_id:
        raise RunFails("refused", f"{run.requested_by_name} left the tenant whose run this is.")
    return person


def person_allowed(run: Run) -> User:
    """Return who asked for a run, after one more look whether all may be had; raises RunFails where it may not."""
    spec = run.specification()
    person = person_of_run(run)
    try:
        refuse_onlooker(person, "run anything")
        composition = Composition.from_json(run.composition)
        host = place_checked(person, spec, composition)
        executor_checked(person, host, spec, composition, run.executor)
    except FalconWebError as error:
        raise RunFails("refused", error.sentence) from error
    return person


def _begun(turn: Turn) -> bool:
    """Look once more whether all may be had, and begin the plan where something must be attached."""
    run = turn.run
    composition = Composition.from_json(run.composition)
    person = person_allowed(run)
    there = dict(Device.objects.filter(pk__in=composition.devices).values_list("pk", "host_port"))
    if there == composition.devices:
        return _composed(turn)
    try:
        # A plan that cannot be applied leaves no draft behind.
        with together():
            plan = plan_create(person=person, wanted=wanted_of(composition), title=f"For {run.title}", origin=ORIGIN)
            plan = plan_apply(person=person, plan=plan, on_failure="roll_back", claimant=str(run.pk))
            turn.write(plan=plan, sentence="Its devices are being attached.")
    except (RuleViolation, InUse) as error:
        raise RunFails("compose", error.sentence) from error
    except Conflict as error:
        if turn.waits > PATIENCE:
            raise RunFails("compose", error.sentence) from error
        turn.say(f"Waits: {error.sentence}")
        return False
    except FalconWebError as error:
        raise RunFails("compose", error.sentence) from error
    return plan.state == Plan.State.DONE


def _composed(turn: Turn) -> bool:
    """Keep what it runs on, links as they are trained now, and go on."""
    topology = topology_of(Composition.from_json(turn.run.composition))
    turn.turn_to(State.STARTING, topology=msgspec.to_builtins(topology), sentence="Its host is asked to begin.")
    return True


def _cancelled(turn: Turn) -> bool:
    """End a run before it began on its host; what its plan has changed goes back."""
    run = turn.run
    plan = run.plan
    if plan is not None and plan.is_active:
        if plan.state in {Plan.State.RUNNING, Plan.State.RESUMING}:
            try:
                plan_cancel(person=None, plan=plan, roll_back=True)
            except Conflict:
                return False  # it has ended just now
        turn.say("It is being cancelled: its devices go back.")
        return False
    turn.ends(State.CANCELLED, sentence=f"{run.cancelled_by_name} cancelled it before it began.")
    return True


def _progress(plan: Plan, *, back: bool) -> str:
    progress = plan_lines([plan])[0].progress
    what = "Its devices go back" if back else "Its devices are being attached"
    return f"{what}: {progress.done} of {progress.total} steps are done."
