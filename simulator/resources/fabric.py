"""The PCIe fabric with its endpoints."""

from __future__ import annotations

from simulator.catalog import DeviceModelKind
from simulator.errors import Body
from simulator.resources.chassis import gpu_uri, slot_uri
from simulator.resources.devices import typed_uri
from simulator.resources.systems import system_uri
from simulator.resources.zones import ENDPOINTS, FABRIC, ZONES
from simulator.service import Falcon
from simulator.state import SimulatedHostPort, SimulatedSlot
from simulator.tree import ResourceNode, add_references, collection, link

V1 = "/redfish/v1"


def register(falcon: Falcon) -> None:
    """Add the fabric with its endpoints."""
    tree, state = falcon.tree, falcon.state

    def fabric() -> Body:
        body: Body = {
            "@odata.id": FABRIC,
            "@odata.type": "#Fabric.v1_4_0.Fabric",
            "Id": "PCIe",
            "Name": "PCIe Fabric",
            "FabricType": "PCIe",
            "UUID": state.uuid,
            "Status": {"State": "Enabled", "Health": "OK"},
            "Switches": link(f"{FABRIC}/Switches"),
            "Endpoints": link(ENDPOINTS),
        }
        if not falcon.blocks:
            body["MaxZones"] = len(state.host_ports())
            body["Zones"] = link(ZONES)
        return body

    def endpoint_uris() -> list[str]:
        hosts = [port.endpoint for port in state.host_ports()]
        devices = [slot.endpoint for slot in state.all_slots() if slot.present is not None]
        return [f"{ENDPOINTS}/{name}" for name in hosts + devices]

    def endpoint(last: str) -> ResourceNode | None:
        port = state.zone(last)
        if port is not None:
            return ResourceNode(f"{ENDPOINTS}/{last}", lambda: _initiator(falcon, port))
        slot = state.slot_of_endpoint(last)
        return ResourceNode(f"{ENDPOINTS}/{last}", lambda: _target(falcon, slot)) if slot is not None else None

    tree.resource(f"{V1}/Fabrics", lambda: collection(f"{V1}/Fabrics", "Fabric", "Fabrics", [FABRIC]))
    tree.resource(FABRIC, fabric)
    tree.resource(ENDPOINTS, lambda: collection(ENDPOINTS, "Endpoint", "Endpoints", endpoint_uris()))
    tree.members(ENDPOINTS, endpoint)


def _initiator(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the endpoint of a host port; without a cable its root complex is absent."""
    entity: Body = {"EntityType": "RootComplex", "EntityRole": "Initiator"}
    if port.host is not None:
        entity["EntityLink"] = link(system_uri(falcon, port))
    links = add_references({}, ConnectedPorts=[f"{FABRIC}/Switches/drawer{port.drawer}_switch/Ports/{port.name}"])
    if not falcon.blocks:
        add_references(links, Zones=[f"{ZONES}/{port.endpoint}"])
    return {
        "@odata.id": f"{ENDPOINTS}/{port.endpoint}",
        "@odata.type": "#Endpoint.v1_8_2.Endpoint",
        "Id": port.endpoint,
        "Name": f"Host port {port.name} of drawer {port.drawer}",
        "Description": f"The cable from {port.name} to {port.host}" if port.host is not None else "No cable",
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [entity],
        "Status": {"State": "Enabled" if port.host is not None else "StandbyOffline", "Health": "OK"},
        "Links": links,
    }


def _target(falcon: Falcon, slot: SimulatedSlot) -> Body:
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
        twin = typed_uri(slot, model)
        if twin is not None:
            kinds = {
                DeviceModelKind.GPU: "Processor",
                DeviceModelKind.DRIVE: "Drive",
                DeviceModelKind.NETWORK: "NetworkController",
            }
            entity["EntityType"] = kinds[model.kind]
            entity["EntityLink"] = link(gpu_uri(slot) if model.kind is DeviceModelKind.GPU else twin)
    links = add_references({}, ConnectedPorts=[f"{FABRIC}/Switches/drawer{slot.drawer}_switch/Ports/slot{slot.number}"])
    if not falcon.blocks:
        owners = [falcon.state.drawers[slot.drawer].host_ports[slot.attached_to]] if slot.attached_to else []
        add_references(links, Zones=[f"{ZONES}/{owner.endpoint}" for owner in owners])
    return {
        "@odata.id": f"{ENDPOINTS}/{slot.endpoint}",
        "@odata.type": "#Endpoint.v1_8_2.Endpoint",
        "Id": slot.endpoint,
        "Name": f"{model_name} in drawer {slot.drawer} slot {slot.number}",
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [entity],
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": links,
    }
