"""Bodies of many resources of a BMC, whole collections at a time where that saves requests."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import Malformed, RequestRefused, ServerFault
from fabric.bmc.expansion import are_distinct_members, expand_query, is_embedded
from fabric.bmc.values import JsonObject, links, normalize_uri, text, value_at

MAX_MEMBERS = 10_000  # of a collection that is read whole


async def read_resources(bmc: BmcClient, uris: list[str]) -> dict[str, JsonObject]:
    """Return the bodies of resources by URI, without those that are gone (404, 410); raises BmcError."""
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
    found |= {uri: body for uri, body in zip(left, bodies, strict=True) if body is not None}
    return {uri: found[uri] for uri in uris if uri in found}


async def read_collection(bmc: BmcClient, uri: str) -> dict[str, JsonObject]:
    """Return the members of a collection by URI, of all of its pages; raises BmcError."""
    members: dict[str, None] = {}
    pages: set[str] = set()
    page = uri
    while page and page not in pages:
        pages.add(page)
        body = (await bmc.get(page)).body
        members |= dict.fromkeys(links(body, "Members"))
        page = text(body, "Members@odata.nextLink")
        if len(members) > MAX_MEMBERS or len(pages) > MAX_MEMBERS:
            raise Malformed(f"{bmc.host}{uri} has more than {MAX_MEMBERS} members.")
    return await read_resources(bmc, list(members))


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
