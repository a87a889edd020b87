"""Snapshots of zones and links, read with as few requests as a service allows, for the proof of an operation."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import port_link, zone_members
from fabric.bmc.crawl import are_distinct_members, expand_query, is_embedded
from fabric.bmc.discovery import read_zone_body
from fabric.bmc.errors import Malformed, RequestRefused, ServerFault
from fabric.bmc.types import Dialect, RedfishSystem
from fabric.bmc.values import JsonObject, named_texts, normalize_uri, objects, text, value_at

# Status, width and active width in lanes, speed in Gb/s: what a tenant would notice of a change.
LinkState = tuple[str, int | None, int | None, float | None]


class CompositionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Members of each zone (or system, in RESOURCE_BLOCKS), sorted, and the state of each port's link.

    Resources that the BMC no longer has (404, 410) have no entry. Two snapshots of the same unchanged state are equal,
    and so are their JSON.
    """

    zones: dict[str, tuple[str, ...]]
    links: dict[str, LinkState]


async def read_snapshot(
    bmc: BmcClient, *, zone_uris: Iterable[str], port_uris: Iterable[str], dialect: Dialect
) -> CompositionSnapshot:
    """Return the present state of the named zones and links.

    With $expand it takes one request per collection (Zones, and Ports of each switch; Systems in RESOURCE_BLOCKS),
    without it one per zone and port: 3 in place of 24 for a Falcon of four host ports. Raises BmcError where any of
    them cannot be read: half a snapshot proves nothing.
    """
    zones = sorted({normalize_uri(uri) for uri in zone_uris})
    ports = sorted({normalize_uri(uri) for uri in port_uris})
    if not bmc.root:
        await bmc.service_root()
    bodies = await _read_resources(bmc, [*zones, *ports])
    return CompositionSnapshot(
        zones={
            uri: tuple(sorted(zone_members(read_zone_body(uri, bodies[uri], ""), dialect)))
            for uri in zones
            if uri in bodies
        },
        links={uri: _link_state(uri, bodies[uri]) for uri in ports if uri in bodies},
    )


def _link_state(uri: str, body: JsonObject) -> LinkState:
    link = port_link(uri, body)
    return link.status, link.width, link.active_width, link.speed_gbps


async def _read_resources(bmc: BmcClient, uris: list[str]) -> dict[str, JsonObject]:
    """Return the bodies of resources, whole collections at a time where that saves requests."""
    query = expand_query(bmc.root)
    by_collection: dict[str, list[str]] = defaultdict(list)
    for uri in uris:
        by_collection[uri.rpartition("/")[0]].append(uri)
    together = [collection for collection, members in by_collection.items() if query and len(members) > 1]
    found: dict[str, JsonObject] = {}
    for answered in await asyncio.gather(*(_read_members(bmc, f"{collection}?{query}") for collection in together)):
        found.update(answered)
    left = [uri for uri in uris if uri not in found]
    bodies = await asyncio.gather(*(bmc.get_or_none(uri) for uri in left))
    return found | {uri: body for uri, body in zip(left, bodies, strict=True) if body is not None}


async def _read_members(bmc: BmcClient, uri: str) -> dict[str, JsonObject]:
    """Return the members of an expanded collection, {} if it is malformed: then each is requested."""
    try:
        body = (await bmc.get(uri)).body
    except (RequestRefused, ServerFault, Malformed):
        return {}
    members = value_at(body, "Members")
    if not isinstance(members, list) or not are_distinct_members(normalize_uri(uri.partition("?")[0]), members):
        return {}
    return {normalize_uri(member["@odata.id"]): member for member in members if is_embedded(member)}


async def read_cabled_host(bmc: BmcClient, endpoint_uri: str) -> RedfishSystem | None:
    """Return the host behind an initiator's endpoint, None where no cable leads to one.

    Of the system only its identity is read: URI, name, manufacturer, serial number and UUID. Raises BmcError where it
    cannot be read.
    """
    for entity in objects((await bmc.get(endpoint_uri)).body, "ConnectedEntities"):
        uri = text(entity, "EntityLink", "@odata.id")
        if not uri or text(entity, "EntityRole") == "Target":
            continue
        if (system := await bmc.get_or_none(uri)) is not None:
            return RedfishSystem(
                uri=normalize_uri(uri),
                **named_texts(system, "Name", "HostName", "Manufacturer", "SerialNumber", "UUID"),
            )
    return None
