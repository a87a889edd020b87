"""The PCIe fabric: endpoints, zones, and composition in both dialects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.catalog import Kind
from simulator.errors import Body, RedfishError, property_missing, property_not_writable, property_unknown
from simulator.resources.chassis import gpu_uri, slot_uri
from simulator.resources.devices import twin_uri
from simulator.resources.tasking import accepted
from simulator.state import HostPort, Slot
from simulator.tasks import BmcTask
from simulator.tree import Call, Handler, Node, Reply, Write, collection, counted, link

if TYPE_CHECKING:
    from simulator.service import Falcon

V1 = "/redfish/v1"
FABRIC = f"{V1}/Fabrics/PCIe"
ENDPOINTS = f"{FABRIC}/Endpoints"
ZONES = f"{FABRIC}/Zones"
COMPOSERS = ("ConfigureComponents",)


def register(falcon: Falcon) -> None:
    """Add the fabric with endpoints and zones."""
    tree, state = falcon.tree, falcon.state

    def fabric() -> Body:
        return {
            "@odata.id": FABRIC,
            "@odata.type": "#Fabric.v1_4_0.Fabric",
            "Id": "PCIe",
            "Name": "PCIe Fabric",
            "FabricType": "PCIe",
            "MaxZones": len(state.host_ports()),
            "UUID": state.uuid,
            "Status": {"State": "Enabled", "Health": "OK"},
            "Switches": link(f"{FABRIC}/Switches"),
            "Endpoints": link(ENDPOINTS),
            "Zones": link(ZONES),
        }

    def endpoint_uris() -> list[str]:
        hosts = [port.endpoint for port in state.host_ports()]
        devices = [slot.endpoint for slot in state.all_slots() if slot.present is not None]
        return [f"{ENDPOINTS}/{name}" for name in hosts + devices]

    def endpoint(last: str) -> Node | None:
        port = state.zone(last)
        if port is not None:
            return Node(f"{ENDPOINTS}/{last}", lambda: _initiator(port))
        slot = state.slot_of_endpoint(last)
        return Node(f"{ENDPOINTS}/{last}", lambda: _target(falcon, slot)) if slot is not None else None

    tree.resource(f"{V1}/Fabrics", lambda: collection(f"{V1}/Fabrics", "Fabric", "Fabrics", [FABRIC]))
    tree.resource(FABRIC, fabric)
    tree.resource(ENDPOINTS, lambda: collection(ENDPOINTS, "Endpoint", "Endpoints", endpoint_uris()))
    tree.members(ENDPOINTS, endpoint)
    zones = [f"{ZONES}/{port.endpoint}" for port in state.host_ports()]
    tree.resource(ZONES, lambda: collection(ZONES, "Zone", "Zones", zones))
    for port in state.host_ports():
        _register_zone(falcon, port)


def _initiator(port: HostPort) -> Body:
    return {
        "@odata.id": f"{ENDPOINTS}/{port.endpoint}",
        "@odata.type": "#Endpoint.v1_8_2.Endpoint",
        "Id": port.endpoint,
        "Name": f"Host port {port.name} of drawer {port.drawer}",
        "Description": f"The cable from {port.name} to {port.host}",
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [
            {
                "EntityType": "RootComplex",
                "EntityRole": "Initiator",
                "EntityLink": link(f"{V1}/Systems/{port.host}"),
            }
        ],
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": counted(
            {},
            ConnectedPorts=[f"{FABRIC}/Switches/drawer{port.drawer}_switch/Ports/{port.name}"],
            Zones=[f"{ZONES}/{port.endpoint}"],
        ),
    }


def _target(falcon: Falcon, slot: Slot) -> Body:
    device = slot.present
    entity: Body = {"EntityType": "Bridge", "EntityRole": "Target", "EntityLink": link(slot_uri(slot))}
    model_name = ""
    if device is not None:
        model = device.model
        model_name = model.model
        entity["EntityPciId"] = {
            "VendorId": model.vendor_id,
            "DeviceId": model.device_id,
            "SubsystemVendorId": model.subsystem_vendor_id,
            "SubsystemId": model.subsystem_id,
            "ClassCode": model.class_code,
            "FunctionNumber": 0,
        }
        twin = twin_uri(slot, model)
        if twin is not None:
            kinds = {Kind.GPU: "Processor", Kind.DRIVE: "Drive", Kind.NETWORK: "NetworkController"}
            entity["EntityType"] = kinds[model.kind]
            entity["EntityLink"] = link(gpu_uri(slot) if model.kind is Kind.GPU else twin)
    zones = []
    if slot.attached_to is not None:
        zones.append(f"{ZONES}/{falcon.state.drawers[slot.drawer].host_ports[slot.attached_to].endpoint}")
    return {
        "@odata.id": f"{ENDPOINTS}/{slot.endpoint}",
        "@odata.type": "#Endpoint.v1_8_2.Endpoint",
        "Id": slot.endpoint,
        "Name": f"{model_name} in drawer {slot.drawer} slot {slot.number}",
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [entity],
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": counted(
            {},
            ConnectedPorts=[f"{FABRIC}/Switches/drawer{slot.drawer}_switch/Ports/slot{slot.number}"],
            Zones=zones,
        ),
    }


def zone_body(falcon: Falcon, port: HostPort) -> Body:
    """Render the zone of a host port: the port's endpoint first, then the attached devices."""
    members = [port.endpoint] + [f"drawer{port.drawer}slot{number}" for number in port.slots]
    uri = f"{ZONES}/{port.endpoint}"
    body: Body = {
        "@odata.id": uri,
        "@odata.type": "#Zone.v1_6_3.Zone",
        "Id": port.endpoint,
        "Name": f"Devices of {port.name} ({port.host})",
        "ZoneType": "ZoneOfEndpoints",
        "ExternalAccessibility": "ZoneOnly",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": counted(
            {},
            Endpoints=[f"{ENDPOINTS}/{name}" for name in members],
            InvolvedSwitches=[f"{FABRIC}/Switches/drawer{port.drawer}_switch"],
        ),
    }
    if falcon.options.dialect in ("both", "actions"):
        body["Actions"] = {
            f"#Zone.{name}": {"target": f"{uri}/Actions/Zone.{name}"} for name in ("AddEndpoint", "RemoveEndpoint")
        }
    return body


