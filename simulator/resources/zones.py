"""Zones of the fabric, and composition by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from simulator.errors import Body, RedfishError, property_missing, property_not_writable, property_unknown
from simulator.events import Actor
from simulator.resources.tasking import task_accepted
from simulator.service import Falcon
from simulator.state import SimulatedHostPort, SimulatedSlot
from simulator.tasks import BmcTask
from simulator.tree import (
    AuthenticatedRequest,
    Handler,
    Reply,
    ResourceNode,
    WriteMethod,
    add_references,
    collection,
    links,
)

FABRIC = "/redfish/v1/Fabrics/PCIe"
ENDPOINTS = f"{FABRIC}/Endpoints"
ZONES = f"{FABRIC}/Zones"
COMPOSERS = ("ConfigureComponents",)
ACTIONS = ("AddEndpoint", "RemoveEndpoint")


def register(falcon: Falcon) -> None:
    """Add the zones, one per host port; a service with resource blocks has none."""
    if falcon.blocks:
        return
    ports = falcon.state.host_ports()
    zones = [f"{ZONES}/{port.endpoint}" for port in ports]
    falcon.tree.resource(ZONES, lambda: collection(ZONES, "Zone", "Zones", zones))
    for port in ports:
        _register_zone(falcon, port)


def zone_body(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the zone of a host port: the port's endpoint first, then the attached devices."""
    members = [port.endpoint] + [f"drawer{port.drawer}slot{number}" for number in port.slots]
    endpoints = [f"{ENDPOINTS}/{name}" for name in members]
    uri = f"{ZONES}/{port.endpoint}"
    body: Body = {
        "@odata.id": uri,
        "@odata.type": "#Zone.v1_6_3.Zone",
        "Id": port.endpoint,
        "Name": f"Devices of {port.name} ({port.host})" if port.host is not None else f"Devices of {port.name}",
        "ZoneType": "ZoneOfEndpoints",
        "ExternalAccessibility": "ZoneOnly",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": add_references({}, InvolvedSwitches=[f"{FABRIC}/Switches/drawer{port.drawer}_switch"]),
    }
    if falcon.options.dialect == "psme-old":
        body["@odata.type"] = "#Zone.v1_0_0.Zone"
        del body["ZoneType"], body["ExternalAccessibility"]
        body["Endpoints"] = links(endpoints)
    else:
        add_references(body["Links"], Endpoints=endpoints)
    if falcon.options.dialect in ("both", "actions"):
        body["Actions"] = {f"#Zone.{name}": {"target": f"{uri}/Actions/Zone.{name}"} for name in ACTIONS}
    return body


def _register_zone(falcon: Falcon, port: SimulatedHostPort) -> None:
    uri = f"{ZONES}/{port.endpoint}"

    def render() -> Body:
        return zone_body(falcon, port)

    writes = {}
    if falcon.options.dialect in ("both", "patch", "psme-old"):
        writes["PATCH"] = WriteMethod(_patch(falcon, port), COMPOSERS)
    node = ResourceNode(uri, render, writes, revision=lambda: port.revision)
    falcon.tree.add(node)
    if falcon.options.dialect in ("both", "actions"):
        for name in ACTIONS:
            handler = _action(falcon, port, node, add=name == "AddEndpoint")
            falcon.tree.add(ResourceNode(f"{uri}/Actions/Zone.{name}", None, {"POST": WriteMethod(handler, COMPOSERS)}))


def _patch(falcon: Falcon, port: SimulatedHostPort) -> Handler:
    async def change(call: AuthenticatedRequest) -> Reply:
        wanted = _listed(call.body, zone_body(falcon, port), falcon.options.dialect)
        slots = falcon.composer.slots_of_list(port, wanted)
        falcon.composer.check(port, slots)
        return await bind_slots(falcon, port, lambda: slots, by=call.actor, render=lambda: zone_body(falcon, port))

    return change


