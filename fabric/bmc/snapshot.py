"""Zones and links as they stand, read with as few requests as a service allows: what proof is made of."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import link_of, members_of
from fabric.bmc.crawl import distinct, expand_query, is_whole
from fabric.bmc.discovery import read_zone_body
from fabric.bmc.errors import BmcError, Malformed, RequestRefused, ServerFault
from fabric.bmc.types import Dialect
from fabric.bmc.values import Body, inner, plain_uri

# Status, width and active width in lanes, speed in Gb/s: what a tenant would notice of a change.
LinkFacts = tuple[str, int | None, int | None, float | None]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Members of each zone (or system, in RESOURCE_BLOCKS), sorted, and the facts of each port's link.

    What the BMC no longer has (404, 410) has no entry. Two snapshots of the same unchanged things are equal, and so
    are their JSON.
    """

    zones: dict[str, tuple[str, ...]]
    links: dict[str, LinkFacts]


async def read_snapshot(
    bmc: BmcClient, *, zone_uris: Iterable[str], port_uris: Iterable[str], dialect: Dialect
) -> Snapshot:
    """Return the zones and links named, as they stand.

    With $expand it takes one request a collection (Zones, and Ports of each switch; Systems in RESOURCE_BLOCKS),
    without it one a zone and one a port: 3 in place of 24 for a Falcon of four host ports. Raises BmcError where
    anything of it cannot be read: half a snapshot proves nothing.
    """
    zones = sorted({plain_uri(uri) for uri in zone_uris})
    ports = sorted({plain_uri(uri) for uri in port_uris})
    if not bmc.root:
        await bmc.service_root()
    bodies = await _read(bmc, [*zones, *ports])
    return Snapshot(
        zones={
            uri: tuple(sorted(members_of(read_zone_body(uri, bodies[uri], ""), dialect)))
            for uri in zones
            if uri in bodies
        },
        links={uri: _facts(uri, bodies[uri]) for uri in ports if uri in bodies},
    )


def _facts(uri: str, body: Body) -> LinkFacts:
    link = link_of(uri, body)
    return link.status, link.width, link.active_width, link.speed_gbps


async def _read(bmc: BmcClient, uris: list[str]) -> dict[str, Body]:
    """Return the bodies of resources, whole collections at a time where that saves requests."""
    query = expand_query(bmc.root)
    by_collection: dict[str, list[str]] = defaultdict(list)
    for uri in uris:
        by_collection[uri.rpartition("/")[0]].append(uri)
    together = [collection for collection, members in by_collection.items() if query and len(members) > 1]
    found: dict[str, Body] = {}
    for answered in await asyncio.gather(*(_members(bmc, f"{collection}?{query}") for collection in together)):
        found.update(answered)
    left = [uri for uri in uris if uri not in found]
    bodies = await asyncio.gather(*(_body(bmc, uri) for uri in left))
    return found | {uri: body for uri, body in zip(left, bodies, strict=True) if body is not None}


async def _members(bmc: BmcClient, uri: str) -> dict[str, Body]:
    """Return the members of an expanded collection, {} where it is not what it should be: then each is asked for."""
    try:
        body = (await bmc.get(uri)).body
    except (RequestRefused, ServerFault, Malformed):
        return {}
    members = inner(body, "Members")
    if not isinstance(members, list) or not distinct(plain_uri(uri.partition("?")[0]), members):
        return {}
    return {plain_uri(member["@odata.id"]): member for member in members if is_whole(member)}


async def _body(bmc: BmcClient, uri: str) -> Body | None:
    try:
        return (await bmc.get(uri)).body
    except BmcError as error:
        if error.answered in {404, 410}:
            return None
        raise
