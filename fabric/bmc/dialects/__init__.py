"""Dialects by which BMCs attach devices: one small class each, in one module a family.

`RECOGNISED` lists them in the order in which they are preferred where a service offers several.
"""

from __future__ import annotations

from collections.abc import Mapping

from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.dialects.blocks import BlockPatch, ResourceBlocks
from fabric.bmc.dialects.bridges import PortLinks
from fabric.bmc.dialects.connections import ConnectionPatch, Connections, ZonePost
from fabric.bmc.dialects.monitored import Monitored
from fabric.bmc.dialects.pools import Compose, SystemPost
from fabric.bmc.dialects.protocol import (
    STATE_ABSENT,
    AttachmentDialect,
    DialectEvidence,
    DialectProbe,
    HeldZone,
    HostPortZone,
    changed_meanwhile,
)
from fabric.bmc.dialects.zones import ADD_ENDPOINT, ZoneActions, ZonePatch
from fabric.bmc.hardware import ADD_BLOCK
from fabric.bmc.types import Dialect, Inventory, InventoryProblem

__all__ = ["STATE_ABSENT", "AttachmentDialect", "DialectProbe", "HeldZone", "changed_meanwhile"]

RECOGNISED: tuple[AttachmentDialect, ...] = (
    ZonePatch(),
    ZoneActions(),
    ResourceBlocks(),
    SystemPost(),
    Compose(),
    BlockPatch(),
    PortLinks(),
    Connections(),
    ConnectionPatch(),
    ZonePost(),
)
_BY_NAME = {each.name: each for each in (*RECOGNISED, Monitored())}


def dialect_of(name: str) -> AttachmentDialect:
    """Return the dialect of a name, which is a `Dialect` or its value."""
    return _BY_NAME[Dialect(name)]


def host_port_zones(inventory: Inventory, dialect: Dialect) -> list[HostPortZone]:
    """Return the host ports of an inventory, as a service of a dialect has them; zones where there is no dialect."""
    return dialect_of(dialect).host_ports(inventory)


async def probe_dialect(
    bmc: BmcClient, found: Mapping[str, CrawledResource], problems: Mapping[str, InventoryProblem]
) -> DialectProbe:
    """Return the first dialect that a service shows, without writing anything; NONE means monitored, not composed.

    Evidence that could not be read may be that of a better dialect: the result is unknown then, except for the first.
    """
    evidence = DialectEvidence(bmc, found, problems)
    for dialect in RECOGNISED:
        reason = await dialect.recognise(evidence)
        if reason and (dialect is RECOGNISED[0] or not evidence.unread):
            return DialectProbe(dialect.name, reason)
        if evidence.unread:
            sentence = f"It is unknown for now: {evidence.unread[0]} cannot be read."
            return DialectProbe(Dialect.NONE, sentence, known=False)
    zones = evidence.fabric_zones
    finding = f"none of its {len(zones)} zones allows PATCH or offers {ADD_ENDPOINT}" if zones else "it has no zones"
    if zones and not await evidence.allowed(zones[0].uri):
        finding = f"its {len(zones)} zones do not tell whether they allow PATCH, none offers {ADD_ENDPOINT}"
    return DialectProbe(Dialect.NONE, f"None of the known ways was found: {finding}, and no system offers {ADD_BLOCK}.")