def _register_zone(falcon: Falcon, port: HostPort) -> None:
    uri = f"{ZONES}/{port.endpoint}"

    def render() -> Body:
        return zone_body(falcon, port)

    writes = {}
    if falcon.options.dialect in ("both", "patch"):
        writes["PATCH"] = Write(_patch(falcon, port), COMPOSERS)
    node = Node(uri, render, writes, revision=lambda: port.revision)
    falcon.tree.add(node)
    if falcon.options.dialect in ("both", "actions"):
        for name in ("AddEndpoint", "RemoveEndpoint"):
            handler = _action(falcon, port, node, add=name == "AddEndpoint")
            falcon.tree.add(Node(f"{uri}/Actions/Zone.{name}", None, {"POST": Write(handler, COMPOSERS)}))


def _patch(falcon: Falcon, port: HostPort) -> Handler:
    async def change(call: Call) -> Reply:
        wanted = _listed(call.body, zone_body(falcon, port))
        slots = falcon.composer.slots_of_list(port, wanted)
        falcon.composer.check(port, slots)
        return await _bind(falcon, port, lambda: slots, full=200)

    return change


def _listed(body: Body, known: Body) -> list[str]:
    """Return the endpoint Ids of a PATCH: below Links, or at the top level as the oldest dialect has it."""
    if not body:
        raise RedfishError(400, "NoOperation", "The request body names no property to change.")
    for key in body:
        if key not in ("Links", "Endpoints"):
            raise property_not_writable(key) if key in known else property_unknown(key)
    value = body["Endpoints"] if "Endpoints" in body else body["Links"]
    if "Links" in body:
        if not isinstance(value, dict):
            raise _malformed("Links", value)
        for key in value:
            if key != "Endpoints":
                raise property_not_writable(f"Links/{key}") if key in known["Links"] else property_unknown(key)
        if "Endpoints" not in value:
            raise property_missing("Links/Endpoints")
        value = value["Endpoints"]
    if not isinstance(value, list):
        raise _malformed("Endpoints", value)
    return [endpoint_id(one) for one in value]


