"""Taking devices from who uses them: refused with their names, unless it is confirmed by typing."""

from __future__ import annotations

from collections.abc import Collection

from accounts.audit.actions import Action
from accounts.audit.services import audit_record, target_of
from accounts.models import User
from fabric.hostside import holders_in_words, host_sides_of
from fabric.models import Device
from falconweb.errors import InUse, Invalid


def refuse_unconfirmed(confirmation: str, *, wanted: str) -> None:
    """Raise Invalid unless what was typed is what has to be typed to force something."""
    if confirmation.strip() != wanted.strip():
        raise Invalid(
            f"Programs lose what is forced away from them. Type '{wanted}' to confirm that.",
            errors={"confirmation": f"Type exactly: {wanted}"},
        )


def refuse_in_use(person: User | None, devices: Collection[Device], *, force: Collection[int] = ()) -> None:
    """Raise InUse where an agent says who uses one of the devices on its host; what is forced is put on record.

    To be called in the transaction that asks for the change. What no agent tells is not known: the operation says so.
    """
    sides = host_sides_of(devices)
    for device in devices:
        side = sides[device.pk]
        who = holders_in_words(side.holders) or ("nobody" if side.told else "not known")
        if device.pk in force:
            # Whoever comes until it is carried out is cut off too: also what nobody seems to use is on record.
            audit_record(
                action=Action.OPERATION_FORCE, actor=person, target=target_of(device), before={"in_use_by": who}
            )
        elif side.holders:
            raise InUse(f"{device.name} is in use: {who}.", device=device.pk, holders=who)
