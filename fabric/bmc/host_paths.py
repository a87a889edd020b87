"""Zones, endpoints, connections, virtual switches and resource blocks: what leads from hosts to devices, typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from core.text import natural_key
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.hardware import common_properties
from fabric.bmc.relations import ResourceRelations, zone_endpoints
from fabric.bmc.types import (
    RedfishConnection,
    RedfishEndpoint,
    RedfishResourceBlock,
    RedfishVirtualSwitch,
    RedfishZone,
)
from fabric.bmc.values import JsonObject, link, links, objects, text, texts


def read_zone(found: CrawledResource) -> RedfishZone:
    """Return a zone."""
    return RedfishZone(
        **common_properties(found.uri, found.body),
        fabric_uri=found.uri.rpartition("/Zones/")[0],
        zone_type=text(found.body, "ZoneType"),
        etag=found.etag,
        endpoint_uris=zone_endpoints(found.body),
    )


def read_endpoint(found: CrawledResource, relations: ResourceRelations) -> RedfishEndpoint:
    """Return an endpoint with its entities, ports and zones."""
    entities = objects(found.body, "ConnectedEntities")
    host = next((entity for entity in entities if relations.is_host_end(entity)), None)
    first: JsonObject = host or (entities[0] if entities else {})
    return RedfishEndpoint(
        **common_properties(found.uri, found.body),
        fabric_uri=found.uri.rpartition("/Endpoints/")[0],
        etag=found.etag,
        protocol=text(found.body, "EndpointProtocol"),
        role="Initiator" if host is not None else text(first, "EntityRole"),
        entity_type=text(first, "EntityType"),
        entity_uris=tuple(uri for entity in entities if (uri := link(entity, "EntityLink"))),
        port_uris=relations.ports_of_endpoint[found.uri],
        zone_uris=relations.zones_of[found.uri],
    )


def read_connection(found: CrawledResource) -> RedfishConnection:
    """Return a connection of a fabric."""
    return RedfishConnection(
        **common_properties(found.uri, found.body),
        fabric_uri=found.uri.rpartition("/Connections/")[0],
        connection_type=text(found.body, "ConnectionType"),
        initiator_uris=links(found.body, "Links", "InitiatorEndpoints"),
        target_uris=links(found.body, "Links", "TargetEndpoints"),
    )


def read_virtual_switch(
    each: CrawledResource, bridges: Mapping[str, Iterable[CrawledResource]]
) -> RedfishVirtualSwitch:
    """Return a virtual CXL switch with the ports at its bridges, which are given by their collection."""
    bridges_uri = link(each.body, "VPPBs")
    found = sorted(bridges.get(bridges_uri, ()), key=lambda one: natural_key(one.uri))
    ports = (link(one.body, "Links", "Port") for one in found)
    return RedfishVirtualSwitch(
        **common_properties(each.uri, each.body),
        port_uri=link(each.body, "Links", "Port"),
        bridges_uri=bridges_uri,
        endpoint_uris=links(each.body, "Links", "Endpoints"),
        bound_uris=tuple(dict.fromkeys(port for port in ports if port)),
    )


def read_resource_block(found: CrawledResource, relations: ResourceRelations) -> RedfishResourceBlock:
    """Return a resource block."""
    return RedfishResourceBlock(
        **common_properties(found.uri, found.body),
        block_types=texts(found.body, "ResourceBlockType"),
        composition_state=text(found.body, "CompositionStatus", "CompositionState"),
        system_uris=links(found.body, "Links", "ComputerSystems"),
        own_system_uris=links(found.body, "ComputerSystems"),
        zone_uris=links(found.body, "Links", "Zones"),
        device_uris=relations.devices_in[found.uri],
    )
