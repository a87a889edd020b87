"""A plan that is being applied: it advances by itself, stops at a failure, and is cancelled, resumed or rolled back.

The remaining steps are never stored, but replanned from the state of the hardware, for a resume and for a rollback
alike. So a job survives the death of any process, and nothing is done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.access import actor_name
from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal, two_people
from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record, audited, target_of
from accounts.models import User
from core.claims import RowClaim
from core.database import DATABASE_UNAVAILABLE
from core.enqueue import enqueue
from core.errors import Conflict, FalconWebError
from core.failpoints import failpoint
from core.language import _, english, gettext_noop
from fabric.inventory.labels import host_port_name, redact_address, slot_label
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import projected_drawers
from fabric.operations.selectors import attachment_obstacle
from fabric.plans.permissions import check_no_foreign_parts, check_own_plan
from fabric.plans.refresh import refresh_allocation
from fabric.plans.rules import DesiredState, PlanStep
from fabric.plans.selectors import course_proposal, desired_dangers
from fabric.plans.serialization import base_state_json, replaced_devices
from fabric.plans.services import (
    involved_drawers,
    lock_plan,
    operations_create,
    pending_operation,
    rollback_state,
    steps_plan,
)
from fabric.signals import operation_changed, plan_changed

logger = logging.getLogger(__name__)

PLANNING_RENEW_SECONDS = 3.0
PLANNED_STATES = (Plan.State.RESUMING, Plan.State.ROLLING_BACK)


class PlanningClaim(RowClaim[Plan]):
    """A worker's claim on the planning of a resume or rollback; planned twice, the second one is dropped."""

    duration = timedelta(seconds=10)
    until_column = "planning_until"
    worker_column = ""


PlanningClaim.watch(Plan.objects.active)


def cancel_proposal(*, person: User, plan: Plan, roll_back: bool = False) -> Proposal:
    """Return what a rollback would do. One's own needs no second person, who would come too late."""
    of_tenant = roll_back and person.is_administrator and plan.tenant_id is not None
    return course_proposal(plan, [Danger.TENANT] if of_tenant else [], "Roll back")


def resume_proposal(*, person: User, plan: Plan) -> Proposal:
    """Return what the rest of a stopped plan would do."""
    return course_proposal(plan, desired_dangers(person, DesiredState.from_json(plan.wanted)), "Resume")


@two_people(cancel_proposal)
def plan_cancel(*, person: User | None, plan: Plan, roll_back: bool = False) -> Plan:
    """Start no further step of a running plan, and cancel running ones where possible; then roll back if requested.

    A stopped plan stays as it is, or is rolled back. Raises NotFound, Forbidden, and Conflict where it has ended.
    """
    with audited(Action.PLAN_CANCEL, actor=person, target=target_of(plan)) as act:
        row = _locked_with_chassis(person, plan)
        act.before = {"state": row.state}
        if row.state == Plan.State.STOPPED:
            _set_state(row, person, Plan.State.ROLLING_BACK if roll_back else Plan.State.LEFT)
        elif row.state in {Plan.State.RUNNING, Plan.State.RESUMING, Plan.State.CANCELLING}:
            _cancel_rest(row, f"Not started: {actor_name(person)} cancelled the plan.")
            _open(row).filter(cancel_requested_at=None).update(cancel_requested_at=timezone.now())
            row.then = "roll_back" if roll_back else ""
            _set_state(row, person, Plan.State.CANCELLING, new_round=False)
        elif row.state == Plan.State.ROLLING_BACK:
            raise Conflict(_("It is being rolled back already."))
        else:
            state = row.get_state_display()
            raise Conflict(_("The plan is '{state}': there is nothing to cancel.", state=state))
        act.after = {"state": row.state, "roll_back": roll_back}
        failpoint("plan.cancelled.uncommitted")
    _advance_soon(row)
    return row


@two_people(resume_proposal)
def plan_resume(*, person: User | None, plan: Plan) -> Plan:
    """Resume a stopped plan: failed steps are retried, then the rest. Raises as `plan_cancel` does."""
    with audited(Action.PLAN_RESUME, actor=person, target=target_of(plan)) as act:
        row = _locked_with_chassis(person, plan)
        act.before = {"state": row.state}
        if row.state != Plan.State.STOPPED:
            state = row.get_state_display()
            raise Conflict(_("The plan is '{state}': only one that stopped can be resumed.", state=state))
        _set_state(row, person, Plan.State.RESUMING)
        act.after = {"state": row.state}
    _advance_soon(row)
    return row


def plan_step_failed(operation: Operation) -> None:
    """Stop the plan of a failed step; to be called in the transaction that ends the step."""
    if operation.plan is None:
        return
    lock_chassis(_chassis_of(operation.plan))
    plan = lock_plan(operation.plan.pk)
    _cancel_rest(plan, f"Not started: '{operation.summary}' failed before it."[:500])
    failpoint("plan.step.failed.uncommitted")


