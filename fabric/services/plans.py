"""Plans: a wanted allocation becomes ordered steps, to be looked at and then applied as one job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.context import request_id
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from fabric.models import Device, Operation, Plan
from fabric.outlook import Place, drawers_seen
from fabric.planning import DrawerSeen, Planned, Step, Wanted
from fabric.services.asking import hand_over, replayed_of, request_digest, steps_of
from fabric.services.locks import lock_chassis, lock_held, lock_plan
from fabric.services.plan_rights import parts_of, refuse_forbidden, refuse_others, refuse_stranger
from fabric.services.plan_words import (
    Parts,
    base_of,
    differences_of,
    preview_of,
    rows_of_steps,
    sentence_of,
    setting_json,
    title_of,
    wanted_of_base,
)  # fmt: skip
from fabric.services.safety import record_forced, refuse_claimed, refuse_in_use, refuse_unconfirmed
from fabric.services.wording import held, name_of
from fabric.signals import plan_changed
from fabric.stepping import plan_steps
from falconweb.errors import Conflict, Invalid, NotFound, RuleViolation

MOST_DRAFTS: Final = 200  # of one person
LONGEST_TITLE: Final = 200
ON_FAILURE: Final = ("stop", "roll_back")
Value = TypeVar("Value")


def plan_create(*, person: User | None, wanted: Wanted, title: str, origin: str, idempotency_key: str = "") -> Plan:
    """Make a draft of the steps that lead to what is wanted; `person` None is the site itself.

    A rule that stands against it does not keep a draft from being made: `plan_apply` refuses it. Raises NotFound for
    what the person may not see, Forbidden for what is not theirs to change, Conflict for what cannot be composed, and
    Invalid for too much at once. The same person and key answer the same plan.
    """
    with attempt(Action.PLAN_CREATE, actor=person, target=Target(kind="plan", name=title)) as act:
        digest = request_digest("plan", wanted.as_json(), title, origin)
        if known := replayed_of(Plan, person, idempotency_key, digest):
            return known
        if Plan.objects.filter(requested_by=person, by_site=False, state=Plan.State.DRAFT).count() >= MOST_DRAFTS:
            raise Conflict(f"You have {MOST_DRAFTS} drafts. Discard those that you do not need, then make another.")
        parts = parts_of(person, wanted)
        refuse_forbidden(person, wanted, parts)
        drawers = involved(drawers_seen(parts.chassis), wanted)
        planned = steps_planned(drawers, wanted)
        refuse_others(person.tenant if person else None, planned)
        try:
            with act.change():
                plan = Plan.objects.create(
                    title=_entitled(title, planned),
                    origin=origin,
                    wanted=wanted.as_json(),
                    base=base_of(drawers),
                    preview=preview_of(planned),
                    requested_by=person,
                    requested_by_name=name_of(person),
                    tenant=person.tenant if person else None,
                    by_site=person is None,
                    idempotency_key=idempotency_key,
                    request_digest=digest,
                )
                act.target, act.after = target_of(plan, plan.title), _told(plan)
        except IntegrityError:
            if known := replayed_of(Plan, person, idempotency_key, digest):
                return known
            raise
        return plan


def plan_change(*, person: User, plan: Plan, wanted: Wanted, title: str | None = None) -> Plan:
    """Let a draft want something else, planned on what is now. Raises as `plan_create`, Conflict if it is no draft."""
    with attempt(Action.PLAN_CHANGE, actor=person, target=target_of(plan, plan.title)) as act:
        parts = parts_of(person, wanted)
        refuse_forbidden(person, wanted, parts)
        drawers = involved(drawers_seen(parts.chassis), wanted)
        planned = steps_planned(drawers, wanted)
        preview = preview_of(planned)
        with act.change():
            locked = lock_plan(plan.pk)
            act.before = _told(locked)
            refuse_stranger(person, locked)
            _refuse_no_draft(locked)
            refuse_others(locked.tenant, planned)
            locked.wanted, locked.base, locked.preview = wanted.as_json(), base_of(drawers), preview
            if title is not None:
                locked.title = _entitled(title, planned)
            locked.save(update_fields=["wanted", "base", "preview", "title"])
            act.after = _told(locked)
    return locked


def plan_discard(*, person: User, plan: Plan) -> None:
    """Throw a draft away. Raises Conflict if it is none any more."""
    with audited(Action.PLAN_DISCARD, actor=person, target=target_of(plan, plan.title)):
        locked = lock_plan(plan.pk)
        refuse_stranger(person, locked)
        _refuse_no_draft(locked)
        locked.delete()


def plan_apply(
    *,
    person: User | None,
    plan: Plan,
    on_failure: str = "stop",
    force: Collection[int] = (),
    confirmation: str = "",
    claimant: str = "",
) -> Plan:
    """Carry a draft out, as one job; `force` names devices to be taken although somebody uses them on their host.

    Who forces types the plan's title as `confirmation`. `claimant` is who claims devices of it, as CLAIMS of
    fabric.services.safety knows them; what the site itself does heeds no claims.

    Raises InUse where somebody uses a device of it; Conflict where something has changed since it was planned
    (`differences` says what), where an operation on a device of it is open, or where it was applied before;
    RuleViolation with `objections` where rules stand against it; NotFound and Forbidden for what the person may no
    longer do.
    """
    if on_failure not in ON_FAILURE:
        raise Invalid(f"'{on_failure[:50]}' is no choice.", errors={"on_failure": f"One of {', '.join(ON_FAILURE)}."})
    with attempt(Action.PLAN_APPLY, actor=person, target=target_of(plan, plan.title)) as act:
        if force:
            refuse_unconfirmed(confirmation, wanted=plan.title)
        # Once without locks: nobody waits for what is refused.
        known = Plan.objects.filter(pk=plan.pk).first()
        if known is None:
            raise NotFound("There is no such plan.")
        chassis = _as_planned(person, known, Wanted.from_json(known.wanted))[0].chassis
        with act.change():
            # Chassis first, in one order, as every change of a chassis does: then the plan, which one person applies.
            lock_chassis(chassis)
            locked = lock_plan(plan.pk)
            wanted = Wanted.from_json(locked.wanted)
            # A grant locks these rows too: what was granted away since it was looked at is no longer the person's.
            lock_held(devices=wanted.attachments, host_ports=wanted.attachments.values())
            parts, drawers = _as_planned(person, locked, wanted)
            if not parts.chassis <= chassis:
                raise Conflict(
                    "The draft was changed at the same moment, and is about another chassis now. Look again."
                )
            planned = steps_planned(drawers, wanted)
            refuse_others(locked.tenant, planned)
            if planned.objections:
                raise RuleViolation(
                    planned.objections[0].sentence, objections=[one.sentence for one in planned.objections]
                )
            _refuse_taken(person, planned.steps, wanted)
            taken = [step.device for step in planned.steps if step.source is not None and step.device is not None]
            leaving = list(Device.objects.filter(pk__in=taken).select_related("host_port__host").order_by("pk"))
            if person is not None:
                refuse_claimed(leaving, force=force, claimant=claimant)
            refuse_in_use(leaving, force=force)
            record_forced(person, [device for device in leaving if device.pk in force])
            locked.state = Plan.State.RUNNING if planned.steps else Plan.State.DONE
            locked.on_failure = on_failure
            locked.applied_at = timezone.now()
            locked.finished_at = None if planned.steps else locked.applied_at
            locked.acting, locked.acting_name = person, name_of(person)
            locked.request_id = request_id()
            locked.preview = preview_of(planned)
            # What is taken out only for something else to change is put back by the way on and the way back, too.
            locked.wanted = wanted.with_interrupted(planned.steps).as_json()
            locked.save()
            operations_create(locked, planned.steps, force=force)
            act.before = {"state": "draft"}
            act.after = {"state": locked.state, "steps": [step["sentence"] for step in locked.preview]}
            transaction.on_commit(lambda: plan_changed.send(Plan, plan=locked), robust=True)
    return locked


def plan_undo(*, person: User, plan: Plan) -> Plan:
    """Make a draft that leads back to where everything that the plan changed was before it."""
    with attempt(Action.PLAN_UNDO, actor=person, target=target_of(plan, plan.title)):
        refuse_stranger(person, plan)
        if not plan.is_final:
            raise Conflict("Only what has ended can be undone. Cancel it, or roll it back.")
        wanted = way_back(plan)
        if wanted == Wanted():
            raise Conflict("The plan has changed nothing: there is nothing to undo.")
        return plan_create(person=person, wanted=wanted, title=f"Undo: {plan.title}", origin="undo")


def way_back(plan: Plan) -> Wanted:
    """Return what was so before the plan, of all that it began to change.

    Of what it never came to it takes nothing back: whatever became of that meanwhile is the work of others.
    """
    wanted, before = Wanted.from_json(plan.wanted), wanted_of_base(plan.base)
    begun = list(plan.operations.filter(attempts__gt=0))
    return Wanted(
        attachments=_restored(wanted.attachments, before.attachments, (one.device_id for one in begun)),
        modes=_restored(wanted.modes, before.modes, (one.drawer_id for one in begun if one.mode)),
        cables=_restored(
            wanted.cables, before.cables, (one.source_id for one in begun if one.kind == Operation.Kind.CABLE)
        ),
        settings=_restored(wanted.settings, before.settings, (one.port_id for one in begun)),
    )


def _restored(
    wanted: Mapping[int, Value], before: Mapping[int, Value], begun: Iterable[int | None]
) -> dict[int, Value]:
    changed = set(begun)
    return {pk: before[pk] for pk in wanted if pk in before and pk in changed}


def operations_create(
    plan: Plan, steps: Iterable[Step], *, is_rollback: bool = False, force: Collection[int] = ()
) -> list[Operation]:
    """Write the operations of a plan's steps, after those it has; the first of each drawer is handed to a worker."""
    first = (plan.operations.order_by("-position").values_list("position", flat=True).first() or 0) + 1
    steps = list(steps)
    parts = rows_of_steps(steps)
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
            summary=sentence_of(step, parts)[:300],
            requested_by=plan.acting,
            requested_by_name=plan.acting_name,
            tenant=plan.tenant,
            request_id=plan.request_id,
            requested_at=now,
            steps=steps_of(step.kind),
        )
        for step in steps
    ]
    Operation.objects.bulk_create(made)
    begun: set[Place] = set()
    for operation in made:
        if (operation.chassis_id, operation.drawer_id) not in begun:
            begun.add((operation.chassis_id, operation.drawer_id))
            transaction.on_commit(partial(hand_over, operation), robust=True)
    return made


