"""Plans that attach a run's devices to its host and restore them afterwards."""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from django.utils import timezone

from accounts.access import require_composer
from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_batch, audit_record, target_of
from accounts.models import User
from benchmarks.runs.claims import RunClaim, RunFailed
from benchmarks.runs.models import Run
from benchmarks.runs.requests import desired_state, refuse_unapproved, validate_trainers, validated_hosts
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import composition_topology
from core.errors import Conflict, FalconWebError, Forbidden, InUse, NotFound, RuleViolation
from core.failpoints import failpoint
from core.language import english
from fabric.inventory.models import Device
from fabric.operations.models import Plan
from fabric.plans.jobs import plan_cancel
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import plan_summaries
from fabric.plans.services import plan_apply, plan_create, rollback_state
from telemetry.events.services import event_record

logger = logging.getLogger(__name__)

PLAN_ORIGIN: Final = "run"
# A temporary conflict, such as an operation on a device, or a device in use, is retried for this time.
ATTACH_RETRY_SECONDS: Final = 60.0
RESTORE_RETRY_SECONDS: Final = 90.0
State = Run.State


def attach_devices(claim: RunClaim) -> bool:
    """Take the next step of attaching a run's devices; return whether another step can follow immediately.

    Raises RunFailed with the conflict.
    """
    run = claim.run
    if run.cancel_requested_at is not None:
        return _cancel_attachment(claim)
    if run.plan is None:
        return _start_plan(claim)
    match run.plan.state:
        case Plan.State.DONE:
            return _record_topology(claim)
        case state if run.plan.is_active:
            progress = plan_summaries([run.plan])[0].progress
            activity = "returned" if state == Plan.State.ROLLING_BACK else "attached"
            claim.set_sentence(f"Its devices are being {activity}: {progress.done} of {progress.total} steps are done.")
            return False
        case Plan.State.STOPPED:
            raise RunFailed("compose", f"Its devices could not be attached: {run.plan.sentence}")
        case _:
            why = run.plan.sentence or f"their plan is '{run.plan.get_state_display().lower()}'."
            raise RunFailed("compose", f"Its devices were not attached: {why}")


def authorise_requester(run: Run) -> User:
    """Check again that the requester may use the host and devices, and return them; raises RunFailed otherwise."""
    person = run.requested_by
    if person is None or not person.is_active:
        raise RunFailed("refused", f"{run.requested_by_name} no longer has an account here.")
    if run.tenant_id is not None and person.tenant_id != run.tenant_id:
        raise RunFailed("refused", f"{run.requested_by_name} left the tenant of this run.")
    spec = run.specification()
    try:
        require_composer(person, "run anything")
        composition = Composition.from_json(run.composition)
        validate_trainers(person, validated_hosts(person, spec, composition), spec, composition, run.executor)
    except FalconWebError as error:
        raise RunFailed("refused", error.sentence) from error
    return person


def _start_plan(claim: RunClaim) -> bool:
    run = claim.run
    composition = Composition.from_json(run.composition)
    person = authorise_requester(run)
    there = dict(Device.objects.filter(pk__in=composition.all_devices).values_list("pk", "host_port"))
    if there == composition.all_devices:
        return _record_topology(claim)
    try:
        refuse_unapproved(person, desired_state(composition))
        # The batch is one transaction: a plan that cannot be applied leaves no draft.
        with audit_batch():
            plan = plan_create(
                person=person, desired=desired_state(composition), title=f"For {run.title}", origin=PLAN_ORIGIN
            )
            plan = plan_apply(person=person, plan=plan, on_failure="roll_back", claimant=str(run.pk))
            claim.write(plan=plan, sentence="Its devices are being attached.")
            failpoint("run.attaching.uncommitted")
        failpoint("run.attaching")
    except FalconWebError as error:
        is_temporary = isinstance(error, Conflict) and not isinstance(error, RuleViolation | InUse)
        if not is_temporary or claim.seconds_in_state > ATTACH_RETRY_SECONDS:
            raise RunFailed("compose", error.sentence) from error
        claim.set_sentence(f"Waiting: {error.sentence}")
        return False
    return plan.state == Plan.State.DONE


def _record_topology(claim: RunClaim) -> bool:
    topology = composition_topology(Composition.from_json(claim.run.composition))
    claim.transition(State.STARTING, topology=msgspec.to_builtins(topology), sentence="Its host is starting it.")
    return True


def _cancel_attachment(claim: RunClaim) -> bool:
    """Cancel a run before its host starts it, and roll its plan back."""
    run = claim.run
    plan = run.plan
    if plan is not None and plan.is_active:
        if plan.state in {Plan.State.RUNNING, Plan.State.RESUMING}:
            try:
                plan_cancel(person=None, plan=plan, roll_back=True)
            except Conflict:
                return False  # it has ended just now
        claim.set_sentence("It is being cancelled: its devices are being returned.")
        return False
    claim.record_outcome(State.CANCELLED, sentence=f"{run.cancelled_by_name} cancelled it before it started.")
    return True


