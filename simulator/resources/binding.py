"""A change of what a host port has, whichever way it was asked for: at once, slowly, as a task, or by half."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.errors import Body, RedfishError
from simulator.events import Actor
from simulator.resources.tasking import accepted
from simulator.state import HostPort, Slot
from simulator.tasks import BmcTask
from simulator.tree import Node, Reply

if TYPE_CHECKING:
    from simulator.service import Falcon


def compare(etag: object, node: Node, parameter: str) -> None:
    """Refuse an action whose ETag parameter is not the resource's, with the status that the schemas ask for."""
    if etag is not None and node.render is not None and node.etag(node.render()) != etag:
        raise RedfishError(
            428,
            "PreconditionRequired",
            f"The {parameter} supplied did not match the ETag of the resource.",
            resolution="Read the resource again and repeat the request with its new ETag.",
        )


def parameter_missing(action: str, parameter: str) -> RedfishError:
    """Return the refusal of an action without a parameter that it needs."""
    return RedfishError(
        400,
        "ActionParameterMissing",
        f"The action {action} requires the parameter {parameter} to be present in the request body.",
        arguments=(action, parameter),
    )


async def bind(
    falcon: Falcon,
    port: HostPort,
    wanted: Callable[[], list[Slot]],
    *,
    by: Actor | None,
    render: Callable[[], Body] | None = None,
) -> Reply:
    """Give a host port the wanted slots, at once or as a task, and answer with what `render` gives, else 204."""

    def body() -> Body | None:
        return render() if render is not None else None

    status = 204 if render is None else 200
    if falcon.options.bind_by_task:
        uri = falcon.composer.holder_uri(port)

        async def work(task: BmcTask) -> tuple[int, Body | None]:
            task.percent = 10
            await asyncio.sleep(max(falcon.options.slow_bind, 0.2) / falcon.clock.speed)
            _switch(falcon, port, wanted, by)
            return status, body()

        return accepted(falcon.tasks.start(f"Change the devices of {port.endpoint}", uri, work))
    if falcon.options.slow_bind:
        await asyncio.sleep(falcon.options.slow_bind / falcon.clock.speed)
    _switch(falcon, port, wanted, by)
    return Reply(status, body())


def _switch(falcon: Falcon, port: HostPort, wanted: Callable[[], list[Slot]], by: Actor | None) -> None:
    """Check once more and switch; a fault may switch one half only, or answer 500 after the whole."""
    slots = wanted()
    falcon.composer.check(port, slots)
    fault = falcon.faults.take("half_applied_bind", path=falcon.composer.holder_uri(port))
    if fault is None:
        falcon.composer.apply(port, slots, by)
        return
    if fault.answer == "error":
        falcon.composer.apply(port, slots, by)
        raise RedfishError(500, "InternalError", "The request failed due to an internal service error.")
    kept = [slot for slot in slots if slot.attached_to == port.name]
    if len(kept) == len(port.slots):
        # Nothing leaves, so the half that is left out is the last of what joins.
        kept += [slot for slot in slots if slot.attached_to is None][:-1]
    falcon.composer.apply(port, kept, by)