def steps_planned(drawers: Iterable[DrawerSeen], wanted: Wanted) -> Planned:
    """Return the steps, as `plan_steps` does; raises Conflict where something wanted is in none of the drawers."""
    try:
        return plan_steps(drawers, wanted)
    except KeyError as error:
        raise Conflict(
            "A part of what is wanted is not where it could be changed: it is missing, or on no slot and no host port. "
            "Look again, then plan anew."
        ) from error


def involved(drawers: Mapping[Place, DrawerSeen], wanted: Wanted) -> list[DrawerSeen]:
    """Return the drawers in which something is wanted."""
    asked = set(wanted.settings)
    return [
        drawer
        for drawer in drawers.values()
        if drawer.id in wanted.modes
        or any(device.id in wanted.attachments for device in drawer.devices)
        or any(port.id in wanted.cables for port in drawer.ports)
        or asked & set(drawer.settings)
    ]


def _as_planned(person: User | None, plan: Plan, wanted: Wanted) -> tuple[Parts, list[DrawerSeen]]:
    """Return what a draft is about; raises where it is none, not the person's to apply, or planned on another state."""
    refuse_stranger(person, plan)
    _refuse_no_draft(plan)
    parts = parts_of(person, wanted)
    refuse_forbidden(person, wanted, parts)
    drawers = involved(drawers_seen(parts.chassis), wanted)
    if differences := differences_of(plan.base, base_of(drawers), person):
        raise Conflict(
            "The plan was made on a state that has changed since. Look at the difference, then plan anew.",
            differences=differences,
        )
    return parts, drawers


