"""Detection of the dialect by which a BMC attaches devices, and of its host ports, without writing anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core.text import natural_key
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.errors import BmcError
from fabric.bmc.types import (
    Dialect,
    Inventory,
    InventoryProblem,
    ProblemKind,
    RedfishEndpoint,
    RedfishSystem,
    RedfishZone,
)
from fabric.bmc.values import mapping, text, value_at

ADD_BLOCK = "#ComputerSystem.AddResourceBlock"
REMOVE_BLOCK = "#ComputerSystem.RemoveResourceBlock"
ADD_ENDPOINT = "#Zone.AddEndpoint"
REMOVE_ENDPOINT = "#Zone.RemoveEndpoint"
# Zones whose Allow header is read; a service treats all of its zones alike, one may just be unreadable.
MAX_PROBED_ZONES = 3
# Collections with the evidence of a dialect, and the kinds of problems that may be transient.
INDICATIVE_COLLECTIONS = ("Fabrics", "Zones", "Systems", "ResourceBlocks")
TRANSIENT_PROBLEMS = frozenset({ProblemKind.SERVER_ERROR, ProblemKind.UNREACHABLE})


class DialectProbe(NamedTuple):
    """The result of a probe: the dialect, a sentence why, and whether all the evidence could be read."""

    dialect: Dialect = Dialect.NONE
    reason: str = ""
    known: bool = True


async def probe_dialect(
    bmc: BmcClient, found: Mapping[str, CrawledResource], problems: Mapping[str, InventoryProblem]
) -> DialectProbe:
    """Return the dialect of a service: PATCH where zones allow it, else actions, else resource blocks, else NONE.

    The Allow header of a zone shows whether PATCH is allowed, at the cost of one request; of a service without that
    header (such as a mock-up) only the actions count. NONE means that the chassis is monitored, not composed.
    """
    zones = _sorted(each for each in found.values() if each.kind == "Zone" and "/Fabrics/" in each.uri)
    unread = sorted(
        uri for uri, problem in problems.items() if problem.kind in TRANSIENT_PROBLEMS and _indicates_dialect(uri)
    )
    for zone in zones[:MAX_PROBED_ZONES]:
        try:
            allowed = (await bmc.get(zone.uri)).headers.get("Allow", "")
        except BmcError as error:
            if error.answered is None or error.answered >= 500:
                unread.append(zone.uri)
            continue
        if "PATCH" in {method.strip().upper() for method in allowed.split(",")}:
            at_top = value_at(zone.body, "Links", "Endpoints") is None and isinstance(zone.body.get("Endpoints"), list)
            where = ", with its endpoints at the top level as older PSME services have it" if at_top else ""
            return DialectProbe(Dialect.ZONE_PATCH, f"Zone {_resource_name(zone)} allows PATCH{where}.")
        break
    if unread:
        return DialectProbe(Dialect.NONE, f"It is unknown for now: {unread[0]} cannot be read.", known=False)
    for zone in zones:
        if text(mapping(zone.body, "Actions"), ADD_ENDPOINT, "target"):
            return DialectProbe(Dialect.ZONE_ACTIONS, f"Zone {_resource_name(zone)} offers the action {ADD_ENDPOINT}.")
    blocks = sum(each.kind == "ResourceBlock" for each in found.values())
    for system in _sorted(each for each in found.values() if each.kind == "ComputerSystem"):
        if text(mapping(system.body, "Actions"), ADD_BLOCK, "target"):
            reason = (
                f"System {_resource_name(system)} offers the action {ADD_BLOCK}; there are {blocks} resource blocks."
            )
            return DialectProbe(Dialect.RESOURCE_BLOCKS, reason)
    finding = f"none of its {len(zones)} zones allows PATCH or offers {ADD_ENDPOINT}" if zones else "it has no zones"
    return DialectProbe(Dialect.NONE, f"None of the known ways was found: {finding}, and no system offers {ADD_BLOCK}.")


def _indicates_dialect(uri: str) -> bool:
    """Return whether a resource is evidence of a dialect: the root, or a relevant collection or its members."""
    segments = uri.split("?", 1)[0].split("#", 1)[0].rstrip("/").split("/")
    return len(segments) <= 3 or segments[-1] in INDICATIVE_COLLECTIONS or segments[-2] in INDICATIVE_COLLECTIONS


def _sorted(resources: Iterable[CrawledResource]) -> list[CrawledResource]:
    return sorted(resources, key=lambda each: natural_key(each.uri))


def _resource_name(found: CrawledResource) -> str:
    return (text(found.body, "Id") or found.uri.rsplit("/", 1)[-1])[:60]


STATE_ABSENT = "Absent"


@dataclass(frozen=True)
class HostPortZone:
    """A host port for composition: `uri` is the resource changed to attach, `members` identify its devices there.

    `initiator` is the host's end of the path, None where it is unknown. `system_uris` lead to the host, ()
    where no cable leads to one. `doubtful` has the links to missing resources with further evidence.
    """

    uri: str
    id: str
    name: str
    health: str
    members: tuple[str, ...]
    initiator: RedfishEndpoint | None
    system_uris: tuple[str, ...]
    doubtful: tuple[str, ...] = ()


def host_port_zones(inventory: Inventory, dialect: Dialect) -> list[HostPortZone]:
    """Return the host ports of an inventory, as a service of a dialect has them; zones where there is no dialect.

    A system that is on no path of the fabric, of a service whose blocks have no PCIe devices, is no host port.
    """
    endpoints = {endpoint.uri: endpoint for endpoint in inventory.endpoints}
    if dialect is Dialect.RESOURCE_BLOCKS:
        pooled = any(block.device_uris for block in inventory.resource_blocks)
        found = [_from_system(system, endpoints) for system in inventory.systems if system.takes_blocks]
        return [port for port in found if pooled or port.initiator or port.doubtful]
    upstream = {port.uri for port in inventory.ports if port.port_type == "UpstreamPort"}
    return [_from_zone(zone, endpoints, upstream) for zone in inventory.zones]


def _from_zone(zone: RedfishZone, endpoints: dict[str, RedfishEndpoint], upstream: set[str]) -> HostPortZone:
    known = [endpoints[uri] for uri in zone.endpoint_uris if uri in endpoints]
    initiator = next((endpoint for endpoint in known if endpoint.role == "Initiator"), None)
    if initiator is None:
        # Some services name no root complex where no cable leads to one: the port still says which end is the host's.
        initiator = next((each for each in known if not each.role and upstream.intersection(each.port_uris)), None)
    return HostPortZone(
        uri=zone.uri,
        id=str(zone.id or zone.name),
        name=zone.name,
        health=zone.health,
        members=zone.endpoint_uris,
        initiator=initiator,
        system_uris=initiator.entity_uris if initiator is not None else (),
        doubtful=zone.endpoint_uris,
    )


def _from_system(system: RedfishSystem, endpoints: dict[str, RedfishEndpoint]) -> HostPortZone:
    linked = [endpoints[uri] for uri in system.endpoint_uris if uri in endpoints]
    linked += [endpoint for endpoint in endpoints.values() if system.uri in endpoint.entity_uris]
    initiator = next((endpoint for endpoint in linked if endpoint.role == "Initiator"), None)
    return HostPortZone(
        uri=system.uri,
        id=str(system.id or system.name),
        name=system.name,
        health=system.health,
        members=system.block_uris,
        initiator=initiator,
        system_uris=() if system.state == STATE_ABSENT else (system.uri,),
        doubtful=system.endpoint_uris,
    )