def plan_advance(plan_id: UUID | str, *, before_reading: Callable[[], None] | None = None) -> None:
    """Advance a plan one of whose steps has ended, or whose resume or rollback is to be planned.

    Safe to call at any time, also concurrently. A BMC that cannot be read stops the plan with a sentence;
    `before_reading` is called before it is read.
    """
    failpoint("plan.advance")
    with transaction.atomic():
        plan = lock_plan(plan_id)
        if not plan.is_active or _open(plan).exists():
            return
        changed = _settle(plan)
        claim = PlanningClaim.take(Plan.objects.filter(state__in=PLANNED_STATES), plan.pk)
        failpoint("plan.settled.uncommitted")
    failpoint("plan.settled")
    if changed:
        plan_changed.send(Plan, plan=plan)
    if claim is None:
        return
    try:
        if before_reading is not None:
            before_reading()
        _replan(claim)
    except FalconWebError as error:
        _stop(plan, english(error.sentence))
    except DATABASE_UNAVAILABLE:
        logger.exception("plan %s waits for the database", plan.pk)  # beat retries
        raise
    except Exception:
        logger.exception("plan %s", plan.pk)
        _stop(plan, gettext_noop("An error of the site stopped it; see the log of the worker."))
    finally:
        claim.release()


async def _read_hardware(claim: PlanningClaim, chassis: Iterable[Chassis], desired: DesiredState) -> None:
    """Read the state of these chassis from their BMCs, and renew the claim meanwhile."""
    async with claim.keep_renewed(PLANNING_RENEW_SECONDS):
        for row in chassis:
            await refresh_allocation(row, desired)


def plan_without_steps(ended: Operation) -> str | None:
    """Return the id of the plan that an operation is a step of, where it is to be advanced: no step of it is open."""
    # Of two steps that end at the same moment, the later one sees that the other has ended.
    if ended.plan_id is None or Operation.objects.open().filter(plan=ended.plan_id).exists():
        return None
    return str(ended.plan_id)


def idle_plans() -> list[str]:
    """Return the ids of plans to advance that have no open operation: the worker that should have done it is dead."""
    idle = Plan.objects.active().exclude(operations__in=Operation.objects.open())
    return [str(pk) for pk in idle.values_list("pk", flat=True)]


def _settle(plan: Plan) -> bool:
    """Set the state of a plan that has no open operation; return whether it has changed."""
    ended = plan.operations.filter(round=plan.round)
    failed = ended.filter(state=Operation.State.FAILED).in_turn().first()
    before = plan.state
    match plan.state:
        case Plan.State.RUNNING if failed is None:
            plan.state = Plan.State.DONE
        case Plan.State.RUNNING if plan.on_failure == "roll_back":
            plan.state, plan.round = Plan.State.ROLLING_BACK, plan.round + 1
            plan.sentence = _failure_sentence(failed)
        case Plan.State.RUNNING:
            plan.state, plan.sentence = Plan.State.STOPPED, _failure_sentence(failed)
        case Plan.State.CANCELLING if plan.then == "roll_back":
            plan.state, plan.round, plan.then = Plan.State.ROLLING_BACK, plan.round + 1, ""
        case Plan.State.CANCELLING:
            plan.state = Plan.State.CANCELLED
        case Plan.State.ROLLING_BACK if failed is not None:
            plan.state, plan.sentence = Plan.State.STOPPED, f"During the rollback: {_failure_sentence(failed)}"
    if plan.state == before:
        return False
    if plan.is_final:
        plan.finished_at = timezone.now()
    plan.save(update_fields=["state", "round", "then", "sentence", "finished_at"])
    if plan.is_final or plan.state == Plan.State.STOPPED:
        _record_end(plan)
    return True


