"""Services that offer no way to attach that is known: what is attached is shown wherever they have it."""

from __future__ import annotations

from dataclasses import replace

from fabric.bmc.client import BmcClient
from fabric.bmc.dialects.blocks import BlockPatch
from fabric.bmc.dialects.connections import Connections
from fabric.bmc.dialects.protocol import AttachmentDialect, DialectEvidence, HeldZone, HostPortZone
from fabric.bmc.dialects.zones import ZonePatch
from fabric.bmc.errors import CompositionRefused
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import Dialect, Inventory, RedfishDevice


class Monitored(AttachmentDialect):
    """No dialect: devices are shown where zones, connections or resource blocks have them, and not changed."""

    name = Dialect.NONE

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return '': it is what is left."""
        return ""

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the zones, and what connections and systems have, with theirs where a host port is the same."""
        found: dict[str, HostPortZone] = {}
        others = (*Connections().host_ports(inventory), *BlockPatch().host_ports(inventory))
        for port in (*ZonePatch().host_ports(inventory), *(other for other in others if other.members)):
            key = port.initiator.uri if port.initiator is not None else port.uri
            if (known := found.get(key)) is not None:
                members = tuple(dict.fromkeys((*known.members, *port.members)))
                port = replace(known, members=members, sources=(*known.sources, *port.sources))  # noqa: PLW2901
            found[key] = port
        return list(found.values())

    def members_of(self, device: RedfishDevice) -> tuple[str, ...]:
        """Return the endpoints of a device, and its resource block."""
        return (*device.endpoint_uris, *((device.block_uri,) if device.block_uri else ()))

    def known_members(self, inventory: Inventory) -> set[str]:
        """Return the endpoints and resource blocks of an inventory."""
        return {each.uri for each in (*inventory.endpoints, *inventory.resource_blocks)}

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        """Raise CompositionRefused."""
        raise CompositionRefused(f"{bmc.host} offers no way to attach or detach devices; it can only be monitored.")
