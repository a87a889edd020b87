"""Which way a BMC lets devices be attached, told from what it shows; nothing is written to find out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import Found
from fabric.bmc.errors import BmcError
from fabric.bmc.types import Dialect, Problem, ProblemKind
from fabric.bmc.values import inner, mapping, natural, text

ADD_BLOCK = "#ComputerSystem.AddResourceBlock"
REMOVE_BLOCK = "#ComputerSystem.RemoveResourceBlock"
ADD_ENDPOINT = "#Zone.AddEndpoint"
REMOVE_ENDPOINT = "#Zone.RemoveEndpoint"
# Zones asked whether they may be written; a service treats all of its zones alike, one may just be unreadable.
MOST_ZONES = 3
# Collections of what would tell a dialect, and how a problem looks that may be over in a moment.
TELLING = ("Fabrics", "Zones", "Systems", "ResourceBlocks")
PASSING = frozenset({ProblemKind.SERVER_ERROR, ProblemKind.UNREACHABLE})


class Probe(NamedTuple):
    """What a probe found: the dialect, a sentence why, and whether all that would tell could be read."""

    dialect: Dialect = Dialect.NONE
    reason: str = ""
    known: bool = True


async def probe_dialect(bmc: BmcClient, found: Mapping[str, Found], problems: Mapping[str, Problem]) -> Probe:
    """Return the dialect of a service: PATCH where zones allow it, else actions, else resource blocks, else NONE.

    The Allow header of a zone tells of the PATCH, which takes one request; a service that sends none (as mock-ups do)
    shows by its actions alone. NONE means that the chassis is monitored, not composed.
    """
    zones = _sorted(each for each in found.values() if each.kind == "Zone" and "/Fabrics/" in each.uri)
    unread = sorted(uri for uri, problem in problems.items() if problem.kind in PASSING and _tells(uri))
    for zone in zones[:MOST_ZONES]:
        try:
            allowed = (await bmc.get(zone.uri)).headers.get("Allow", "")
        except BmcError as error:
            if error.answered is None or error.answered >= 500:
                unread.append(zone.uri)
            continue
        if "PATCH" in {method.strip().upper() for method in allowed.split(",")}:
            at_top = inner(zone.body, "Links", "Endpoints") is None and isinstance(zone.body.get("Endpoints"), list)
            where = ", with its endpoints at the top level as older PSME services have it" if at_top else ""
            return Probe(Dialect.ZONE_PATCH, f"Zone {_name(zone)} allows PATCH{where}.")
        break
    if unread:
        return Probe(Dialect.NONE, f"It could not be told for now: {unread[0]} cannot be read.", known=False)
    for zone in zones:
        if text(mapping(zone.body, "Actions"), ADD_ENDPOINT, "target"):
            return Probe(Dialect.ZONE_ACTIONS, f"Zone {_name(zone)} offers the action {ADD_ENDPOINT}.")
    blocks = sum(each.kind == "ResourceBlock" for each in found.values())
    for system in _sorted(each for each in found.values() if each.kind == "ComputerSystem"):
        if text(mapping(system.body, "Actions"), ADD_BLOCK, "target"):
            reason = f"System {_name(system)} offers the action {ADD_BLOCK}; there are {blocks} resource blocks."
            return Probe(Dialect.RESOURCE_BLOCKS, reason)
    seen = f"none of its {len(zones)} zones allows PATCH or offers {ADD_ENDPOINT}" if zones else "it has no zones"
    return Probe(Dialect.NONE, f"None of the four ways was found: {seen}, and no system offers {ADD_BLOCK}.")


def _tells(uri: str) -> bool:
    """Tell whether a resource would show a dialect: the root, or one of the telling collections or their members."""
    segments = uri.split("?", 1)[0].split("#", 1)[0].rstrip("/").split("/")
    return len(segments) <= 3 or segments[-1] in TELLING or segments[-2] in TELLING


def _sorted(resources: Iterable[Found]) -> list[Found]:
    return sorted(resources, key=lambda each: natural(each.uri))


def _name(found: Found) -> str:
    return (text(found.body, "Id") or found.uri.rsplit("/", 1)[-1])[:60]
