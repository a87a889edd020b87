"""Zones of the fabric, and composition by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from simulator.composition import ENDPOINTS, HOLDERS, ZONES
from simulator.errors import (
    RedfishError,
    internal_error,
    no_operation,
    parameter_missing,
    property_missing,
    property_refused,
    property_type,
    referenced_not_found,
    stale_etag,
)
from simulator.events import Actor
from simulator.odata import Body, identity, links, references
from simulator.resources.services import task_accepted
from simulator.service import Falcon
from simulator.state import SWITCHES, SimulatedHostPort, SimulatedSlot
from simulator.tasks import BmcTask
from simulator.tree import COMPOSE, AuthenticatedRequest, Handler, Reply, ResourceNode, WriteMethod

ACTIONS = ("Zone.AddEndpoint", "Zone.RemoveEndpoint")


def register(falcon: Falcon) -> None:
    """Add the zones, one per host port, unless something else has the devices of a host port."""
    if falcon.blocks or falcon.options.dialect in HOLDERS:
        return
    ports = falcon.state.host_ports()
    falcon.tree.collection(ZONES, "Zone", "Zones", lambda: [f"{ZONES}/{port.endpoint}" for port in ports])
    for port in ports:
        _register_zone(falcon, port)


def zone_body(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the zone of a host port: the port's endpoint first, then the attached devices."""
    endpoints = [f"{ENDPOINTS}/{name}" for name in (port.endpoint, *port.attached)]
    uri = f"{ZONES}/{port.endpoint}"
    name = f"Devices of {port.name} ({port.host})" if port.host is not None else f"Devices of {port.name}"
    body: Body = {
        **identity(uri, "Zone", name),
        "ZoneType": "ZoneOfEndpoints",
        "ExternalAccessibility": "ZoneOnly",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": references(InvolvedSwitches=[f"{SWITCHES}/{port.switch}"]),
    }
    if falcon.options.dialect in ("psme-old", "pnc"):
        body["@odata.type"] = "#Zone.v1_0_0.Zone"
        del body["ZoneType"], body["ExternalAccessibility"]
    if falcon.options.dialect == "psme-old":
        body["Endpoints"] = links(endpoints)
    else:
        body["Links"] |= references(Endpoints=endpoints)
    if falcon.options.dialect in ("both", "actions"):
        body["Actions"] = {f"#{name}": {"target": f"{uri}/Actions/{name}"} for name in ACTIONS}
    return body


def _register_zone(falcon: Falcon, port: SimulatedHostPort) -> None:
    uri = f"{ZONES}/{port.endpoint}"
    writes = {}
    if falcon.options.dialect in ("both", "patch", "psme-old", "pnc"):
        writes["PATCH"] = WriteMethod(partial(_change_zone, falcon, port), COMPOSE)
    node = ResourceNode(uri, partial(zone_body, falcon, port), writes, revision=lambda: port.revision)
    falcon.tree.add(node)
    if falcon.options.dialect in ("both", "actions"):
        register_actions(falcon, port, node, ACTIONS, ENDPOINTS)


async def _change_zone(falcon: Falcon, port: SimulatedHostPort, call: AuthenticatedRequest) -> Reply:
    if falcon.options.dialect == "pnc" and "Links" in call.body:
        return Reply(200, zone_body(falcon, port))  # as that service does: it accepts the list, and drops it
    at_top, below = ("Endpoints",), ("Links",)
    places = {"patch": below, "psme-old": at_top, "pnc": at_top}.get(falcon.options.dialect, below + at_top)
    with _wiping(falcon, port):
        endpoints = listed_members(call.body, zone_body(falcon, port), "Endpoints", ENDPOINTS, places)
        slots = falcon.composer.slots_of_list(port, endpoints)
        falcon.composer.check(port, slots)
    return await bind_slots(
        falcon, port, lambda: slots, by=call.actor, answer=lambda: Reply(200, zone_body(falcon, port))
    )


def listed_members(
    body: Body, known: Body, name: str, collection: str, places: Sequence[str] = ("Links",)
) -> list[str]:
    """Return the Ids of the members that a PATCH lists, all of one collection: below Links, or at the top level."""
    if not body:
        raise no_operation()
    for key in body:
        if key not in places:
            raise property_refused(key, known)
    value: Any = body[name] if name in body else body["Links"]
    if "Links" in body:
        if not isinstance(value, dict):
            raise property_type("Links", value)
        for key in value:
            if key != name:
                refused = f"Links/{key}" if key in known["Links"] else key
                raise property_refused(refused, [f"Links/{one}" for one in known["Links"]])
        if name not in value:
            raise property_missing(f"Links/{name}")
        value = value[name]
    if not isinstance(value, list):
        raise property_type(name, value)
    return [member_id(one, collection, name) for one in value]