def _replan(claim: PlanningClaim) -> None:
    """Read the hardware, then create the operations of the resume or rollback from that state.

    A finished rollback is checked in the same way: it has ended when the hardware needs no further step.
    """
    plan = claim.row
    back = plan.state == Plan.State.ROLLING_BACK
    desired = rollback_state(plan) if back else DesiredState.from_json(plan.wanted)
    chassis = _chassis_of(plan)
    asyncio.run(_read_hardware(claim, list(Chassis.objects.filter(pk__in=chassis).order_by("pk")), desired))
    failpoint("plan.read")
    with transaction.atomic():
        lock_chassis(chassis)
        row = lock_plan(plan.pk)
        if (row.state, row.round) != (plan.state, plan.round) or _open(row).exists():
            return  # another worker was faster, or the plan was cancelled
        drawers = involved_drawers(projected_drawers(chassis), desired)
        attached = {device.id: device.attached for one in drawers for device in one.devices}
        _check_not_moved(row, {pk: place for pk, place in attached.items() if pk in desired.attachments})
        _check_not_replaced(row, desired, base_state_json(drawers))
        planned = steps_plan(drawers, desired)
        check_no_foreign_parts(row.tenant, planned)
        if planned.objections:
            raise Conflict(planned.objections[0].sentence)
        _check_not_returning(row, planned.steps)
        steps = planned.steps if back else (*planned.steps, *_retry_steps(row, planned.steps, desired, attached))
        if steps:
            _check_not_undone(row, planned.steps)
            row.state = Plan.State.ROLLING_BACK if back else Plan.State.RUNNING
        elif (other := pending_operation(desired, planned.steps)) is not None:
            # The planned state assumes that this operation succeeds; it may fail, so replan after it has ended.
            is_own = other.device is None or row.tenant_id in {None, other.device.tenant_id}
            what = f"'{other.summary}'" if is_own else "another operation"
            if not back:  # the sentence of a rollback is its reason
                Plan.objects.filter(pk=row.pk).update(sentence=f"It waits for the end of {what}.")
            return
        else:
            row.state = Plan.State.ROLLED_BACK if back else Plan.State.DONE
            row.finished_at = timezone.now()
        row.sentence = row.sentence if back else ""
        row.save(update_fields=["state", "sentence", "finished_at"])
        operations_create(row, steps, is_rollback=back)
        if row.is_final:
            _record_end(row)
        failpoint("plan.replanned.uncommitted")
        transaction.on_commit(lambda: plan_changed.send(Plan, plan=row), robust=True)
    failpoint("plan.replanned")


def _retry_steps(
    plan: Plan, steps: Collection[PlanStep], desired: DesiredState, attached: Mapping[int, int | None]
) -> Iterator[PlanStep]:
    """Return steps that repeat failed ones although the desired state is reached: the link or the host's view failed.

    A device is detached and reattached, a port configured with its present values: either retrains the link.
    """
    planned = {_subject(step) for step in steps}
    newest = {_subject(one): one for one in plan.operations.filter(is_rollback=False, attempts__gt=0).in_turn()}
    failed = [one for one in newest.values() if one.state == Operation.State.FAILED and _subject(one) not in planned]
    for position, one in enumerate(failed, start=len(steps)):
        step = PlanStep(position=position, kind="move", chassis=one.chassis_id, drawer=one.drawer_id)
        if one.kind == Operation.Kind.PORT and one.port_id in desired.settings:
            yield replace(step, kind="port", port=one.port_id, setting=desired.settings[one.port_id])
            continue
        place = desired.attachments.get(one.device_id or 0)
        if place is not None and attached.get(one.device_id or 0) == place:
            yield replace(step, device=one.device_id, source=place, target=place)


def _check_not_replaced(plan: Plan, desired: DesiredState, now: Mapping[str, Any]) -> None:
    """Raise Conflict where a slot has another device than when the plan was made."""
    for pk in replaced_devices(plan.base, now):
        if pk in desired.attachments:
            device = Device.objects.select_related("slot__drawer").get(pk=pk)
            raise Conflict(f"There is another device in {slot_label(device) or device.uri} by now. Replan.")


def _check_not_moved(plan: Plan, attached: dict[int, int | None]) -> None:
    """Raise Conflict where a device of the plan is neither at its old or desired host port, nor detached."""
    desired, before = DesiredState.from_json(plan.wanted), DesiredState.from_json(plan.base)
    elsewhere = {
        pk: attached[pk]
        for pk, target in desired.attachments.items()
        if pk in attached and attached[pk] not in {target, before.attachments.get(pk), None}
    }
    if not elsewhere:
        return
    pk, place = next(iter(elsewhere.items()))
    # The sentence is read by the plan's tenant, whoever resumed it.
    port = HostPort.objects.select_related("host").filter(pk=place or 0).first()
    # Plans that the site applies for a lease are read by its tenant, too.
    is_seen = port is not None and not plan.by_site and plan.tenant_id in {None, port.tenant_id}
    device = plan.operations.filter(device=pk).select_related("device").first()
    name = device.device.name if device is not None and device.device is not None else "A device"
    where = host_port_name(port) if is_seen else "another host"
    raise Conflict(f"{name} was moved to {where} by somebody else meanwhile. Replan.")


def _check_not_returning(plan: Plan, steps: Collection[PlanStep]) -> None:
    """Raise Conflict where a member would reattach a device that is being returned to the pool."""
    targets = {step.device: step.target for step in steps if step.device is not None and step.target is not None}
    if plan.acting is not None and (reason := attachment_obstacle(plan.acting, list(targets), list(targets.values()))):
        raise Conflict(reason)


