"""Virtual CXL switches, one for each host port, whose bridges (vPPBs) are bound to the ports of devices.

The members are ports. The link of a bridge to its port is writable by the schema (VirtualPCI2PCIBridge 1.0.0); the
number of a logical device behind the port (BoundLDId) is not, so that the service chooses among several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fabric.bmc.client import BmcClient
from fabric.bmc.dialects.protocol import (
    AttachmentDialect,
    DialectEvidence,
    HeldZone,
    HostPortZone,
    changed_meanwhile,
    resource_name,
)
from fabric.bmc.errors import CompositionRefused
from fabric.bmc.hardware import common_properties
from fabric.bmc.resources import read_collection, read_resources
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import Dialect, Inventory, RedfishDevice
from fabric.bmc.values import JsonObject, link, normalize_uri, text

# Bridges whose Allow header is read; a service treats all of its bridges alike.
MAX_PROBED_BRIDGES = 3


class PortLinks(AttachmentDialect):
    """PATCH of the link from a bridge of a virtual CXL switch to a port."""

    name = Dialect.PORT_LINKS
    lists_members = False

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where the Allow header of a bridge has PATCH."""
        bridges = evidence.of_kind("VirtualPCI2PCIBridge")
        for bridge in bridges[:MAX_PROBED_BRIDGES]:
            if "PATCH" in (await evidence.allowed(bridge.uri) or ()):
                name = resource_name(bridge)
                return f"Bridge {name} of a virtual CXL switch allows PATCH; there are {len(bridges)} bridges."
        return ""

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the virtual switches with the ports that their bridges are bound to."""
        found = []
        ends = [one for one in inventory.endpoints if one.role == "Initiator"]
        by_uri = {uri: one for one in reversed(ends) for uri in (one.uri, *one.port_uris)}
        for each in inventory.virtual_switches:
            linked = (by_uri[uri] for uri in (each.port_uri, *each.endpoint_uris) if uri in by_uri)
            found.append(
                HostPortZone.of(
                    each,
                    members=each.bound_uris,
                    initiator=next(linked, None),
                    doubtful=(each.port_uri, *each.endpoint_uris),
                    sources=(each.bridges_uri,),
                )
            )
        return found

    def members_of(self, device: RedfishDevice) -> tuple[str, ...]:
        """Return the port of a device."""
        return (device.port_uri,) if device.port_uri else ()

    def known_members(self, inventory: Inventory) -> set[str]:
        """Return the ports."""
        return {port.uri for port in inventory.ports}

    async def read(self, bmc: BmcClient, uri: str) -> HeldZone:
        """Return a virtual switch with its bridges; raises BmcError."""
        body = (await bmc.get(uri)).body
        return _held(normalize_uri(uri), body, await read_collection(bmc, link(body, "VPPBs")))

    async def read_many(self, bmc: BmcClient, uris: list[str]) -> dict[str, HeldZone]:
        """Return virtual switches, the bridges of each read at once."""
        bodies = await read_resources(bmc, uris)
        bridges = await asyncio.gather(*(read_collection(bmc, link(body, "VPPBs")) for body in bodies.values()))
        return {uri: _held(uri, body, found) for (uri, body), found in zip(bodies.items(), bridges, strict=True)}

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        """Bind a free bridge to the port, or free the bridge that is bound to it."""
        wanted = "" if present else member
        bridge = next((uri for uri, body in zone.parts.items() if is_bound_to(body, wanted)), "")
        if not bridge:
            raise CompositionRefused(f"{zone.name} of {bmc.host} has no free bridge for one more device.")
        answer = await bmc.get(bridge)
        if not is_bound_to(answer.body, wanted):
            raise changed_meanwhile(bmc, zone)
        port = {"@odata.id": member} if present else None
        return await bmc.patch(bridge, {"Links": {"Port": port}}, etag=answer.etag)


def is_bound_to(bridge: JsonObject, port: str) -> bool:
    """Return whether a bridge is bound to a port, or with '' whether it is free."""
    bound = link(bridge, "Links", "Port")
    return bound == port and (bool(port) or text(bridge, "BindingStatus") in {"", "Unbound"})


def _held(uri: str, body: JsonObject, bridges: Mapping[str, JsonObject]) -> HeldZone:
    bound = (link(bridge, "Links", "Port") for bridge in bridges.values())
    # The ETag of the virtual switch is of no use: what it has is in its bridges.
    members = tuple(dict.fromkeys(port for port in bound if port))
    return HeldZone(uri, common_properties(uri, body)["name"], "", members, body, bridges)
