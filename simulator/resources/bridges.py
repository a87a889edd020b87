"""Virtual CXL switches: one for each host port, whose virtual PCI-to-PCI bridges are bound to the ports of devices.

Each has as many bridges as its drawer has slots.
"""

from __future__ import annotations

from functools import partial

from simulator.composition import ENDPOINTS
from simulator.errors import conflict, no_operation, property_missing, property_refused, property_type
from simulator.odata import Body, identity, link, references
from simulator.resources.zones import bind_slots
from simulator.service import Falcon
from simulator.state import SWITCHES, SimulatedDrawer, SimulatedHostPort, SimulatedSlot, virtual_switch_uri
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, ResourceNode, WriteMethod


def register(falcon: Falcon) -> None:
    """Add the virtual switches of the drawers' switches."""
    if falcon.options.dialect != "cxl":
        return
    for drawer in falcon.state.drawers.values():
        ports = list(drawer.host_ports.values())
        uris = [virtual_switch_uri(port) for port in ports]
        falcon.tree.collection(_collection(drawer), "VirtualCXLSwitch", "Virtual CXL Switches", partial(list, uris))
        for port in ports:
            _register_virtual_switch(falcon, drawer, port)


def switch_properties(drawer: SimulatedDrawer) -> Body:
    """Return the properties of a CXL switch."""
    ports = list(drawer.host_ports.values())
    return {
        "MaxVCSsSupported": len(ports),
        "TotalNumbervPPBs": len(drawer.slots) * len(ports),
        "NumberOfBoundvPPBs": sum(len(port.slots) for port in ports),
        "VirtualCXLSwitches": link(_collection(drawer)),
    }


def _register_virtual_switch(falcon: Falcon, drawer: SimulatedDrawer, port: SimulatedHostPort) -> None:
    uri = virtual_switch_uri(port)
    numbers = _numbers(drawer)
    falcon.tree.resource(uri, partial(_virtual_switch, port))
    falcon.tree.collection(
        f"{uri}/VPPBs",
        "VirtualPCI2PCIBridge",
        "Virtual PCI-to-PCI Bridges",
        lambda: [f"{uri}/VPPBs/{number}" for number in numbers],
    )
    for number in numbers:
        writes = {"PATCH": WriteMethod(partial(_change, falcon, drawer, port, number), COMPOSE)}
        render = partial(_bridge, drawer, port, number)
        falcon.tree.add(ResourceNode(f"{uri}/VPPBs/{number}", render, writes, revision=partial(_revision, port)))


def _collection(drawer: SimulatedDrawer) -> str:
    return f"{SWITCHES}/drawer{drawer.number}_switch/VCSs"


def _numbers(drawer: SimulatedDrawer) -> range:
    return range(1, len(drawer.slots) + 1)


def _revision(port: SimulatedHostPort) -> int:
    return port.revision


def _virtual_switch(port: SimulatedHostPort) -> Body:
    uri = virtual_switch_uri(port)
    name = f"Devices of {port.name} ({port.host})" if port.host is not None else f"Devices of {port.name}"
    return {
        **identity(uri, "VirtualCXLSwitch", name),
        "VCSId": port.name,
        "Status": {"State": "Enabled", "Health": "OK"},
        "VPPBs": link(f"{uri}/VPPBs"),
        "Links": {**references(Endpoints=[f"{ENDPOINTS}/{port.endpoint}"]), "Port": link(port.port_uri)},
    }


def _bound(drawer: SimulatedDrawer, port: SimulatedHostPort) -> dict[int, SimulatedSlot]:
    """Return the slots at the bridges of a host port; those that no request bound have the first free ones."""
    bridges = port.bridges = {at: slot for at, slot in port.bridges.items() if slot in port.slots}
    free = (number for number in _numbers(drawer) if number not in bridges)
    for slot in [slot for slot in port.slots if slot not in bridges.values()]:
        bridges[next(free)] = slot
    return {at: drawer.slots[slot] for at, slot in bridges.items()}


def _bridge(drawer: SimulatedDrawer, port: SimulatedHostPort, number: int) -> Body:
    slot = _bound(drawer, port).get(number)
    body: Body = {
        **identity(f"{virtual_switch_uri(port)}/VPPBs/{number}", "VirtualPCI2PCIBridge", f"vPPB {number}"),
        "VPPBId": str(number),
        "Status": {"State": "Enabled", "Health": "OK"},
        "BindingStatus": "Unbound" if slot is None else "BoundPhysicalPort",
        "Links": {"Port": None if slot is None else link(slot.port_uri)},
    }
    if slot is not None:
        body["BoundPortId"] = slot.number
        body["Links"] |= references(Endpoints=[f"{ENDPOINTS}/{slot.endpoint}"])
    return body


async def _change(
    falcon: Falcon, drawer: SimulatedDrawer, port: SimulatedHostPort, number: int, call: AuthenticatedRequest
) -> Reply:
    """Bind a bridge to the port of a device, or free it: the link to the port is its one writable property."""
    wanted = _wanted(falcon, _bridge(drawer, port, number), call.body)

    def slots() -> list[SimulatedSlot]:
        bound = _bound(drawer, port)
        if wanted is not None and bound.get(number, wanted) is not wanted:
            raise conflict(f"The bridge {number} of {port.name} is bound to {bound[number].endpoint}; free it first.")
        if wanted in bound.values() and number not in bound:
            raise conflict(f"{port.name} has {call.body['Links']['Port']['@odata.id']} at another bridge.")
        others = [slot for at, slot in bound.items() if at != number]
        return others if wanted is None else [*others, wanted]

    def bind() -> list[SimulatedSlot]:
        listed = slots()
        if wanted is not None:
            port.bridges[number] = wanted.number
        return listed

    falcon.composer.check(port, slots())
    return await bind_slots(falcon, port, bind, by=call.actor, answer=lambda: Reply(200, _bridge(drawer, port, number)))


def _wanted(falcon: Falcon, known: Body, body: Body) -> SimulatedSlot | None:
    """Return the slot whose port a bridge is to be bound to, None to free it."""
    if not body:
        raise no_operation()
    for key in body:
        if key != "Links":
            raise property_refused(key, known)
    links = body["Links"]
    if not isinstance(links, dict):
        raise property_type("Links", links)
    for key in links:
        if key != "Port":
            raise property_refused(f"Links/{key}" if key in known["Links"] else key, ["Links/Endpoints"])
    if "Port" not in links:
        raise property_missing("Links/Port")
    if links["Port"] is None:
        return None
    uri = links["Port"].get("@odata.id") if isinstance(links["Port"], dict) else None
    slot = next((slot for slot in falcon.state.all_slots() if slot.port_uri == uri), None)
    if slot is None:
        raise property_type("Links/Port", links["Port"])
    if not slot.connected:
        raise conflict(f"There is no device at {slot.endpoint}.")
    return slot
