"""Taking devices from who uses them: refused with their names, unless it is confirmed by typing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from accounts.audit.actions import Action
from accounts.audit.services import audit_record, target_of
from accounts.models import User
from fabric.hostside import doubt_in_words, holders_in_words, host_sides_of
from fabric.models import Device
from fabric.services.wording import names_host
from falconweb.errors import InUse, Invalid

# Rooms above that have devices for somebody for a while: of ids of devices, those that are claimed, each with a
# sentence that says by what. Who claims a device is no obstacle to themselves: the second argument.
CLAIMS: Final[list[Callable[[Collection[int], str], Mapping[int, str]]]] = []


def refuse_claimed(devices: Collection[Device], *, force: Collection[int] = (), claimant: str = "") -> None:
    """Raise InUse where one of the devices is claimed by somebody else than `claimant`, but for those of `force`."""
    asked = {one.pk: one for one in devices if one.pk not in force}
    for claims in CLAIMS if asked else ():
        for pk, sentence in claims(list(asked), claimant).items():
            raise InUse(f"{asked[pk].name} is in use: {sentence}.", device=pk, holders=sentence)


def refuse_unconfirmed(confirmation: str, *, wanted: str) -> None:
    """Raise Invalid unless what was typed is what has to be typed to force something."""
    if confirmation.strip() != wanted.strip():
        raise Invalid(
            f"Programs lose what is forced away from them. Type '{wanted}' to confirm that.",
            errors={"confirmation": f"Type exactly: {wanted}"},
        )


def refuse_in_use(devices: Collection[Device], *, force: Collection[int] = ()) -> None:
    """Raise InUse where an agent says who uses one of the devices on its host, but for those of `force` (ids).

    So it is where the host shows cards that may be the device: what cannot be told from them cannot be let go. What no
    agent tells is not known: the operation says so. Best read with `host_port__host`.
    """
    sides = host_sides_of(devices)
    for device in devices:
        side = sides[device.pk]
        if device.pk in force or not (side.holders or side.unsure):
            continue
        # The people of the device's tenant read it, also where the site or an administrator asked.
        is_named = device.host_port is None or names_host(device, device.host_port)
        if side.unsure:
            doubt = doubt_in_words(side, names=is_named)
            raise InUse(f"{device.name} may be in use: {doubt}.", device=device.pk, holders=f"not known: {doubt}")
        who = holders_in_words(side.holders) if is_named else "somebody on its host"
        raise InUse(f"{device.name} is in use: {who}.", device=device.pk, holders=who)


def record_forced(person: User | None, devices: Collection[Device]) -> None:
    """Put on record who uses what is taken by force; to be called in the transaction that asks for the change.

    Whoever comes until it is carried out is cut off too: also what nobody seems to use is on record.
    """
    sides = host_sides_of(devices)
    for device in devices:
        side = sides[device.pk]
        who = holders_in_words(side.holders) or ("nobody" if side.told else "not known")
        if side.unsure:
            who = f"not known: {doubt_in_words(side)}"
        audit_record(action=Action.OPERATION_FORCE, actor=person, target=target_of(device), before={"in_use_by": who})
