"""Resource blocks of the CompositionService, one for each device, which computer systems get and lose.

The host ports are the computer systems, and their members the blocks.
"""

from __future__ import annotations

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
from fabric.bmc.hardware import ADD_BLOCK
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import Dialect, Inventory, RedfishEndpoint, RedfishSystem
from fabric.bmc.values import mapping, text

REMOVE_BLOCK = "#ComputerSystem.RemoveResourceBlock"


class ResourceBlocks(AttachmentDialect):
    """The actions AddResourceBlock and RemoveResourceBlock of a computer system."""

    name = Dialect.RESOURCE_BLOCKS
    by_blocks = True
    needs_initiator = False

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where a system offers the action."""
        for system in evidence.of_kind("ComputerSystem"):
            if text(mapping(system.body, "Actions"), ADD_BLOCK, "target"):
                blocks = len(evidence.of_kind("ResourceBlock"))
                return (
                    f"System {resource_name(system)} offers the action {ADD_BLOCK}; there are {blocks} resource blocks."
                )
        return ""

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the systems that take blocks.

        A system that is on no path of the fabric, of a service whose blocks have no PCIe devices, is no host port.
        """
        endpoints = {endpoint.uri: endpoint for endpoint in inventory.endpoints}
        pooled = any(block.device_uris for block in inventory.resource_blocks)
        found = [_from_system(system, endpoints) for system in inventory.systems if system.takes_blocks]
        return [port for port in found if pooled or port.initiator or port.doubtful]

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        return await run_member_action(bmc, zone, member, ADD_BLOCK if present else REMOVE_BLOCK)


def _from_system(system: RedfishSystem, endpoints: dict[str, RedfishEndpoint]) -> HostPortZone:
    linked = [endpoints[uri] for uri in system.endpoint_uris if uri in endpoints]
    linked += [endpoint for endpoint in endpoints.values() if system.uri in endpoint.entity_uris]
    initiator = next((endpoint for endpoint in linked if endpoint.role == "Initiator"), None)
    return HostPortZone(
        uri=system.uri,
        id=str(system.id or system.name),
        name=system.name,
        health=system.health,
        members=system.block_uris,
        initiator=initiator,
        system_uris=() if system.state == STATE_ABSENT else (system.uri,),
        doubtful=system.endpoint_uris,
    )
