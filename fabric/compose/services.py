"""Changes of several devices, requested at once: one is an operation, several are the steps of one plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from accounts.approvals.services import ApprovalNeeded
from accounts.models import User
from core.errors import Conflict, FalconWebError
from core.language import _, joined
from fabric.compose.selectors import AttachmentChange
from fabric.inventory.labels import host_port_name
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import projected_drawers
from fabric.operations.services import operation_obstacle, operation_request
from fabric.plans.permissions import check_no_foreign_parts
from fabric.plans.rules import DesiredState
from fabric.plans.services import involved_drawers, plan_apply, plan_create, plan_discard, steps_plan


@dataclass(frozen=True, kw_only=True)
class ChangesCheck:
    """Which changes would be refused now, by device, and what those that would not be do besides."""

    obstacles: dict[int, str] = field(default_factory=dict)
    interrupted: tuple[str, ...] = ()  # names of devices that are detached and reattached to make room

    def possible(self, changes: Collection[AttachmentChange]) -> list[AttachmentChange]:
        """Return the changes without an obstacle."""
        return [one for one in changes if one.device.pk not in self.obstacles]


def changes_check(person: User, changes: Collection[AttachmentChange]) -> ChangesCheck:
    """Return what conflicts with changes that are made together, device by device."""
    alone = len(changes) == 1
    found = {
        one.device.pk: operation_obstacle(person, one.device, one.target, one.expected, with_rules=alone)
        for one in changes
    }
    check = ChangesCheck(obstacles={pk: sentence for pk, sentence in found.items() if sentence})
    rest = check.possible(changes)
    return check if alone or not rest else _checked_together(person, rest, check.obstacles)


def _checked_together(person: User, rest: Sequence[AttachmentChange], obstacles: dict[int, str]) -> ChangesCheck:
    """Return the check of changes by the rules of their drawers: what breaks one is left out, the others are tried."""
    drawers = projected_drawers({one.device.chassis_id for one in rest})
    while rest:
        requested, desired = {one.device.pk for one in rest}, changes_desired(rest)
        try:
            planned = steps_plan(involved_drawers(drawers, desired), desired)
            check_no_foreign_parts(person.tenant, planned)
        except FalconWebError as error:
            return ChangesCheck(obstacles={**obstacles, **dict.fromkeys(requested, error.sentence)})
        if not planned.objections:
            moved = {step.device for step in planned.steps if step.interrupts} - requested
            names = [one.name for drawer in drawers.values() for one in drawer.devices if one.id in moved]
            return ChangesCheck(obstacles=obstacles, interrupted=tuple(names))
        named = {one.device: one.sentence for one in planned.objections if one.device in requested}
        # A rule that is about none of these devices is about them all.
        obstacles = {**obstacles, **(named or dict.fromkeys(requested, planned.objections[0].sentence))}
        rest = [one for one in rest if one.device.pk not in obstacles]
    return ChangesCheck(obstacles=obstacles)


def changes_desired(changes: Collection[AttachmentChange]) -> DesiredState:
    """Return where devices are to be after the changes."""
    return DesiredState(attachments={one.device.pk: one.target.pk if one.target else None for one in changes})


def changes_request(
    *, person: User, changes: Sequence[AttachmentChange], title: str = ""
) -> tuple[Operation | Plan, dict[int, str]]:
    """Request the changes without an obstacle; return the work, and why the other devices are left out.

    A `title` names a plan that undoes another one. Raises as `operation_request` and `plan_apply` do, and Conflict
    where every change is refused; nothing is changed then.
    """
    check = changes_check(person, changes) if len(changes) > 1 else ChangesCheck()
    possible = check.possible(changes)
    if not possible:
        raise Conflict(joined(dict.fromkeys(check.obstacles.values())))
    if len(possible) == 1:
        one = possible[0]
        work = operation_request(person=person, device=one.device, target=one.target, expected=one.expected)
        return work, check.obstacles
    plan = plan_create(
        person=person,
        desired=changes_desired(possible),
        title=title or changes_title(possible),
        origin="undo" if title else "compose",
    )
    try:
        before = DesiredState.from_json(plan.base).attachments
        for one in possible:
            if before.get(one.device.pk) != (one.expected.pk if one.expected else None):
                raise Conflict(_("{name} was moved at the same moment. Reload, then try again.", name=one.device.name))
        return plan_apply(person=person, plan=plan), check.obstacles
    except ApprovalNeeded:
        raise  # it is this draft that another administrator approves
    except FalconWebError:
        plan_discard(person=person, plan=plan)
        raise


def changes_title(changes: Sequence[AttachmentChange]) -> str:
    """Return what changes do, in a few words: 'Attach 2 devices to node-b (H2)'."""
    verbs = {one.kind for one in changes}
    verb = verbs.pop().capitalize() if len(verbs) == 1 else "Move"
    what = changes[0].device.name if len(changes) == 1 else f"{len(changes)} devices"
    targets = list(dict.fromkeys(host_port_name(one.target) for one in changes))
    return f"{verb} {what}" if verb == "Detach" or len(targets) > 2 else f"{verb} {what} to {' and '.join(targets)}"
