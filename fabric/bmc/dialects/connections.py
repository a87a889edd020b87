"""Zones and connections that are created for an attached device and deleted again, and connections of host ports.

Each is inside a fabric: the URIs of Fabrics/X/Endpoints, Zones and Connections are fixed since Redfish 1.6.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from fabric.bmc.client import BmcClient
from fabric.bmc.dialects.protocol import (
    AttachmentDialect,
    DialectEvidence,
    HeldZone,
    HostPortZone,
    changed_meanwhile,
    resource_name,
)
from fabric.bmc.errors import BmcError, CompositionRefused, RequestRefused
from fabric.bmc.hardware import common_properties
from fabric.bmc.relations import MAX_RELATIONS, zone_endpoints
from fabric.bmc.resources import read_collection, read_resources
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import Dialect, Inventory, RedfishEndpoint
from fabric.bmc.values import JsonObject, link, links, objects, text

# Resources whose Allow header is read; a service treats all of a kind alike, one may just be unreadable.
MAX_PROBED = 3
# Endpoints that may be in one zone, or initiators in one connection.
MAX_SHARING = 100


class FabricPath(NamedTuple):
    """The endpoints that a zone or connection links: hosts' ends, and what they reach."""

    initiators: frozenset[str]
    targets: tuple[str, ...]

    @property
    def attaches(self) -> bool:
        """Whether it attaches devices to a host: what almost everything is in does not."""
        return len(self.initiators) <= MAX_SHARING

    def members_of(self, initiator: str) -> tuple[str, ...]:
        """Return what a host's end reaches by it."""
        if not self.attaches or initiator not in self.initiators:
            return ()
        return tuple(uri for uri in self.targets if uri != initiator)


def _fabric_of(endpoint_uri: str) -> str:
    return endpoint_uri.rpartition("/Endpoints/")[0]


def _host_ends(inventory: Inventory) -> list[RedfishEndpoint]:
    """Return the endpoints of host ports; some services name no root complex where no cable leads to one."""
    upstream = {port.uri for port in inventory.ports if port.port_type == "UpstreamPort"}
    return [
        each
        for each in inventory.endpoints
        if each.role == "Initiator" or (not each.role and upstream.intersection(each.port_uris))
    ]