def member_id(reference: object, collection_uri: str, name: str) -> str:
    """Return the Id of the member that a request refers to; refuses an invalid reference with 400."""
    uri = reference.get("@odata.id") if isinstance(reference, dict) else None
    if not isinstance(uri, str) or not uri.startswith(f"{collection_uri}/"):
        raise property_type(name, reference)
    return uri.removeprefix(f"{collection_uri}/").rstrip("/")


def register_actions(
    falcon: Falcon, port: SimulatedHostPort, node: ResourceNode, actions: Sequence[str], members: str
) -> None:
    """Add the actions that add one of `members`, a collection, to the node of a host port, or remove it."""
    for action in actions:
        falcon.tree.action(f"{node.uri}/Actions/{action}", _member_action(falcon, port, node, action, members), COMPOSE)


def _member_action(falcon: Falcon, port: SimulatedHostPort, node: ResourceNode, action: str, members: str) -> Handler:
    holder, _, verb = action.partition(".")
    add, kind = verb.startswith("Add"), verb.removeprefix("Add").removeprefix("Remove")

    async def act(call: AuthenticatedRequest) -> Reply:
        if kind not in call.body:
            raise parameter_missing(action, kind)
        name = member_id(call.body[kind], members, kind)
        member = falcon.tree.find(f"{members}/{name}")
        if member is None and falcon.blocks:
            raise referenced_not_found(kind, name)
        _check_etag(call.body, f"{holder}ETag", node)
        if member is not None:
            _check_etag(call.body, f"{kind}ETag", member)

        def slots() -> list[SimulatedSlot]:
            return falcon.composer.slots_with(port, name, add=add)

        with _wiping(falcon, port):
            falcon.composer.check(port, slots())
        return await bind_slots(falcon, port, slots, by=call.actor)

    return act


def _check_etag(body: Body, parameter: str, node: ResourceNode) -> None:
    """Refuse an action whose ETag parameter is not the resource's, with the status required by the schemas."""
    etag = body.get(parameter)
    if etag is not None and node.render is not None and node.etag(node.render()) != etag:
        sentence = f"The {parameter} supplied did not match the ETag of the resource."
        raise stale_etag(428, "PreconditionRequired", sentence)


@contextmanager
def _wiping(falcon: Falcon, port: SimulatedHostPort) -> Iterator[None]:
    """Let a refusal detach all devices of the host port, while the fault for that is active."""
    try:
        yield
    except RedfishError:
        if falcon.faults.take("wiping_refusal", path=falcon.composer.holder_uri(port)) is not None:
            falcon.composer.apply(port, [])
        raise


async def bind_slots(
    falcon: Falcon,
    port: SimulatedHostPort,
    desired: Callable[[], list[SimulatedSlot]],
    *,
    by: Actor | None,
    answer: Callable[[], Reply] = lambda: Reply(204),
) -> Reply:
    """Set the slots of a host port, and return `answer`, as `carry_out` does."""
    label = f"Change the devices of {port.endpoint}"
    return await carry_out(falcon, label, lambda: switch_slots(falcon, port, desired(), by), answer)


async def carry_out(
    falcon: Falcon, label: str, change: Callable[[], None], answer: Callable[[], Reply] = lambda: Reply(204)
) -> Reply:
    """Perform a change of attachments, immediately or as a task, and return `answer`, or the task."""

    async def bind(seconds: float) -> Reply:
        if seconds:
            await asyncio.sleep(seconds / falcon.clock.speed)
        late = falcon.faults.take("late_bind")
        if late is None:
            change()
        else:
            falcon.tasks.later(late.delay, change)
        return answer()

    async def work(task: BmcTask) -> tuple[int, Body | None]:
        task.percent = 10
        reply = await bind(max(falcon.options.slow_bind, 0.2))
        return reply.status, reply.body

    if falcon.options.bind_by_task:
        return task_accepted(falcon.tasks.start(label, work))
    return await bind(falcon.options.slow_bind)


def switch_slots(falcon: Falcon, port: SimulatedHostPort, slots: list[SimulatedSlot], by: Actor | None) -> None:
    """Check again and switch; a fault may switch only one half, or answer 500 after all."""
    falcon.composer.check(port, slots)
    fault = falcon.faults.take("half_applied_bind", path=falcon.composer.holder_uri(port))
    if fault is None or fault.answer == "error":
        falcon.composer.apply(port, slots, by)
        if fault is not None:
            raise internal_error("The request failed due to an internal service error.")
        return
    kept = [slot for slot in slots if slot.attached_to == port.name]
    if len(kept) == len(port.slots):
        # Nothing is detached, so the omitted half is the last of the attached ones.
        kept += [slot for slot in slots if slot.attached_to is None][:-1]
    falcon.composer.apply(port, kept, by)
