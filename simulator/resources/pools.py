"""Systems that are composed of blocks of hosts and devices, and decomposed: by POST and DELETE, or by manifests.

A block is assigned to a client before it is composed; it is in the active pool while a system has it, else in the free
one. `systems` lets the blocks of a system be changed by PATCH, `systems-fixed` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from simulator.composition import SYSTEMS
from simulator.errors import (
    conflict,
    no_operation,
    not_found,
    parameter_missing,
    property_missing,
    property_refused,
    property_type,
    property_value,
    referenced_not_found,
)
from simulator.events import Actor
from simulator.odata import V1, Body, collection, identity, link, odata_type, references
from simulator.resources.systems import composed_system, system_uri
from simulator.resources.zones import bind_slots, carry_out, listed_members, member_id, switch_slots
from simulator.service import Falcon
from simulator.state import COMPOSITION_BLOCKS, SimulatedHostPort, SimulatedSlot, SwitchPort, drawer_uri
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, ResourceNode, WriteMethod

SERVICE = f"{V1}/CompositionService"
ZONES_OF_BLOCKS = f"{SERVICE}/ResourceZones"
CAPABILITIES = f"{SYSTEMS}/Capabilities"
COMPOSE_ACTION = "CompositionService.Compose"
Done = TypeVar("Done")


def register_pools(falcon: Falcon) -> Body:
    """Add the hosts' blocks, the pools and the composed systems; return what the composition service says of them."""
    tree, state = falcon.tree, falcon.state
    for port in state.host_ports():
        writes = assignment(port, partial(_is_composed, port))
        tree.add(ResourceNode(port.block_uri, partial(_host_block, falcon, port), writes))

    def members(pool: str) -> list[str]:
        blocks: list[SwitchPort] = [*state.host_ports(), *(slot for slot in state.all_slots() if slot.connected)]
        return [block.block_uri for block in blocks if pool_of(block) == pool]

    for pool in ("Free", "Active"):
        tree.collection(f"{SERVICE}/{pool}Pool", "ResourceBlock", f"{pool} Pool", partial(members, pool))
    _register_systems(falcon)
    said: Body = {"FreePool": link(f"{SERVICE}/FreePool"), "ActivePool": link(f"{SERVICE}/ActivePool")}
    if falcon.options.dialect == "compose":
        target = f"{SERVICE}/Actions/{COMPOSE_ACTION}"
        tree.action(target, partial(_compose, falcon), COMPOSE)
        said["Actions"] = {
            f"#{COMPOSE_ACTION}": {
                "target": target,
                "RequestFormat@Redfish.AllowableValues": ["Manifest"],
                "RequestType@Redfish.AllowableValues": ["Apply"],
            }
        }
    return said


def pool_of(block: SwitchPort) -> str:
    """Return the pool of a block by its host port or slot: Unassigned, Free or Active."""
    if not block.client:
        return "Unassigned"
    return "Active" if _is_composed(block) else "Free"


def _is_composed(block: SwitchPort) -> bool:
    return block.system != "" if isinstance(block, SimulatedHostPort) else block.attached_to is not None


def pool_properties(block: SwitchPort) -> Body:
    """Return the properties of a block that say to whom it is assigned."""
    return {"Pool": pool_of(block), "Client": block.client or None}


def assignment(block: SwitchPort, in_use: Callable[[], bool]) -> dict[str, WriteMethod]:
    """Return the method by which a block is assigned to a client, or to none, unless it is in use."""

    async def assign(call: AuthenticatedRequest) -> Reply:
        known, body = pool_properties(block), call.body
        if not body:
            raise no_operation()
        for key in body:
            if key not in known:
                raise property_refused(key, known)
        wanted = known | body
        if not isinstance(wanted["Client"], str | None):
            raise property_type("Client", wanted["Client"])
        if wanted["Pool"] not in ("Free", "Unassigned"):
            raise property_value("Pool", wanted["Pool"])
        if in_use():
            raise conflict(f"The resource block {block.endpoint} is in use; decompose its system first.")
        if wanted["Pool"] == "Free" and not wanted["Client"]:
            raise property_missing("Client")
        block.client = str(wanted["Client"]) if wanted["Pool"] == "Free" else ""
        return Reply(204)

    return {"PATCH": WriteMethod(assign, COMPOSE)}