def endpoint_id(reference: object) -> str:
    """Return the Id of an endpoint that a request refers to; refuses what is no such reference with 400."""
    uri = reference.get("@odata.id") if isinstance(reference, dict) else None
    if not isinstance(uri, str) or not uri.startswith(f"{ENDPOINTS}/"):
        raise _malformed("Endpoints", reference)
    return uri.removeprefix(f"{ENDPOINTS}/").rstrip("/")


def _malformed(name: str, value: object) -> RedfishError:
    return RedfishError(
        400, "PropertyValueTypeError", f"The value '{value}' for the property {name} is not of a type it can accept.",
        arguments=(str(value), name), related=f"#/{name}",
    )  # fmt: skip


def _action(falcon: Falcon, port: HostPort, node: Node, *, add: bool) -> Handler:
    name = "AddEndpoint" if add else "RemoveEndpoint"

    async def act(call: Call) -> Reply:
        if "Endpoint" not in call.body:
            raise RedfishError(
                400,
                "ActionParameterMissing",
                f"The action Zone.{name} requires the parameter Endpoint to be present in the request body.",
                arguments=(f"Zone.{name}", "Endpoint"),
            )
        wanted = endpoint_id(call.body["Endpoint"])
        _compare(call.body.get("ZoneETag"), node, "ZoneETag")
        endpoint = falcon.tree.find(f"{ENDPOINTS}/{wanted}")
        if endpoint is not None:
            _compare(call.body.get("EndpointETag"), endpoint, "EndpointETag")

        def members() -> list[Slot]:
            listed = [port.endpoint] + [f"drawer{port.drawer}slot{number}" for number in port.slots]
            if add and wanted not in listed:
                listed.append(wanted)
            elif not add:
                if wanted not in listed:
                    raise RedfishError(
                        404,
                        "ResourceNotFound",
                        f"The endpoint {wanted} is not in the zone {port.endpoint}.",
                        arguments=("Endpoint", wanted),
                    )
                listed.remove(wanted)
            return falcon.composer.slots_of_list(port, listed)

        falcon.composer.check(port, members())
        return await _bind(falcon, port, members, full=204)

    return act


def _compare(etag: object, node: Node, parameter: str) -> None:
    if etag is not None and node.render is not None and node.etag(node.render()) != etag:
        raise RedfishError(
            412,
            "PreconditionFailed",
            f"The {parameter} supplied did not match the ETag of the resource.",
            resolution="Read the resource again and repeat the request with its new ETag.",
        )


async def _bind(falcon: Falcon, port: HostPort, wanted: Callable[[], list[Slot]], *, full: int) -> Reply:
    """Switch, at once or as a task; `full` is the status of the answer, 204 for one without a body."""
    if falcon.options.bind_by_task:

        async def work(task: BmcTask) -> tuple[int, Body | None]:
            task.percent = 10
            await asyncio.sleep(max(falcon.options.slow_bind, 0.2) / falcon.clock.speed)
            _switch(falcon, port, wanted)
            return full, zone_body(falcon, port) if full == 200 else None

        return accepted(falcon.tasks.start(f"Change the zone {port.endpoint}", f"{ZONES}/{port.endpoint}", work))
    if falcon.options.slow_bind:
        await asyncio.sleep(falcon.options.slow_bind / falcon.clock.speed)
    _switch(falcon, port, wanted)
    return Reply(full, zone_body(falcon, port) if full == 200 else None)


def _switch(falcon: Falcon, port: HostPort, wanted: Callable[[], list[Slot]]) -> None:
    """Check once more and switch; a fault may switch one half only, or answer 500 after the whole."""
    slots = wanted()
    falcon.composer.check(port, slots)
    fault = falcon.faults.take("half_applied_bind", path=f"{ZONES}/{port.endpoint}")
    if fault is None:
        falcon.composer.apply(port, slots)
        return
    if fault.answer == "error":
        falcon.composer.apply(port, slots)
        raise RedfishError(500, "InternalError", "The request failed due to an internal service error.")
    kept = [slot for slot in slots if slot.attached_to == port.name]
    if len(kept) == len(port.slots):
        # Nothing leaves the zone, so the half that is left out is the last of what joins it.
        kept += [slot for slot in slots if slot.attached_to is None][:-1]
    falcon.composer.apply(port, kept)
