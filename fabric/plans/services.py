"""Plans: a desired state becomes ordered steps, which are previewed and then applied as one job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from accounts.access import actor_name
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.context import request_id
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from core.database import lock_rows
from core.errors import Conflict, Invalid, NotFound, RuleViolation
from core.failpoints import failpoint
from core.idempotency import find_replayed, request_digest
from core.language import _
from fabric.inventory.locks import lock_chassis, lock_parts
from fabric.inventory.models import Device
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import DrawerKey, projected_drawers
from fabric.operations.rules import DrawerSnapshot
from fabric.operations.selectors import open_operation_sentence
from fabric.operations.services import (
    check_confirmation,
    check_not_held,
    check_not_in_use,
    forced_use_record,
    initial_steps,
    operation_enqueue,
)
from fabric.plans.permissions import check_no_foreign_parts, check_own_plan, check_permitted, desired_parts
from fabric.plans.rules import DesiredState, PlannedSteps, PlanStep, plan_steps
from fabric.plans.selectors import plan_proposal
from fabric.plans.serialization import (  # fmt: skip
    DesiredParts,
    base_differences,
    base_state_json,
    default_title,
    setting_json,
    step_parts,
    step_sentence,
    steps_json,
)
from fabric.signals import plan_changed

MAX_DRAFTS: Final = 200  # per user
MAX_TITLE_LENGTH: Final = 200
FAILURE_POLICIES: Final = ("stop", "roll_back")
Value = TypeVar("Value")


def plan_create(
    *, person: User | None, desired: DesiredState, title: str, origin: str, idempotency_key: str = ""
) -> Plan:
    """Create a draft with the steps that lead to the desired state; `person` None is the site itself.

    A rule violation does not prevent a draft: `plan_apply` refuses it. Raises NotFound for objects that the person may
    not see, Forbidden for those they may not change, Conflict for those that cannot be composed, and Invalid for too
    many changes. The same person and key return the same plan.
    """
    with attempt(Action.PLAN_CREATE, actor=person, target=Target(kind="plan", name=title)) as act:
        digest = request_digest("plan", desired.as_json(), title, origin)
        if known := find_replayed(Plan, person, idempotency_key, digest):
            return known
        if Plan.objects.filter(requested_by=person, by_site=False, state=Plan.State.DRAFT).count() >= MAX_DRAFTS:
            raise Conflict(
                _("You have {count} drafts. Discard those that you do not need, then make another.", count=MAX_DRAFTS)
            )
        parts = desired_parts(person, desired)
        check_permitted(person, desired, parts)
        drawers = involved_drawers(projected_drawers(parts.chassis), desired)
        planned = steps_plan(drawers, desired)
        check_no_foreign_parts(person.tenant if person else None, planned)
        try:
            with act.change():
                plan = Plan.objects.create(
                    title=_clean_title(title, planned),
                    origin=origin,
                    wanted=desired.as_json(),
                    base=base_state_json(drawers),
                    preview=steps_json(planned),
                    requested_by=person,
                    requested_by_name=actor_name(person),
                    tenant=person.tenant if person else None,
                    by_site=person is None,
                    idempotency_key=idempotency_key,
                    request_digest=digest,
                )
                act.target, act.after = target_of(plan), _audit_values(plan)
                failpoint("plan.created.uncommitted")
        except IntegrityError:
            if known := find_replayed(Plan, person, idempotency_key, digest):
                return known
            raise
        return plan


def plan_change(*, person: User, plan: Plan, desired: DesiredState, title: str | None = None) -> Plan:
    """Replan a draft for another desired state. Raises as `plan_create`, and Conflict if it is not a draft."""
    with attempt(Action.PLAN_CHANGE, actor=person, target=target_of(plan)) as act:
        parts = desired_parts(person, desired)
        check_permitted(person, desired, parts)
        drawers = involved_drawers(projected_drawers(parts.chassis), desired)
        planned = steps_plan(drawers, desired)
        preview = steps_json(planned)
        with act.change():
            locked = lock_plan(plan.pk)
            act.before = _audit_values(locked)
            check_own_plan(person, locked)
            _check_draft(locked)
            check_no_foreign_parts(locked.tenant, planned)
            locked.wanted, locked.base, locked.preview = desired.as_json(), base_state_json(drawers), preview
            if title is not None:
                locked.title = _clean_title(title, planned)
            locked.save(update_fields=["wanted", "base", "preview", "title"])
            act.after = _audit_values(locked)
    return locked


def plan_discard(*, person: User, plan: Plan) -> None:
    """Delete a draft. Raises Conflict if the plan is no longer a draft."""
    with audited(Action.PLAN_DISCARD, actor=person, target=target_of(plan)):
        locked = lock_plan(plan.pk)
        check_own_plan(person, locked)
        _check_draft(locked)
        locked.delete()


@two_people(plan_proposal)
def plan_apply(
    *,
    person: User | None,
    plan: Plan,
    on_failure: str = "stop",
    force: Collection[int] = (),
    confirmation: str = "",
    claimant: str = "",
) -> Plan:
    """Apply a draft as one job; `force` names devices to detach although they are in use on their host.

    Forcing requires the plan's title as `confirmation`. `claimant` is the kind of claim owner that applies the plan, a
    key of CLAIMS in fabric.operations.services; plans of the site itself ignore claims.

    Raises InUse where a device of the plan is in use; Conflict where the state has changed since it was planned
    (`differences` lists the changes), where an operation on one of its devices is open, or where it was applied before;
    RuleViolation with `objections` where rules are violated; NotFound and Forbidden where the person has lost access.
    """
    if on_failure not in FAILURE_POLICIES:
        raise Invalid(
            _("'{choice}' is not a choice.", choice=on_failure[:50]),
            errors={"on_failure": _("One of {choices}.", choices=", ".join(FAILURE_POLICIES))},
        )
    with attempt(Action.PLAN_APPLY, actor=person, target=target_of(plan)) as act:
        if force:
            check_confirmation(confirmation, wanted=plan.title)
        # First without locks: no refusal waits for one, but that of a state that has changed, which takes long to find.
        known = Plan.objects.filter(pk=plan.pk).first()
        if known is None:
            raise NotFound(_("There is no such plan."))
        chassis = _checked_parts(person, known, DesiredState.from_json(known.wanted)).chassis
        failpoint("plan.apply")
        with act.change():
            # Chassis are locked first, in the order that every change of a chassis uses; then the plan.
            lock_chassis(chassis)
            locked = lock_plan(plan.pk)
            desired = DesiredState.from_json(locked.wanted)
            # A grant locks these rows too: devices granted to another tenant since the preview are refused here.
            lock_parts(devices=desired.attachments, host_ports=desired.attachments.values())
            parts = _checked_parts(person, locked, desired)
            drawers = _unchanged_drawers(person, locked, desired, parts)
            # What was approved, or needed no approval, is what the caller has seen.
            if locked.wanted != plan.wanted or not parts.chassis <= chassis:
                raise Conflict(_("The draft was changed at the same moment. Open it again."))
            planned = steps_plan(drawers, desired)
            check_no_foreign_parts(locked.tenant, planned)
            if planned.objections:
                sentences = [one.sentence for one in planned.objections]
                raise RuleViolation(sentences[0], objections=sentences)
            if Operation.objects.open().filter(chassis__in=parts.chassis).exists():
                _check_not_busy(person, planned.steps, desired)
            taken = [step.device for step in planned.steps if step.source is not None and step.device is not None]
            leaving = list(Device.objects.filter(pk__in=taken).select_related("host_port__host").order_by("pk"))
            if person is not None:
                check_not_held(leaving, force=force, claimant=claimant)
            check_not_in_use(leaving, force=force)
            forced_use_record(person, [device for device in leaving if device.pk in force])
            locked.state = Plan.State.RUNNING if planned.steps else Plan.State.DONE
            locked.on_failure = on_failure
            locked.applied_at = timezone.now()
            locked.finished_at = None if planned.steps else locked.applied_at
            locked.acting, locked.acting_name = person, actor_name(person)
            locked.request_id = request_id()
            of_steps = step_parts(planned.steps)
            locked.preview = steps_json(planned, of_steps)
            # Devices that are detached only for another change are reattached after a resume and a rollback, too.
            locked.wanted = desired.with_interrupted(planned.steps).as_json()
            locked.save()
            operations_create(locked, planned.steps, of_steps, force=force)
            failpoint("plan.applied.uncommitted")
            act.before = {"state": "draft"}
            act.after = {"state": locked.state, "steps": [step["sentence"] for step in locked.preview]}
            transaction.on_commit(lambda: plan_changed.send(Plan, plan=locked), robust=True)
    failpoint("plan.applied")
    return locked


def plan_undo(*, person: User, plan: Plan) -> Plan:
    """Create a draft that restores the state before the plan of everything that it changed."""
    with attempt(Action.PLAN_UNDO, actor=person, target=target_of(plan)):
        check_own_plan(person, plan)
        if not plan.is_final:
            raise Conflict(_("Only a plan that has ended can be undone. Cancel it, or roll it back."))
        desired = rollback_state(plan)
        if desired == DesiredState():
            raise Conflict(_("The plan has changed nothing: there is nothing to undo."))
        return plan_create(person=person, desired=desired, title=f"Undo: {plan.title}", origin="undo")


def rollback_state(plan: Plan) -> DesiredState:
    """Return the state before the plan of everything that it began to change.

    Changes that it never started are left out: their present state is the work of others.
    """
    desired, before = DesiredState.from_json(plan.wanted), DesiredState.from_json(plan.base)
    begun = list(plan.operations.filter(attempts__gt=0))
    return DesiredState(
        attachments=_rollback_values(desired.attachments, before.attachments, (one.device_id for one in begun)),
        modes=_rollback_values(desired.modes, before.modes, (one.drawer_id for one in begun if one.mode)),
        cables=_rollback_values(
            desired.cables, before.cables, (one.source_id for one in begun if one.kind == Operation.Kind.CABLE)
        ),
        settings=_rollback_values(desired.settings, before.settings, (one.port_id for one in begun)),
    )


def _rollback_values(
    desired: Mapping[int, Value], before: Mapping[int, Value], begun: Iterable[int | None]
) -> dict[int, Value]:
    changed = set(begun)
    return {pk: before[pk] for pk in desired if pk in before and pk in changed}


def operations_create(
    plan: Plan,
    steps: Iterable[PlanStep],
    parts: DesiredParts | None = None,
    *,
    is_rollback: bool = False,
    force: Collection[int] = (),
) -> list[Operation]:
    """Create the operations of a plan's steps, after its existing ones; enqueue the first of each drawer.

    `parts`: what `step_parts` returned for the steps.
    """
    first = (plan.operations.order_by("-position").values_list("position", flat=True).first() or 0) + 1
    steps = list(steps)
    parts = parts or step_parts(steps)
    now = timezone.now()
    made = [
        Operation(
            kind=step.kind,
            plan=plan,
            position=first + step.position,
            round=plan.round,
            is_rollback=is_rollback,
            after=[first + position for position in step.after],
            chassis_id=step.chassis,
            drawer_id=step.drawer,
            device_id=step.device,
            device_identity=parts.devices[step.device].identity if step.device is not None else "",
            source_id=step.source,
            target_id=step.target,
            port_id=step.port,
            host_id=step.host,
            mode=step.mode,
            setting=setting_json(step.setting),
            forced=step.device in force,
            summary=step_sentence(step, parts)[:300],
            requested_by=plan.acting,
            requested_by_name=plan.acting_name,
            tenant=plan.tenant,
            request_id=plan.request_id,
            requested_at=now,
            steps=initial_steps(step.kind),
        )
        for step in steps
    ]
    Operation.objects.bulk_create(made)
    first_of_drawers = {(one.chassis_id, one.drawer_id): one for one in reversed(made)}
    for operation in reversed(first_of_drawers.values()):
        transaction.on_commit(partial(operation_enqueue, operation), robust=True)
    return made


def steps_plan(drawers: Iterable[DrawerSnapshot], desired: DesiredState) -> PlannedSteps:
    """Return the steps, as `plan_steps` does; raises Conflict where a part of the desired state is in no drawer."""
    try:
        return plan_steps(drawers, desired)
    except KeyError as error:
        raise Conflict(
            _(
                "A part of the plan cannot be changed: it is missing, or on no slot and no host port. "
                "Check the chassis, then replan."
            )
        ) from error


def involved_drawers(drawers: Mapping[DrawerKey, DrawerSnapshot], desired: DesiredState) -> list[DrawerSnapshot]:
    """Return the drawers that the desired state changes."""
    ports = set(desired.settings)
    return [
        drawer
        for drawer in drawers.values()
        if drawer.id in desired.modes
        or any(device.id in desired.attachments for device in drawer.devices)
        or any(port.id in desired.cables for port in drawer.ports)
        or ports & set(drawer.settings)
    ]


def _checked_parts(person: User | None, plan: Plan, desired: DesiredState) -> DesiredParts:
    """Return the parts of a draft; raises if it is not a draft, or is forbidden."""
    check_own_plan(person, plan)
    _check_draft(plan)
    parts = desired_parts(person, desired)
    check_permitted(person, desired, parts)
    return parts


def _unchanged_drawers(
    person: User | None, plan: Plan, desired: DesiredState, parts: DesiredParts
) -> list[DrawerSnapshot]:
    """Return the drawers of a draft; raises if its base has changed."""
    drawers = involved_drawers(projected_drawers(parts.chassis), desired)
    if differences := base_differences(plan.base, base_state_json(drawers), person):
        raise Conflict(
            _("The plan was made on a state that has changed since. Check the differences, then replan."),
            differences=differences,
        )
    return drawers


def _audit_values(plan: Plan) -> dict[str, Any]:
    return {"title": plan.title, "steps": [step.get("sentence") or step["objection"] for step in plan.preview]}


def pending_operation(desired: DesiredState, steps: Collection[PlanStep]) -> Operation | None:
    """Return an open operation that leads to a part of the desired state for which there is no step.

    Steps are planned from the state after all open operations; each of those may fail.
    """
    rest = (
        Q(device__in=set(desired.attachments) - {step.device for step in steps})
        | Q(kind=Operation.Kind.MODE, drawer__in=set(desired.modes) - {step.drawer for step in steps if step.mode})
        | Q(port__in=set(desired.settings) - {step.port for step in steps})
        | Q(
            kind=Operation.Kind.CABLE,
            source__in=set(desired.cables) - {one.source for one in steps if one.kind == "cable"},
        )
    )
    first: Operation | None = Operation.objects.open().filter(rest).select_related("device").in_turn().first()
    return first


def _check_not_busy(person: User | None, steps: Collection[PlanStep], desired: DesiredState) -> None:
    devices = {step.device for step in steps if step.device is not None}
    other = Operation.objects.open().filter(device__in=devices).select_related("device").first()
    other = other or pending_operation(desired, steps)
    if other is not None:
        name = other.device.name if other.device is not None else _("Something that you want to change")
        raise Conflict(open_operation_sentence(name, other, person), operation=str(other.pk))


def _check_draft(plan: Plan) -> None:
    if plan.state != Plan.State.DRAFT:
        state, by = plan.get_state_display(), plan.acting_name
        if by:
            sentence = _("The plan was applied by {name} already: it is '{state}'.", name=by, state=state)
        else:
            sentence = _("The plan was applied already: it is '{state}'.", state=state)
        raise Conflict(sentence, plan=str(plan.pk))


def _clean_title(title: str, planned: PlannedSteps) -> str:
    """Return a title for storage: one line, without unprintable characters and bidirectional overrides."""
    shown = " ".join("".join(one if one.isprintable() else " " for one in title).split())
    return shown[:MAX_TITLE_LENGTH] or default_title(planned)


def lock_plan(pk: UUID | str) -> Plan:
    """Lock a plan and return it; raises NotFound."""
    row: Plan | None = lock_rows(Plan.objects.filter(pk=pk)).first()
    if row is None:
        raise NotFound(_("There is no such plan."))
    return row
