"""The PCIe fabric: endpoints, and switch chips with their ports and the ports' metrics."""

from __future__ import annotations

from functools import partial

from simulator.composition import CONNECTIONS, ENDPOINTS, FABRIC, HOLDERS, ZONES
from simulator.errors import no_operation, property_refused, property_value
from simulator.lab import DeviceModelKind
from simulator.odata import V1, Body, identity, link, references
from simulator.resources.bridges import switch_properties
from simulator.resources.controls import indicator, indicator_method
from simulator.resources.devices import typed_uri
from simulator.resources.systems import system_uri
from simulator.service import Falcon
from simulator.state import (
    SWITCHES,
    SimulatedDevice,
    SimulatedDrawer,
    SimulatedHostPort,
    SimulatedSlot,
    SwitchPort,
    drawer_uri,
)
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, WriteMethod

WIDTHS = (1, 2, 4, 8, 16)
UNCONFIGURED = "UnconfiguredPort"
_ENTITY_TYPES = {
    DeviceModelKind.GPU: "Processor",
    DeviceModelKind.DRIVE: "Drive",
    DeviceModelKind.NETWORK: "NetworkController",
    DeviceModelKind.CUSTOM: "Bridge",
}


def register(falcon: Falcon) -> None:
    """Add the fabric with its endpoints and switches."""
    tree, state = falcon.tree, falcon.state

    def fabric() -> Body:
        body: Body = {
            **identity(FABRIC, "Fabric", "PCIe Fabric"),
            "FabricType": "CXL" if falcon.options.dialect == "cxl" else "PCIe",
            "UUID": state.uuid,
            "Status": {"State": "Enabled", "Health": "OK"},
            "Switches": link(SWITCHES),
            "Endpoints": link(ENDPOINTS),
        }
        if not (falcon.blocks or falcon.options.dialect in HOLDERS):
            body |= {"MaxZones": len(state.host_ports()), "Zones": link(ZONES)}
        elif falcon.options.dialect.startswith("zones"):
            body |= {"MaxZones": len(list(state.all_slots())), "Zones": link(ZONES)}
        elif falcon.options.dialect.startswith("connection"):
            body["Connections"] = link(CONNECTIONS)
        if falcon.options.dialect == "zones-pools":
            body["AddressPools"] = link(f"{FABRIC}/AddressPools")
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
    switches = [_register_switch(falcon, drawer) for drawer in state.drawers.values()]
    tree.collection(SWITCHES, "Switch", "Switches", lambda: switches)


def _register_target(falcon: Falcon, slot: SimulatedSlot, device: SimulatedDevice) -> None:
    render = partial(_target, falcon, slot, device)
    falcon.tree.resource(f"{ENDPOINTS}/{slot.endpoint}", render, exists=lambda: slot.connected)


