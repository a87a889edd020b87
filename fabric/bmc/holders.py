"""What holds a host's devices: a zone with an initiator among its endpoints, or a system that blocks are added to."""

from __future__ import annotations

from dataclasses import dataclass

from fabric.bmc.types import Dialect, Endpoint, Inventory, System, Zone

ABSENT = "Absent"


@dataclass(frozen=True)
class Holder:
    """A host port as it is composed: `uri` is what is changed to attach, `members` are what devices are named by there.

    `initiator` is the host's end of the path, None where nothing says which it is. `system_uris` lead to the host, ()
    where no cable leads to one. `doubtful` holds what would have told more, had it been found.
    """

    uri: str
    id: str
    name: str
    health: str
    members: tuple[str, ...]
    initiator: Endpoint | None
    system_uris: tuple[str, ...]
    doubtful: tuple[str, ...] = ()


def holders_of(inventory: Inventory, dialect: Dialect) -> list[Holder]:
    """Return the holders of an inventory, as a service of a dialect has them; zones where there is no dialect.

    A system that is on no path of the fabric, of a service whose blocks hold no PCIe devices, is no host port.
    """
    endpoints = {endpoint.uri: endpoint for endpoint in inventory.endpoints}
    if dialect is Dialect.RESOURCE_BLOCKS:
        pooled = any(block.device_uris for block in inventory.resource_blocks)
        found = [_of_system(system, endpoints) for system in inventory.systems if system.takes_blocks]
        return [holder for holder in found if pooled or holder.initiator or holder.doubtful]
    upstream = {port.uri for port in inventory.ports if port.port_type == "UpstreamPort"}
    return [_of_zone(zone, endpoints, upstream) for zone in inventory.zones]


def _of_zone(zone: Zone, endpoints: dict[str, Endpoint], upstream: set[str]) -> Holder:
    known = [endpoints[uri] for uri in zone.endpoint_uris if uri in endpoints]
    initiator = next((endpoint for endpoint in known if endpoint.role == "Initiator"), None)
    if initiator is None:
        # Some services name no root complex where no cable leads to one: the port still says which end is the host's.
        initiator = next((each for each in known if not each.role and upstream.intersection(each.port_uris)), None)
    return Holder(
        uri=zone.uri,
        id=str(zone.id or zone.name),
        name=zone.name,
        health=zone.health,
        members=zone.endpoint_uris,
        initiator=initiator,
        system_uris=initiator.entity_uris if initiator is not None else (),
        doubtful=zone.endpoint_uris,
    )


def _of_system(system: System, endpoints: dict[str, Endpoint]) -> Holder:
    linked = [endpoints[uri] for uri in system.endpoint_uris if uri in endpoints]
    linked += [endpoint for endpoint in endpoints.values() if system.uri in endpoint.entity_uris]
    initiator = next((endpoint for endpoint in linked if endpoint.role == "Initiator"), None)
    return Holder(
        uri=system.uri,
        id=str(system.id or system.name),
        name=system.name,
        health=system.health,
        members=system.block_uris,
        initiator=initiator,
        system_uris=() if system.state == ABSENT else (system.uri,),
        doubtful=system.endpoint_uris,
    )