def _reached(paths: Iterable[FabricPath], hosts: AbstractSet[str]) -> Mapping[str, tuple[str, ...]]:
    """Return what hosts' ends reach."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    pairs = ((host, uri) for path in paths for host in path.initiators & hosts for uri in path.members_of(host))
    for host, member in islice(pairs, MAX_RELATIONS):
        found[host][member] = None
    return defaultdict(tuple, {host: tuple(members) for host, members in found.items()})


class _CreatedPath(AttachmentDialect):
    """A member of a collection is created for each attached device; a host port is its endpoint, also without one."""

    collection: ClassVar[str]
    lists_members = False

    @abstractmethod
    def paths(self, inventory: Inventory) -> list[FabricPath]:
        """Return the paths of an inventory."""

    @abstractmethod
    def path(self, body: JsonObject) -> FabricPath:
        """Return the path of a zone's or connection's body."""

    @abstractmethod
    async def request(self, bmc: BmcClient, zone: HeldZone, member: str) -> dict[str, Any]:
        """Return the body that creates a path to a member."""

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where the collection of a fabric allows POST."""
        for fabric in evidence.of_kind("Fabric"):
            uri = f"{fabric.uri}/{self.collection}"
            if link(fabric.body, self.collection) == uri and "POST" in (await evidence.allowed(uri) or ()):
                return f"{self.collection} of fabric {resource_name(fabric)} can be created{evidence.told_by(uri)}."
        return ""

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the hosts' endpoints, each with what its zones or connections reach."""
        ends = _host_ends(inventory)
        reached = _reached(self.paths(inventory), {each.uri for each in ends})
        return [
            HostPortZone.of(
                each,
                members=reached[each.uri],
                initiator=each,
                sources=(f"{_fabric_of(each.uri)}/{self.collection}",),
            )
            for each in ends
        ]

    async def read(self, bmc: BmcClient, uri: str) -> HeldZone:
        """Return a host port with what its zones or connections reach; raises BmcError."""
        body = (await bmc.get(uri)).body
        return self._with_parts({uri: body}, await self._parts(bmc, _fabric_of(uri)))[uri]

    async def read_many(self, bmc: BmcClient, uris: list[str]) -> dict[str, HeldZone]:
        """Return host ports, each collection read once; raises BmcError."""
        by_fabric: dict[str, dict[str, JsonObject]] = defaultdict(dict)
        for uri, body in (await read_resources(bmc, uris)).items():
            by_fabric[_fabric_of(uri)][uri] = body
        found: dict[str, HeldZone] = {}
        for fabric, bodies in by_fabric.items():
            found |= self._with_parts(bodies, await self._parts(bmc, fabric))
        return found

    async def _parts(self, bmc: BmcClient, fabric: str) -> dict[str, JsonObject]:
        """Return the zones or connections of a fabric; another fabric of the service may have no collection of them."""
        try:
            return await read_collection(bmc, f"{fabric}/{self.collection}")
        except RequestRefused as error:
            if error.answered not in {404, 410}:
                raise
            return {}

    def _with_parts(self, bodies: Mapping[str, JsonObject], parts: Mapping[str, JsonObject]) -> dict[str, HeldZone]:
        reached = _reached(map(self.path, parts.values()), set(bodies))
        # The ETag of an endpoint is of no use: what its host port has is elsewhere.
        return {
            uri: HeldZone(uri, common_properties(uri, body)["name"], "", reached[uri], body, parts)
            for uri, body in bodies.items()
        }

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        """Create a zone or connection to the member, or delete all that lead to it alone."""
        if present:
            await self._check_free(bmc, zone, member)
            return await bmc.post(f"{_fabric_of(zone.uri)}/{self.collection}", await self.request(bmc, zone, member))
        *others, last = (uri for uri, part in zone.parts.items() if member in self.path(part).members_of(zone.uri))
        for uri in others:
            await bmc.finish(await self._delete(bmc, zone, member, uri))
        return await self._delete(bmc, zone, member, last)

    async def confirm(self, bmc: BmcClient, zone: HeldZone, member: str) -> None:
        """Delete what was created where another host got the member at the same moment: creation has no ETag.

        Whoever creates looks after it, so that of two at least one sees the other's. Raises CompositionRefused.
        """
        try:
            await self._check_free(bmc, zone, member)
        except CompositionRefused:
            # Where that fails, the device stays with both, as reading back shows.
            with suppress(BmcError):
                await bmc.finish(await self.change(bmc, zone, member, present=False))
            raise

    async def _delete(self, bmc: BmcClient, zone: HeldZone, member: str, uri: str) -> BmcResponse:
        try:
            answer = await bmc.get(uri)
            path = self.path(answer.body)
            if path.initiators | set(path.targets) != {zone.uri, member}:
                name = common_properties(uri, answer.body)["name"]
                raise CompositionRefused(f"{name} of {bmc.host} has other members too; deleting it would detach them.")
            return await bmc.delete(uri, etag=answer.etag)
        except RequestRefused as error:
            if error.answered in {404, 410}:
                raise changed_meanwhile(bmc, zone) from error
            raise

    async def _check_free(self, bmc: BmcClient, zone: HeldZone, member: str) -> None:
        """Raise CompositionRefused where another host reaches the member: not every service would refuse a second."""
        paths = [self.path(part) for part in zone.parts.values()]
        others = {uri for path in paths if path.attaches and member in path.targets for uri in path.initiators} - {
            member,
            zone.uri,
        }
        for uri in sorted(others):
            entities = objects(await bmc.get_or_none(uri) or {}, "ConnectedEntities")
            if any(text(entity, "EntityRole") == "Initiator" for entity in entities):
                device, host = member.rpartition("/")[2], uri.rpartition("/")[2]
                raise CompositionRefused(f"{device} of {bmc.host} is attached to {host}; detach it there first.")