def _initiator(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the endpoint of a host port; without a cable its root complex is absent."""
    entity: Body = {"EntityType": "RootComplex", "EntityRole": "Initiator"}
    if port.host is not None:
        entity["EntityLink"] = link(system_uri(falcon, port))
    return {
        **identity(f"{ENDPOINTS}/{port.endpoint}", "Endpoint", f"Host port {port.name} of drawer {port.drawer}"),
        "Description": f"The cable from {port.name} to {port.host}" if port.host is not None else "No cable",
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [entity],
        "Status": {"State": "Enabled" if port.host is not None else "StandbyOffline", "Health": "OK"},
        "Links": references(ConnectedPorts=[port.port_uri]) | falcon.composer.fabric_links(port),
    }


def _target(falcon: Falcon, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model = device.model
    owner = falcon.state.drawers[slot.drawer].host_ports[slot.attached_to] if slot.attached_to else None
    joined = falcon.composer.fabric_links(owner, slot) if owner is not None else {}
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
        "Links": references(ConnectedPorts=[slot.port_uri]) | joined,
    }


def _register_switch(falcon: Falcon, drawer: SimulatedDrawer) -> str:
    uri, ports = f"{SWITCHES}/drawer{drawer.number}_switch", drawer.switch_ports()
    render = partial(_switch, falcon, uri, drawer)
    falcon.tree.resource(uri, render, PATCH=indicator_method(falcon, uri, render))
    falcon.tree.collection(f"{uri}/Ports", "Port", "Ports", lambda: [port.port_uri for port in ports])
    for port in ports:
        _register_port(falcon, port)
    return uri


def _switch(falcon: Falcon, uri: str, drawer: SimulatedDrawer) -> Body:
    ports = drawer.switch_ports()
    body: Body = {
        **identity(uri, "Switch", f"PCIe switch of drawer {drawer.number}"),
        "SwitchType": "PCIe",
        "Manufacturer": "Broadcom",
        "Model": "PEX88096",
        "SerialNumber": f"{drawer.serial}-SW",
        "FirmwareVersion": falcon.state.version(f"drawer{drawer.number}_switch"),
        "TotalSwitchWidth": 16 * len(ports),
        "CurrentBandwidthGbps": float(sum(port.link.gbps for port in ports)),
        "MaxBandwidthGbps": float(sum(port.link.max_gbps for port in ports)),
        "PowerState": falcon.power.state_of(f"drawer{drawer.number}"),
        **indicator(falcon, uri),
        "Status": {"State": "Enabled", "Health": "OK"},
        "Ports": link(f"{uri}/Ports"),
        "Links": {**references(ManagedBy=[f"{V1}/Managers/bmc"]), "Chassis": link(drawer_uri(drawer.number))},
    }
    if falcon.options.dialect == "cxl":
        body |= {"SwitchType": "CXL", "CXL": switch_properties(drawer)}
    return body


def _register_port(falcon: Falcon, port: SwitchPort) -> None:
    tree, uri = falcon.tree, port.port_uri

    async def retrain(call: AuthenticatedRequest) -> Reply:
        if port.link.status in ("LinkUp", "Training"):
            falcon.physics.train(port.link)
        return Reply(204)

    async def reset_metrics(call: AuthenticatedRequest) -> Reply:
        port.link.reset_counters()
        return Reply(204)

    tree.resource(
        uri, partial(_rendered_port, falcon, port), PATCH=WriteMethod(partial(_change_port, falcon, port), COMPOSE)
    )
    tree.resource(f"{uri}/Metrics", partial(_metrics, port))
    tree.action(f"{uri}/Actions/Port.Reset", retrain, COMPOSE)
    tree.action(f"{uri}/Metrics/Actions/PortMetrics.ResetMetrics", reset_metrics, COMPOSE)


def _rendered_port(falcon: Falcon, port: SwitchPort) -> Body:
    """Render a port; the oldest schema has no state of the link."""
    body = _port(port)
    if falcon.options.dialect == "pnc":
        body["@odata.type"] = "#Port.v1_0_0.Port"
        del body["LinkStatus"], body["LinkState"]
    elif falcon.faults.is_active("no_link_status"):
        del body["LinkStatus"]
    return body


def _port(port: SwitchPort) -> Body:
    uri, wire = port.port_uri, port.link
    return {
        **identity(uri, "Port", f"Host port {wire.port}" if port.upstream else f"Slot {wire.port[4:]}"),
        "PortId": wire.port,
        "PortProtocol": "PCIe",
        "PortMedium": "Electrical",
        "PortType": _types(port)[0 if wire.configured else 1],
        "PortType@Redfish.AllowableValues": list(_types(port)),
        "LinkState": "Enabled" if wire.enabled else "Disabled",
        "LinkStatus": wire.status,
        "InterfaceEnabled": wire.enabled,
        "CurrentSpeedGbps": wire.gbps,
        "MaxSpeedGbps": wire.max_gbps,
        "Width": wire.max_lanes,
        "ActiveWidth": wire.lanes,
        "ConfiguredWidth": wire.configured_lanes,
        "ConfiguredWidth@Redfish.AllowableNumbers": [str(width) for width in WIDTHS],
        "Status": {
            "State": "Enabled" if wire.enabled else "Disabled",
            "Health": "Warning" if wire.degraded else "OK",
        },
        "Location": {
            "PartLocation": {
                "ServiceLabel": wire.port if port.upstream else f"Drawer {port.drawer} slot {wire.port[4:]}",
                "LocationType": "Connector" if port.upstream else "Slot",
            }
        },
        "Metrics": link(f"{uri}/Metrics"),
        "Links": references(
            AssociatedEndpoints=[f"{V1}/Fabrics/PCIe/Endpoints/{port.endpoint}"]
            if port.upstream or port.connected
            else []
        ),
        "Actions": {
            "#Port.Reset": {
                "target": f"{uri}/Actions/Port.Reset",
                "ResetType@Redfish.AllowableValues": ["ForceRestart"],
            }
        },
    }


def _metrics(port: SwitchPort) -> Body:
    uri, wire = f"{port.port_uri}/Metrics", port.link
    return {
        **identity(uri, "PortMetrics", f"Metrics of port {wire.port}"),
        "RXBytes": int(wire.received_bytes),
        "TXBytes": int(wire.transmitted_bytes),
        "PCIeErrors": dict(wire.errors),
        "Actions": {"#PortMetrics.ResetMetrics": {"target": f"{uri}/Actions/PortMetrics.ResetMetrics"}},
    }


async def _change_port(falcon: Falcon, port: SwitchPort, call: AuthenticatedRequest) -> Reply:
    if not call.body:
        raise no_operation()
    known = _port(port)
    allowed: dict[str, tuple[object, ...]] = {
        "PortType": _types(port),
        "LinkState": ("Enabled", "Disabled"),
        "ConfiguredWidth": WIDTHS,
    }
    for key, value in call.body.items():
        if key not in allowed:
            raise property_refused(key, known)
        if value not in allowed[key] or isinstance(value, bool):
            raise property_value(key, value)
    desired = known | call.body
    if desired["PortType"] != known["PortType"]:
        falcon.composer.check_port_type(port)
    falcon.composer.set_port(
        port,
        configured=desired["PortType"] != UNCONFIGURED,
        lanes=int(desired["ConfiguredWidth"]),
        enabled=desired["LinkState"] == "Enabled",
        by=call.actor,
    )
    return Reply(200, _rendered_port(falcon, port))


def _types(port: SwitchPort) -> tuple[str, str]:
    """Return the possible types of a port: the one of its fixed wiring, or unconfigured."""
    return ("UpstreamPort" if port.upstream else "DownstreamPort", UNCONFIGURED)
