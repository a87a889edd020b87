"""Requests for maintenance: a reset of a part, by administrators who know whom it interrupts."""

from __future__ import annotations

from collections.abc import Collection

from django.db import IntegrityError

from accounts.access import require_administrator
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.services import attempt, target_of
from accounts.models import User
from core.errors import Conflict, InUse, Invalid
from core.idempotency import find_replayed, request_digest
from core.language import _, join_words
from fabric.inventory.locate import check_answering
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import ManagedPart
from fabric.maintenance.selectors import AffectedDevice, affected_devices, reset_choices, reset_proposal
from fabric.operations.models import Operation
from fabric.operations.selectors import open_operation_sentence
from fabric.operations.services import operation_store


@two_people(reset_proposal)
def reset_request(
    *,
    person: User,
    part: ManagedPart,
    reset_type: str,
    confirmation: str = "",
    affected: Collection[int] = (),
    idempotency_key: str = "",
) -> Operation:
    """Request a reset of a part, or its power on or off; `confirmation` is its label, typed.

    `affected` are the attached devices (ids) of which the person knows that the reset may interrupt them. Raises
    Forbidden, Invalid, InUse where it may interrupt others (`affected` lists all), and Conflict where its service
    offers no such reset or operations of its chassis have not ended. Replays a key as `operation_request` does.
    """
    with attempt(Action.PART_RESET, actor=person, target=target_of(part, part.label)) as act:
        require_administrator(person)
        check_answering(part.chassis)
        choices = dict(reset_choices(part))
        if part.missing_since is not None or not choices:
            raise Conflict(_("The service of {name} offers no reset of it.", name=part.label))
        if reset_type not in choices:
            raise Invalid(
                _("{name} cannot be reset in this way.", name=part.label),
                errors={"reset_type": _("One of {choices}.", choices=", ".join(choices))},
            )
        check_typed(part, confirmation)
        digest = request_digest("reset", part.pk, reset_type)
        if replayed := find_replayed(Operation, person, idempotency_key, digest):
            return replayed
        try:
            with act.change():
                lock_chassis([part.chassis_id])
                if replayed := find_replayed(Operation, person, idempotency_key, digest):
                    return replayed
                check_idle(person, part)
                interrupted = affected_devices(part)
                _check_told(part, interrupted, affected)
                operation = operation_store(
                    person,
                    Operation.Kind.RESET,
                    idempotency_key,
                    digest,
                    chassis=part.chassis,
                    managed_part=part,
                    drawer=part.drawer,
                    setting={"reset_type": reset_type},
                    summary=f"Reset {part.label} ({reset_type})"[:300],
                )
                act.before = {"power": part.power_state, "interrupted": [one.sentence for one in interrupted]}
                act.after = {"reset": reset_type, "operation": str(operation.pk)}
        except IntegrityError:
            if replayed := find_replayed(Operation, person, idempotency_key, digest):
                return replayed
            raise
        return operation


def check_typed(part: ManagedPart, confirmation: str) -> None:
    """Raise Invalid unless the label of a part was typed."""
    if confirmation.strip() != part.label.strip():
        sentence = _("Type exactly: {name}", name=part.label)
        raise Invalid(_("This is not the name of the part. {hint}", hint=sentence), errors={"confirmation": sentence})


def check_idle(person: User, part: ManagedPart) -> None:
    """Raise Conflict where an operation of the part's chassis has not ended."""
    other = Operation.objects.open().filter(chassis=part.chassis_id).in_turn().first()
    if other is not None:
        raise Conflict(open_operation_sentence(part.chassis.name, other, person), operation=str(other.pk))


def _check_told(part: ManagedPart, interrupted: Collection[AffectedDevice], told: Collection[int]) -> None:
    """Raise InUse where a device may be interrupted of which the person was not told."""
    untold = [one for one in interrupted if one.device.pk not in told]
    if untold:
        raise InUse(
            _(
                "It may interrupt what is attached: {devices}. Detach it first, or confirm that it may be interrupted.",
                devices=join_words([one.sentence for one in untold[:MAX_NAMED]]),
            ),
            affected=[{"device_id": one.device.pk, "sentence": one.sentence} for one in interrupted],
        )


MAX_NAMED = 5