def _listed(body: Body, known: Body, dialect: str) -> list[str]:
    """Return the endpoint Ids of a PATCH: below Links, or at the top level as in the oldest services."""
    if not body:
        raise RedfishError(400, "NoOperation", "The request body names no property to change.")
    places = {"patch": ("Links",), "psme-old": ("Endpoints",)}.get(dialect, ("Links", "Endpoints"))
    for key in body:
        if key not in places:
            raise property_not_writable(key) if key in known else property_unknown(key)
    value: Any = body["Endpoints"] if "Endpoints" in body else body["Links"]
    if "Links" in body:
        if not isinstance(value, dict):
            raise malformed("Links", value)
        for key in value:
            if key != "Endpoints":
                raise property_not_writable(f"Links/{key}") if key in known["Links"] else property_unknown(key)
        if "Endpoints" not in value:
            raise property_missing("Links/Endpoints")
        value = value["Endpoints"]
    if not isinstance(value, list):
        raise malformed("Endpoints", value)
    return [member_id(one, ENDPOINTS, "Endpoints") for one in value]


def member_id(reference: object, collection_uri: str, name: str) -> str:
    """Return the Id of the member that a request refers to; refuses an invalid reference with 400."""
    uri = reference.get("@odata.id") if isinstance(reference, dict) else None
    if not isinstance(uri, str) or not uri.startswith(f"{collection_uri}/"):
        raise malformed(name, reference)
    return uri.removeprefix(f"{collection_uri}/").rstrip("/")


def malformed(name: str, value: object) -> RedfishError:
    """Return the refusal of a value of the wrong type."""
    return RedfishError(
        400, "PropertyValueTypeError", f"The value '{value}' for the property {name} is not of a type it can accept.",
        arguments=(str(value), name), related=f"#/{name}",
    )  # fmt: skip


def _action(falcon: Falcon, port: SimulatedHostPort, node: ResourceNode, *, add: bool) -> Handler:
    name = "Zone.AddEndpoint" if add else "Zone.RemoveEndpoint"

    async def act(call: AuthenticatedRequest) -> Reply:
        if "Endpoint" not in call.body:
            raise parameter_missing(name, "Endpoint")
        wanted = member_id(call.body["Endpoint"], ENDPOINTS, "Endpoint")
        check_etag(call.body.get("ZoneETag"), node, "ZoneETag")
        endpoint = falcon.tree.find(f"{ENDPOINTS}/{wanted}")
        if endpoint is not None:
            check_etag(call.body.get("EndpointETag"), endpoint, "EndpointETag")

        def members() -> list[SimulatedSlot]:
            return falcon.composer.slots_with(port, wanted, add=add)

        falcon.composer.check(port, members())
        return await bind_slots(falcon, port, members, by=call.actor)

    return act


def check_etag(etag: object, node: ResourceNode, parameter: str) -> None:
    """Refuse an action whose ETag parameter is not the resource's, with the status required by the schemas."""
    if etag is not None and node.render is not None and node.etag(node.render()) != etag:
        raise RedfishError(
            428,
            "PreconditionRequired",
            f"The {parameter} supplied did not match the ETag of the resource.",
            resolution="Read the resource again and repeat the request with its new ETag.",
        )


def parameter_missing(action: str, parameter: str) -> RedfishError:
    """Return the refusal of an action without a required parameter."""
    return RedfishError(
        400,
        "ActionParameterMissing",
        f"The action {action} requires the parameter {parameter} to be present in the request body.",
        arguments=(action, parameter),
    )


async def bind_slots(
    falcon: Falcon,
    port: SimulatedHostPort,
    wanted: Callable[[], list[SimulatedSlot]],
    *,
    by: Actor | None,
    render: Callable[[], Body] | None = None,
) -> Reply:
    """Set the slots of a host port, immediately or as a task, and return the result of `render`, else 204."""

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

        return task_accepted(falcon.tasks.start(f"Change the devices of {port.endpoint}", uri, work))
    if falcon.options.slow_bind:
        await asyncio.sleep(falcon.options.slow_bind / falcon.clock.speed)
    _switch(falcon, port, wanted, by)
    return Reply(status, body())


def _switch(
    falcon: Falcon, port: SimulatedHostPort, wanted: Callable[[], list[SimulatedSlot]], by: Actor | None
) -> None:
    """Check again and switch; a fault may switch only one half, or answer 500 after all."""
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
        # Nothing is detached, so the omitted half is the last of the attached ones.
        kept += [slot for slot in slots if slot.attached_to is None][:-1]
    falcon.composer.apply(port, kept, by)
