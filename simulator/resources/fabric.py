"""The PCIe fabric with its endpoints."""

from __future__ import annotations

from functools import partial

from simulator.lab import DeviceModelKind
from simulator.odata import V1, Body, identity, link, references
from simulator.resources.devices import typed_uri
from simulator.resources.systems import system_uri
from simulator.resources.zones import ENDPOINTS, FABRIC, ZONES
from simulator.service import Falcon
from simulator.state import SWITCHES, SimulatedDevice, SimulatedHostPort, SimulatedSlot

_ENTITY_TYPES = {
    DeviceModelKind.GPU: "Processor",
    DeviceModelKind.DRIVE: "Drive",
    DeviceModelKind.NETWORK: "NetworkController",
    DeviceModelKind.CUSTOM: "Bridge",
}


def register(falcon: Falcon) -> None:
    """Add the fabric with its endpoints."""
    tree, state = falcon.tree, falcon.state

    def fabric() -> Body:
        body: Body = {
            **identity(FABRIC, "Fabric", "PCIe Fabric"),
            "FabricType": "PCIe",
            "UUID": state.uuid,
            "Status": {"State": "Enabled", "Health": "OK"},
            "Switches": link(SWITCHES),
            "Endpoints": link(ENDPOINTS),
        }
        if not falcon.blocks:
            body["MaxZones"] = len(state.host_ports())
            body["Zones"] = link(ZONES)
        return body

    def endpoint_uris() -> list[str]:
        hosts = [port.endpoint for port in state.host_ports()]
        devices = [slot.endpoint for slot in state.all_slots() if slot.connected]
        return [f"{ENDPOINTS}/{name}" for name in hosts + devices]

    tree.collection(f"{V1}/Fabrics", "Fabric", "Fabrics", lambda: [FABRIC])
    tree.resource(FABRIC, fabric)
    tree.collection(ENDPOINTS, "Endpoint", "Endpoints", endpoint_uris)
    for port in state.host_ports():
        tree.resource(f"{ENDPOINTS}/{port.endpoint}", partial(_initiator, falcon, port))
    for slot in state.all_slots():
        if slot.device is not None:
            _register_target(falcon, slot, slot.device)


def _register_target(falcon: Falcon, slot: SimulatedSlot, device: SimulatedDevice) -> None:
    render = partial(_target, falcon, slot, device)
    falcon.tree.resource(f"{ENDPOINTS}/{slot.endpoint}", render, exists=lambda: slot.connected)


def _initiator(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the endpoint of a host port; without a cable its root complex is absent."""
    entity: Body = {"EntityType": "RootComplex", "EntityRole": "Initiator"}
    if port.host is not None:
        entity["EntityLink"] = link(system_uri(falcon, port))
    zones = {} if falcon.blocks else references(Zones=[f"{ZONES}/{port.endpoint}"])
    return {
        **identity(f"{ENDPOINTS}/{port.endpoint}", "Endpoint", f"Host port {port.name} of drawer {port.drawer}"),
        "Description": f"The cable from {port.name} to {port.host}" if port.host is not None else "No cable",
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [entity],
        "Status": {"State": "Enabled" if port.host is not None else "StandbyOffline", "Health": "OK"},
        "Links": {**references(ConnectedPorts=[port.port_uri]), **zones},
    }


def _target(falcon: Falcon, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model = device.model
    owners = [falcon.state.drawers[slot.drawer].host_ports[slot.attached_to]] if slot.attached_to else []
    zones = {} if falcon.blocks else references(Zones=[f"{ZONES}/{owner.endpoint}" for owner in owners])
    name = f"{model.model} in drawer {slot.drawer} slot {slot.number}"
    return {
        **identity(f"{ENDPOINTS}/{slot.endpoint}", "Endpoint", name),
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [
            {
                "EntityType": _ENTITY_TYPES[model.kind],
                "EntityRole": "Target",
                "EntityLink": link(typed_uri(slot, model.kind) or slot.uri),
                "EntityPciId": {
                    "VendorId": model.vendor_id,
                    "DeviceId": model.device_id,
                    "SubsystemVendorId": model.subsystem_vendor_id,
                    "SubsystemId": model.subsystem_id,
                    "ClassCode": model.class_code,
                    "FunctionNumber": 0,
                },
            }
        ],
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": {**references(ConnectedPorts=[slot.port_uri]), **zones},
    }
