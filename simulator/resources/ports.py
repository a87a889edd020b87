"""Switch chips with their ports and the ports' metrics."""

from __future__ import annotations

from functools import partial

from simulator.errors import Body, RedfishError, property_not_writable, property_unknown, property_value
from simulator.resources.chassis import drawer_uri
from simulator.service import Falcon
from simulator.state import SimulatedDrawer, SimulatedHostPort, SimulatedSlot
from simulator.tree import (
    AuthenticatedRequest,
    Handler,
    Reply,
    ResourceNode,
    WriteMethod,
    add_references,
    collection,
    link,
)

V1 = "/redfish/v1"
SWITCHES = f"{V1}/Fabrics/PCIe/Switches"
ENDPOINTS = f"{V1}/Fabrics/PCIe/Endpoints"
FIRMWARE = "4.2.1.186"
WIDTHS = (1, 2, 4, 8, 16)
UNCONFIGURED = "UnconfiguredPort"
PortOwner = SimulatedSlot | SimulatedHostPort


def switch_uri(drawer: int) -> str:
    """Return the URI of the switch chip of a drawer."""
    return f"{SWITCHES}/drawer{drawer}_switch"


def port_uri(place: PortOwner) -> str:
    """Return the URI of the switch port of a slot or host port."""
    return f"{switch_uri(place.drawer)}/Ports/{place.link.port}"


def port_owners(drawer: SimulatedDrawer) -> list[PortOwner]:
    """Return the host ports, then the slots, behind the ports of a drawer's switch."""
    return [*drawer.host_ports.values(), *drawer.slots.values()]


def register(falcon: Falcon) -> None:
    """Add the switches with their ports."""
    tree, state = falcon.tree, falcon.state
    uris = [switch_uri(number) for number in state.drawers]
    tree.resource(SWITCHES, lambda: collection(SWITCHES, "Switch", "Switches", uris))
    for drawer in state.drawers.values():
        uri = switch_uri(drawer.number)
        tree.resource(uri, partial(_switch, drawer))
        members = [port_uri(place) for place in port_owners(drawer)]
        tree.resource(
            f"{uri}/Ports",
            partial(collection, f"{uri}/Ports", "Port", "Ports", members),
        )
        for place in port_owners(drawer):
            _register_port(falcon, place)


def _switch(drawer: SimulatedDrawer) -> Body:
    uri = switch_uri(drawer.number)
    links = add_references({}, ManagedBy=[f"{V1}/Managers/bmc"])
    links["Chassis"] = link(drawer_uri(drawer.number))
    return {
        "@odata.id": uri,
        "@odata.type": "#Switch.v1_11_0.Switch",
        "Id": f"drawer{drawer.number}_switch",
        "Name": f"PCIe switch of drawer {drawer.number}",
        "SwitchType": "PCIe",
        "Manufacturer": "Broadcom",
        "Model": "PEX88096",
        "SerialNumber": f"{drawer.serial}-SW",
        "FirmwareVersion": FIRMWARE,
        "TotalSwitchWidth": 16 * len(port_owners(drawer)),
        "CurrentBandwidthGbps": float(sum(place.link.gbps for place in port_owners(drawer))),
        "MaxBandwidthGbps": float(sum(place.link.max_gbps for place in port_owners(drawer))),
        "PowerState": "On",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Ports": link(f"{uri}/Ports"),
        "Links": links,
    }


def _register_port(falcon: Falcon, place: PortOwner) -> None:
    uri, tree = port_uri(place), falcon.tree
    components = ("ConfigureComponents",)
    tree.add(ResourceNode(uri, lambda: _port(place), {"PATCH": WriteMethod(_change(falcon, place), components)}))
    tree.resource(f"{uri}/Metrics", lambda: _metrics(place))

    async def retrain(call: AuthenticatedRequest) -> Reply:
        if place.link.status in ("LinkUp", "Training"):
            falcon.physics.train(place.link, falcon.physics.time)
        return Reply(204)

    async def reset_metrics(call: AuthenticatedRequest) -> Reply:
        place.link.forget_counters()
        return Reply(204)

    tree.add(ResourceNode(f"{uri}/Actions/Port.Reset", None, {"POST": WriteMethod(retrain, components)}))
    tree.add(
        ResourceNode(
            f"{uri}/Metrics/Actions/PortMetrics.ResetMetrics", None, {"POST": WriteMethod(reset_metrics, components)}
        )
    )


