"""Zones of a fabric, one for each host port: the members are endpoints, one of them the host port's own.

H3's Falcon and Intel's PSME take the whole list of endpoints in a PATCH, Redfish's standard has the actions AddEndpoint
and RemoveEndpoint.
"""

from __future__ import annotations

from typing import Any

from fabric.bmc.client import BmcClient
from fabric.bmc.dialects.protocol import (
    AttachmentDialect,
    DialectEvidence,
    HeldZone,
    HostPortZone,
    resource_name,
    run_member_action,
)
from fabric.bmc.errors import RequestRefused
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import Dialect, Inventory, RedfishEndpoint, RedfishZone
from fabric.bmc.values import JsonObject, mapping, text, value_at

ADD_ENDPOINT = "#Zone.AddEndpoint"
REMOVE_ENDPOINT = "#Zone.RemoveEndpoint"
# Zones whose Allow header is read; a service treats all of its zones alike, one may just be unreadable.
MAX_PROBED_ZONES = 3


class _ZoneDialect(AttachmentDialect):
    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        endpoints = {endpoint.uri: endpoint for endpoint in inventory.endpoints}
        upstream = {port.uri for port in inventory.ports if port.port_type == "UpstreamPort"}
        return [_from_zone(zone, endpoints, upstream) for zone in inventory.zones]


def _from_zone(zone: RedfishZone, endpoints: dict[str, RedfishEndpoint], upstream: set[str]) -> HostPortZone:
    known = [endpoints[uri] for uri in zone.endpoint_uris if uri in endpoints]
    initiator = next((endpoint for endpoint in known if endpoint.role == "Initiator"), None)
    if initiator is None:
        # Some services name no root complex where no cable leads to one: the port still says which end is the host's.
        initiator = next((each for each in known if not each.role and upstream.intersection(each.port_uris)), None)
    return HostPortZone.of(
        zone,
        members=zone.endpoint_uris,
        initiator=initiator,
        doubtful=zone.endpoint_uris,
    )


class ZonePatch(_ZoneDialect):
    """PATCH of the whole list of endpoints of a zone."""

    name = Dialect.ZONE_PATCH

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where a zone allows PATCH; some services, as mock-ups, name no methods."""
        for zone in evidence.fabric_zones[:MAX_PROBED_ZONES]:
            allowed = await evidence.allowed(zone.uri)
            if allowed is None:
                continue
            if "PATCH" not in allowed:
                break
            where = ", with its endpoints at the top level as older PSME services have it"
            where = where if _is_at_top(zone.body) else ""
            return f"Zone {resource_name(zone)} allows PATCH{where}{evidence.told_by(zone.uri)}."
        return ""

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        # The order is kept: the host port's endpoint comes first, and some services depend on that.
        others = [uri for uri in zone.members if uri != member]
        wanted = [{"@odata.id": uri} for uri in [*others, *([member] if present else [])]]
        change: dict[str, Any] = {"Endpoints": wanted}
        if _is_at_top(zone.body):
            return await bmc.patch(zone.uri, change, etag=zone.etag)
        etag = zone.etag
        if ".v1_0_" in text(zone.body, "@odata.type"):
            # Intel's PNC lists them below Links, accepts a list there and drops it: it takes one at the top alone.
            try:
                written = await bmc.patch(zone.uri, change, etag=etag)
            except RequestRefused as error:
                if error.answered != 400:
                    raise
            else:
                now = await self.read(bmc, zone.uri)
                if written.status == 202 or set(now.members) != set(zone.members):
                    return written
                etag = now.etag
        return await bmc.patch(zone.uri, {"Links": change}, etag=etag)


def _is_at_top(body: JsonObject) -> bool:
    """Return whether a zone lists its endpoints at the top level, as older PSME does, which requires them there."""
    return value_at(body, "Links", "Endpoints") is None and isinstance(body.get("Endpoints"), list)


class ZoneActions(_ZoneDialect):
    """The actions AddEndpoint and RemoveEndpoint of a zone."""

    name = Dialect.ZONE_ACTIONS

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where a zone offers the action."""
        for zone in evidence.fabric_zones:
            if text(mapping(zone.body, "Actions"), ADD_ENDPOINT, "target"):
                return f"Zone {resource_name(zone)} offers the action {ADD_ENDPOINT}."
        return ""

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        return await run_member_action(bmc, zone, member, ADD_ENDPOINT if present else REMOVE_ENDPOINT)