def _host_block(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the block of the host at a host port; without a cable its computer system is absent."""
    systems = [f"{SYSTEMS}/{port.system}"] if port.system else []
    chain = references(
        ComputerSystems=systems,
        Chassis=[drawer_uri(port.drawer)],
        Zones=[f"{ZONES_OF_BLOCKS}/drawer{port.drawer}"],
    )
    return {
        **identity(port.block_uri, "ResourceBlock", f"Host at {port.name} of drawer {port.drawer}"),
        "ResourceBlockType": ["ComputerSystem"],
        "CompositionStatus": {"CompositionState": "Composed" if systems else "Unused"},
        **pool_properties(port),
        "Status": {"State": "Enabled" if port.host is not None else "StandbyOffline", "Health": "OK"},
        **references(ComputerSystems=[system_uri(falcon, port)]),
        "Links": chain,
    }


def capabilities(falcon: Falcon) -> Body:
    """Return how systems are composed, as an annotation of a collection or zone; a manifest needs none."""
    if falcon.options.dialect == "compose":
        return {}
    zones = [f"{ZONES_OF_BLOCKS}/drawer{number}" for number in falcon.state.drawers]
    capability = {
        "CapabilitiesObject": link(CAPABILITIES),
        "UseCase": "ComputerSystemComposition",
        "Links": {"TargetCollection": link(SYSTEMS), "RelatedItem": [link(uri) for uri in zones]},
    }
    value = {"@odata.type": odata_type("CollectionCapabilities"), "Capabilities": [capability]}
    return {"@Redfish.CollectionCapabilities": value}


def _register_systems(falcon: Falcon) -> None:
    tree, state, dialect = falcon.tree, falcon.state, falcon.options.dialect

    def systems() -> Body:
        uris = [f"{SYSTEMS}/{port.system}" for port in state.host_ports() if port.system]
        return collection(SYSTEMS, "ComputerSystem", "Systems", uris) | capabilities(falcon)

    def find(name: str) -> ResourceNode | None:
        port = _composed_port(falcon, name)
        if port is None:
            return None
        writes = {}
        if dialect != "compose":
            writes["DELETE"] = WriteMethod(partial(_retire, falcon, port), COMPOSE)
        if dialect == "systems":
            writes["PATCH"] = WriteMethod(partial(_change, falcon, port), COMPOSE)
        uri = f"{SYSTEMS}/{name}"
        return ResourceNode(uri, partial(composed_system, falcon, port), writes, revision=lambda: port.revision)

    writes = {}
    if dialect != "compose":
        writes["POST"] = WriteMethod(partial(_create, falcon), COMPOSE)
        tree.add(ResourceNode(f"{SYSTEMS}/Members", None, writes))
        tree.resource(CAPABILITIES, partial(_capabilities, updatable=dialect == "systems"))
    tree.add(ResourceNode(SYSTEMS, systems, writes))
    tree.members(SYSTEMS, find)


def _composed_port(falcon: Falcon, system: str) -> SimulatedHostPort | None:
    return next((port for port in falcon.state.host_ports() if port.system == system), None)


def _capabilities(*, updatable: bool) -> Body:
    return {
        **identity(CAPABILITIES, "ComputerSystem", "Capabilities of composed systems"),
        "Name@Redfish.OptionalOnCreate": True,
        "Links@Redfish.RequiredOnCreate": True,
        "Links": {
            "ResourceBlocks@Redfish.RequiredOnCreate": True,
            "ResourceBlocks@Redfish.UpdatableAfterCreate": updatable,
        },
        "@Redfish.ResourceBlockLimits": {"MinComputerSystem": 1, "MaxComputerSystem": 1},
    }


class _Composition(NamedTuple):
    """The desired blocks of a host port; None in place of its slots decomposes its system."""

    port: SimulatedHostPort
    slots: list[SimulatedSlot] | None

    def check(self, falcon: Falcon) -> None:
        """Refuse blocks of no client or of several, and what the rules of the drawer forbid."""
        self.check_clients()
        falcon.composer.check(self.port, self.slots or [])

    def check_clients(self) -> None:
        """Refuse blocks of no client or of several."""
        blocks: list[SwitchPort] = [self.port, *(self.slots or ())]
        for block in blocks:
            if not block.client:
                raise conflict(f"The resource block {block.endpoint} is in no pool; assign it to the free pool first.")
            if block.client != self.port.client:
                raise conflict(f"The resource block {block.endpoint} belongs to the client {block.client}.")

    def apply(self, falcon: Falcon, by: Actor | None) -> None:
        """Compose or decompose the system of the host port; a system that is composed anew has another Id."""
        port, former = self.port, self.port.system
        self.check(falcon)
        number = int(former.rpartition("-")[2]) if former else port.revision
        port.system = "" if self.slots is None else f"{port.endpoint}-{number + 1}"
        port.revision += 1
        if former:
            falcon.events.report("ResourceEvent.1.3.ResourceRemoved", origin=f"{SYSTEMS}/{former}", by=by)
        if port.system:
            falcon.events.report("ResourceEvent.1.3.ResourceCreated", origin=f"{SYSTEMS}/{port.system}", by=by)
        switch_slots(falcon, port, self.slots or [], by)


def _requested(falcon: Falcon, body: Body) -> _Composition:
    """Return the composition that a new system asks for: one host's block, and blocks of devices."""
    known = {"Name": "", "Description": "", "Links": {"ResourceBlocks": []}}
    for key in body:
        if key not in known:
            raise property_refused(key, known)
    if "Links" not in body:
        raise property_missing("Links/ResourceBlocks")
    names = listed_members({"Links": body["Links"]}, known, "ResourceBlocks", COMPOSITION_BLOCKS)
    ports = [port for port in falcon.state.host_ports() if port.endpoint in names]
    if len(ports) != 1:
        raise conflict(f"A system is composed with the resource block of one host; the list names {len(ports)}.")
    return _Composition(ports[0], falcon.composer.slots_of_list(ports[0], names))


def _check_unused(port: SimulatedHostPort) -> None:
    if port.system:
        raise conflict(f"The resource block {port.endpoint} is in the system {port.system}; decompose that first.")


async def _create(falcon: Falcon, call: AuthenticatedRequest) -> Reply:
    asked = _requested(falcon, call.body)

    def compose() -> None:
        _check_unused(asked.port)
        asked.apply(falcon, call.actor)

    _check_unused(asked.port)
    asked.check(falcon)
    return await carry_out(
        falcon, f"Compose a system of {asked.port.endpoint}", compose, partial(_created, falcon, asked)
    )


def _created(falcon: Falcon, asked: _Composition) -> Reply:
    body = composed_system(falcon, asked.port)
    return Reply(201, body, {"Location": body["@odata.id"]})


async def _retire(falcon: Falcon, port: SimulatedHostPort, call: AuthenticatedRequest) -> Reply:
    retired = _Composition(port, None)
    retired.check(falcon)
    work = _while_composed(port, lambda: retired.apply(falcon, call.actor))
    return await carry_out(falcon, f"Decompose {port.system}", work)


def _while_composed(port: SimulatedHostPort, work: Callable[[], Done]) -> Callable[[], Done]:
    """Return the work on the present system of a host port; it refuses (404) once that has been decomposed."""
    system = port.system

    def done() -> Done:
        if port.system != system:
            raise not_found(f"{SYSTEMS}/{system}")
        return work()

    return done


async def _change(falcon: Falcon, port: SimulatedHostPort, call: AuthenticatedRequest) -> Reply:
    names = listed_members(call.body, composed_system(falcon, port), "ResourceBlocks", COMPOSITION_BLOCKS)
    slots = falcon.composer.slots_of_list(port, names)
    _Composition(port, slots).check(falcon)
    desired = _while_composed(port, lambda: slots)
    return await bind_slots(
        falcon, port, desired, by=call.actor, answer=lambda: Reply(200, composed_system(falcon, port))
    )


async def _compose(falcon: Falcon, call: AuthenticatedRequest) -> Reply:
    """Perform all stanzas of a manifest, or none."""
    body = call.body
    for name, value in {"RequestFormat": "Manifest", "RequestType": "Apply"}.items():
        if name not in body:
            raise parameter_missing(COMPOSE_ACTION, name)
        if body[name] != value:
            raise property_value(name, body[name])
    given = body.get("Manifest")
    manifest = given if isinstance(given, dict) else {}
    stanzas = manifest.get("Stanzas")
    if not isinstance(stanzas, list) or not all(isinstance(stanza, dict) for stanza in stanzas):
        raise property_type("Manifest/Stanzas", stanzas)
    asked = _Manifest(falcon, stanzas)
    asked.check()

    def answer() -> Reply:
        done = {
            "RequestFormat": "Manifest",
            "RequestType": "Apply",
            "Manifest": {**manifest, "Stanzas": asked.answered},
        }
        return Reply(200, done)

    return await carry_out(falcon, "Perform a manifest", lambda: asked.apply(call.actor), answer)


class _Manifest:
    """The stanzas of a manifest: what each host port has after them."""

    def __init__(self, falcon: Falcon, stanzas: Sequence[Body]) -> None:
        self._falcon = falcon
        self._stanzas = stanzas
        self._outcome: dict[str, _Composition] = {}
        self.answered: list[Body] = []
        for stanza in stanzas:
            asked = self._read(stanza)
            self._outcome[asked.port.endpoint] = asked

    def _read(self, stanza: Body) -> _Composition:
        kind, request = stanza.get("StanzaType"), stanza.get("Request")
        if not isinstance(request, dict):
            raise property_type("Request", request)
        if kind == "DecomposeSystem":
            name = member_id(request, SYSTEMS, "Request")
            port = _composed_port(self._falcon, name)
            if port is None:
                raise referenced_not_found("ComputerSystem", name)
            return _Composition(port, None)
        if kind != "ComposeSystem":
            raise property_value("StanzaType", kind)
        asked = _requested(self._falcon, request)
        if asked.port.endpoint not in self._outcome:
            _check_unused(asked.port)
        return asked

    def check(self) -> None:
        """Refuse a manifest of which one stanza cannot be performed."""
        for asked in self._outcome.values():
            asked.check_clients()
        self._falcon.composer.check_together([(asked.port, asked.slots or []) for asked in self._outcome.values()])

    def apply(self, by: Actor | None) -> None:
        """Perform all stanzas: a device that a host keeps is not interrupted."""
        self.check()
        former: dict[str, Any] = {
            f"{SYSTEMS}/{port.system}": composed_system(self._falcon, port)
            for port in self._falcon.state.host_ports()
            if port.system
        }
        # Who gives everything up makes room for others: so no step is refused on the way.
        for asked in sorted(self._outcome.values(), key=lambda one: bool(one.slots)):
            asked.apply(self._falcon, by)
        for stanza in self._stanzas:
            request = stanza["Request"]
            if stanza["StanzaType"] == "DecomposeSystem":
                response = former.get(request["@odata.id"].rstrip("/"), request)
            else:
                response = composed_system(self._falcon, _requested(self._falcon, request).port)
            self.answered.append({**stanza, "Response": response})
