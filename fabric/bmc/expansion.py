"""What services offer of $expand, and whether an answer to it has what was asked for."""

from __future__ import annotations

from typing import Any

from fabric.bmc.values import JsonObject, integer, mapping, normalize_uri

ONE_LEVEL = "$levels=1"


def expand_query(root: JsonObject) -> str:
    """Return the query that expands members one level, as the service root declares it, else ''."""
    offered = mapping(root, "ProtocolFeaturesSupported", "ExpandQuery")
    if not (offered.get("NoLinks") is True or offered.get("ExpandAll") is True):
        return ""
    how = "." if offered.get("NoLinks") is True else "*"
    return f"$expand={how}({ONE_LEVEL})" if offered.get("Levels") is True else f"$expand={how}"


def most_levels(root: JsonObject) -> int:
    """Return how many levels one answer may have, as the service root declares it: 1 where links are among them."""
    offered = mapping(root, "ProtocolFeaturesSupported", "ExpandQuery")
    return integer(offered, "MaxLevels") or 1 if offered.get("NoLinks") is True else 1


def is_embedded(member: Any) -> bool:
    """Return whether a member of a collection is the resource itself, not only a reference to it."""
    return isinstance(member, dict) and isinstance(member.get("@odata.id"), str) and "Id" in member and len(member) > 3


def is_included(uri: str, value: Any) -> bool:
    """Return whether the value of a property is a resource below this one itself, or a collection of such."""
    if not isinstance(value, dict) or "@odata.type" not in value:
        return False
    own = value.get("@odata.id")
    if not isinstance(own, str) or not own.startswith(f"{uri}/") or "#" in own:
        return False
    if "Members" not in value:
        return is_embedded(value)
    return has_all_members(value) and all(map(is_embedded, value["Members"]))


def has_all_members(collection: JsonObject) -> bool:
    """Return whether a collection has as many members as it counts, on this page or further ones."""
    members, count = collection.get("Members"), integer(collection, "Members@odata.count") or 0
    return isinstance(members, list) and (count <= len(members) or "Members@odata.nextLink" in collection)


def are_distinct_members(collection: str, members: list[Any]) -> bool:
    """Return whether expanded members are plausible: different URIs, all with an ID of their own."""
    uris = [normalize_uri(member["@odata.id"]) for member in members if is_embedded(member)]
    return len(set(uris)) == len(uris) == len(members) and collection not in uris
