"""The protocol of a dialect: how a service shows it, which devices its host ports have, and how one is changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from core.text import natural_key
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.errors import BmcError, CompositionRefused, ZoneChanged
from fabric.bmc.hardware import common_properties
from fabric.bmc.relations import zone_endpoints
from fabric.bmc.resources import read_resources
from fabric.bmc.transport import BmcResponse
from fabric.bmc.types import (
    Dialect,
    Inventory,
    InventoryProblem,
    ProblemKind,
    RedfishDevice,
    RedfishEndpoint,
    RedfishResource,
)
from fabric.bmc.values import JsonObject, links, mapping, normalize_uri, text

# Collections with the evidence of a dialect, and the kinds of problems that may be transient.
INDICATIVE_COLLECTIONS = ("Fabrics", "Zones", "Connections", "Systems", "ResourceBlocks", "VCSs", "VPPBs")
TRANSIENT_PROBLEMS = frozenset({ProblemKind.SERVER_ERROR, ProblemKind.UNREACHABLE})
STATE_ABSENT = "Absent"


class DialectProbe(NamedTuple):
    """The result of a probe: the dialect, a sentence why, and whether all the evidence could be read."""

    dialect: Dialect = Dialect.NONE
    reason: str = ""
    known: bool = True


class DialectEvidence:
    """The resources of a walk, and the methods that they allow, each read when a dialect first needs it.

    `unread` has the URIs of evidence that cannot be read for now.
    """

    def __init__(
        self, bmc: BmcClient, found: Mapping[str, CrawledResource], problems: Mapping[str, InventoryProblem]
    ) -> None:
        self._bmc = bmc
        self._found = found
        self._allowed: dict[str, frozenset[str] | None] = {}
        self._by_options: set[str] = set()
        self.unread = sorted(
            uri for uri, problem in problems.items() if problem.kind in TRANSIENT_PROBLEMS and _indicates_dialect(uri)
        )

    def of_kind(self, kind: str) -> list[CrawledResource]:
        """Return the resources of a kind in order."""
        found: Iterable[CrawledResource] = (each for each in self._found.values() if each.kind == kind)
        return sorted(found, key=lambda each: natural_key(each.uri))

    @cached_property
    def fabric_zones(self) -> list[CrawledResource]:
        """The zones of fabrics; those of a CompositionService are of another kind."""
        return [each for each in self.of_kind("Zone") if "/Fabrics/" in each.uri]

    async def allowed(self, uri: str) -> frozenset[str] | None:
        """Return the methods that a resource allows, none where the service names none; None if it is unreadable.

        They are those of the Allow header of GET, else of OPTIONS: some services have it there alone.
        """
        if uri not in self._allowed:
            self._allowed[uri] = await self._read_allowed(uri)
        return self._allowed[uri]

    async def _read_allowed(self, uri: str) -> frozenset[str] | None:
        try:
            allowed = (await self._bmc.get(uri)).headers.get("Allow", "")
            if not allowed and (allowed := await self._bmc.options(uri)):
                self._by_options.add(uri)
        except BmcError as error:
            if error.answered is None or error.answered >= 500:
                self.unread.append(uri)
            return None
        return frozenset(name for method in allowed.split(",") if (name := method.strip().upper()))

    def told_by(self, uri: str) -> str:
        """Return how the service named the methods of a resource, as the end of a sentence."""
        return ", as OPTIONS says" if uri in self._by_options else ""


def _indicates_dialect(uri: str) -> bool:
    """Return whether a resource is evidence of a dialect: the root, or a relevant collection or its members."""
    segments = uri.split("?", 1)[0].split("#", 1)[0].rstrip("/").split("/")
    return len(segments) <= 3 or segments[-1] in INDICATIVE_COLLECTIONS or segments[-2] in INDICATIVE_COLLECTIONS


def resource_name(found: CrawledResource) -> str:
    """Return a resource's Id, or its last path segment, for a sentence."""
    return (text(found.body, "Id") or found.uri.rsplit("/", 1)[-1])[:60]