def devices_to_restore(run: Run) -> DesiredState:
    """Return the original attachments of devices that are still where the run's plan attached them.

    The others were moved or reassigned since by somebody else. Empty if the devices stay attached or were restored
    already: a later run may use them at the same port.
    """
    plan, back = run.plan, run.plan_back
    if plan is None or run.keep_composed or plan.state == Plan.State.DRAFT:
        return DesiredState()
    if back is not None and back.state == Plan.State.DONE:
        return DesiredState()
    attached = DesiredState.from_json(plan.wanted).attachments
    places = rollback_state(plan).attachments
    rows = Device.objects.filter(pk__in=places, missing_since=None)
    if run.tenant_id is not None:
        rows = rows.filter(tenant=run.tenant_id)
    there = dict(rows.values_list("pk", "host_port"))
    return DesiredState(
        attachments={
            pk: to for pk, to in places.items() if pk in there and there[pk] == attached.get(pk) and to != there[pk]
        }
    )


def restore_devices(claim: RunClaim) -> bool:
    """Take the next step of restoring a run's devices; return whether another step can follow immediately."""
    run = claim.run
    if run.plan is not None and run.plan.is_active:
        claim.set_sentence("Waiting for the plan that attaches its devices.")
        return False
    back = run.plan_back
    if back is not None and back.is_active:
        claim.set_sentence("Its devices are being returned.")
        return False
    desired = devices_to_restore(run)
    if not desired.attachments:
        return _finish_run(claim, "")
    if back is not None and back.state in {Plan.State.STOPPED, *Plan.FINAL}:
        return _finish_run(claim, back.sentence or "the plan that restores them ended without success.")
    try:
        with audit_batch():
            plan = _restore_plan(run, desired)
            claim.write(plan_back=plan, sentence="Its devices are being returned.")
            failpoint("run.restoring.uncommitted")
        failpoint("run.restoring")
    except FalconWebError as error:
        if claim.seconds_in_state > RESTORE_RETRY_SECONDS:
            return _finish_run(claim, error.sentence)
        claim.set_sentence(f"Its devices are not back yet: {error.sentence}")
        return False
    return plan.state == Plan.State.DONE


def _restore_plan(run: Run, desired: DesiredState) -> Plan:
    """Apply a plan that restores devices: as the requester, or as the site if they are no longer permitted."""
    title = f"After {run.title}"
    person: User | None = run.requested_by
    if person is not None:
        try:
            with audit_batch():
                plan = plan_create(person=person, desired=desired, title=title, origin="undo")
                return plan_apply(person=person, plan=plan, claimant=str(run.pk))
        except (Forbidden, NotFound) as error:
            logger.info("run %s: the site restores its devices: %s", run.pk, error)
    plan = plan_create(person=None, desired=desired, title=title, origin="undo")
    return plan_apply(person=None, plan=plan)


def _finish_run(claim: RunClaim, why_not_back: str) -> bool:
    """End a run; `why_not_back` is the reason why its devices were not restored, '' if they were."""
    run = claim.run
    sentence = ""
    if run.keep_composed and run.plan is not None:
        sentence = "Its devices stay with its sweep." if run.sweep_id else "Its devices stay attached, as requested."
    if why_not_back:
        sentence = f"Its devices were not returned: {why_not_back}"
    with audit_batch():
        run.holds.all().delete()
        claim.transition(
            State(run.outcome or State.FAILED),
            finished_at=timezone.now(),
            sentence=sentence,
            lease_until=None,
            worker="",
        )
        audit_record(
            action=Action.RUN_END,
            actor=run.requested_by,
            target=target_of(run, run.title),
            after={"state": run.state},
            outcome=Outcome.FAILED if run.state == State.FAILED else Outcome.DONE,
            sentence=" ".join(one for one in (run.error, sentence) if one),
            request_id=run.request_id,
        )
        _record_end_event(run, sentence, went_well=run.state != State.FAILED and not why_not_back)
        failpoint("run.finished.uncommitted")
    failpoint("run.finished")
    return False


def _record_end_event(run: Run, sentence: str, *, went_well: bool) -> None:
    state = english(run.get_state_display())
    event_record(
        source="site",
        message_id=f"FalconWeb.1.0.Run{state if went_well else 'Failed'}",
        severity="OK" if went_well else "Warning",
        text=" ".join(one for one in (f"{run.title}: {state.lower()}.", run.error, sentence) if one),
        at=timezone.now(),
        key=f"run/{run.pk}/{run.state_since.timestamp()}",
        host_id=run.host_id,
        tenant_id=run.tenant_id,
        subject_name=run.title,
        link=f"/benchmarks/runs/{run.pk}/",
        person_id=run.requested_by_id,
        person_name=run.requested_by_name,
    )
