"""Resource blocks of the CompositionService, one for each device, which computer systems get and lose.

The host ports are the computer systems, and their members the blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from fabric.bmc.client import BmcClient
from fabric.bmc.dialects.protocol import (
    STATE_ABSENT,
    AttachmentDialect,
    DialectEvidence,
    HeldZone,
    HostPortZone,
    resource_name,
    run_member_action,
)
from fabric.bmc.hardware import ADD_BLOCK, lists_blocks
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import Dialect, Inventory, RedfishEndpoint, RedfishSystem
from fabric.bmc.values import mapping, paths_above, text

# Systems whose Allow header is read; a service treats all of its systems alike.
MAX_PROBED_SYSTEMS = 3
REMOVE_BLOCK = "#ComputerSystem.RemoveResourceBlock"


class _SystemDialect(AttachmentDialect):
    by_blocks = True

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the systems that take blocks.

        A system that is on no path of the fabric, of a service whose blocks have no PCIe devices, is no host port.
        """
        ends = HostEnds(inventory)
        pooled = any(block.device_uris for block in inventory.resource_blocks)
        found = [_from_system(system, ends) for system in inventory.systems if self._takes_blocks(system)]
        return [port for port in found if pooled or port.initiator or port.doubtful]

    @abstractmethod
    def _takes_blocks(self, system: RedfishSystem) -> bool:
        """Return whether blocks can be added to a system."""


class ResourceBlocks(_SystemDialect):
    """The actions AddResourceBlock and RemoveResourceBlock of a computer system."""

    name = Dialect.RESOURCE_BLOCKS

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where a system offers the action."""
        for system in evidence.of_kind("ComputerSystem"):
            if text(mapping(system.body, "Actions"), ADD_BLOCK, "target"):
                blocks = len(evidence.of_kind("ResourceBlock"))
                return (
                    f"System {resource_name(system)} offers the action {ADD_BLOCK}; there are {blocks} resource blocks."
                )
        return ""

    def _takes_blocks(self, system: RedfishSystem) -> bool:
        return system.takes_blocks

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        return await run_member_action(bmc, zone, member, ADD_BLOCK if present else REMOVE_BLOCK)


class BlockPatch(_SystemDialect):
    """PATCH of the whole list of blocks of a computer system, which is writable by the schema."""

    name = Dialect.BLOCK_PATCH

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where a system that lists its blocks has PATCH in its Allow header.

        It may be there for other properties alone; the service then refuses the first change with its own sentence.
        """
        blocks = len(evidence.of_kind("ResourceBlock"))
        listing = [each for each in evidence.of_kind("ComputerSystem") if lists_blocks(each.body)]
        for system in listing[:MAX_PROBED_SYSTEMS] if blocks else ():
            if "PATCH" in (await evidence.allowed(system.uri) or ()):
                return f"System {resource_name(system)} lists resource blocks and allows PATCH; there are {blocks}."
        return ""

    def _takes_blocks(self, system: RedfishSystem) -> bool:
        return system.lists_blocks

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        blocks = [*(uri for uri in zone.members if uri != member), *([member] if present else [])]
        return await bmc.patch(zone.uri, block_list(blocks), etag=zone.etag)


def block_list(blocks: Iterable[str]) -> dict[str, Any]:
    """Return the links of a system to its blocks."""
    return {"Links": {"ResourceBlocks": [{"@odata.id": uri} for uri in blocks]}}


class HostEnds:
    """The endpoints of hosts' ends of paths in an inventory, to be found by their systems."""

    def __init__(self, inventory: Inventory) -> None:
        ends = [endpoint for endpoint in inventory.endpoints if endpoint.role == "Initiator"]
        self._by_uri = {end.uri: end for end in ends}
        # Each may lead to a system or to something below it, as a processor.
        self._by_entity = {
            above: end for end in reversed(ends) for uri in end.entity_uris for above in paths_above(uri)
        }

    def of(self, system: RedfishSystem) -> RedfishEndpoint | None:
        """Return the end that a system links to, else the first that leads to the system."""
        linked = (self._by_uri[uri] for uri in system.endpoint_uris if uri in self._by_uri)
        return next(linked, None) or self._by_entity.get(system.uri)


def _from_system(system: RedfishSystem, ends: HostEnds) -> HostPortZone:
    return HostPortZone.of(
        system,
        members=system.block_uris,
        initiator=ends.of(system),
        system_uris=() if system.state == STATE_ABSENT else (system.uri,),
        doubtful=system.endpoint_uris,
        stands_alone=True,
    )