def _port(place: PortOwner) -> Body:
    uri, wire = port_uri(place), place.link
    upstream = isinstance(place, SimulatedHostPort)
    seen = upstream or (isinstance(place, SimulatedSlot) and place.present is not None)
    links = add_references({}, AssociatedEndpoints=[f"{ENDPOINTS}/{place.endpoint}"] if seen else [])
    return {
        "@odata.id": uri,
        "@odata.type": "#Port.v1_18_0.Port",
        "Id": wire.port,
        "Name": f"Host port {wire.port}" if upstream else f"Slot {wire.port.removeprefix('slot')}",
        "PortId": wire.port,
        "PortProtocol": "PCIe",
        "PortMedium": "Electrical",
        "PortType": _types(place)[0 if wire.configured else 1],
        "PortType@Redfish.AllowableValues": list(_types(place)),
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
                "ServiceLabel": wire.port if upstream else f"Drawer {place.drawer} slot {wire.port[4:]}",
                "LocationType": "Connector" if upstream else "Slot",
            }
        },
        "Metrics": link(f"{uri}/Metrics"),
        "Links": links,
        "Actions": {
            "#Port.Reset": {
                "target": f"{uri}/Actions/Port.Reset",
                "ResetType@Redfish.AllowableValues": ["ForceRestart"],
            }
        },
    }


def _metrics(place: PortOwner) -> Body:
    uri, wire = f"{port_uri(place)}/Metrics", place.link
    return {
        "@odata.id": uri,
        "@odata.type": "#PortMetrics.v1_8_1.PortMetrics",
        "Id": "Metrics",
        "Name": f"Metrics of port {wire.port}",
        "RXBytes": int(wire.received_bytes),
        "TXBytes": int(wire.transmitted_bytes),
        "PCIeErrors": dict(wire.errors),
        "Actions": {"#PortMetrics.ResetMetrics": {"target": f"{uri}/Actions/PortMetrics.ResetMetrics"}},
    }


def _change(falcon: Falcon, place: PortOwner) -> Handler:
    async def change(call: AuthenticatedRequest) -> Reply:
        if not call.body:
            raise RedfishError(400, "NoOperation", "The request body names no property to change.")
        known = _port(place)
        wanted = {key: known[key] for key in ("PortType", "ConfiguredWidth", "LinkState")} | call.body
        for key, value in call.body.items():
            if key in ("PortType", "LinkState"):
                allowed: tuple[object, ...] = _types(place) if key == "PortType" else ("Enabled", "Disabled")
            elif key == "ConfiguredWidth":
                allowed = WIDTHS
            else:
                raise property_not_writable(key) if key in known else property_unknown(key)
            if value not in allowed or isinstance(value, bool):
                raise property_value(key, value)
        if wanted["PortType"] != known["PortType"]:
            falcon.composer.check_port_type(place)
        falcon.composer.set_port(
            place,
            configured=wanted["PortType"] != UNCONFIGURED,
            lanes=int(wanted["ConfiguredWidth"]),
            enabled=wanted["LinkState"] == "Enabled",
            by=call.actor,
        )
        return Reply(200, _port(place))

    return change


def _types(place: PortOwner) -> tuple[str, str]:
    """Return the possible types of a port: the one of its fixed wiring, or unconfigured."""
    return ("UpstreamPort" if isinstance(place, SimulatedHostPort) else "DownstreamPort", UNCONFIGURED)
