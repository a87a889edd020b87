"""How the devices of a chassis are attached: found by its walks, chosen by an administrator, or proven by a write."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import msgspec
from django.db import transaction
from django.utils import timezone

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import attempt, audit_record, target_of
from accounts.models import User
from accounts.visibility import row_or_404
from core.errors import Conflict, Invalid
from core.language import _
from fabric.bmc.types import Dialect, Inventory
from fabric.inventory.labels import DIALECT_LABELS
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import Chassis, Walk
from fabric.inventory.sync import inventory_mirror
from fabric.signals import inventory_changed

# What operations have read back since is newer than the stored walk.
LONGEST_WALK = timedelta(hours=1)


def dialect_choose(*, person: User, chassis: Chassis, choice: str) -> Chassis:
    """Have the devices of a chassis attached by one dialect, whatever its walks find; '' returns to what they find.

    Nothing is written to the BMC. Raises Forbidden, NotFound, Invalid for an unknown dialect, and Conflict while an
    operation of the chassis has not ended.
    """
    with attempt(Action.CHASSIS_DIALECT, actor=person, target=target_of(chassis)) as act:
        require_administrator(person)
        if choice and choice not in DIALECT_LABELS:
            sentence = _("'{choice}' is no known way to attach devices.", choice=choice)
            raise Invalid(sentence, errors={"choice": sentence})
        with act.change():
            lock_chassis([chassis.pk])
            row: Chassis = row_or_404(Chassis.objects.all(), chassis.pk, "chassis")
            if operation := row.operations.open().first():
                raise Conflict(
                    _("'{what}' has not ended: wait for it, or cancel it.", what=operation.summary),
                    operation=str(operation.pk),
                )
            act.before = _audit_values(row)
            _set_choice(row, choice, f"Chosen by {person.get_username()} on {timezone.localdate():%d %b %Y}.")
            act.after = _audit_values(row)
        return row


def dialect_prove(*, chassis: Chassis, dialect: Dialect, by: User | None, evidence: str) -> None:
    """Have a chassis composed by the dialect that a reverted write has proven; `evidence` is a sentence on that."""
    with transaction.atomic():
        lock_chassis([chassis.pk])
        row = Chassis.objects.get(pk=chassis.pk)
        before = _audit_values(row)
        _set_choice(row, dialect, evidence)
        # The last statement of the transaction.
        audit_record(
            action=Action.CHASSIS_DIALECT, actor=by, target=target_of(row), before=before, after=_audit_values(row),
            sentence=evidence,
        )  # fmt: skip


def _set_choice(row: Chassis, choice: str, reason: str) -> None:
    walk = Walk.objects.filter(chassis=row).first()
    found = walk.found if walk is not None else {}
    row.dialect_choice = choice
    row.dialect = choice or found.get("dialect", Dialect.NONE.value)
    row.dialect_reason = (reason if choice else found.get("dialect_reason", ""))[:300]
    row.save(update_fields=["dialect_choice", "dialect", "dialect_reason"])
    if row.inventory_at is not None and found:
        # Host ports differ from dialect to dialect: an operation must not write to those of the previous one.
        inventory_mirror(row, msgspec.convert(found, Inventory), row.inventory_at - LONGEST_WALK)
    transaction.on_commit(partial(inventory_changed.send, Chassis, chassis_id=row.pk), robust=True)


def _audit_values(row: Chassis) -> dict[str, object]:
    return {"attach and detach": row.dialect, "chosen": bool(row.dialect_choice), "because": row.dialect_reason}
