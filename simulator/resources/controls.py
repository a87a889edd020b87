"""What people do to a part: its location LED, and its reset."""

from __future__ import annotations

from collections.abc import Callable

from simulator.errors import RedfishError, no_operation, property_refused, property_value
from simulator.odata import Body
from simulator.service import Falcon
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, WriteMethod


def indicator(falcon: Falcon, uri: str) -> Body:
    """Return the property of the location LED of a resource, which has no other writable one."""
    return {"LocationIndicatorActive": uri in falcon.state.lit}


def indicator_method(falcon: Falcon, uri: str, render: Callable[[], Body]) -> WriteMethod:
    """Return the PATCH that switches it."""

    async def change(call: AuthenticatedRequest) -> Reply:
        if not call.body:
            raise no_operation()
        for key, value in call.body.items():
            if key != "LocationIndicatorActive":
                raise property_refused(key, render())
            if not isinstance(value, bool):
                raise property_value(key, value)
        lit = falcon.state.lit
        (lit.add if call.body["LocationIndicatorActive"] else lit.discard)(uri)
        return Reply(200, render())

    return WriteMethod(change, COMPOSE)


def reset_action(uri: str, kind: str, types: list[str]) -> Body:
    """Return the reset that a resource of a kind offers, a member of its Actions."""
    target = f"{uri}/Actions/{kind}.Reset"
    return {f"#{kind}.Reset": {"target": target, "ResetType@Redfish.AllowableValues": types}}


def register_reset(falcon: Falcon, uri: str, kind: str, types: list[str], reset: Callable[[str], None]) -> None:
    """Add the target of a reset; without a type it is the first."""

    async def run(call: AuthenticatedRequest) -> Reply:
        chosen = call.body.get("ResetType", types[0])
        if chosen not in types:
            sentence = f"It has no reset of the type {chosen!r}."
            raise RedfishError(400, "ActionParameterNotSupported", sentence, arguments=("ResetType", f"{kind}.Reset"))
        reset(chosen)
        return Reply(204)

    falcon.tree.action(f"{uri}/Actions/{kind}.Reset", run)
