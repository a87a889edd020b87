"""Systems that are composed of the resource blocks of a host and its devices, and decomposed.

The host ports are the blocks of hosts, which stay while systems come and go; their members are the other blocks of the
system in which such a block is now. A block that is assigned to no client is put into the free pool of the host's
client first (DSP0266, resource pools); one of another client is left alone.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress

from fabric.bmc.client import BmcClient
from fabric.bmc.dialects.blocks import HostEnds, block_list
from fabric.bmc.dialects.protocol import (
    STATE_ABSENT,
    AttachmentDialect,
    DialectEvidence,
    HeldZone,
    HostPortZone,
    changed_meanwhile,
)
from fabric.bmc.errors import BmcError, CompositionRefused, RequestRefused, TaskFailed
from fabric.bmc.hardware import common_properties
from fabric.bmc.resources import read_resources
from fabric.bmc.transport import BmcResponse, error_sentence
from fabric.bmc.types import (
    HOST_BLOCK_TYPES,
    Dialect,
    Inventory,
    RedfishEndpoint,
    RedfishResourceBlock,
    RedfishSystem,
)
from fabric.bmc.values import JsonObject, links, mapping, normalize_uri, objects, text, texts, value_at

COMPOSE = "#CompositionService.Compose"
# The client of the blocks of a host that belongs to none.
CLIENT = "FalconWeb"
UNASSIGNED = "Unassigned"
# Of what says how systems are created (DSP0266, collection capabilities).
UPDATABLE = "ResourceBlocks@Redfish.UpdatableAfterCreate"
NOT_ALLOWED = frozenset({405, 501})
GONE = frozenset({404, 410})


class _PoolDialect(AttachmentDialect):
    by_blocks = True

    def host_ports(self, inventory: Inventory) -> list[HostPortZone]:
        """Return the blocks of hosts with the other blocks of their systems."""
        systems = {system.uri: system for system in inventory.systems}
        ends = HostEnds(inventory)
        found = []
        for block in inventory.resource_blocks:
            if not HOST_BLOCK_TYPES.isdisjoint(block.block_types):
                composed = next((systems[uri] for uri in block.system_uris if uri in systems), None)
                own = next((systems[uri] for uri in block.own_system_uris if uri in systems), composed)
                initiator = ends.of(own) if own is not None else None
                found.append(_from_block(block, composed, own, initiator))
        return found

    async def read(self, bmc: BmcClient, uri: str) -> HeldZone:
        """Return the block of a host with the members of its system, and the ETag of what has the list."""
        answer = await bmc.get(uri)
        for system in links(answer.body, "Links", "ComputerSystems"):
            try:
                composed = await bmc.get(system)
            except RequestRefused as error:
                if error.answered not in GONE:
                    raise
            else:
                return _held(normalize_uri(uri), answer.body, composed.etag, {system: composed.body})
        return _held(normalize_uri(uri), answer.body, answer.etag, {})

    async def read_many(self, bmc: BmcClient, uris: list[str]) -> dict[str, HeldZone]:
        """Return the blocks of hosts in as few requests as the service allows."""
        blocks = await read_resources(bmc, uris)
        system_of = {
            uri: found[0] for uri, body in blocks.items() if (found := links(body, "Links", "ComputerSystems"))
        }
        systems = await read_resources(bmc, sorted(set(system_of.values())))
        held: dict[str, HeldZone] = {}
        for uri, body in blocks.items():
            system = system_of.get(uri, "")
            if system and system not in systems:  # gone, decomposed between the requests or a dead link
                held[uri] = await self.read(bmc, uri)
            else:
                held[uri] = _held(uri, body, "", {system: systems[system]} if system else {})
        return held

    async def change(self, bmc: BmcClient, zone: HeldZone, member: str, *, present: bool) -> BmcResponse:
        wanted = [*(uri for uri in zone.members if uri != member), *([member] if present else [])]
        assigned: list[str] = []
        try:
            if present:
                await _assign(bmc, zone, member, assigned)
            answer = await self._compose(bmc, zone, wanted)
            # Nobody knows afterwards which blocks were put into a pool for it.
            return await bmc.finish(answer) if assigned else answer
        except (RequestRefused, CompositionRefused, TaskFailed) as error:
            for uri in assigned:
                with suppress(BmcError):
                    await bmc.finish(await bmc.patch(uri, {"Pool": UNASSIGNED, "Client": None}))
            if isinstance(error, TaskFailed):
                raise
            # A system that was decomposed meanwhile is not there, or not known in a manifest: it has no ETag any more.
            now = await self.read(bmc, zone.uri)
            if (now.members, set(now.parts)) != (zone.members, set(zone.parts)):
                raise changed_meanwhile(bmc, zone) from error
            raise

    @abstractmethod
    async def _compose(self, bmc: BmcClient, zone: HeldZone, wanted: list[str]) -> BmcResponse:
        """Have a system of the host with the blocks `wanted`, no system without any."""


def _from_block(
    block: RedfishResourceBlock,
    composed: RedfishSystem | None,
    own: RedfishSystem | None,
    initiator: RedfishEndpoint | None,
) -> HostPortZone:
    return HostPortZone.of(
        block,
        members=tuple(uri for uri in composed.block_uris if uri != block.uri) if composed is not None else (),
        initiator=initiator,
        system_uris=() if own is None or own.state == STATE_ABSENT else (own.uri,),
        sources=block.system_uris,
        doubtful=(*block.own_system_uris, *(own.endpoint_uris if own is not None else ())),
        stands_alone=True,
    )


def _held(uri: str, block: JsonObject, etag: str, systems: dict[str, JsonObject]) -> HeldZone:
    listed = [member for body in systems.values() for member in links(body, "Links", "ResourceBlocks")]
    members = tuple(member for member in listed if member != uri)
    return HeldZone(uri, common_properties(uri, block)["name"], etag, members, block, systems)


async def _assign(bmc: BmcClient, zone: HeldZone, member: str, assigned: list[str]) -> None:
    """Put a host's and a device's block into the free pool of the host's client; those in no pool get `assigned`."""
    client = text(zone.body, "Client") or CLIENT
    device = await bmc.get(member)
    owner = text(device.body, "Client")
    if owner and owner != client:
        name = member.rsplit("/", 1)[-1]
        raise CompositionRefused(f"The resource block {name} of {bmc.host} belongs to another client: {owner}.")
    for uri, body, etag in ((zone.uri, zone.body, zone.etag), (member, device.body, device.etag)):
        if text(body, "Pool") == UNASSIGNED:
            await bmc.finish(await bmc.patch(uri, {"Pool": "Free", "Client": client}, etag=etag))
            assigned.append(uri)


