"""Resets of managers, chassis, systems and other parts: what a resource offers, and its action."""

from __future__ import annotations

import msgspec

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import CompositionRefused, RequestRefused, TimedOut, Unreachable
from fabric.bmc.managed_parts import reset_action
from fabric.bmc.values import objects, resource_type, text, texts


class ResetOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The reset of a resource as its service offers it now; `types` is () where it names none.

    `last_reset` is its LastResetTime, '' where it has none.
    """

    target: str
    types: tuple[str, ...] = ()
    last_reset: str = ""
    power_state: str = ""


async def read_reset(bmc: BmcClient, uri: str) -> ResetOffer:
    """Return what a resource offers; raises CompositionRefused where it has no reset, and as `get` does."""
    body = (await bmc.get(uri)).body
    action = reset_action(body, resource_type(uri, body, ""))
    if not (target := text(action, "target")):
        raise CompositionRefused("Its service offers no reset of it now.")
    types = texts(action, "ResetType@Redfish.AllowableValues")
    if not types and (info := text(action, "@Redfish.ActionInfo")):
        parameters = objects(await bmc.get_or_none(info) or {}, "Parameters")
        types = next((texts(one, "AllowableValues") for one in parameters if text(one, "Name") == "ResetType"), ())
    return ResetOffer(
        target=target, types=types, last_reset=text(body, "LastResetTime"), power_state=text(body, "PowerState")
    )


async def send_reset(bmc: BmcClient, target: str, reset_type: str) -> bool:
    """Send a reset, once; returns False where the service died before it answered, as one that resets itself may.

    Raises CompositionRefused where it refuses, TaskFailed or another BmcError.
    """
    try:
        await bmc.finish(await bmc.post(target, {"ResetType": reset_type}))
    except (Unreachable, TimedOut):
        return False
    except RequestRefused as error:
        raise CompositionRefused(error.reason or "Its service refused it.", answered=error.answered) from error
    return True
