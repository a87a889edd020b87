"""Switch chips with their ports and the ports' metrics."""

from __future__ import annotations

from functools import partial

from simulator.errors import no_operation, property_refused, property_value
from simulator.odata import V1, Body, identity, link, references
from simulator.service import Falcon
from simulator.state import SWITCHES, SimulatedDrawer, SwitchPort, drawer_uri
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, WriteMethod

FIRMWARE = "4.2.1.186"
WIDTHS = (1, 2, 4, 8, 16)
UNCONFIGURED = "UnconfiguredPort"


def register(falcon: Falcon) -> None:
    """Add the switches with their ports."""
    uris = [_register_switch(falcon, drawer) for drawer in falcon.state.drawers.values()]
    falcon.tree.collection(SWITCHES, "Switch", "Switches", lambda: uris)


def _register_switch(falcon: Falcon, drawer: SimulatedDrawer) -> str:
    uri, ports = f"{SWITCHES}/drawer{drawer.number}_switch", drawer.switch_ports()
    falcon.tree.resource(uri, partial(_switch, uri, drawer))
    falcon.tree.collection(f"{uri}/Ports", "Port", "Ports", lambda: [port.port_uri for port in ports])
    for port in ports:
        _register_port(falcon, port)
    return uri


def _switch(uri: str, drawer: SimulatedDrawer) -> Body:
    ports = drawer.switch_ports()
    return {
        **identity(uri, "Switch", f"PCIe switch of drawer {drawer.number}"),
        "SwitchType": "PCIe",
        "Manufacturer": "Broadcom",
        "Model": "PEX88096",
        "SerialNumber": f"{drawer.serial}-SW",
        "FirmwareVersion": FIRMWARE,
        "TotalSwitchWidth": 16 * len(ports),
        "CurrentBandwidthGbps": float(sum(port.link.gbps for port in ports)),
        "MaxBandwidthGbps": float(sum(port.link.max_gbps for port in ports)),
        "PowerState": "On",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Ports": link(f"{uri}/Ports"),
        "Links": {**references(ManagedBy=[f"{V1}/Managers/bmc"]), "Chassis": link(drawer_uri(drawer.number))},
    }


def _register_port(falcon: Falcon, port: SwitchPort) -> None:
    tree, uri = falcon.tree, port.port_uri

    async def retrain(call: AuthenticatedRequest) -> Reply:
        if port.link.status in ("LinkUp", "Training"):
            falcon.physics.train(port.link)
        return Reply(204)

    async def reset_metrics(call: AuthenticatedRequest) -> Reply:
        port.link.reset_counters()
        return Reply(204)

    tree.resource(uri, partial(_port, port), PATCH=WriteMethod(partial(_change_port, falcon, port), COMPOSE))
    tree.resource(f"{uri}/Metrics", partial(_metrics, port))
    tree.action(f"{uri}/Actions/Port.Reset", retrain, COMPOSE)
    tree.action(f"{uri}/Metrics/Actions/PortMetrics.ResetMetrics", reset_metrics, COMPOSE)


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
    return Reply(200, _port(port))


def _types(port: SwitchPort) -> tuple[str, str]:
    """Return the possible types of a port: the one of its fixed wiring, or unconfigured."""
    return ("UpstreamPort" if port.upstream else "DownstreamPort", UNCONFIGURED)