@dataclass(frozen=True)
class HostPortZone:
    """A host port for composition: `uri` is the resource changed to attach, `members` identify its devices there.

    `initiator` is the host's end of the path, None where it is unknown. `system_uris` lead to the host, ()
    where no cable leads to one. `doubtful` has the links to missing resources with further evidence, `sources` the
    collections that its members are read from besides. It is none without an initiator, unless it `stands_alone`.
    """

    uri: str
    id: str
    name: str
    health: str
    members: tuple[str, ...]
    initiator: RedfishEndpoint | None
    system_uris: tuple[str, ...]
    doubtful: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    stands_alone: bool = False

    @classmethod
    def of(
        cls,
        resource: RedfishResource,
        *,
        members: tuple[str, ...],
        initiator: RedfishEndpoint | None,
        system_uris: tuple[str, ...] | None = None,
        **more: Any,
    ) -> HostPortZone:
        """Return the host port that a resource is; `system_uris` None: what its initiator leads to."""
        if system_uris is None:
            system_uris = initiator.entity_uris if initiator is not None else ()
        return cls(
            uri=resource.uri,
            id=str(resource.id or resource.name),
            name=resource.name,
            health=resource.health,
            members=members,
            initiator=initiator,
            system_uris=system_uris,
            **more,
        )


class HeldZone(NamedTuple):
    """A host port as it was read now: `members` identify its devices, `body` is the resource as the BMC sent it.

    `parts` has the other resources that its members are read from, by URI: zones or connections of its fabric, or the
    system that is composed of a host's block.
    """

    uri: str
    name: str
    etag: str
    members: tuple[str, ...]
    body: JsonObject
    parts: Mapping[str, JsonObject] = MappingProxyType({})


class AttachmentDialect(ABC):
    """One way to attach and detach devices; what is shown as attached is read from the resources that are written."""

    name: ClassVar[Dialect]
    # Members are resource blocks of devices, else endpoints.
    by_blocks: ClassVar[bool] = False
    # One resource lists all members: some services wipe that list where they refuse a change.
    lists_members: ClassVar[bool] = True

    @abstractmethod
    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence why a service has this dialect, '' where it does not; nothing is written."""

    @abstractmethod
    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the host ports of an inventory with their members."""

    @abstractmethod
    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        """Add or remove one member of a host port that `read` has just returned, only if it is still so.

        Raises RequestRefused as the BMC does (412, 428: it has changed), CompositionRefused or another BmcError.
        """

    async def confirm(self, bmc: BmcClient, zone: HeldZone, member: str) -> None:  # noqa: B027 - few dialects need it
        """Check an addition that `change` has made, in the host port as read back; raises where it was withdrawn.

        It need not where a write is refused once somebody else has changed the same.
        """

    def members_of(self, device: RedfishDevice) -> tuple[str, ...]:
        """Return the URIs by which a device may be a member of a host port."""
        if self.by_blocks:
            return (device.block_uri,) if device.block_uri else ()
        return device.endpoint_uris

    def known_members(self, inventory: Inventory) -> set[str]:
        """Return the URIs of all possible members of an inventory."""
        return {each.uri for each in (inventory.resource_blocks if self.by_blocks else inventory.endpoints)}

    async def read(self, bmc: BmcClient, uri: str) -> HeldZone:
        """Return a host port as it is now, with its ETag; raises BmcError."""
        answer = await bmc.get(uri)
        return self._held(normalize_uri(uri), answer.body, answer.etag)

    async def read_many(self, bmc: BmcClient, uris: list[str]) -> dict[str, HeldZone]:
        """Return host ports as they are now, without those that are gone; raises BmcError."""
        found = await read_resources(bmc, uris)
        return {uri: self._held(uri, body, "") for uri, body in found.items()}

    def members(self, body: JsonObject) -> tuple[str, ...]:
        """Return the members in the body of a host port's resource."""
        return links(body, "Links", "ResourceBlocks") if self.by_blocks else zone_endpoints(body)

    def _held(self, uri: str, body: JsonObject, etag: str) -> HeldZone:
        return HeldZone(uri, common_properties(uri, body)["name"], etag, self.members(body), body)


def changed_meanwhile(bmc: BmcClient, zone: HeldZone) -> ZoneChanged:
    """Return the error of a host port that somebody else has changed since it was read."""
    sentence = f"Zone {zone.name} of {bmc.host} has been changed by somebody else; nothing was written."
    return ZoneChanged(sentence, answered=412)


async def run_member_action(bmc: BmcClient, zone: HeldZone, member: str, action: str) -> BmcResponse:
    """Run an action as '#Zone.AddEndpoint' of a host port's resource, with both ETags where the service has them."""
    target = text(mapping(zone.body, "Actions"), action, "target")
    if not target:
        raise CompositionRefused(f"{zone.name} of {bmc.host} offers no action to attach or detach.")
    of_zone, _, verb = action.removeprefix("#").partition(".")
    of_member = verb.removeprefix("Add").removeprefix("Remove")
    body: dict[str, Any] = {of_member: {"@odata.id": member}}
    if etag := (await bmc.get(member)).etag:
        body[f"{of_member}ETag"] = etag
    if zone.etag:
        body[f"{of_zone}ETag"] = zone.etag
    return await bmc.post(target, body)
