"""Which way a BMC lets devices be attached, told from what it shows; nothing is written to find out."""

from __future__ import annotations

from collections.abc import Mapping

from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import Found
from fabric.bmc.errors import BmcError
from fabric.bmc.types import Dialect
from fabric.bmc.values import mapping, natural, text

ADD_BLOCK = "#ComputerSystem.AddResourceBlock"
REMOVE_BLOCK = "#ComputerSystem.RemoveResourceBlock"


async def probe_dialect(bmc: BmcClient, found: Mapping[str, Found]) -> Dialect:
    """Return the dialect of a service: the vendor's PATCH where zones allow it, else actions, else resource blocks.

    The Allow header of a zone tells of the PATCH, which takes one request; a service that sends none (as mock-ups do)
    shows by its actions alone. Neither: the chassis is monitored, not composed.
    """
    zones = sorted(
        (each for each in found.values() if each.kind == "Zone" and "/Fabrics/" in each.uri),
        key=lambda each: natural(each.uri),
    )
    if zones and await _allows_patch(bmc, zones[0].uri):
        return Dialect.ZONE_PATCH
    if any(text(zone.body, "Actions", "#Zone.AddEndpoint", "target") for zone in zones):
        return Dialect.ZONE_ACTIONS
    for each in found.values():
        if each.kind == "ComputerSystem" and text(mapping(each.body, "Actions"), ADD_BLOCK, "target"):
            return Dialect.RESOURCE_BLOCKS
    return Dialect.NONE


async def _allows_patch(bmc: BmcClient, zone_uri: str) -> bool:
    try:
        answer = await bmc.get(zone_uri)
    except BmcError:
        return False
    allowed = answer.headers.get("Allow", "")
    return "PATCH" in {method.strip().upper() for method in allowed.split(",")}