def _told(plan: Plan) -> dict[str, Any]:
    """Return a draft as the audit log keeps it."""
    return {"title": plan.title, "steps": [step.get("sentence") or step["objection"] for step in plan.preview]}


def awaited_of_others(wanted: Wanted, steps: Collection[Step]) -> Operation | None:
    """Return an open operation that shall bring about something that is wanted, and for which there is no step.

    Steps are planned from what will be so after all open operations; each of those may fail.
    """
    rest = (
        Q(device__in=set(wanted.attachments) - {step.device for step in steps})
        | Q(kind=Operation.Kind.MODE, drawer__in=set(wanted.modes) - {step.drawer for step in steps if step.mode})
        | Q(port__in=set(wanted.settings) - {step.port for step in steps})
        | Q(
            kind=Operation.Kind.CABLE,
            source__in=set(wanted.cables) - {one.source for one in steps if one.kind == "cable"},
        )
    )
    first: Operation | None = Operation.objects.open().filter(rest).select_related("device").in_turn().first()
    return first


def _refuse_taken(person: User | None, steps: Collection[Step], wanted: Wanted) -> None:
    devices = {step.device for step in steps if step.device is not None}
    other = Operation.objects.open().filter(device__in=devices).select_related("device").first()
    other = other or awaited_of_others(wanted, steps)
    if other is not None:
        name = other.device.name if other.device is not None else "Something that you want to change"
        raise Conflict(held(name, other, person), operation=str(other.pk))


def _refuse_no_draft(plan: Plan) -> None:
    if plan.state != Plan.State.DRAFT:
        by = f" by {plan.acting_name}" if plan.acting_name else ""
        raise Conflict(f"The plan was applied{by} already: it is '{plan.get_state_display()}'.", plan=str(plan.pk))


def _entitled(title: str, planned: Planned) -> str:
    """Return a title as it is kept: one line, without what cannot be shown or turns the rest around."""
    shown = " ".join("".join(one if one.isprintable() else " " for one in title).split())
    return shown[:LONGEST_TITLE] or title_of(planned)
