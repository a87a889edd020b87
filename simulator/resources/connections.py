"""Zones and connections of one device each, created and deleted by clients, and connections of whole host ports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from simulator.composition import CONNECTIONS, ENDPOINTS, FABRIC, ZONES
from simulator.errors import property_error, property_missing, property_type
from simulator.odata import Body, identity, links, references
from simulator.resources.zones import bind_slots, listed_members, member_id
from simulator.service import Falcon
from simulator.state import SWITCHES, SimulatedHostPort, SimulatedSlot
from simulator.tree import COMPOSE, AuthenticatedRequest, Handler, Reply, ResourceNode, WriteMethod

POOLS = f"{FABRIC}/AddressPools"
POOL = f"{POOLS}/pcie"


class Pair(NamedTuple):
    """A host port and a device at it."""

    port: SimulatedHostPort
    slot: SimulatedSlot


class PairKind(NamedTuple):
    """A kind of resource that attaches one device: its links to both, as rendered and as read from a request."""

    collection: str
    kind: str
    link: Callable[[str, str], Body]
    ends: Callable[[Body], list[str]]


def register(falcon: Falcon) -> None:
    """Add the collection of the dialect, if it has one of these."""
    match falcon.options.dialect:
        case "zones" | "zones-pools":
            _register_pairs(falcon, PairKind(ZONES, "Zone", _zone_links, _zone_ends))
            if falcon.options.dialect == "zones-pools":
                _register_pool(falcon)
        case "connections":
            _register_pairs(falcon, PairKind(CONNECTIONS, "Connection", _connection_links, _connection_ends))
        case "connection-patch":
            _register_connections(falcon)


def _zone_links(initiator: str, target: str) -> Body:
    return references(Endpoints=[initiator, target])


def _zone_ends(body: Body) -> list[str]:
    return _ids(body, "Endpoints")


def _connection_links(initiator: str, target: str) -> Body:
    return {"InitiatorEndpoints": links([initiator]), "TargetEndpoints": links([target])}


def _connection_ends(body: Body) -> list[str]:
    return _ids(body, "InitiatorEndpoints") + _ids(body, "TargetEndpoints")


def _ids(body: Body, name: str) -> list[str]:
    """Return the endpoint Ids of a list below Links; refuses with 400 where there is none."""
    below = body["Links"]
    found = below.get(name) if isinstance(below, dict) else None
    if not isinstance(found, list):
        raise property_type(f"Links/{name}", found)
    return [member_id(one, ENDPOINTS, name) for one in found]


def _register_pairs(falcon: Falcon, kind: PairKind) -> None:
    def pairs() -> dict[str, Pair]:
        drawers = falcon.state.drawers.values()
        found = (
            Pair(port, drawer.slots[n]) for drawer in drawers for port in drawer.host_ports.values() for n in port.slots
        )
        return {falcon.composer.pair_id(*pair): pair for pair in found}

    def node(uri: str, pair: Pair) -> ResourceNode:
        delete = WriteMethod(partial(_delete, falcon, pair), COMPOSE)
        return ResourceNode(uri, partial(_body, falcon, kind, pair), {"DELETE": delete})

    falcon.tree.objects(
        kind.collection, kind.kind, f"{kind.kind}s", pairs, node, POST=WriteMethod(_creation(falcon, kind), COMPOSE)
    )


def _body(falcon: Falcon, kind: PairKind, pair: Pair) -> Body:
    port, slot = pair
    body: Body = {
        **identity(f"{kind.collection}/{falcon.composer.pair_id(*pair)}", kind.kind, f"{slot.endpoint} at {port.name}"),
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": kind.link(f"{ENDPOINTS}/{port.endpoint}", f"{ENDPOINTS}/{slot.endpoint}"),
    }
    if kind.kind == "Zone":
        body |= {"ZoneType": "ZoneOfEndpoints", "ExternalAccessibility": "ZoneOnly"}
        body["Links"] |= references(InvolvedSwitches=[f"{SWITCHES}/{port.switch}"])
    if falcon.options.dialect == "zones-pools":
        body["Links"] |= references(AddressPools=[POOL])
    return body


def _creation(falcon: Falcon, kind: PairKind) -> Handler:
    async def create(call: AuthenticatedRequest) -> Reply:
        if "Links" not in call.body:
            raise property_missing("Links")
        ends = kind.ends(call.body)
        if falcon.options.dialect == "zones-pools" and call.body["Links"].get("AddressPools") != [{"@odata.id": POOL}]:
            raise property_missing("Links/AddressPools")
        port, slot = (
            (falcon.state.zone(ends[0]), falcon.state.slot_of_endpoint(ends[1])) if len(ends) == 2 else (None, None)
        )
        if port is None or slot is None:
            sentence = f"A {kind.kind.lower()} of this fabric has one host port and one device, in this order."
            raise property_error("PropertyValueConflict", "Links", sentence, "Links", "Links")

        def slots() -> list[SimulatedSlot]:
            return falcon.composer.slots_with(port, slot.endpoint, add=True)

        falcon.composer.check(port, slots())
        body = _body(falcon, kind, Pair(port, slot))
        return await bind_slots(
            falcon, port, slots, by=call.actor, answer=lambda: Reply(201, body, {"Location": body["@odata.id"]})
        )

    return create


async def _delete(falcon: Falcon, pair: Pair, call: AuthenticatedRequest) -> Reply:
    port, slot = pair
    desired = partial(falcon.composer.slots_with, port, slot.endpoint, add=False)
    falcon.composer.check(port, desired())
    return await bind_slots(falcon, port, desired, by=call.actor)


def _register_pool(falcon: Falcon) -> None:
    def pool() -> Body:
        zones = [zone for port in falcon.state.host_ports() for zone in falcon.composer.fabric_links(port)["Zones"]]
        return {**identity(POOL, "AddressPool", "PCIe addresses"), "Links": {"Zones": zones}}

    falcon.tree.collection(POOLS, "AddressPool", "Address pools", lambda: [POOL])
    falcon.tree.resource(POOL, pool)


def _register_connections(falcon: Falcon) -> None:
    """Add a connection for each host port, whose target endpoints are the attached devices."""
    ports = falcon.state.host_ports()
    falcon.tree.collection(
        CONNECTIONS, "Connection", "Connections", lambda: [f"{CONNECTIONS}/{port.endpoint}" for port in ports]
    )
    for port in ports:
        _register_connection(falcon, port)


def _register_connection(falcon: Falcon, port: SimulatedHostPort) -> None:
    patch = WriteMethod(partial(_change, falcon, port), COMPOSE)
    uri = f"{CONNECTIONS}/{port.endpoint}"
    falcon.tree.add(ResourceNode(uri, partial(_connection, port), {"PATCH": patch}, revision=lambda: port.revision))


def _connection(port: SimulatedHostPort) -> Body:
    return {
        **identity(f"{CONNECTIONS}/{port.endpoint}", "Connection", f"Devices of {port.name}"),
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": {
            "InitiatorEndpoints": links([f"{ENDPOINTS}/{port.endpoint}"]),
            "TargetEndpoints": links([f"{ENDPOINTS}/{name}" for name in port.attached]),
        },
    }


async def _change(falcon: Falcon, port: SimulatedHostPort, call: AuthenticatedRequest) -> Reply:
    targets = listed_members(call.body, _connection(port), "TargetEndpoints", ENDPOINTS)
    slots = falcon.composer.slots_of_list(port, [port.endpoint, *targets])
    falcon.composer.check(port, slots)
    return await bind_slots(falcon, port, lambda: slots, by=call.actor, answer=lambda: Reply(200, _connection(port)))