def host_blocks(evidence: DialectEvidence) -> int:
    """Return the number of blocks of hosts."""
    found = (texts(block.body, "ResourceBlockType") for block in evidence.of_kind("ResourceBlock"))
    return sum(not HOST_BLOCK_TYPES.isdisjoint(types) for types in found)


class SystemPost(_PoolDialect):
    """POST of systems with the blocks of a host and its devices, PATCH of their list, DELETE of the empty ones."""

    name = Dialect.SYSTEM_POST

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where the collection of systems has POST in its Allow header, and hosts are blocks."""
        hosts = host_blocks(evidence)
        for systems in evidence.of_kind("ComputerSystemCollection") if hosts else ():
            if "POST" in (await evidence.allowed(systems.uri) or ()):
                fixed = any(
                    value_at(each.body, "Links", UPDATABLE) is False for each in evidence.of_kind("ComputerSystem")
                )
                then = ", and a composed system cannot be changed" if fixed else ""
                return f"Systems are composed by POST of resource blocks; there are {hosts} of hosts{then}."
        return ""

    async def _compose(self, bmc: BmcClient, zone: HeldZone, wanted: list[str]) -> BmcResponse:
        system = next(iter(zone.parts), "")
        if not system:
            await _service_root(bmc)
            systems = text(bmc.root, "Systems", "@odata.id")
            return await bmc.post(systems, {"Name": zone.name, **block_list([zone.uri, *wanted])})
        if not wanted:
            return await bmc.delete(system, etag=zone.etag)
        try:
            return await bmc.patch(system, block_list([zone.uri, *wanted]), etag=zone.etag)
        except RequestRefused as error:
            if error.answered not in NOT_ALLOWED:
                raise
            sentence = (
                f"{bmc.host} cannot change a composed system: it would have to be decomposed, which takes all its "
                f"devices away from {zone.name}. Only the first device can be attached, and the last one detached."
            )
            raise CompositionRefused(sentence, answered=error.answered) from error


class Compose(_PoolDialect):
    """The action Compose with a manifest, which the service performs as a whole or not at all.

    A system is replaced by one with the new list in one manifest (DSP0266 has no stanza that changes one). The action
    has no ETag: what somebody changes between the reading and the action is found by reading back alone.
    """

    name = Dialect.COMPOSE

    async def recognise(self, evidence: DialectEvidence) -> str:
        """Return a sentence where the composition service offers the action, and hosts are blocks."""
        hosts = host_blocks(evidence)
        for service in evidence.of_kind("CompositionService"):
            if hosts and text(service.body, "Actions", COMPOSE, "target"):
                return f"Systems are composed by the action {COMPOSE}; there are {hosts} resource blocks of hosts."
        return ""

    async def _compose(self, bmc: BmcClient, zone: HeldZone, wanted: list[str]) -> BmcResponse:
        await _service_root(bmc)
        service = (await bmc.get(text(bmc.root, "CompositionService", "@odata.id"))).body
        target = text(service, "Actions", COMPOSE, "target")
        if not target:
            raise CompositionRefused(f"{bmc.host} offers the action {COMPOSE} no more.")
        asked: list[tuple[str, JsonObject]] = [("DecomposeSystem", {"@odata.id": uri}) for uri in zone.parts]
        if wanted:
            asked.append(("ComposeSystem", {"Name": zone.name, **block_list([zone.uri, *wanted])}))
        stanzas = [
            {"StanzaType": kind, "StanzaId": str(at), "Request": body} for at, (kind, body) in enumerate(asked, 1)
        ]
        body = {"RequestFormat": "Manifest", "RequestType": "Apply", "Manifest": {"Stanzas": stanzas}}
        answer = await bmc.finish(await bmc.post(target, body))
        for stanza in objects(answer.body, "Manifest", "Stanzas"):
            if reason := error_sentence(mapping(stanza, "Response", "error")):
                raise CompositionRefused(reason, answered=answer.status)
        return answer


async def _service_root(bmc: BmcClient) -> None:
    if not bmc.root:
        await bmc.service_root()