def _check_not_undone(plan: Plan, steps: Collection[PlanStep]) -> None:
    """Raise Conflict where a step of this round was done already: its result was changed since."""
    done = {_subject(one): one.summary for one in plan.operations.filter(round=plan.round, state=Operation.State.DONE)}
    for step in steps:
        summary = done.get(_subject(step))
        if summary is not None and not step.interrupts:
            raise Conflict(f"'{summary}' was done, but somebody else has changed it since.")


def _subject(one: Operation | PlanStep) -> tuple[int | None, int | None, int | None]:
    """Return what a step changes: a device, the mode of a drawer, or the setting of a port."""
    if isinstance(one, PlanStep):
        return one.device, one.drawer if one.mode else None, one.port
    return one.device_id, one.drawer_id if one.mode else None, one.port_id


def _chassis_of(plan: Plan) -> Collection[int]:
    desired = DesiredState.from_json(plan.wanted)
    known = set(plan.operations.values_list("chassis", flat=True))
    drawers = Drawer.objects.filter(pk__in=desired.modes).values_list("chassis", flat=True)
    host_ports = HostPort.objects.filter(pk__in=desired.cables).values_list("chassis", flat=True)
    # Parts that are in the desired state already have no operation, and may be in a chassis of their own.
    devices = Device.objects.filter(pk__in=desired.attachments).values_list("chassis", flat=True)
    ports = Port.objects.filter(pk__in=desired.settings).values_list("chassis", flat=True)
    return known.union(drawers, host_ports, devices, ports)


def _stop(plan: Plan, sentence: str) -> None:
    with transaction.atomic():
        row = lock_plan(plan.pk)
        if (row.state, row.round) != (plan.state, plan.round) or _open(row).exists():
            return
        back = row.state == Plan.State.ROLLING_BACK
        row.state = Plan.State.STOPPED
        for chassis in Chassis.objects.filter(pk__in=_chassis_of(row)):
            sentence = redact_address(sentence, chassis)
        row.sentence = f"{'The rollback' if back else 'The rest'} could not be planned: {sentence}"
        row.save(update_fields=["state", "sentence"])
        _record_end(row)
        transaction.on_commit(lambda: plan_changed.send(Plan, plan=row), robust=True)


def _locked_with_chassis(person: User | None, plan: Plan) -> Plan:
    check_own_plan(person, plan)
    # A worker claims a step under the chassis' lock: while it is locked, no further step starts.
    lock_chassis(_chassis_of(plan))
    return lock_plan(plan.pk)


def _set_state(plan: Plan, person: User | None, state: Plan.State, *, new_round: bool = True) -> None:
    plan.state = state
    plan.round += 1 if new_round else 0
    plan.acting, plan.acting_name = person, actor_name(person)
    plan.finished_at = timezone.now() if plan.is_final else None
    plan.save(update_fields=["state", "round", "then", "acting", "acting_name", "finished_at"])
    transaction.on_commit(lambda: plan_changed.send(Plan, plan=plan), robust=True)


def _cancel_rest(plan: Plan, sentence: str) -> None:
    """Cancel the operations of a plan that no worker has claimed."""
    rest = list(_open(plan).filter(state=Operation.State.REQUESTED, lease_until=None).select_related("chassis"))
    now = timezone.now()
    for operation in rest:
        operation.state, operation.error, operation.finished_at = Operation.State.CANCELLED, sentence, now
        operation.steps = [{**step, "state": "skipped"} for step in operation.steps]
    Operation.objects.bulk_update(rest, ["state", "error", "finished_at", "steps"])
    for operation in {operation.chassis_id: operation for operation in rest}.values():
        transaction.on_commit(partial(operation_changed.send, Operation, operation=operation), robust=True)


def _open(plan: Plan) -> QuerySet[Operation]:
    return Operation.objects.open().filter(plan=plan)


def _record_end(plan: Plan) -> None:
    """Write the audit entry of a plan that ended or stopped; as the last statement of a transaction."""
    audit_record(
        action=Action.PLAN_END,
        actor=plan.acting,
        target=target_of(plan),
        after={"state": plan.state},
        outcome=Outcome.FAILED if plan.state == Plan.State.STOPPED else Outcome.DONE,
        sentence=plan.sentence,
        request_id=plan.request_id,
    )


def _failure_sentence(failed: Operation | None) -> str:
    return f"'{failed.summary}' failed: {failed.error}" if failed is not None else ""


def _advance_soon(plan: Plan) -> None:
    """Enqueue the planning of the resume or rollback, or the settlement of a plan without open operations."""
    if plan.is_active and not _open(plan).exists():
        # An unreachable broker loses nothing: beat retries.
        transaction.on_commit(partial(enqueue, "fabric.advance_plan", str(plan.pk)), robust=True)