class ZonePost(_CreatedPath):
    """POST to the zones of a fabric and DELETE: a zone an attached device."""

    name = Dialect.ZONE_POST
    collection = "Zones"

    def paths(self, inventory: Inventory) -> list[FabricPath]:
        """Return the zones of endpoints."""
        return [_of_zone(zone.endpoint_uris) for zone in inventory.zones if zone.zone_type in {"", "ZoneOfEndpoints"}]

    def path(self, body: JsonObject) -> FabricPath:
        """Return the endpoints of a zone; that of another type reaches nothing."""
        return _of_zone(zone_endpoints(body) if text(body, "ZoneType") in {"", "ZoneOfEndpoints"} else ())

    async def request(self, bmc: BmcClient, zone: HeldZone, member: str) -> dict[str, Any]:
        """Return the new zone, with an address pool where the zones of its fabric have one."""
        below: dict[str, Any] = {"Endpoints": [{"@odata.id": zone.uri}, {"@odata.id": member}]}
        if pools := await self._pools(bmc, zone):
            below["AddressPools"] = [{"@odata.id": pools[0]}]
        name = f"{zone.name}: {member.rpartition('/')[2]}"
        return {"Name": name, "ZoneType": "ZoneOfEndpoints", "Links": below}

    async def _pools(self, bmc: BmcClient, zone: HeldZone) -> tuple[str, ...]:
        """Return the address pools of the other zones; of the fabric, where it has no zone yet."""
        if zone.parts:
            own = [part for part in zone.parts.values() if self.path(part).members_of(zone.uri)]
            found = (links(part, "Links", "AddressPools") for part in (*own, *zone.parts.values()))
            return next((pools for pools in found if pools), ())
        pools = link((await bmc.get(_fabric_of(zone.uri))).body, "AddressPools")
        return links((await bmc.get(pools)).body, "Members") if pools else ()


def _of_zone(endpoints: tuple[str, ...]) -> FabricPath:
    """Return the path of a zone, in which every endpoint reaches every other."""
    return FabricPath(frozenset(endpoints), endpoints)


class Connections(_CreatedPath):
    """POST to the connections of a fabric and DELETE: a connection an attached device."""

    name = Dialect.CONNECTIONS
    collection = "Connections"

    def paths(self, inventory: Inventory) -> list[FabricPath]:
        """Return the connections."""
        return [FabricPath(frozenset(each.initiator_uris), each.target_uris) for each in inventory.connections]

    def path(self, body: JsonObject) -> FabricPath:
        """Return the endpoints of a connection."""
        initiators = frozenset(links(body, "Links", "InitiatorEndpoints"))
        return FabricPath(initiators, links(body, "Links", "TargetEndpoints"))

    async def request(self, bmc: BmcClient, zone: HeldZone, member: str) -> dict[str, Any]:
        """Return the new connection."""
        ends = {"InitiatorEndpoints": [{"@odata.id": zone.uri}], "TargetEndpoints": [{"@odata.id": member}]}
        return {"Name": f"{zone.name}: {member.rpartition('/')[2]}", "Links": ends}


class ConnectionPatch(AttachmentDialect):
    """PATCH of the target endpoints of a connection, one for each host port."""

    name = Dialect.CONNECTION_PATCH

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where the Allow header of a connection has PATCH."""
        for connection in evidence.of_kind("Connection")[:MAX_PROBED]:
            if "/Fabrics/" in connection.uri and "PATCH" in (await evidence.allowed(connection.uri) or ()):
                return f"Connection {resource_name(connection)} allows PATCH{evidence.told_by(connection.uri)}."
        return ""

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the connections with their targets."""
        ends = {each.uri: each for each in _host_ends(inventory)}
        found = []
        for each in inventory.connections:
            initiator = next((ends[uri] for uri in each.initiator_uris if uri in ends), None)
            found.append(
                HostPortZone.of(
                    each,
                    members=each.target_uris,
                    initiator=initiator,
                    doubtful=each.initiator_uris,
                )
            )
        return found

    def members(self, body: JsonObject) -> tuple[str, ...]:
        """Return the targets of a connection's body."""
        return links(body, "Links", "TargetEndpoints")

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        """Change the whole list of targets."""
        targets = [uri for uri in zone.members if uri != member] + ([member] if present else [])
        change = {"Links": {"TargetEndpoints": [{"@odata.id": uri} for uri in targets]}}
        return await bmc.patch(zone.uri, change, etag=zone.etag)
